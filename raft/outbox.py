"""Bytes on their way into one connection: written at once if the socket takes them, else queued within limits.

``put`` and ``flush`` never block and never raise; the task in ``run`` writes what a flush could not.
``send_now`` may be called in another thread than the loop's.
Knows streams and file descriptors; nothing of messages, peers or reconnecting.
"""

from __future__ import annotations

import os
import threading
from typing import Final

import trio
from trio.abc import Stream

from raft.wakeup import Bell

_IOV_MAX: Final = 1_024
_SEND_BYTES: Final = 256 << 10
"""Bytes written at a time to streams that are no plain sockets."""


class Outbox:
    """The sending half of one lane, over one connection after another."""

    __slots__ = (
        "_bell", "_buffers_max", "_busy", "_bytes_max", "_error", "_lock", "_queue", "_rest", "_socket", "_stream",
        "accepting", "dirty", "overflowed", "queued_bytes",
    )

    def __init__(self, bytes_max: int, buffers_max: int) -> None:
        self._bytes_max, self._buffers_max = bytes_max, buffers_max
        self.accepting = False
        """True while ``put`` keeps bytes: while a connection stands or is being made."""
        self.dirty = False
        """True while the owner has noted this outbox for its next flush."""
        self.overflowed = False
        """True if something was dropped for lack of room since the queue was last empty."""
        self.queued_bytes = 0
        self._queue: list[bytes | memoryview] = []
        self._stream: Stream | None = None
        self._socket: trio.socket.SocketType | None = None
        self._busy = False
        """True while the task in ``run`` writes: a flush would find the connection full."""
        self._error: OSError | None = None
        self._bell = Bell()
        self._lock = threading.Lock()
        """Held while something is written, and while the descriptor changes."""
        self._rest = b""
        """Rest of a message that the socket took in part: it goes first."""

    def put(self, buffers: list[bytes], size: int) -> bool:
        """Queue buffers of ``size`` bytes in all for the next flush. Return False if there is no room for them."""
        if self.queued_bytes + size > self._bytes_max or len(self._queue) + len(buffers) > self._buffers_max:
            self.overflowed = True
            return False
        self._queue += buffers
        self.queued_bytes += size
        return True

    def flush(self) -> bool:
        """Write what is queued, as far as the connection takes it now. Return False if some is left, for ``run``."""
        self.dirty = False
        if self._busy:
            return False
        if self._stream is None or not (self._queue or self._rest):
            return True
        if self._socket is not None:
            try:
                if self._write(self._socket) and not self.overflowed:
                    return True
            except OSError as error:
                self._error = error
        self._busy = True
        self._bell.ring()
        return False

    def send_now(self, data: bytes) -> bool:
        """Write this now, from any thread, if nothing is queued before it. Return False if the loop must send it.

        Never blocks, never raises. The loop notices a broken connection by itself.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._socket is None or self._busy or self._queue or self._rest:
                return False
            sent = os.write(self._socket.fileno(), data)
        except OSError:
            return False
        else:
            self._rest = data[sent:]
            return not self._rest
        finally:
            self._lock.release()

    def attach(self, stream: Stream) -> None:
        """Use this connection from now on. Bytes that were queued while it was made go first."""
        self._bell = Bell()
        self._stream = stream
        with self._lock:
            self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None
        self._busy, self._error, self.accepting = False, None, True
        self.flush()

    def detach(self) -> None:
        """Drop the connection and everything queued. Must be called before its descriptor is closed."""
        with self._lock:
            self._stream = self._socket = None
            self._rest = b""
        self._queue.clear()
        self.queued_bytes = 0
        self.accepting = self.overflowed = False

    async def run(self) -> None:
        """Write, as a task, what flushes left over. Returns when drained after an overflow; raises a stream's error."""
        while True:
            await self._bell.wait()
            if self._error is not None:
                raise self._error
            stream = self._stream
            assert stream is not None
            if self._socket is not None:
                while not self._write(self._socket):
                    await trio.lowlevel.wait_writable(self._socket)
            else:
                while self._queue:
                    await stream.send_all(self._take(_SEND_BYTES))
            self._busy = False
            if self.overflowed:
                self.overflowed = False
                return

    def _write(self, sock: trio.socket.SocketType) -> bool:
        with self._lock:
            if self._rest:
                self._queue.insert(0, self._rest)
                self.queued_bytes += len(self._rest)
                self._rest = b""
            return self._write_queue(sock.fileno())

    def _write_queue(self, fd: int) -> bool:
        """Write the queue to the socket, and return whether all of it went in."""
        queue = self._queue
        while queue:
            batch = queue if len(queue) <= _IOV_MAX else queue[:_IOV_MAX]
            try:
                sent = os.writev(fd, batch)
            except BlockingIOError:
                return False
            if sent == self.queued_bytes:
                queue.clear()
                self.queued_bytes = 0
                return True
            self._drop(sent)
            if batch is queue:
                return False
        return True

    def _drop(self, sent: int) -> None:
        queue = self._queue
        self.queued_bytes -= sent
        for count, buffer in enumerate(queue):
            if sent < len(buffer):
                queue[count] = memoryview(buffer)[sent:]
                del queue[:count]
                return
            sent -= len(buffer)
        queue.clear()

    def _take(self, size: int) -> bytes:
        """Take up to ``size`` bytes, but at least one buffer, off the queue's front as one piece."""
        count = taken = 0
        for buffer in self._queue:
            if count and taken + len(buffer) > size:
                break
            count += 1
            taken += len(buffer)
        data = b"".join(self._queue[:count])
        del self._queue[:count]
        self.queued_bytes -= taken
        return data
