"""States of POP in order: which batch of a queue is out, which of its messages are acknowledged, until when it blocks.

A core. Each queue of a topic and a group has one state. A change makes a new state, which counts here at once; the
caller stores it and reports ``stored`` (it stays) or ``refused`` (it is undone). States have RocketMQ's fields, so each
broker reads the other's. Two differences: a message that is acknowledged in the middle of a batch is not given again
with the rest; and without a state an acknowledgement moves the group over that one message, never over others.
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
"""Messages of a batch: RocketMQ has one bit of a long for each."""
_BITS: Final = (1 << 64) - 1
UNUSED_MS: Final = 86_400_000
"""A state that has not changed for this long is dropped."""


class OrderKey(NamedTuple):
    """Names one state: a queue of a topic, for one group."""

    topic: str
    """The topic of the queue, which may be a retry topic."""
    group: str
    queue_id: int


@body
class OrderInfo(Body):
    """The state of one queue: the batch that was given last. An entry of ``consumerOrderInfo.json``."""

    pop_time_ms: Int64 = wire_name("popTime")
    distances: list[Int64] = wire_name("o")
    """The first offset of the batch, then the distances of the others from it."""
    invisible_ms: Int64 | None = wire_name("i", default=None)
    visible: dict[Int64, Int64] | None = wire_name("ot", default=None)
    """By offset, the time until which it blocks, ms: only messages whose invisible time a consumer changed."""
    counts: dict[Int64, Int32] | None = wire_name("oc", default=None)
    """By offset, how often it was given before; missing ones never were."""
    last_ms: Int64 = wire_name("l", default=0)
    """Time when the batch was given, in milliseconds."""
    bits: Int64 = wire_name("cm", default=0)
    """Bit i is set when message i of the batch is acknowledged."""
    attempt_id: str | None = wire_name("a", default=None)
    """Id of the request that got the batch: a retry with this id is not blocked."""

    @property
    def offsets(self) -> list[int]:
        """Queue offsets of all messages of the batch."""
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
        """Offsets that are not acknowledged yet."""
        return [offset for at, offset in enumerate(self.offsets) if not self._is_done(at)]

    @property
    def done(self) -> list[int]:
        """Offsets that are acknowledged, in order."""
        return [offset for at, offset in enumerate(self.offsets) if self._is_done(at)]

    def is_done(self, offset: int) -> bool:
        """Return whether this message of the batch is acknowledged."""
        return self._is_done(self.offsets.index(offset))

    @property
    def next_offset(self) -> int:
        """The group's offset: after the acknowledged messages at the front of the batch."""
        end = self.distances[0]
        for at, offset in enumerate(self.offsets):
            if not self._is_done(at):
                break
            end = offset + 1
        return end

    def until_ms(self, invisible_ms: int = 0) -> int:
        """Return when the batch stops blocking; 0: all is acknowledged. ``invisible_ms``: for states that have none."""
        visible = self.visible or {}
        usual = self.pop_time_ms + (self.invisible_ms or invisible_ms)
        return max((visible.get(offset, usual) for offset in self.open), default=0)

    def is_blocked(self, now_ms: int, attempt_id: str | None, invisible_ms: int = 0) -> bool:
        """Return whether the batch blocks a request with this attempt id now."""
        if self.attempt_id is not None and self.attempt_id == attempt_id:
            return False
        return now_ms < self.until_ms(invisible_ms)

    def before(self, offsets: Sequence[int], attempt_id: str | None) -> dict[int, int]:
        """Return by offset how often messages of this batch were given before. A retry of one attempt counts once."""
        counts = self.counts or {}
        if self.attempt_id is not None and self.attempt_id == attempt_id:
            return counts
        mine = set(self.offsets)
        return {offset: counts.get(offset, 0) + 1 for offset in offsets if offset in mine}

    def acked(self, offset: int) -> Self:
        """The state with this message acknowledged. Raises ``ValueError`` if it is not in the batch."""
        bits = (self.bits | 1 << self.offsets.index(offset)) & _BITS
        return attrs.evolve(self, bits=bits - (bits >> 63 << 64))

    def moved(self, offset: int, visible_ms: int) -> Self:
        """The state with this message blocking until ``visible_ms``."""
        return attrs.evolve(self, visible={**(self.visible or {}), offset: visible_ms})


def given(offsets: Sequence[int], pop_time_ms: int, invisible_ms: int, attempt_id: str | None,
          before: OrderInfo | None = None) -> OrderInfo:
    """The state of a batch that is given now. It keeps those later messages of the batch ``before`` that are not given
    again: acknowledged ones stay so, open ones block no request. So the group's offset never jumps over them."""
    first, counts, others = offsets[0], None, dict[int, bool]()
    if before is not None:
        counts = dict(before.before(offsets, attempt_id))
        later = [(offset, before.is_done(offset)) for offset in before.offsets if offset > first]
        others = dict([each for each in later if each[0] not in offsets][:max(0, BATCH_MAX - len(offsets))])
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
    """Reasons why an acknowledgement or a change of the time changes no state."""

    DONE = "in front of the group's offset"
    LATE = "acknowledged before, or the batch was given again since, or another master gave it"
    NOT_IN_BATCH = "not in the batch that was given"


@attrs.frozen(eq=False)
class Change:
    """A new state of one queue, to be stored in the order topic."""

    key: OrderKey
    state: OrderInfo | None
    """None: the queue has no state any more."""
    counts: Mapping[int, int] = attrs.field(factory=dict)
    """By offset, how often messages of the batch were given before; missing ones never were."""
    least: int = 0
    """The least count of the batch's messages."""

    @property
    def next_offset(self) -> int | None:
        """The group's offset by the new state; None: there is no state."""
        return None if self.state is None else self.state.next_offset


@attrs.frozen
class Kept:
    """A stored state, its place in the order topic (-1: not there yet), and the epoch of the master that stored it."""

    state: OrderInfo
    place: int
    epoch: int


class Orders:
    """The states of all queues, with the changes in flight."""

    def __init__(self) -> None:
        self.kept: dict[OrderKey, Kept] = {}
        """States that are stored, by key."""
        self._places: dict[OrderKey, int] = {}
        """Place in the order topic of each key's last record, even if that removes the state."""
        self._pending: dict[OrderKey, list[Change]] = {}
        """Changes in flight, in the order of their puts."""
        self._passed = 0
        """All records before this place are read."""

    def state(self, key: OrderKey) -> OrderInfo | None:
        """The newest state of the queue, stored or in flight."""
        pending = self._pending.get(key)
        if pending:
            return pending[-1].state
        kept = self.kept.get(key)
        return None if kept is None else kept.state

    def blocked(self, key: OrderKey, now_ms: int, attempt_id: str | None, invisible_ms: int = 0) -> bool:
        """Return whether this queue may give nothing now. ``invisible_ms``: the request's invisible time."""
        state = self.state(key)
        return state is not None and state.is_blocked(now_ms, attempt_id, invisible_ms)

    def done(self, key: OrderKey) -> Collection[int]:
        """Acknowledged offsets of the batch, which are not given again."""
        state = self.state(key)
        return () if state is None else state.done

    # --- changes ---------------------------------------------------------------------------------------------

    def deliver(self, key: OrderKey, pop_time_ms: int, invisible_ms: int, offsets: Sequence[int],
                attempt_id: str | None) -> Change:
        """A batch is given to a consumer: ``offsets`` rise, and there is at least one."""
        state = given(offsets, pop_time_ms, invisible_ms, attempt_id, self.state(key))
        counts = state.counts or {}
        return self._begin(Change(key, state, counts, min(counts.get(offset, 0) for offset in offsets)))

    def ack(self, key: OrderKey, offset: int, pop_time_ms: int, committed: int) -> Change | Ignored:
        """A message is acknowledged. ``committed``: the group's offset."""
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
        """A message shall block until ``visible_ms``."""
        state = self.state(key)
        if state is None or state.pop_time_ms != pop_time_ms or offset not in state.open:
            return Ignored.LATE
        return self._begin(Change(key, state.moved(offset, visible_ms)))

    def clear(self, key: OrderKey) -> Change | None:
        """Remove the state, since the group was reset or deleted. None: there is none."""
        return None if self.state(key) is None else self._begin(Change(key, None))

    def again(self, key: OrderKey) -> Change | None:
        """Store the present state once more; None: there is none, or a change of it is in flight."""
        kept = self.kept.get(key)
        return None if kept is None or key in self._pending else self._begin(Change(key, kept.state))

    def still(self, key: OrderKey) -> Change:
        """Store the present state as a test of mastership: a replaced master cannot store it."""
        return self._begin(Change(key, self.state(key)))

    def _begin(self, change: Change) -> Change:
        self._pending.setdefault(change.key, []).append(change)
        return change

    # --- results of puts -------------------------------------------------------------------------------------

    def stored(self, change: Change, place: int, epoch: int) -> None:
        """The change is in the order topic. It contains all earlier changes of its queue, so these are stored too, even
        if their puts are answered later (a put that demands more replicas waits longer)."""
        pending = self._pending.get(change.key, [])
        self._settle(change.key, pending[pending.index(change) + 1:] if change in pending else pending)
        self.heard(change.key, change.state, place, epoch)

    def is_last(self, change: Change) -> bool:
        """Return whether this is the last stored change of its queue."""
        kept = self.kept.get(change.key)
        return kept is not None and kept.state is change.state

    def is_out(self, change: Change) -> bool:
        """Return whether the queue still has the batch of this delivery: it was neither given again nor removed."""
        now, then = self.state(change.key), change.state
        return now is not None and then is not None and (
            now.pop_time_ms, now.attempt_id) == (then.pop_time_ms, then.attempt_id)

    def refused(self, change: Change) -> None:
        """The change was not written. Later changes of its queue contain it, so it may still be stored with them."""
        self._settle(change.key, [each for each in self._pending.get(change.key, []) if each is not change])

    def _settle(self, key: OrderKey, left: list[Change]) -> None:
        if left:
            self._pending[key] = left
        else:
            self._pending.pop(key, None)

    def forget_pending(self) -> None:
        """Forget changes in flight, since no answer will come; those that were written are read from the log."""
        self._pending.clear()

    def heard(self, key: OrderKey, state: OrderInfo | None, place: int, epoch: int) -> None:
        """Take a record of the order topic, unless a later record of this queue was taken."""
        if place < self._places.get(key, self._passed):
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
        """All records before ``place`` are read: places of removed states before it are not needed any more."""
        self._passed = place
        for key in [key for key, at in self._places.items() if at < place and key not in self.kept]:
            del self._places[key]

    def restore(self, key: OrderKey, state: OrderInfo, place: int, epoch: int) -> None:
        """Take a state from this broker's file. Place -1: the order topic does not hold it."""
        self._places[key] = place
        self.kept[key] = Kept(state, place, epoch)

    # --- all of them -----------------------------------------------------------------------------------------

    def least_place(self) -> int | None:
        """The first place of the order topic that holds a state; None: no state is there."""
        return min((kept.place for kept in self.kept.values() if kept.place >= 0), default=None)

    @property
    def last_place(self) -> int:
        """The last place of any record that was stored or read; -1: there was none."""
        return max(self._places.values(), default=-1)

    def unwritten(self) -> list[OrderKey]:
        """Keys of states that no record of the order topic holds."""
        return [key for key, kept in self.kept.items() if kept.place < 0]

    def of(self, *, topic: str | None = None, group: str | None = None) -> list[OrderKey]:
        """Queues of the topic, or of the group, that have a state."""
        return [key for key in {*self.kept, *self._pending} if key.topic == topic or key.group == group]

    def unused(self, now_ms: int) -> Iterator[OrderKey]:
        """Keys of states that have not changed for ``UNUSED_MS``."""
        for key, kept in self.kept.items():
            if max(kept.state.last_ms, kept.state.until_ms()) + UNUSED_MS < now_ms and key not in self._pending:
                yield key

    def void(self, reigns: Collection[int], known: Collection[int], epoch: int) -> list[OrderKey]:
        """Keys of void states: a reign between theirs and ``epoch`` has no record in the order topic, so a RocketMQ
        broker was master then and kept its own states. ``reigns``: epochs that wrote to the log; ``known``: those with
        a record."""
        last = max((each for each in reigns if each not in known and each < epoch), default=-1)
        return [key for key, kept in self.kept.items() if 0 <= kept.place and kept.epoch < last]
