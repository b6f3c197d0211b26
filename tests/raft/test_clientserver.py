"""One client's connection on a node: every request has its answer, bad input ends only its connection, limits hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.abc import Stream
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair

from raft import clientserver
from raft.clientserver import REQUESTS_MAX, SEND_TIMEOUT_S, serve_client
from raft.clientwire import (
    Answer,
    Blocks,
    MembershipPlan,
    Op,
    Request,
    ResultCode,
    decode_answer,
    encode_request,
    failure,
)
from raft.config import Config, Read
from raft.errors import DiskFull, MalformedMessage, NotLeader, RaftError, Rejected, RejectReason, Unknown
from raft.hello import Hello, Lane
from tests.raft.served import Adder, FakeNode, faulted

HELLO = Hello(cluster="default", node="", incarnation=b"", lane=Lane.CLIENT)


class Talk:
    """The client's end, in blocks."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.blocks = Blocks(1 << 24)
        self.answers: list[Answer] = []

    async def say(self, *requests: Request) -> None:
        await self.stream.send_all(b"".join(map(encode_request, requests)))

    async def hear(self) -> Answer:
        while not self.answers:
            data = await self.stream.receive_some()
            if not data:
                raise EOFError
            self.answers += map(decode_answer, self.blocks.feed(data))
        return self.answers.pop(0)

    async def ask(self, request: Request) -> Answer:
        await self.say(request)
        return await self.hear()


@asynccontextmanager
async def talking(node: FakeNode, received: bytes = b"") -> AsyncIterator[Talk]:
    near, far = memory_stream_pair()

    async def serve() -> None:
        await serve_client({1: node}, node.config, far, HELLO, received)
        await far.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield Talk(near)
        await near.aclose()
        with trio.fail_after(5):
            await trio.testing.wait_all_tasks_blocked()


async def test_each_request_has_its_answer() -> None:
    node = FakeNode()
    async with talking(node) as talk:
        assert await talk.ask(Request(1, Op.PROPOSE, commands=[b"5"])) == Answer(1, ResultCode.OK, 5)
        assert await talk.ask(Request(2, Op.PROPOSE, timeout_ms=30, commands=[b"1"])) == Answer(2, ResultCode.OK, 6)
        assert await talk.ask(Request(3, Op.PROPOSE_MANY, commands=[b"1", b"2"])) == Answer(3, ResultCode.OK, [7, 9])
        assert await talk.ask(Request(4, Op.QUERY, level=Read.LEASE, commands=[b""])) == Answer(4, ResultCode.OK, 9)
        status = (await talk.ask(Request(5, Op.STATUS))).value
        assert status["node_id"] == "n0"
        (name, sentence), = (await talk.ask(Request(6, Op.EXPLAIN))).value
        assert (name, "All is well" in sentence) == ("healthy", True)
        assert await talk.ask(Request(7, Op.TRANSFER, target="n2")) == Answer(7, ResultCode.OK)
        plan = MembershipPlan({"n0": "a:1"}, {"n3": "b:2"}, {"n0": 5})
        assert await talk.ask(Request(8, Op.RECONFIGURE, plan=plan)) == Answer(8, ResultCode.OK)
        assert await talk.ask(Request(9, Op.SNAPSHOT)) == Answer(9, ResultCode.OK, 77)
        assert await talk.ask(Request(10, Op.ACCEPT_LOSS)) == Answer(10, ResultCode.OK, True)
    assert node.seen[0] == ("propose", b"5", None)
    assert node.seen[1] == ("propose", b"1", 30)
    assert node.seen[-2:] == [("transfer", "n2"), ("reconfigure", {"n0": "a:1"}, {"n3": "b:2"}, {"n0": 5})]
    assert ("barrier", Read.LEASE) in node.seen


async def test_what_came_with_the_hello_is_served_too() -> None:
    async with talking(FakeNode(), encode_request(Request(1, Op.PROPOSE, commands=[b"5"]))) as talk:
        assert await talk.hear() == Answer(1, ResultCode.OK, 5)


@pytest.mark.parametrize("error", [
    NotLeader("n1", "h:1"), Rejected(RejectReason.TRANSFERRING), Unknown(4, 5, "gone")], ids=str)
@pytest.mark.parametrize("timeout_ms", [0, 30], ids=["short way", "long way"])
async def test_what_the_node_raises_is_answered(error: RaftError, timeout_ms: int) -> None:
    async with talking(FakeNode(refusal=error)) as talk:
        answer = await talk.ask(Request(1, Op.PROPOSE, timeout_ms=timeout_ms, commands=[b"1"]))
    assert answer == failure(1, error)


async def test_a_full_node_lets_a_proposal_wait() -> None:
    async with talking(FakeNode(busy=True)) as talk:
        assert await talk.ask(Request(1, Op.PROPOSE, commands=[b"1"])) == Answer(1, ResultCode.OK, 1)


@pytest.mark.parametrize(("timeout_ms", "led", "result"), [
    (0, True, ResultCode.UNKNOWN), (30, True, ResultCode.UNKNOWN), (30, False, ResultCode.NOT_LEADER)])
async def test_a_write_to_a_faulted_node_is_unknown_only_if_it_led(timeout_ms: int, led: bool,
                                                                   result: ResultCode) -> None:
    node = FakeNode()
    faulted(node)
    node.is_leader = led
    async with talking(node) as talk:
        assert (await talk.ask(Request(1, Op.PROPOSE, timeout_ms=timeout_ms, commands=[b"1"]))).result is result
        assert (await talk.ask(Request(2, Op.QUERY, commands=[b""]))).result is ResultCode.FAULTED


async def test_a_full_disk_is_no_fault() -> None:
    async with talking(FakeNode(refusal=DiskFull("no room"))) as talk:
        answer = await talk.ask(Request(1, Op.SNAPSHOT))
    assert (answer.result, answer.value) == (ResultCode.REJECTED, ["DISK_FULL", "no room"])


class Silent:
    def apply(self, command: bytes) -> object:
        return object()


@pytest.mark.parametrize(("machine", "request_", "words"), [
    (Silent(), Request(1, Op.QUERY, commands=[b""]), "Silent has no query"),
    (Silent(), Request(1, Op.PROPOSE, commands=[b"1"]), "was carried out, but its result, a object, cannot be CBOR"),
    (None, Request(1, Op.QUERY, commands=[b"bad"]), "query() raised ValueError: no such thing"),
])
async def test_what_cannot_be_served_is_said(machine: object, request_: Request, words: str) -> None:
    node = FakeNode() if machine is None else FakeNode(state_machine=machine)
    async with talking(node) as talk:
        answer = await talk.ask(request_)
        assert answer.result is ResultCode.USAGE
        assert words in answer.value[0]
        assert (await talk.ask(Request(2, Op.EXPLAIN))).result is ResultCode.OK


@pytest.mark.parametrize("request_", [Request(1, Op.STATUS, group=9), Request(1, Op.PROPOSE, group=9, commands=[b"1"])])
async def test_a_group_that_is_not_open_is_said(request_: Request) -> None:
    async with talking(FakeNode()) as talk:
        answer = await talk.ask(request_)
    assert (answer.result, answer.value) == (ResultCode.REJECTED, ["NO_SUCH_GROUP", "number 9"])


async def test_slow_requests_do_not_hold_up_others() -> None:
    node = FakeNode(gate=trio.Event())
    async with talking(node) as talk:
        await talk.say(Request(1, Op.PROPOSE, commands=[b"1"]), Request(2, Op.QUERY, commands=[b""]))
        assert (await talk.ask(Request(3, Op.STATUS))).id == 3
        assert node.gate is not None
        node.gate.set()
        assert {(await talk.hear()).id, (await talk.hear()).id} == {1, 2}


async def test_malformed_input_is_answered_with_a_reason_and_the_end() -> None:
    async with talking(FakeNode()) as talk:
        await talk.say(Request(1, Op.PROPOSE, commands=[b"1"]))
        assert (await talk.hear()).id == 1
        await talk.stream.send_all(b"\xff\xff\xff\xff")
        answer = await talk.hear()
        assert (answer.id, answer.result) == (0, ResultCode.MALFORMED)
        assert "at most" in answer.value[0]
        with pytest.raises(EOFError):
            await talk.hear()


async def test_what_is_kept_of_an_unfinished_request_is_told_and_may_be_too_much() -> None:
    held: list[int] = []

    def hold(size: int) -> None:
        held.append(size)
        if size > 100:
            raise MalformedMessage(f"{size} bytes of unfinished messages")

    near, far = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_client, {1: FakeNode()}, Config(), far, HELLO, b"", hold)
        talk, request = Talk(near), encode_request(Request(1, Op.PROPOSE, commands=[b"1" * 90]))
        await near.send_all(request[:50])
        await trio.testing.wait_all_tasks_blocked()
        assert held[-1] == 50
        await near.send_all(request[50:])
        assert (await talk.hear()).id == 1
        assert held[-1] == 0
        await near.send_all(request + request[:101])
        assert {(await talk.hear()).id, (await talk.hear()).id} == {1, 0}


async def test_a_connection_is_not_read_beyond_its_share_of_requests() -> None:
    node = FakeNode(gate=trio.Event())
    async with talking(node) as talk, trio.open_nursery() as nursery:
        many = [Request(number, Op.PROPOSE, timeout_ms=1, commands=[b"1"]) for number in range(REQUESTS_MAX + 100)]
        nursery.start_soon(talk.say, *many)
        await trio.testing.wait_all_tasks_blocked()
        assert node.waiting == REQUESTS_MAX
        assert node.gate is not None
        node.gate.set()
        assert {(await talk.hear()).id for _ in many} == set(range(REQUESTS_MAX + 100))
    assert node.most_waiting == REQUESTS_MAX


async def test_a_connection_is_not_read_beyond_its_share_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clientserver, "REQUEST_BYTES_MAX", 2_000)
    node = FakeNode(gate=trio.Event())
    async with talking(node) as talk, trio.open_nursery() as nursery:
        many = [Request(number, Op.PROPOSE, timeout_ms=1, commands=[b"0" * 900]) for number in range(5)]
        nursery.start_soon(talk.say, *many)
        await trio.testing.wait_all_tasks_blocked()
        assert node.waiting == 2
        assert node.gate is not None
        node.gate.set()
        assert {(await talk.hear()).id for _ in many} == set(range(5))


async def test_one_request_larger_than_the_share_is_served_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clientserver, "REQUEST_BYTES_MAX", 100)
    async with talking(FakeNode()) as talk:
        assert (await talk.ask(Request(1, Op.PROPOSE, commands=[b"0" * 500]))).result is ResultCode.OK


async def test_a_client_that_takes_no_answers_is_cut_off(autojump_clock: MockClock) -> None:
    near, far = memory_stream_pair()

    async def never(data: Any) -> None:
        await trio.sleep_forever()

    far.send_all = never  # type: ignore[method-assign]  # a receiver whose window stays shut
    await near.send_all(encode_request(Request(1, Op.STATUS)))
    started = trio.current_time()
    await serve_client({1: FakeNode()}, Config(), far, HELLO, b"")
    assert trio.current_time() - started == pytest.approx(SEND_TIMEOUT_S)


async def test_a_client_that_leaves_leaves_no_task_behind() -> None:
    node = FakeNode(gate=trio.Event())
    async with talking(node) as talk:
        await talk.say(Request(1, Op.PROPOSE, commands=[b"1"]))
        await trio.testing.wait_all_tasks_blocked()
        assert node.waiting == 1
    assert node.waiting == 0


class Verbose(Adder):
    """Answers of 4,000 bytes; counts them."""

    def __init__(self, threaded: bool) -> None:
        super().__init__()
        self.threaded, self.asked = threaded, 0

    def query(self, data: bytes) -> object:
        self.asked += 1
        return bytes(4_000)

    def apply(self, command: bytes) -> object:
        return bytes(4_000)


async def in_a_thread(function: Callable[..., Any], *args: Any) -> Any:
    await trio.sleep(0.001)
    return function(*args)


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_client_that_asks_and_does_not_listen_makes_no_heap_of_answers(
    threaded: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock,
) -> None:
    monkeypatch.setattr(clientserver, "ANSWERS_BYTES_MAX", 10_000)
    machine = Verbose(threaded)
    near, far = lockstep_stream_pair()
    queries = [Request(number, Op.QUERY, commands=[b""]) for number in range(200)]
    proposals = [Request(200 + number, Op.PROPOSE, timeout_ms=number % 2, commands=[b""]) for number in range(100)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(
            serve_client, {1: FakeNode(state_machine=machine)}, Config(), far, HELLO, b"", run_blocking=in_a_thread))
        talk = Talk(near)
        nursery.start_soon(talk.say, *queries)
        await trio.sleep(SEND_TIMEOUT_S / 4)
        assert 1 <= machine.asked <= 3
        nursery.start_soon(talk.say, *proposals)
        await trio.sleep(SEND_TIMEOUT_S / 4)
        assert 1 <= machine.asked <= 3
        assert {(await talk.hear()).id for _ in range(300)} == set(range(300))
        assert machine.asked == 200
        nursery.cancel_scope.cancel()


async def test_what_a_client_does_not_take_keeps_its_requests_unread(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock,
) -> None:
    """Of proposals, too: nobody knows how much a result is before it is there."""
    monkeypatch.setattr(clientserver, "ANSWERS_BYTES_MAX", 10_000)
    near, far = lockstep_stream_pair()
    node = FakeNode(state_machine=Verbose(False))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_client, {1: node}, Config(), far, HELLO, b"")
        talk = Talk(near)

        async def ask() -> None:
            for number in range(100):
                await talk.say(Request(number, Op.PROPOSE, commands=[b""]))

        nursery.start_soon(ask)
        await trio.sleep(SEND_TIMEOUT_S / 2)
        assert len(node.seen) <= 5
        assert [(await talk.hear()).id for _ in range(100)] == list(range(100))
        nursery.cancel_scope.cancel()


async def test_a_client_that_takes_a_large_answer_slowly_gets_it(autojump_clock: MockClock) -> None:
    class Large(Adder):
        def query(self, data: bytes) -> object:
            return bytes(8_000_000)

    near, far = memory_stream_pair()
    send_all = far.send_all

    async def slow(data: Any) -> None:
        await trio.sleep(len(data) / 100_000)
        await send_all(data)

    far.send_all = slow  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_client, {1: FakeNode(state_machine=Large())}, Config(), far, HELLO, b"")
        with trio.fail_after(200):
            answer = await Talk(near).ask(Request(1, Op.QUERY, commands=[b""]))
        assert answer == Answer(1, ResultCode.OK, bytes(8_000_000))
        nursery.cancel_scope.cancel()
    assert trio.current_time() > SEND_TIMEOUT_S
