"""One connection, over memory streams and real sockets: matching, coalescing, deadlines, slow readers, every end."""

from __future__ import annotations

import socket
import struct
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from harness.simulation.worlds.streams import (
    ECHO,
    LATER,
    NEVER,
    MemoryStream,
    Wire,
    ask,
    body_of,
    client_and_server,
    echo,
    wire_to,
)
from remoting import endpoint
from remoting.client import Client, open_client
from remoting.codes import ResponseCode
from remoting.command import ONEWAY, RESPONSE, Command, Encoding, response
from remoting.config import ClientConfig, ServerConfig
from remoting.connection import Connection
from remoting.endpoint import Endpoint, Handler
from remoting.errors import ConnectionClosed, NotEncodable, RemotingError, RequestTimeout
from remoting.frame import encode
from remoting.server import Server


def never(_: Connection, request: Command) -> None:
    return None


@asynccontextmanager
async def connected(
    handlers: dict[int, Handler] | None = None, config: ServerConfig | None = None,
) -> AsyncGenerator[tuple[Connection, Connection, MemoryStream], None]:
    """Both ends of one connection, the asking one first, and the asking one's stream."""
    handlers = {ECHO: echo, NEVER: never} if handlers is None else handlers
    async with client_and_server(server=Server(handlers, config=config)) as (client, server, net):
        ours = await client.connect("s:1")
        await ours.call(ask(0))  # a server knows what is spoken when it has a byte
        (theirs,) = server.connections
        yield ours, theirs, net.streams[0]


@asynccontextmanager
async def tcp(
    server: Server, config: ClientConfig | None = None
) -> AsyncGenerator[tuple[Client, str], None]:
    """The same over a real socket: a client, and the address."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await nursery.start(server.run, listeners)
        address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        async with open_client(config) as client:
            with trio.fail_after(30):
                yield client, address
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def bare(address: str) -> AsyncGenerator[tuple[Wire, trio.SocketStream], None]:
    """A socket of our own."""
    host, _, port = address.partition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        yield Wire(stream), stream


def before(stream: trio.abc.Stream, do: Callable[[], object]) -> None:
    """Call ``do``, and await it if it wants that, before anything goes through a memory stream."""
    assert isinstance(stream, trio.StapledStream)
    deliver = stream.send_stream.send_all_hook

    async def hook() -> None:
        if (waiting := do()) is not None:
            await waiting  # type: ignore[misc]
        await deliver()

    stream.send_stream.send_all_hook = hook


async def until(condition: partial[bool]) -> None:
    while not condition():
        await trio.sleep(0.001)


# --- requests and answers ------------------------------------------------------------------------------------


async def test_answers_find_their_requests_in_any_order() -> None:
    asked: list[tuple[Connection, Command]] = []
    async with connected({LATER: lambda connection, request: asked.append((connection, request))}) as (ours, theirs, _):
        got: dict[int, bytes] = {}

        async def caller(number: int) -> None:
            got[number] = body_of(await ours.call(ask(LATER, str(number).encode())))

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(caller, number)
            await wait_all_tasks_blocked()
            assert len(asked) == theirs.endpoint.in_flight == 5
            for connection, request in reversed(asked):
                connection.reply(request, response(request, body=request.body))
        assert got == {number: str(number).encode() for number in range(5)}
        assert not theirs.endpoint.in_flight


async def test_either_end_may_ask() -> None:
    async def ask_back(connection: Connection, request: Command) -> Command:
        answer = await connection.call(ask(ECHO, request.body + b"?"))
        return response(request, body=answer.body + b"!")

    handlers: dict[int, Handler] = {LATER: ask_back}
    async with client_and_server(handlers, client_handlers={ECHO: echo}) as (client, server, _):
        assert body_of(await client.call("s:1", ask(LATER, b"who"))) == b"who?!"
        (theirs,) = server.connections
        assert (await theirs.call(ask(77))).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_an_answer_takes_opaque_encoding_and_flag_of_its_request() -> None:
    def odd(_: Connection, request: Command) -> Command:
        return Command(0, 4711, ONEWAY, body=b"odd", encoding=Encoding.JSON)

    async with wire_to(Server({ECHO: odd})) as wire:
        answer = await wire.ask(Command(ECHO, 12, encoding=Encoding.ROCKETMQ))
        assert answer is not None
        assert (answer.opaque, answer.flag, answer.encoding, answer.body) == (12, RESPONSE, Encoding.ROCKETMQ, b"odd")


async def test_what_is_sent_in_one_turn_leaves_in_one_write() -> None:
    async with connected() as (ours, _, stream):
        writes: list[None] = []
        before(stream, lambda: writes.append(None))
        results: list[Command | RemotingError] = []
        for number in range(100):
            ours.call_nowait(ask(ECHO, b"%d" % number), results.append)
        await wait_all_tasks_blocked()
        assert [body_of(answer) for answer in results if isinstance(answer, Command)] == [b"%d" % i for i in range(100)]
        assert len(writes) == 2, "a lone request leaves at once, the other 99 together"


async def test_opaques_wrap_around() -> None:
    async with connected() as (ours, _, _):
        ours._opaque = 2**31 - 2
        for _ in range(3):
            assert body_of(await ours.call(ask(ECHO, b"x"))) == b"x"
        assert ours._opaque == 2


async def test_a_command_that_cannot_be_encoded_harms_nobody() -> None:
    async with connected() as (ours, _, _):
        bad = ask(ECHO, bytes(16 << 20))
        with pytest.raises(NotEncodable):
            ours.send(bad)
        with pytest.raises(NotEncodable):
            ours.call_nowait(bad, lambda _: pytest.fail("nothing was sent"))
        with pytest.raises(NotEncodable):
            await ours.call(bad)
        assert not ours.busy
        assert body_of(await ours.call(ask(ECHO, b"x"))) == b"x"


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60), bodies=st.lists(st.binary(max_size=30), max_size=6))
def test_pieces_do_not_matter(sizes: list[int], bodies: list[bytes]) -> None:
    data = b"".join(encode(Command(ECHO, number, body=body)) for number, body in enumerate(bodies))

    async def main() -> None:
        async with wire_to(Server({ECHO: echo})) as wire:
            rest, turn = data, 0
            while rest:
                size = sizes[turn % len(sizes)]
                await wire.stream.send_all(rest[:size])
                await wait_all_tasks_blocked()
                rest, turn = rest[size:], turn + 1
            for number, body in enumerate(bodies):
                answer = await wire.receive()
                assert answer is not None and answer.opaque == number and answer.body == body

    trio.run(main)


# --- deadlines -----------------------------------------------------------------------------------------------


async def test_a_call_without_answer_ends_at_its_deadline(autojump_clock: MockClock) -> None:
    async with connected() as (ours, _, _):
        start = trio.current_time()
        with pytest.raises(RequestTimeout) as caught:
            await ours.call(ask(NEVER), timeout_ms=250)
        assert trio.current_time() - start == pytest.approx(0.25)
        assert (caught.value.address, caught.value.code, caught.value.timeout_ms) == ("s:1", NEVER, 250)
        with pytest.raises(RequestTimeout):
            await ours.call(ask(NEVER))
        assert trio.current_time() - start == pytest.approx(0.25 + 3)
        assert ours.endpoint.counters.timeouts == 2 and not ours.closed
        assert body_of(await ours.call(ask(ECHO, b"x"))) == b"x"


async def test_deadlines_end_in_their_own_order(autojump_clock: MockClock) -> None:
    async with connected() as (ours, _, _):
        start, ended = trio.current_time(), []
        for timeout in (500, 100, 300, 100, 400):
            ours.call_nowait(ask(NEVER), lambda _, t=timeout: ended.append((t, trio.current_time() - start)), timeout)  # type: ignore[misc]
        await trio.sleep(1)
        assert [timeout for timeout, _ in ended] == [100, 100, 300, 400, 500]
        assert all(at == pytest.approx(timeout / 1e3) for timeout, at in ended)


async def test_a_late_answer_is_dropped_and_counted(autojump_clock: MockClock) -> None:
    asked: list[tuple[Connection, Command]] = []
    handlers: dict[int, Handler] = {LATER: lambda *both: asked.append(both), ECHO: echo}
    async with connected(handlers) as (ours, _, _):
        with pytest.raises(RequestTimeout):
            await ours.call(ask(LATER), 100)
        ((connection, request),) = asked
        connection.reply(request, response(request, body=b"late"))
        assert body_of(await ours.call(ask(ECHO, b"x"))) == b"x"
        assert ours.endpoint.counters.late_answers == 1


async def test_deadlines_of_answered_calls_are_forgotten() -> None:
    async with connected() as (ours, _, _):
        for _ in range(30):
            for _ in range(100):
                ours.call_nowait(ask(ECHO), lambda _: None, 60_000)
            await wait_all_tasks_blocked()
            assert not ours.calls
        assert len(ours.endpoint.deadlines) <= 1_100


async def test_what_waits_for_its_deadline_keeps_no_data() -> None:
    async with connected() as (ours, theirs, stream):
        kept: list[weakref.ref[object]] = [weakref.ref(await ours.call(ask(ECHO, bytes(1000))))]
        ours.call_nowait(ask(ECHO, bytes(1000)), lambda answer: kept.append(weakref.ref(answer)))
        await wait_all_tasks_blocked()
        assert len(ours.endpoint.deadlines) >= 3 and [ref() for ref in kept] == [None, None]
        await stream.send_all(encode(ask(ECHO, bytes(1 << 20)))[:-1])
        await wait_all_tasks_blocked()
        assert theirs._reader.unfinished_bytes > 1 << 20
        theirs.close("enough")
        assert not theirs._reader.unfinished_bytes and theirs.endpoint.deadlines


async def test_a_cancelled_call_leaves_the_connection_usable() -> None:
    asked: list[tuple[Connection, Command]] = []
    handlers: dict[int, Handler] = {LATER: lambda *both: asked.append(both), ECHO: echo}
    async with connected(handlers) as (ours, theirs, _):
        with trio.move_on_after(60) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ours.call, ask(LATER))
                await wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught and not ours.calls
        ((connection, request),) = asked
        connection.reply(request, response(request))
        assert body_of(await ours.call(ask(ECHO, b"x"))) == b"x"
        assert ours.endpoint.counters.late_answers == 1 and not theirs.closed


async def test_a_call_in_a_cancelled_scope_does_not_return() -> None:
    async with connected() as (ours, _, _):
        with trio.CancelScope() as scope:
            scope.cancel()
            await ours.call(ask(ECHO))
            pytest.fail("it was cancelled")
        await wait_all_tasks_blocked()
        assert not ours.calls and not ours.closed


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(autojump_clock: MockClock) -> None:
    reasons: list[str] = []
    config = ServerConfig(idle_timeout_ms=1_000)
    server = Server({ECHO: echo}, config=config, on_close=lambda _, reason: reasons.append(reason))
    async with wire_to(server) as wire:
        await wire.ask(ask())
        for _ in range(10):
            await trio.sleep(0.9)
            assert await wire.ask(ask()) is not None
        start = trio.current_time()
        assert await wire.receive() is None
        assert trio.current_time() - start == pytest.approx(1)
        assert reasons == ["idle for 1000 ms"] and server.counters.idle == 1


async def test_a_pause_of_this_process_makes_no_connection_idle(autojump_clock: MockClock) -> None:
    """What the other end said meanwhile waits unread."""
    server = Server({ECHO: echo}, config=ServerConfig(idle_timeout_ms=1_000))
    async with wire_to(server) as wire:
        await wire.ask(ask())
        autojump_clock.jump(60)
        await trio.sleep(0.5)
        assert await wire.ask(ask()) is not None and not server.counters.idle


# --- ends ----------------------------------------------------------------------------------------------------


async def test_closing_fails_every_call_with_its_own_error() -> None:
    async with connected() as (ours, _, _):
        errors: list[ConnectionClosed] = []

        async def caller() -> None:
            with pytest.raises(ConnectionClosed, match="connection to s:1 closed: enough") as caught:
                await ours.call(ask(NEVER))
            errors.append(caught.value)

        results: list[Command | RemotingError] = []
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(caller)
            await wait_all_tasks_blocked()
            ours.call_nowait(ask(NEVER), results.append)
            ours.close("enough")
            ours.close("again")
        assert len(set(map(id, errors))) == 3 and isinstance(results[0], ConnectionClosed)
        assert ours.closed
        with pytest.raises(ConnectionClosed, match="enough"):
            ours.send(ask())
        with pytest.raises(ConnectionClosed, match="enough"):
            await ours.call(ask())
        with pytest.raises(ConnectionClosed, match="enough"):
            ours.call_nowait(ask(), results.append)
        assert len(results) == 1
        ours.reply(ask(), Command(0))


async def test_one_caller_may_cancel_another_when_told_of_the_end() -> None:
    async with connected() as (ours, _, _):
        scopes = [trio.CancelScope(), trio.CancelScope()]
        ended: list[str] = []

        async def caller(number: int) -> None:
            with scopes[number]:
                try:
                    await ours.call(ask(NEVER))
                except ConnectionClosed:
                    ended.append("closed")
                except trio.Cancelled:
                    ended.append("cancelled")
                    raise

        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller, 0)
            nursery.start_soon(caller, 1)
            await wait_all_tasks_blocked()
            ours.call_nowait(ask(NEVER), lambda _: scopes[0].cancel())  # told first: the latest is
            ours.close("enough")
        assert sorted(ended) == ["cancelled", "closed"]


async def test_a_raising_callback_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def explode(_: object) -> None:
        raise ZeroDivisionError

    async with connected() as (ours, _, _):
        ours.call_nowait(ask(ECHO), explode)
        ours.call_nowait(ask(NEVER), explode)
        assert body_of(await ours.call(ask(ECHO, b"x"))) == b"x"
        ours.close("enough")
    assert [record.message for record in caplog.records] == [f"the answer of s:1 to request {code}" for code in (1, 5)]


async def test_both_ends_hear_of_the_end_in_the_same_turn() -> None:
    closed: list[tuple[str, str]] = []
    server = Server({ECHO: echo}, on_close=lambda connection, reason: closed.append((connection.peer, reason)))
    ours_closed: list[tuple[str, str]] = []
    async with client_and_server(
        server=server, on_close=lambda connection, reason: ours_closed.append((connection.peer, reason))
    ) as (client, _, _):
        await client.call("s:1", ask())
        ours = client.connection("s:1")
        assert ours is not None
        ours.close("enough")
        assert ours_closed == [("s:1", "enough")] and client.connection("s:1") is None
        await wait_all_tasks_blocked()
        assert closed == [("client:1", "closed by the other end")]
        assert not server.connections and server.counters.closed == 1


async def test_a_connection_that_is_closed_before_it_runs_leaves_nothing_behind() -> None:
    async with trio.open_nursery() as nursery:
        endpoint = Endpoint({}, ServerConfig())
        await nursery.start(endpoint.run)
        ours, theirs = memory_stream_pair()
        connection = Connection(endpoint, ours, "p:1", "l:1")
        connection.close("changed our mind")
        await connection.run()
        assert not endpoint.connections
        with trio.fail_after(1):
            assert await theirs.receive_some(1) == b""
        nursery.cancel_scope.cancel()


async def test_a_frame_that_is_none_closes_its_connection_alone() -> None:
    reasons: list[str] = []
    server = Server({ECHO: echo}, on_close=lambda _, reason: reasons.append(reason))
    async with client_and_server(server=server) as (client, _, net):
        wire = Wire(await net.connect("s:1"))
        await wire.stream.send_all(encode(Command(ECHO, 7)) + struct.pack(">ii", 3, 0) + encode(Command(ECHO, 8)))
        await wait_all_tasks_blocked()
        assert reasons == ["frame length 3: at least 4 are needed"] and server.counters.bad_frames == 1
        assert server.counters.requests[ECHO] == 1, "what came before the damage counts"
        assert body_of(await client.call("s:1", ask(ECHO, b"x"))) == b"x"


async def test_unfinished_frames_of_all_connections_share_a_budget() -> None:
    config = ServerConfig(frame_bytes_max=1 << 20, receive_bytes_max=3 << 20)
    server = Server({ECHO: echo}, config=config)
    async with client_and_server(server=server) as (client, _, net):
        wires = [Wire(await net.connect("s:1")) for _ in range(4)]
        for wire in wires:
            await wire.stream.send_all(encode(ask(ECHO, bytes(900 << 10)))[:-1])
        await wait_all_tasks_blocked()
        assert server.counters.crowded_out == 1 and len(server.connections) == 3
        assert server._endpoint.unfinished_bytes <= 3 << 20
        assert body_of(await client.call("s:1", ask(ECHO, b"x"))) == b"x"
        for wire in wires:
            await wire.stream.aclose()
        await wait_all_tasks_blocked()
        assert not server._endpoint.unfinished_bytes


async def test_who_has_little_is_not_cut_off_for_what_others_sent() -> None:
    config = ServerConfig(frame_bytes_max=1 << 20, receive_bytes_max=1 << 20)
    server = Server({ECHO: echo}, config=config)
    async with client_and_server(server=server) as (_, _, net):
        hog, honest = Wire(await net.connect("s:1")), Wire(await net.connect("s:1"))
        large, small = encode(ask(ECHO, bytes((1 << 20) - 1_000))), encode(ask(ECHO, bytes(2_000)))
        await hog.stream.send_all(large[:-20])
        await wait_all_tasks_blocked()
        await honest.stream.send_all(small[:-1])
        await wait_all_tasks_blocked()
        before = server.counters.crowded_out
        assert server._endpoint.unfinished_bytes > 1 << 20
        await hog.stream.send_all(large[-20:-10])
        await wait_all_tasks_blocked()
        assert (before, server.counters.crowded_out) == (0, 1)
        await honest.stream.send_all(small[-1:])
        await wait_all_tasks_blocked()
        assert server.counters.requests[ECHO] == 1 and len(server.connections) == 1


async def test_an_end_without_listener_ends_a_connection_of_its_own() -> None:
    """A connection made of an endpoint alone, as servers and clients make them: its stream breaks under it."""
    reasons: list[str] = []
    endpoint = Endpoint({}, ClientConfig(), on_close=lambda _, reason: reasons.append(reason))
    async with trio.open_nursery() as nursery:
        await nursery.start(endpoint.run)
        ours, theirs = memory_stream_pair()
        connection = Connection(endpoint, ours, "p:1", "?")
        nursery.start_soon(connection.run)
        await wait_all_tasks_blocked()
        theirs.send_stream.close()
        theirs.receive_stream.close()
        connection.send(ask(oneway=True))
        await wait_all_tasks_blocked()
        assert connection.closed and len(reasons) == 1
        nursery.cancel_scope.cancel()


# --- readers too slow ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False], ids=["one task reads for all", "each reads for itself"])
async def test_who_reads_no_answers_is_not_read_either(together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a socket: 2,000 requests for 64 KiB each, of which nothing is read until the server has stopped."""
    if not together:
        monkeypatch.setattr(endpoint, "readiness", lambda: None)  # as where the system has no epoll
    config = ServerConfig(outgoing_bytes_pause=1 << 20)
    big = bytes(64 << 10)
    server = Server({ECHO: lambda _, request: response(request, body=big)}, config=config)
    async with tcp(server) as (_, address), bare(address) as (wire, stream):
        requests = b"".join(encode(Command(ECHO, number)) for number in range(2_000))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, requests)
            await until(partial(lambda: server.counters.requests[ECHO] > 0))
            served = -1
            while served != server.counters.requests[ECHO]:
                served = server.counters.requests[ECHO]
                await trio.sleep(0.05)
            assert served < 2_000
            (connection,) = server.connections
            assert connection._out_bytes < (1 << 20) + len(big) + 1_000, "answered no further than there is room"
            for number in range(2_000):
                answer = await wire.receive()
                assert answer is not None and answer.opaque == number and len(answer.body) == len(big)
        assert not connection.closed and not server.counters.slow_readers


async def test_the_same_over_a_stream_that_is_no_socket() -> None:
    config = ServerConfig(outgoing_bytes_pause=1 << 20)
    big = bytes(64 << 10)
    server = Server({ECHO: lambda _, request: response(request, body=big)}, config=config)
    async with client_and_server(server=server) as (_, _, net):
        wire = Wire(await net.connect("s:1"))
        await wire.send(Command(ECHO, 0))
        await wait_all_tasks_blocked()
        (connection,) = server.connections
        gate = trio.Event()
        before(connection._stream, gate.wait)
        await wire.send(*(Command(ECHO, number) for number in range(1, 100)))
        await wait_all_tasks_blocked()
        assert connection._out_bytes < (1 << 20) + len(big) + 1_000 and server.counters.requests[ECHO] < 30
        gate.set()
        for number in range(100):
            answer = await wire.receive()
            assert answer is not None and answer.opaque == number


async def test_who_reads_too_slowly_for_what_it_is_sent_is_closed() -> None:
    config = ServerConfig(outgoing_bytes_max=16 << 20)
    reasons: list[str] = []
    server = Server({ECHO: echo}, config=config, on_close=lambda _, reason: reasons.append(reason))
    async with tcp(server) as (_, address), bare(address) as (wire, _):
        await wire.ask(ask())
        (connection,) = server.connections

        async def flood() -> None:
            for _ in range(100):
                connection.send(ask(ECHO, bytes(1 << 20), oneway=True))
                await trio.lowlevel.checkpoint()

        with pytest.raises(ConnectionClosed, match="reads too slowly"):
            await flood()
        assert connection.closed and server.counters.slow_readers == 1
        assert reasons[0].startswith("it reads too slowly") and not connection._out


# --- what only sockets do ------------------------------------------------------------------------------------


async def test_large_frames_both_ways_over_a_socket() -> None:
    async with tcp(Server({ECHO: echo})) as (client, address):
        bodies = [bytes([number]) * (15 << 20) for number in range(3)]
        got: dict[int, bytes] = {}

        async def caller(number: int) -> None:
            got[number] = body_of(await client.call(address, ask(ECHO, bodies[number]), 30_000))

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(caller, number)
        assert [got[number] == bodies[number] for number in range(3)] == [True] * 3


async def test_a_half_closed_connection_gets_what_was_answered_before() -> None:
    closed: list[str] = []
    server = Server({ECHO: echo}, on_close=lambda _, reason: closed.append(reason))
    async with tcp(server) as (_, address), bare(address) as (wire, stream):
        await wire.send(*(Command(ECHO, number) for number in range(50)))
        await stream.send_eof()
        for number in range(50):
            answer = await wire.receive()
            assert answer is not None and answer.opaque == number
        assert await wire.receive() is None
        await until(partial(lambda: closed == ["closed by the other end"]))


async def test_a_reset_connection_ends_with_the_systems_words() -> None:
    closed: list[str] = []
    server = Server({NEVER: never, ECHO: echo}, on_close=lambda _, reason: closed.append(reason))
    async with tcp(server) as (client, address), bare(address) as (wire, stream):
        await wire.ask(ask())
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.socket.close()
        await until(partial(lambda: bool(closed)))
        assert "Connection reset" in closed[0]
        assert body_of(await client.call(address, ask(ECHO, b"x"))) == b"x"


async def test_a_server_that_is_gone_fails_the_calls_under_way() -> None:
    server = Server({NEVER: never, ECHO: echo})
    async with tcp(server) as (client, address):
        await client.call(address, ask(ECHO))
        async with trio.open_nursery() as nursery:

            async def caller() -> None:
                with pytest.raises(ConnectionClosed, match="closed by the other end"):
                    await client.call(address, ask(NEVER))

            nursery.start_soon(caller)
            await until(partial(lambda: server.in_flight == 1))
            (connection,) = server.connections
            connection.close("enough")
        assert server.in_flight == 0 and client.connection(address) is None
        assert body_of(await client.call(address, ask(ECHO, b"x"))) == b"x"
