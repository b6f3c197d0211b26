"""The server: what each request is answered, who is let in, how it stops, and that nothing a peer sends harms it."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import random
import struct
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from harness.simulation.worlds.streams import (
    ECHO,
    LATER,
    NEVER,
    RAISES,
    SLOW,
    Net,
    Wire,
    ask,
    body_of,
    client_and_server,
    echo,
    net,
    wire_to,
)
from remoting.client import open_client
from remoting.codes import GO_AWAY_VERSION, ResponseCode
from remoting.command import ONEWAY, Command, Encoding, response
from remoting.config import ClientConfig, ServerConfig, TLSMode
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import BodyError, ConnectFailed, ConnectionClosed, HeaderError
from remoting.frame import encode
from remoting.server import Server


def raises(error: Exception) -> Callable[[Connection, Command], Command]:
    def handler(_: Connection, __: Command) -> Command:
        raise error

    return handler


def slow(seconds: float) -> Callable[[Connection, Command], Coroutine[Any, Any, Command]]:
    async def handler(_: Connection, request: Command) -> Command:
        await trio.sleep(seconds)
        return response(request, body=request.body)

    return handler


# --- what requests are answered ------------------------------------------------------------------------------


async def test_an_unknown_code_is_named() -> None:
    async with wire_to(Server({})) as wire:
        answer = await wire.ask(ask(4711))
        assert answer is not None and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 4711 not supported"


@pytest.mark.parametrize(("code", "encoding", "words"), [
    (3_442, Encoding.ROCKETMQ, "3442 not supported; if 200050 is meant: a binary header cuts it off"),
    (3_442, Encoding.JSON, None), (3_443, Encoding.ROCKETMQ, None)])
async def test_who_cuts_a_code_off_is_told(code: int, encoding: Encoding, words: str | None) -> None:
    async with wire_to(Server({200_050: lambda _, asked: response(asked)})) as wire:
        answer = await wire.ask(attrs.evolve(ask(code), encoding=encoding))
        assert answer is not None and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert (answer.remark or "").startswith(f" request type {words}" if words else f" request type {code} not")
        assert ("200050" in (answer.remark or "")) == bool(words)


@pytest.mark.parametrize(("error", "remark", "counter"), [
    (ZeroDivisionError("by what"), "ZeroDivisionError: by what", "failed"),
    (HeaderError("GetRoute", "topic", "is missing"), "GetRoute: topic is missing", "rejected"),
    (BodyError("no JSON"), "no JSON", "rejected"),
])
@pytest.mark.parametrize("in_a_task", [False, True])
async def test_what_a_handler_raises_is_answered_and_counted(
    error: Exception, remark: str, counter: str, in_a_task: bool
) -> None:
    async def later(connection: Connection, request: Command) -> Command:
        await trio.lowlevel.checkpoint()
        return raises(error)(connection, request)

    server = Server({RAISES: later if in_a_task else raises(error), ECHO: echo})
    async with wire_to(server) as wire:
        answer = await wire.ask(ask(RAISES))
        assert answer is not None and (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert getattr(server.counters, counter) == 1
        assert await wire.ask(ask(ECHO)) is not None
    assert server.in_flight == 0


async def test_a_handler_that_returns_nonsense_is_a_defect_in_words() -> None:
    server = Server({RAISES: lambda *_: "nonsense"})  # type: ignore[dict-item]
    async with wire_to(server) as wire:
        answer = await wire.ask(ask(RAISES))
        assert answer is not None and answer.remark == "TypeError: the handler returned a str"


async def test_an_answer_too_large_for_a_frame_is_a_system_error() -> None:
    server = Server({ECHO: lambda _, request: response(request, body=bytes(16 << 20))})
    async with wire_to(server) as wire:
        answer = await wire.ask(ask())
        assert answer is not None and answer.code == ResponseCode.SYSTEM_ERROR and "peers take" in (answer.remark or "")


async def test_a_oneway_request_is_never_answered(autojump_clock: MockClock) -> None:
    served: list[int] = []

    def note(_: Connection, request: Command) -> Command:
        served.append(request.code)
        return response(request)

    async def note_later(connection: Connection, request: Command) -> Command:
        await trio.sleep(1)
        return note(connection, request)

    server = Server(
        {ECHO: note, SLOW: note_later, RAISES: raises(ValueError("x")), NEVER: lambda *_: None},
        config=ServerConfig(requests_in_flight_max=1),
    )
    async with wire_to(server) as wire:
        codes = (ECHO, SLOW, SLOW, RAISES, NEVER, 4711)
        await wire.send(*(ask(code, oneway=True) for code in codes), Command(ECHO, 99))
        answer = await wire.receive()
        assert answer is not None and answer.opaque == 99
        with trio.move_on_after(10):
            pytest.fail(f"answered: {await wire.receive()}")
        assert served == [ECHO, ECHO, SLOW]
        assert (server.counters.busy, server.counters.unsupported, server.counters.failed) == (1, 1, 1)
    assert server.in_flight == 0


async def test_slow_requests_run_side_by_side_and_quick_ones_overtake(autojump_clock: MockClock) -> None:
    async with client_and_server({SLOW: slow(1), ECHO: echo}) as (client, server, _):
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(client.call, "s:1", ask(SLOW))
            await wait_all_tasks_blocked()
            assert server.in_flight == 10
            assert body_of(await client.call("s:1", ask(ECHO, b"x"))) == b"x" and trio.current_time() == start
        assert trio.current_time() - start == pytest.approx(1) and server.in_flight == 0


async def test_too_many_requests_under_way_are_answered_busy(autojump_clock: MockClock) -> None:
    asked: list[tuple[Connection, Command]] = []
    server = Server(
        {SLOW: slow(1), ECHO: echo, LATER: lambda *both: asked.append(both)},
        config=ServerConfig(requests_in_flight_max=2),
    )
    async with wire_to(server) as wire:
        await wire.send(Command(LATER, 1), Command(SLOW, 2), Command(SLOW, 3), Command(ECHO, 4))
        first, second = await wire.receive(), await wire.receive()
        assert first is not None and (first.opaque, first.code) == (3, ResponseCode.SYSTEM_BUSY)
        assert second is not None and (second.opaque, second.code) == (4, ResponseCode.SUCCESS)
        ((connection, request),) = asked
        connection.reply(request, response(request))
        await wire.send(Command(SLOW, 5))
        assert {answer.opaque for _ in range(3) if (answer := await wire.receive())} == {1, 2, 5}
        assert server.counters.busy == 1 and server.in_flight == 0


async def test_a_debt_to_a_closed_connection_is_forgotten() -> None:
    asked: list[tuple[Connection, Command]] = []
    server = Server({LATER: lambda *both: asked.append(both)})
    async with wire_to(server) as wire:
        await wire.send(Command(LATER, 1), Command(LATER, 1), Command(LATER, 2))
        await wait_all_tasks_blocked()
        assert server.in_flight == 2
        await wire.stream.aclose()
        await wait_all_tasks_blocked()
        assert server.in_flight == 0
        for connection, request in asked:
            connection.reply(request, response(request))
        assert server.in_flight == 0


async def test_a_reply_inside_the_handler_leaves_no_debt() -> None:
    def inside(connection: Connection, request: Command) -> None:
        connection.reply(request, response(request, body=b"inside"))

    server = Server({ECHO: inside})
    async with wire_to(server) as wire:
        for opaque in (0, 1, 1):
            answer = await wire.ask(Command(ECHO, opaque))
            assert answer is not None and answer.body == b"inside"
        assert server.in_flight == 0


async def test_a_task_outlives_its_connection_and_is_not_cancelled(autojump_clock: MockClock) -> None:
    done: list[int] = []

    async def work(_: Connection, request: Command) -> Command:
        await trio.sleep(5)
        done.append(request.code)
        return response(request)

    server = Server({SLOW: work})
    async with wire_to(server) as wire:
        await wire.send(ask(SLOW))
        await wait_all_tasks_blocked()
        await wire.stream.aclose()
        await trio.sleep(6)
        assert done == [SLOW] and server.in_flight == 0


async def test_each_answer_is_told_with_its_latency(autojump_clock: MockClock) -> None:
    told: list[tuple[int, int, float]] = []
    asked: list[tuple[Connection, Command]] = []
    server = Server(
        {ECHO: echo, SLOW: slow(0.5), LATER: lambda *both: asked.append(both)},
        on_answer=lambda code, answer, seconds: told.append((code, answer, round(seconds, 3))),
    )
    async with wire_to(server) as wire:
        await wire.send(ask(ECHO), Command(SLOW, 1), Command(LATER, 2), ask(9), ask(ECHO, oneway=True))
        await trio.sleep(2)
        ((connection, request),) = asked
        connection.reply(request, response(request, ResponseCode.NO_PERMISSION))
    assert told == [(ECHO, 0, 0), (9, 3, 0), (SLOW, 0, 0.5), (LATER, 16, 2)]


# --- who is let in -------------------------------------------------------------------------------------------


async def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    server = Server({ECHO: echo}, config=ServerConfig(connections_max=2))
    async with net() as made:
        await made.serve("s:1", server)
        wires = [Wire(await made.connect("s:1")) for _ in range(3)]
        await wait_all_tasks_blocked()
        assert [await wire.ask(ask()) is not None for wire in wires[:2]] == [True, True]
        assert await wires[2].receive() is None
        assert (server.counters.refused, server.counters.accepted) == (1, 2)
        await wires[0].stream.aclose()
        await wait_all_tasks_blocked()
        assert await Wire(await made.connect("s:1")).ask(ask()) is not None


async def test_who_says_nothing_for_long_gives_its_place_to_the_next_one(autojump_clock: MockClock) -> None:
    """Anybody may open as many connections as there are places, and say nothing."""
    server = Server({ECHO: echo}, config=ServerConfig(connections_max=3))
    async with net() as made:
        await made.serve("s:1", server)
        wire = Wire(await made.connect("s:1"))
        assert await wire.ask(ask()) is not None
        silent = [Wire(await made.connect("s:1")) for _ in range(2)]
        await trio.sleep(2)
        later = []
        for _ in range(2):
            later.append(Wire(await made.connect("s:1")))
            assert await later[-1].ask(ask()) is not None
        assert await Wire(await made.connect("s:1")).receive() is None, "who spoke stays"
        assert [await each.receive() for each in silent] == [None, None]
        assert await wire.ask(ask()) is not None
        assert (server.counters.idle, server.counters.refused) == (2, 1)
        await later[0].stream.aclose()
        await wait_all_tasks_blocked()
        assert await Wire(await made.connect("s:1")).ask(ask()) is not None
    assert not server._silent and not server._streams


async def test_hooks_that_raise_harm_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def explode(*_: object) -> None:
        raise ZeroDivisionError

    server = Server({ECHO: echo}, on_open=explode, on_close=explode)
    async with wire_to(server) as wire:
        assert await wire.ask(ask()) is not None
        await wire.stream.aclose()
        await wait_all_tasks_blocked()
        assert not server.connections
    assert [record.message for record in caplog.records] == ["on_open of client:1", "on_close of client:1"]


async def test_a_connection_closed_when_it_opens_is_not_served() -> None:
    server = Server({ECHO: echo}, on_open=lambda connection: connection.close("not you"))
    async with wire_to(server) as wire:
        assert await wire.ask(ask()) is None
        assert server.counters.requests[ECHO] == 0 and server.counters.closed == 1


@pytest.mark.parametrize("data", [
    b"GET / HTTP/1.1\r\n\r\n", b"\x02", b"\x7f", b"PROXY nonsense\r\n", b"\x16\x03\x01", b"\x99",
])
async def test_what_nobody_serves_is_closed_and_counted(data: bytes) -> None:
    server = Server({ECHO: echo})
    async with wire_to(server) as wire:
        await wire.stream.send_all(data)
        assert await wire.receive() is None
        assert server.counters.unknown_protocol == 1 and not server.counters.opened


async def test_other_protocols_go_to_the_fallback_with_all_their_bytes() -> None:
    got: list[bytes] = []

    async def other(stream: trio.abc.Stream, received: bytes) -> None:
        got.append(received)
        got.append(bytes(await stream.receive_some()))
        await stream.send_all(b"bye")

    server = Server({ECHO: echo}, fallback=other)
    async with wire_to(server) as wire:
        await wire.stream.send_all(b"\x99hello")
        await wait_all_tasks_blocked()
        await wire.stream.send_all(b" again")
        assert await wire.stream.receive_some() == b"bye"
        assert await wire.stream.receive_some() == b""
        assert got == [b"\x99hello", b" again"]
        assert (server.counters.handed_over, server.counters.opened) == (1, 0)


async def test_a_fallback_that_raises_costs_its_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def other(_: trio.abc.Stream, __: bytes) -> None:
        raise ZeroDivisionError

    async with client_and_server(server=Server({ECHO: echo}, fallback=other)) as (client, _, made):
        wire = Wire(await made.connect("s:1"))
        await wire.stream.send_all(b"\x99")
        assert await wire.receive() is None
        assert body_of(await client.call("s:1", ask(ECHO, b"x"))) == b"x"
    assert [record.message for record in caplog.records] == ["connection from client:1"]


async def test_a_proxy_header_tells_where_the_peer_is() -> None:
    def who(connection: Connection, request: Command) -> Command:
        return response(request, body=connection.peer.encode())

    header = b"PROXY TCP4 10.1.2.3 10.9.9.9 4711 9876\r\n"
    async with wire_to(Server({ECHO: who})) as wire:
        frame = encode(ask())
        for piece in (header[:9], header[9:] + frame[:3], frame[3:]):
            await wire.stream.send_all(piece)
            await wait_all_tasks_blocked()
        answer = await wire.receive()
        assert answer is not None and answer.body == b"10.1.2.3:4711"
    async with wire_to(Server({ECHO: who}, config=ServerConfig(proxy_protocol=False))) as wire:
        await wire.stream.send_all(header)
        assert await wire.receive() is None


async def test_bytes_read_before_are_given_as_prefix() -> None:
    async with net() as made:
        server = await made.serve("s:1", Server({ECHO: echo}))
        ours, theirs = memory_stream_pair()
        data = encode(Command(ECHO, 5))
        made.nursery.start_soon(server.serve_stream, theirs, data[:7])
        await ours.send_all(data[7:])
        answer = await Wire(ours).receive()
        assert answer is not None and answer.opaque == 5


async def test_who_says_nothing_is_closed_for_being_idle(autojump_clock: MockClock) -> None:
    server = Server({})
    async with wire_to(server) as wire:
        start = trio.current_time()
        await wire.stream.send_all(b"PRO")
        assert await wire.receive() is None
        assert trio.current_time() - start == pytest.approx(120) and server.counters.idle == 1


async def test_a_server_that_does_not_run_serves_nobody() -> None:
    server = Server({})
    ours, theirs = memory_stream_pair()
    with pytest.raises(RuntimeError, match="needs a server that runs"):
        await server.serve_stream(theirs)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await server.stop(0)
    await server.serve_stream(theirs)
    assert await Wire(ours).receive() is None


class FlakyListener(trio.abc.Listener[trio.abc.Stream]):
    """Raises what it is given, then waits for ever."""

    def __init__(self, *outcomes: Exception | trio.abc.Stream) -> None:
        self.outcomes = list(outcomes)
        self.closed = False

    async def accept(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if not self.outcomes:
            await trio.sleep_forever()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


async def test_accepting_goes_on_after_errors(autojump_clock: MockClock) -> None:
    ours, theirs = memory_stream_pair()
    shortage = [OSError(errno.EMFILE, "too many open files"), OSError(errno.ENOBUFS, "no buffers")]
    listener, gone = FlakyListener(*shortage, theirs), FlakyListener(trio.ClosedResourceError())
    server = Server({ECHO: echo})
    async with trio.open_nursery() as nursery:
        start = trio.current_time()
        await nursery.start(server.run, [listener, gone])
        assert await Wire(ours).ask(ask()) is not None
        assert trio.current_time() - start == pytest.approx(0.2) and server.counters.accept_errors == 2
        await server.stop(1_000)
    assert listener.closed and gone.closed


async def test_a_storm_of_connections() -> None:
    """500 clients connect, ask and leave at once over real sockets."""
    opened: list[Connection] = []
    closed: list[Connection] = []
    server = Server({ECHO: echo}, on_open=opened.append, on_close=lambda connection, _: closed.append(connection))

    async def visit(port: int) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            answer = await Wire(stream).ask(ask(ECHO, b"x"))
            assert answer is not None and answer.body == b"x"

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await nursery.start(server.run, listeners)
        with trio.fail_after(60):
            async with trio.open_nursery() as storm:
                for _ in range(500):
                    storm.start_soon(visit, listeners[0].socket.getsockname()[1])
            while server.connections:
                await trio.sleep(0.001)
        assert set(opened) == set(closed) and len(opened) == len(closed) == 500
        nursery.cancel_scope.cancel()


# --- stopping ------------------------------------------------------------------------------------------------


async def stop_in(made: Net, server: Server, grace_ms: float) -> trio.Event:
    stopped = trio.Event()

    async def stop() -> None:
        await server.stop(grace_ms)
        stopped.set()

    made.nursery.start_soon(stop)
    await wait_all_tasks_blocked()
    return stopped


async def test_stopping_lets_requests_finish_and_sends_new_ones_away(autojump_clock: MockClock) -> None:
    served: list[int] = []

    def note(connection: Connection, request: Command) -> Command:
        served.append(request.opaque)
        return echo(connection, request)

    async with net() as made:
        server = await made.serve("s:1", Server({SLOW: slow(2), ECHO: note}))
        modern, old = Wire(await made.connect("s:1")), Wire(await made.connect("s:1"))
        await modern.send(Command(SLOW, 1, body=b"finished"))
        await old.send(Command(SLOW, 2))
        await wait_all_tasks_blocked()
        start = trio.current_time()
        stopped = await stop_in(made, server, 10_000)
        await modern.send(Command(ECHO, 3, version=GO_AWAY_VERSION + 1), Command(ECHO, 4, ONEWAY))
        await old.send(Command(ECHO, 5, version=GO_AWAY_VERSION))
        answer = await modern.receive()
        assert answer is not None and (answer.opaque, answer.code) == (3, ResponseCode.GO_AWAY)
        answer = await old.receive()
        assert answer is not None and (answer.opaque, answer.code) == (5, ResponseCode.SUCCESS)
        answer = await modern.receive()
        assert answer is not None and (answer.opaque, answer.body) == (1, b"finished")
        assert await modern.receive() is None
        await stopped.wait()
        assert 2 <= trio.current_time() - start < 2.5
        assert served == [4, 5] and server.counters.went_away == 1 and not server.connections


async def test_stopping_ends_at_its_grace(autojump_clock: MockClock) -> None:
    reasons: list[str] = []
    server = Server({SLOW: slow(1e6)}, on_close=lambda _, reason: reasons.append(reason))
    async with client_and_server(server=server) as (client, _, made):

        async def caller() -> None:
            with pytest.raises(ConnectionClosed, match="closed by the other end"):
                await client.call("s:1", ask(SLOW), 1e9)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller)
            await wait_all_tasks_blocked()
            start = trio.current_time()
            await (await stop_in(made, server, 3_000)).wait()
            assert trio.current_time() - start == pytest.approx(3)
        assert reasons == ["this end is shutting down"] and server.in_flight == 0


async def test_an_idle_server_stops_in_a_moment_and_listens_no_more(autojump_clock: MockClock) -> None:
    listener = FlakyListener()
    server = Server({ECHO: echo})
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, [listener])
        ours, theirs = memory_stream_pair()
        nursery.start_soon(server.serve_stream, theirs)
        assert await Wire(ours).ask(ask()) is not None
        start = trio.current_time()
        await server.stop(60_000)
        assert trio.current_time() - start < 0.5 and listener.closed
        assert await Wire(ours).receive() is None


async def test_a_client_that_is_sent_away_asks_the_next_server(autojump_clock: MockClock) -> None:
    async with client_and_server({SLOW: slow(1), ECHO: echo}) as (client, first, made):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call, "s:1", ask(SLOW))
            await wait_all_tasks_blocked()
            stopped = await stop_in(made, first, 10_000)
            second = await made.serve("s:1", Server({ECHO: echo}))
            assert body_of(await client.call("s:1", ask(ECHO, b"x"))) == b"x"
            assert (first.counters.went_away, second.counters.requests[ECHO]) == (1, 1)
            assert made.dialled == ["s:1", "s:1"]
        await stopped.wait()


def test_enforcing_needs_a_certificate() -> None:
    with pytest.raises(ValueError, match="needs a certificate"):
        Server({}, config=ServerConfig(tls_mode=TLSMode.ENFORCING))


@pytest.mark.parametrize(("field", "value", "words"), [
    ("connections_max", 0, "above 0"), ("idle_timeout_ms", 1.5, "above 0"), ("frame_bytes_max", 1 << 25, "at most"),
    ("receive_bytes_max", 1 << 20, "receive_bytes_max = 1048576: must be at least frame_bytes_max"),
    ("outgoing_bytes_max", 1 << 20, "outgoing_bytes_max = 1048576: must be at least frame_bytes_max"),
    ("tls_mode", "permissive", "TLSMode"),
])
def test_limits_that_make_no_sense_are_named(field: str, value: object, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        ServerConfig(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="above 0"):
        ClientConfig(connect_timeout_ms=-1)


# --- any bytes at all ----------------------------------------------------------------------------------------

SAMPLES = (
    encode(Command(ECHO, 1, ext={"a": "b"}, body=b"body")),
    encode(Command(SLOW, 2, ONEWAY)),
    encode(Command(RAISES, 3, encoding=Encoding.ROCKETMQ, ext={"key": "value"})),
    encode(Command(NEVER, 4, 1, remark="an answer nobody asked for")),
    b"PROXY TCP4 10.1.2.3 10.9.9.9 4711 9876\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12),
    bytes.fromhex("16030100050100000100"),
    b"\x99Q\0\0",
)


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """Whole frames, damaged frames, absurd lengths and noise, in any order."""
    parts = []
    for _ in range(draw(st.integers(1, 6))):
        part = bytearray(draw(st.sampled_from(SAMPLES) | st.binary(max_size=40)))
        if part and draw(st.booleans()):
            for _ in range(draw(st.integers(1, 4))):
                part[draw(st.integers(0, len(part) - 1))] = draw(st.integers(0, 255))
        if draw(st.booleans()):
            part = part[: draw(st.integers(0, len(part)))]
        if draw(st.integers(0, 9)) == 0:
            part[:0] = struct.pack(">iI", draw(st.integers(-5, 1 << 25)), draw(st.integers(0, (1 << 32) - 1)))
        parts.append(bytes(part))
    return b"".join(parts)


async def visit_with(server: Server, data: list[bytes]) -> None:
    """Each piece over a connection of its own; afterwards all is as before and a good request is answered."""
    async with net() as made:
        await made.serve("s:1", server)
        for number, piece in enumerate(data):
            wire = Wire(await made.connect("s:1"))
            half = number % (len(piece) + 1)
            with contextlib.suppress(trio.BrokenResourceError):  # it has had enough of us
                await wire.stream.send_all(piece[:half])
                await wait_all_tasks_blocked()
                await wire.stream.send_all(piece[half:])
                await wait_all_tasks_blocked()
            await wire.stream.aclose()
        await wait_all_tasks_blocked()
        assert not server.connections and not server._streams
        assert server.in_flight == server._endpoint.unfinished_bytes == 0
        assert server.counters.opened == server.counters.closed
        async with open_client(connector=made.connect) as client:
            assert body_of(await client.call("s:1", ask(ECHO, b"alive"))) == b"alive"


def victim() -> Server:
    async def discard(stream: trio.abc.Stream, _: bytes) -> None:
        while await stream.receive_some():
            pass

    async def nap(_: Connection, request: Command) -> Command:
        await trio.lowlevel.checkpoint()
        return response(request)

    def fail(_: Connection, __: Command) -> Command:
        raise ValueError("as always")  # a new one each time: one that is kept would keep every frame it passed

    handlers: dict[int, Handler] = {ECHO: echo, SLOW: nap, RAISES: fail, NEVER: lambda *_: None}
    return Server(handlers, fallback=discard)


@given(st.lists(hostile(), min_size=1, max_size=5))
@settings(max_examples=150)
def test_no_bytes_harm_the_server(data: list[bytes]) -> None:
    trio.run(visit_with, victim(), data)


def test_thousands_of_hostile_connections_cost_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Noise, damaged frames and announced lengths that never come; what stays allocated must not grow with them."""
    caplog.set_level(logging.CRITICAL, "remoting")  # pytest keeps every line
    rng = random.Random(4)

    def piece() -> bytes:
        kind = rng.randrange(4)
        if kind == 0:
            return rng.randbytes(rng.randrange(1, 3_000))
        data = bytearray(b"".join(rng.choices(SAMPLES[:4], k=rng.randrange(1, 20))))
        if kind == 1:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data += struct.pack(">iI", 16 << 20, rng.randrange(1 << 24)) + rng.randbytes(2_000)
        return bytes(data)

    server = victim()
    trio.run(visit_with, server, [piece() for _ in range(100)])
    held = []
    tracemalloc.start()
    try:
        for _ in range(3):
            server = victim()
            trio.run(visit_with, server, [piece() for _ in range(300)])
            assert tracemalloc.get_traced_memory()[1] < 64 << 20, "most of it the test's own streams"
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
        assert held[-1] - held[0] < 1 << 20
    finally:
        tracemalloc.stop()
    assert server.counters.bad_frames > 20 and server.counters.unknown_protocol > 20


async def test_an_announced_length_allocates_nothing() -> None:
    server = Server({ECHO: echo}, config=ServerConfig(connections_max=1_000))
    async with net() as made:
        await made.serve("s:1", server)
        tracemalloc.start()
        try:
            for _ in range(300):
                wire = Wire(await made.connect("s:1"))
                await wire.stream.send_all(struct.pack(">ii", (16 << 20) - 4, 100))
            await wait_all_tasks_blocked()
            assert len(server.connections) == 300
            assert tracemalloc.get_traced_memory()[0] < 300 * 20_000
        finally:
            tracemalloc.stop()


async def test_connect_failed_when_nobody_listens() -> None:
    async with client_and_server() as (client, _, _):
        with pytest.raises(ConnectFailed, match="cannot connect to nobody:1: nobody listens at nobody:1"):
            await client.call("nobody:1", ask())
