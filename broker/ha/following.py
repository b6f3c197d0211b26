"""The streams of a slave's connection to its master: connects, reads, and writes what ``broker.ha.copying`` has to say.

It knows streams, and nothing of what a frame means.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Final

import trio
from trio.abc import Stream

from broker.ha.config import HaConfig
from broker.ha.copying import FAULTS, Copying, CopyingCore, Decoder, MessageT
from broker.ha.epochfile import EpochFile
from broker.journal import Journal
from remoting.bodies.broker import HAClientRuntimeInfo
from remoting.streams import STREAM_ERRORS, Connector, tune, words
from remoting.wakeup import Bell

logger = logging.getLogger("broker")

_READ_BYTES: Final = 1 << 20
_UNSENT_BYTES_MAX: Final = 64 << 10
"""Limit for acknowledgements that the master did not read, some thousand of them."""


class Following(Copying[MessageT]):
    """A slave's connection with its stream: ``run`` it until it is cancelled; ``follow`` at any time."""

    def __init__(self, journal: Journal, core: CopyingCore[MessageT], decoder: Callable[[], Decoder[MessageT]],
                 config: HaConfig, connector: Connector, epoch_file: EpochFile | None = None,
                 trusted: Callable[[], None] = lambda: None) -> None:
        super().__init__(journal, core, decoder, epoch_file, trusted)
        self.read_ms = self.written_ms = 0
        """Times of the last read and write by the wall clock, for people."""
        self.rate = 0
        """Bytes in the last second or so."""
        self._read_bytes, self._counted = 0, (0, 0)
        self._config, self._connector = config, connector
        self._bell = Bell()
        self._said = "", ""
        self._scope: trio.CancelScope | None = None
        self._fd = -1
        self._out = bytearray()
        self._unsent = Bell()
        self._draining = False

    async def run(self) -> None:
        """Connect and copy until cancelled; each connection that ends is followed by another."""
        try:
            self.begin()
            while True:
                address = self._address_to_connect()
                if address is None:
                    await self._bell.wait()
                else:
                    self._ended(address, await self._connection(address))
        finally:
            self.end()

    def runtime_info(self) -> HAClientRuntimeInfo:
        """A slave's part of the answer to 907."""
        return HAClientRuntimeInfo(self.address, self.rate, self._journal.end, self.read_ms, self.written_ms)

    def _ended(self, address: str, reason: str) -> None:
        """Log why a connection ended: one line, if the same reason comes again and again."""
        level = logging.DEBUG if self._said == (address, reason) else (
            logging.INFO if self._left_as_usual else logging.WARNING)
        self._said = address, reason
        logger.log(level, "connection to the master's HA port at %s ended: %s", address, reason)

    # --- one connection --------------------------------------------------------------------------------------

    async def _connection(self, address: str) -> str:
        """Connect, and serve the connection to its end; returns why it ended. Raises nothing that a master causes."""
        self._connects()
        reason = ""
        with trio.CancelScope() as self._scope:
            reason = await self._connect(address)
        self._scope = None
        self._closed()
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
                self._opened()
                await self._read(stream)
                nursery.cancel_scope.cancel()
        except* STREAM_ERRORS as errors:
            reason = words(errors.exceptions[0])
        except* FAULTS as errors:
            reason = str(errors.exceptions[0])
        finally:
            self._disconnected()
            self._fd = -1
            self._out.clear()
            await trio.aclose_forcefully(stream)
        return reason

    async def _read(self, stream: Stream) -> None:
        if isinstance(stream, trio.SocketStream):
            buffer = bytearray(_READ_BYTES)  # one for all reads: the log has taken the bytes before the next read
            view = memoryview(buffer)
            while True:
                await trio.lowlevel.wait_readable(stream.socket)
                try:
                    size = os.readv(self._fd, [buffer])
                except BlockingIOError:
                    continue
                if not size or not self._hear(view[:size]):
                    return
        while data := bytes(await stream.receive_some(_READ_BYTES)):
            if not self._hear(data):
                return

    def _hear(self, data: bytes | memoryview) -> bool:
        self.read_ms = time.time_ns() // 1_000_000
        self._read_bytes += len(data)
        self._journal.begin_turn()
        try:
            goes_on = super()._hear(data)
        finally:
            self._journal.end_turn()
        if goes_on:
            self._said = "", ""
        return goes_on

    def _wake(self) -> None:
        self._bell.ring()

    def _hang_up(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def _tick(self, now_ns: int) -> None:
        super()._tick(now_ns)
        since_ns, before = self._counted
        if now_ns - since_ns >= 1_000_000_000:
            self.rate = (self._read_bytes - before) * 1_000_000_000 // (now_ns - since_ns)
            self._counted = now_ns, self._read_bytes

    # --- writing ---------------------------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        """Send at once what the socket takes."""
        if not self.connected:
            return  # it closes, and the core does not know yet; the next connection begins with a handshake
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
                self._scope.cancel()  # the master reads nothing: connect anew
            self._unsent.ring()

    async def _drain(self, stream: Stream) -> None:
        while True:
            await self._unsent.wait()
            while self._out:
                data = bytes(self._out)
                self._out.clear()
                await stream.send_all(data)
            self._draining = False
