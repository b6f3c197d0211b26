"""What is owed to whom after an election, and when it is sent again."""

from __future__ import annotations

from typing import Any

import pytest

from controller.metadata.groups import GroupKey
from controller.metadata.outcomes import Elected
from controller.notifications import FIRST_RETRY_MS, LAST_RETRY_MS, MS, UNTOLD_MS, Notification, Notifications

KEY, OTHER = GroupKey("c", "a"), GroupKey("c", "b")


def elected(master: int = 1, epoch: int = 1, members: int = 3, key: GroupKey = KEY) -> Elected:
    return Elected(
        key=key, master=master, address=f"b{master}:1", master_epoch=epoch, sync_state_set=frozenset({master}),
        sync_state_set_epoch=epoch, members={i: f"b{i}:1" for i in range(1, members + 1)}, previous=None, clean=True)


class Desk:
    """Notifications whose times are given in milliseconds."""

    def __init__(self, active_at: int | None = 0) -> None:
        self.owed = Notifications()
        self.dead: set[int] = set()
        if active_at is not None:
            self.owed.activate(active_at * MS)

    def due(self, at_ms: int) -> list[Notification]:
        return self.owed.due(at_ms * MS, lambda key, i: None if i in self.dead else f"b{i}:1")

    def ids(self, at_ms: int) -> list[int]:
        return [each.broker_id for each in self.due(at_ms)]


def test_all_members_are_told_the_master_first() -> None:
    desk = Desk()
    desk.owed.elected(0, elected(master=2))
    assert desk.ids(0) == [2, 1, 3]
    assert desk.ids(60_000) == [], "each is under way until something is reported"


def test_BUG_A12_told_until_it_answers() -> None:
    """A broker that does not answer is told again and again, ever less often, but as often as it polls."""
    desk = Desk()
    desk.owed.elected(0, elected(members=1))
    now, waits = 0, []
    for _ in range(8):
        (notification,) = desk.due(now)
        desk.owed.failed(now * MS, notification)
        due = desk.owed.next_deadline()
        assert due is not None
        waits.append(due // MS - now)
        assert desk.due(now + waits[-1] - 1) == []
        now += waits[-1]
    assert waits[0] == FIRST_RETRY_MS and waits[-1] == LAST_RETRY_MS and waits == sorted(waits)
    (notification,) = desk.due(now)
    desk.owed.acknowledged(notification)
    assert len(desk.owed) == 0 and desk.due(now + 10**6) == []


def test_a_newer_epoch_takes_the_place_of_an_older() -> None:
    desk = Desk()
    desk.owed.elected(0, elected(epoch=1, members=1))
    (older,) = desk.due(0)
    desk.owed.elected(1 * MS, elected(epoch=2, members=1))
    (newer,) = desk.due(1)
    assert newer.change.master_epoch == 2 and len(desk.owed) == 1
    desk.owed.acknowledged(older)
    desk.owed.failed(2 * MS, older)
    assert len(desk.owed) == 1, "what becomes of the older one means nothing any more"
    desk.owed.acknowledged(newer)
    assert len(desk.owed) == 0


def test_who_is_dead_is_told_when_it_comes_back() -> None:
    desk = Desk()
    desk.dead = {2}
    desk.owed.elected(0, elected())
    assert desk.ids(0) == [1, 3]
    assert desk.ids(100_000) == []
    desk.dead = set()
    desk.owed.came_alive(100_000 * MS, KEY, 2)
    assert desk.ids(100_000) == [2]


def test_coming_back_ends_a_long_wait() -> None:
    desk = Desk()
    desk.owed.elected(0, elected(members=1))
    for now in (0, 200, 600, 1_400):
        desk.owed.failed(now * MS, desk.due(now)[0])
    desk.owed.came_alive(1_500 * MS, KEY, 1)
    assert desk.ids(1_500) == [1]


def test_coming_back_doubles_nothing() -> None:
    desk = Desk()
    desk.owed.elected(0, elected(members=1))
    desk.due(0)
    desk.owed.came_alive(0, KEY, 1)
    desk.owed.came_alive(0, OTHER, 1)
    assert desk.due(0) == []


def test_who_was_cleaned_away_is_owed_nothing() -> None:
    desk = Desk()
    desk.owed.elected(0, elected(members=2))
    desk.owed.forget(KEY, 2)
    assert desk.ids(0) == [1]


def test_what_an_active_controller_left_untold_the_next_one_tells() -> None:
    desk = Desk(active_at=None)
    desk.owed.elected(0, elected(members=1))
    desk.owed.elected(0, elected(members=1, key=OTHER))
    assert desk.due(10) == [] and desk.owed.next_deadline() is None
    desk.owed.activate(10 * MS)
    assert len(desk.due(10)) == 2


@pytest.mark.parametrize(("after_ms", "told"), [(UNTOLD_MS - 1, 1), (UNTOLD_MS, 0)])
def test_what_is_long_known_by_polls_is_not_told(after_ms: int, told: int) -> None:
    desk = Desk(active_at=None)
    desk.owed.elected(0, elected(members=1))
    desk.owed.activate(after_ms * MS)
    assert len(desk.due(after_ms)) == told == len(desk.owed)


def test_a_report_of_an_earlier_leadership_counts_in_the_next() -> None:
    desk = Desk()
    desk.owed.elected(0, elected(members=1))
    (notification,) = desk.due(0)
    desk.owed.deactivate()
    desk.owed.failed(10 * MS, notification)
    assert desk.due(10_000) == []
    desk.owed.activate(10_000 * MS)
    (again,) = desk.due(10_000)
    assert again == notification


def test_many_groups_are_one_batch() -> None:
    desk = Desk()
    changes: list[Any] = [elected(key=GroupKey("c", f"g{number}")) for number in range(100)]
    for change in changes:
        desk.owed.elected(0, change)
    assert len(desk.due(0)) == 300
