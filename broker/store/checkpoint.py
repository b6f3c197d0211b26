"""The checkpoint file: up to where log, queues and index are surely on disk. Six big-endian longs in a page of zeros.

Java before 5.5 writes five. It knows the bytes and no meaning beyond. Source: ``StoreCheckpoint`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import attrs

PATH: Final = "checkpoint"
_PAGE_BYTES: Final = 4096
_LONGS: Final = Struct(">6q")


@attrs.frozen
class Checkpoint:
    """The content of the checkpoint file. Times are store times of messages, in milliseconds."""

    log_time_ms: int = 0
    queues_time_ms: int = 0
    index_time_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    queues_offset: int = 0
    """Queues are complete up to here. 0: not known, from a Java before 5.5."""

    def encode(self) -> bytes:
        page = _LONGS.pack(*attrs.astuple(self)).ljust(_PAGE_BYTES, b"\0")
        assert len(page) == _PAGE_BYTES, "Java maps a whole page"
        return page

    @classmethod
    def decode(cls, raw: bytes | None) -> Checkpoint:
        """Decode the file. One that is missing or too short is all zeros: then the log tells everything."""
        raw = (raw or b"")[: _LONGS.size]
        return cls(*_LONGS.unpack(raw.ljust(_LONGS.size, b"\0")))
