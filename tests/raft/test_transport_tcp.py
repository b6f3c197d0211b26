"""Transports against each other over real TCP on loopback: what only sockets do."""

from __future__ import annotations

import resource
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from raft.errors import UsageError
from raft.handshake import connect_tcp, greet
from raft.inbound import places
from raft.messages import Append, AppendReply, PeerMessage, Vote
from tests.raft.transports import Net, Node, append, hello_of, vote


@asynccontextmanager
async def tcp_nodes(count: int, **options: object) -> AsyncGenerator[list[Node], None]:
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        nodes = []
        for number in range(count):
            made = Node(net, f"n{number}", address="", **options)  # type: ignore[arg-type]
            made.transport._connect = connect_tcp
            await nursery.start(made.transport.run, "127.0.0.1:0")
            nodes.append(made)
        for one in nodes:
            for other in nodes:
                one.transport.set_address(other.transport.hello.node, other.transport.hello.address)
            one.transport.set_peers([other.transport.hello.node for other in nodes])
        yield nodes
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not condition():
            await trio.sleep(0.001)


def lanes_up(nodes: list[Node]) -> bool:
    return all(
        len(peer.connections) == 4 and peer.control.accepting and peer.bulk.accepting
        for node in nodes for peer in node.transport._peers.values()
    ) and all(len(node.transport._peers) == len(nodes) - 1 for node in nodes)


async def test_three_nodes_over_tcp() -> None:
    async with tcp_nodes(3) as nodes:
        await until(lambda: lanes_up(nodes))
        for node in nodes:
            for other in nodes:
                if other is not node:
                    node.say(other.transport.hello.node, vote(1), append(1), vote(2), append(2))
        await until(lambda: all(len(node.got) == 8 for node in nodes))
        for node in nodes:
            for peer in {peer for peer, _ in node.got}:
                from_peer = [message for sender, message in node.got if sender == peer]
                assert [m.term for m in from_peer if isinstance(m, Vote)] == [1, 2]
                assert [m.frames[0].first for m in from_peer if isinstance(m, Append)] == [1, 2]


async def test_bulk_over_tcp_arrives_whole_while_control_passes() -> None:
    async with tcp_nodes(2) as nodes:
        n0, n1 = nodes
        await until(lambda: lanes_up(nodes))
        frames = 60
        n0.say("n1", *[append(index, 500_000) for index in range(1, frames + 1)])
        assert n0.transport._peers["n1"].bulk.queued_bytes > 1_000_000, "the socket took 30 MB at once?"
        n0.say("n1", vote(9))
        assert n0.transport._peers["n1"].control.queued_bytes == 0
        await until(lambda: ("n0", vote(9)) in n1.got)
        assert len(n1.got) < frames, "the vote overtook"
        await until(lambda: len(n1.got) == frames + 1)
        assert [m.frames[0].first for _, m in n1.got if isinstance(m, Append)] == list(range(1, frames + 1))


@pytest.mark.parametrize(("descriptors", "connections_max", "taken"), [
    (1_024, 1_024, 832), (1_024, 832, 832), (193, 5, 1), (resource.RLIM_INFINITY, 5_000, 5_000)])
def test_connections_leave_descriptors_for_the_rest(
    descriptors: int, connections_max: int, taken: int,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert places(connections_max) == taken
    said = f"connections_max={connections_max} is lowered to {taken}: this process may have {descriptors} open files"
    assert (said in caplog.text) == (taken < connections_max)


async def test_a_process_with_few_descriptors_accepts_fewer_or_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (400, 400))
    async with tcp_nodes(1) as nodes:
        assert nodes[0].transport.limits.connections_max == 208
    monkeypatch.setattr(resource, "getrlimit", lambda _: (192, 192))
    with pytest.RaisesGroup(pytest.RaisesExc(UsageError, match="needs more than 192")):
        async with tcp_nodes(1):
            raise AssertionError("it listens")


async def test_both_ends_notice_a_process_that_dies() -> None:
    async with tcp_nodes(2) as nodes:
        n0, n1 = nodes
        await until(lambda: lanes_up(nodes))
        peer = n0.transport._peers["n1"]
        for connection in list(n0.transport._inbound):
            connection.scope.cancel()
        await until(lambda: "n0" in n1.unreachable)
        await until(lambda: lanes_up(nodes))
        assert n0.transport._peers["n1"] is peer
        n1.say("n0", vote(4))
        await until(lambda: ("n1", vote(4)) in n0.got)


@pytest.mark.parametrize("address", ["nonsense", ":1", "a..b:1", "é" * 80 + ":1", "h:99999", "a:b:c:1"])
async def test_an_address_that_makes_no_sense_is_a_problem_in_words_and_nothing_worse(address: str) -> None:
    async with tcp_nodes(1) as (node,):
        node.transport.set_address("n1", address)
        node.transport.set_peers(["n1"])
        await until(lambda: node.transport.problem("n1") != "")
        stranger = await connect_tcp(node.transport.hello.address)
        async with stranger:
            await greet(stranger, hello_of("n2", address=address), bytearray())
            await until(lambda: node.transport.problem("n2") != "")
        node.transport.set_peers([])


async def test_a_reply_heavy_exchange_over_tcp_loses_nothing() -> None:
    async with tcp_nodes(2) as nodes:
        n0, n1 = nodes
        await until(lambda: lanes_up(nodes))
        rounds = 500

        def answer(peer: str, message: PeerMessage) -> None:
            assert isinstance(message, Append)
            n1.transport.send(peer, AppendReply(1, 1, 1, message.sequence, 200, message.sequence, 0, 0, 0, 0))

        n1.transport._on_message = answer
        n1.transport._on_batch_end = n1.transport.flush
        for index in range(1, rounds + 1):
            n0.say("n1", append(index, 128))
        await until(lambda: len(n0.got) == rounds)
        assert [m.match for _, m in n0.got if isinstance(m, AppendReply)] == list(range(1, rounds + 1))
