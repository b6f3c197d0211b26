"""One connection: frames both ways, requests matched with their answers, queued bytes written together.

The same class serves both ends, because either may send requests. Everything but ``call`` is synchronous and never
blocks. Knows streams and frames; what a request means is the endpoint's business.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import trio
from trio.abc import Stream
from trio.lowlevel import (
    Abort,
    RaiseCancelT,
    Task,
    current_task,
    reschedule,
    wait_readable,
    wait_task_rescheduled,
    wait_writable,
)

from remoting.codes import ResponseCode
from remoting.command import ONEWAY, RESPONSE, Command, response
from remoting.errors import ConnectionClosed, FrameError, NotEncodable, RemotingError, RequestTimeout
from remoting.frame import FrameLimits, FrameReader, encode
from remoting.streams import STREAM_ERRORS, close_now, words
from remoting.wakeup import WOKEN, Bell

if TYPE_CHECKING:
    from remoting.endpoint import Endpoint

logger = logging.getLogger("remoting")

OnResult = Callable[[Command | RemotingError], None]

_READ_BYTES: Final = 128 << 10
"""Some hundreds of requests: read and handled in one turn, short enough for whatever shares the loop."""
_WRITE_BYTES: Final = 256 << 10
"""So many queued bytes are written without waiting for more; a stream without a socket gets pieces of this size."""
_SMALL_BYTES: Final = 4 << 10
"""No connection is closed for an unfinished frame of this size, however much others have sent."""
_COPY_BYTES: Final = 256 << 10
"""A smaller rest may keep the memory of the whole write alive."""
_OPAQUE_MAX: Final = 2**31 - 1


class _Call:
    """A request of ours without an answer yet, and the task or the function that wants it (a ``deadlines.Timed``)."""

    __slots__ = ("_code", "_connection", "_opaque", "_timeout_ms", "_wanted_by", "result")

    def __init__(
        self, connection: Connection, opaque: int, code: int, timeout_ms: float, wanted_by: Task | OnResult
    ) -> None:
        self._connection, self._opaque, self._code, self._timeout_ms = connection, opaque, code, timeout_ms
        self._wanted_by: Task | OnResult | None = wanted_by
        self.result: Command | RemotingError | None = None

    @property
    def waiting(self) -> bool:
        return self._connection.calls.get(self._opaque) is self

    def expire(self, _: float) -> None:
        connection = self._connection
        del connection.calls[self._opaque]
        connection.endpoint.counters.timeouts += 1
        self.tell(RequestTimeout(connection.peer, self._code, self._timeout_ms))
        connection.close_if_retired()

    def tell(self, result: Command | RemotingError) -> None:
        # The queue of deadlines still holds this call: drop the answer from it.
        wanted_by, self._wanted_by = self._wanted_by, None
        if isinstance(wanted_by, Task):
            self.result = result
            reschedule(wanted_by, WOKEN)
            return
        assert wanted_by is not None, "told once"
        try:
            wanted_by(result)
        except Exception:  # a caller's defect must not end the connection
            logger.exception("the answer of %s to request %d", self._connection.peer, self._code)

    def abandon(self, _: RaiseCancelT) -> Abort:
        """The task that waits was cancelled: drop the call."""
        self._connection.calls.pop(self._opaque, None)
        self._connection.close_if_retired()
        return Abort.SUCCEEDED


class Connection:
    """Made by servers and clients; ``run`` is theirs to call, and ``endpoint``'s attributes are not for handlers."""

    __slots__ = (
        "_commands", "_draining", "_due", "_fd", "_opaque", "_out", "_out_bytes", "_outgoing_bytes_max", "_owed",
        "_parked", "_reader", "_reason", "_retired", "_room", "_scope", "_socket", "_stream", "_unfinished",
        "active_at", "calls", "came_at", "closed", "endpoint", "identity", "local", "number", "peer", "replied_to",
        "waited_s", "working",
    )

    def __init__(self, endpoint: Endpoint, stream: Stream, peer: str, local: str, number: int = 0) -> None:
        self.endpoint = endpoint
        self.number = number
        """Number in the order in which the server accepted its connections."""
        self.peer, self.local = peer, local
        """``host:port`` of the other end and of this end."""
        self.identity: object | None = None
        """Identity of the other end; handlers set and read it."""
        self.closed = False
        self.active_at = endpoint.now()
        """Time when something was last read or written."""
        self.came_at = self.active_at
        """Latest time when the bytes being handled arrived."""
        self.waited_s = 0.0
        """Least time that they waited since."""
        self.calls: dict[int, _Call] = {}
        self.working = 0
        """Requests of the other end in tasks of their own."""
        self.replied_to: int | None = None
        """Opaque of the latest reply."""
        self._stream = stream
        self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None
        self._fd = self._socket.fileno() if self._socket is not None else -1
        self._commands: Iterator[Command] = iter(())
        """Commands that were read and not handled yet."""
        self._reader = FrameReader(FrameLimits(frame_bytes_max=endpoint.limits.frame_bytes_max))
        self._unfinished = 0
        self._scope = trio.CancelScope()
        self._reason = ""
        self._opaque = 0
        self._owed: dict[int, float] = {}
        """Requests of the other end that a handler will reply to: opaque, and when it was read."""
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._outgoing_bytes_max = endpoint.limits.outgoing_bytes_max
        self._due = False
        """Somebody will flush."""
        self._draining = False
        """A task writes what a flush left over."""
        self._parked: Bell | None = None
        """Rings to wake the task while a shared reader reads for it."""
        self._room: Bell | None = None
        """Rings when there is room again for answers."""
        self._retired = False

    # --- sending ---------------------------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Queue it as it is. What is queued in one turn of the loop is written together.

        Raises ``NotEncodable``, and ``ConnectionClosed``, also when this command is one too many for the queue.
        """
        self._put(encode(command))
        if not self._due:
            self._due = True
            self.endpoint.write_soon(self)

    def _put(self, data: bytes) -> None:
        if self.closed:
            raise ConnectionClosed(self.peer, self._reason)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._draining:
            self.endpoint.fell_behind(len(data))
        elif self._out_bytes > _WRITE_BYTES:
            self._write_queued()
            if self.closed:
                raise ConnectionClosed(self.peer, self._reason)
        if self._out_bytes > self._outgoing_bytes_max:
            self.endpoint.counters.slow_readers += 1
            self.close(f"it reads too slowly: {self._out_bytes} bytes wait to be sent")
            raise ConnectionClosed(self.peer, self._reason)

    def reply(self, to: Command, answer: Command, started: float | None = None) -> None:
        """Answer a request, now or later. Does nothing for oneway requests and on a closed connection.

        ``answer`` gets the opaque and the encoding of ``to``. ``started``: when the request was read, if known.
        """
        opaque = to.opaque
        self.replied_to = opaque
        if opaque in self._owed:
            started = self._owed.pop(opaque)
            self.endpoint.in_flight -= 1
        if to.flag & ONEWAY or self.closed:
            return
        answer.opaque, answer.flag, answer.encoding = opaque, answer.flag & ~ONEWAY | RESPONSE, to.encoding
        try:
            try:
                self.send(answer)
            except NotEncodable as error:
                logger.error("answer %d to request %d of %s: %s", answer.code, to.code, self.peer, error)
                self.endpoint.counters.failed += 1
                answer = response(to, ResponseCode.SYSTEM_ERROR, remark=str(error))
                self.send(answer)
        except ConnectionClosed:
            return
        if self.endpoint.on_answer is not None:
            since = self.active_at if started is None else started
            self.endpoint.on_answer(to.code, answer.code, self.endpoint.now() - since)

    def owe(self, request: Command) -> None:
        """Remember that a handler will reply to ``request`` later."""
        if self.closed or request.opaque in self._owed:
            return
        self._owed[request.opaque] = self.active_at
        self.endpoint.in_flight += 1

    # --- calling ---------------------------------------------------------------------------------------------

    async def call(self, command: Command, timeout_ms: float | None = None) -> Command:
        """The answer, whatever its code. ``command`` gets a new opaque.

        Raises ``NotEncodable``, ``RequestTimeout``, ``ConnectionClosed``. A cancelled caller leaves its request behind.
        """
        call = self._start_call(command, current_task(), timeout_ms)
        await wait_task_rescheduled(call.abandon)
        result, call.result = call.result, None
        if isinstance(result, Command):
            return result
        assert result is not None, "woken with a result"
        raise result

    def call_nowait(self, command: Command, on_result: OnResult, timeout_ms: float | None = None) -> None:
        """As ``call``, without a task: ``on_result`` gets the answer, or the error, later.

        Raises ``NotEncodable`` and, when it is closed already, ``ConnectionClosed``; then ``on_result`` is not called.
        """
        self._start_call(command, on_result, timeout_ms)

    def _start_call(self, command: Command, wanted_by: Task | OnResult, timeout_ms: float | None) -> _Call:
        endpoint = self.endpoint
        if timeout_ms is None:
            timeout_ms = endpoint.limits.call_timeout_ms
        self._opaque = opaque = self._opaque % _OPAQUE_MAX + 1
        command.opaque = opaque
        if self.calls or self._due:
            self.send(command)
        else:  # no other call to share the write with: do not wait a turn
            self._put(encode(command))
            self.flush()
            if self.closed:
                raise ConnectionClosed(self.peer, self._reason)
        self.calls[opaque] = call = _Call(self, opaque, command.code, timeout_ms, wanted_by)
        endpoint.deadlines.set(endpoint.now() + timeout_ms / 1e3, call)
        return call

    def retire(self) -> None:
        """Close when the calls under way have their answers."""
        self._retired = True
        self.close_if_retired()

    def close_if_retired(self) -> None:
        if self._retired and not self.calls:
            self.close("the other end is going away")

    # --- life ------------------------------------------------------------------------------------------------

    @property
    def stream(self) -> Stream:
        """To look at: whose socket and certificate it is. Nobody else reads it or writes to it."""
        return self._stream

    @property
    def busy(self) -> bool:
        """Requests or calls wait for answers, or answers wait to be written."""
        return bool(self._owed or self.working or self._out_bytes or self.calls)

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait to be written; 0 once it is closed.

        A sender that does not await answers should look at it.
        """
        return self._out_bytes

    @property
    def congested(self) -> bool:
        """No large answer now: those before it were not taken, or too much waits for others, for a moment."""
        backlog = self.endpoint.backlog
        return self._out_bytes > backlog.pause or backlog.full

    @property
    def waiting(self) -> bool:
        """Its deadline for being idle still matters (``deadlines.Timed``)."""
        return not self.closed

    def expire(self, now: float) -> None:
        idle_ms = self.endpoint.limits.idle_timeout_ms
        idle_at = self.active_at + idle_ms / 1e3
        if now < idle_at:
            self.endpoint.deadlines.set(idle_at, self)
        else:
            self.endpoint.counters.idle += 1
            self.close(f"idle for {idle_ms} ms")

    def close(self, reason: str) -> None:
        """End it, in this turn: what is queued is written as far as the socket takes it, calls fail with ``reason``."""
        if self.closed:
            return
        self.closed, self._reason = True, reason
        if self._out and self._fd >= 0 and not self._draining:
            with contextlib.suppress(OSError):  # the other end is gone or does not read: give up
                self.endpoint.counters.bytes_sent += os.write(self._fd, b"".join(self._out))
        self._out.clear()
        self.endpoint.backlog.ends(self, self._out_bytes)
        self._out_bytes = 0  # waiters for room must see that nothing is queued
        self._commands, self._reader = iter(()), FrameReader()  # the deadline may hold this: free the bytes
        self.endpoint.in_flight -= len(self._owed)
        self._owed.clear()
        self.endpoint.unfinished_bytes -= self._unfinished
        self._unfinished = 0
        if self._parked is not None:
            self._parked.ring()  # cheaper than a cancellation when thousands close at once
        else:
            self._scope.cancel()
        while self.calls:  # one by one: a caller may cancel another, which then removes its own call
            self.calls.popitem()[1].tell(ConnectionClosed(self.peer, reason))
        self.endpoint.closed(self, reason)

    async def run(self, received: bytes = b"") -> None:
        """Read until the connection ends, beginning with what was ``received`` before; then close the stream."""
        try:
            with self._scope:
                if not self.closed:  # it may close before its task begins
                    self.endpoint.opened(self)
                if received and not self.closed and not self._receive(received):
                    await self._catch_up()
                if self._socket is not None:
                    await self._read_socket(self._socket)
                else:
                    await self._read_stream()
                self.close("closed by the other end")
        except STREAM_ERRORS as error:
            self.close(words(error))
        except Exception as error:  # noqa: BLE001  # our defect must cost only this connection
            self._defect(error)
        finally:
            self.close("this end is shutting down")
            self._fd = -1
            await close_now(self._stream)

    def _defect(self, error: Exception) -> None:
        logger.error("connection with %s", self.peer, exc_info=error)
        self.close(f"{type(error).__name__}: {error}")

    # --- reading ---------------------------------------------------------------------------------------------

    async def _read_socket(self, sock: trio.socket.SocketType) -> None:
        """Have it read, together with others; here alone where the system has no way for that."""
        readiness, fd, bell = self.endpoint.readiness, self._fd, Bell()

        def read() -> None:
            if not self._read():
                assert readiness is not None
                readiness.remove(fd)
                bell.ring()

        while not self.closed:
            if readiness is None:
                await wait_readable(sock)
                if self._read():
                    continue
            else:
                readiness.add(fd, read)
                self._parked = bell
                try:
                    await bell.wait()
                finally:
                    self._parked = None
                    readiness.remove(fd)
            await self._catch_up()

    def _read(self) -> bool:
        """Read what there is, and handle it. False: not all yet, too many answers are queued."""
        try:
            if self.closed:
                return True
            data = os.read(self._fd, _READ_BYTES)
            if data:
                readiness = self.endpoint.readiness
                if readiness is None or self._socket is None:
                    return self._receive(data)
                return self._receive(data, readiness.came_at(self._socket))
            self.close("closed by the other end")
        except BlockingIOError:
            pass
        except OSError as error:
            self.close(words(error))
        except Exception as error:  # noqa: BLE001  # as in ``run``
            self._defect(error)
        return True

    async def _read_stream(self) -> None:
        while data := await self._stream.receive_some(_READ_BYTES):
            if not self._receive(bytes(data)):
                await self._catch_up()

    def _receive(self, data: bytes, came_at: float | None = None) -> bool:
        """Handle the commands in ``data``. False: not all yet, too many answers are queued."""
        self.active_at = now = self.endpoint.now()
        self.came_at = now if came_at is None else came_at
        self.waited_s = now - self.came_at
        self.endpoint.counters.bytes_received += len(data)
        try:
            self._commands = self._reader.feed(data)
        except FrameError as error:
            self._misunderstood(error)
            return True
        return self._handle()

    def _handle(self) -> bool:
        endpoint = self.endpoint
        backlog = endpoint.backlog
        if backlog.full:  # wait until connections that do not read are closed
            return False
        pause, all_of_them = backlog.pause, True
        mine, self._due = not self._due, True
        try:
            for command in self._commands:
                if command.flag & RESPONSE:
                    self._answered(command)
                else:
                    endpoint.dispatch(self, command)
                    if (self._out_bytes > pause or backlog.short) and self.congested:
                        all_of_them = False
                        break
                if self.closed:
                    return True
        except FrameError as error:
            self._misunderstood(error)
            return True
        if mine:
            self.flush()
        unfinished = self._reader.unfinished_bytes
        if unfinished != self._unfinished and not self.closed:
            endpoint.unfinished_bytes += unfinished - self._unfinished
            self._unfinished = unfinished
            bytes_max = endpoint.limits.receive_bytes_max
            if endpoint.unfinished_bytes > bytes_max and unfinished > max(
                    _SMALL_BYTES, bytes_max // len(endpoint.connections)):  # an equal share is always allowed
                endpoint.counters.crowded_out += 1
                self.close(f"{unfinished} of {endpoint.unfinished_bytes} bytes of unfinished frames over all "
                           "connections")
        return all_of_them

    async def _catch_up(self) -> None:
        """Wait while the other end reads fewer answers than it sends requests."""
        while True:
            while self.endpoint.backlog.full:
                await self.endpoint.relieved.park()
            if self.closed:
                return
            self._room = Bell()
            while self._out_bytes > self.endpoint.backlog.pause:
                await self._room.wait()
            self._room = None
            self.waited_s = self.endpoint.now() - self.came_at
            if self._handle():
                return

    def _misunderstood(self, error: FrameError) -> None:
        self.endpoint.counters.bad_frames += 1
        logger.warning("connection with %s closed: %s", self.peer, error)
        self.close(str(error))

    def _answered(self, answer: Command) -> None:
        call = self.calls.pop(answer.opaque, None)
        if call is None:
            self.endpoint.counters.late_answers += 1
            return
        call.tell(answer)
        if self._retired:
            self.close_if_retired()

    # --- writing ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what is queued, as far as the connection takes it now; a task does the rest."""
        self._due = False
        if self._out and not self._draining:
            self._write_queued()

    def _write_queued(self) -> None:
        data = self._take()
        sent = 0
        if self._fd >= 0:
            try:
                sent = os.write(self._fd, data)
            except BlockingIOError:
                pass
            except OSError as error:
                self.close(words(error))
                return
            self._sent(sent)
        if sent < len(data):
            self._draining = True
            self.endpoint.backlog.begins(self, self.endpoint.now())
            self.endpoint.fell_behind(self._out_bytes)
            self.endpoint.start_soon(self._drain, memoryview(data)[sent:], name=f"writing to {self.peer}")

    def _take(self) -> bytes:
        out = self._out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def _sent(self, size: int) -> None:
        self._out_bytes -= size
        self.endpoint.counters.bytes_sent += size
        self.active_at = now = self.endpoint.now()
        if self._draining:
            self.endpoint.backlog.took(self, size, now)
        if self._room is not None:
            self._room.ring()

    async def _drain(self, rest: memoryview) -> None:
        try:
            while rest:
                if self._socket is None:
                    sent = min(len(rest), _WRITE_BYTES)
                    await self._stream.send_all(rest[:sent])
                    if self.closed:
                        return
                else:
                    await wait_writable(self._socket)
                    if self.closed:
                        return
                    try:
                        sent = os.write(self._fd, rest)
                    except BlockingIOError:
                        continue
                self._sent(sent)
                rest = rest[sent:]
                if not rest and self._out:
                    rest = memoryview(self._take())
                elif _COPY_BYTES < rest.nbytes < memoryview(rest.obj).nbytes // 2:
                    rest = memoryview(bytes(rest))  # free the memory of the part that was sent
        except STREAM_ERRORS as error:
            self.close(words(error))
        finally:
            self._draining = False
            self.endpoint.backlog.ends(self, self._out_bytes)
