"""The client against nodes without Raft, then real ones: it sends again only what surely had no effect."""

from __future__ import annotations

import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme
from trio.abc import Stream
from trio.testing import MockClock

from raft.client import READ_PATIENCE_MS, REQUESTS_MAX, SLACK_MS, Client, connect
from raft.clientwire import Answer, Op, Request, ResultCode, encode_answer, encode_request
from raft.config import Config, Read
from raft.errors import (
    ConfigError,
    Faulted,
    HandshakeRefused,
    NotLeader,
    Rejected,
    RejectReason,
    Unknown,
    UsageError,
)
from raft.hello import Hello
from raft.host import open_node
from raft.messages import SnapshotMeta
from raft.tls import TLSConfig
from tests.raft.served import Adder, FakeNode, Network, faulted


@asynccontextmanager
async def network(**nodes: FakeNode | None) -> AsyncIterator[Network]:
    """Nodes by name; node ``a`` listens at ``a:1``."""
    async with trio.open_nursery() as nursery:
        yield Network(nursery, {f"{name}:1": node for name, node in nodes.items()})
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def client_of(net: Network, *addresses: str, timeout_ms: int = 10_000) -> AsyncIterator[Client]:
    async with connect(addresses or tuple(net.nodes), dial=net.dial, timeout_ms=timeout_ms) as client:
        yield client


def follower(leader: str | None = None) -> FakeNode:
    address = f"{leader}:1" if leader else None
    return FakeNode(node_id="f", is_leader=False, refusal=NotLeader(leader, address), busy=True)


async def test_every_request_comes_back_with_its_value() -> None:
    node = FakeNode()
    async with network(a=node) as net, client_of(net) as client:
        assert await client.propose(b"5") == 5
        assert await client.propose_many([b"1", b"2"]) == [6, 8]
        assert await client.propose_many([]) == []
        assert await client.query(b"", level=Read.LEASE) == 8
        assert (await client.status())["node_id"] == "n0"
        assert "All is well" in (await client.explain("a:1"))[0]
        assert (await client.diagnose())[0][0] == "healthy"
        await client.transfer_leadership("n2")
        await client.reconfigure({"n0": "a:1"}, {"n1": "b:1"}, priorities={"n0": 3})
        assert await client.take_snapshot() == 77
    assert ("transfer", "n2") in node.seen
    assert ("reconfigure", {"n0": "a:1"}, {"n1": "b:1"}, {"n0": 3}) in node.seen
    assert ("barrier", Read.LEASE) in node.seen
    assert net.dialled == ["a:1"]


async def test_nobody_is_dialled_before_the_first_request() -> None:
    async with network(a=FakeNode()) as net, client_of(net):
        await trio.testing.wait_all_tasks_blocked()
        assert net.dialled == []


async def test_the_leader_is_followed_beyond_the_given_addresses() -> None:
    async with network(a=follower("c"), c=FakeNode()) as net, client_of(net, "a:1") as client:
        assert await client.propose(b"1") == 1
        assert net.dialled == ["a:1", "c:1"]
        assert await client.propose(b"1") == 2
        assert client.leader_address == "c:1"
        assert net.dialled == ["a:1", "c:1"]


async def test_a_leader_known_by_an_address_that_only_members_reach_is_found_among_those_given(
    autojump_clock: MockClock,
) -> None:
    """As behind a translation of addresses: the follower means it well, but the client cannot get there."""
    inside = FakeNode(is_leader=False, refusal=NotLeader("b", "inside:1"), busy=True)
    async with network(a=inside, b=FakeNode()) as net, client_of(net) as client:
        assert await client.propose(b"1") == 1
        assert net.dialled == ["a:1", "inside:1", "b:1"]


async def test_callers_who_are_sent_astray_at_once_ask_the_next_and_not_the_next_but_one(
    autojump_clock: MockClock,
) -> None:
    """With two addresses that is the one that sent them."""
    asked: list[bytes] = []

    class Inside(FakeNode):
        async def propose(self, command: bytes, timeout_ms: int | None = None) -> object:
            asked.append(command)
            return await super().propose(command, timeout_ms)

    inside = Inside(is_leader=False, refusal=NotLeader("b", "inside:1"), busy=True)
    async with network(a=inside, b=FakeNode()) as net, client_of(net) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(client.propose, b"1")
        assert asked == [b"1"] * 2


async def test_every_address_is_tried(autojump_clock: MockClock) -> None:
    async with network(a=None, b=follower(), c=FakeNode()) as net, client_of(net) as client:
        assert await client.propose(b"1") == 1
        assert net.dialled == ["a:1", "b:1", "c:1"]


async def test_it_waits_for_a_leader_to_be_elected(autojump_clock: MockClock) -> None:
    late = follower()

    async def elected() -> None:
        await trio.sleep(3)
        late.refusal, late.is_leader = None, True

    async with network(a=follower(), b=late) as net, client_of(net) as client, trio.open_nursery() as nursery:
        nursery.start_soon(elected)
        started = trio.current_time()
        assert await client.propose(b"1") == 1
        assert 3 <= trio.current_time() - started < 3.5


@pytest.mark.parametrize("reason", [
    RejectReason.TRANSFERRING, RejectReason.BUSY, RejectReason.STOPPED, RejectReason.OVERWRITTEN])
async def test_a_refusal_without_effect_is_overcome(reason: RejectReason, autojump_clock: MockClock) -> None:
    async with network(a=FakeNode(refusal=Rejected(reason)), b=FakeNode()) as net, client_of(net) as client:
        assert await client.propose(b"1") == 1


@pytest.mark.parametrize("error", [
    Rejected(RejectReason.TOO_LARGE, "2 MiB"), Rejected(RejectReason.ILLEGAL_CHANGE), Unknown(3, 4, "it stopped"),
    Rejected(RejectReason.TIMED_OUT)], ids=str)
async def test_a_final_answer_is_given_to_the_caller(error: Exception) -> None:
    assert isinstance(error, (Rejected, Unknown))
    async with network(a=FakeNode(refusal=error), b=FakeNode()) as net, client_of(net) as client:
        with pytest.raises(type(error)) as caught:
            await client.propose(b"1")
        assert vars(caught.value) == vars(error)
        assert net.dialled == ["a:1"]


async def test_what_is_too_large_for_a_node_is_refused_before_it_leaves() -> None:
    node = FakeNode(config=Config(message_bytes_max=2 << 20, proposals_pending_max=1_000))
    async with network(a=node) as net, client_of(net) as client, trio.open_nursery() as nursery:
        node.gate = trio.Event()
        earlier: list[object] = []

        async def call_earlier() -> None:
            earlier.append(await client.propose(b"1"))

        nursery.start_soon(call_earlier)
        await trio.testing.wait_all_tasks_blocked()
        for call in (partial(client.propose, bytes(2 << 20) + bytes(65)),
                     partial(client.propose_many, [bytes(1 << 20), bytes(1 << 20), bytes(100)]),
                     partial(client.query, bytes(3 << 20))):
            with pytest.raises(Rejected, match=r"a request of \d+ bytes; a:1 takes 2097216") as caught:
                await call()
            assert caught.value.reason is RejectReason.TOO_LARGE
        with pytest.raises(Rejected, match="of 1001 commands; at most 1000") as caught:
            await client.propose_many([b"1"] * 1_001)
        assert caught.value.reason is RejectReason.TOO_LARGE
        node.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert earlier == [1], "what was under way on the same connection goes on"
        assert net.dialled == ["a:1"]


async def test_a_write_whose_connection_broke_is_unknown_and_never_repeated(autojump_clock: MockClock) -> None:
    first, second = FakeNode(gate=trio.Event()), FakeNode()

    async def cut() -> None:
        await trio.sleep(1)
        await net.cut("a:1")

    async with network(a=first, b=second) as net, client_of(net) as client, trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        with pytest.raises(Unknown, match="closed the connection"):
            await client.propose(b"1")
        assert second.seen == []
        assert await client.propose(b"7") == 7, "the next one goes elsewhere"
        assert second.seen == [("propose", b"7", None)]


async def test_a_write_without_an_answer_in_time_is_unknown(autojump_clock: MockClock) -> None:
    async with network(a=FakeNode(gate=trio.Event()), b=FakeNode()) as net, client_of(net) as client:
        started = trio.current_time()
        with pytest.raises(Unknown, match="no answer in time"):
            await client.propose(b"1", timeout_ms=800)
        assert trio.current_time() - started == pytest.approx((800 + SLACK_MS) / 1e3)


async def test_a_read_is_repeated_elsewhere(autojump_clock: MockClock) -> None:
    second = FakeNode()
    async with network(a=FakeNode(gate=trio.Event()), b=second) as net, client_of(net) as client:
        started = trio.current_time()
        assert await client.query(b"") == 0
        assert trio.current_time() - started < READ_PATIENCE_MS / 1e3 + 0.3
        assert ("barrier", Read.INDEX) in second.seen


async def test_a_read_that_one_node_cannot_confirm_is_asked_elsewhere(autojump_clock: MockClock) -> None:
    cut_off = FakeNode(refusal=Rejected(RejectReason.TIMED_OUT))
    async with network(a=cut_off, b=FakeNode()) as net, client_of(net) as client:
        assert await client.query(b"") == 0
        with pytest.raises(Rejected, match="withdrawn"):
            await client.query(b"", address="a:1", timeout_ms=500)


async def test_a_read_survives_a_broken_connection(autojump_clock: MockClock) -> None:
    async with network(a=FakeNode(), b=FakeNode(state_machine=Adder())) as net, client_of(net) as client:
        await client.query(b"")
        net.nodes["a:1"] = None
        await net.cut("a:1")
        assert await client.query(b"") == 0


async def test_a_read_of_one_node_stays_with_it(autojump_clock: MockClock) -> None:
    async with network(a=FakeNode(), b=follower("a")) as net, client_of(net) as client:
        with pytest.raises(NotLeader) as caught:
            await client.query(b"", address="b:1", timeout_ms=1_000)
        assert caught.value.leader == "a"
        assert set(net.dialled) == {"b:1"}


async def test_faulted_nodes_are_passed_by_and_told_of_when_there_is_no_other(autojump_clock: MockClock) -> None:
    broken = FakeNode()
    faulted(broken)
    async with network(a=broken, b=FakeNode()) as net:
        async with client_of(net) as client:
            assert await client.query(b"") == 0
            assert await client.propose(b"1") == 1
        async with client_of(net, "a:1", timeout_ms=500) as client:
            with pytest.raises(Faulted, match="ValueError"):
                await client.query(b"")


async def test_unreachable_nodes_end_in_certainty(autojump_clock: MockClock) -> None:
    async with network(a=None, b=None) as net, client_of(net, timeout_ms=2_000) as client:
        started = trio.current_time()
        with pytest.raises(Rejected, match="nobody listens at") as caught:
            await client.propose(b"1")
        assert caught.value.reason is RejectReason.TIMED_OUT
        assert trio.current_time() - started <= 2
        assert 6 <= len(net.dialled) <= 20, "with growing pauses"


async def test_a_foreign_cluster_is_said_at_once() -> None:
    async with network(a=FakeNode()) as net:
        net.foreign.add("a:1")
        async with client_of(net) as client:
            with pytest.raises(HandshakeRefused, match="another"):
                await client.propose(b"1")


async def test_one_node_of_a_foreign_cluster_does_not_spoil_the_rest(autojump_clock: MockClock) -> None:
    async with network(a=FakeNode(), b=FakeNode()) as net, client_of(net) as client:
        net.foreign.add("a:1")
        assert await client.propose(b"1") == 1
        assert net.dialled == ["a:1", "b:1"]


@pytest.mark.parametrize(("answer", "words"), [
    (b"\xff\xff\xff\xff", "what it must not"),
    (encode_answer(Answer(0, ResultCode.MALFORMED, ["too long"])), "could not read a request: too long"),
])
async def test_a_node_that_talks_nonsense_costs_its_connection(answer: bytes, words: str) -> None:
    async def nonsense(node: FakeNode, stream: Stream, hello: Hello, received: bytes) -> None:
        await stream.receive_some()
        await stream.send_all(answer)
        await trio.sleep_forever()

    async with network(a=FakeNode()) as net, client_of(net) as client:
        net.serve = nonsense
        with pytest.raises(Unknown, match=words):
            await client.propose(b"1")
        net.serve = None
        assert await client.propose(b"1") == 1


@pytest.mark.parametrize("callers", [300, 2 * REQUESTS_MAX + 10])
async def test_many_callers_share_one_connection(callers: int) -> None:
    node = FakeNode(busy=True)
    results: list[int] = []

    async def call() -> None:
        results.append(await client.propose(b"1"))

    async with network(a=node) as net, client_of(net) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(callers):
                nursery.start_soon(call)
        assert sorted(results) == list(range(1, callers + 1))
        assert node.most_waiting <= REQUESTS_MAX
        assert net.dialled == ["a:1"]


async def test_a_cancelled_caller_leaves_the_connection_in_order(autojump_clock: MockClock) -> None:
    node = FakeNode(gate=trio.Event())
    async with network(a=node) as net, client_of(net) as client:
        with trio.move_on_after(1):
            await client.propose(b"1")
        assert node.gate is not None
        node.gate.set()
        assert await client.propose(b"1") == 2, "cancelling took nothing back"


async def test_what_was_given_up_before_it_left_is_not_kept(autojump_clock: MockClock) -> None:
    """A node that reads nothing and lives on: its connection takes no more, and callers come and go."""
    async def deaf(*_: object) -> None:
        await trio.sleep_forever()

    async with network(a=FakeNode()) as net:
        net.serve = deaf
        near: list[Stream] = []

        async def dial(address: str) -> Stream:
            near.append(await net.dial(address))
            return near[0]

        async with connect(["a:1"], dial=dial, timeout_ms=100) as client:
            with pytest.raises(Unknown):
                await client.propose(b"1")
            assert isinstance(near[0], trio.StapledStream)
            assert isinstance(near[0].send_stream, trio.testing.MemorySendStream)
            near[0].send_stream.send_all_hook = trio.sleep_forever
            with pytest.raises(Unknown):
                await client.propose(b"1")
            for _ in range(20):
                with pytest.raises(Rejected):
                    await client.propose(bytes(1_000))
            assert client._links["a:1"]._outbox == [] and client._links["a:1"]._pending == {}


async def test_a_client_that_is_closed_says_so_and_dials_nobody(autojump_clock: MockClock) -> None:
    async with network(a=FakeNode()) as net:
        async with client_of(net) as client:
            assert await client.propose(b"1") == 1
        for _ in range(2):
            with pytest.raises(UsageError, match="closed"):
                await client.query(b"")
        assert net.dialled == ["a:1"]


async def test_an_exception_leaves_the_block_as_it_is() -> None:
    async def fail(scope: trio.CancelScope | None = None) -> None:
        async with client_of(net) as client:
            await client.propose(b"1")
            if scope is not None:
                scope.cancel()
            raise ZeroDivisionError

    async with network(a=FakeNode()) as net:
        with pytest.raises(ZeroDivisionError):
            await fail()
        with trio.CancelScope() as scope, pytest.raises(ZeroDivisionError):
            await fail(scope)


async def test_the_block_can_be_cancelled_from_outside(autojump_clock: MockClock) -> None:
    async with network(a=FakeNode(gate=trio.Event())) as net:
        with trio.move_on_after(1) as scope:
            async with client_of(net) as client:
                await client.propose(b"1")
        assert scope.cancelled_caught


async def test_the_state_machines_limits_reach_the_caller() -> None:
    async with network(a=FakeNode(state_machine=object())) as net, client_of(net) as client:
        with pytest.raises(UsageError, match="no query"):
            await client.query(b"")


@pytest.mark.parametrize(("addresses", "timeout_ms"), [([], 1), (["nowhere"], 1), (["a:1"], 0)])
async def test_bad_settings_are_named(addresses: list[str], timeout_ms: int) -> None:
    with pytest.raises(ConfigError):
        async with connect(addresses, timeout_ms=timeout_ms):
            pytest.fail("must not open")


def test_a_request_is_small() -> None:
    assert len(encode_request(Request(1, Op.PROPOSE, commands=[b"x" * 100]))) == 128


# --- against real nodes --------------------------------------------------------------------------------------------


@asynccontextmanager
async def real_node(
    folder: Path, tls: TLSConfig | None = None, machine: Adder | None = None,
) -> AsyncIterator[str]:
    """One voter on a real disk and a real socket; its address."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    async with open_node("n0", {"n0": address}, folder, machine or Adder(), bootstrap=True, listeners=listeners,
                         tls=tls):
        yield address


async def test_a_real_node_serves_it_while_it_lives(tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with real_node(tmp_path / "n0") as address, connect([address]) as client:
            assert await client.propose(b"5") == 5
            assert await client.propose_many([b"1"] * 100) == list(range(6, 106))
            assert await client.query(b"") == 105
            assert (await client.status())["leader"] == "n0"
            assert await client.diagnose() == [("healthy", (await client.explain())[0])]
            with pytest.raises(UsageError, match="no snapshot"):
                await client.take_snapshot()
            await client.reconfigure({"n0": address})
            with pytest.raises(Rejected) as caught:
                await client.transfer_leadership("n7")
            assert caught.value.reason is RejectReason.NO_SUCH_MEMBER
        async with connect([address], timeout_ms=300) as client:
            with pytest.raises(Rejected, match="timed out") as late:
                await client.propose(b"1")
            assert late.value.reason is RejectReason.TIMED_OUT


async def test_another_group_is_not_found(tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with real_node(tmp_path / "n0") as address, connect([address], group="b", timeout_ms=300) as client:
            with pytest.raises(Rejected) as caught:
                await client.propose(b"1")
            assert caught.value.reason is RejectReason.NO_SUCH_GROUP


def certificate(ca: trustme.CA, folder: Path, name: str) -> TLSConfig:
    made = ca.issue_cert(name)
    made.private_key_pem.write_to_path(folder / f"{name}.key")
    for number, blob in enumerate(made.cert_chain_pems):
        blob.write_to_path(folder / f"{name}.pem", append=number > 0)
    ca.cert_pem.write_to_path(folder / "ca.pem")
    return TLSConfig(cert=str(folder / f"{name}.pem"), key=str(folder / f"{name}.key"), ca=str(folder / "ca.pem"))


async def test_tls_with_a_certificate_and_without(tmp_path: Path) -> None:
    ca = trustme.CA()
    tls = certificate(ca, tmp_path, "n0")
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.load_verify_locations(tls.ca)
    with trio.fail_after(30):
        async with real_node(tmp_path / "n0", tls) as address:
            async with connect([address], tls=certificate(ca, tmp_path, "client")) as client:
                assert await client.propose(b"5") == 5
            async with connect([address], tls=bare) as client:
                with pytest.raises(HandshakeRefused, match="certificate"):
                    await client.propose(b"5")
            async with connect([address], timeout_ms=500) as client:
                with pytest.raises((Rejected, HandshakeRefused)):
                    await client.propose(b"5")


@pytest.mark.parametrize("what", ["query", "snapshot"])
async def test_what_takes_longer_than_a_reads_patience_is_answered(what: str, autojump_clock: MockClock) -> None:
    class Slow(FakeNode):
        async def read_barrier(self, level: Read = Read.INDEX, *, timeout_ms: int | None = None) -> None:
            await trio.sleep(3)
            await super().read_barrier(level)

        async def take_snapshot(self) -> SnapshotMeta:
            self.seen.append(("snapshot",))
            await trio.sleep(8)
            return await super().take_snapshot()

    first, second = Slow(), Slow(node_id="n1")
    async with trio.open_nursery() as nursery:
        net = Network(nursery, {"a:1": first, "b:1": second})
        async with connect(["a:1", "b:1"], dial=net.dial, timeout_ms=30_000) as client:
            if what == "query":
                assert await client.query(b"") == 0
            else:
                assert await client.take_snapshot() == 77
                assert [*first.seen, *second.seen] == [("snapshot",)]
        nursery.cancel_scope.cancel()


class ThreadedAdder(Adder):
    threaded = True


async def test_a_program_whose_threads_all_wait_for_a_query_is_answered(tmp_path: Path) -> None:
    """It may serve the node itself: the query's own thread must not be among those that wait for it."""
    tokens = int(trio.to_thread.current_default_thread_limiter().total_tokens)
    async with real_node(tmp_path, machine=ThreadedAdder()) as address, connect([address]) as client:
        begun = threading.Barrier(tokens)

        def call() -> object:
            begun.wait(30)
            return trio.from_thread.run(partial(client.query, b"", timeout_ms=5_000))

        assert await client.propose(b"5") == 5
        async with trio.open_nursery() as nursery:
            for _ in range(tokens):
                nursery.start_soon(trio.to_thread.run_sync, call)
