"""Sends and recalls timers, and checks their deliveries: INV_B36 to INV_B39 and INV_B41.

Each timer is sent once, with its own number and due time. Deliveries are known from the records of its topic, rolled
timers from puts, not from wheel and timer log.
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
"""Property with the time when a recall was made."""
TOPIC: Final = TIMER_TOPIC
RAW_TOPIC: Final = TOPIC.encode()
WHEEL_TOPIC: Final = TIMER.encode()
TIMED: Final = (
    "timer acknowledged", "timer delivered", "timer delivered again", "timer delivered by a later master",
    "timer rolled", "timer recalled", "timer recalled in time", "timer in doubt")
"""Outcomes of timers that each campaign must meet."""
AHEAD_MS: Final = 2 * TIMER_MS
"""A recall acknowledged so long before the due time is in time."""
WINDOW_MS: Final = 19 * TIMER_MS
"""Timers and recalls that wait longer are rolled. Then a recall may be late: a slow disk can outlast this window, which
is days long in real brokers."""


@attrs.define
class Timer:
    """A timer that was sent, and its known state."""

    number: int
    queue: int
    body: bytes
    due_ms: int
    status: PutStatus | None = None
    """Outcome of its put; None: unknown."""
    waits: bool = False
    """It was seen to wait."""
    rolled: bool = False
    """It was stored again, to wait on."""
    epoch: int = 0
    """The latest master epoch when it was first seen."""
    taken_back: bool = False
    """A recall was requested."""
    recalled: bool = False
    """A recall was acknowledged in time."""
    copies: int = 0
    """Number of deliveries of this timer."""


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
    """A client's connection whose answers are ignored: puts show the outcome."""

    peer = "10.0.1.1:1"
    congested = False

    def reply(self, to: Command, answer: Command) -> None:
        """Ignore the answer: puts show the outcome."""


class Timers(Judge):
    """Checks the timers of one scene."""

    topics = frozenset({WHEEL_TOPIC, RAW_TOPIC})

    def __init__(self, watch: BrokerWatch) -> None:
        super().__init__(watch)
        self.sent: list[Timer] = []
        self._written: set[tuple[BrokerProcess, int, int]] = set()
        """Deliveries made or under way, as (run, opening of its writes, number)."""

    # --- a master delivers -----------------------------------------------------------------------------------

    def puts(self, process: BrokerProcess, messages: Sequence[Message]) -> None:
        """Check INV_B37 and INV_B39 right before a delivery."""
        for message in messages:
            if message.topic != RAW_TOPIC:
                continue  # the message is rolled, or a client sent it
            sent = self._of(message)
            self._counts["INV_B37"] += 1
            if self._scene.wall_ms < sent.due_ms:
                self._broken("INV_B37", "delivered early", process, sent)
            if sent.rolled:
                continue  # after a roll with unknown outcome two copies may wait
            self._counts["INV_B39"] += 1
            if (key := self._key(process, sent)) in self._written:
                self._broken("INV_B39", "delivered again, and it was known to be delivered", process, sent)
            self._written.add(key)

    def answered(self, process: BrokerProcess, messages: Sequence[Message], result: PutResult) -> None:
        """Note the outcome of deliveries and recalls."""
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
        """Note a waiting record, or check INV_B38 and INV_B41 for a delivered one, when it is first seen."""
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
        """Return whether deliveries are missing; after an allowed loss, whether some may still be due."""
        if self.complete:
            return bool(self._missing())
        return bool(self.sent) and self._scene.wall_ms < max(sent.due_ms for sent in self.sent) + 3_000

    def _missing(self) -> list[Timer]:
        return [sent for sent in self.sent if not sent.copies and not sent.taken_back and (
            sent.status is PutStatus.PUT_OK or sent.waits)]

    def settled(self, process: BrokerProcess) -> None:
        """Check INV_B36 after healing, and count INV_B41."""
        missing = self._missing()
        if self.complete and self.sent:
            self._counts["INV_B36"] += 1
            self._counts["INV_B41"] += any(sent.recalled for sent in self.sent)
            if missing:
                self._broken("INV_B36", "not delivered", process, missing[:3])
        self._scene.counts["timer lost by the mode"] += len(missing)
