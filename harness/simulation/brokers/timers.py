"""Timers: who sends them and takes them back, and what must become of them: INV_B36 to INV_B39 and INV_B41.

Each is sent once, under a number of its own, for a moment that it names. Where it went is known from the records of its
topic, and what was written again from the puts, whatever wheel and timer log say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

import attrs

from broker.ha.acks import PutStatus
from broker.properties import REAL_TOPIC, UNIQ_KEY
from broker.puts import PutResult
from broker.rules import Draft
from broker.timer.admission import DELETES, DELIVER_MS
from broker.topics.names import TIMER
from harness.simulation.brokers.client import KNOWN, FeatureClient
from harness.simulation.brokers.features import TIMER_TOPIC
from harness.simulation.brokers.judging import Judge
from harness.simulation.brokers.plan import TIMER_MS
from raft.config import MS
from raft.sim.tape import Chance, Value
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.headers.transactions import RecallMessageRequest
from remoting.record import Message, Outline, decode_properties

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch

BORN: Final = "BORN_TIMESTAMP"
"""When a recall was made."""
TOPIC: Final = TIMER_TOPIC
RAW_TOPIC: Final = TOPIC.encode()
WHEEL_TOPIC: Final = TIMER.encode()
TIMED: Final = (
    "timer acknowledged", "timer delivered", "timer delivered again", "timer delivered by a later master",
    "timer rolled", "timer recalled", "timer recalled in time", "timer in doubt")
"""What becomes of them: in each campaign."""
AHEAD_MS: Final = 2 * TIMER_MS
"""So long before its moment a recall that was acknowledged is in time."""
WINDOW_MS: Final = 19 * TIMER_MS
"""What waits for longer rolls, a recall too, which may be late then: here a slow disk takes longer than the window, of
which there are days elsewhere."""


@attrs.define
class Timer:
    """One of them, and what is known of it."""

    number: int
    queue: int
    body: bytes
    due_ms: int
    status: PutStatus | None = None
    """None: nobody knows."""
    waits: bool = False
    """Somebody has seen it wait."""
    rolled: bool = False
    """It was stored again, to wait on."""
    epoch: int = 0
    """The latest as it was first seen."""
    taken_back: bool = False
    """Somebody tried to."""
    recalled: bool = False
    """That was acknowledged in time."""
    copies: int = 0
    """At its destination."""


class TimerClient(FeatureClient):
    """Sends timers, and takes some of them back."""

    acknowledged = TIMED[0]

    def _an_act(self, chance: Chance) -> list[Value] | None:
        if chance() >= 0.7:
            return None
        delay_ms = int(100 + chance() ** 2 * 5_000)
        return [delay_ms, int(chance() * 12), int(8 + chance() * self._scene.plan.body_max),
                int(chance() * delay_ms) if chance() < 0.25 else 0]

    def _do(self, act: list[Value]) -> None:
        delay_ms, queue, size, recall_ms = act
        scene, known = self._scene, self._scene.watch.timers.sent
        sent = Timer(len(known), queue % scene.plan.queues, f"{len(known)}.".encode().ljust(size, b"."),
                     scene.wall_ms + delay_ms)
        known.append(sent)
        draft = Draft(TOPIC, sent.queue, {DELIVER_MS: str(sent.due_ms), UNIQ_KEY: str(sent.number)})

        def recall_later(_: PutResult) -> None:
            if recall_ms:
                scene.after(recall_ms * MS, lambda: self._recall(sent, draft.answered.get("recallHandle", "")))

        self._send(sent, draft, recall_later)

    def _recall(self, sent: Timer, handle: str) -> None:
        command = request(RequestCode.RECALL_MESSAGE, RecallMessageRequest(TOPIC, handle, "p"))

        def asked(process: BrokerProcess) -> None:
            assert process.features is not None
            sent.taken_back = True
            process.features.handlers[RequestCode.RECALL_MESSAGE](cast(Connection, Caller()), command)

        self._ask(asked)


class Caller:
    """A connection of somebody who does not look at answers: what was put is known from the puts."""

    peer = "10.0.1.1:1"
    congested = False

    def reply(self, to: Command, answer: Command) -> None:
        """It is lost, and so is every one of them."""


class Timers(Judge):
    """What becomes of those of one scene."""

    topics = frozenset({WHEEL_TOPIC, RAW_TOPIC})

    def __init__(self, watch: BrokerWatch) -> None:
        super().__init__(watch)
        self.sent: list[Timer] = []
        self._written: set[tuple[BrokerProcess, int, int]] = set()
        """What a master stored at its destination, or is about to, by run, opening of its writes and number."""

    # --- a master delivers -----------------------------------------------------------------------------------

    def puts(self, process: BrokerProcess, messages: Sequence[Message]) -> None:
        """INV_B37, INV_B39: right before it does."""
        for message in messages:
            if message.topic != RAW_TOPIC:
                continue  # rolled, or a client's
            sent = self._of(message)
            self._counts["INV_B37"] += 1
            if self._scene.wall_ms < sent.due_ms:
                self._broken("INV_B37", "delivered early", process, sent)
            if sent.rolled:
                continue  # twice, perhaps: nobody knew that it had, and both of them wait
            self._counts["INV_B39"] += 1
            if (key := self._key(process, sent)) in self._written:
                self._broken("INV_B39", "delivered again, and it was known to be delivered", process, sent)
            self._written.add(key)

    def answered(self, process: BrokerProcess, messages: Sequence[Message], result: PutResult) -> None:
        """What became of that; or of a recall."""
        ok = result.status is PutStatus.PUT_OK
        if not ok:
            delivered = [self._of(message) for message in messages if message.topic == RAW_TOPIC]
            self._scene.counts["timer in doubt"] += len(delivered) if result.puts else 0
            if not result.puts:
                self._written -= {self._key(process, sent) for sent in delivered}
            return
        for message in messages:
            values = decode_properties(message.properties)
            if DELETES in values:
                sent = self.sent[int(values[DELETES])]
                self._scene.counts["timer recalled"] += 1
                if (self.complete and not sent.copies and AHEAD_MS < sent.due_ms - self._scene.wall_ms
                        and sent.due_ms - int(values[BORN]) < WINDOW_MS):
                    self._scene.counts["timer recalled in time"] += not sent.recalled
                    sent.recalled = True

    @staticmethod
    def _key(process: BrokerProcess, sent: Timer) -> tuple[BrokerProcess, int, int]:
        assert process.features is not None
        return process, process.features.opened, sent.number

    def _of(self, message: Message) -> Timer:
        return self.sent[int(message.body.partition(b".")[0])]

    # --- what consumers would see ----------------------------------------------------------------------------

    def arrived(self, process: BrokerProcess, queue_offset: int, outline: Outline) -> None:
        """INV_B38, INV_B41: the first time counts."""
        if not self._is_new(queue_offset, outline):
            return
        offset, size, queue_id, _, _, _, topic, _ = outline
        message, counts = process.journal.log.record(offset, size).message, self._scene.counts
        values = decode_properties(message.properties)
        if topic == WHEEL_TOPIC:
            if values.get(REAL_TOPIC) == TOPIC and DELETES not in values:
                sent = self._of(message)
                counts["timer rolled"] += sent.waits
                sent.rolled |= sent.waits
                sent.waits, sent.epoch = True, sent.epoch or self._watch.latest
            return
        sent = self._of(message)
        counts["timer delivered"] += 1
        counts["timer delivered again"] += sent.copies > 0
        counts["timer delivered by a later master"] += not sent.copies and sent.epoch != self._watch.latest
        sent.copies += 1
        self._counts["INV_B38"] += 1
        if (sent.status in KNOWN or queue_id != sent.queue or message.body != sent.body
                or values.get(UNIQ_KEY) != str(sent.number)):
            self._broken("INV_B38", "delivered what nobody sent, or elsewhere", process, sent, queue_id, message)
        if sent.recalled and self.complete:
            self._broken("INV_B41", "delivered though it was taken back in time", process, sent)

    # --- the end ---------------------------------------------------------------------------------------------

    def waits(self, process: BrokerProcess) -> bool:
        """Where something was lost, all have had their time."""
        if self.complete:
            return bool(self._missing())
        return bool(self.sent) and self._scene.wall_ms < max(sent.due_ms for sent in self.sent) + 3_000

    def _missing(self) -> list[Timer]:
        return [sent for sent in self.sent if not sent.copies and not sent.taken_back and (
            sent.status is PutStatus.PUT_OK or sent.waits)]

    def settled(self, process: BrokerProcess) -> None:
        """INV_B36; and INV_B41 has been asked of all."""
        missing = self._missing()
        if self.complete and self.sent:
            self._counts["INV_B36"] += 1
            self._counts["INV_B41"] += any(sent.recalled for sent in self.sent)
            if missing:
                self._broken("INV_B36", "not delivered", process, missing[:3])
        self._scene.counts["timer lost by the mode"] += len(missing)
