"""A slave's connection to its master without its streams, for either protocol: carries out what the core says.

What a master sent is appended and acknowledged once for each read, not once for each frame. A part of a last record
waits for the rest of it.
Sources: ``DefaultHAClient`` and ``AutoSwitchHAClient`` of RocketMQ.
It knows the journal, and nothing of what a frame means or how bytes come.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

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
from broker.store.health import DiskHealth
from remoting.errors import DamagedRecord

logger = logging.getLogger("broker")

MessageT_co = TypeVar("MessageT_co", covariant=True)
MessageT_contra = TypeVar("MessageT_contra", contravariant=True)
MessageT = TypeVar("MessageT")

FAULTS: Final = (HaFrameError, StoreError, DamagedRecord)
"""Errors that end a connection, with their words as the reason."""


class Decoder(Protocol[MessageT_co]):
    """Decodes what comes on one connection; raises ``HaFrameError``."""

    def feed(self, data: bytes | memoryview) -> Iterable[MessageT_co]:
        """Messages in ``data``. Views of ``data`` in a message are valid until the next message is asked for."""
        ...


class CopyingCore(Protocol[MessageT_contra]):
    """The slave's core of one protocol, through any number of connections."""

    @property
    def copies(self) -> bool:
        """Return whether this replica is far behind, and copies old messages (``Journal.copying``)."""
        ...

    def follow(self, address: str | None, now_ns: int) -> Sequence[Output]: ...

    def connected(self, now_ns: int) -> Sequence[Output]: ...

    def received(self, message: MessageT_contra, now_ns: int) -> Sequence[Output]: ...

    def truncated(self, log_end: int | None, now_ns: int) -> Sequence[Output]: ...

    def stored(self, log_end: int, now_ns: int) -> Sequence[Output]: ...

    def not_stored(self, log_end: int) -> None: ...

    def closed(self, now_ns: int) -> None: ...

    def tick(self, now_ns: int) -> Sequence[Output]: ...


class Copying(ABC, Generic[MessageT]):
    """A slave's connection. It works between ``begin`` and ``end``; call ``follow`` at any time."""

    def __init__(self, journal: Journal, core: CopyingCore[MessageT], decoder: Callable[[], Decoder[MessageT]],
                 epoch_file: EpochFile | None = None, trusted: Callable[[], None] = lambda: None) -> None:
        """``trusted`` is called when the log is in doubt no longer."""
        self.address: str | None = None
        self.connected = False
        self._journal, self._core, self._decoder, self._epoch_file = journal, core, decoder, epoch_file
        self._file_bytes = journal.log.file_bytes
        self._trusted = trusted
        self._frames = decoder()
        self._whole = WholeRecords(self._file_bytes)
        self._to_connect: str | None = None
        self._followed: str | None = None
        """The address that the core has."""
        self._left = ""
        """Reason for which the core, or the caller, has ended this connection."""
        self._left_as_usual = False
        self._hearing = False
        self._gathered = list[bytes | memoryview]()
        """Whole records of the frames of one read, which are appended together, at this offset."""
        self._gathered_at = 0

    def follow(self, address: str | None) -> None:
        """Follow the master whose HA port is at ``address``; None: it is unknown. A connection to another address ends
        in this turn."""
        if address == self.address:
            return
        self.address = address
        self._follow("the master's HA address changed")

    def begin(self) -> None:
        """Listen to the journal, from now on."""
        self._journal.grown.join("copying", self._grown)
        self._journal.ticks.join("copying", self._tick)
        self._journal.disk_changed.join("copying", self._disk_changed)
        self._journal.stir()
        self._tick(self._journal.now_ns())

    def end(self) -> None:
        self._journal.grown.leave("copying", self._grown)
        self._journal.ticks.leave("copying", self._tick)
        self._journal.disk_changed.leave("copying", self._disk_changed)

    # --- for the heir ----------------------------------------------------------------------------------------

    @abstractmethod
    def _wake(self) -> None:
        """Called when there is an address to connect to."""

    @abstractmethod
    def _write(self, data: bytes) -> None:
        """Send ``data`` to the master, if it is connected."""

    @abstractmethod
    def _hang_up(self) -> None:
        """End the connection, if there is one."""

    def _address_to_connect(self) -> str | None:
        """Return the address to connect to, once for each time that the core wants it."""
        address, self._to_connect = self._to_connect, None
        return address

    def _connects(self) -> None:
        """Begin a connection to that address; so far there is no reason to leave it."""
        self._left, self._left_as_usual = "", False

    def _opened(self) -> None:
        """Begin on a new connection. Raises what is in ``FAULTS``."""
        self.connected = True
        self._frames, self._whole = self._decoder(), WholeRecords(self._file_bytes)
        self._core.not_stored(self._journal.end)  # a part of a record was lost with the connection before
        self._do(self._core.connected(self._journal.now_ns()))

    def _hear(self, data: bytes | memoryview) -> bool:
        """Take bytes from the master. False: the connection is over. Raises what is in ``FAULTS``."""
        journal = self._journal
        now_ns = journal.now_ns()
        end = journal.end
        self._hearing = True
        try:
            for message in self._frames.feed(data):
                self._do(self._core.received(message, now_ns))
                if self._left:
                    return False
        finally:
            self._hearing = False
            self._append_gathered()
        journal.copying = self._core.copies
        if journal.end != end:
            self._do(self._core.stored(journal.durable_end, now_ns))
        return True

    def _disconnected(self) -> None:
        """Nothing more is read from the connection."""
        self.connected = self._journal.copying = False

    def _closed(self) -> None:
        """The connection is over, and whatever it had under way."""
        if not self._left:
            self._core.closed(self._journal.now_ns())

    # --- whom it follows -------------------------------------------------------------------------------------

    def _disk_changed(self) -> None:
        health = self._journal.health
        self._follow(f"this replica's disk is {health.value or 'well again'}")

    def _follow(self, reason: str) -> None:
        """Tell the core whom to follow: nobody while the disk is in trouble.

        A slave that cannot store delays every put that waits for it."""
        address = self.address if self._journal.health is DiskHealth.WELL else None
        if address == self._followed:
            return  # the core has this address already, and would not connect anew
        self._followed, self._to_connect = address, None
        self._journal.stir()
        self._leave(reason)
        self._do(self._core.follow(address, self._journal.now_ns()))

    # --- what the core says ----------------------------------------------------------------------------------

    def _do(self, outputs: Iterable[Output]) -> None:
        """Carry out outputs of the core. Raises ``StoreError`` and ``OSError``, which end the connection."""
        for output in outputs:
            self._one(output)

    def _one(self, output: Output) -> None:
        journal = self._journal
        if not isinstance(output, AppendLog | SetConfirm):
            self._append_gathered()  # other outputs come after it; what is confirmed was stored before this read
        match output:
            case Send(data):
                self._write(data)
            case AppendLog(offset, body):
                self._gather(body, offset)
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
                journal.trust.regained()
                self._trusted()
            case TruncateLog():
                self._do(self._core.truncated(self._truncate(output), journal.now_ns()))
            case Connect(address):
                self._to_connect = address
                self._wake()
            case Disconnect(reason, is_usual):
                self._left_as_usual = is_usual
                self._leave(reason)

    def _gather(self, body: bytes | memoryview, offset: int) -> None:
        """Keep the whole records of this frame, until all frames of the read are decoded."""
        begin = offset - self._whole.bytes_held
        whole = self._whole.take(body, offset)
        if not self._gathered:
            self._gathered_at = begin
        self._gathered += whole

    def _append_gathered(self) -> None:
        if not self._gathered:
            return
        whole, self._gathered = self._gathered, []
        try:
            self._append_whole(whole, self._gathered_at)
        except StoreError:
            self._core.not_stored(self._journal.end)
            raise

    def _append_whole(self, whole: list[bytes | memoryview], begin: int) -> None:
        self._journal.append_raw(whole, begin)

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
        self._hang_up()

    def _grown(self) -> None:
        if not self._hearing:
            self._do(self._core.stored(self._journal.durable_end, self._journal.now_ns()))

    def _tick(self, now_ns: int) -> None:
        self._do(self._core.tick(now_ns))
        self._journal.copying = self.connected and self._core.copies
        if self._followed is not None:
            self._journal.tick_by(0)  # its judge of silence must look often
