"""Order of POP: which batch of a queue is out with a consumer, what of it is done with, and until when it blocks.

A core. One state for each queue of a topic and a group; a change gives a new one, which counts here at once and is
stored by whoever asked: told ``stored`` it stays, told ``refused`` it never was. States are Java's, field by field, so
either broker reads the other's. Two things are better than there: what is done with in the middle of a batch is not
given again with the rest; and where there is no state, an acknowledgement moves the group behind its next message
alone, never over others.
Source: ``ConsumerOrderInfoManager`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

import attrs

from remoting.body import Body, body
from remoting.errors import BodyError
from remoting.fields import Int32, Int64, wire_name

BATCH_MAX: Final = 64
"""Messages: Java has a bit of a long for each."""
_BITS: Final = (1 << 64) - 1
UNUSED_MS: Final = 86_400_000
"""A state that nobody has touched for so long is dropped."""


class OrderKey(NamedTuple):
    """What has a state of its own."""

    topic: str
    """Where the messages stand: a retry topic perhaps."""
    group: str
    queue_id: int


@body
class OrderInfo(Body):
    """The state of one queue: a batch that was given. An entry of ``consumerOrderInfo.json``."""

    pop_time_ms: Int64 = wire_name("popTime")
    distances: list[Int64] = wire_name("o")
    """The first offset of the batch, then how far from it the others are."""
    invisible_ms: Int64 | None = wire_name("i", default=None)
    visible: dict[Int64, Int64] | None = wire_name("ot", default=None)
    """By offset, until when it blocks, ms: of those for which a consumer asked for another time."""
    counts: dict[Int64, Int32] | None = wire_name("oc", default=None)
    """By offset, how often it had been given before; the others never."""
    last_ms: Int64 = wire_name("l", default=0)
    """When it was given."""
    bits: Int64 = wire_name("cm", default=0)
    """Bit i: the message i of the batch is done with."""
    attempt_id: str | None = wire_name("a", default=None)
    """Of the request that it was given to: when that comes again, nothing blocks it."""

    @property
    def offsets(self) -> list[int]:
        """Of the messages of the batch."""
        first, *others = self.distances
        return [first, *(first + distance for distance in others)]

    def check(self) -> None:
        """Raises ``BodyError``: no POP leaves such a state."""
        first, *others = self.distances or [-1]
        if first < 0 or len(self.distances) > BATCH_MAX or any(
                two <= one for one, two in zip([0, *others], others, strict=False)):
            raise BodyError(f"a batch of {len(self.distances)} offsets from {first} on; 1 to {BATCH_MAX} that rise are "
                            "possible")

    def _is_done(self, at: int) -> bool:
        return bool(self.bits & _BITS & 1 << at)

    @property
    def open(self) -> list[int]:
        """Offsets that are not done with."""
        return [offset for at, offset in enumerate(self.offsets) if not self._is_done(at)]

    @property
    def done(self) -> list[int]:
        """Offsets that are done with."""
        return [offset for at, offset in enumerate(self.offsets) if self._is_done(at)]

    def is_done(self, offset: int) -> bool:
        """Of a message of the batch."""
        return self._is_done(self.offsets.index(offset))

    @property
    def next_offset(self) -> int:
        """Where the group goes on: behind the messages in front that are done with."""
        behind = self.distances[0]
        for at, offset in enumerate(self.offsets):
            if not self._is_done(at):
                break
            behind = offset + 1
        return behind

    def until_ms(self, invisible_ms: int = 0) -> int:
        """When it blocks no more; 0 where all is done. ``invisible_ms``: of who asks, where the state has none."""
        visible = self.visible or {}
        usual = self.pop_time_ms + (self.invisible_ms or invisible_ms)
        return max((visible.get(offset, usual) for offset in self.open), default=0)

    def is_blocked(self, now_ms: int, attempt_id: str | None, invisible_ms: int = 0) -> bool:
        """Whether a request has to wait until then."""
        if self.attempt_id is not None and self.attempt_id == attempt_id:
            return False
        return now_ms < self.until_ms(invisible_ms)

    def before(self, offsets: Sequence[int], attempt_id: str | None) -> dict[int, int]:
        """By offset, how often these were given before: of those that were in this batch. The same attempt again is no
        further time."""
        counts = self.counts or {}
        if self.attempt_id is not None and self.attempt_id == attempt_id:
            return counts
        mine = set(self.offsets)
        return {offset: counts.get(offset, 0) + 1 for offset in offsets if offset in mine}

    def acked(self, offset: int) -> Self:
        """Raises ``ValueError``: it is not in the batch."""
        bits = (self.bits | 1 << self.offsets.index(offset)) & _BITS
        return attrs.evolve(self, bits=bits - (bits >> 63 << 64))

    def moved(self, offset: int, visible_ms: int) -> Self:
        """With another time until which that message blocks."""
        return attrs.evolve(self, visible={**(self.visible or {}), offset: visible_ms})


def given(offsets: Sequence[int], pop_time_ms: int, invisible_ms: int, attempt_id: str | None,
          before: OrderInfo | None = None) -> OrderInfo:
    """The state of a batch that goes out now. Of the batch before, what stands behind its first message and does not go
    out now stays in it: done with as it was, or open and blocking nobody, so the group is taken past none of it."""
    first, counts, others = offsets[0], None, dict[int, bool]()
    if before is not None:
        counts = dict(before.before(offsets, attempt_id))
        behind = [(offset, before.is_done(offset)) for offset in before.offsets if offset > first]
        others = dict([each for each in behind if each[0] not in offsets][:max(0, BATCH_MAX - len(offsets))])
        counts |= {offset: count for offset, count in (before.counts or {}).items() if offset in others}
    whole = sorted({*offsets, *others})
    waiting = {offset: 0 for offset, done in others.items() if not done}
    made = OrderInfo(pop_time_ms, [first, *(offset - first for offset in whole[1:])], invisible_ms, waiting or None,
                     counts, last_ms=pop_time_ms, attempt_id=attempt_id)
    for offset, done in others.items():
        if done:
            made = made.acked(offset)
    return made


class Ignored(enum.Enum):
    """An acknowledgement, or a change, that changes nothing."""

    DONE = "in front of the group's offset"
    LATE = "done with before, or of a batch that was given again since, or that another master gave"
    NOT_IN_BATCH = "not among what was given"


@attrs.frozen(eq=False)
class Change:
    """What becomes of one queue's state. To be stored."""

    key: OrderKey
    state: OrderInfo | None
    """None: there is none any more."""
    counts: Mapping[int, int] = attrs.field(factory=dict)
    """Of a batch: by offset, how often it was given before; the others never."""
    least: int = 0
    """The least of all these numbers."""

    @property
    def next_offset(self) -> int | None:
        """Where the group goes on; None: nobody knows."""
        return None if self.state is None else self.state.next_offset


@attrs.frozen
class Kept:
    """A state that is stored: at which place of the order topic, and by which reign; -1: by nobody there yet."""

    state: OrderInfo
    place: int
    epoch: int


class Orders:
    """The states of all queues."""

    def __init__(self) -> None:
        self.kept: dict[OrderKey, Kept] = {}
        """What is stored."""
        self._places: dict[OrderKey, int] = {}
        """Of what is stored last of each, a state or that there is none."""
        self._pending: dict[OrderKey, list[Change]] = {}
        """What is being stored, in its order."""

    def state(self, key: OrderKey) -> OrderInfo | None:
        """The present one, stored or about to be."""
        pending = self._pending.get(key)
        if pending:
            return pending[-1].state
        kept = self.kept.get(key)
        return None if kept is None else kept.state

    def blocked(self, key: OrderKey, now_ms: int, attempt_id: str | None, invisible_ms: int = 0) -> bool:
        """Whether nothing may be given of this queue now. ``invisible_ms``: what the request asks for."""
        state = self.state(key)
        return state is not None and state.is_blocked(now_ms, attempt_id, invisible_ms)

    def done(self, key: OrderKey) -> Collection[int]:
        """Offsets that are not to be given again, whatever stands before them."""
        state = self.state(key)
        return () if state is None else state.done

    # --- what changes ----------------------------------------------------------------------------------------

    def deliver(self, key: OrderKey, pop_time_ms: int, invisible_ms: int, offsets: Sequence[int],
                attempt_id: str | None) -> Change:
        """These, at least one and in their order, are given to a consumer."""
        state = given(offsets, pop_time_ms, invisible_ms, attempt_id, self.state(key))
        counts = state.counts or {}
        return self._begin(Change(key, state, counts, min(counts.get(offset, 0) for offset in offsets)))

    def ack(self, key: OrderKey, offset: int, pop_time_ms: int, committed: int) -> Change | Ignored:
        """One is done with. ``committed``: the group's offset."""
        state = self.state(key)
        if offset < committed:
            return Ignored.DONE
        if state is None:
            if offset > committed:
                return Ignored.LATE
            return self._begin(Change(key, given([offset], pop_time_ms, 0, None).acked(offset)))
        if state.pop_time_ms != pop_time_ms:
            return Ignored.LATE
        if offset not in state.offsets:
            return Ignored.NOT_IN_BATCH
        return self._begin(Change(key, state.acked(offset)))

    def change(self, key: OrderKey, offset: int, pop_time_ms: int, visible_ms: int) -> Change | Ignored:
        """One is to block until then."""
        state = self.state(key)
        if state is None or state.pop_time_ms != pop_time_ms or offset not in state.open:
            return Ignored.LATE
        return self._begin(Change(key, state.moved(offset, visible_ms)))

    def clear(self, key: OrderKey) -> Change | None:
        """The group goes on elsewhere, or is gone: nothing blocks. None: there is nothing to clear."""
        return None if self.state(key) is None else self._begin(Change(key, None))

    def again(self, key: OrderKey) -> Change | None:
        """As it is, to be stored once more; None: it is gone, or is being stored anyway."""
        kept = self.kept.get(key)
        return None if kept is None or key in self._pending else self._begin(Change(key, kept.state))

    def still(self, key: OrderKey) -> Change:
        """As it is: who stores that is master, and knows all that was given."""
        return self._begin(Change(key, self.state(key)))

    def _begin(self, change: Change) -> Change:
        self._pending.setdefault(change.key, []).append(change)
        return change

    # --- what became of it -----------------------------------------------------------------------------------

    def stored(self, change: Change, place: int, epoch: int) -> None:
        """It is in the order topic, and stays there. So does what was asked before it and is in it, whenever that is
        answered: a put that demanded more replicas waits longer than one behind it."""
        pending = self._pending.get(change.key, [])
        self._settle(change.key, pending[pending.index(change) + 1:] if change in pending else pending)
        self.heard(change.key, change.state, place, epoch)

    def is_last(self, change: Change) -> bool:
        """Whether nothing that was asked behind it is stored."""
        kept = self.kept.get(change.key)
        return kept is not None and kept.state is change.state

    def refused(self, change: Change) -> None:
        """It was not written. What was asked after it stands on it, and is in it."""
        self._settle(change.key, [each for each in self._pending.get(change.key, []) if each is not change])

    def _settle(self, key: OrderKey, left: list[Change]) -> None:
        if left:
            self._pending[key] = left
        else:
            self._pending.pop(key, None)

    def forget_pending(self) -> None:
        """Nobody will say what becomes of it: what was written is heard."""
        self._pending.clear()

    def heard(self, key: OrderKey, state: OrderInfo | None, place: int, epoch: int) -> None:
        """The order topic says so. What it said behind that counts more."""
        if place < self._places.get(key, -1):
            return
        self._places[key] = place
        if state is None:
            self.kept.pop(key, None)
        else:
            self.kept[key] = Kept(state, place, epoch)

    def drop(self, key: OrderKey) -> None:
        """Forget a state here; other replicas keep it."""
        self.kept.pop(key, None)

    def passed(self, place: int) -> None:
        """All is heard that stands before: nothing older comes any more."""
        for key in [key for key, at in self._places.items() if at < place and key not in self.kept]:
            del self._places[key]

    def restore(self, key: OrderKey, state: OrderInfo, place: int, epoch: int) -> None:
        """As this broker's own file has it; place -1: the order topic does not."""
        self._places[key] = place
        self.kept[key] = Kept(state, place, epoch)

    # --- all of them -----------------------------------------------------------------------------------------

    def least_place(self) -> int | None:
        """The first place of the order topic that is needed; None: none is."""
        return min((kept.place for kept in self.kept.values() if kept.place >= 0), default=None)

    @property
    def last_place(self) -> int:
        """Of all that was stored or heard; -1: nothing was."""
        return max(self._places.values(), default=-1)

    def unwritten(self) -> list[OrderKey]:
        """States that no message of the order topic holds."""
        return [key for key, kept in self.kept.items() if kept.place < 0]

    def of(self, *, topic: str | None = None, group: str | None = None) -> list[OrderKey]:
        """Queues of the topic, or of the group, that have a state."""
        return [key for key in {*self.kept, *self._pending} if key.topic == topic or key.group == group]

    def unused(self, now_ms: int) -> Iterator[OrderKey]:
        """States that nobody has touched for a day."""
        for key, kept in self.kept.items():
            if max(kept.state.last_ms, kept.state.until_ms()) + UNUSED_MS < now_ms and key not in self._pending:
                yield key

    def void(self, reigns: Collection[int], known: Collection[int], epoch: int) -> list[OrderKey]:
        """States that were stored before some reign up to ``epoch`` that left no word in the order topic: another
        kind of broker was master then. ``reigns``: epochs that wrote to the log; ``known``: those that left word."""
        strange = sorted(each for each in reigns if each not in known and each < epoch)
        last = strange[-1] if strange else -1
        return [key for key, kept in self.kept.items() if 0 <= kept.place and kept.epoch < last]
