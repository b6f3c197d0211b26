"""A slave's connection to its master, for either protocol: connects, reads, and carries out what the core says.

What a master sent is appended as it was read, but for the part of a last record, which waits for the rest of it; and
acknowledged once for each read, not once for each frame.
Sources: ``DefaultHAClient`` and ``AutoSwitchHAClient`` of RocketMQ.
It knows streams and the journal, and nothing of what a frame means.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import trio
from trio.abc import Stream

from broker.ha.config import HaConfig
from broker.ha.epochfile import EpochFile
from broker.ha.slave import (
    AppendLog,
    Connect,
    Disconnect,
    LogTrusted,
    Output,
    Send,
    SetConfirm,
    TruncateLog,
    WriteEpochs,
)
from broker.ha.whole import WholeRecords
from broker.ha.wire import HaFrameError
from broker.journal import Journal
from broker.store.errors import StoreError
from remoting.bodies.broker import HAClientRuntimeInfo
from remoting.errors import DamagedRecord
from remoting.record import Outline
from remoting.streams import STREAM_ERRORS, Connector, tune, words
from remoting.wakeup import Bell

logger = logging.getLogger("broker")

_READ_BYTES: Final = 512 << 10
"""Of twice as much, outlines of small messages would leave the processor's cache before queues are told of them."""
_UNSENT_BYTES_MAX: Final = 64 << 10
"""Some thousand acknowledgements that the master did not read."""

MessageT_co = TypeVar("MessageT_co", covariant=True)
MessageT_contra = TypeVar("MessageT_contra", contravariant=True)
MessageT = TypeVar("MessageT")


class Decoder(Protocol[MessageT_co]):
    """Of one connection. Raises ``HaFrameError``."""

    def feed(self, data: bytes | memoryview) -> Iterable[MessageT_co]:
        """What views of ``data`` are in it is done with when the next one is asked for."""
        ...


class SlaveCore(Protocol[MessageT_contra]):
    """The slave's core of one protocol, through any number of connections."""

    @property
    def copies(self) -> bool:
        """It is far behind, and in no hurry to be read from."""
        ...

    def follow(self, address: str | None, now_ns: int) -> Sequence[Output]: ...

    def connected(self, now_ns: int) -> Sequence[Output]: ...

    def received(self, message: MessageT_contra, now_ns: int) -> Sequence[Output]: ...

    def truncated(self, log_end: int | None, now_ns: int) -> Sequence[Output]: ...

    def stored(self, log_end: int, now_ns: int) -> Sequence[Output]: ...

    def not_stored(self, log_end: int) -> None: ...

    def closed(self, now_ns: int) -> None: ...

    def tick(self, now_ns: int) -> Sequence[Output]: ...


class Following(Generic[MessageT]):
    """``run`` until it is cancelled; ``follow`` at any time."""

    def __init__(self, journal: Journal, core: SlaveCore[MessageT], decoder: Callable[[], Decoder[MessageT]],
                 config: HaConfig, connector: Connector, epoch_file: EpochFile | None = None) -> None:
        self.address: str | None = None
        self.connected = False
        self.read_ms = self.written_ms = 0
        """Of the wall clock, for people."""
        self.rate = 0
        """Bytes in the last second or so."""
        self._read_bytes, self._counted = 0, (0, 0)
        self._journal, self._core, self._decoder, self._config = journal, core, decoder, config
        self._connector, self._epoch_file = connector, epoch_file
        self._whole = WholeRecords(journal.store.log.file_bytes)
        self._bell = Bell()
        self._to_connect: str | None = None
        self._said = "", ""
        self._scope: trio.CancelScope | None = None
        self._left = ""
        """Why the core, or the caller, has ended this connection."""
        self._fd = -1
        self._out = bytearray()
        self._unsent = Bell()
        self._draining = self._hearing = False

    def follow(self, address: str | None) -> None:
        """Where the master's HA port is; None while nobody knows. Another's connection ends in this turn."""
        if address == self.address:
            return
        self.address, self._to_connect = address, None
        self._do(self._core.follow(address, self._journal.now_ns()))
        self._leave("the master's HA address changed")

    async def run(self) -> None:
        """Connect, again and again."""
        journal = self._journal
        journal.grown.append(self._grown)
        journal.ticks.append(self._tick)
        try:
            self._tick(journal.now_ns())
            while True:
                address, self._to_connect = self._to_connect, None
                if address is None:
                    await self._bell.wait()
                else:
                    self._ended(address, await self._connection(address))
        finally:
            journal.grown.remove(self._grown)
            journal.ticks.remove(self._tick)

    def runtime_info(self) -> HAClientRuntimeInfo:
        """A slave's part of the answer to 907."""
        return HAClientRuntimeInfo(self.address, self.rate, self._journal.end, self.read_ms, self.written_ms)

    def _ended(self, address: str, reason: str) -> None:
        """The same again and again is worth one line."""
        level = logging.DEBUG if self._said == (address, reason) else logging.WARNING
        self._said = address, reason
        logger.log(level, "connection to the master's HA port at %s ended: %s", address, reason)

    # --- one connection --------------------------------------------------------------------------------------

    async def _connection(self, address: str) -> str:
        """From connecting to the end; why it ended. Raises nothing that the master could cause."""
        self._left = reason = ""
        with trio.CancelScope() as self._scope:
            reason = await self._connect(address)
        self._scope = None
        if not self._left:
            self._core.closed(self._journal.now_ns())
        return self._left or reason

    async def _connect(self, address: str) -> str:
        try:
            with trio.fail_after(self._config.connect_timeout_ms / 1e3):
                stream = await self._connector(address)
        except (OSError, trio.TooSlowError) as error:
            return f"cannot connect: {words(error)}"
        tune(stream, self._config.housekeeping_interval_ms)
        self._fd = stream.socket.fileno() if isinstance(stream, trio.SocketStream) else -1
        self._draining, reason = False, "closed by the other end"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain, stream)
                self.connected = True
                self._whole = WholeRecords(self._journal.store.log.file_bytes)
                self._core.not_stored(self._journal.end)  # a part of a record went with the connection before
                self._do(self._core.connected(self._journal.now_ns()))
                await self._read(stream)
                nursery.cancel_scope.cancel()
        except* STREAM_ERRORS as errors:
            reason = words(errors.exceptions[0])
        except* (HaFrameError, StoreError, DamagedRecord) as errors:
            reason = str(errors.exceptions[0])
        finally:
            self.connected, self._fd, self._journal.copying = False, -1, False
            self._out.clear()
            await trio.aclose_forcefully(stream)
        return reason

    async def _read(self, stream: Stream) -> None:
        decoder = self._decoder()
        if isinstance(stream, trio.SocketStream):
            buffer = bytearray(_READ_BYTES)  # one for all: the log has taken what was read when it is read into again
            view = memoryview(buffer)
            while True:
                await trio.lowlevel.wait_readable(stream.socket)
                try:
                    size = os.readv(self._fd, [buffer])
                except BlockingIOError:
                    continue
                if not size or not self._hear(decoder, view[:size]):
                    return
        while data := bytes(await stream.receive_some(_READ_BYTES)):
            if not self._hear(decoder, data):
                return

    def _hear(self, decoder: Decoder[MessageT], data: bytes | memoryview) -> bool:
        """False: the connection is over."""
        journal = self._journal
        self.read_ms = time.time_ns() // 1_000_000
        self._read_bytes += len(data)
        now_ns = journal.now_ns()
        end = journal.end
        self._hearing = True
        try:
            for message in decoder.feed(data):
                self._do(self._core.received(message, now_ns))
                if self._left:
                    return False
        finally:
            self._hearing = False
        self._said = "", ""
        journal.copying = self._core.copies
        if journal.end != end:
            self._do(self._core.stored(journal.durable_end, now_ns))
        return True

    # --- what the core says ----------------------------------------------------------------------------------

    def _do(self, outputs: Iterable[Output]) -> None:
        """Raises ``StoreError``, ``OSError``, which end the connection; and neither but for what a master sent."""
        journal = self._journal
        for output in outputs:
            match output:
                case Send(data):
                    self._send(data)
                case AppendLog(offset, body):
                    try:
                        self._append(body, offset)
                    except StoreError:
                        self._core.not_stored(journal.end)
                        raise
                case SetConfirm(confirm):
                    journal.confirm(confirm)
                case WriteEpochs(epochs):
                    assert self._epoch_file is not None
                    try:
                        self._epoch_file.write(epochs)
                    except OSError:
                        self._core.not_stored(journal.end)
                        raise
                case LogTrusted():
                    journal.store.trust()
                case TruncateLog():
                    self._do(self._core.truncated(self._truncate(output), journal.now_ns()))
                case Connect(address):
                    self._to_connect = address
                    self._bell.ring()
                case Disconnect(reason):
                    self._leave(reason)

    def _append(self, body: bytes | memoryview, offset: int) -> None:
        begin, run = offset - self._whole.bytes_held, list[Outline]()
        whole = self._whole.take(body, offset, run if self._journal.copying else None)
        if whole:
            self._journal.append_raw(whole, begin, run)

    def _truncate(self, cut: TruncateLog) -> int | None:
        journal = self._journal
        words = "what was confirmed among it" if cut.below_confirm else "which nobody was promised"
        logger.warning("the log ends at %d and is cut at %d, as its master's: %s", journal.end, cut.point, words)
        try:
            journal.truncate(cut.point, everything=cut.everything)
        except (StoreError, DamagedRecord, OSError) as error:
            logger.error("the log cannot be cut at %d: %s", cut.point, error)
            return None
        return journal.end

    def _leave(self, reason: str) -> None:
        self._left = self._left or reason
        if self._scope is not None:
            self._scope.cancel()

    def _grown(self) -> None:
        if not self._hearing:
            self._do(self._core.stored(self._journal.durable_end, self._journal.now_ns()))

    def _tick(self, now_ns: int) -> None:
        self._do(self._core.tick(now_ns))
        self._journal.copying = self.connected and self._core.copies
        since_ns, before = self._counted
        if now_ns - since_ns >= 1_000_000_000:
            self.rate = (self._read_bytes - before) * 1_000_000_000 // (now_ns - since_ns)
            self._counted = now_ns, self._read_bytes

    # --- writing ---------------------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        """At once, if the socket takes it."""
        if not self.connected:
            return  # it closes, and the core has yet to hear of that: the next one begins with a handshake
        self.written_ms = time.time_ns() // 1_000_000
        if self._fd >= 0 and not self._draining:
            try:
                data = data[os.write(self._fd, data):]
            except BlockingIOError:
                pass
            except OSError as error:
                self._leave(words(error))
                self._core.closed(self._journal.now_ns())
                return
        if data:
            self._out += data
            self._draining = True
            if len(self._out) > _UNSENT_BYTES_MAX and self._scope is not None:
                self._scope.cancel()  # it reads nothing: to be connected anew
            self._unsent.ring()

    async def _drain(self, stream: Stream) -> None:
        while True:
            await self._unsent.wait()
            while self._out:
                data = bytes(self._out)
                self._out.clear()
                await stream.send_all(data)
            self._draining = False
