"""Begins and decides transactions, and checks their decisions: INV_B42 to INV_B44, and INV_B53.

A producer knows the end of each of its transactions and says it once, or only when it is checked; some also say the
contrary. Decisions are known from final messages and op records, as consumers of their topics would see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import attrs

from broker.consumers.members import Member
from broker.consumers.part import ClientsPart
from broker.ha.acks import PutStatus
from broker.properties import TRAN_MSG, UNIQ_KEY
from broker.puts import PutResult
from broker.rules import Draft
from broker.store.writing import Put
from broker.transactions import records
from harness.simulation.brokers.client import E_PUT, KNOWN, FeatureClient
from harness.simulation.brokers.judging import Judge
from raft.config import MS
from raft.sim.tape import Chance, Value
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.headers.transactions import CheckTransactionStateRequest, EndTransactionRequest
from remoting.record import COMMIT, PREPARED, ROLLBACK, Message, Outline, decode_properties

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch

TOPIC: Final = "X"
RAW_TOPIC: Final = TOPIC.encode()
GROUP: Final = "p"
DECIDED: Final = (
    "half acknowledged", "half put back", "half given up", "producer asked", "transaction committed",
    "transaction rolled back", "transaction contradicted", "transaction decided under a later master",
    "decision answered as done")
"""Outcomes of transactions that each campaign must meet."""
CONTRARY_MS: Final = (50, 2_500, 2_500, *[0] * 7)
"""Delays of a contrary decision, of which one is drawn: soon, or after brokers may have restarted; 0: none."""
_CONTRARY: Final = {COMMIT: ROLLBACK, ROLLBACK: COMMIT, 0: 0}


@attrs.define
class Transaction:
    """A transaction that was begun, and its known state."""

    number: int
    queue: int
    body: bytes
    end: int
    """Its end, as the producer knows it; 0: unknown."""
    status: PutStatus | None = None
    """Outcome of the put of its half message; None: unknown."""
    said: set[int] = attrs.field(factory=set)
    seen: int = 0
    """Number of its half messages that were seen."""
    epoch: int = 0
    """The latest master epoch when the first of them was seen."""
    done: set[int] = attrs.field(factory=set)
    """Ends that brokers answered as done."""
    finals: int = 0
    rolled_back: bool = False
    given_up: bool = False

    @property
    def open(self) -> bool:
        return bool(self.end or self.said) and not (self.finals or self.rolled_back or self.given_up) and (
            self.status is PutStatus.PUT_OK or self.seen > 0)


class TransactionClient(FeatureClient):
    """Begins transactions, and decides some of them."""

    acknowledged = DECIDED[0]

    def _an_act(self, chance: Chance) -> list[Value] | None:
        if chance() >= 0.5:
            return None
        end = (COMMIT, COMMIT, ROLLBACK, ROLLBACK, 0)[int(chance() * 5)]
        return [int(chance() * 12), int(8 + chance() * self._scene.plan.body_max), end,
                int(chance() ** 2 * 1_500) if chance() < 0.6 else -1, CONTRARY_MS[int(chance() * len(CONTRARY_MS))]]

    def _do(self, act: list[Value]) -> None:
        """Begin a transaction, as drawn.

        Its end is said after ``says_ms``, below 0 only when checked; the contrary ``contrary_ms`` later, 0: never.
        """
        queue, size, end, says_ms, contrary_ms = act
        scene, known = self._scene, self._scene.watch.transactions.begun
        number = len(known)
        begun = Transaction(number, queue % scene.plan.queues, f"{number}.".encode().ljust(size, b"."), end)
        known.append(begun)

        def say_later(result: PutResult) -> None:
            if says_ms >= 0 and end and result.puts:
                half = result.puts[0]
                scene.after(says_ms * MS, lambda: self._say(begun, end, half))
                if contrary_ms:
                    scene.after((says_ms + contrary_ms) * MS, lambda: self._say(begun, _CONTRARY[end], half))

        self._send(begun, Draft(TOPIC, begun.queue, {
            TRAN_MSG: "true", records.GROUP: GROUP, UNIQ_KEY: f"t{number}"}, sys_flag=PREPARED), say_later)

    def _say(self, begun: Transaction, end: int, half: Put) -> None:
        begun.said.add(end)
        command = request(RequestCode.END_TRANSACTION, EndTransactionRequest(
            GROUP, half.queue_offset, half.offset, end, transaction_id=f"t{begun.number}"))
        self._ask(lambda process: decide(process, command))


def decide(process: BrokerProcess, command: Command) -> None:
    """Handle an END_TRANSACTION (37) at a broker."""
    assert process.features is not None
    producer = process.features.producer
    answer = process.features.handlers[RequestCode.END_TRANSACTION](cast(Connection, producer), command)
    if isinstance(answer, Command):
        producer.reply(command, answer)


class ProducerConnection:
    """The producer's connection to one run of a broker."""

    peer = "10.0.1.1:1"
    congested = closed = False

    def __init__(self, process: BrokerProcess) -> None:
        self._process, self._scene = process, process.scene

    def connect(self, part: ClientsPart) -> None:
        """Register the producer, as its heartbeat does."""
        mine = cast(Connection, self)
        part.producers.register(GROUP, Member(mine, "c", 0, 500, self._process.now))

    def reply(self, to: Command, answer: Command) -> None:
        """Check answers to decisions, though Java's producers get none."""
        asked = EndTransactionRequest.from_ext(to.ext)
        if answer.code == ResponseCode.SUCCESS and asked.commit_or_rollback:
            self._scene.watch.transactions.is_done(self._process, asked)

    def send(self, command: Command) -> None:
        """Answer a check (39) with the end of the transaction."""
        process, scene, asked = self._process, self._scene, CheckTransactionStateRequest.from_ext(command.ext)
        assert asked.transaction_id is not None
        begun = scene.watch.transactions.begun[int(asked.transaction_id[1:])]
        scene.counts["producer asked"] += 1

        def heard() -> None:
            begun.said |= {begun.end} - {0}
            answer = request(RequestCode.END_TRANSACTION, EndTransactionRequest(
                GROUP, asked.tran_state_table_offset, asked.commit_log_offset, begun.end, from_transaction_check=True,
                transaction_id=asked.transaction_id))
            scene.to_broker(process.host, lambda: process.host.do(process, E_PUT, lambda: decide(process, answer)))

        scene.reply(process.host, heard)


class Transactions(Judge):
    """Checks the transactions of one scene."""

    topics = frozenset({records.HALF_TOPIC, records.OP_TOPIC, records.GIVEN_UP_TOPIC, RAW_TOPIC})

    def __init__(self, watch: BrokerWatch) -> None:
        super().__init__(watch)
        self.begun: list[Transaction] = []
        self._at: dict[int, Transaction] = {}
        """Offset in the queue of half messages -> the transaction."""

    def arrived(self, process: BrokerProcess, queue_offset: int, outline: Outline) -> None:
        """Note a half message, or check INV_B38, INV_B42 and INV_B43 for a decision, when it is first seen."""
        if not self._is_new(queue_offset, outline):
            return
        topic = outline[6]
        message = process.journal.log.record(outline[0], outline[1]).message
        if topic == records.OP_TOPIC:
            self._marked(process, message)
            return
        begun = self.begun[int(message.body.partition(b".")[0])]
        if topic == records.HALF_TOPIC:
            self._scene.counts["half put back"] += begun.seen > 0
            self._at[queue_offset] = begun
            begun.seen, begun.epoch = begun.seen + 1, begun.epoch or self._watch.latest
        elif topic == records.GIVEN_UP_TOPIC:
            self._scene.counts["half given up"] += 1
            begun.given_up = True
        else:
            self._final(process, begun, message)

    def _final(self, process: BrokerProcess, begun: Transaction, message: Message) -> None:
        begun.finals += 1
        self._counts["INV_B38"] += 1
        unique = decode_properties(message.properties).get(UNIQ_KEY)
        if begun.status in KNOWN or message.queue_id != begun.queue or message.body != begun.body or (
                unique != f"t{begun.number}"):
            self._broken("INV_B38", "delivered what nobody sent, or elsewhere", process, begun, message)
        self._counts["INV_B42"] += 1
        if COMMIT not in begun.said or (begun.finals > 1 and self.complete):
            self._broken("INV_B42", "a final message too many", process, begun)
        self._ended(process, begun, "transaction committed")

    def _marked(self, process: BrokerProcess, message: Message) -> None:
        if records.reason(message.properties) != records.ROLLED_BACK:
            return
        for place in records.marked(message.body):
            begun = self._at.get(place)
            if begun is not None:
                begun.rolled_back = True
                self._counts["INV_B43"] += 1
                if ROLLBACK not in begun.said and self.complete:
                    self._broken("INV_B43", "rolled back, and nobody said so", process, begun)
                self._ended(process, begun, "transaction rolled back")

    def _ended(self, process: BrokerProcess, begun: Transaction, how: str) -> None:
        self._scene.counts[how] += 1
        self._scene.counts["transaction contradicted"] += len(begun.said) > 1
        self._scene.counts["transaction decided under a later master"] += begun.epoch != self._watch.latest
        self._counts["INV_B43"] += 1
        if begun.finals and begun.rolled_back and self.complete:
            self._broken("INV_B43", "committed and rolled back", process, begun)

    def is_done(self, process: BrokerProcess, asked: EndTransactionRequest) -> None:
        """Check INV_B53 when a broker answers that a decision is done."""
        assert asked.transaction_id is not None
        begun = self.begun[int(asked.transaction_id[1:])]
        begun.done.add(asked.commit_or_rollback)
        self._scene.counts["decision answered as done"] += 1
        if self.complete and self._at.get(asked.tran_state_table_offset) is begun:
            self._counts["INV_B53"] += 1
            if len(begun.done) > 1 or (begun.finals if asked.commit_or_rollback == ROLLBACK else begun.rolled_back):
                self._broken("INV_B53", "a broker answers one end as done after the other", process, begun)

    # --- the end ---------------------------------------------------------------------------------------------

    def waits(self, process: BrokerProcess) -> bool:
        """Return whether a transaction is still open; its producer answers every check."""
        return self.complete and any(begun.open for begun in self.begun)

    def settled(self, process: BrokerProcess) -> None:
        """Check INV_B44 for all transactions after healing."""
        left = [begun for begun in self.begun if begun.open]
        if self.complete and self.begun:
            self._counts["INV_B44"] += 1
            if left:
                self._broken("INV_B44", "neither decided nor given up", process, left[:3])
        self._scene.counts["transaction lost by the mode"] += len(left)
