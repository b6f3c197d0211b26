"""A leader whose entries no quorum takes gives way once, and again only where another could do better."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raft.config import Config, DLedgerTimers, Rules
from raft.messages import Append, AppendReply, Role
from raft.trace import BecameLeader
from tests.raft.script import Mail, Script, led

CONFIGS = {
    "strict": Config(),
    "dledger": Config(rules=Rules.DLEDGER, dledger=DLedgerTimers(
        heart_beat_time_interval_ms=100, min_vote_interval_ms=60, max_vote_interval_ms=200, vote_wait_ms=200)),
}


def deaf_to_entries(*names: str, to: str = "") -> Callable[[Mail], bool]:
    """These take no entries (of ``to``, if given), but answer beats."""
    def passes(mail: Mail) -> bool:
        message = mail.message
        return not (isinstance(message, Append) and message.frames and mail.target in names
                    and to in ("", mail.source))
    return passes


def leaderships(script: Script, since: int) -> list[str]:
    return [event.node for node in script.nodes.values() for event in node.traces
            if isinstance(event, BecameLeader) and event.at_ns >= since]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_BUG_F14_it_gives_way_once_and_not_for_ever(config: Config) -> None:
    """hashicorp 612, 614: a leader that is answered and commits nothing. Nobody else holds what it has, so it stays."""
    script = led(config=config)
    script.crash("n2")
    script.filter = deaf_to_entries("n0", "n1")
    script.propose("n0", b"w")
    start = script.now
    script.elapse(60_000)
    assert 1 <= len(leaderships(script, start)) <= 3
    assert script.leader() is not None
    script.filter = None
    script.elapse(10_000)
    leader = script.leader()
    assert leader is not None and leader.commit_index == leader.log.last_index


def test_BUG_F14_one_that_could_do_better_gets_its_turn() -> None:
    """Two followers take nothing from this leader; the third holds all and reaches them."""
    script = led(5)
    script.crash("n4")
    script.filter = deaf_to_entries("n2", "n3", to="n0")
    script.propose("n0", b"w")
    script.elapse(60_000)
    leader = script.leader()
    assert leader is not None and leader.commit_index == leader.log.last_index


@pytest.mark.parametrize("excuse", ["sync under way", "disk full", "gains log"])
def test_BUG_F14_it_stays_while_a_follower_that_it_needs_is_at_work(excuse: str) -> None:
    """Everybody waits for that follower, and would under any leader."""
    script = led()
    script.crash("n2")
    if excuse == "sync under way":
        script.nodes["n1"].syncing = False
    elif excuse == "disk full":
        script["n1"].storage_fault(script.now, "full")
        script.pump("n1")
    script.propose("n0", b"w")
    seq = script["n0"].leadership_seq
    for _ in range(10):
        script.elapse(300)
        if excuse == "gains log":
            script.propose("n0", b"w")
    assert script["n0"].role is Role.LEADER and script["n0"].leadership_seq == seq


def test_BUG_F14_a_follower_that_gains_a_snapshot_is_waited_for() -> None:
    """Its acknowledgements of chunks are progress; so is what it holds and has not synced."""
    script = led()
    script.crash("n2")
    held: list[Mail] = []

    def slow(mail: Mail) -> bool:
        if isinstance(mail.message, AppendReply) and mail.source == "n1" and mail.message.match > 5:
            held.append(mail)
            return len(held) % 3 == 0
        return True

    script.filter = slow
    seq = script["n0"].leadership_seq
    for _ in range(20):
        script.propose("n0", b"w")
        script.elapse(100)
    assert script["n0"].leadership_seq == seq and script["n0"].role is Role.LEADER
