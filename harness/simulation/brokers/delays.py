"""Sends delayed messages, and checks their deliveries for ``BrokerWatch``: INV_B36 to INV_B40.

Each message is sent once, with its own number. Its due time comes from the record that waits in the schedule topic, its
delivery from the records of its own topic, not from the broker's positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from broker.ha.acks import PutStatus
from broker.properties import DELAY, UNIQ_KEY
from broker.puts import WRITTEN, PutResult
from broker.rules import Draft
from broker.schedule.levels import SCHEDULE_TOPIC
from broker.schedule.part import DelaysPart
from harness.simulation.brokers.client import KNOWN, FeatureClient
from harness.simulation.brokers.judging import Judge
from harness.simulation.brokers.plan import DELAYS_MS
from raft.sim.tape import Chance, Value
from remoting.record import Message, Outline, decode_properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch

TOPIC: Final = "D"
RAW_TOPIC: Final = TOPIC.encode()
DELAYED: Final = ("delayed message acknowledged", "delayed message delivered", "delayed message delivered again",
                  "delivery in doubt", "delivered by a later master", "table copied")
"""Outcomes of delayed messages that each campaign must meet."""


@attrs.define
class Sent:
    """A delayed message that was sent, and its known state."""

    level: int
    queue: int
    body: bytes
    status: PutStatus | None = None
    """Outcome of its put; None: unknown."""
    place: int = -1
    """Queue offset in its level, once it was seen to wait."""
    due_ms: int = 0
    epoch: int = 0
    """The latest master epoch when it was first seen."""
    copies: int = 0
    """Number of deliveries of this message."""


class DelayClient(FeatureClient):
    """Sends messages of all delay levels."""

    acknowledged = DELAYED[0]

    def _an_act(self, chance: Chance) -> list[Value] | None:
        if chance() >= 0.7:
            return None
        return [1 + int(chance() * len(DELAYS_MS)), int(chance() * 12), int(8 + chance() * self._scene.plan.body_max)]

    def _do(self, act: list[Value]) -> None:
        level, queue, size = act
        known = self._scene.watch.delays.sent
        number = len(known)
        sent = Sent(level, queue % self._scene.plan.queues, f"{number}.".encode().ljust(size, b"."))
        known.append(sent)
        self._send(sent, Draft(TOPIC, sent.queue, {DELAY: str(level), UNIQ_KEY: str(number)}))


@attrs.define
class _Level:
    """Position of one master in one level."""

    due: int
    """Place of the message that is delivered next."""
    stored: tuple[int, int] | None = None
    """Place of the first message that was stored and not acknowledged, and the opening of writes then. It comes again
    only after another opening."""


class Delays(Judge):
    """Checks the delayed messages of one scene."""

    topics = frozenset({SCHEDULE_TOPIC, RAW_TOPIC})

    def __init__(self, watch: BrokerWatch) -> None:
        super().__init__(watch)
        self.sent: list[Sent] = []
        self._levels: dict[tuple[BrokerProcess, int, int], _Level] = {}
        """(run, epoch, level) -> the position."""
        self._begins: dict[tuple[BrokerProcess, int, int], int] = {}
        """(run, epoch, level) -> the position at the begin of the epoch."""

    # --- a master delivers -----------------------------------------------------------------------------------

    def leads(self, process: BrokerProcess) -> None:
        """Note the positions from which a new master goes on."""
        super().leads(process)
        epoch = self._epoch(process)
        for level, (offset, _) in self._told(process).items():
            self._begins[process, epoch, level] = offset

    def puts(self, process: BrokerProcess, messages: Sequence[Message]) -> None:
        """Check INV_B37, INV_B39 and INV_B40 right before a delivery.

        The time of storing is not used: a process may pause between both.
        """
        for message in messages if messages[0].topic == RAW_TOPIC else ():
            sent = self._of(message)
            self._counts["INV_B37"] += 1
            if self._scene.wall_ms < sent.due_ms:
                self._broken("INV_B37", "delivered early", process, sent)
            level = self._level(process, sent)
            self._counts["INV_B39"] += 1
            if sent.place < level.due and not self._comes_again(process, sent, level):
                self._broken("INV_B39", "delivered again, and it was known to be delivered", process, sent, level)
            self._counts["INV_B40"] += 1
            if sent.place > level.due:
                self._broken("INV_B40", "delivered before another one of its level", process, sent, level)
            level.due = sent.place + 1

    def answered(self, process: BrokerProcess, messages: Sequence[Message], result: PutResult) -> None:
        """Go back to a delivery that failed or whose outcome is unknown."""
        if messages[0].topic == RAW_TOPIC and result.status is not PutStatus.PUT_OK:
            self._scene.counts["delivery in doubt"] += result.status not in KNOWN
            first = self._of(messages[0])
            level = self._level(process, first)
            if result.puts and result.status in WRITTEN:
                level.stored = first.place, self._opening(process)
            else:
                level.due = first.place

    def _comes_again(self, process: BrokerProcess, sent: Sent, level: _Level) -> bool:
        return level.stored is not None and sent.place >= level.stored[0] and self._opening(process) > level.stored[1]

    @staticmethod
    def _opening(process: BrokerProcess) -> int:
        assert process.features is not None
        return process.features.opened

    def _level(self, process: BrokerProcess, sent: Sent) -> _Level:
        key = process, self._epoch(process), sent.level
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = _Level(sent.place)
            if self.complete and sent.place < self._begins.get(key, 0):
                level.due = self._begins[key]
        return level

    @staticmethod
    def _epoch(process: BrokerProcess) -> int:
        assert process.features is not None
        return process.features.standing.role.epoch

    @staticmethod
    def _told(process: BrokerProcess) -> dict[int, tuple[int, int]]:
        """Level -> the broker's position and the end of its queue."""
        if process.features is None or "delays" not in process.scene.plan.features:
            return {}
        told = process.features.parts[DelaysPart].runtime_info()
        found = {}
        for name, value in told.items():
            offset, _, end = value.partition(",")
            found[int(name.rpartition("_")[2])] = int(offset), int(end)
        return found

    def _of(self, message: Message) -> Sent:
        return self.sent[int(message.body.partition(b".")[0])]

    # --- what consumers would see ----------------------------------------------------------------------------

    def arrived(self, process: BrokerProcess, queue_offset: int, outline: Outline) -> None:
        """Note a waiting record, or check INV_B38 for a delivered one, when it is first seen."""
        if not self._is_new(queue_offset, outline):
            return
        offset, size, queue_id, _, _, time_ms, topic, _ = outline
        message = process.journal.log.record(offset, size).message
        sent = self._of(message)
        if topic == SCHEDULE_TOPIC:
            sent.place, sent.due_ms = queue_offset, time_ms + DELAYS_MS[sent.level - 1]
            sent.epoch = self._watch.latest
            return
        counts = self._scene.counts
        counts["delayed message delivered"] += 1
        counts["delayed message delivered again"] += sent.copies > 0
        counts["delivered by a later master"] += not sent.copies and sent.epoch != self._watch.latest
        sent.copies += 1
        self._counts["INV_B38"] += 1
        if (sent.place < 0 or sent.status in KNOWN or queue_id != sent.queue or message.body != sent.body
                or decode_properties(message.properties).get(UNIQ_KEY) != str(self.sent.index(sent))):
            self._broken("INV_B38", "delivered what nobody sent, or elsewhere", process, sent, queue_id, message)

    # --- the end ---------------------------------------------------------------------------------------------

    def waits(self, process: BrokerProcess) -> bool:
        """Return whether a master still has messages to deliver."""
        if not self.sent:
            return False
        told, messages = self._told(process), process.journal.messages
        ends = {level: messages.max_offset(SCHEDULE_TOPIC, level - 1) for level in range(1, len(DELAYS_MS) + 1)}
        return any(end and told.get(level) != (end, end) for level, end in ends.items())

    def settled(self, process: BrokerProcess) -> None:
        """Check INV_B36 for all delayed messages after healing."""
        if not self.sent:
            return
        lost = [sent for sent in self.sent if not sent.copies and (sent.status is PutStatus.PUT_OK or sent.place >= 0)]
        if self.complete:
            self._counts["INV_B36"] += 1
            if self.waits(process) or lost:
                self._broken("INV_B36", "not delivered", process, lost[:3], self._told(process))
        self._scene.counts["delayed message lost by the mode"] += len(lost)
