"""What counts as a false alarm."""

from __future__ import annotations

import os

import pytest

from benchmarks.alarms import busy, changes, main
from mqcluster.looking import GroupView


@pytest.mark.parametrize(("before", "now", "alarm"), [
    (GroupView("m", 3, set_epoch=9), GroupView("m", 3, set_epoch=9), False),
    (GroupView("m", 3, set_epoch=9), GroupView("n", 4, set_epoch=10), True),
    (GroupView("m", 3, set_epoch=9), GroupView("m", 3, set_epoch=11), True),
    (GroupView("m", 3, set_epoch=9), None, False),
    (None, GroupView("m", 3, set_epoch=9), False),
])
def test_each_change_is_one_and_a_controller_that_says_nothing_is_none(
        before: GroupView | None, now: GroupView | None, alarm: bool) -> None:
    assert bool(changes(before, now)) is alarm


def test_busy_processes_end_with_what_they_disturb() -> None:
    def children() -> list[str]:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return file.read().split()

    before = children()
    with busy(nice=15) as made:
        made.more(3)
        made.more(-1)
        assert len(children()) == len(before) + 2 == len(before) + len(made)
    assert children() == before


def test_a_profile_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--profile", "slow"])
    assert "invalid choice: 'slow'" in capsys.readouterr().err
