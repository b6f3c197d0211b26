"""A machine with a codec behind a real node and client, and ``Node.query``: what is asked comes back as what it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import raft
from harness.simulation.worlds.nodes import Counter, network, one, three
from raft.config import Config, Read
from raft.host import open_node
from raft.node import Node
from tests.raft.bugs.test_snapshots import slowly
from tests.raft.test_statemachine import Sum


class Asked(Counter):
    """A counter that answers."""

    threaded = False

    def query(self, data: bytes) -> int:
        if data == b"bad":
            raise KeyError("bad")
        return self.n


async def test_commands_of_a_codec_from_the_node_and_from_clients(tmp_path: Path) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    at = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    with trio.fail_after(30):
        async with open_node("n0", {"n0": at}, tmp_path, Sum(), bootstrap=True, listeners=listeners) as node:
            await node.wait_leader()
            assert await node.propose(7) == 7
            assert await node.propose_many([1, 2]) == [8, 10]
            assert await node.propose_nowait(3).wait() == 13
            assert await node.query(b"") == "13"
            async with raft.connect([at], machine=Sum) as client:
                assert await client.propose(4) == 17
                assert await client.propose_many([1, 1]) == [18, 19]
                assert await client.query(b"") == "19"
            with pytest.raises(TypeError):
                await node.propose("odd")  # type: ignore[arg-type]
            assert node.status().faulted is None
        async with open_node("n0", {"n0": at}, tmp_path, Sum(), listen="127.0.0.1:0") as node:
            await node.wait_leader()
            assert await node.query(b"") == "19", "the log was decoded again"


async def test_BUG_A11_what_no_machine_can_decode_never_gets_into_the_log(tmp_path: Path) -> None:
    """Own: bytes of a client that the codec refuses, once committed, end every node of the group at each start. Guards
    that they are decoded before they are proposed."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    at = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    with trio.fail_after(30):
        async with open_node("n0", {"n0": at}, tmp_path, Sum(), bootstrap=True, listeners=listeners) as node:
            await node.wait_leader()
            async with raft.connect([at]) as stranger:
                for ask in (partial(stranger.propose, b"odd"), partial(stranger.propose, b"odd", timeout_ms=500),
                            partial(stranger.propose_many, [b"1", b"odd"])):
                    with pytest.raises(raft.UsageError, match="no command of Sum"):
                        await ask()
                assert await stranger.propose(b"1") == 1, "and nothing came of what was refused"
            assert node.status().faulted is None and node.status().counters["commands_applied"] == 1


async def test_a_query_sees_what_was_written_before_on_every_node(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await three(net, Asked)
        assert await leader.propose(b"5") == 5
        for node in net.nodes.values():
            assert await node.query(b"") == 5
        with pytest.raises(KeyError, match="bad"):
            await leader.query(b"bad", level=Read.LEASE)
        net.isolate(leader.node_id)
        with pytest.raises(raft.Rejected):
            await leader.query(b"", timeout_ms=100)


async def test_a_query_needs_a_query_of_the_machine(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        with pytest.raises(raft.UsageError, match="Counter has no query"):
            await (await one(net)).query(b"")


async def test_a_query_of_a_threaded_machine_gets_what_is_left_of_its_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Threaded(Asked):
        threaded = True

    async with network(Config(propose_timeout_ms=60_000)) as net:
        node: Node[bytes, Any, Any] = await one(net, Threaded())
        applier = node._driver.applier
        work: Callable[..., Any] = applier._run_blocking
        applier._run_blocking = slowly(work, 5.0, only=applier.machine.apply_many)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.propose, b"1")
            await trio.sleep(0.5)
            for level, words in ((Read.INDEX, "not confirmed in time"), (Read.UNSAFE, "busy")):
                began = trio.current_time()
                with pytest.raises(raft.Rejected, match=words):
                    await node.query(b"", level=level, timeout_ms=1_000)
                assert trio.current_time() - began < 1.2
            assert await node.query(b"") == 1


async def test_what_a_node_says_of_itself_is_what_its_core_knows(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await three(net)
        await leader.propose(b"1")
        status = leader.status()
        assert (leader.node_id, leader.name, leader.cluster) == (status.node_id, status.group_name, status.cluster)
        assert (leader.role, leader.term, leader.leader) == (status.role, status.term, status.leader)
        assert (leader.membership, leader.commit_index) == (status.membership, status.commit_index)
        assert leader.applied_index == status.applied_index and leader.is_leader and leader.holds_lease
        assert leader.config is leader._driver.config and leader.state_machine is leader._driver.state_machine
        await leader.stop(transfer=True)
        with pytest.raises(raft.Rejected) as caught:
            await leader.propose(b"1")
        assert caught.value.reason is raft.RejectReason.STOPPED
        assert len({node.leader for node in net.nodes.values()} - {leader.node_id}) == 1
