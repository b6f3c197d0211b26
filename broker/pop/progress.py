"""Progress: how far POP has taken each group in each queue, computed from the log alone.

A new master needs each group's offset, and the table of offsets that slaves copy lags. Giving from an old offset gives
messages twice; a too large offset loses them. So each checkpoint says its *stretch*: the queue offsets where it begins
and ends, and its floor, the group's offset when it was made. Every replica adds up the stretches as the log is shown:
- A stretch that begins at or before the known end moves the end to its own end.
- A stretch that begins after it has a gap before it: a checkpoint was not stored. It moves the end to its floor at
  most, and its messages are given again.
- A stretch that ends before the known end follows a reset, so it counts as well.

No message is lost: checkpoints of a queue stand in the log in the order of the queue, and all up to the floor were
confirmed when the floor was read, so nothing before the end lacks a checkpoint. Copies of checkpoints, which timers
make, are ignored; resets and deletions have records of their own. Alternatives: a record of the offset for each POP
would double the puts; to trust the copied table gives messages twice after a failover.
A core: it knows outlines of messages, neither log nor table of offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs

from broker.properties import POP_PROGRESS, REAL_TOPIC, TIMER_DONE, TIMER_MOVED
from broker.topics.names import POP_RESETS, TIMER, popped_from
from remoting.body import Body, body
from remoting.fields import Int32, Int64, decimal
from remoting.record import NOTED, Message, Outline, decode_properties, encode_properties

UNDONE_MAX: Final = 10_000
"""Changes that a cut of the log can undo. After a cut further back the log must be heard again."""
PATH: Final = "config/popProgress.json"
_TIMER: Final = TIMER.encode()
_RESETS: Final = POP_RESETS.encode()
_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
_TO: Final = "to"
_GONE: Final = "gone"
Key = tuple[str, str, int]
"""Topic, group, queue id."""


@body
class KeptProgress(Body):
    """The file ``config/popProgress.json``: ends by ``topic@group`` and queue id, from the log up to ``log_offset``.
    Below 0, this broker has read none of the log."""

    log_offset: Int64 = -1
    ends: dict[str, dict[Int32, Int64]] = attrs.field(factory=dict)


@attrs.frozen
class Stretch:
    """The part of a queue that one checkpoint covers. ``floor``: the group's offset when it was made."""

    topic: str
    group: str
    queue_id: int
    floor: int
    begin: int
    end: int

    def encode(self) -> str:
        return f"{self.floor} {self.begin} {self.end} {self.queue_id} {self.group} {self.topic}"

    @classmethod
    def decode(cls, text: str) -> Stretch | None:
        """The stretch that a property says; None: no broker writes such a text."""
        fields = text.split(" ")
        if len(fields) != 6:
            return None
        floor, begin, end, queue_id = (_number(each) for each in fields[:4])
        if floor is None or begin is None or end is None or queue_id is None or queue_id > _INT_MAX:
            return None
        return cls(fields[5], fields[4], queue_id, floor, begin, end)


def reset(topic: str, group: str, queue_id: int, offset: int, store_host: bytes, now_ms: int) -> Message:
    """A record that says: the group goes on at ``offset``, wherever it was."""
    return _record(f"{_TO} {offset} {queue_id} {group} {topic}", store_host, now_ms)


def gone(topic: str, group: str, store_host: bytes, now_ms: int) -> Message:
    """A record that says: forget the topic, or the group; "" stands for every one."""
    return _record(f"{_GONE} {group} {topic}", store_host, now_ms)


def _record(text: str, store_host: bytes, now_ms: int) -> Message:
    return Message(_RESETS, text.encode(), 0, encode_properties({"TAGS": "pop", POP_PROGRESS: text}), sys_flag=NOTED,
                   born_time_ms=now_ms, born_host=store_host, store_host=store_host)


class PopProgress:
    """The end of each group in each queue. ``hear`` takes messages in the order of the log, as they are shown."""

    def __init__(self, revive_topic: str, kept: KeptProgress | None = None) -> None:
        kept = kept or KeptProgress()
        self._revive_topic = revive_topic
        self.ends: dict[Key, int] = {}
        """By queue, the end of what was given without a gap."""
        for name, queues in kept.ends.items():
            topic, _, group = name.partition("@")
            for queue_id, end in queues.items():
                self.ends[topic, group, queue_id] = end
        self._undo: deque[tuple[int, Key, int | None]] = deque()
        self._undo_from = max(0, kept.log_offset)
        """A cut at or after this offset of the log can be undone."""
        self.heard: Callable[[int], None] = lambda log_end: None
        """Called for each checkpoint of this log, with its end in the log."""
        self.gone: Callable[[int, str, str], None] = lambda at, topic, group: None
        """Called for each record that says so, with its offset in the log, its topic and its group."""

        self.reset: Callable[[int, str, str, int, int], None] = lambda at, topic, group, queue_id, offset: None
        """Called for each record of a reset, with its offset in the log, topic, group, queue id, and where it leads."""

    def kept(self, log_offset: int) -> KeptProgress:
        """The content of the file for the log below ``log_offset``: later changes are undone, as far as they can be."""
        log_offset, ends = max(log_offset, self._undo_from), dict(self.ends)
        for at, key, before in reversed(self._undo):
            if at < log_offset:
                break
            _put(ends, key, before)
        tables: dict[str, dict[int, int]] = {}
        for (topic, group, queue_id), end in ends.items():
            tables.setdefault(f"{topic}@{group}", {})[queue_id] = end
        return KeptProgress(log_offset, tables)

    def hear(self, found: Outline) -> None:
        """Take a noted message; those of other parts are ignored."""
        topic, raw = found[6], found[7]
        if b"__QUORATE_POP\x01" not in raw:
            return
        values = decode_properties(raw)
        text = values.get(POP_PROGRESS, "")
        if topic == _RESETS:
            self._hear_reset(found[0], text)
        elif (values.get(REAL_TOPIC) if topic == _TIMER else topic.decode(errors="replace")) == self._revive_topic and (
                TIMER_DONE not in values and TIMER_MOVED not in values):
            stretch = Stretch.decode(text)
            if stretch is not None:
                self._take(found[0], stretch)
                self.heard(found[0] + found[1])

    def _take(self, at: int, stretch: Stretch) -> None:
        key = stretch.topic, stretch.group, stretch.queue_id
        known = self.ends.get(key)
        sure = stretch.floor if known is None else max(known, stretch.floor)
        self._set(at, key, stretch.end if stretch.begin <= sure else sure)

    def _hear_reset(self, at: int, text: str) -> None:
        fields = text.split(" ")
        if len(fields) == 5 and fields[0] == _TO:
            offset, queue_id = _number(fields[1]), _number(fields[2])
            if offset is not None and queue_id is not None:
                if self.knows(fields[4], fields[3]):  # others may go back by themselves
                    self._set(at, (fields[4], fields[3], queue_id), offset)
                self.reset(at, fields[4], fields[3], queue_id, offset)
        elif len(fields) == 3 and fields[0] == _GONE:
            for key in [key for key in self.ends if self._is_of(key, fields[2], fields[1])]:
                self._set(at, key, None)
            self.gone(at, fields[2], fields[1])

    @staticmethod
    def _is_of(key: Key, topic: str, group: str) -> bool:
        return group in ("", key[1]) and topic in ("", key[0], popped_from(key[0], key[1]))

    def knows(self, topic: str, group: str) -> bool:
        """Return whether any end of the topic and group is known; "" stands for every topic or group."""
        return any(self._is_of(key, topic, group) for key in self.ends)

    def _set(self, at: int, key: Key, end: int | None) -> None:
        self._undo.append((at, key, self.ends.get(key)))
        if len(self._undo) > UNDONE_MAX:
            self._undo_from = self._undo.popleft()[0] + 1
        _put(self.ends, key, end)

    def cut(self, end: int) -> bool:
        """The log was cut at ``end``: undo what messages after it said. False: it cannot, so all is forgotten, and
        the rest of the log must be heard again."""
        is_undone = end >= self._undo_from
        if not is_undone:
            self.ends.clear()
            self._undo.clear()
            self._undo_from = 0
        while self._undo and self._undo[-1][0] >= end:
            _, key, before = self._undo.pop()
            _put(self.ends, key, before)
        return is_undone


def _put(ends: dict[Key, int], key: Key, end: int | None) -> None:
    if end is None:
        ends.pop(key, None)
    else:
        ends[key] = end


def _number(text: str) -> int | None:
    number = decimal(text)
    return number if number is not None and 0 <= number <= _LONG_MAX else None
