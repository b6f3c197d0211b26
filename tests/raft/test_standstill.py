"""A leader whose entries no quorum takes gives way once, and again only where another could do better."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import attrs
import pytest

from raft.config import MS, Config, DLedgerTimers, Rules
from raft.messages import Append, AppendReply, Role, SnapshotChunk
from raft.trace import BecameFollower, BecameLeader
from tests.raft.script import Mail, Script, led

CONFIGS = {
    "strict": Config(),
    "dledger": Config(rules=Rules.DLEDGER, dledger=DLedgerTimers(
        heart_beat_time_interval_ms=100, min_vote_interval_ms=60, max_vote_interval_ms=200, vote_wait_ms=200)),
}

SMALL_CHUNKS: dict[str, Any] = {
    "message_bytes_max": 16 << 10, "append_bytes_max": 4_096, "frame_bytes_max": 4_096, "entry_bytes_max": 2_048,
    "snapshot_chunk_bytes": 4_096}


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


def test_BUG_F14_nobody_waits_for_a_sync_of_who_holds_what_is_to_be_committed() -> None:
    """Two others lack it, and take nothing from this leader."""
    script = led(5)
    script.crash("n4")
    script.filter = deaf_to_entries("n2", "n3", to="n0")
    _, due = script.propose("n0", b"w")
    script.settle()
    script.nodes["n1"].syncing = False
    script.propose("n0", b"later")
    script.elapse(200)
    holder, seq = script["n0"].peers["n1"], script["n0"].leadership_seq
    assert (holder.match, holder.last_index, script["n0"].commit_index) == (due, due + 1, due - 1)
    script.elapse(1_000)
    assert script["n0"].role is not Role.LEADER or script["n0"].leadership_seq > seq


def test_BUG_F14_a_follower_that_holds_more_than_it_has_synced_is_waited_for() -> None:
    """Its log grows: an answer now and then is progress."""
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


@pytest.mark.parametrize("gains", [True, False])
def test_BUG_F14_a_follower_that_gains_a_snapshot_is_waited_for(gains: bool) -> None:
    """A chunk that it stores is progress, however long the whole takes; one that it is sent in vain is none."""
    script = led(config=attrs.evolve(Config(), snapshot_tail_entries=0, **SMALL_CHUNKS))
    script.cut("n1")
    for _ in range(40):
        script.propose("n0", bytes(2_000))
        script.settle()
    script.snapshot("n0")
    script.crash("n2")
    script.heal()
    seq, chunks = script["n0"].leadership_seq, list[Mail]()

    def slow(mail: Mail) -> bool:
        if isinstance(mail.message, SnapshotChunk):
            chunks.append(mail)
            return False
        return True

    script.propose("n0", b"w")
    for stored in range(12):
        script.filter = slow
        script.elapse(200)
        if gains:
            assert script["n0"].leadership_seq == seq and script["n0"].role is Role.LEADER, f"{stored} chunks"
            script.filter = None
            script.deliver(chunks.pop())
    assert script["n1"].log.snapshot is None, "it is under way for five times the wait"
    if not gains:
        assert script["n0"].leadership_seq > seq or script["n0"].role is not Role.LEADER
        return
    script.filter = None
    script.elapse(5_000)
    assert script["n1"].log.purged_index > 1, "it begins behind the snapshot"
    assert script["n0"].commit_index == script["n0"].log.last_index


def test_BUG_F14_each_time_it_waits_twice_as_long() -> None:
    """Two hold all and could do better, each in turn; no leader's entries reach the other two."""
    script = led(5)
    script.crash("n4")
    script.filter = deaf_to_entries("n2", "n3")
    script.propose("n0", b"w")
    script.elapse(120_000)
    led_for: dict[str, list[float]] = {"n0": [], "n1": []}
    for name, times in led_for.items():
        began = 0
        for event in script.nodes[name].traces:
            if isinstance(event, BecameLeader):
                began = event.at_ns
            elif isinstance(event, BecameFollower) and began:
                times.append((event.at_ns - began) / MS)
                began = 0
    for times in (led_for["n0"][1:], led_for["n1"]):
        assert len(times) >= 3
        assert all(1.6 * before < after < 2.6 * before for before, after in pairwise(times)), led_for
