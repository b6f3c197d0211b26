"""Mends a consume queue whose entries point at no messages: it gets them from the log again, while it is in use.

The log is walked through, a slice at a time. Entries that the queue lacks are remembered, and written all at once
at the end of the walk: a reader sees the old entry or the right one. An entry that points at its own message stays
as it is, whatever else the log says of that place: its topic may have been deleted and made anew. Entries of messages
that nobody finds point nowhere, and readers pass over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from broker.store.consumequeue import ENTRY, NOWHERE, NOWHERE_SIZE, ConsumeQueue
from broker.store.dispatch import SCHEDULE_TOPIC, Dispatcher, in_queue
from broker.store.errors import OffsetGone
from broker.store.log import Log
from broker.store.queues import Queue, Queues
from broker.store.visible import Visible
from remoting.errors import DamagedRecord
from remoting.record import RECORD_BYTES_MIN, Outline

REMEMBERED_MAX: Final = 1 << 18
"""Entries that one walk remembers; if more are damaged, another walk follows."""

GONE: Final = "its topic was deleted"


class _Walk:
    """A walk through the log for one queue, as far as consumers see the log now."""

    def __init__(self, log: Log, queues: Queues, key: Queue, queue: ConsumeQueue, upto: int, most: int) -> None:
        self._log, self._key, self.queue, self._most = log, key, queue, most
        self._code = queues.tag_code
        assert queue.min_offset <= queue.max_offset and upto <= log.max_offset
        self._begin, self._end, self._upto = queue.min_offset, queue.max_offset, upto
        self._dispatcher = Dispatcher(log, log.min_offset, self._take, cached=False)
        self._right: dict[int, bytes] = {}
        self._found = bytearray(self._end - self._begin)
        """1 at each place whose message is in the log."""
        self.is_partial = False
        """True: there was too much to remember, so another walk must find the rest."""

    def step(self, most: int) -> bool:
        """Look at so many messages more. False: that was the last. Raises ``DamagedRecord``."""
        if self._dispatcher.offset < self._log.min_offset:  # deleted meanwhile
            self._dispatcher = Dispatcher(self._log, self._log.min_offset, self._take, cached=False)
        return self._dispatcher.dispatch(self._upto, most) == most

    def _take(self, run: Sequence[Outline]) -> None:
        topic, queue_id = self._key
        begin, end = max(self._begin, self.queue.min_offset), self._end
        for offset, size, of_queue, place, sys_flag, time_ms, of_topic, properties in run:
            if of_queue != queue_id or of_topic != topic or not in_queue(sys_flag) or not begin <= place < end:
                continue
            self._found[place - self._begin] = 1
            entry = ENTRY.pack(offset, size, self._code(topic, properties, time_ms))
            if self._agrees(place, entry):
                self._right.pop(place, None)
            elif place in self._right or len(self._right) < self._most:
                self._right[place] = entry
            else:
                self.is_partial = True

    def _agrees(self, place: int, entry: bytes) -> bool:
        """Return whether the queue has this entry already, or one that points at another message with the same
        place."""
        present = self.queue.read(place, 1)
        if present == entry:
            return True
        if present[:12] == entry[:12]:
            return self._key[0] == SCHEDULE_TOPIC  # there the code is when it is due, set as it came
        offset, size, _ = ENTRY.unpack(present)
        if size == NOWHERE_SIZE or size < RECORD_BYTES_MIN or offset < self._log.min_offset:
            return False
        try:
            found = self._log.record(offset, size)
        except (DamagedRecord, OffsetGone):
            return False
        return (found.message.topic, found.message.queue_id, found.queue_offset, found.size) == (
            *self._key, place, size)

    def write(self) -> None:
        """Write the entries that were found into the queue. Raises ``OSError``."""
        assert len(self._right) <= self._most, "memory has a bound"
        places = sorted(place for place in self._right if place >= self.queue.min_offset)
        runs = [0, *(at for at, (one, other) in enumerate(pairwise(places), 1) if other != one + 1), len(places)]
        for run in (places[first:last] for first, last in pairwise(runs) if first < last):
            self.queue.mend(run[0], b"".join(map(self._right.__getitem__, run)))
        self._right.clear()

    def give_up_rest(self) -> None:
        """Let entries that have no message in the log point nowhere from now on. Raises ``OSError``."""
        assert not self.is_partial and not self._right, "all that was found is written"
        at = max(0, self.queue.min_offset - self._begin)
        while (at := self._found.find(0, at)) >= 0:
            if self.queue.read(self._begin + at, 1) != NOWHERE:
                self.queue.mend(self._begin + at, NOWHERE)
            at += 1


class Mender:
    """Mends damaged queues one after the other: ``ask`` for one, and ``step`` while it ``is_busy``."""

    def __init__(self, log: Log, queues: Queues, visible: Visible, *, remembered_max: int = REMEMBERED_MAX) -> None:
        self._log, self._queues, self._visible, self._most = log, queues, visible, remembered_max
        self._waiting: list[Queue] = []
        self._walk: _Walk | None = None
        self._outcomes: dict[Queue, str] = {}
        """Outcome of the last mending, by queue; only queues that this process mended."""
        queues.on_damage.call = self.ask

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def ask(self, topic: bytes, queue_id: int) -> str:
        """Mend this queue, once in the life of a process. Returns in words what becomes of it."""
        key = topic, queue_id
        if key in self._outcomes:
            return self._outcomes[key]
        if key not in self._waiting:
            self._waiting.append(key)
            self._queues.say(f"queue {queue_id} of {topic.decode()} is damaged: it is built again from the log")
        return "it is built again from the log; ask again"

    def begins(self, topic: bytes, queue_id: int) -> bool:
        """Mend this queue as ``ask`` does. Returns whether it is still being mended."""
        self.ask(topic, queue_id)
        return (topic, queue_id) in self._waiting

    def restart(self) -> None:
        """Begin the walk again: the log was cut, or queues were deleted, so what was found may not hold any more."""
        self._walk = None

    def step(self, most: int) -> None:
        """Look at ``most`` messages of the log, and write what was found once all were looked at."""
        topic, queue_id = key = self._waiting[0]
        queue = self._queues.peek(key)
        outcome: str | None
        try:
            assert len({*self._waiting}) == len(self._waiting), "each is mended once"
            outcome = GONE if queue is None else self._mend(key, queue, most)
        except OSError as error:
            outcome = f"it cannot be built again: {error}"
        if outcome is not None:
            self._waiting.pop(0)
            self._walk = None
            if queue is not None:
                self._outcomes[key] = outcome
            self._queues.say(f"queue {queue_id} of {topic.decode()}: {outcome}")

    def _mend(self, key: Queue, queue: ConsumeQueue, most: int) -> str | None:
        """Go on with one queue. Returns the outcome in words; None: it is not finished. Raises ``OSError``."""
        walk = self._walk
        if walk is None:
            walk = self._walk = _Walk(self._log, self._queues, key, queue, self._visible.offset, self._most)
        assert walk.queue is queue, "another queue is another walk"
        try:
            if walk.step(most):
                return None
        except DamagedRecord as damage:
            walk.write()
            self._queues.to_flush(key)
            return f"it was built again in part: the log is damaged, and messages after that are not found: {damage}"
        walk.write()
        if walk.is_partial:
            self._walk = None
            return None
        walk.give_up_rest()
        queue.trust()
        self._queues.to_flush(key)
        return "it was built again from the log"
