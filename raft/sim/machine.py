"""A user's state machine inside a simulation, with a digest of all its results.

A snapshot's bytes begin with the digest, so a node that is restored goes on with the same digest. So the checker can
compare states after every applied frame without asking the machine for its state. Knows frames; knows no roles, disks
or time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

from raft.errors import MalformedMessage
from raft.frame import Frame, Kind
from raft.statemachine import AnyMachine, Machine

COMMANDS = Kind.COMMANDS
_HEAD = struct.Struct("<QII")
_PLAIN = frozenset((int, str, bytes, bool, float, type(None)))


class SimMachine:
    """A user's state machine, its applied index and its digest."""

    __slots__ = ("digest", "index", "inner", "machine", "mark")

    def __init__(self, inner: AnyMachine) -> None:
        self.inner: Any = inner
        self.machine = Machine(inner)
        self.index = 0
        self.mark = 0
        """``Frame.mark`` of the last frame applied."""
        self.digest = 0

    def encoded(self, command: Any) -> bytes:
        """Return the bytes of the log for a command."""
        data: bytes = command if self.machine.encode is None else self.machine.encode(command)
        return data

    def apply(self, frame: Frame) -> list[object]:
        """Apply a frame, and return the results of its commands. Other kinds have one result, None."""
        if frame.kind == COMMANDS:
            results = self.machine.apply_many(frame.payloads(), frame.term, frame.first, frame.wall_ms)
            if frame.count == 1 and type(results[0]) is int:  # the usual frame: the same bytes, faster
                self.digest = crc32(b"%d[%d]" % (frame.mark, results[0]), self.digest)
            else:
                plain = results
                if not _PLAIN.issuperset(map(type, results)):
                    plain = [result if type(result) in _PLAIN else None for result in results]
                self.digest = crc32(b"%d%a" % (frame.mark, plain), self.digest)
        else:
            results = [None]
            self.digest = crc32(frame.mark.to_bytes(4, "little"), self.digest)
        self.index, self.mark = frame.first + frame.count - 1, frame.mark
        return results

    def capture(self) -> tuple[bytes, Any]:
        """Return the present state, for ``write``."""
        return _HEAD.pack(self.index, self.mark, self.digest), self.machine.capture()

    def write(self, view: tuple[bytes, Any], sink: Any) -> None:
        """Write a captured state into a snapshot."""
        sink.write(view[0])
        self.machine.write(view[1], sink)

    def restore(self, data: bytes) -> None:
        """Replace all state by a snapshot's."""
        if len(data) < _HEAD.size:
            raise MalformedMessage(f"a simulated snapshot has {_HEAD.size} bytes in front, this one {len(data)} in all")
        self.index, self.mark, self.digest = _HEAD.unpack_from(data)
        self.machine.restore(_rest(data))


def _rest(data: bytes) -> Iterable[bytes]:
    pieces: Iterator[bytes] = iter((data[_HEAD.size:],))
    return pieces
