"""Requests 200050 (POP) and 200052 (PEEK): give messages for a time, or only show them.

A POP chooses queues, reads them and puts a checkpoint for each that gives messages, all in one turn. It looks at as
much as a pull may, of all queues together; where it found nothing in that, it goes on behind it in a later turn. The
messages are sent when the checkpoints are stored as the group's mode demands. If the put is refused, nothing is sent,
and the next POP takes the same messages. If it is stored but not replicated in time, nothing is sent either: the
messages come back when they are due.
Source: ``PopMessageProcessor`` and ``PeekMessageProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

import attrs

from broker.again import attempt_of
from broker.consumers.subscriptions import Subscribed
from broker.ha.acks import PutStatus
from broker.journal import Journal
from broker.offsets import OffsetTable
from broker.offsets.inflight import Inflight
from broker.pop.chain import Checkpoints, Underway
from broker.pop.checks import Checks, wanted_of
from broker.pop.lending import NOT_IN_ORDER, Lending
from broker.pop.ordered import InOrder
from broker.pop.progress import Key, Stretch
from broker.pop.records import Records
from broker.pop.taking import MESSAGES_MAX, Haul, RetryNames, Visit, given, queue_offsets, told, visits
from broker.pop.waiting import Parking, WaitingRoom
from broker.pulling.filtering import read_filtered
from broker.pulling.reading import Effort, Found, ReadConfig, Status, read
from broker.puts import PutResult, Puts
from broker.rules import Refusal
from broker.standing import REJECTED, Standing
from broker.store.errors import StoreError
from broker.store.tables import SubscriptionGroup
from broker.topics.attributes import MESSAGE_TYPE
from remoting.bodies.namesrv import TopicConfig
from remoting.bodies.popping import CheckPoint
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import DamagedRecord
from remoting.fields import decimal
from remoting.headers.popping import FROM_MIN, PeekMessageRequest, PopMessageRequest, PopMessageResponse
from remoting.receipts import NORMAL, ORDERED, Receipt
from remoting.record import Message

LATE_MS: Final = 500
"""A request this much older than its polling time gets no messages."""
READS_MAX: Final = 8
"""Reads of one queue in one POP while the filter leaves out all that was read."""
NOTHING: Final = "NO_MESSAGE_IN_QUEUE"
PRIORITY: Final = "PRIORITY"


@attrs.frozen
class TakingConfig:
    """Keys of the part and of ``BrokerConfig``, and their defaults."""

    revive_queue_num: int = 8
    timer_wheel_enable: bool = True
    pop_from_retry_probability: int = 20
    pop_from_retry_probability_for_priority: int = 0
    priority_order_asc: bool = True
    init_pop_offset_by_check_msg_in_mem: bool = True
    enable_retry_topic_v2: bool = False
    retrieve_message_from_pop_retry_topic_v1: bool = True

    @property
    def retry_names(self) -> RetryNames:
        return RetryNames(self.enable_retry_topic_v2, self.retrieve_message_from_pop_retry_topic_v1)


@attrs.define
class PopCounters:
    """Sums since this process began; they only ever rise."""

    pops: int = 0
    """POPs that gave at least one message."""
    messages: int = 0
    """Messages that were given."""
    checkpoints: int = 0
    """Checkpoints that were stored."""
    refused: int = 0
    """POPs whose checkpoints could not be stored, so that nothing was given."""
    out: Inflight = attrs.field(factory=Inflight)
    """Messages in flight whose checkpoints this broker stored."""


@attrs.frozen
class _Taken:
    """The hauls of one POP, from all of its queues."""

    hauls: list[Haul]
    floors: list[int]
    """The group's offset in the queue of each haul."""
    rest: int
    """Messages that the queues still have."""
    failure: str = ""
    """Reason why a queue could not be read."""


class Popping:
    """Handles POPs and PEEKs. ``config``, ``reads`` and ``memory`` may be replaced at any time. ``ready`` returns
    whether this broker may give messages: it is master, knows each group's progress, and all that it holds is shown."""

    def __init__(self, config: TakingConfig, reads: ReadConfig, checks: Checks, *, journal: Journal, puts: Puts,
                 offsets: OffsetTable, records: Records, chain: Checkpoints, in_order: InOrder, room: WaitingRoom,
                 lending: Lending, standing: Standing, rng: Random, ready: Callable[[], bool],
                 gave: Callable[[str, str, int, int], None],
                 looked: Callable[[str, str, int, int], None], memory: int = 1 << 62) -> None:
        """``gave`` is called with group, topic, messages and bytes; ``looked`` with group, topic, queue id and the
        distance in bytes from what was read to the end of the log."""
        self.config, self.reads, self.checks, self.memory = config, reads, checks, memory
        self.counters = PopCounters()
        self._messages, self._visible, self._mend = journal.messages, journal.visible, journal.mender.ask
        self._puts, self._offsets, self._records, self._chain, self._room = puts, offsets, records, chain, room
        self._standing, self._rng, self._ready, self._gave, self._in_order = standing, rng, ready, gave, in_order
        self._looked = looked
        self._lending, self._wall_ms = lending, records.wall_ms
        self._again = attempt_of(self.pop, "a POP")
        self._turn = 0

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.POP_MESSAGE: self.pop, RequestCode.PEEK_MESSAGE: self.peek}

    # --- one POP ---------------------------------------------------------------------------------------------

    def pop(self, connection: Connection, request: Command) -> Command | None:
        """Carry out a POP. None: it waits for messages, or its checkpoints are being stored."""
        lends = self._lending.is_open
        if not self._standing.role.takes_puts and not lends:
            return response(request, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        asked, now_ms, config = PopMessageRequest.from_ext(request.ext), self._wall_ms(), self.config
        if asked.order and lends:
            return NOT_IN_ORDER.answer(request)
        where = f"the broker[{self.checks.config.broker_ip1}]"
        if asked.born_time > 0 and now_ms - asked.born_time - asked.poll_time > LATE_MS:
            return response(request, ResponseCode.POLLING_TIMEOUT, remark=f"{where} pop message is timeout too much")
        refusal = self.checks.broker("pop message")
        if refusal is not None:
            return refusal.answer(request)
        if not 0 < asked.max_msg_nums <= MESSAGES_MAX:
            return response(request, ResponseCode.INVALID_PARAMETER, remark=(
                f"{where} pop message's num is {'less than 1' if asked.max_msg_nums < 1 else 'greater than 32'}"))
        if not config.timer_wheel_enable:
            return response(request, ResponseCode.SYSTEM_ERROR,
                            remark=f"{where} pop message is forbidden because timerWheelEnable is false")
        reader = self.checks.reader(asked.consumer_group, asked.topic, asked.queue_id)
        if isinstance(reader, Refusal):
            return reader.answer(request)
        if asked.invisible_time < 0:
            return response(request, ResponseCode.INVALID_PARAMETER,
                            remark=f"{where} pop message's invisibleTime is {asked.invisible_time}")
        wanted = wanted_of(asked.topic, asked.exp, asked.exp_type)
        if isinstance(wanted, Refusal):
            return wanted.answer(request)
        if not self._ready() or connection.congested or (asked.order and not self._in_order.ready):
            return self._nothing(connection, request, asked, wanted, now_ms)
        taken = self._take(asked, *reader, wanted)
        if not taken.hauls:
            if taken.failure:
                return response(request, ResponseCode.SYSTEM_ERROR, remark=taken.failure)
            return self._nothing(connection, request, asked, wanted, now_ms, taken.rest)
        if asked.order:
            self._give_in_order(connection, request, asked, taken, now_ms)
            return None
        return self._give(connection, request, asked, taken, now_ms)

    def _nothing(self, connection: Connection, request: Command, asked: PopMessageRequest, wanted: Subscribed,
                 now_ms: int, rest: int = 0) -> Command | None:
        parked = self._room.park(
            connection, request, self._again, topic=asked.topic, group=asked.consumer_group,
            queue_id=max(-1, asked.queue_id), born_ms=asked.born_time, poll_ms=asked.poll_time, wanted=wanted)
        if parked is Parking.PARKED:
            if rest and not connection.congested:
                self._room.more(asked.topic, asked.consumer_group, max(-1, asked.queue_id))
            return None
        code = ResponseCode.POLLING_FULL if parked is Parking.FULL else ResponseCode.POLLING_TIMEOUT
        return _empty(request, asked, now_ms, code, rest)

    def _take(self, asked: PopMessageRequest, group: SubscriptionGroup, topic: TopicConfig,
              wanted: Subscribed) -> _Taken:
        chance, retry_below = self._rng.randrange(100), self.config.pop_from_retry_probability
        if not asked.order and topic.attributes.get(MESSAGE_TYPE) == PRIORITY and chance < (
                decimal(group.attributes.get("priority.factor", "100")) or 0):
            retry_below, chance = self.config.pop_from_retry_probability_for_priority, 0
        retry = None if asked.order else self._retry(asked.topic, asked.consumer_group, chance)
        hauls: list[Haul] = []
        floors: list[int] = []
        effort = Effort()
        left, room, rest, failure = asked.max_msg_nums, self.reads.max_transfer_bytes_on_message_in_memory, 0, ""
        for visit in visits(asked.topic, topic.read_queue_nums, asked.queue_id, retry, chance,
                            retry_first=chance < retry_below, last_first=self.config.priority_order_asc):
            key = visit.topic, asked.consumer_group, visit.queue_id
            floor = self._offset(key, asked.init_mode)
            if asked.order and self._in_order.blocked(key, asked.attempt_id, asked.invisible_time):
                continue
            if asked.order:
                floor = max(floor, self._in_order.goes_on(key))
            begin, at = (floor, floor) if asked.order else self._chain.where(key, floor)
            if left > 0 and room > 0 and not effort.is_spent:
                try:
                    found, begin, floor = self._read(key, begin, at, floor, wanted, left, room, effort)
                    haul = self._haul(visit, begin, found, key if asked.order else None)
                except StoreError as error:
                    failure = str(error)
                    continue
                except DamagedRecord as damage:
                    failure = f"{damage}: {self._mend(visit.topic.encode(), visit.queue_id)}"
                    continue
                at = found.next_offset
                if haul is not None:
                    hauls.append(haul)
                    floors.append(floor)
                    left -= len(haul.offsets)
                    room -= len(haul.data)
                elif at > begin:  # the filter wanted none: the next POP goes on there
                    self._chain.passed(key, at)
            rest += max(0, self._messages.max_offset(visit.topic.encode(), visit.queue_id) - at)
        return _Taken(hauls, floors, rest, failure)

    def _haul(self, visit: Visit, begin: int, found: Found, in_order: Key | None) -> Haul | None:
        """The messages that were found; in order, without those acknowledged before. None: there are none."""
        if not found.count:
            return None
        whole = Haul(visit, begin, queue_offsets(found.data), found.next_offset, found.data)
        return whole if in_order is None else self._in_order.open_part(in_order, whole)

    def _retry(self, topic: str, group: str, chance: int) -> tuple[str, int, int] | None:
        """The retry topic to look at; if two hold messages, one of them by ``chance``."""
        found = [(name, flag, config.read_queue_nums) for name, flag in self.config.retry_names.readable(topic, group)
                 if (config := self.checks.topics.get(name)) is not None]
        if len(found) > 1:
            found = [each for each in found if self._has_more(each[0], group, each[2])] or found
        return found[chance % len(found)] if found else None

    def _has_more(self, topic: str, group: str, queues: int) -> bool:
        keys = [(topic, group, queue_id) for queue_id in range(queues)]
        return any(self._messages.max_offset(topic.encode(), key[2]) > self._chain.where(
            key, self._offset(key, FROM_MIN))[1] for key in keys)

    def _offset(self, key: Key, init_mode: int) -> int:
        """The group's offset. A group without one gets its first offset here, by ``init_mode``."""
        topic, group, queue_id = key
        if self._offsets.config.use_server_side_reset_offset:
            reset = self._offsets.take_reset(group, topic, queue_id)
            if reset is not None:
                self._chain.forget(key)
                self._in_order.clear(key)
                return reset
        known = self._offsets.query(group, topic, queue_id)
        if known is not None:
            return known
        raw = topic.encode()
        least = self._messages.min_offset(raw, queue_id)
        if init_mode == FROM_MIN or topic.startswith("%RETRY%"):
            return least
        first = 0
        if least > 0 or not self.config.init_pop_offset_by_check_msg_in_mem or not self._messages.is_recent(
                raw, queue_id, 0, self.memory):
            first = max(0, self._messages.max_offset(raw, queue_id) - 1)
        self._offsets.commit(group, topic, queue_id, first)
        return first

    def _read(self, key: Key, begin: int, at: int, floor: int, wanted: Subscribed, count: int,
              bytes_max: int, effort: Effort) -> tuple[Found, int, int]:
        """The messages, where their checkpoint begins, and the group's offset (corrected if the queue ends before it).
        Raises ``StoreError``, ``DamagedRecord``."""
        reads = 1
        while True:
            found = self._read_once(key, at, wanted, count, bytes_max, effort)
            self._looked(key[1], key[0], key[2], found.behind)
            meant = found.next_offset
            if found.count or meant == at or reads == READS_MAX or effort.is_spent:
                return found, begin, floor
            if meant < at:  # the queue ends before the group's offset
                self._chain.forget(key)
                self._offsets.commit(key[1], key[0], key[2], meant)
                begin = floor = meant
            elif found.status is Status.OFFSET_TOO_SMALL:
                self._offsets.on_moved(key[1], key[0], key[2], at, meant)
            at = meant
            reads += 1

    def _read_once(self, key: Key, at: int, wanted: Subscribed, count: int, bytes_max: int,
                   effort: Effort | None = None) -> Found:
        topic, queue_id = key[0].encode(), key[2]
        if wanted.filter is None:
            return read(self._messages, topic, queue_id, at, codes=wanted.codes, count=count, bytes_max=bytes_max,
                        config=self.reads, memory=self.memory, effort=effort)
        return read_filtered(self._messages, topic, queue_id, at, wanted=wanted, count=count, bytes_max=bytes_max,
                             config=self.reads, memory=self.memory, effort=effort)

    # --- its checkpoints -------------------------------------------------------------------------------------

    def _give(self, connection: Connection, request: Command, asked: PopMessageRequest, taken: _Taken,
              now_ms: int) -> Command | None:
        group, name = asked.consumer_group, self._standing.broker_name
        checkpoints = [CheckPoint(
            start := haul.offsets[0], now_ms, asked.invisible_time, len(haul.offsets), haul.visit.queue_id,
            haul.visit.topic, group, diffs=[offset - start for offset in haul.offsets], broker_name=name)
            for haul in taken.hauls]
        if self._lending.is_open:
            self._lending.give(checkpoints, self._links(group, taken), partial(
                self._lent, connection, request, asked, taken, now_ms))
        else:
            revive_qid = self._next_revive_queue()
            messages: list[Message] = []
            for haul, floor, checkpoint in zip(taken.hauls, taken.floors, checkpoints, strict=True):
                visit = haul.visit
                step = Stretch(visit.topic, group, visit.queue_id, floor, haul.begin, haul.end)
                message = self._records.checkpoint(checkpoint, revive_qid, step.encode())
                if isinstance(message, Refusal):
                    self.counters.refused += 1
                    return _empty(request, asked, now_ms, ResponseCode.POLLING_TIMEOUT, taken.rest,
                                  f"no checkpoint: {message.remark}")
                messages.append(message)
            answer = self._answer(request, asked, taken, now_ms, revive_qid)
            self._puts.put(messages, partial(
                self._stored, connection, request, asked, answer, taken, checkpoints, self._links(group, taken)))
        if taken.rest:
            self._room.more(asked.topic, group, max(-1, asked.queue_id))
        return None

    def _links(self, group: str, taken: _Taken) -> list[Underway]:
        return [self._chain.add((haul.visit.topic, group, haul.visit.queue_id), haul.begin, haul.end, haul.looked)
                for haul in taken.hauls]

    def _answer(self, request: Command, asked: PopMessageRequest, taken: _Taken, now_ms: int,
                revive_qid: int) -> Command:
        name = self._standing.broker_name
        parts = [given(haul, asked.topic, Receipt(
            haul.offsets[0], now_ms, asked.invisible_time, revive_qid, haul.visit.flag, name, haul.visit.queue_id))
            for haul in taken.hauls]
        starts, offsets = told(taken.hauls)
        header = PopMessageResponse(now_ms, asked.invisible_time, revive_qid, taken.rest, starts, offsets)
        return response(request, ResponseCode.SUCCESS, header, b"".join(parts), Status.FOUND.value)

    def _lent(self, connection: Connection, request: Command, asked: PopMessageRequest, taken: _Taken, now_ms: int,
              outcome: int | str) -> None:
        """Answer a POP on an acting slave. ``outcome``: number of the revive queue, or why nothing is stored."""
        if isinstance(outcome, str):
            self.counters.refused += 1
            connection.reply(request, _empty(request, asked, self._wall_ms(), ResponseCode.POLLING_TIMEOUT, taken.rest,
                                             f"no checkpoint: {outcome}"))
            return
        self.counters.checkpoints += len(taken.hauls)
        self._count(asked.consumer_group, taken.hauls)
        connection.reply(request, self._answer(request, asked, taken, now_ms, outcome))

    def _give_in_order(self, connection: Connection, request: Command, asked: PopMessageRequest, taken: _Taken,
                       now_ms: int) -> None:
        def give(hauls: Sequence[Haul], counts: str, why_not: str) -> None:
            if why_not:
                self.counters.refused += 1
                answer = _empty(request, asked, self._wall_ms(), ResponseCode.POLLING_TIMEOUT, taken.rest, why_not)
            else:
                self._count(asked.consumer_group, hauls)
                starts, offsets = told(hauls)
                header = PopMessageResponse(now_ms, asked.invisible_time, ORDERED, taken.rest, starts, offsets, counts)
                answer = response(request, ResponseCode.SUCCESS, header, b"".join([haul.data for haul in hauls]),
                                  Status.FOUND.value)
            connection.reply(request, answer)

        self._in_order.deliver(
            asked.consumer_group, taken.hauls, now_ms, asked.invisible_time, asked.attempt_id, give)

    def _next_revive_queue(self) -> int:
        """The revive queues in turn: as many as are configured and exist."""
        topic = self.checks.topics.get(self._records.topic)
        queues = min(self.config.revive_queue_num, topic.write_queue_nums if topic is not None else 1)
        self._turn += 1
        return self._turn % max(1, queues)

    def _stored(self, connection: Connection, request: Command, asked: PopMessageRequest, answer: Command,
                taken: _Taken, checkpoints: Sequence[CheckPoint], links: Sequence[Underway],
                result: PutResult) -> None:
        for link, put in zip(links, result.puts, strict=False):
            self._chain.stored(link, put.offset + put.size)
        if not result.puts:
            for link in reversed(links):
                self._chain.refused(link)
        self._chain.settle(self._visible.offset)
        self.counters.checkpoints += len(result.puts)
        self._records.counts.count(checkpoints, result.status.name)
        if result.status is not PutStatus.PUT_OK:
            self.counters.refused += 1
            words = f"no checkpoint: {result.words}"
            connection.reply(request, _empty(
                request, asked, self._wall_ms(), ResponseCode.POLLING_TIMEOUT, taken.rest, words))
            return
        self._count(asked.consumer_group, taken.hauls)
        for haul in taken.hauls:
            self.counters.out.gave(asked.consumer_group, haul.visit.topic, len(haul.offsets))
        connection.reply(request, answer)

    def _count(self, group: str, hauls: Sequence[Haul]) -> None:
        self.counters.pops += 1
        for haul in hauls:
            self.counters.messages += len(haul.offsets)
            self._gave(group, haul.visit.topic, len(haul.offsets), len(haul.data))

    # --- one PEEK --------------------------------------------------------------------------------------------

    def peek(self, _: Connection, request: Command) -> Command:
        """Show the next messages without giving them: no offset moves."""
        asked = PeekMessageRequest.from_ext(request.ext)
        reader = self.checks.asking("peeking message", asked.consumer_group, asked.topic, asked.queue_id)
        if isinstance(reader, Refusal):
            return reader.answer(request)
        chance = self._rng.randrange(100)
        retry = self._retry(asked.topic, asked.consumer_group, chance)
        wanted = wanted_of(asked.topic, None, None)
        assert isinstance(wanted, Subscribed), "everything"
        data: list[bytes] = []
        left, rest, room = asked.max_msg_nums, 0, self.reads.max_transfer_bytes_on_message_in_memory
        for visit in visits(asked.topic, reader[1].read_queue_nums, asked.queue_id, retry, chance,
                            retry_first=chance < self.config.pop_from_retry_probability):
            found = self._look(visit, asked.consumer_group, wanted, left, room)
            if found is None:
                continue
            left -= found.count
            room -= len(found.data)
            data.append(found.data)
            rest += max(0, found.max_offset - found.next_offset)
        body = b"".join(data)
        return response(request, ResponseCode.SUCCESS if body else ResponseCode.PULL_NOT_FOUND,
                        PopMessageResponse(rest_num=rest), body, Status.FOUND.value if body else NOTHING)

    def _look(self, visit: Visit, group: str, wanted: Subscribed, count: int, bytes_max: int) -> Found | None:
        """The next messages of one queue; None: it cannot be read. With ``count`` 0, only how many there are."""
        key = visit.topic, group, visit.queue_id
        known = self._offsets.query(group, visit.topic, visit.queue_id)
        at = self._chain.where(key, known if known is not None else self._messages.min_offset(
            visit.topic.encode(), visit.queue_id))[1]
        try:
            found = self._read_once(key, at, wanted, max(1, count), bytes_max)
            if found.status is Status.OFFSET_TOO_SMALL:
                found = self._read_once(key, found.next_offset, wanted, max(1, count), bytes_max)
        except (StoreError, DamagedRecord):
            return None
        if count > 0 and bytes_max > 0:
            return found
        return attrs.evolve(found, next_offset=at, data=b"", count=0)


def _empty(request: Command, asked: PopMessageRequest, now_ms: int, code: int, rest: int,
           words: str = NOTHING) -> Command:
    return response(request, code, PopMessageResponse(now_ms, asked.invisible_time, NORMAL, rest), remark=words)
