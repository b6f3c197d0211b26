"""Answers that wait for a requester: until it comes, and no longer than is worth it."""

from __future__ import annotations

from broker.replies.absent import NS_PER_MS, WAIT_MOST_NS, WAITING_MAX, YOUNG_NS, Absent


def test_only_a_young_master_waits_and_never_longer_than_both_sides_do() -> None:
    absent = Absent()
    assert absent.patience_ns(0, 5_000) == 0, "it was never elected"
    absent.now_master(100)
    assert absent.patience_ns(100, 1_000) == 1_000 * NS_PER_MS
    assert absent.patience_ns(100, 60_000) == WAIT_MOST_NS
    assert absent.patience_ns(100, -5) == 0 and absent.patience_ns(100, 0) == 0
    assert absent.patience_ns(99 + YOUNG_NS, 1_000) and not absent.patience_ns(100 + YOUNG_NS, 1_000)


def test_who_waits_is_told_once_in_its_order_and_who_gave_up_is_not() -> None:
    absent, told = Absent(), list[str]()
    first, second, third = (lambda: told.append("a")), (lambda: told.append("b")), (lambda: told.append("c"))
    for tell in (first, second, third):
        absent.wait("x", tell)
    absent.wait("y", first)
    absent.give_up("x", second)
    absent.give_up("nobody", second)
    absent.came("z")
    assert told == []
    absent.came("x")
    absent.came("x")
    assert told == ["a", "c"]
    absent.give_up("x", first)
    absent.give_up("y", first)
    absent.came("y")
    assert told == ["a", "c"]


def test_as_many_wait_as_there_is_room_for() -> None:
    absent = Absent()
    absent.now_master(0)
    for number in range(WAITING_MAX):
        absent.wait(str(number), lambda: None)
    assert absent.patience_ns(1, 1_000) == 0
    absent.give_up("0", print)  # not the one that waits
    assert absent.patience_ns(1, 1_000) == 0
    absent.came("1")
    assert absent.patience_ns(1, 1_000) > 0
