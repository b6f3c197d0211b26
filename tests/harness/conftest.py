"""What several of these tests need: a port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.processes.ports import reserved


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that is ours for the whole test."""
    with reserved() as port:
        yield port
