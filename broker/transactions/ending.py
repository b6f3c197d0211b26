"""Request 37, a producer's decision. A commit is one put of the final record and a mark; a rollback is a mark.

*The idea.* A transaction is decided once, by the log. The decision is one put, stored whole or not at all; those that
come in one turn of the loop share it (``together``). Every replica computes its table of transactions from the same log
(``halves``), so a decision survives its master as any acknowledged message does. A repeated decision is answered with
success and writes nothing; a contradicting one is refused.

*Rejected.*

- Write the final record now and its mark later, and remember no decision, as RocketMQ does: a master lost in between
  leaves a half that looks open. It may be committed twice, or rolled back after consumers have read it.
- Keep decisions in a file of their own: the file would have to be replicated and synced in step with the log, which has
  both properties already.
- Look only at the table for an earlier decision: a second decision that comes before the log shows the first would be
  taken for the first. So a decision counts from its put on (``_under_way``).

*Why it is right.*

- *One master puts no two decisions.* It puts one only if no other is in flight and the table has none. A decision in
  flight is forgotten when the table has it (``shown``), when it was not stored, or when the log was cut before it
  (``cut``). So each decision in the log is in one of the two places.
- *Nor do two masters.* A new master decides only when its table has all that its log held at its election (``opened``);
  earlier requests wait. In the mode that waits for all members, it then has every acknowledged decision.
- *Different halves of a transaction are recognised.* A half that is put back names the first one, so decisions about
  different halves of one transaction meet.
- *Nor do a master and its slave*, where slaves may act: only who has the right to deliver decides, and one broker has
  it at a time (``broker.acting.right``).
- *An acting slave* may not write to its log. For a commit it first sends the message to another group's master; then it
  keeps the decision in its ``ledger`` on disk; then it answers. The ledger is asked like the table until the master is
  back and has put the mark (``settle``). A crash before the decision is on disk may deliver the message twice.

Source: ``EndTransactionProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs

from broker import properties as props
from broker.again import attempt_of
from broker.gathering import Gathering
from broker.ha.acks import PutStatus
from broker.puts import Outlet, PutResult, Puts
from broker.rules import Chain, Draft, Refusal, Rule
from broker.sending.answers import STORED, refusal
from broker.standing import Standing
from broker.store.errors import OffsetGone
from broker.store.log import Log
from broker.store.messages import StoredMessages
from broker.transactions import records
from broker.transactions.checking import CheckLimits, is_late
from broker.transactions.feeding import Feed
from broker.transactions.records import COMMITTED, ROLLED_BACK, Half, read_half
from broker.transactions.together import BYTES_MAX, COUNT_MAX, Decided, SharedPut
from remoting.codes import ResponseCode
from remoting.command import ONEWAY, Command, response
from remoting.connection import Connection
from remoting.daemon.latency import Latency
from remoting.errors import DamagedRecord
from remoting.fields import decimal
from remoting.headers.transactions import EndTransactionRequest
from remoting.record import BODY_BYTES_MAX, COMMIT, ROLLBACK, Message, Record, decode_properties

logger = logging.getLogger("broker")

WAITING_MAX: Final = 10_000
"""Decisions that may wait for a new master to know all earlier ones; further ones are refused."""
HALF_BYTES: Final = 4_096
"""Bytes that a half is read with at first; most are no larger."""
FINISHED_S: Final = (5.0, 60.0, 600.0, 3_600.0, 43_200.0, 86_400.0)
"""Bounds of the durations of transactions, from RocketMQ's metrics."""
NOT_FOUND: Final = "Find prepared transaction message failed"
WRONG_GROUP: Final = "The producer group wrong"
WRONG_QUEUE_OFFSET: Final = "The transaction state table offset wrong"
ANOTHER: Final = "Another transaction's half is there"
LATE: Final = ("Message commit fail [producer end]: it comes later than CHECK_IMMUNITY_TIME_IN_SECONDS after the half; "
               "the broker asks")
UNKNOWN: Final = "How the transaction ended is not known any more"
_DECISIONS: Final = {COMMIT: COMMITTED, ROLLBACK: ROLLED_BACK}
_OF_ONE: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
"""Refusals of one message, for which those that were put with it are not to blame."""


@attrs.define
class EndCounters:
    """Sums since this process began."""

    committed: Counter[str] = attrs.field(factory=Counter)
    """Commits by topic."""
    rolled_back: Counter[str] = attrs.field(factory=Counter)
    committed_after: dict[str, Latency] = attrs.field(factory=dict)
    """Time from a half's birth to its commit, by topic."""
    again: int = 0
    contradicted: int = 0
    unknown: int = 0
    """Decisions about transactions that ended in an unknown way."""
    refused: int = 0
    """Decisions that come too late, or name a half that is missing or another's."""
    failed: int = 0
    """Decisions that could not be stored."""


@attrs.define
class _UnderWay:
    decision: str
    waiting: list[tuple[Connection, Command]]
    at: int | None = None
    """Offset of its mark in the log; None: its put is in flight."""
    code: int = ResponseCode.SUCCESS
    """The answer when it was stored; with another code than this one it may still be lost."""


@attrs.frozen
class Author:
    """Makes marks in this broker's name."""

    store_host: bytes
    standing: Standing
    wall_ms: Callable[[], int]
    new_id: Callable[[], str]

    def mark(self, places: Sequence[int], why: str, firsts: Sequence[int] = ()) -> Message:
        """A mark. ``firsts``: offsets of the first halves of the transactions that end."""
        return records.mark(places, why, self.new_id(), self.wall_ms(), self.store_host, self.standing.role.epoch,
                            firsts=firsts)


class DecisionLedger(Protocol):
    """Decisions of acting slaves, by the offset of each transaction's first half."""

    def unread(self) -> str:
        """Why decisions of other members may be missing; "": none is."""
        ...

    def decision(self, offset: int) -> bool | None:
        """Return whether the transaction was committed; None: no slave decided it."""
        ...

    def decide(self, offset: int, *, committed: bool) -> None: ...

    def when_kept(self, call: Callable[[], None]) -> None:
        """Run ``call`` once all decisions so far are on disk."""
        ...

    def sends_on(self) -> bool:
        """Return whether it is noted that halves are sent to other groups' masters, as this group's is RocketMQ's."""
        ...


class Ending:
    """Handles decisions. Call ``opened`` when this broker knows all earlier decisions and may write, ``closed`` when it
    may no longer."""

    def __init__(self, feed: Feed, log: Log, messages: StoredMessages, puts: Puts, outlet: Outlet, author: Author,
                 rules: Sequence[Rule], why_not: Callable[[], str],
                 before_write: Callable[[Callable[[], object]], None]) -> None:
        """``outlet`` takes an acting slave's commits. ``rules`` are those of other parts for a delivered message.
        ``why_not`` returns why this broker may not decide, or "" if it may. ``before_write`` has a call made when the
        turn is over in which decisions were gathered."""
        self.ledger: DecisionLedger | None = None
        """Set in groups where slaves may act."""
        self.sends_on: Callable[[], bool] = lambda: False
        """Returns whether an acting slave sends halves to other groups' masters, where they are decided."""
        self._outlet = outlet
        self.limits = CheckLimits()
        self.counters = EndCounters()
        self._feed, self._log, self._messages, self._puts, self._author = feed, log, messages, puts, author
        self._rules, self._why_not = Chain(*rules), why_not
        self._gathering = Gathering[tuple[str, bytes], Decided](
            before_write, lambda key, decided: self._put_together(SharedPut(key[0], decided)),
            count_max=COUNT_MAX, bytes_max=min(BYTES_MAX, log.file_bytes // 4))
        self._looked_at = [f"{name}\x01".encode() for name in self._rules.looked_at]
        self._none_left: set[Callable[[], None]] = set()
        """Run once, when no decision is in flight on a slave."""
        self._under_way: dict[int, _UnderWay] = {}
        """Decisions not in the table yet, by the offset of the transaction's first half."""
        self._waiting: deque[tuple[Connection, Command]] = deque()
        self._open = False

    # --- moments ---------------------------------------------------------------------------------------------

    def opened(self) -> None:
        self._open = True
        while self._waiting:
            attempt_of(self.end, "a decision")(*self._waiting.popleft())

    def closed(self) -> None:
        self._open = False
        self._answer_waiting(_slave)

    def right_changed(self) -> None:
        """``why_not`` may have changed: refuse decisions that wait, if the right is lost."""
        why = self._why_not()
        if why:
            self._answer_waiting(lambda request: _no_right(request, why))

    def _answer_waiting(self, answer: Callable[[Command], Command]) -> None:
        while self._waiting:
            connection, request = self._waiting.popleft()
            connection.reply(request, answer(request))

    def cut(self, end: int) -> None:
        """The log was cut at ``end``: decisions after it are gone."""
        for first, each in list(self._under_way.items()):
            if each.at is not None and each.at >= end:
                del self._under_way[first]

    def shown(self, end: int) -> None:
        """The table has heard all decisions below ``end``."""
        for first, each in list(self._under_way.items()):
            if each.at is not None and each.at < end:
                del self._under_way[first]

    def is_under_way(self, first: int) -> bool:
        """Return whether a decision of that transaction is in flight, or an acting slave made one."""
        return first in self._under_way or (self.ledger is not None and self.ledger.decision(first) is not None)

    def when_all_decided(self, call: Callable[[], None]) -> None:
        """Run ``call`` on a slave when no decision is in flight, perhaps at once."""
        self._none_left.add(call)
        self._none_under_way()

    def _none_under_way(self) -> None:
        if not self._under_way:
            calls, self._none_left = self._none_left, set()
            for call in calls:
                call()

    # --- a decision ------------------------------------------------------------------------------------------

    def end(self, connection: Connection, request: Command) -> Command | None:
        """Handle a decision. None: the answer follows when it is stored."""
        asked = EndTransactionRequest.from_ext(request.ext)
        stands_in = self.ledger is not None and self._author.standing.role.acts
        if not stands_in and not self._author.standing.role.takes_puts and not self._puts.serving:
            return _slave(request)
        if stands_in and self.sends_on():
            return _slave(request)
        decision = _DECISIONS.get(asked.commit_or_rollback)
        if decision is None:
            return response(request)
        why = self._why_not()
        if why:
            return _no_right(request, why)
        if not self._open and not stands_in:
            if len(self._waiting) >= WAITING_MAX:
                return response(request, ResponseCode.SYSTEM_BUSY,
                                remark="this master does not know all earlier decisions yet")
            self._waiting.append((connection, request))
            return None
        self._feed.feed_all()
        found = self._find(asked)
        if isinstance(found, Refusal):
            self.counters.refused += 1
            return response(request, found.code, remark=found.remark)
        record, half = found
        return self._decide(connection, request, record, self._feed.verified(half), decision)

    def _find(self, asked: EndTransactionRequest) -> tuple[Record, Half] | Refusal:
        known = self._feed.halves.at(asked.commit_log_offset)
        try:
            if known is None:
                record = self._log.record(asked.commit_log_offset, HALF_BYTES)
            else:
                record = self._log.record(asked.commit_log_offset, known.size, self._feed.near(asked.commit_log_offset))
        except (OffsetGone, DamagedRecord):
            return Refusal(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
        except OSError as error:
            logger.error("the half at %d of the log cannot be read: %s", asked.commit_log_offset, error)
            return Refusal(ResponseCode.SYSTEM_ERROR, f"The half cannot be read now: {error}")
        half = read_half(record) if known is None else known
        if isinstance(half, str):
            return Refusal(ResponseCode.SYSTEM_ERROR, f"{NOT_FOUND}: {half}")
        if not asked.from_transaction_check and is_late(half, self._author.wall_ms(), self.limits):
            return Refusal(ResponseCode.ILLEGAL_OPERATION, LATE)
        if not half.group or half.group != asked.producer_group:
            return Refusal(ResponseCode.SYSTEM_ERROR, WRONG_GROUP)
        if half.queue_offset != asked.tran_state_table_offset:
            return Refusal(ResponseCode.SYSTEM_ERROR, WRONG_QUEUE_OFFSET)
        if half.unique and asked.transaction_id and half.unique not in (asked.transaction_id, asked.msg_id):
            # The log was cut before the half that is meant, and another one was stored at its offset.
            return Refusal(ResponseCode.SYSTEM_ERROR, ANOTHER)
        return record, half

    def _decide(self, connection: Connection, request: Command, record: Record, half: Half,
                decision: str) -> Command | None:
        halves = self._feed.halves
        named = half.offset if half.first is None else half.first
        transaction = halves.of(half.offset) or halves.of(named)
        first = named if transaction is None else transaction.first
        under_way = self._under_way.get(first)
        if under_way is not None:
            if under_way.decision != decision:
                return self._contradicted(request, half, under_way.decision)
            self.counters.again += 1
            if under_way.at is not None:
                return response(request, under_way.code)
            under_way.waiting.append((connection, request))
            return None
        decided = None if self.ledger is None else self.ledger.decision(first)
        if decided is not None:
            if decided != (decision is COMMITTED):
                return self._contradicted(request, half, COMMITTED if decided else ROLLED_BACK)
            self.counters.again += 1
            return response(request)
        if transaction is None and half.queue_offset < self._feed.half_end:
            ended = self.how_it_ended(half, first)
            if ended == decision:
                self.counters.again += 1
                return response(request)
            if ended in _DECISIONS.values():
                return self._contradicted(request, half, ended)
            if ended != records.GIVEN_UP:
                self.counters.unknown += 1
                return response(request, ResponseCode.SYSTEM_ERROR, remark=f"{UNKNOWN}: {half.unique}")
        final = None
        if decision is COMMITTED:
            ruled = self._ruled(records.final(record, half, self._author.store_host, self._author.standing.role.epoch))
            if isinstance(ruled, Refusal):
                self.counters.failed += 1
                return response(request, ruled.code, remark=ruled.remark)
            final = ruled
        under_way = self._under_way[first] = _UnderWay(decision, [(connection, request)])
        if self._open or self.ledger is None:
            self._put(under_way, half if transaction is None else transaction.half, half, first, final)
        else:
            self._stand_in(self.ledger, under_way, half, first, final)
        return None

    def _put(self, under_way: _UnderWay, present: Half, half: Half, first: int, final: Message | None) -> None:
        """Put a decision with those of this turn. The mark names the ``present`` half: ``half`` may have been put back.
        """
        place = present.queue_offset
        key = None if final is not None and _finds(final, half, first, place) else first
        decided = Decided(place, key, final, lambda result: self._done(first, under_way, half, result))
        self._gathering.add((under_way.decision, decided.topic), decided, decided.size_bytes)

    def _stand_in(self, ledger: DecisionLedger, under_way: _UnderWay, half: Half, first: int,
                  final: Message | None) -> None:
        """Decide on an acting slave: send the message of a commit to another group's master, then keep the decision in
        the ledger, then answer."""
        def stored(result: PutResult) -> None:
            if result.status in STORED:
                ledger.decide(first, committed=under_way.decision is COMMITTED)
                ledger.when_kept(lambda: self._stood_in(first, under_way, half, result))
            else:
                self._done(first, under_way, half, result)
                self._none_under_way()

        if final is not None:
            self._outlet.put([final], stored)
        else:
            stored(PutResult(PutStatus.PUT_OK))

    def _stood_in(self, first: int, under_way: _UnderWay, half: Half, result: PutResult) -> None:
        """The ledger has the decision on disk: answer, and forget that it was in flight."""
        self._done(first, under_way, half, result)
        if self._under_way.get(first) is under_way:
            del self._under_way[first]
        self._none_under_way()

    def _contradicted(self, request: Command, half: Half, decision: str) -> Command:
        self.counters.contradicted += 1
        logger.warning("transaction %s of group %s was decided before: %s", half.unique, half.group, decision)
        return response(request, ResponseCode.ILLEGAL_OPERATION,
                        remark=f"the transaction {half.unique} was decided before: {decision}")

    def how_it_ended(self, half: Half, first: int) -> str:
        """Return how a transaction ended: by the table, else by our mark in the log or the final record.

        ``GIVEN_UP``: it may still be decided. ``UNKNOWN``: RocketMQ's marks tell no rollback."""
        ended = self._feed.halves.ended(half.offset)
        if ended is not None and ended.decision in _DECISIONS.values():
            return ended.decision
        said = {records.reason(each.message.properties)
                for each in self._messages.get_by_key(records.OP_TOPIC, str(first))}
        for decision in _DECISIONS.values():
            if decision in said:
                return decision
        if any(each.message.sys_flag & ROLLBACK == COMMIT and each.message.prepared_offset in (half.offset, first)
               for each in self._messages.get_by_key(half.topic.encode(), half.unique)):
            return COMMITTED
        return records.GIVEN_UP if records.GIVEN_UP in said else records.UNKNOWN

    def _put_together(self, together: SharedPut) -> None:
        def done(result: PutResult) -> None:
            if result.status in _OF_ONE and len(together.all) > 1:
                for alone in together.alone():
                    self._put_together(alone)
                return
            for each in together.all:
                each.done(result)

        self._puts.put(together.messages(self._author.mark), done)

    def settle(self, offset: int, *, committed: bool, done: Callable[[], None]) -> None:
        """Put the mark of an acting slave's decision into this master's log; the message itself is at another group's
        master. ``done`` is called when the mark is stored, or the transaction ended before."""
        if not self._open:
            return
        try:
            self._feed.feed_all()
        except (OSError, OffsetGone, DamagedRecord) as error:
            logger.error("decisions of acting slaves wait: transactions cannot be read in the log: %s", error)
            return
        transaction = self._feed.halves.of(offset)
        if transaction is None:
            if offset < self._log.max_offset:
                done()
            return
        first = transaction.first
        if first in self._under_way:
            return
        under_way = self._under_way[first] = _UnderWay(COMMITTED if committed else ROLLED_BACK, [])

        def stored(result: PutResult) -> None:
            self._done(first, under_way, transaction.half, result)
            if result.status in STORED:
                done()

        self._puts.put([self._author.mark([transaction.half.queue_offset], under_way.decision, [first])], stored)

    def _ruled(self, message: Message) -> Message | Refusal:
        """The message after the rules of other parts, which may delay it."""
        for name in self._looked_at:
            if message.properties.find(name) >= 0:  # quicker than ``in``
                break
        else:
            return message
        values = decode_properties(message.properties)
        draft = Draft(message.topic.decode(), message.queue_id, values, message.sys_flag,
                      level=decimal(values.get(props.DELAY, "")) or 0)
        stop = self._rules.stops(draft)
        if stop is not None:
            return stop if isinstance(stop, Refusal) else Refusal(ResponseCode.SYSTEM_BUSY, "a topic is being made")
        return attrs.evolve(message, topic=draft.topic.encode(), queue_id=draft.queue_id, sys_flag=draft.sys_flag,
                            properties=props.write(draft.properties))

    def refusal(self, draft: Draft) -> Refusal | None:
        """Return why rules of other parts would refuse this half's message if it were committed now; None: they would
        not."""
        values = dict(draft.properties)
        if self._rules.looked_at.isdisjoint(values):
            return None
        stop = self._rules.stops(attrs.evolve(draft, properties=values, sys_flag=draft.sys_flag & ~ROLLBACK | COMMIT,
                                              level=decimal(values.get(props.DELAY, "")) or 0, answered={}))
        return stop if isinstance(stop, Refusal) else None

    def _done(self, first: int, under_way: _UnderWay, half: Half, result: PutResult) -> None:
        code = _code(result.status)
        if code is not None:
            under_way.at = result.puts[-1].offset if result.puts else None
            under_way.code = code
            counted = self.counters.committed if under_way.decision is COMMITTED else self.counters.rolled_back
            counted[half.topic] += 1
            if counted is self.counters.committed:
                after = self.counters.committed_after.get(half.topic)
                if after is None:
                    after = self.counters.committed_after[half.topic] = Latency(FINISHED_S, 1)
                after.add(max(0, self._author.wall_ms() - half.born_ms) // 1_000)
        else:
            self.counters.failed += 1
            if self._under_way.get(first) is under_way:
                del self._under_way[first]
        for connection, request in under_way.waiting:
            if not request.flag & ONEWAY:
                connection.reply(request, _answer(request, result))


def _finds(final: Message, half: Half, first: int, place: int) -> bool:
    """Return whether ``how_it_ended`` finds this final record for each half of the transaction: there is one half, and
    nothing delays the message. Then its mark needs no key, which would cost the index as much as a message."""
    return (half.offset == first and half.queue_offset == place and bool(half.unique)
            and final.topic == half.topic.encode())


def _slave(request: Command) -> Command:
    return response(request, ResponseCode.SLAVE_NOT_AVAILABLE,
                    remark="Message store is slave mode, so end transaction is forbidden.")


def _no_right(request: Command, why: str) -> Command:
    return response(request, ResponseCode.SERVICE_NOT_AVAILABLE, remark=why)


def _code(status: PutStatus) -> int | None:
    """The code for a stored decision; None: it is not stored. If no slave is there, it is success: the mode then
    demands none."""
    if status is PutStatus.PUT_OK or status is PutStatus.SLAVE_NOT_AVAILABLE:
        return ResponseCode.SUCCESS
    return STORED.get(status)


def _answer(request: Command, result: PutResult) -> Command:
    code = _code(result.status)
    if code is not None:
        return response(request, code)
    refused = refusal(PutStatus(result.status), BODY_BYTES_MAX, result.remark)
    return response(request, refused.code, remark=refused.remark)
