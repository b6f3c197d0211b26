"""What waited in a connection while its server was at others, or while its answers were not read."""

from __future__ import annotations

import math
import socket
import sys
import threading

import pytest
import trio
from trio.testing import lockstep_stream_pair

from harness.simulation.worlds.streams import ECHO, Wire, echo
from remoting.codes import ResponseCode
from remoting.command import Command, request, response
from remoting.config import ServerConfig
from remoting.connection import Connection
from remoting.frame import encode
from remoting.late import Late
from remoting.server import Server

BLOCKS = ECHO + 1_000
linux = pytest.mark.skipif(sys.platform != "linux", reason="epoll and tcp_info are Linux's")


class Impatient(Late):
    """Refuses everything that waited."""

    after_s = 0.2

    def __init__(self) -> None:
        self.waited_s: list[float] = []

    def answer(self, request: Command, came_at: float, waited_s: float, under_way: int) -> Command | None:
        self.waited_s.append(waited_s)
        return response(request, ResponseCode.SYSTEM_BUSY, remark="late")


async def dialled(listener: trio.SocketListener) -> tuple[Wire, socket.socket]:
    """A connection over which something passed, and its bare socket."""
    port = listener.socket.getsockname()[1]
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    wire = Wire(stream)
    await wire.send(request(ECHO))
    assert await wire.receive() is not None
    return wire, socket.socket(fileno=socket.dup(stream.socket.fileno()))


@linux
@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "while"])
async def test_what_came_while_the_loop_was_at_another_is_late(meanwhile: bool) -> None:
    late, frame = Impatient(), encode(request(ECHO, body=b"second"))

    def block(_: Connection, asked: Command) -> Command:
        if meanwhile:
            theirs.send(frame)
        threading.Event().wait(0.25)  # the loop is held up
        return response(asked)

    server = Server({ECHO: echo, BLOCKS: block}, late=late)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run, [listener])
            first, ours = await dialled(listener)
            second, theirs = await dialled(listener)
            ours.send(encode(request(BLOCKS)))
            if not meanwhile:
                theirs.send(frame)
            assert (await first.receive()).code == ResponseCode.SUCCESS  # type: ignore[union-attr]
            answer = await second.receive()
            assert answer is not None
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, "late")
            assert len(late.waited_s) == 1
            assert late.waited_s[0] >= 0.2
            assert server.counters.overdue == 1
            for each in (ours, theirs):
                each.close()
            for wire in (first, second):
                await trio.aclose_forcefully(wire.stream)
            nursery.cancel_scope.cancel()


async def test_what_waits_behind_answers_that_nobody_reads_is_late(autojump_clock: trio.testing.MockClock) -> None:
    late = Impatient()
    server = Server({ECHO: echo}, late=late, config=ServerConfig(outgoing_bytes_pause=100))
    ours, theirs = lockstep_stream_pair()
    wire = Wire(ours)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        nursery.start_soon(server.serve_stream, theirs)
        await wire.send(*(request(ECHO, body=bytes(1_000)) for _ in range(2)))
        await trio.sleep(1)
        first, second = await wire.receive(), await wire.receive()
        assert first is not None
        assert second is not None
        assert (first.code, second.code) == (ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY)
        assert late.waited_s == [pytest.approx(1)]
        nursery.cancel_scope.cancel()


def test_nothing_is_late_unless_somebody_says_so() -> None:
    assert Late().after_s == math.inf
    assert Late().answer(request(ECHO), 0, 1e9, 0) is None
