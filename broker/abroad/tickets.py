"""Tickets, which name the other group's master that holds a checkpoint; and acknowledgements as ledger entries.

A client returns the number of the revive queue in its receipt unchanged. For a checkpoint at another group's master
this number is a ticket, which no real queue has: 20 bits stand for the broker name, 10 for its revive queue. So any
broker of the group, another slave or the master that is back, can send an acknowledgement to the right master. If two
broker names have the same 20 bits, both masters are told, and one ignores it. Pure values.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Self

import attrs
from google_crc32c import value as crc32c

from remoting.bodies.popping import AckMessage, CheckpointKey
from remoting.fields import decimal

QUEUES: Final = 1 << 10
"""Number of revive queues of one broker that tickets can name."""
_ELSEWHERE: Final = 1 << 30
_MARKS: Final = 1 << 20


@attrs.frozen
class Ticket:
    """A broker and one of its revive queues. ``mark``: 20 bits of a hash of the broker name."""

    mark: int
    queue: int

    @classmethod
    def of(cls, broker_name: str, queue: int) -> Self:
        return cls(crc32c(broker_name.encode()) % _MARKS, queue)

    @classmethod
    def read(cls, number: int) -> Self | None:
        """The ticket in a receipt's queue number; None: the number is a queue of this group."""
        if not number & _ELSEWHERE:
            return None
        return cls(number // QUEUES % _MARKS, number % QUEUES)

    @property
    def number(self) -> int:
        return _ELSEWHERE + self.mark * QUEUES + self.queue

    def is_of(self, broker_name: str) -> bool:
        """Return whether that broker may hold the checkpoint."""
        return self.of(broker_name, self.queue) == self


@attrs.frozen
class Acked:
    """An acknowledgement of a checkpoint of the master's, taken by an acting slave."""

    found: AckMessage
    revive_qid: int
    invisible_ms: int

    @property
    def thing(self) -> tuple[str, int]:
        """Name and queue of its ledger entry."""
        of = self.found
        return (f"{self.revive_qid} {self.invisible_ms} {of.pop_time_ms} {of.start_offset} {of.ack_offset} "
                f"{of.group} {of.topic}", of.queue_id)

    @classmethod
    def read(cls, name: str, queue_id: int, broker_name: str) -> Self | None:
        """The acknowledgement in a ledger entry; None: no broker writes such a name."""
        fields = name.split(" ")
        numbers = [decimal(each) for each in fields[:5]]
        if len(fields) != 7 or None in numbers:
            return None
        revive_qid, invisible_ms, pop_time_ms, start, offset = (number or 0 for number in numbers)
        return cls(AckMessage(offset, start, fields[5], fields[6], queue_id, pop_time_ms, broker_name), revive_qid,
                   invisible_ms)


class AckedHere:
    """Acknowledgements in the ledger that may not be in the log, by checkpoint."""

    def __init__(self) -> None:
        self._offsets: dict[CheckpointKey, set[int]] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, each: Acked) -> None:
        self._offsets.setdefault(each.found.key, set()).add(each.found.ack_offset)

    def drop(self, each: Acked) -> None:
        """The acknowledgement is in the log now, or the master has it."""
        offsets = self._offsets.get(each.found.key, set())
        offsets.discard(each.found.ack_offset)
        if not offsets:
            self._offsets.pop(each.found.key, None)

    def of(self, key: CheckpointKey) -> Collection[int]:
        return self._offsets.get(key, ())
