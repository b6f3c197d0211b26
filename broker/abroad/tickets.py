"""Tickets: which master of another group holds a checkpoint. And names of what is acknowledged without any master.

A client gives back the number of the revive queue that it was told, whatever that is. So a checkpoint at another
group's master has a number that no queue has: 20 bits say whose it is, 10 which of its revive queues. Whoever is asked
to acknowledge finds it by that alone: another slave, or the master that came back. Two brokers may have the same 20
bits; both are told then, and one of them passes over it. Pure values.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Self

import attrs
from google_crc32c import value as crc32c

from remoting.bodies.popping import AckMessage, CheckpointKey
from remoting.fields import decimal

QUEUES: Final = 1 << 10
"""Revive queues of one broker that tickets can name."""
_ELSEWHERE: Final = 1 << 30
_MARKS: Final = 1 << 20


@attrs.frozen
class Ticket:
    """``mark`` is the broker's: 20 bits of its name."""

    mark: int
    queue: int

    @classmethod
    def of(cls, broker_name: str, queue: int) -> Self:
        return cls(crc32c(broker_name.encode()) % _MARKS, queue)

    @classmethod
    def read(cls, number: int) -> Self | None:
        """None: the number is of a queue of this very group."""
        if not number & _ELSEWHERE:
            return None
        return cls(number // QUEUES % _MARKS, number % QUEUES)

    @property
    def number(self) -> int:
        return _ELSEWHERE + self.mark * QUEUES + self.queue

    def is_of(self, broker_name: str) -> bool:
        """Whether that broker may hold the checkpoint."""
        return self.of(broker_name, self.queue) == self


@attrs.frozen
class Acked:
    """A message of one of the master's checkpoints that its slave was told is done with."""

    found: AckMessage
    revive_qid: int
    invisible_ms: int

    @property
    def thing(self) -> tuple[str, int]:
        """Its name in the ledger, and its queue."""
        of = self.found
        return (f"{self.revive_qid} {self.invisible_ms} {of.pop_time_ms} {of.start_offset} {of.ack_offset} "
                f"{of.group} {of.topic}", of.queue_id)

    @classmethod
    def read(cls, name: str, queue_id: int, broker_name: str) -> Self | None:
        """None: nobody writes such a name."""
        fields = name.split(" ")
        numbers = [decimal(each) for each in fields[:5]]
        if len(fields) != 7 or None in numbers:
            return None
        revive_qid, invisible_ms, pop_time_ms, start, offset = (number or 0 for number in numbers)
        return cls(AckMessage(offset, start, fields[5], fields[6], queue_id, pop_time_ms, broker_name), revive_qid,
                   invisible_ms)


class AckedHere:
    """All that was acknowledged in the master's place, as the ledger says, by checkpoint."""

    def __init__(self) -> None:
        self._offsets: dict[CheckpointKey, set[int]] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, each: Acked) -> None:
        self._offsets.setdefault(each.found.key, set()).add(each.found.ack_offset)

    def drop(self, each: Acked) -> None:
        """It is in the log from now on, or the master has it."""
        offsets = self._offsets.get(each.found.key, set())
        offsets.discard(each.found.ack_offset)
        if not offsets:
            self._offsets.pop(each.found.key, None)

    def of(self, key: CheckpointKey) -> Collection[int]:
        return self._offsets.get(key, ())
