"""The recording relay: bytes pass unchanged, and every frame is written down whole, however it was cut."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from harness.scenarios.golden.record import FRAME_BYTES_MAX, Recorded, Recorder, Splitter

Handler = Callable[[trio.SocketStream], Awaitable[None]]


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


@given(st.lists(st.binary(min_size=4, max_size=40), max_size=8), st.lists(st.integers(0, 400), max_size=12))
def test_frames_do_not_depend_on_the_pieces(contents: list[bytes], cuts: list[int]) -> None:
    frames = [framed(content) for content in contents]
    stream = b"".join(frames)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    splitter = Splitter()
    found = [frame for a, b in pairwise(edges) for frame in splitter.feed(stream[a:b])]
    assert found == frames


@pytest.mark.parametrize("length", [-1, 0, 3, FRAME_BYTES_MAX - 3])
def test_after_an_absurd_length_nothing_is_a_frame(length: int) -> None:
    splitter = Splitter()
    good = framed(b"good")
    assert splitter.feed(good + length.to_bytes(4, "big", signed=True) + b"xyz") == [good]
    assert splitter.feed(good) == []
    assert splitter._buffer == b"", "it keeps nothing of what it cannot read"


def test_the_longest_frame_is_one() -> None:
    frame = framed(bytes(FRAME_BYTES_MAX - 4))
    assert Splitter().feed(frame) == [frame]


@given(st.binary(max_size=30), st.integers(0, 2**41), st.integers(1, 10**6))
def test_lines(frame: bytes, time_ms: int, connection: int) -> None:
    recorded = Recorded(time_ms, "namesrv", connection, "to_client", frame)
    assert recorded.line().count("\n") == 1
    assert Recorded.parse(recorded.line()) == recorded


async def echo(stream: trio.SocketStream) -> None:
    async with stream:
        async for data in stream:
            await stream.send_all(data)


async def relay_to(nursery: trio.Nursery, handler: Handler) -> tuple[int, list[Recorded]]:
    """The port of a relay in front of a server, and what the relay records."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, handler, listeners)
    kept: list[Recorded] = []
    port = await Recorder(kept.append, clock=lambda: 1.5).relay(
        nursery, "a link", ("127.0.0.1", 0), listeners[0].socket.getsockname()[:2])
    return port, kept


async def say(port: int, *pieces: bytes) -> bytes:
    """Send these, then hear all that comes back."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as client:
        for piece in pieces:
            await client.send_all(piece)
        await client.send_eof()
        return b"".join([bytes(data) async for data in client])


async def test_frames_of_both_sides(nursery: trio.Nursery) -> None:
    port, kept = await relay_to(nursery, echo)
    frames = [framed(b"\0\0\0\4abcd"), framed(b"\0\0\0\4efgh")]
    whole = b"".join(frames)
    for _ in range(2):
        assert await say(port, whole[:7], whole[7:]) == whole
    for connection in (1, 2):
        for direction in ("to_server", "to_client"):
            assert [one.frame for one in kept if (one.connection, one.direction) == (connection, direction)] == frames
    assert {(one.time_ms, one.link) for one in kept} == {(1_500, "a link")}
    nursery.cancel_scope.cancel()


async def test_what_is_no_frame_passes_all_the_same(nursery: trio.Nursery) -> None:
    port, kept = await relay_to(nursery, echo)
    hello = b"\x16\x03\x01\x02\x00 a TLS ClientHello begins like this"
    assert await say(port, hello) == hello
    assert kept == []
    nursery.cancel_scope.cancel()


async def test_nobody_behind_the_relay_closes_the_connection(nursery: trio.Nursery, free_port: int) -> None:
    port = await Recorder(lambda _: None).relay(nursery, "a link", ("127.0.0.1", 0), ("127.0.0.1", free_port))
    async with await trio.open_tcp_stream("127.0.0.1", port) as client:
        assert await client.receive_some() == b""
    nursery.cancel_scope.cancel()


async def test_a_server_that_dies_ends_the_clients_connection(nursery: trio.Nursery) -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.aclose()

    port, _ = await relay_to(nursery, hang_up)
    async with await trio.open_tcp_stream("127.0.0.1", port) as client:
        assert await client.receive_some() == b""
    nursery.cancel_scope.cancel()
