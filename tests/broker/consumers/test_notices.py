"""Whom a change of its group is told, and when."""

from __future__ import annotations

from typing import cast

from broker.consumers.members import ConsumerGroup, Member
from broker.consumers.notices import PATIENCE_NS, QUIET_NS, SETTLED_QUIET_NS, Notices
from remoting.connection import Connection

S = 1_000_000_000


def group(name: str, *seen_ns: int) -> tuple[ConsumerGroup, list[Member]]:
    """With members whose last heartbeats were then."""
    made = ConsumerGroup(name)
    for number, when_ns in enumerate(seen_ns):
        connection = cast(Connection, object())
        made.members[connection] = Member(connection, f"c{number}", 0, 513, when_ns)
    return made, list(made.members.values())


def test_changes_are_told_once_to_those_whose_heartbeats_are_over() -> None:
    g, (old, new) = group("g", 0, 60 * S)
    h, (other,) = group("h", 0)
    notices = Notices()
    assert (notices.due_ns, notices.take(0)) == (None, [])
    for _ in range(2):
        notices.changed(h, 60 * S)
        notices.changed(g, 60 * S)
    assert notices.due_ns == 60 * S
    assert notices.take(60 * S) == [(g, old), (h, other)]
    assert (notices.due_ns, notices.take(60 * S + QUIET_NS - 1)) == (60 * S + QUIET_NS, [])
    assert notices.take(60 * S + QUIET_NS) == [(g, new)]
    assert notices.due_ns is None


def test_heartbeats_put_it_off_for_a_time_that_ends() -> None:
    g, (member,) = group("g", 0)
    notices = Notices()
    notices.changed(g, 0)
    for now_ns in range(0, PATIENCE_NS, QUIET_NS // 2):
        member.seen_ns = now_ns
        notices.changed(g, now_ns)  # others come and go
        assert notices.take(now_ns) == []
    assert notices.take(PATIENCE_NS) == [(g, member)]


def test_who_divides_queues_is_told_at_once() -> None:
    g, (divides, beats) = group("g", 0, 0)
    divides.balances = True
    notices = Notices()
    notices.changed(g, 1)
    assert (notices.due_ns, notices.take(1)) == (1, [(g, divides)])
    assert notices.due_ns == QUIET_NS
    beats.settled = True
    assert notices.due_ns == SETTLED_QUIET_NS
    beats.balances = True
    assert notices.take(2) == [(g, beats)]


def test_who_left_is_not_told() -> None:
    g, (stays, leaves) = group("g", 0, 0)
    notices = Notices()
    notices.changed(g, 0)
    del g.members[leaves.connection]
    notices.changed(g, 1)
    assert notices.take(S) == [(g, stays)]
    notices.changed(g, S)
    g.members.clear()
    notices.changed(g, S)
    assert (notices.due_ns, notices.take(9 * S)) == (None, [])
