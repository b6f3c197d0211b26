"""The table of who lives: rows of what was heard, and what is held of the broker at which time."""

from __future__ import annotations

from typing import Any

import pytest

from controller.liveness import MS, SWEPT_FROM, Gone, Heartbeat, Life, Liveness
from controller.metadata.commands import LiveReplica
from controller.metadata.groups import GroupKey
from tests.controller.test_active import run

KEY, OTHER = GroupKey("c", "a"), GroupKey("c", "b")


def beat(broker_id: int = 1, key: GroupKey = KEY, replica: LiveReplica | None = None, **more: Any) -> Heartbeat:
    return Heartbeat(key, broker_id, f"b{broker_id}:1", replica or LiveReplica(), **more)


class Table:
    """A table whose times are given in milliseconds."""

    def __init__(self, active_at: int | None = 0, **more: Any) -> None:
        self.liveness = Liveness(default_timeout_ms=1_000, **more)
        if active_at is not None:
            self.liveness.activate(active_at * MS)

    def hear(self, at_ms: int, channel: object = "x", broker_id: int = 1, key: GroupKey = KEY, opened: int = 0,
             **more: Any) -> bool:
        return self.liveness.heartbeat(at_ms * MS, beat(broker_id, key, **more), channel, opened=opened)

    def life(self, at_ms: int, broker_id: int = 1, key: GroupKey = KEY) -> Life:
        self.expire(at_ms)
        return self.liveness.life(at_ms * MS, key, broker_id)

    def expire(self, at_ms: int) -> list[Gone]:
        """At this time, by a process that ran until then."""
        run(self.liveness, at_ms * MS)
        return self.liveness.expire(at_ms * MS)

    def wake(self, at_ms: int) -> list[Gone]:
        """After a pause that ends at this time."""
        self.liveness.attention.look(at_ms * MS)
        return self.liveness.expire(at_ms * MS)

    def live(self, at_ms: int, master: int | None = None) -> set[int]:
        self.expire(at_ms)
        return set(self.liveness.observe(at_ms * MS, KEY, master).live)


def test_alive_until_the_timeout_and_no_longer() -> None:
    table = Table()
    assert table.hear(0)
    assert not table.hear(500)
    assert table.life(1_500) is Life.ALIVE
    assert table.life(1_501) is Life.SILENT
    assert table.hear(1_600)
    assert table.life(1_600) is Life.ALIVE


def test_brokers_that_went_on_beating_move_on_together_and_who_did_not_is_judged_in_time() -> None:
    table = Table()
    for number in range(1, 51):
        table.hear(number, number, number)
    for number in range(2, 51):
        table.hear(500 + number, number, number)
    assert table.expire(1_001) == []
    assert table.liveness.next_deadline() == 1_001 * MS + 1
    assert table.expire(1_002) == [Gone(KEY, 1, Life.SILENT)]
    assert table.liveness.next_deadline() == 1_502 * MS + 1, "one look moved them all"
    assert table.expire(1_503) == [Gone(KEY, 2, Life.SILENT)]


def test_a_broker_says_its_own_timeout() -> None:
    table = Table()
    table.hear(0, timeout_ms=5_000)
    assert table.life(4_900) is Life.ALIVE
    table.hear(4_900, timeout_ms=100)
    assert table.liveness.next_deadline() == 5_000 * MS + 1
    assert table.expire(5_001) == [Gone(KEY, 1, Life.SILENT)]


def test_who_was_never_heard_is_not_known() -> None:
    assert Table().life(0) is Life.UNKNOWN
    assert Table().liveness.beat(KEY, 1) is None


def test_BUG_A5_silence_is_judged_at_its_deadline() -> None:
    """The deadline is the timeout after the last heartbeat, and there is no scan to wait for."""
    table = Table()
    table.hear(0)
    table.hear(400)
    due = table.liveness.next_deadline()
    assert due == 1_000 * MS + 1  # early: it moves on when it is looked at
    assert table.liveness.expire(due) == []
    due = table.liveness.next_deadline()
    assert due == 1_400 * MS + 1
    assert table.liveness.expire(due) == [Gone(KEY, 1, Life.SILENT)]
    assert table.liveness.next_deadline() is None


def test_BUG_A1_a_new_active_controller_waits_before_it_judges_silence() -> None:
    """Silence counts from the moment this controller became active; until then nothing is known, nobody is dead."""
    table = Table(active_at=None)
    table.hear(0)
    assert table.expire(60_000) == []
    table.liveness.activate(60_000 * MS)
    assert table.life(61_000) is Life.UNKNOWN
    assert table.live(61_000, master=1) == {1}, "a master is presumed alive as long as it is not judged"
    assert table.live(61_000, master=None) == set()
    assert table.expire(61_001) == [Gone(KEY, 1, Life.SILENT)]


def test_BUG_A1_a_master_that_never_beat_here_has_as_long() -> None:
    """A master that only the metadata knows is expected from then on."""
    table = Table(active_at=5_000)
    table.liveness.expect(5_000 * MS, KEY, 7)
    assert table.live(6_000, master=7) == {7}
    assert table.expire(6_001) == [Gone(KEY, 7, Life.SILENT)]
    assert table.live(6_001, master=7) == set()


def test_a_close_is_proof_at_once_and_for_whoever_becomes_active() -> None:
    table = Table(active_at=None)
    table.hear(0)
    assert table.liveness.closed("x") == [Gone(KEY, 1, Life.CLOSED)]
    table.liveness.activate(100 * MS)
    assert table.life(100) is Life.CLOSED
    assert table.live(100, master=1) == set()
    assert table.liveness.dead(100 * MS, KEY, 1)
    assert table.hear(200, "y")
    assert table.life(200) is Life.ALIVE


def test_BUG_A2_a_stale_channel_closes_nothing() -> None:
    """A broker is where its latest heartbeat came from: the former channel's end says nothing, this one's does."""
    table = Table()
    table.hear(0, "old")
    table.hear(10, "new")
    assert table.liveness.closed("old") == []
    assert table.life(20) is Life.ALIVE
    assert table.liveness.closed("new") == [Gone(KEY, 1, Life.CLOSED)]


def test_BUG_A15_a_late_heartbeat_by_a_channel_that_was_left_says_nothing() -> None:
    """It was sent before those that came by the new channel: neither its data nor its channel are the latest."""
    table = Table()
    table.hear(0, "old")
    table.hear(10, "new", replica=LiveReplica(1, 50))
    assert not table.hear(20, "old", replica=LiveReplica(1, 40))
    known = table.liveness.beat(KEY, 1)
    assert known is not None and known.replica.max_offset == 50
    assert table.liveness.closed("old") == []
    assert table.life(20) is Life.ALIVE


@pytest.mark.parametrize("known", ["left", "older"])
def test_a_late_heartbeat_by_a_former_channel_deposes_nobody_where_this_process_stood_still(known: str) -> None:
    """It reads by the former channel what waited there, then its end, and only then what came by the newest one."""
    table = Table()
    if known == "left":
        table.hear(0, "old", opened=1)
    table.hear(10, "new", opened=2)
    assert not table.hear(2_500, "old", opened=1)
    assert table.liveness.closed("old") == []
    assert table.wake(2_500) == []
    assert table.life(2_500) is Life.UNKNOWN
    assert not table.live(2_500), "what came by the former channel is no sign of life"
    table.hear(2_501, "new", opened=2)
    assert table.life(2_501) is Life.ALIVE


@pytest.mark.parametrize("closes", [False, True])
def test_a_channel_that_was_left_counts_again_when_the_other_carries_nothing(closes: bool) -> None:
    table = Table()
    table.hear(0, "old")
    table.hear(10, "new")
    if closes:
        table.liveness.closed("new")
    else:
        table.expire(2_000)
    assert table.hear(2_000, "old")
    assert table.liveness.closed("old") == [Gone(KEY, 1, Life.CLOSED)]


def test_a_broker_may_move_into_a_container_that_was_there_before() -> None:
    table = Table()
    table.hear(0, "container", broker_id=2)
    table.hear(10, "alone")
    table.hear(20, "container")
    assert table.liveness.closed("alone") == []
    assert table.liveness.closed("container") == [Gone(KEY, 1, Life.CLOSED), Gone(KEY, 2, Life.CLOSED)]


def test_who_is_forgotten_left_nothing_behind() -> None:
    table = Table()
    table.hear(0, "old")
    table.hear(10, "new")
    table.liveness.forget(KEY, 1)
    assert not table.liveness._left and not table.liveness._by_connection


def test_BUG_A3_a_channel_carries_many_brokers() -> None:
    """One process may hold brokers of several groups: all of them die with their channel, in a fixed order."""
    table = Table()
    table.hear(0, broker_id=2, key=OTHER)
    table.hear(0, broker_id=1)
    table.hear(0, "else", broker_id=3)
    assert table.liveness.closed("x") == [Gone(KEY, 1, Life.CLOSED), Gone(OTHER, 2, Life.CLOSED)]
    assert table.life(1, 3) is Life.ALIVE


@pytest.mark.parametrize(("first", "second"), [
    (LiveReplica(5, 900), LiveReplica(4, 1_000)),
    (LiveReplica(5, 900), LiveReplica(5, 10)),
    (LiveReplica(5, 900, priority=1, min_in_sync_replicas=2), LiveReplica(5, 900)),
])
def test_BUG_A6_the_latest_heartbeat_is_what_counts(first: LiveReplica, second: LiveReplica) -> None:
    """A broker that truncated its log is not remembered for what it once had."""
    table = Table()
    table.hear(0, replica=first)
    table.hear(1, replica=second)
    assert table.liveness.observe(MS, KEY, None).live == {1: second}


def test_silent_then_closed_is_gone_once() -> None:
    table = Table()
    table.hear(0)
    assert table.expire(2_000) == [Gone(KEY, 1, Life.SILENT)]
    assert table.liveness.closed("x") == []
    assert table.life(2_000) is Life.CLOSED


@pytest.mark.parametrize(("announced", "renewed_at", "active_at", "until_ms"), [
    ({}, 100, 0, None),
    ({"master_lease_ms": 500, "all_ack_in_sync_state_set": True}, 100, 0, None),
    ({"master_lease_ms": 500}, 100, 0, 600),
    ({"master_lease_ms": 500}, 100, 400, 900),
    ({"master_lease_ms": 500}, None, 400, 900),
    ({"master_lease_ms": 9_000}, 100, 0, 1_100),
])
def test_BUG_A14_until_when_a_lease_may_hold(
    announced: dict[str, Any], renewed_at: int | None, active_at: int, until_ms: int | None
) -> None:
    """From the latest renewal by anybody, hence not before this controller became active; no longer than silence."""
    table = Table(active_at=None)
    table.hear(0, **announced)
    if renewed_at is not None:
        table.liveness.renew_lease(renewed_at * MS, KEY, 1)
    table.liveness.activate(active_at * MS)
    until = table.liveness.lease_until(KEY, 1)
    assert until == (None if until_ms is None else until_ms * MS)


def test_BUG_A16_strangers_are_bounded() -> None:
    """Heartbeats of brokers that no group knows fill no more than the bound, and what left is forgotten."""
    table = Table(brokers_max=2)
    assert table.hear(0, broker_id=1) and table.hear(0, broker_id=2)
    assert not table.hear(0, broker_id=3)
    assert table.liveness.refused == 1 and len(table.liveness) == 2
    table.liveness.forget(KEY, 2)
    assert table.hear(0, broker_id=3) and len(table.liveness) == 2


@pytest.mark.parametrize("active_at", [None, 0])
def test_BUG_A16_who_comes_and_goes_leaves_nothing_behind(active_at: int | None) -> None:
    """Neither on the active controller nor on the others, whatever timeout a stranger announces."""
    table = Table(active_at=active_at)
    table.hear(0, broker_id=1)
    for number in range(3 * SWEPT_FROM):
        table.hear(number, f"channel {number}", broker_id=2, timeout_ms=2**62)
        table.liveness.closed(f"channel {number}")
        table.liveness.forget(KEY, 2)
    assert len(table.liveness) == 1
    assert len(table.liveness._queue) <= SWEPT_FROM + 2
    assert len(table.liveness._by_connection) == 1 and not table.liveness._left
    table.liveness.activate(0)
    assert table.expire(1_001) == [Gone(KEY, 1, Life.SILENT)], "those that stay are still judged"


def test_another_leadership_starts_anew() -> None:
    table = Table()
    table.hear(0)
    assert table.expire(1_001)
    table.liveness.deactivate()
    assert table.liveness.next_deadline() is None
    table.liveness.activate(5_000 * MS)
    assert table.life(6_000) is Life.UNKNOWN
    assert table.expire(6_001) == [Gone(KEY, 1, Life.SILENT)]


def test_the_living_are_counted_by_group() -> None:
    table = Table()
    table.hear(0)
    table.hear(0, broker_id=2)
    table.hear(0, "y", key=OTHER)
    table.liveness.closed("y")
    assert table.liveness.alive_count(0) == {KEY: 2, OTHER: 0}


def test_BUG_A15_so_does_one_by_an_older_channel_that_was_never_heard() -> None:
    """Its first bytes were lost on the way, and the broker has gone on by another: its close deposes nobody."""
    table = Table().liveness
    table.heartbeat(MS, beat(), "newer", opened=2)
    assert not table.heartbeat(2 * MS, beat(), "older", opened=1)
    assert table.closed("older") == []
    assert table.life(3 * MS, KEY, 1) is Life.ALIVE
    assert [gone.broker_id for gone in table.closed("newer")] == [1]
    assert table.heartbeat(4 * MS, beat(), "older", opened=1), "nothing else carries it"


@pytest.mark.parametrize("late_ms", [1, 900, 5_000])
def test_a_pause_of_the_judge_itself_is_nobodys_silence(late_ms: int) -> None:
    """It wakes just after a deadline, before it reads the heartbeats that wait in its sockets."""
    table = Table()
    table.hear(0, timeout_ms=10_000)
    table.expire(50)
    assert table.wake(10_000 + late_ms) == []
    assert table.life(19_999 + late_ms) is not Life.SILENT
    assert table.expire(20_001 + late_ms) == [Gone(KEY, 1, Life.SILENT)], "silence began anew"


@pytest.mark.parametrize(("timeout_ms", "pause_ms", "counts"), [
    (10_000, 950, False), (10_000, 1_100, True), (1_000, 250, False), (1_000, 400, True), (60_000, 1_100, True)])
def test_a_pause_counts_from_a_quarter_of_the_timeout_or_a_second(timeout_ms: int, pause_ms: int, counts: bool) -> None:
    """Else a process that is held up now and then would never judge."""
    table = Table()
    table.hear(0, timeout_ms=timeout_ms)
    table.expire(timeout_ms // 2)
    table.wake(timeout_ms // 2 + pause_ms)
    assert (table.expire(timeout_ms + 100) == []) is counts


def test_a_short_pause_after_a_long_one_does_not_hide_it() -> None:
    table = Table()
    table.hear(0, timeout_ms=10_000)
    table.wake(5_000)
    table.expire(6_000)
    table.wake(6_300)
    assert table.expire(14_999) == []
    assert table.expire(15_001) == [Gone(KEY, 1, Life.SILENT)]
