"""Many tasks leave their figures in one directory, and the sums over all of them are read back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.source.metrics import collect, leave


def test_figures_of_tasks_and_plans_are_summed_by_name(tmp_path: Path) -> None:
    directory = str(tmp_path / "not" / "made yet")
    leave(directory, planned_bytes=7)
    for bytes_read in (3, 4, 4):  # the same figures twice are two tasks
        leave(directory, bytes_read=bytes_read, segments=1)
    assert collect(directory) == {"planned_bytes": 7, "bytes_read": 11, "segments": 3}


@pytest.mark.parametrize("named", [str, lambda path: path.name, Path.as_uri])
def test_a_directory_is_named_by_path_or_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: Callable[[Path], str],
) -> None:
    monkeypatch.chdir(tmp_path)
    leave(named(tmp_path / "metrics"), segments=2)
    assert collect(str(tmp_path / "metrics")) == {"segments": 2}
