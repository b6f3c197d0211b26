"""Checks popped messages for ``BrokerWatch``: INV_B38 and INV_B45 to INV_B52.

Deliveries and acknowledgements are known from answers as they leave a broker, invisible times from checkpoints as they
are put and seen, and returned messages from puts into retry topics. Brokers' own state is not read.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from broker.ha.acks import PutStatus
from broker.offsets.part import OffsetsPart
from broker.pop import records
from broker.properties import REAL_QID, REAL_TOPIC, TIMER_DONE, TIMER_MOVED
from broker.puts import PutResult
from broker.timer.letters import ROLL_TIMES
from broker.topics.names import TIMER, pop_retry_topic, revive_topic
from harness.simulation.brokers.client import KNOWN
from harness.simulation.brokers.features import POP_TOPIC
from harness.simulation.brokers.judging import Judge
from harness.simulation.brokers.ordered import FIFO, InOrder
from harness.simulation.brokers.plan import CLUSTER
from remoting.bodies.popping import CheckPoint
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.headers.popping import PopMessageResponse
from remoting.receipts import Receipt, read_offsets, read_starts
from remoting.record import Message, Outline, decode, decode_properties

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch

TOPIC: Final = POP_TOPIC
PLAIN: Final = ("one", "two")
GROUPS: Final = (*PLAIN, FIFO)
"""The groups that pop; the last one pops in order."""
POPPED: Final = (
    "message to be popped acknowledged", "popped", "popped again", "acknowledged in time", "acknowledged late",
    "put back", "put back by a later master", "group reset")
"""Outcomes of popped messages that each campaign must meet. "put back again" is none: a master has to be lost between
that and its confirmation."""
BACK_MS: Final = 7_000
"""If nothing fails, a message is back so long after the end of its invisible time."""
_RETRY: Final = {pop_retry_topic(TOPIC, group, v2=v2).encode(): group for group in PLAIN for v2 in (False, True)}
_REVIVE: Final = revive_topic(CLUSTER)
_WHEEL: Final = TIMER.encode()
Place = tuple[str, str, int, int]
"""(group, topic of the record, queue, offset)."""


@attrs.define(eq=False)
class PoppedMessage:
    """A message that was sent, and its known state."""

    number: int
    queue: int
    body: bytes
    status: PutStatus | None = None
    """Outcome of its put; None: unknown."""
    offset: int = -1
    """Its queue offset, once it was seen."""
    asked: set[str] = attrs.field(factory=set)
    """Groups that requested its acknowledgement."""


class _Back(enum.Enum):
    NOT = enum.auto()
    UNKNOWN = enum.auto()
    """It was put; the outcome is unknown."""
    STORED = enum.auto()


@attrs.define(eq=False)
class Delivery:
    """A record in a checkpoint: a consumer holds it until its invisible time is over."""

    message: PoppedMessage
    place: Place
    pop_time_ms: int
    visible_ms: int
    """End of its invisible time."""
    epoch: int
    """The latest master epoch when it was made."""
    stored: bool = False
    """The checkpoint was acknowledged or seen."""
    given: bool = False
    acked: bool = False
    """Its acknowledgement was answered within its time."""
    forgiven: bool = False
    """Its group was reset since."""
    shared: bool = False
    """A POP behind a reset, and the change of a time in the same millisecond, made two checkpoints of one name: an
    acknowledgement ends one of them, and no receipt tells which."""
    back: _Back = _Back.NOT
    by: tuple[BrokerProcess, int] | None = None
    """The run that put it back, and the opening of its writes."""


@attrs.frozen
class Given:
    """A delivered message, as its client knows it."""

    group: str
    topic: str
    queue: int
    offset: int
    receipt: Receipt


class Pops(Judge):
    """Checks the popped messages of one scene."""

    topics = frozenset({TOPIC.encode(), _REVIVE.encode(), _WHEEL, *_RETRY})

    def __init__(self, watch: BrokerWatch) -> None:
        super().__init__(watch)
        self.sent: list[PoppedMessage] = []
        self.ends: dict[int, int] = {}
        """Queue -> its end, as seen so far."""
        self._at: dict[tuple[str, int, int], PoppedMessage] = {}
        """(topic, queue, offset) -> the message seen there."""
        self._deliveries: dict[tuple[Place, int, int, int], Delivery] = {}
        """(place, pop time, revive queue, start of the checkpoint) -> the delivery. Several POPs of one millisecond may
        take the same place, after a reset or a refusal; each has its own checkpoint."""
        self._of_place: defaultdict[Place, list[Delivery]] = defaultdict(list)
        self._of_message: defaultdict[tuple[str, int], list[Delivery]] = defaultdict(list)
        """(group, number of a message) -> its deliveries."""
        self._covered: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        """(group, topic, queue) -> offset up to which all is in checkpoints or was skipped by a reset."""
        self._skipped: defaultdict[tuple[str, int], int] = defaultdict(int)
        """(group, queue) -> the highest offset to which a reset may have sent the group."""
        self._master: BrokerProcess | None = None
        """The run that last gave messages in order."""
        self._muddled: set[tuple[str, int]] = set()
        """(group, queue) with a reset, which takes effect at an unknown time."""
        self.in_order = InOrder(self._is_broken)
        self._calm_ms: int | None = None
        """Time since which nothing fails and a master gives messages."""

    def _is_broken(self, name: str, words: str, *facts: object) -> None:
        """Report a violation of the ordered group, unless an allowed loss happened."""
        if self.complete and self._master is not None:
            self._broken(name, words, self._master, *facts)

    # --- checkpoints, and what is put back -------------------------------------------------------------------

    def puts(self, process: BrokerProcess, messages: Sequence[Message]) -> None:
        """Note checkpoints and check returning messages, right before they are put."""
        for message in messages:
            group = _RETRY.get(message.topic)
            if group is not None:
                self._puts_back(process, group, message)
            elif (found := _checkpoint(message)) is not None:
                for place in _places(found[0]):
                    self._made(place, *found)

    def _made(self, place: Place, checkpoint: CheckPoint, revive_queue: int) -> Delivery | None:
        """The delivery of a checkpoint's record; None: the record was never seen, so its log was lost."""
        key = place, checkpoint.pop_time_ms, revive_queue, checkpoint.start_offset
        known = self._deliveries.get(key)
        if known is not None:
            known.shared |= (place[0], place[2]) in self._muddled and checkpoint.revive_time_ms != known.visible_ms
            known.visible_ms = max(known.visible_ms, checkpoint.revive_time_ms)
            return known
        message = self._at.get(place[1:])
        if message is None:
            return None
        made = self._deliveries[key] = Delivery(
            message, place, checkpoint.pop_time_ms, checkpoint.revive_time_ms, self._watch.latest)
        self._of_place[place].append(made)
        self._of_message[place[0], message.number].append(made)
        return made

    def answered(self, process: BrokerProcess, messages: Sequence[Message], result: PutResult) -> None:
        """Note the outcome of puts of checkpoints and returning messages."""
        ok, unknown = result.status is PutStatus.PUT_OK, bool(result.puts)
        for message in messages:
            group = _RETRY.get(message.topic)
            if group is not None:
                for each in self._of_message[group, _number(message)]:
                    if each.by == self._who(process) and each.back is _Back.UNKNOWN and (ok or not unknown):
                        each.back = _Back.STORED if ok else _Back.NOT
            elif ok and (found := _checkpoint(message)) is not None:
                self._is_stored(*found)

    def _is_stored(self, checkpoint: CheckPoint, revive_queue: int) -> None:
        for place in _places(checkpoint):
            made = self._made(place, checkpoint, revive_queue)
            if made is not None:
                made.stored = True

    def _puts_back(self, process: BrokerProcess, group: str, message: Message) -> None:
        """Check INV_B46, INV_B51 and INV_B52 right before a message is put into a retry topic.

        Puts of a deposed master are not checked: they will not be visible, and it does not know its successor's acts.
        """
        self._scene.counts["put back"] += 1
        if self._was_replaced(process):
            return
        number, now_ms = _number(message), self._scene.wall_ms
        those = self._of_message[group, number]
        left = [each for each in those if each.stored and not each.acked]
        over = [each for each in left if each.visible_ms <= now_ms]
        if self.complete:
            for name in ("INV_B46", "INV_B51", "INV_B52"):
                self._counts[name] += 1
            if not left and any(each.acked for each in those):
                self._broken("INV_B46", "put back, and it was acknowledged in time", process, group, number, those)
            if not over:
                self._broken("INV_B51", "put back, and no time is over", process, group, number, now_ms, left)
        if over:
            self._is_put_back(process, over)

    def _is_put_back(self, process: BrokerProcess, over: Sequence[Delivery]) -> None:
        """Mark one of these deliveries as put back. The record does not say which.

        Some are never put back, if their acknowledgements were not answered. So take the oldest one that is in time.
        """
        counts = self._scene.counts
        fresh = [each for each in over if each.back is _Back.NOT]
        chosen = min(fresh or over, key=lambda each: (
            each.back is _Back.STORED, self._over_ms(each) > BACK_MS, each.visible_ms))
        if not fresh:
            counts["put back again"] += 1
            if self.complete and chosen.back is _Back.STORED and not chosen.shared:
                self._broken("INV_B52", "put back again, and it was known to be", process, over)
        elif self._calm_ms is not None and self.complete:
            self._counts["INV_B48"] += 1
            if self._over_ms(chosen) > BACK_MS:
                self._broken("INV_B48", "put back late", process, self._over_ms(chosen), chosen)
        counts["put back by a later master"] += chosen.epoch != self._watch.latest
        chosen.back, chosen.by = _Back.UNKNOWN, self._who(process)

    def _over_ms(self, one: Delivery) -> int:
        """Return for how long its invisible time has been over while nothing failed."""
        now_ms = self._scene.wall_ms
        return now_ms - max(one.visible_ms, now_ms if self._calm_ms is None else self._calm_ms)

    def _was_replaced(self, process: BrokerProcess) -> bool:
        assert process.features is not None
        return process.features.standing.role.epoch < self._watch.latest

    @staticmethod
    def _who(process: BrokerProcess) -> tuple[BrokerProcess, int]:
        assert process.features is not None
        return process, process.features.opened

    # --- what consumers would see ----------------------------------------------------------------------------

    def arrived(self, process: BrokerProcess, queue_offset: int, outline: Outline) -> None:
        """Note a record when it is first seen."""
        if not self._is_new(queue_offset, outline):
            return
        message, topic, queue = process.journal.log.record(outline[0], outline[1]).message, outline[6], outline[2]
        if topic == TOPIC.encode():
            sent = self.sent[_number(message)]
            sent.offset = queue_offset
            self.ends[queue] = max(self.ends.get(queue, 0), queue_offset + 1)
            self._at[TOPIC, queue, queue_offset] = sent
        elif topic in _RETRY:
            self._at[topic.decode(), queue, queue_offset] = self.sent[_number(message)]
        elif (found := _checkpoint(message)) is not None:
            self._is_stored(*found)

    def gave(self, process: BrokerProcess, group: str, attempt_id: str, answer: Command) -> Iterator[Given]:
        """Check INV_B38, INV_B46, INV_B49 and INV_B52 as an answer leaves a broker; yields its messages."""
        if answer.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT) and self._calm_ms is None and (
                self._scene.healed or not self._scene.plan.harms):
            self._calm_ms = self._scene.wall_ms
        if answer.code != ResponseCode.SUCCESS:
            return
        told = PopMessageResponse.from_ext(answer.ext)
        starts, bodies = read_starts(told.start_offset_info or ""), _bodies(answer.body)
        for (flag, queue), offsets in read_offsets(told.msg_offset_info or "").items():
            topic = TOPIC if not flag else pop_retry_topic(TOPIC, group, v2=flag == 2)
            if group == FIFO:
                self._master, now_ms = process, self._scene.wall_ms
                self._counts["INV_B47"] += 1
                self._scene.counts["queue given on by a later master"] += self.in_order.given(
                    queue, offsets, told.pop_time, told.pop_time + told.invisible_time, attempt_id, now_ms,
                    self._watch.latest)
            for offset in offsets:
                if group == FIFO:
                    self._gives_in_order(process, queue, offset, next(bodies, b""))
                else:
                    made = self._deliveries.get((
                        (group, topic, queue, offset), told.pop_time, told.revive_qid, starts[flag, queue]))
                    self._gives(process, (group, topic, queue, offset), made, next(bodies, b""))
                yield Given(group, topic, queue, offset, Receipt(
                    starts[flag, queue], told.pop_time, told.invisible_time, told.revive_qid, flag,
                    self._scene.key.name, queue, offset))

    def _gives(self, process: BrokerProcess, place: Place, made: Delivery | None, body: bytes) -> None:
        if not self.complete:
            return
        self._counts["INV_B49"] += 1
        if made is None or not made.stored:
            self._broken("INV_B49", "given, and no checkpoint is stored", process, place, made)
        assert made is not None
        self._counts["INV_B38"] += 1
        if body != made.message.body or made.message.status in KNOWN:
            self._broken("INV_B38", "given what nobody sent, or elsewhere", process, place, made, body[:20])
        self._counts["INV_B46"] += 1
        self._counts["INV_B52"] += 1
        for other in self._of_place[place]:
            if other is made or other.forgiven or not other.given or (place[0], place[2]) in self._muddled:
                continue
            if other.acked:
                self._broken("INV_B46", "given again, and it was acknowledged in time", process, other, made)
            self._broken("INV_B52", "given again, and its checkpoint was stored", process, other, made)
        self._scene.counts["popped again"] += any(
            each is not made and each.given for each in self._of_message[place[0], made.message.number])
        made.given = True

    def _gives_in_order(self, process: BrokerProcess, queue: int, offset: int, body: bytes) -> None:
        message = self._at.get((TOPIC, queue, offset))
        self._counts["INV_B38"] += self.complete
        if self.complete and (message is None or body != message.body or message.status in KNOWN):
            self._broken("INV_B38", "given what nobody sent, or elsewhere", process, queue, offset, message, body[:20])

    # --- what clients ask ------------------------------------------------------------------------------------

    def asks(self, given: Iterable[Given]) -> None:
        """Note that acknowledgements of these were requested."""
        for each in given:
            message = self._at.get((each.topic, each.queue, each.offset))
            if message is not None:
                message.asked.add(each.group)
            if each.group == FIFO:
                self.in_order.asks(each.queue, each.offset)

    def moves(self, given: Given, invisible_ms: int) -> None:
        """Note a request for another invisible time."""
        if given.group == FIFO:
            self.in_order.moves(given.queue, given.offset, self._scene.wall_ms + invisible_ms)

    def acknowledged(self, process: BrokerProcess, given: Iterable[Given]) -> None:
        """Note acknowledgements that are answered now, for INV_B46. Late ones do not count."""
        for each in given:
            made = self._deliveries.get((
                (each.group, each.topic, each.queue, each.offset), each.receipt.pop_time_ms, each.receipt.revive_qid,
                each.receipt.start_offset))
            if each.group == FIFO:
                in_time = self.in_order.acknowledged(
                    each.queue, each.offset, each.receipt.pop_time_ms, self._scene.wall_ms)
            else:
                in_time = made is not None and self._scene.wall_ms <= made.visible_ms
            self._scene.counts["acknowledged in time" if in_time else "acknowledged late"] += 1
            if made is not None and in_time:
                made.acked = not made.shared

    def resets(self, group: str, queue: int, offset: int) -> None:
        """Note that a reset was requested: from now on messages may be given again."""
        self._skipped[group, queue] = max(self._skipped[group, queue], offset)
        for (name, topic, number, at), those in self._of_place.items():
            if (name, topic, number) == (group, TOPIC, queue) and at >= offset:
                for each in those:
                    each.forgiven = True
        self._muddled.add((group, queue))

    def was_reset(self, group: str, queue: int, offset: int, answer: Command) -> None:
        """Count a reset that is answered as done."""
        if answer.code == ResponseCode.SUCCESS:
            self._scene.counts["group reset"] += 1

    def look(self, process: BrokerProcess) -> None:
        """Check INV_B50 on a master that gets a request."""
        assert process.features is not None
        if not self.complete or not process.features.standing.role.leads or not process.puts.serving:
            return
        offsets = process.features.parts[OffsetsPart].table
        self._counts["INV_B50"] += 1
        for queue, offset in offsets.of(FIFO, TOPIC).items():
            if offset > self.in_order.through(queue):
                self._broken("INV_B50", "a group in order is past what nobody acknowledged", process, queue, offset,
                             self.in_order.through(queue))
        for group in PLAIN:
            for topic in (TOPIC, *(name.decode() for name, of in _RETRY.items() if of == group)):
                for queue, offset in offsets.of(group, topic).items():
                    covered = self._coverage(group, topic, queue, offset)
                    if covered < offset:
                        self._broken("INV_B50", "a group is past what is neither given nor acknowledged", process,
                                     group, topic, queue, offset, covered)

    def _coverage(self, group: str, topic: str, queue: int, upto: int) -> int:
        key = group, topic, queue
        covered = self._covered[key]
        if topic == TOPIC:
            covered = max(covered, self._skipped[group, queue])
        while covered < upto and any(each.stored for each in self._of_place[group, topic, queue, covered]):
            covered += 1
        self._covered[key] = covered
        return covered

    # --- the end ---------------------------------------------------------------------------------------------

    def _left(self) -> list[tuple[str, PoppedMessage]]:
        """Messages that a group never got, or never could acknowledge."""
        return [(group, sent) for sent in self.sent if sent.offset >= 0 or sent.status is PutStatus.PUT_OK
                for group in GROUPS
                if group not in sent.asked and not 0 <= sent.offset < self._skipped[group, sent.queue]]

    def waits(self, process: BrokerProcess) -> bool:
        """Return whether messages are left, which consumers take and acknowledge after healing."""
        return self.complete and bool(self._left())

    def settled(self, process: BrokerProcess) -> None:
        """Check INV_B45 for all messages after healing."""
        left = self._left()
        if self.complete and self.sent:
            self._counts["INV_B45"] += 1
            if left:
                self._broken("INV_B45", "popped by nobody who would acknowledge it", process, len(left), left[:3])
        self._scene.counts["popped message lost by the mode"] += len(left)


def _number(message: Message) -> int:
    return int(message.body.partition(b".")[0])


def _checkpoint(message: Message) -> tuple[CheckPoint, int] | None:
    """A checkpoint and its revive queue, as a POP or a change of time puts it; None for timers' later copies."""
    values = decode_properties(message.properties)
    topic, revive_queue = message.topic.decode(errors="replace"), message.queue_id
    if message.topic == _WHEEL:
        topic, revive_queue = values.get(REAL_TOPIC, ""), int(values.get(REAL_QID, "-1"))
    if topic != _REVIVE or values.get("TAGS") != records.CHECKPOINT or any(
            name in values for name in (TIMER_DONE, TIMER_MOVED, ROLL_TIMES)):
        return None
    found = records.read(message)
    assert isinstance(found, CheckPoint)
    return found, revive_queue


def _places(checkpoint: CheckPoint) -> Iterator[Place]:
    for offset in checkpoint.offsets:
        yield checkpoint.group, checkpoint.topic, checkpoint.queue_id, offset


def _bodies(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield decode(data[at : at + size], check_crc=False).message.body
        at += size
