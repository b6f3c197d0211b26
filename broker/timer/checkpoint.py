"""The timers' checkpoint ``config/timercheck``: up to where wheel and timer log are on disk.

The file has seven longs, which are also the answer to code 60, and zeros up to a page. Our own fields follow the longs,
where RocketMQ neither reads nor writes. Their checksum covers the longs, so they are invalid once a RocketMQ broker has
written. This module knows only the bytes. Source: ``TimerCheckpoint`` of RocketMQ 5.5.0.
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
"""Magic, precision, place in the queue, time, place in the timer log, CRC-32 of all bytes before."""
_MAGIC: Final = 0x51544331
_BEGIN: Final = Struct(">q")


@attrs.frozen
class OwnFacts:
    """Fields that only our brokers write."""

    precision_ms: int
    done_below: int = 0
    done_ms: int = 0
    """Messages below place ``done_below`` of the queue, in slots before this time, are done, even if the whole queue
    is enqueued again."""
    oldest: int = 0
    """Units before this place of the timer log are done; files before it may be deleted."""


@attrs.frozen
class TimerCheckpoint:
    """The content of the file. ``read_time_ms``: every slot before it is done."""

    read_time_ms: int = 0
    log_end: int = 0
    """The timer log is on disk up to here."""
    queue_offset: int = 0
    """The next message of the timers' queue to put into the wheel."""
    master_queue_offset: int = 0
    """The master's ``queue_offset``, as a slave knows it."""
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0
    own: OwnFacts | None = None
    """None: a RocketMQ broker wrote the file last."""

    def body(self, begin: int = 0) -> bytes:
        """The answer to code 60 of a broker whose log begins there. RocketMQ's read what is before our own long."""
        return self._longs() + (_BEGIN.pack(begin) if begin else b"")

    def _longs(self) -> bytes:
        return _LONGS.pack(self.read_time_ms, self.log_end, self.queue_offset, self.master_queue_offset,
                           self.state_version, self.timestamp, self.counter)

    def encode(self) -> bytes:
        raw = self._longs()
        if self.own is not None:
            raw += _OWN.pack(_MAGIC, self.own.precision_ms, self.own.done_below, self.own.done_ms,
                             self.own.oldest, 0)[:-4]
            raw += crc32(raw).to_bytes(4, "big")
        return raw.ljust(_PAGE_BYTES, b"\0")

    @classmethod
    def decode(cls, raw: bytes) -> TimerCheckpoint | None:
        """The checkpoint in these bytes; None: they are too short, or have a negative number."""
        if len(raw) < _LONGS.size:
            return None
        longs = _LONGS.unpack_from(raw)
        return None if min(longs[:4]) < 0 else attrs.evolve(cls(*longs), own=_own(raw))


def begin_of(answer: bytes) -> int:
    """Where the log of the broker begins that answered code 60; 0 where it does not say, as RocketMQ's do not."""
    return int(_BEGIN.unpack_from(answer, _LONGS.size)[0]) if len(answer) == _LONGS.size + _BEGIN.size else 0


def _own(raw: bytes) -> OwnFacts | None:
    end = _LONGS.size + _OWN.size
    if len(raw) < end:
        return None
    magic, precision_ms, done_below, done_ms, oldest, code = _OWN.unpack_from(raw, _LONGS.size)
    if magic != _MAGIC or code != crc32(raw[: end - 4]) or precision_ms < 1 or (
            min(done_below, done_ms, oldest) < 0):
        return None
    return OwnFacts(precision_ms, done_below, done_ms, oldest)
