"""The floor: three processes replicate frames over TCP and fdatasync each of them, without any Raft.

    python -m benchmarks.floor [--dir DIR] [--widths 1,64,256,1000] [--size 128] [--seconds 3]

No elections, no terms, no recovery, no state machine, no limits: only what no replicated log in trio can leave out.
A proposal is answered when two of three logs hold it durably. How close a Raft library comes to these figures, on
the same machine in the same minute, is its measure. It knows nothing of raft on purpose.
"""

from __future__ import annotations

import argparse
import os
import queue
import struct
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable

import google_crc32c
import outcome
import trio
from trio.lowlevel import Abort, Task, TrioToken, current_task, current_trio_token, reschedule, wait_task_rescheduled

from benchmarks.measure import load

HEADER = struct.Struct("<IQQII")  # body bytes, first index, term, count, CRC-32C of the body
ACK = struct.Struct("<Q")  # last durable index
LOG_BYTES = 512 << 20
BUFFERS_MAX = 512
"""Frames in one write; the system allows 1,024."""


class Writer:
    """One thread per process: takes every frame queued, one pwritev, one fdatasync, one wake-up."""

    def __init__(self, path: str, durable: Callable[[int], None], token: TrioToken) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.posix_fallocate(self._fd, 0, LOG_BYTES)
        os.fsync(self._fd)
        self._queue: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._durable, self._token = durable, token
        threading.Thread(target=self._run, daemon=True).start()

    def write(self, last: int, frame: bytes) -> None:
        self._queue.put((last, frame))

    def _run(self) -> None:
        end = 0
        while True:
            last, frame = self._queue.get()
            frames = [frame]
            while len(frames) < BUFFERS_MAX:
                try:
                    last, frame = self._queue.get_nowait()
                except queue.Empty:
                    break
                frames.append(frame)
            size = sum(map(len, frames))
            if end + size > LOG_BYTES:
                end = 0
            written = os.pwritev(self._fd, frames, end)
            assert written == size
            end += size
            os.fdatasync(self._fd)
            self._token.run_sync_soon(self._durable, last)


class Outbox:
    """What waits to be sent on one stream; all of it leaves in one call."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream, self._parts, self._wake = stream, list[bytes](), trio.Event()

    def put(self, data: bytes) -> None:
        self._parts.append(data)
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            parts, self._parts, self._wake = self._parts, [], trio.Event()
            await self._stream.send_all(parts[0] if len(parts) == 1 else b"".join(parts))


def _never_cancelled(_: object) -> Abort:
    return Abort.FAILED


class Leader:
    """Frames what is proposed, writes it, sends it, and answers what two logs hold."""

    def __init__(self, path: str, streams: list[trio.SocketStream]) -> None:
        self._datas: list[bytes] = []
        self._tasks: list[Task] = []
        self._wake = trio.Event()
        self._next = 1
        self._durable = [0, 0, 0]
        self._waiting: deque[tuple[int, list[Task]]] = deque()
        self._writer = Writer(path, self._own_durable, current_trio_token())
        self._streams = streams
        self._outboxes = [Outbox(stream) for stream in streams]

    async def propose(self, data: bytes) -> int:
        if not self._datas:
            self._wake.set()
        self._datas.append(data)
        self._tasks.append(current_task())
        index: int = await wait_task_rescheduled(_never_cancelled)
        return index

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            for peer, outbox in enumerate(self._outboxes, 1):
                nursery.start_soon(outbox.run)
                nursery.start_soon(self._acks, peer)
            task_status.started()
            while True:
                await self._wake.wait()
                self._flush()

    def _flush(self) -> None:
        datas, tasks = self._datas, self._tasks
        self._datas, self._tasks, self._wake = [], [], trio.Event()
        body = struct.pack(f"<{len(datas)}I", *map(len, datas)) + b"".join(datas)
        frame = HEADER.pack(len(body), self._next, 1, len(datas), google_crc32c.value(body)) + body
        self._next += len(datas)
        last = self._next - 1
        self._waiting.append((last, tasks))
        for outbox in self._outboxes:
            outbox.put(frame)
        self._writer.write(last, frame)

    def _own_durable(self, last: int) -> None:
        self._durable[0] = last
        self._advance()

    def _advance(self) -> None:
        committed = sorted(self._durable)[1]
        while self._waiting and self._waiting[0][0] <= committed:
            last, tasks = self._waiting.popleft()
            for task in tasks:
                reschedule(task, outcome.Value(last))

    async def _acks(self, peer: int) -> None:
        buffer = b""
        while data := await self._streams[peer - 1].receive_some(65536):
            buffer += data
            whole = len(buffer) // ACK.size
            if whole:
                (self._durable[peer],) = ACK.unpack_from(buffer, ACK.size * (whole - 1))
                buffer = buffer[ACK.size * whole :]
                self._advance()


async def follow(path: str) -> None:
    """Serve one leader: check each frame, write it, acknowledge what is durable. Prints its port, ends with it."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listener.socket.getsockname()[1], flush=True)
    stream = await listener.accept()
    stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
    outbox = Outbox(stream)
    writer = Writer(path, lambda last: outbox.put(ACK.pack(last)), current_trio_token())
    buffer = bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        while data := await stream.receive_some(1 << 20):
            buffer += data
            start = 0
            while len(buffer) - start >= HEADER.size:
                size, first, _term, count, crc = HEADER.unpack_from(buffer, start)
                end = start + HEADER.size + size
                if len(buffer) < end:
                    break
                frame = bytes(memoryview(buffer)[start:end])
                assert google_crc32c.value(frame[HEADER.size :]) == crc
                writer.write(first + count - 1, frame)
                start = end
            del buffer[:start]
        nursery.cancel_scope.cancel()


async def lead(directory: str, widths: list[int], size_bytes: int, seconds: float) -> None:
    """Run the pipeline and print one row per width."""
    followers = [
        subprocess.Popen(  # noqa: ASYNC220 - before anything is measured
            [sys.executable, "-m", "benchmarks.floor", "--follow", os.path.join(directory, f"log{i}")],
            stdout=subprocess.PIPE,
        )
        for i in (1, 2)
    ]
    try:
        streams = []
        for follower in followers:
            assert follower.stdout is not None
            streams.append(await trio.open_tcp_stream("127.0.0.1", int(follower.stdout.readline())))
        leader = Leader(os.path.join(directory, "log0"), streams)
        async with trio.open_nursery() as nursery:
            await nursery.start(leader.run)
            for width in widths:
                row = await load("propose", leader.propose, width=width, size_bytes=size_bytes, seconds=seconds)
                print(row.line(), flush=True)
            nursery.cancel_scope.cancel()
    finally:
        for follower in followers:
            follower.kill()
            follower.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=".")
    parser.add_argument("--widths", default="1,64,256,1000")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.follow:
        trio.run(follow, args.follow)
        return
    with tempfile.TemporaryDirectory(dir=args.dir) as directory:
        trio.run(lead, directory, [int(width) for width in args.widths.split(",")], args.size, args.seconds)


if __name__ == "__main__":
    main()
