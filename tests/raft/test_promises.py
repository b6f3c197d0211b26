"""Acknowledgements that leave with the sync: what they say, when there are none, and that nothing is said twice.

And when a node must hear of a sync at once, because something waits for its disk alone.
"""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from harness.simulation.worlds.nodes import Counter, Nodes
from raft.frame import Frame
from raft.messages import Append, AppendReply, Code, PeerMessage, TimeoutNow, Write
from raft.node import Node
from raft.outbox import Outbox
from raft.replica import Replica
from tests.raft.script import Script, frame
from tests.raft.test_host import FAST
from tests.raft.test_host import n as applied
from tests.raft.test_host import three as three_hosts

THREE = {"n0": "h:1", "n1": "h:2", "n2": "h:3"}


def append(term: int, prev: tuple[int, int], *frames: Frame, sequence: int = 1, session: int = 1) -> Append:
    return Append(1, term, session, sequence, *prev, 0, 0, frames)


def follower(*messages: Append) -> Script:
    """n1 follows n0 in term 1, which is on its disk, and has taken these messages; nothing more is synced."""
    script = Script(3)
    give(script, append(1, (0, 0)))
    script.nodes["n1"].syncing = False
    give(script, *messages)
    return script


def give(script: Script, *messages: PeerMessage) -> None:
    for message in messages:
        script["n1"].receive(script.now, "n0", message)
        script.pump("n1")
    script.mail.clear()


def acknowledged(script: Script) -> list[int]:
    return [mail.message.match for mail in script.mail
            if isinstance(mail.message, AppendReply) and mail.message.code == Code.SUCCESS]


def promised(replica: Replica) -> AppendReply:
    promise = replica.following.early_ack()
    assert promise is not None and promise[0] == "n0"
    return promise[1]


def test_a_promise_is_what_the_disk_would_have_let_it_say() -> None:
    script = follower(append(1, (0, 0), frame(1, 1), frame(2, 1), sequence=2))
    promise = promised(script["n1"])
    script.sync("n1")
    assert [mail.message for mail in script.mail] == [promise]
    assert (promise.match, promise.sequence, promise.term) == (2, 2, 1)


def test_nothing_is_promised_without_new_entries_or_without_a_leader() -> None:
    script = follower()
    assert script["n1"].following.early_ack() is None
    give(script, append(1, (0, 0), frame(1, 1), sequence=2))
    assert script["n1"].following.early_ack() is not None
    script["n1"].storage_fault(script.now, "full")
    script.pump("n1")
    assert script["n1"].following.early_ack() is None
    leader = Script(3).elect("n0")
    assert leader.following.early_ack() is None


def test_what_was_kept_is_not_said_again_and_what_came_after_is() -> None:
    script = follower(append(1, (0, 0), frame(1, 1), sequence=2))
    first = promised(script["n1"])
    give(script, append(1, (1, 1), frame(2, 1), sequence=3))
    replica, writes = script["n1"], script.nodes["n1"].writes
    replica.following.early_ack_sent(first)
    replica.durable(script.now, writes[0].token)
    script.pump("n1")
    assert acknowledged(script) == []
    replica.durable(script.now, writes[1].token)
    script.pump("n1")
    assert acknowledged(script) == [2]


def test_what_was_not_kept_is_said_when_the_disk_reports() -> None:
    script = follower(append(1, (0, 0), frame(1, 1), sequence=2))
    assert promised(script["n1"]).match == 1
    script.sync("n1")
    assert acknowledged(script) == [1]


def test_a_promise_kept_in_another_session_or_term_silences_nothing() -> None:
    for stale in (append(1, (0, 0), sequence=1, session=2), append(2, (0, 0))):
        script = follower(append(1, (0, 0), frame(1, 1), frame(2, 1), sequence=2))
        kept = promised(script["n1"])
        give(script, stale, attrs.evolve(stale, sequence=2, frames=[frame(1, 1), frame(2, 1), frame(3, stale.term)]))
        script["n1"].following.early_ack_sent(kept)
        script.sync("n1")
        assert acknowledged(script)[-1] == 3


# --- who waits for the disk --------------------------------------------------------------------------------------


def waits(replica: Replica) -> bool:
    return replica.needs_disk


def test_a_leader_waits_for_its_disk_once_the_peers_hold_enough() -> None:
    script = Script(3)
    leader = script.elect("n0")
    for node in script.nodes.values():
        node.syncing = False
    script.propose("n0", b"x")
    script.settle()
    assert not waits(leader), "no peer holds it yet, so its own disk would commit nothing"
    script.sync("n1")
    script.settle()
    assert waits(leader) and leader.commit_index < leader.log.last_index
    script.sync("n2")
    script.settle()
    assert waits(leader) and leader.commit_index == leader.log.last_index, "committed, but not to be applied here yet"
    script.sync("n0")
    assert not waits(leader)


def test_a_leader_without_peers_waits_for_its_disk() -> None:
    script = Script(1)
    leader = script.elect("n0")
    script.nodes["n0"].syncing = False
    script.propose("n0", b"x")
    assert waits(leader)
    script.sync("n0")
    assert not waits(leader)


def test_a_follower_waits_for_its_disk_only_to_apply_or_to_take_over() -> None:
    script = follower(append(1, (0, 0), frame(1, 1), sequence=2))
    replica = script["n1"]
    assert not waits(replica)
    replica.receive(script.now, "n0", attrs.evolve(append(1, (1, 1), sequence=3), commit=1))
    assert waits(replica)
    script.sync("n1")
    assert not waits(replica)
    give(script, append(1, (1, 1), frame(2, 1), sequence=4))
    assert not waits(replica)
    give(script, TimeoutNow(1, 1, 2, 1))
    assert waits(replica)


# --- in a node ---------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Vow:
    """A promise whose fate the test decides beforehand."""

    sent: bool

    def send(self) -> bool:
        return self.sent


@pytest.mark.parametrize("left", [True, False])
async def test_a_node_says_itself_only_what_did_not_leave(left: bool, autojump_clock: trio.testing.MockClock) -> None:
    promised: list[tuple[str, int]] = []

    def submit(net: Nodes, node: Node, write: Write, promise: tuple[str, PeerMessage] | None) -> Vow | None:
        net.disks[node.node_id].submit(write)
        if promise is None:
            assert node.is_leader
            return None
        peer, message = promise
        assert isinstance(message, AppendReply) and write.frames and peer == node.leader
        promised.append((node.node_id, message.match))
        if left:
            net.nodes[peer]._driver.receive(node.node_id, message)
            net.nodes[peer]._driver.pump()
        return Vow(left)

    async with trio.open_nursery() as nursery:
        net = Nodes(nursery)
        for name in THREE:
            node = await net.start(name, THREE, Counter())
            net.disks[name].early_acks = True
            net.disks[name].submit_with_ack = partial(submit, net, node)  # type: ignore[method-assign]
        leader = await net.leader()
        assert await leader.propose(b"1") == 1
        await trio.testing.wait_all_tasks_blocked()
        net.record = True
        promised.clear()
        assert [await leader.propose(b"1") for _ in range(3)] == [2, 3, 4]
        await trio.testing.wait_all_tasks_blocked()
        said = {(source, message.match) for source, _, message in net.sent if isinstance(message, AppendReply)}
        assert len(promised) == 6
        assert said.isdisjoint(promised) if left else said >= set(promised)
        kept = [node._driver.early_acks for node in net.nodes.values()]
        assert not any(kept), "a promise is forgotten once its write is durable"
        nursery.cancel_scope.cancel()


async def test_over_tcp_acknowledgements_leave_from_the_writers_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    speakers: list[tuple[str, bool]] = []
    send_now = Outbox.send_now

    def watched(self: Outbox, data: bytes) -> bool:
        left = send_now(self, data)
        speakers.append((threading.current_thread().name, left))
        return left

    monkeypatch.setattr(Outbox, "send_now", watched)
    config = attrs.evolve(FAST, loop_sync_max_ms=0)  # else the loop itself syncs what comes one by one
    async with three_hosts(tmp_path, config) as cluster:
        leader = await cluster.leader()
        for number in range(1, 51):
            assert await leader.propose(b"1") == number
        for node in cluster.nodes.values():
            await node.read_barrier()
            assert applied(node) == 50
    assert {name for name, _ in speakers} == {"raft-log-writer"}
    assert sum(left for _, left in speakers) >= 50
