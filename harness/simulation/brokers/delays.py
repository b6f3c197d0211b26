"""Delayed messages: who sends them, and what must become of them: INV_B36 to INV_B40, for ``BrokerWatch``.

Each is sent once, under a number of its own. When it is due is known from the record that waits for it, as consumers
of the schedule topic would see it, and where it went from those of its own topic, whatever the broker's positions say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from broker.ha.acks import PutStatus
from broker.properties import DELAY, UNIQ_KEY
from broker.puts import PutResult
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
"""What becomes of them: in each campaign."""


@attrs.define
class Sent:
    """One of them, and what is known of it."""

    level: int
    queue: int
    body: bytes
    status: PutStatus | None = None
    """None: nobody knows."""
    place: int = -1
    """Among those of its level, once anybody has seen it wait."""
    due_ms: int = 0
    epoch: int = 0
    """The latest as it was first seen."""
    copies: int = 0
    """At its destination."""


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
    """What one master has delivered of one level."""

    due: int
    """Whose turn it is, by its place."""


class Delays(Judge):
    """What becomes of those of one scene."""

    topics = frozenset({SCHEDULE_TOPIC, RAW_TOPIC})

    def __init__(self, watch: BrokerWatch) -> None:
        super().__init__(watch)
        self.sent: list[Sent] = []
        self._levels: dict[tuple[BrokerProcess, int, int], _Level] = {}
        """By run, epoch and level."""
        self._begins: dict[tuple[BrokerProcess, int, int], int] = {}
        """Where each was to begin."""

    # --- a master delivers -----------------------------------------------------------------------------------

    def leads(self, process: BrokerProcess) -> None:
        """It became master, and goes on from the positions that it has."""
        super().leads(process)
        epoch = self._epoch(process)
        for level, (offset, _) in self._told(process).items():
            self._begins[process, epoch, level] = offset

    def puts(self, process: BrokerProcess, messages: Sequence[Message]) -> None:
        """INV_B37, INV_B39, INV_B40: right before it does. A record may say that it was stored some time earlier, where
        the process stood still in between."""
        for message in messages if messages[0].topic == RAW_TOPIC else ():
            sent = self._of(message)
            self._counts["INV_B37"] += 1
            if self._scene.wall_ms < sent.due_ms:
                self._broken("INV_B37", "delivered early", process, sent)
            level = self._level(process, sent)
            self._counts["INV_B39"] += 1
            if sent.place < level.due:
                self._broken("INV_B39", "delivered again, and it was known to be delivered", process, sent, level)
            self._counts["INV_B40"] += 1
            if sent.place > level.due:
                self._broken("INV_B40", "delivered before another one of its level", process, sent, level)
            level.due += 1

    def answered(self, process: BrokerProcess, messages: Sequence[Message], result: PutResult) -> None:
        """What became of that, as its master knows."""
        if messages[0].topic == RAW_TOPIC and result.status is not PutStatus.PUT_OK:
            self._scene.counts["delivery in doubt"] += result.status not in KNOWN
            first = self._of(messages[0])
            self._level(process, first).due = first.place

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
        """By level: its position, and the end of its queue."""
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
        """INV_B38: the first time counts."""
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
        """Whether a master has something left to deliver."""
        if not self.sent:
            return False
        told, messages = self._told(process), process.journal.messages
        ends = {level: messages.max_offset(SCHEDULE_TOPIC, level - 1) for level in range(1, len(DELAYS_MS) + 1)}
        return any(end and told.get(level) != (end, end) for level, end in ends.items())

    def settled(self, process: BrokerProcess) -> None:
        """INV_B36: nothing fails any more, and all had its time."""
        if not self.sent:
            return
        lost = [sent for sent in self.sent if not sent.copies and (sent.status is PutStatus.PUT_OK or sent.place >= 0)]
        if self.complete:
            self._counts["INV_B36"] += 1
            if self.waits(process) or lost:
                self._broken("INV_B36", "not delivered", process, lost[:3], self._told(process))
        self._scene.counts["delayed message lost by the mode"] += len(lost)
