"""The checkpoint of the timers: ``config/timercheck``, up to where wheel and timer log are surely on disk.

Seven longs in a page of zeros, which are the answer to code 60, too. Behind them, where Java neither reads nor writes,
stands what is ours: it is valid as long as its checksum covers the seven longs, so not once a Java broker wrote them.
It knows the bytes and no meaning beyond. Source: ``TimerCheckpoint`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from zlib import crc32

import attrs

PATH: Final = "config/timercheck"
_PAGE_BYTES: Final = 4096
_LONGS: Final = Struct(">7q")
_OWN: Final = Struct(">iiqqqI")
"""Magic, precision, place in the queue, time, place in the timer log, CRC-32 of all in front of it."""
_MAGIC: Final = 0x51544331


@attrs.frozen
class OwnFacts:
    """What only our brokers write."""

    precision_ms: int
    done_below: int = 0
    done_ms: int = 0
    """Messages below this place in the queue and of slots before this time are done, though all are enqueued anew."""
    oldest: int = 0
    """Units before this place of the timer log are done: files before it may be gone."""


@attrs.frozen
class TimerCheckpoint:
    """``read_time_ms``: every slot before it is done."""

    read_time_ms: int = 0
    log_end: int = 0
    """The timer log is on disk up to here."""
    queue_offset: int = 0
    """The next message of the timers' queue to put into the wheel."""
    master_queue_offset: int = 0
    """The same of the master."""
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0
    own: OwnFacts | None = None
    """None: a Java broker wrote it last."""

    def body(self) -> bytes:
        """The answer to code 60."""
        return _LONGS.pack(self.read_time_ms, self.log_end, self.queue_offset, self.master_queue_offset,
                           self.state_version, self.timestamp, self.counter)

    def encode(self) -> bytes:
        raw = self.body()
        if self.own is not None:
            raw += _OWN.pack(_MAGIC, self.own.precision_ms, self.own.done_below, self.own.done_ms,
                             self.own.oldest, 0)[:-4]
            raw += crc32(raw).to_bytes(4, "big")
        return raw.ljust(_PAGE_BYTES, b"\0")

    @classmethod
    def decode(cls, raw: bytes) -> TimerCheckpoint | None:
        """None for what is too short, or says what nobody writes."""
        if len(raw) < _LONGS.size:
            return None
        longs = _LONGS.unpack_from(raw)
        return None if min(longs[:4]) < 0 else attrs.evolve(cls(*longs), own=_own(raw))


def _own(raw: bytes) -> OwnFacts | None:
    end = _LONGS.size + _OWN.size
    if len(raw) < end:
        return None
    magic, precision_ms, done_below, done_ms, oldest, code = _OWN.unpack_from(raw, _LONGS.size)
    if magic != _MAGIC or code != crc32(raw[: end - 4]) or precision_ms < 1 or (
            min(done_below, done_ms, oldest) < 0):
        return None
    return OwnFacts(precision_ms, done_below, done_ms, oldest)
