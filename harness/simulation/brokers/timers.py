"""Timers: who sends them and takes them back, and what must become of them: INV_B36 to INV_B39 and INV_B41.

Each is sent once, under a number of its own, for a moment that it names. Where it went is known from the records of its
topic, and what was written again from the puts, whatever wheel and timer log say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

import attrs

from broker.ha.acks import PutStatus
from broker.properties import UNIQ_KEY, write
from broker.puts import Done, PutResult
from broker.rules import Draft
from broker.timer.admission import DELETES, DELIVER_MS
from broker.topics.names import TIMER
from harness.simulation.brokers.client import E_PUT, KNOWN, PATIENCE_NS
from harness.simulation.brokers.features import TIMER_TOPIC
from harness.simulation.brokers.judging import Judge
from harness.simulation.brokers.plan import TIMER_MS
from raft.config import MS
from raft.sim.tape import Chance, Stream, Value
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.headers.transactions import RecallMessageRequest
from remoting.record import Message, Outline, decode_properties

if TYPE_CHECKING:
    from harness.simulation.brokers.group import Group
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch

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
    handle: str = ""
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


class TimerClient:
    """Sends timers, without waiting for one before the next, and takes some of them back."""

    def __init__(self, scene: Group, acts: Stream) -> None:
        self._scene, self._acts, self._target = scene, acts, 0
        scene.after(scene.plan.feature_ns, self._act)

    def _act(self) -> None:
        scene = self._scene
        if scene.over:
            return
        scene.after(scene.plan.feature_ns, self._act)
        act = self._acts.draw(None, self._an_act)
        if act is not None:
            delay_ms, queue, size, recall_ms = act
            self._send(delay_ms, queue % scene.plan.queues, size, recall_ms)

    def _an_act(self, chance: Chance) -> list[Value] | None:
        if chance() >= 0.7:
            return None
        delay_ms = int(100 + chance() ** 2 * 5_000)
        return [delay_ms, int(chance() * 12), int(8 + chance() * self._scene.plan.body_max),
                int(chance() * delay_ms) if chance() < 0.25 else 0]

    def _send(self, delay_ms: int, queue: int, size: int, recall_ms: int) -> None:
        scene, timers = self._scene, self._scene.watch.timers
        number, host = len(timers.sent), scene.hosts[self._target % len(scene.hosts)]
        sent = Timer(number, queue, f"{number}.".encode().ljust(size, b"."), scene.wall_ms + delay_ms)
        timers.sent.append(sent)
        answered = [False]

        def answer(status: PutStatus | None) -> None:
            if not answered[0]:
                answered[0] = True
                sent.status = status
                scene.counts["timer acknowledged"] += status is PutStatus.PUT_OK
                if status is not PutStatus.PUT_OK:
                    self._target = scene.guess_master(self._target)
                elif recall_ms:
                    scene.after(recall_ms * MS, lambda: self._recall(sent))

        def put() -> None:
            process = host.process
            if process is None:
                scene.reply(host, lambda: answer(PutStatus.SERVICE_NOT_AVAILABLE))
            else:
                host.do(process, E_PUT, lambda: self._put(process, sent, lambda result: scene.reply(
                    host, lambda: answer(result.status))))

        scene.to_broker(host, put)
        scene.after(PATIENCE_NS, lambda: answer(None))

    def _put(self, process: BrokerProcess, sent: Timer, done: Done) -> None:
        draft = Draft(TOPIC, sent.queue, {DELIVER_MS: str(sent.due_ms), UNIQ_KEY: str(sent.number)})
        assert process.features is not None
        stop = process.features.rules.stops(draft)
        assert stop is None, stop
        sent.handle = draft.answered.get("recallHandle", "")
        process.puts.put([Message(draft.topic.encode(), sent.body, draft.queue_id, write(draft.properties))], done)

    def _recall(self, sent: Timer) -> None:
        scene, host = self._scene, self._scene.hosts[self._target % len(self._scene.hosts)]
        command = request(RequestCode.RECALL_MESSAGE, RecallMessageRequest(TOPIC, sent.handle, "p"))

        def asked() -> None:
            process = host.process
            if process is not None and process.features is not None:
                sent.taken_back = True
                process.features.handlers[RequestCode.RECALL_MESSAGE](cast(Connection, Caller()), command)

        scene.to_broker(host, lambda: host.do(host.process, E_PUT, asked))


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
            number = decode_properties(message.properties).get(DELETES)
            if number is not None:
                sent = self.sent[int(number)]
                self._scene.counts["timer recalled"] += 1
                if self.complete and not sent.copies and AHEAD_MS < sent.due_ms - self._scene.wall_ms < WINDOW_MS:
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
            if DELETES not in values:
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
