"""The outbox writes at once what the socket takes, keeps the rest in order and within limits, never raises early."""

from __future__ import annotations

import socket
from random import Random

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from raft.outbox import Outbox


async def socket_pair(buffer_bytes: int = 0) -> tuple[trio.SocketStream, trio.SocketStream]:
    ends = socket.socketpair()
    for end in ends:
        if buffer_bytes:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        end.setblocking(False)
    one, two = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in ends)
    return one, two


async def read_exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        data += await stream.receive_some(size - len(data))
    return bytes(data)


async def test_a_flush_reaches_the_socket_without_any_task() -> None:
    ours, theirs = await socket_pair()
    async with ours, theirs:
        outbox = Outbox(1000, 10)
        outbox.attach(ours)
        assert outbox.put([b"ab", b"c"], 3)
        assert outbox.put([b"d"], 1)
        assert outbox.queued_bytes == 4
        outbox.flush()
        assert outbox.queued_bytes == 0
        assert await read_exactly(theirs, 4) == b"abcd"
        outbox.detach()


async def test_what_was_put_while_connecting_goes_first() -> None:
    ours, theirs = await socket_pair()
    async with ours, theirs:
        outbox = Outbox(1000, 10)
        outbox.put([b"early"], 5)
        outbox.flush()
        outbox.attach(ours)
        outbox.put([b"late"], 4)
        outbox.flush()
        assert await read_exactly(theirs, 9) == b"earlylate"
        outbox.detach()


async def test_partial_writes_keep_every_byte_in_order() -> None:
    rng = Random(7)
    ours, theirs = await socket_pair(4096)
    sent = bytearray()
    async with ours, theirs, trio.open_nursery() as nursery:
        outbox = Outbox(1 << 24, 1 << 16)
        outbox.attach(ours)
        nursery.start_soon(outbox.run)
        received = bytearray()
        stalled = 0
        for _ in range(200):
            for _ in range(rng.randrange(1, 4)):
                buffers = [rng.randbytes(rng.choice([1, 88, 500, 9000])) for _ in range(rng.randrange(1, 40))]
                sent += b"".join(buffers)
                assert outbox.put(buffers, sum(map(len, buffers)))
            outbox.flush()
            stalled += outbox.queued_bytes > 0
            for _ in range(rng.randrange(60)):
                if len(received) < len(sent):
                    received += await theirs.receive_some(rng.choice([1, 1000, 100_000]))
        assert stalled > 50, "the socket was never full: this test tests nothing"
        received += await read_exactly(theirs, len(sent) - len(received))
        assert received == sent
        await wait_all_tasks_blocked()
        assert outbox.queued_bytes == 0
        nursery.cancel_scope.cancel()


async def test_more_buffers_than_one_system_call_takes() -> None:
    ours, theirs = await socket_pair()
    async with ours, theirs, trio.open_nursery() as nursery:
        outbox = Outbox(1 << 20, 1 << 16)
        outbox.attach(ours)
        nursery.start_soon(outbox.run)
        buffers = [bytes([n % 256]) for n in range(5000)]
        outbox.put(buffers, 5000)
        outbox.flush()
        assert await read_exactly(theirs, 5000) == b"".join(buffers)
        nursery.cancel_scope.cancel()


async def test_over_its_limits_it_takes_nothing_and_says_so_once_drained() -> None:
    ours, theirs = await socket_pair(4096)
    async with ours, theirs:
        outbox = Outbox(100_000, 5)
        outbox.attach(ours)
        assert outbox.put([bytes(90_000)], 90_000)
        assert not outbox.put([bytes(10_001)], 10_001), "bytes"
        assert outbox.put([b"1", b"2", b"3", b"4"], 4)
        assert not outbox.put([b"5"], 1), "buffers"
        assert outbox.overflowed
        outbox.flush()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_exactly, theirs, 90_004)
            with trio.fail_after(5):
                await outbox.run()
        assert (outbox.overflowed, outbox.queued_bytes) == (False, 0)
        assert outbox.put([b"5"], 1)


async def test_an_overflow_that_the_socket_then_takes_at_once_is_reported_too() -> None:
    ours, theirs = await socket_pair()
    async with ours, theirs:
        outbox = Outbox(10, 5)
        outbox.attach(ours)
        assert outbox.put([bytes(10)], 10)
        assert not outbox.put([b"x"], 1)
        outbox.flush()
        assert outbox.queued_bytes == 0
        with trio.fail_after(5):
            await outbox.run()


async def test_a_broken_connection_shows_in_the_task_not_in_the_flush() -> None:
    ours, theirs = await socket_pair()
    async with ours:
        outbox = Outbox(1000, 10)
        outbox.attach(ours)
        await theirs.aclose()
        outbox.put([b"x"], 1)
        outbox.flush()
        outbox.flush()
        with pytest.raises(BrokenPipeError), trio.fail_after(5):
            await outbox.run()
        outbox.detach()
        assert outbox.queued_bytes == 0 and not outbox.accepting


async def test_streams_that_are_no_sockets_get_the_same_bytes() -> None:
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        outbox = Outbox(1 << 24, 1 << 16)
        outbox.attach(ours)
        nursery.start_soon(outbox.run)
        big = bytes(300_000)
        outbox.put([b"ab", big, b"c"], 300_003)
        outbox.flush()
        assert await read_exactly(theirs, 300_003) == b"ab" + big + b"c"
        await wait_all_tasks_blocked()
        outbox.put([b"d"], 1)
        outbox.flush()
        assert await read_exactly(theirs, 1) == b"d"
        nursery.cancel_scope.cancel()


# --- from another thread -----------------------------------------------------------------------------------------


async def test_what_is_said_leaves_at_once_and_only_on_a_quiet_connection() -> None:
    ours, theirs = await socket_pair()
    async with ours, theirs:
        outbox = Outbox(1000, 10)
        assert not outbox.send_now(b"nobody listens")
        outbox.attach(ours)
        assert await trio.to_thread.run_sync(outbox.send_now, b"ab")
        assert await read_exactly(theirs, 2) == b"ab"
        outbox.put([b"first"], 5)
        assert not outbox.send_now(b"in front of what is queued")
        outbox.flush()
        assert outbox.send_now(b"then")
        assert await read_exactly(theirs, 9) == b"firstthen"
        outbox.detach()
        assert not outbox.send_now(b"gone")


async def test_nothing_is_said_while_another_thread_writes() -> None:
    ours, theirs = await socket_pair()
    async with ours, theirs:
        outbox = Outbox(1000, 10)
        outbox.attach(ours)
        with outbox._lock:
            assert not outbox.send_now(b"x")
        assert outbox.send_now(b"y")
        assert await read_exactly(theirs, 1) == b"y"


async def test_the_rest_of_what_was_said_goes_before_all_else() -> None:
    ours, theirs = await socket_pair(4096)
    said = Random(3).randbytes(500_000)
    async with ours, theirs, trio.open_nursery() as nursery:
        outbox = Outbox(1 << 20, 100)
        outbox.attach(ours)
        nursery.start_soon(outbox.run)
        assert not outbox.send_now(said), "all of it fitted: this test tests nothing"
        assert not outbox.send_now(b"in the middle of it")
        outbox.put([b"next"], 4)
        outbox.flush()
        assert await read_exactly(theirs, 500_004) == said + b"next"
        await wait_all_tasks_blocked()
        assert outbox.queued_bytes == 0
        assert outbox.send_now(b"again")
        assert await read_exactly(theirs, 5) == b"again"
        nursery.cancel_scope.cancel()


async def test_a_full_or_broken_connection_says_nothing_and_raises_nothing() -> None:
    ours, theirs = await socket_pair(4096)
    async with ours:
        outbox = Outbox(1 << 20, 100)
        outbox.attach(ours)
        while outbox.send_now(bytes(64)):
            pass
        await theirs.aclose()
        assert not outbox.send_now(b"x")


async def test_a_stream_that_is_no_socket_is_the_loops_alone() -> None:
    ours, _ = memory_stream_pair()
    outbox = Outbox(1000, 10)
    outbox.attach(ours)
    assert not outbox.send_now(b"x")
