"""Revived messages: makes the copy for the retry topic, and remembers on every replica which messages came back.

Each copy names its checkpoint, and every replica takes note of it (``broker.noted``). A new master may read checkpoints
again, since the copied offset of the revive queue lags; it skips messages that came back already. Pure values.
Source: ``PopReviveService.reviveRetry`` of RocketMQ 5.5.0, which brings them back twice.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import attrs

from broker import properties as props
from broker.ha.acks import PutStatus
from broker.offsets.inflight import Inflight
from broker.pop.records import LABELS_MAX
from broker.properties import FIRST_POP_TIME, ORIGIN_GROUP, POP_CK, POP_REVIVED, UNIQ_KEY
from broker.topics.names import RETRY_PREFIX, dlq_topic, pop_retry_topic
from remoting.bodies.popping import CheckPoint
from remoting.fields import decimal
from remoting.record import NOTED, Message, Outline, Record, decode_properties, value_behind

REMEMBERED_MAX: Final = 1_000_000
"""Revived messages that are remembered; older ones may come back twice after a failover."""
PASSED_MAX: Final = 10_000
"""Most messages that are remembered from before the revive queue's offset: a later master may have an older copy of
it."""
_MARK: Final = f"{POP_REVIVED}\x01".encode()
_COUNT_MAX: Final = 2**31 - 1
_Back = tuple[int, int, int, int]
"""A message that came back: queue and place of its checkpoint, its offset, and the hash of its topic and unique id."""


def retry_topic_of(found: CheckPoint, *, v2: bool) -> str:
    """The topic where a checkpoint's messages come back; a message of a retry topic stays in it."""
    return found.topic if found.topic.startswith(RETRY_PREFIX) else pop_retry_topic(found.topic, found.group, v2=v2)


def returned(record: Record, found: CheckPoint, topic: str, store_host: bytes, *, queue: int, place: int) -> Message:
    """The copy of a message for ``topic``. ``queue`` and ``place`` say where its checkpoint stands."""
    message = record.message
    values = props.without_own(decode_properties(message.properties))
    values.pop(POP_CK, None)
    if message.reconsume_times == 0 or FIRST_POP_TIME not in values:
        values[FIRST_POP_TIME] = str(found.pop_time_ms)
    values[ORIGIN_GROUP] = found.group
    values[POP_REVIVED] = f"{queue} {place} {record.queue_offset}"
    times = message.reconsume_times + (not found.suspend)
    return attrs.evolve(
        message, topic=topic.encode(), queue_id=0, properties=props.write(values), sys_flag=message.sys_flag | NOTED,
        born_host=store_host, store_host=store_host, reconsume_times=min(times, _COUNT_MAX), prepared_offset=0)


def dead_letter(copy: Message, record: Record, group: str) -> Message:
    """Instead of a copy whose properties are too long: with those of its message alone, and no mark for replicas."""
    return attrs.evolve(copy, topic=dlq_topic(group).encode(), properties=record.message.properties,
                        sys_flag=record.message.sys_flag & ~NOTED)


@attrs.define(eq=False)
class ReviveCounters:
    """Sums since this process began; they only ever rise."""

    read: Counter[tuple[str, str, int, str]] = attrs.field(factory=Counter)
    """Records read, by group, topic, queue and kind."""
    back: Counter[tuple[str, str, str]] = attrs.field(factory=Counter)
    """Messages put into retry topics, by group, topic and status of the put."""
    out: Inflight = attrs.field(factory=Inflight)
    gone: int = 0
    """Messages that were deleted before they could come back."""
    full: int = 0
    """Messages that became dead letters, since their properties had no room for the added ones."""
    again: int = 0
    """Messages that got a checkpoint of their own."""
    passed_over: int = 0
    """Messages skipped because a former master brought them back."""
    strange: int = 0
    """Records that could not be decoded."""

    def count_read(self, group: str, topic: str, queue: int, kind: str) -> None:
        """Count a record that was read; without names once there are ``LABELS_MAX`` labels."""
        one = group, topic, queue, kind
        self.read[one if one in self.read or len(self.read) < LABELS_MAX else ("", "", queue, kind)] += 1

    def count_back(self, group: str, topic: str, status: str, count: int) -> None:
        """Count messages of one put; without names once there are ``LABELS_MAX`` labels."""
        one = group, topic, status
        self.back[one if one in self.back or len(self.back) < LABELS_MAX else ("", "", status)] += count
        if status == PutStatus.PUT_OK.name:
            self.out.done(group, topic, count)


class Revived:
    """Remembers revived messages whose checkpoints the revive queue's offset has not passed, and the last that it has.
    ``hear`` takes messages in the order of the log, as they are shown."""

    def __init__(self, processed: Callable[[int], int]) -> None:
        """``processed`` returns a revive queue's offset (its last record that is done with), as this replica knows."""
        self._processed = processed
        self._known: set[_Back] = set()
        self._order: deque[tuple[int, _Back]] = deque()
        """Offset in the log of each, while the checkpoint is not passed."""
        self._passed: deque[tuple[int, _Back]] = deque()
        """Offset in the log of each, once the checkpoint is passed."""

    def __len__(self) -> int:
        """Messages whose checkpoints are not passed."""
        return len(self._order)

    def hear(self, found: Outline) -> None:
        """Take a noted message; those of other parts are ignored."""
        said = value_behind(found[7], _MARK)
        numbers = [decimal(text) for text in said.decode(errors="replace").split(" ")] if said is not None else []
        if len(numbers) != 3 or None in numbers:
            return
        queue, place, offset = (number or 0 for number in numbers)
        back = queue, place, offset, _whose(found[6], found[7])
        self._known.add(back)
        if place <= self._processed(queue):
            self._pass((found[0], back))
            return
        self._order.append((found[0], back))
        if len(self._order) > REMEMBERED_MAX:
            self._known.discard(self._order.popleft()[1])

    def has(self, queue: int, place: int, offset: int, message: Message) -> bool:
        """Return whether this message came back before. Its topic and unique id must match too: a client may forge the
        mark."""
        return (queue, place, offset, _whose(message.topic, message.properties)) in self._known

    def forget(self) -> None:
        """Move entries that the offset has passed meanwhile to the bounded list of passed ones."""
        order = self._order
        while order and order[0][1][1] <= self._processed(order[0][1][0]):
            self._pass(order.popleft())

    def _pass(self, one: tuple[int, _Back]) -> None:
        self._passed.append(one)
        if len(self._passed) > PASSED_MAX:
            self._known.discard(self._passed.popleft()[1])

    def cut(self, end: int) -> None:
        """The log was cut at ``end``: messages after it did not come back."""
        gone = [back for at, back in (*self._order, *self._passed) if at >= end]
        self._order, self._passed = (deque(each for each in those if each[0] < end)
                                     for those in (self._order, self._passed))
        self._known.difference_update(gone)

    def begins(self, heard: int) -> int:
        """Offset of the log from which the next process must hear; this one heard all below ``heard``."""
        return self._order[0][0] if self._order else heard


def _whose(topic: bytes, properties: bytes) -> int:
    return hash((topic, value_behind(properties, f"{UNIQ_KEY}\x01".encode())))
