"""Files of a store, in memory and on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.store.directory import DirectoryFiles
from broker.store.files import Files, MemoryFiles


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return MemoryFiles() if request.param == "memory" else DirectoryFiles(tmp_path)
