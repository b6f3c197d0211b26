"""Transactions: a half is stored, a block of the user's runs as the local transaction, and what it came to is decided.

A shell. A decision is told to the master of the half's group, whoever that is by then, for as long as nobody can have
heard it. What stays open is left to the broker's check (39): it is answered from memory where this client decided, and
by the user's checker otherwise. Source: ``TransactionMQProducer`` and ``DefaultMQProducerImpl`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING, Final

import trio

from broker.client.decisions import Decision, Decisions
from broker.client.errors import ClientError, Contradicted, DecisionRefused, MessageIllegal, NoRoute
from broker.client.message import IMMUNE_S, PRODUCER_GROUP, TRANSACTIONAL, Message, Received, Sent
from broker.client.outcomes import Heard, of_decision
from broker.client.producing import Producer
from broker.client.session import Session
from remoting.background import background
from remoting.bodies.consumers import MessageQueue
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.errors import ConnectFailed, RemotingError
from remoting.headers.transactions import CheckTransactionStateRequest, EndTransactionRequest
from remoting.record import Record, parse_message_id
from remoting.wakeup import Bell

if TYPE_CHECKING:
    import datetime as dt

logger = logging.getLogger("broker.client")

Checker = Callable[[Received], Awaitable[Decision]]
"""Tells the outcome of that message's local transaction. May raise, which counts as not knowing it."""

CHECKS_MOST: Final = 2_000
"""Transactions that wait for the checker; brokers ask again for those above."""
_GOODBYE_S: Final = 1.0
_LOOK_S: Final = 1.0
"""Between looks for a master that nobody has greeted."""


_Asker = tuple[Connection, CheckTransactionStateRequest]


class Outcome(Enum):
    """Outcomes of telling a decision."""

    CONFIRMED = "the broker has it"
    LEFT_TO_CHECK = "the broker asks for it, and will be told the same"
    REFUSED = "the broker does not take it"


class Transaction:
    """A transaction whose half is stored. Its body commits by returning, rolls back by raising, or decides before."""

    def __init__(self, half: Sent, topic: str, transactions: Transactions) -> None:
        self.message_id = half.message_id
        """Written down in the local transaction, it is what a checker looks for."""
        self.decision = Decision.UNDECIDED
        self.outcome: Outcome | None = None
        """None: not told yet, or left."""
        self.half, self.topic = half, topic
        self.told = trio.Event()
        """Set when there is an outcome."""
        self.failure: ClientError | None = None
        self._transactions = transactions
        self._left = False

    @property
    def open(self) -> bool:
        """The end of the block decides."""
        return self.decision is Decision.UNDECIDED and not self._left

    def commit(self) -> None:
        """Consumers are to get the message, whatever the rest of the block does. Raises ``Contradicted``."""
        self._transactions.decide(self, Decision.COMMIT)

    def rollback(self) -> None:
        """Nobody is to see the message, whatever the rest of the block does. Raises ``Contradicted``."""
        self._transactions.decide(self, Decision.ROLLBACK)

    def leave(self) -> None:
        """Leave the transaction open: the checker is asked later. Raises ``Contradicted`` after a decision.

        For a local transaction of unknown outcome, such as a database's commit that timed out."""
        if self.decision is not Decision.UNDECIDED:
            raise Contradicted(self.message_id, f"left after {self.decision.name}")
        self._left = True
        self._transactions.leave(self)

    def __repr__(self) -> str:
        return f"<Transaction {self.message_id} of {self.topic}: {self.decision.name}>"


@asynccontextmanager
async def open_transactions(
    session: Session, producer: Producer, checker: Checker, topics: Sequence[str], checks_at_once: int,
) -> AsyncIterator[Transactions]:
    """Open a client's transactions for as long as the block runs; its producer group answers checks meanwhile."""
    if session.asked is not None:
        raise ValueError("this client has a checker already; another one needs a client of its own")
    async with background() as nursery:
        transactions = Transactions(session, producer, checker, nursery, checks_at_once)
        session.asked = transactions
        try:
            await transactions.introduce(topics)
            nursery.start_soon(transactions.follow, name="masters that may ask")
            yield transactions
        finally:
            await transactions.close()
            session.asked = None


class Transactions:
    """A client's transactions, made by ``client.transactions``. Any number of tasks may have some at once."""

    def __init__(
        self, session: Session, producer: Producer, checker: Checker, nursery: trio.Nursery, checks_at_once: int,
    ) -> None:
        self._session, self._producer, self._checker, self._nursery = session, producer, checker, nursery
        self._decisions = Decisions()
        self._moved: dict[str, CheckTransactionStateRequest] = {}
        """Place of the half as a broker that asked told it last; only for transactions whose block or decision is under
        way."""
        self._telling: dict[Transaction, trio.CancelScope] = {}
        self._closing = self._closed = False
        self._asking: dict[str, _Asker] = {}
        """The last broker that asked, by transaction, for those at the checker."""
        self._limit = trio.CapacityLimiter(checks_at_once)
        self._broken = Bell()

    # --- the user's side -------------------------------------------------------------------------------------

    def begin(
        self, message: Message, *, timeout_ms: float | None = None, queue: MessageQueue | None = None,
        order_by: str | None = None, check_after: dt.timedelta | None = None,
    ) -> AbstractAsyncContextManager[Transaction]:
        """Store the half of ``message`` and run the block as its local transaction. Consumers get it once committed.

        The end of the block commits, and waits for the broker to confirm it for as long as a send may take; a block
        that raises or is cancelled rolls back, and waits for nothing. ``check_after``: how long a broker is to wait
        before it asks, instead of its ``transactionTimeOut``; what is decided later is left to the check.

        Raises:
            SendFailed: before the block: the half is stored nowhere.
            SendUnknown: before the block: it may be stored, and is rolled back.
            MessageIllegal, CompressionMissing: before the block: nothing was sent. Delays are illegal here.
            DecisionRefused: behind the block: it is committed, and the broker does not have the half.
            Contradicted: behind the block: the broker has the other decision.
        """
        return self._begin(message, timeout_ms, queue, order_by, check_after)

    @asynccontextmanager
    async def _begin(
        self, message: Message, timeout_ms: float | None, queue: MessageQueue | None, order_by: str | None,
        check_after: dt.timedelta | None,
    ) -> AsyncIterator[Transaction]:
        if self._closed:
            raise RuntimeError("these transactions ended with their block `async with client.transactions(...)`")
        if message.delayed:
            raise MessageIllegal("a transaction has no delayed message")
        further = {TRANSACTIONAL: "true", PRODUCER_GROUP: self._session.producer_group}
        if check_after is not None:
            if check_after.total_seconds() < 1:
                raise MessageIllegal(f"check_after {check_after}: a second or more")
            further[IMMUNE_S] = str(int(check_after.total_seconds()))
        half = await self._producer.send_half(
            message, further, timeout_ms, queue, order_by,
            lambda message_id, place: self._abandoned(message.topic, message_id, place))
        transaction = Transaction(half, message.topic, self)
        self._decisions.begin(half.message_id)
        try:
            yield transaction
        except BaseException:
            if transaction.open:
                transaction.rollback()
            raise
        if transaction.open:
            transaction.commit()
        if transaction.decision is not Decision.UNDECIDED:
            await transaction.told.wait()
        if transaction.failure is not None:
            raise transaction.failure

    def _abandoned(self, topic: str, message_id: str, place: Sent | None) -> None:
        """Roll back a half that may be stored, and has no block."""
        self._decisions.decide(message_id, Decision.ROLLBACK)
        if place is not None:
            transaction = Transaction(place, topic, self)
            transaction.decision = Decision.ROLLBACK
            self._tell_soon(transaction)

    def decide(self, transaction: Transaction, decision: Decision) -> None:
        """Note the decision that a block, or its end, makes. Raises ``Contradicted``."""
        new = self._decisions.decide(transaction.message_id, decision)
        if new:
            transaction.decision = decision
            self._tell_soon(transaction)
        elif transaction.decision is Decision.UNDECIDED:  # it was left, and the checker has said the same since
            transaction.decision, transaction.outcome = decision, Outcome.LEFT_TO_CHECK
            transaction.told.set()

    def leave(self, transaction: Transaction) -> None:
        """Leave the transaction to the checker from now on."""
        self._over(transaction.message_id)

    def _over(self, message_id: str) -> None:
        self._decisions.over(message_id)
        self._moved.pop(message_id, None)

    # --- telling it to the broker ----------------------------------------------------------------------------

    def _tell_soon(self, transaction: Transaction) -> None:
        if self._closed:  # its block outlives the transactions'
            transaction.outcome = Outcome.LEFT_TO_CHECK
            self._over(transaction.message_id)
            transaction.told.set()
            return
        self._telling[transaction] = scope = trio.CancelScope(shield=True)
        self._nursery.start_soon(self._tell, transaction, scope, name=f"end of {transaction.message_id}")

    async def _tell(self, transaction: Transaction, scope: trio.CancelScope) -> None:
        """Tell the broker a decision, in a task of its own: a block that is cancelled takes back no decision."""
        transaction.outcome = Outcome.LEFT_TO_CHECK
        ended, refused = Heard.LEFT, None
        try:
            with scope:
                ended, refused = await self._ended(transaction)
            if ended is Heard.CONFIRMED:
                transaction.outcome = Outcome.CONFIRMED
            elif ended is Heard.CONTRADICTED or (
                    ended is Heard.REFUSED and transaction.decision is Decision.COMMIT):  # else nobody sees it anyway
                transaction.outcome, transaction.failure = Outcome.REFUSED, refused
            logger.debug("%r: %s", transaction, transaction.outcome.value)
        finally:
            del self._telling[transaction]
            self._over(transaction.message_id)
            transaction.told.set()

    async def _ended(self, transaction: Transaction) -> tuple[Heard, ClientError | None]:
        """Tell the master until it answers, or may have heard it. Told twice, Java's broker delivers twice."""
        session, half = self._session, transaction.half
        deadline = trio.current_time() + session.settings.send_timeout_ms / 1e3
        while (left_s := deadline - trio.current_time()) > 0:
            route = session.routes.cached(transaction.topic)
            address = route.master(half.queue.broker_name) if route is not None else None
            if address is not None:
                try:
                    answer = await session.remoting.call(
                        address, request(RequestCode.END_TRANSACTION, self._end(transaction)), left_s * 1e3)
                except ConnectFailed:
                    pass
                except RemotingError as error:
                    logger.info("%r: %s", transaction, error)
                    return Heard.LEFT, None
                else:
                    ended = of_decision(answer.code, answer.remark)
                    if ended is Heard.CONFIRMED:
                        self._decisions.confirmed(half.message_id, session.remoting.connection(address))
                    if ended is Heard.CONTRADICTED:
                        why = f"{address} answered {answer.code}: {answer.remark}"
                        return ended, Contradicted(half.message_id, why)
                    if ended is not Heard.AGAIN:
                        return ended, DecisionRefused(repr(transaction), answer.code, answer.remark, address)
            if self._closing or session.routes.over:
                break
            with trio.move_on_at(deadline):
                await session.routes.renew(transaction.topic)
        return Heard.LEFT, None

    def _end(self, transaction: Transaction) -> EndTransactionRequest:
        """Make the request with the half's newest place: a broker that asks moves the half first.

        Java's broker takes the old place for another transaction's."""
        half, moved = transaction.half, self._moved.get(transaction.message_id)
        place = (half.queue_offset, parse_message_id(half.offset_message_id)[1]) if moved is None else (
            moved.tran_state_table_offset, moved.commit_log_offset)
        return EndTransactionRequest(
            self._session.producer_group, *place, transaction.decision.value, moved is not None, half.message_id,
            half.message_id, transaction.topic)

    async def close(self) -> None:
        """Tell what is decided, as far as that takes no time."""
        self._closing = True
        with trio.move_on_after(_GOODBYE_S, shield=True):
            for transaction in list(self._telling):
                await transaction.told.wait()
        self._closed = True
        for scope in self._telling.values():
            scope.cancel()

    # --- the broker's questions (``AnswersChecks``) ------------------------------------------------------------------

    def check(self, connection: Connection, header: CheckTransactionStateRequest, record: Record) -> None:
        """Answer 39: what became of a transaction. Each is at the checker once, however often brokers ask."""
        message = Received(
            record, MessageQueue(record.message.topic.decode(errors="replace"), "", record.message.queue_id),
            self._session.settings.expanded_bytes_max)
        told, asker = self._decisions.told(message.message_id, connection), (connection, header)
        if told is not None:
            if self._decisions.busy(message.message_id):
                self._moved[message.message_id] = header
            self._answer(message, asker, told)
        elif message.message_id in self._asking:
            self._asking[message.message_id] = asker
        elif len(self._asking) < CHECKS_MOST:
            self._asking[message.message_id] = asker
            self._nursery.start_soon(self._ask, message, name=f"check of {message.message_id}")
        else:
            logger.warning("transaction %s is not checked now: %d others wait for the checker; the broker asks again",
                           message.message_id, CHECKS_MOST)

    async def _ask(self, message: Received) -> None:
        decision = Decision.UNDECIDED
        try:
            async with self._limit:
                decision = Decision(await self._checker(message))
        except Exception:
            logger.exception("the checker of transactions failed for %s", message.message_id)
        try:
            if decision is not Decision.UNDECIDED:
                self._decisions.decide(message.message_id, decision)
        except Contradicted as contradicted:  # its own block decided after it had left the transaction
            logger.error("the checker's decision does not count: %s", contradicted)
            decision = self._decisions.of(message.message_id) or decision
        self._answer(message, self._asking.pop(message.message_id), decision)

    def _answer(self, message: Received, asker: _Asker, decision: Decision) -> None:
        """Answer the broker that asked: the offsets are its own. If it is gone, the next master asks."""
        connection, header = asker
        command = request(RequestCode.END_TRANSACTION, EndTransactionRequest(
            self._session.producer_group, header.tran_state_table_offset, header.commit_log_offset, decision.value,
            True, message.message_id, header.transaction_id, message.topic), oneway=decision is Decision.UNDECIDED)

        def answered(result: Command | RemotingError) -> None:
            self._over(message.message_id)
            if isinstance(result, Command) and of_decision(result.code, result.remark) is Heard.CONFIRMED:
                self._decisions.confirmed(message.message_id, connection)
            else:
                logger.info("answer to the check of %s: %s", message.message_id, result)

        try:
            if decision is Decision.UNDECIDED:
                connection.send(command)
            else:
                connection.call_nowait(command, answered, self._session.settings.send_timeout_ms)
                self._decisions.begin(message.message_id)
        except RemotingError as error:
            logger.debug("answer to the check of %s: %s", message.message_id, error)

    # --- who may ask -----------------------------------------------------------------------------------------

    async def introduce(self, topics: Sequence[str]) -> None:
        """Let the masters of these know that this group has somebody to ask. Raises ``NoNameServer``."""
        for topic in topics:
            try:
                await self._session.routes.get(topic)
            except NoRoute as error:  # it is looked for, and greeted when it is there
                logger.warning("%s", error)
        await self._session.greet_all()

    def broken(self) -> None:
        """Hear that a connection broke: another broker may be master soon, and know of no producer to ask."""
        self._broken.ring()

    async def follow(self) -> None:
        """Look for the next master when a connection broke, and greet it, as long as routes live; until cancelled."""
        session = self._session
        while True:
            await self._broken.wait()
            until = trio.current_time() + session.settings.route_poll_ms / 1e3
            while trio.current_time() < until:
                await trio.sleep(_LOOK_S)
                for route in session.routes:
                    await session.routes.renew(route.topic)
                if session.routes.over:
                    return
                await session.greet_all()
                if session.greeted_all:
                    break
