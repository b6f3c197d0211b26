"""Frames of both replication protocols, as bytes: the auto-switch one under a controller, and the default one.

Sources: ``AutoSwitchHAClient``, ``AutoSwitchHAConnection``, ``DefaultHAClient`` and ``DefaultHAConnection`` of RocketMQ
(the handshake as of apache/rocketmq#5157). All numbers are big-endian. Decoders take bytes as they come, in any
pieces, and hand the log's on as they came: they hold no more than a header or a handshake. After an error the
connection is of no use. This module knows bytes and limits, and neither roles nor offsets' meaning.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from broker.ha.epochs import EPOCHS_MAX, Epoch, EpochError, EpochList

SLAVE_HANDSHAKE: Final = struct.Struct(">ihhq")
MASTER_HANDSHAKE: Final = struct.Struct(">iiqi")
ENTRY: Final = struct.Struct(">iq")
ACK: Final = struct.Struct(">iq")
TRANSFER: Final = struct.Struct(">iiqiqq")
REPORT: Final = struct.Struct(">q")
BLOCK: Final = struct.Struct(">qi")

BODY_BYTES_MAX: Final = (4 << 20) - TRANSFER.size
"""A Java slave's read buffer holds a frame of 4 MiB."""
_HANDSHAKE_BYTES_MAX: Final = (4 << 20) - MASTER_HANDSHAKE.size
_STATE: Final = struct.Struct(">i")
_OFFSET_MAX: Final = (1 << 63) - 1


class HaState(enum.IntEnum):
    """``HAConnectionState``. Only 1 and 2 travel."""

    READY = 0
    HANDSHAKE = 1
    TRANSFER = 2
    SUSPEND = 3
    SHUTDOWN = 4


_THAT_TRAVEL: Final = {int(state): state for state in (HaState.HANDSHAKE, HaState.TRANSFER)}


class HaFrameError(Exception):
    """Bytes that are no frame of this protocol: the connection is closed with this reason."""


@attrs.frozen
class SlaveHandshake:
    """A slave says who it is; 16 bytes."""

    broker_id: int
    sync_from_last_file: bool = False
    async_learner: bool = False

    def to_bytes(self) -> bytes:
        return SLAVE_HANDSHAKE.pack(HaState.HANDSHAKE, self.sync_from_last_file, self.async_learner, self.broker_id)


@attrs.frozen
class Ack:
    """A slave's log ends at ``offset``; 12 bytes."""

    offset: int

    def to_bytes(self) -> bytes:
        assert self.offset >= 0, "offsets begin at 0: the master would close the connection"
        return ACK.pack(HaState.TRANSFER, self.offset)


@attrs.frozen
class MasterHandshake:
    """The master's log and epochs; 20 + 12 n bytes. A Java master has room for ``EPOCHS_MAX`` of them."""

    log_end: int
    epochs: EpochList

    def to_bytes(self) -> bytes:
        """Encode the newest ``EPOCHS_MAX`` entries, as Java has room for no more.

        A slave that shares only an older one finds no common epoch, which is safe; a wrong one would not be. Of a log
        that begins at 0 the epochs before its first one are told too, as epochs that wrote nothing: a Java slave that
        has one of those would otherwise find nothing in common, for ever.
        """
        told = self.epochs.entries[-EPOCHS_MAX:]
        last = told[-1].epoch if told else -1
        if told and told[0].start == 0:
            first = told[0].epoch
            told = (*(Epoch(epoch, 0) for epoch in range(max(1, first - EPOCHS_MAX + len(told)), first)), *told)
        assert len(told) <= EPOCHS_MAX, "a Java slave has room for no more"
        assert not told or told[-1] == self.epochs.last, "the newest is told last"
        return MASTER_HANDSHAKE.pack(HaState.HANDSHAKE, ENTRY.size * len(told), self.log_end, last) + b"".join(
            ENTRY.pack(*entry) for entry in told)


@attrs.frozen
class Transfer:
    """Bytes of the log from ``offset``, all of one epoch; 36 + size bytes. Without bytes it is a heartbeat."""

    offset: int
    epoch: Epoch
    confirm: int
    body: bytes | memoryview = b""

    def header(self) -> bytes:
        """The bytes of the frame before its body."""
        return transfer_header(self.offset, len(self.body), self.epoch, self.confirm)

    def to_bytes(self) -> bytes:
        return self.header() + self.body


@attrs.frozen
class Block:
    """The default protocol's bytes of the log from ``offset``; 12 + size bytes. Without bytes it is a heartbeat."""

    offset: int
    body: bytes | memoryview = b""

    def header(self) -> bytes:
        return BLOCK.pack(self.offset, len(self.body))

    def to_bytes(self) -> bytes:
        return self.header() + self.body


def transfer_header(offset: int, size: int, epoch: Epoch, confirm: int) -> bytes:
    """Return the header of a ``Transfer`` of ``size`` bytes."""
    assert 0 <= size <= BODY_BYTES_MAX, "a Java slave has room for no more"
    return TRANSFER.pack(HaState.TRANSFER, size, offset, *epoch, confirm)


def report(log_end: int) -> bytes:
    """The default protocol's only word from a slave to its master."""
    return REPORT.pack(log_end)


def _state(data: bytes | memoryview, at: int, sender: str) -> HaState:
    number: int = _STATE.unpack_from(data, at)[0]
    state = _THAT_TRAVEL.get(number)
    if state is not None:
        return state
    known = f"state {HaState(number).name} ({number}), which never travels" if number in list(HaState) else (
        f"state {number}, which there is not")
    raise HaFrameError(f"the {sender} sent {known}; 1 (HANDSHAKE) or 2 (TRANSFER) was expected: is it a broker in "
                       "controller mode that connects here?")


def _that_wrote(told: Iterable[tuple[int, int]]) -> EpochList:
    """Return the epochs without those that ended where they began. Raises ``EpochError``."""
    kept: list[tuple[int, int]] = []
    for epoch, start in told:
        if kept and kept[-1][1] == start and kept[-1][0] < epoch:
            kept.pop()
        kept.append((epoch, start))
    return EpochList(kept)


class _Pieces:
    """Pieces of a frame that wait for the rest; joined once per frame, however small they are."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._needed = 0

    def take(self, data: bytes | memoryview) -> bytes | memoryview | None:
        """All bytes so far, or None while what is missing has not come."""
        if not self._held:
            return data
        self._held += data
        if len(self._held) < self._needed:
            return None
        whole = bytes(self._held)
        self._held.clear()
        return whole

    def keep(self, data: bytes | memoryview, at: int, needed: int) -> None:
        """The frame that begins at ``at`` needs so many bytes."""
        assert not self._held, "one frame at a time comes in pieces"
        self._held += memoryview(data)[at:]
        self._needed = needed


class SlaveMessages:
    """Decodes the messages of a slave: handshakes and acknowledgements."""

    def __init__(self) -> None:
        self._pieces = _Pieces()

    def feed(self, data: bytes) -> Iterator[SlaveHandshake | Ack]:
        """The messages that are whole now. Raises ``HaFrameError`` behind those before the damage."""
        whole = self._pieces.take(data)
        if whole is None:
            return
        at = 0
        while len(whole) - at >= _STATE.size:
            kind = SLAVE_HANDSHAKE if _state(whole, at, "slave") is HaState.HANDSHAKE else ACK
            if len(whole) - at < kind.size:
                break
            yield self._message(kind.unpack_from(whole, at))
            at += kind.size
        if at < len(whole):
            self._pieces.keep(whole, at, ACK.size)

    @staticmethod
    def _message(fields: tuple[int, ...]) -> SlaveHandshake | Ack:
        if fields[0] == HaState.TRANSFER:
            if fields[1] < 0:
                raise HaFrameError(f"the slave acknowledged offset {fields[1]}; offsets begin at 0")
            return Ack(fields[1])
        _, last_file, learner, broker_id = fields
        if last_file not in (0, 1) or learner not in (0, 1):
            raise HaFrameError(f"the slave's handshake has the flags {last_file} and {learner}; each is 0 or 1")
        if broker_id < 0:
            raise HaFrameError(f"the slave's handshake names broker id {broker_id}; ids begin at 0")
        return SlaveHandshake(broker_id, bool(last_file), bool(learner))


class MasterMessages:
    """Decodes the messages of a master: its handshake, then the log. A body is a view of the bytes it came in; one that
    comes in several pieces makes as many messages."""

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self._pieces = _Pieces()
        self._rest = 0
        """Bytes of a body that are still to come, for this place in the log."""
        self._offset, self._epoch, self._confirm = 0, Epoch(0, 0), 0

    def feed(self, data: bytes | memoryview) -> Iterator[MasterHandshake | Transfer]:
        """The messages that are here now. Raises ``HaFrameError`` behind those before the damage."""
        whole = self._pieces.take(data)
        if whole is None:
            return
        at = 0
        while at < len(whole):
            if self._rest:
                body = memoryview(whole)[at:at + self._rest]
                yield Transfer(self._offset, self._epoch, self._confirm, body)
                at += len(body)
                self._rest -= len(body)
                self._offset += len(body)
                continue
            needed = self._needed(whole, at)
            if len(whole) - at < needed:
                self._pieces.keep(whole, at, needed)
                return
            message = self._message(whole, at)
            assert (message is None) == (self._rest > 0), "a header without a body is a message"
            at += needed
            if message is not None:
                yield message

    def _needed(self, data: bytes | memoryview, at: int) -> int:
        """Return how many bytes the frame at ``at`` has without a body of the log, as far as is known."""
        if len(data) - at < 2 * _STATE.size:
            return 2 * _STATE.size
        handshake = _state(data, at, "master") is HaState.HANDSHAKE
        size: int = _STATE.unpack_from(data, at + _STATE.size)[0]
        most = _HANDSHAKE_BYTES_MAX if handshake else self._body_bytes_max
        if not 0 <= size <= most:
            raise HaFrameError(f"the master announced a body of {size} bytes; 0 to {most} are taken")
        if handshake and size % ENTRY.size:
            raise HaFrameError(f"the master's handshake announced {size} bytes of epochs; each has {ENTRY.size}")
        return MASTER_HANDSHAKE.size + size if handshake else TRANSFER.size

    def _message(self, data: bytes | memoryview, at: int) -> MasterHandshake | Transfer | None:
        """Decode one message; None: its body is still to come."""
        if _STATE.unpack_from(data, at)[0] == HaState.HANDSHAKE:
            _, size, log_end, _ = MASTER_HANDSHAKE.unpack_from(data, at)
            begin = at + MASTER_HANDSHAKE.size
            try:
                epochs = _that_wrote(ENTRY.iter_unpack(memoryview(data)[begin:begin + size]))
            except EpochError as wrong:
                raise HaFrameError(f"the master's epochs do not rise: {wrong}") from wrong
            if log_end < 0:
                raise HaFrameError(f"the master's log ends at {log_end}; offsets begin at 0")
            return MasterHandshake(log_end, epochs)
        _, size, offset, epoch, start, confirm = TRANSFER.unpack_from(data, at)
        if offset == -1 and not size:
            offset = 0  # a Java master's heartbeat while its log has no byte
        if not 0 <= offset <= _OFFSET_MAX - size or epoch < 0 or start < 0:
            raise HaFrameError(f"the master sent offset {offset}, epoch {epoch} from {start}; none is negative, and no "
                               f"log goes beyond {_OFFSET_MAX}")
        assert not self._rest, "one body follows the other"
        self._rest, self._offset, self._epoch, self._confirm = size, offset, Epoch(epoch, start), confirm
        return None if size else Transfer(offset, self._epoch, confirm)


class Reports:
    """Decodes the reports of a slave of the default protocol."""

    def __init__(self) -> None:
        self._pieces = _Pieces()

    def feed(self, data: bytes) -> int | None:
        """The last whole report; None when none is whole. Raises ``HaFrameError``."""
        whole = self._pieces.take(data)
        if whole is None:
            return None
        at = len(whole) - len(whole) % REPORT.size
        if at < len(whole):
            self._pieces.keep(whole, at, REPORT.size)
        if not at:
            return None
        offset: int = REPORT.unpack_from(whole, at - REPORT.size)[0]
        if offset < 0:
            raise HaFrameError(f"the slave reported offset {offset}; offsets begin at 0")
        return offset


class Blocks:
    """Decodes the blocks of a master of the default protocol. A body is a view of the bytes it came in; one that comes
    in several pieces makes as many blocks."""

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self._pieces = _Pieces()
        self._rest = self._offset = 0

    def feed(self, data: bytes | memoryview) -> Iterator[Block]:
        """Yield the blocks that ``data`` completes. Raises ``HaFrameError`` after the blocks before the damage."""
        whole = self._pieces.take(data)
        if whole is None:
            return
        at = 0
        while at < len(whole):
            if self._rest:
                body = memoryview(whole)[at:at + self._rest]
                yield Block(self._offset, body)
                at += len(body)
                self._rest -= len(body)
                self._offset += len(body)
                continue
            if len(whole) - at < BLOCK.size:
                self._pieces.keep(whole, at, BLOCK.size)
                return
            offset, size = BLOCK.unpack_from(whole, at)
            if not 0 <= offset <= _OFFSET_MAX - size or not 0 <= size <= self._body_bytes_max:
                raise HaFrameError(f"the master sent a block of {size} bytes at offset {offset}; 0 to "
                                   f"{self._body_bytes_max} bytes from offset 0 to {_OFFSET_MAX} are taken")
            at += BLOCK.size
            self._rest, self._offset = size, offset
            if not size:
                yield Block(offset)
