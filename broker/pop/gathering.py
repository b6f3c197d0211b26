"""Acknowledgements of one turn: those of one checkpoint become one record.

A consumer acknowledges what it popped together with a request for each message, all at once. Each record costs every
replica a timer, two entries of queues, four of the index and a look at its end; so they are gathered until the turn's
write, and each request is answered by what becomes of the record. A core.
Source: ``BatchAckMsg`` of RocketMQ 5.5.0, which its brokers write for a request of many acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from remoting.bodies.popping import COUNT_MAX, AckMessage, BatchAckMessage, CheckpointKey

Answer = Callable[[str], None]
"""Called once, with "" when the records are stored, or with the reason why not."""


@attrs.define(eq=False)
class Together:
    """Acknowledgements of one checkpoint, and who waits for them."""

    first: AckMessage
    revive_qid: int
    invisible_ms: int
    offsets: dict[int, None] = attrs.field(factory=dict)
    answers: list[Answer] = attrs.field(factory=list)

    @property
    def ack(self) -> AckMessage | BatchAckMessage:
        """All of them as one."""
        first = self.first
        if len(self.offsets) == 1:
            return first
        return BatchAckMessage(list(self.offsets), first.start_offset, first.group, first.topic, first.queue_id,
                               first.pop_time_ms, first.broker_name)

    def answer(self, why_not: str) -> None:
        """Tell each: "" if they are stored, else why not."""
        for answer in self.answers:
            answer(why_not)


class Gathering:
    """What came since the last ``take``."""

    def __init__(self) -> None:
        self._all: list[Together] = []
        self._open: dict[tuple[CheckpointKey, int, int], Together] = {}

    def add(self, ack: AckMessage, revive_qid: int, invisible_ms: int, answer: Answer) -> bool:
        """Add one acknowledgement. True: it is the first."""
        key = ack.key, revive_qid, invisible_ms
        found = self._open.get(key)
        if found is None or len(found.offsets) == COUNT_MAX:
            found = self._open[key] = Together(ack, revive_qid, invisible_ms)
            self._all.append(found)
        found.offsets[ack.ack_offset] = None
        found.answers.append(answer)
        return len(self._all) == len(found.answers) == 1

    def take(self) -> list[Together]:
        """All of them, the first checkpoint first."""
        found, self._all = self._all, []
        self._open.clear()
        return found
