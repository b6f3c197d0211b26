"""Messages for a while: each is given to one client of a group, which acknowledges it, or it comes back by itself.

The members of a group share no queues out: any number of them pop from every broker. A shell: one task for each broker
of a topic, which asks for more while there is room. Source: ``DefaultMQPushConsumerImpl.popMessage`` and
``ConsumeMessagePopConcurrentlyService`` of RocketMQ 5.5.0; ``FifoConsumeService`` of its gRPC clients for order.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol
from uuid import uuid4

import attrs
import trio

from broker.client.checking import check_expressions
from broker.client.config import ConsumerSettings
from broker.client.errors import ClientError, NoRoute, Refused
from broker.client.message import RETRY_PREFIX, MessageView, check_group, check_topic
from broker.client.producing import Producer
from broker.client.returns import Returns
from broker.client.route import Route
from broker.client.session import Session
from remoting import record as codec
from remoting.background import background
from remoting.bodies.consumers import MessageQueue, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.errors import DamagedRecord, HeaderError, RemotingError
from remoting.headers.popping import (
    ALL_QUEUES,
    FROM_MAX,
    FROM_MIN,
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from remoting.receipts import NORMAL, RETRY_V2, OrderCounts, Receipt, read_order_counts, read_starts, retry_flag
from remoting.record import Record
from remoting.subscription import subscribe, wants
from remoting.wakeup import Bell

logger = logging.getLogger("broker.client")

INVISIBLE_MS: Final = 60_000
BACK_OFF_S: Final = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
"""Seconds until a message comes again, by the number of times that it was given back before."""
RECONSUME_TIMES_MAX: Final = 16
_NOTHING: Final = (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND)
_FULL_MS: Final = 3_000
"""After a broker said that too many wait there."""
_UNTAKEN_MS: Final = 1_000
"""Milliseconds until others get the messages that nobody had taken here when the client closed."""
_DEAD_LETTERS: Final = -1
_HELD_S: Final = 0.1
_PAUSE_MAX_MS: Final = 1_000
_LOOK_MIN_S: Final = 0.1
"""Least time between two looks at messages that wait in order."""
_POP_CK: Final = b"POP_CK\x01"


class Answering(Protocol):
    """The consumer that a message tells how it was settled."""

    @property
    def group(self) -> str: ...
    async def ack(self, message: Popped) -> None: ...
    async def change(self, message: Popped, invisible_ms: int) -> None: ...
    async def give_back(self, message: Popped, pause_ms: int | None) -> None: ...


class Popped(MessageView):
    """A message that is this client's until ``visible_at``; acknowledge it before, or it comes again, to anybody."""

    __slots__ = ("_popper", "lock", "receipt", "settled", "visible_at")

    def __init__(self, record: Record, queue: MessageQueue, body_bytes_max: int, receipt: Receipt, visible_at: float,
                 popper: Answering) -> None:
        super().__init__(record, queue, body_bytes_max)
        self.receipt = receipt
        """Receipt by which the broker knows this delivery."""
        self.visible_at = visible_at
        """Time when the message comes back unless it is settled or extended, by trio's clock."""
        self.settled = False
        """It was acknowledged or given back."""
        self.lock = trio.Lock()
        """Held by each call about it, as the answer to one may have the receipt that the next one needs."""
        self._popper = popper

    def answered_by(self, popper: Answering) -> None:
        """Tell what becomes of it by another way, as clients on other loops need."""
        self._popper = popper

    @property
    def stands_in(self) -> str:
        """The topic that it was read from: its own, or, when it came back, one of the group's retry topics."""
        if self.receipt.retry_flag == NORMAL:
            return self.queue.topic
        sign = "+" if self.receipt.retry_flag == RETRY_V2 else "_"
        return f"{RETRY_PREFIX}{self._popper.group}{sign}{self.queue.topic}"

    @property
    def expired(self) -> bool:
        """Return whether other consumers may have it by now."""
        return trio.current_time() >= self.visible_at

    async def ack(self) -> None:
        """Acknowledge the message. When this returns the broker has stored that.

        Raises:
            Refused: the broker does not take it: the message comes again.
            Unreachable: nobody answered; it may come again, and may be acknowledged once more.
        """
        if not self.settled:
            await self._popper.ack(self)

    async def extend(self, invisible_ms: int) -> None:
        """Keep it for so long from now on, as for work that takes long. Raises as ``ack``.

        A cancellation waits for the answer to what was sent: calls after it need the new receipt.
        """
        if not self.settled:
            await self._popper.change(self, invisible_ms)

    async def retry_later(self, pause_ms: int | None = None) -> None:
        """Give it back: the group gets it again after ``pause_ms``, by default 10 s and longer each time. After
        ``reconsume_times_max`` times, 16 by default, it goes to the dead letters, ``%DLQ%group``.

        In order, nothing of its queue is given before it. Raises as ``ack``.
        """
        if not self.settled:
            await self._popper.give_back(self, pause_ms)


Handler = Callable[[Popped], Awaitable[object]]


@asynccontextmanager
async def open_popper(
    session: Session, producer: Producer, group: str, subscriptions: str | Mapping[str, str], *, ordered: bool,
    invisible_ms: int, from_first: bool, settings: ConsumerSettings,
) -> AsyncIterator[Popper]:
    """Pop for ``group`` as long as the block runs."""
    check_group(group)
    wanted = {subscriptions: "*"} if isinstance(subscriptions, str) else dict(subscriptions)
    if not wanted:
        raise ValueError("subscriptions: no topic is named")
    for topic in wanted:
        check_topic(topic)
    if invisible_ms < 1:
        raise ValueError(f"invisible_ms = {invisible_ms}: must be above 0")
    async with background() as nursery:
        popper = Popper(session, producer, nursery, group, wanted, ordered, invisible_ms, from_first, settings)
        try:
            await popper.open()
            yield popper
        finally:
            with trio.move_on_after(settings.close_timeout_ms / 1e3, shield=True):
                await popper.close()


@attrs.define(eq=False)
class _Source:
    """One broker of a topic."""

    subscription: SubscriptionData
    broker: str
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    unsettled: dict[Popped, None] = attrs.field(factory=dict)
    room: trio.Event = attrs.field(factory=trio.Event)
    failures: int = 0
    attempt_id: str = ""
    """Id of a pop in order whose answer did not come: the same id gets the same messages."""


@attrs.define(eq=False)
class _Turn:
    """In order: open messages of one queue, from one pop. The first is delivered, the others wait.

    The broker gives none of the queue while one of them is out, so the last one's time is the time of all.
    """

    messages: deque[Popped]
    first_until: float | None = None
    """Time until which the first one is its user's; None: nobody has taken it."""


class Popper:
    """Messages, one after the other, by ``async for`` in any number of tasks, or by ``poll``."""

    def __init__(self, session: Session, producer: Producer, nursery: trio.Nursery, group: str,
                 wanted: Mapping[str, str], ordered: bool, invisible_ms: int, from_first: bool,
                 settings: ConsumerSettings) -> None:
        self.group, self.ordered, self.invisible_ms, self.settings = group, ordered, invisible_ms, settings
        version = session.wall_ms()
        self._subscriptions = [subscribe(topic, expression, version) for topic, expression in wanted.items()]
        self._init_mode = FROM_MIN if from_first else FROM_MAX
        times_max = settings.reconsume_times_max
        self._returns = Returns(session, producer, group, RECONSUME_TIMES_MAX if times_max < 0 else times_max)
        self._session, self._nursery = session, nursery
        self._sources: dict[tuple[str, str], _Source] = {}
        self._source_of: dict[Popped, _Source] = {}
        self._turns: dict[MessageQueue, _Turn] = {}
        self._taken_at = -math.inf
        self._ready: deque[Popped] = deque()
        self._lot = trio.lowlevel.ParkingLot()
        self._bell = Bell()
        self.closed = False

    # --- for the user ----------------------------------------------------------------------------------------

    def __aiter__(self) -> Popper:
        return self

    async def __anext__(self) -> Popped:
        await trio.lowlevel.checkpoint()
        while (message := self.taken()) is None:  # the one that was here may have expired since
            if self.closed:
                raise StopAsyncIteration
            await self.something()
        return message

    async def poll(self, timeout_ms: float = 5_000, most: int = 32) -> list[Popped]:
        """Return up to ``most`` messages: those that are here, else the first that come; none after ``timeout_ms``."""
        await trio.lowlevel.checkpoint()
        found, until = self.several(most), trio.current_time() + timeout_ms / 1e3
        while not (found or self.closed or most < 1) and (left_s := until - trio.current_time()) > 0:
            await self.something(left_s * 1e3)
            found = self.several(most)
        return found

    async def for_each(self, handler: Handler, *, tasks: int = 16) -> None:
        """Handle messages in so many tasks, until the block ends or this is cancelled.

        What ``handler`` returns from is acknowledged, unless it did so itself or gave the message back; what it raises
        of (``Exception``) is logged, and given back.
        """
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(handle, self, handler)

    # --- and for clients on other loops --------------------------------------------------------------------------

    async def something(self, timeout_ms: float = math.inf) -> None:
        """Wait until ``taken`` finds a message, or no more will come. A caller that then takes none calls ``pass_on``.
        """
        with trio.move_on_after(timeout_ms / 1e3):
            while not self._here() and not self.closed:
                await self._lot.park()

    def pass_on(self) -> None:
        """Let another waiter take what is ready."""
        self._lot.unpark(count=len(self._ready))

    def taken(self) -> Popped | None:
        """Take the next message that has not expired."""
        if not self._here():
            return None
        message = self._ready.popleft()
        turn = self._turn_of(message)
        if turn is not None:
            self._taken_at = trio.current_time()
            turn.first_until = self._taken_at + self.invisible_ms / 1e3
            self._look_after(turn)
        return message

    def several(self, most: int) -> list[Popped]:
        """Take up to ``most`` messages."""
        found: list[Popped] = []
        while len(found) < most and (message := self.taken()) is not None:
            found.append(message)
        return found

    def _here(self) -> bool:
        """Return whether a message is ready; those that have expired are dropped."""
        while self._ready:
            message = self._ready[0]
            if not (message.settled or message.expired or (self.ordered and self._turn_of(message) is None)):
                return True
            self._ready.popleft()
            self._drop(message)
        return False

    # --- what becomes of a message ---------------------------------------------------------------------------

    async def ack(self, message: Popped) -> None:
        """Acknowledge a message; see ``Popped.ack``."""
        async with message.lock:
            if not message.settled:
                await self._ack(message)

    async def change(self, message: Popped, invisible_ms: int) -> None:
        """Change the time of a message; see ``Popped.extend``."""
        async with message.lock:
            if not message.settled:
                with trio.CancelScope(shield=True):
                    await self._change(message, invisible_ms)
                turn = self._turn_of(message)
                if turn is not None:
                    turn.first_until = message.visible_at

    async def give_back(self, message: Popped, pause_ms: int | None) -> None:
        """Give a message back; see ``Popped.retry_later``."""
        async with message.lock:
            if not message.settled:
                await self._give_back(message, pause_ms)

    async def _ack(self, message: Popped) -> None:
        await self._tell(message, "ack", RequestCode.ACK_MESSAGE, AckMessageRequest(
            self.group, message.stands_in, message.queue.queue_id, message.receipt.encode(), message.queue_offset))
        self._settled(message)
        self._next_of(message)

    async def _change(self, message: Popped, invisible_ms: int, *, suspend: bool = False) -> None:
        """Change its time. ``suspend``: its next delivery does not count as given back."""
        offset, receipt, asked_at = message.queue_offset, message.receipt, trio.current_time()
        answer = await self._tell(message, "change of the time", RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                                  ChangeInvisibleTimeRequest(
            self.group, message.stands_in, message.queue.queue_id, receipt.encode(), offset, invisible_ms,
            suspend=suspend or None))
        try:
            header = ChangeInvisibleTimeResponse.from_ext(answer.ext)
        except HeaderError as error:
            raise Refused("change of the time", answer.code, f"an answer that makes no sense: {error}",
                          message.queue.broker_name) from None
        if receipt.ordered and header.pop_time != receipt.pop_time_ms:
            raise Refused("change of the time", answer.code, "the message is not out any more",
                          message.queue.broker_name)
        message.receipt = attrs.evolve(
            receipt, start_offset=offset, pop_time_ms=header.pop_time, invisible_ms=header.invisible_time,
            revive_qid=header.revive_qid, offset=offset)
        message.visible_at = asked_at + invisible_ms / 1e3

    async def _give_back(self, message: Popped, pause_ms: int | None) -> None:
        times = message.reconsume_times
        if times >= self._returns.times_max and await self._returns.give_back(message, _DEAD_LETTERS):
            await self._ack(message)
            return
        if pause_ms is None:
            pause_ms = BACK_OFF_S[min(times, len(BACK_OFF_S) - 1)] * 1_000
        turn, behind = self._turn_of(message), list[Popped]()
        if turn is not None:
            _, *behind = self._turns.pop(message.queue).messages
        with trio.CancelScope(shield=True):
            await self._change(message, pause_ms)
        self._settled(message)
        for other in behind:  # the queue goes on when all of them are visible
            async with other.lock:
                await self._change(other, pause_ms, suspend=True)
                self._settled(other)

    async def _tell(self, message: Popped, what: str, code: RequestCode,
                    header: AckMessageRequest | ChangeInvisibleTimeRequest) -> Command:
        return await self._session.tell_master(what, message.queue, request(code, header))

    def _settled(self, message: Popped) -> None:
        message.settled = True
        self._release(message)

    def _release(self, message: Popped) -> None:
        """Count it no more. Its user may still acknowledge it, and the broker says what that is worth."""
        source = self._source_of.pop(message, None)
        if source is not None:
            del source.unsettled[message]
            source.room.set()

    # --- in order --------------------------------------------------------------------------------------------

    def _turn_of(self, message: Popped) -> _Turn | None:
        """Return the turn whose first message this is."""
        turn = self._turns.get(message.queue)
        return turn if turn is not None and turn.messages[0] is message else None

    def _next_of(self, message: Popped) -> None:
        """Put forth the message behind this one, if the queue is read in order."""
        turn = self._turn_of(message)
        if turn is None:
            return
        if len(turn.messages) == 1:
            del self._turns[message.queue]
        else:
            turn.messages.popleft()
            turn.first_until = None
            self._put((turn.messages[0],))

    def _in_turn(self, found: list[Popped]) -> None:
        """Put forth one message of each queue at a time. Messages that come anew replace the queue's old ones."""
        for queue in dict.fromkeys(message.queue for message in found):
            if queue in self._turns:
                for old in self._turns.pop(queue).messages:
                    self._release(old)
            turn = self._turns[queue] = _Turn(deque(message for message in found if message.queue == queue))
            self._put((turn.messages[0],))

    def _forget_turn(self, message: Popped) -> None:
        """Forget messages of an ordered queue whose message is too late: the queue begins anew."""
        turn = self._turns.get(message.queue)
        if turn is not None and message in turn.messages:
            del self._turns[message.queue]

    async def _keep_turns(self) -> None:
        """Keep what is worked on, or waits for that. The clock of a queue's messages runs since they were popped, and
        each of them shall be its user's for ``invisible_ms``."""
        while True:
            await trio.sleep(max(self.invisible_ms / 4e3, _LOOK_MIN_S))
            for turn in self._turns.values():
                self._look_after(turn)

    def _look_after(self, turn: _Turn) -> None:
        """Begin to keep a queue's messages, if that is due."""
        if self._missing_s(turn) and not turn.messages[-1].lock.locked():
            self._nursery.start_soon(self._keep, turn)

    def _missing_s(self, turn: _Turn) -> float:
        """Return for how many seconds from now on a queue is to be kept; 0: its time is not soon over, or long enough.

        What nobody has taken is kept as long as other messages are taken: who takes none leaves it to others.
        """
        first, last, now, whole_s = turn.messages[0], turn.messages[-1], trio.current_time(), self.invisible_ms / 1e3
        until = self._taken_at + whole_s if turn.first_until is None else turn.first_until
        if first is not last or turn.first_until is None:
            until += whole_s / 2  # so the next one has time when the one before took all of its own
        if self.closed or first.expired or last.visible_at >= min(until, now + whole_s / 2):
            return 0
        return until - now

    async def _keep(self, turn: _Turn) -> None:
        last = turn.messages[-1]
        async with last.lock:
            if self._turns.get(last.queue) is not turn or not (missing_s := self._missing_s(turn)):
                return
            try:
                await self._change(last, math.ceil(missing_s * 1e3))
            except ClientError as error:
                logger.debug("%r and those before it are not kept: %s", last, error)
                return
            for message in turn.messages:
                message.visible_at = max(message.visible_at, last.visible_at)

    # --- life ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin to pop; a topic that is yet to be made is waited for.

        Raises ``NoNameServer``, and ``Refused`` for an expression that brokers do not take."""
        for subscription in self._subscriptions:
            try:
                await self._session.routes.get(subscription.topic)
            except NoRoute as error:
                logger.warning("%s", error)
        await check_expressions(self._session, self.group, self._subscriptions)
        self._session.watching.add(self._route_changed)
        self._session.ending.add(self.end)
        self._nursery.start_soon(self._keep_sources, name=f"{self.group} pops")
        if self.ordered:
            self._nursery.start_soon(self._keep_turns, name=f"{self.group} keeps what waits")

    async def close(self) -> None:
        """Ask for no more, and give back what nobody took."""
        self.end()
        self._session.watching.discard(self._route_changed)
        self._session.ending.discard(self.end)
        untaken = [*self._ready, *(message for turn in self._turns.values() for message in list(turn.messages)[1:])]
        self._ready.clear()
        async with trio.open_nursery() as nursery:
            for message in dict.fromkeys(untaken):
                if not message.settled and not message.expired:
                    nursery.start_soon(self._leave, message)

    def end(self) -> None:
        """Ask for no more; whoever waits learns that no message will come."""
        self.closed = True
        for source in self._sources.values():
            source.scope.cancel()
        self._lot.unpark_all()

    async def _leave(self, message: Popped) -> None:
        try:
            async with message.lock:
                await self._change(message, _UNTAKEN_MS, suspend=True)
        except ClientError as error:
            logger.debug("%r comes again when its time is over: %s", message, error)
        message.settled = True

    def _route_changed(self, route: Route) -> None:
        if any(subscription.topic == route.topic for subscription in self._subscriptions):
            self._bell.ring()

    async def _keep_sources(self) -> None:
        while True:
            for subscription in self._subscriptions:
                try:
                    route = await self._session.routes.get(subscription.topic)
                except ClientError as error:
                    logger.debug("%s", error)
                    continue
                self._follow(subscription, {queue.broker_name for queue in route.readable})
            with trio.move_on_after(self.settings.rebalance_ms / 1e3):
                await self._bell.wait()

    def _follow(self, subscription: SubscriptionData, brokers: set[str]) -> None:
        topic = subscription.topic
        for key in [key for key in self._sources if key[0] == topic and key[1] not in brokers]:
            self._sources.pop(key).scope.cancel()
        for broker in sorted(brokers):
            if (topic, broker) not in self._sources:
                source = self._sources[topic, broker] = _Source(subscription, broker)
                self._nursery.start_soon(self._pop_from, source, name=f"popping {topic} from {broker}")

    # --- popping ---------------------------------------------------------------------------------------------

    async def _pop_from(self, source: _Source) -> None:
        """Pop from one source until the scope is cancelled. Raises nothing that a broker could cause."""
        with source.scope:
            while True:
                await self._room(source)
                try:
                    pause_ms = await self._pop(source)
                    source.failures = 0
                except (ClientError, RemotingError, HeaderError, DamagedRecord) as error:
                    pause_ms = await self._failed(source, error)
                if pause_ms:
                    await trio.sleep(pause_ms / 1e3)

    async def _room(self, source: _Source) -> None:
        """Wait until few enough messages of this broker are unsettled."""
        while not self._has_room(source):
            source.room = trio.Event()
            with trio.move_on_at(min(message.visible_at for message in source.unsettled)):
                await source.room.wait()

    def _has_room(self, source: _Source) -> bool:
        """Return whether few enough messages are unsettled; those that have expired are dropped for it."""
        if len(source.unsettled) >= self.settings.pop_unsettled:
            for message in [each for each in source.unsettled if each.expired]:
                self._drop(message)
        return len(source.unsettled) < self.settings.pop_unsettled

    def _drop(self, message: Popped) -> None:
        """Count a message no more, since it is too late or settled."""
        self._release(message)
        self._forget_turn(message)

    async def _pop(self, source: _Source) -> float:
        """Pop once, and return the milliseconds to wait before the next pop."""
        session, settings, subscription = self._session, self.settings, source.subscription
        address, _ = await session.address(subscription.topic, source.broker)
        if self.ordered and not source.attempt_id:
            source.attempt_id = str(uuid4())
        asked_at = trio.current_time()
        answer = await session.remoting.call(address, request(RequestCode.POP_MESSAGE, PopMessageRequest(
            self.group, subscription.topic, ALL_QUEUES, min(settings.pull_batch, settings.pop_unsettled),
            self.invisible_ms, settings.suspend_ms, init_mode=self._init_mode, exp_type=subscription.expression_type,
            exp=subscription.sub_string, order=self.ordered or None, attempt_id=source.attempt_id or None,
        )), settings.pull_timeout_ms)
        source.attempt_id = ""
        if answer.code == ResponseCode.SUCCESS:
            self._take(source, answer)
            return 0
        if answer.code == ResponseCode.POLLING_FULL:
            return _FULL_MS
        if answer.code not in _NOTHING:
            raise Refused(f"pop of {subscription.topic}", answer.code, answer.remark, address)
        return settings.retry_pause_ms if trio.current_time() - asked_at < _HELD_S else 0

    def _take(self, source: _Source, answer: Command) -> None:
        header = PopMessageResponse.from_ext(answer.ext)
        starts, topic = read_starts(header.start_offset_info or ""), source.subscription.topic
        counts = read_order_counts(header.order_count_info or "")
        visible_at, found = trio.current_time() + header.invisible_time / 1e3, []
        for record in codec.decode_all(answer.body):
            receipt = _receipt(record, header, starts, source.broker)
            queue = MessageQueue(topic, source.broker, record.message.queue_id)
            message = Popped(
                record, queue, self._session.settings.expanded_bytes_max, receipt, visible_at, self)
            message.reconsume_times = self._times(message, counts)
            source.unsettled[message] = None
            self._source_of[message] = source
            if wants(source.subscription, message.tag):
                found.append(message)
            else:
                self._nursery.start_soon(self._pass_over, message)
        if self.ordered:
            self._in_turn(found)
        else:
            self._put(found)

    def _times(self, message: Popped, counts: OrderCounts) -> int:
        """Return how often the message was delivered before: in order the broker counts deliveries."""
        receipt = message.receipt
        return counts.of(receipt.retry_flag, receipt.queue_id, message.queue_offset) or message.reconsume_times

    async def _pass_over(self, message: Popped) -> None:
        """Acknowledge a message that is not wanted: its tag only has the hash of one that is."""
        try:
            await self.ack(message)
        except ClientError as error:
            logger.debug("%r is not wanted, and comes again: it cannot be acknowledged: %s", message, error)

    def _put(self, messages: Iterable[Popped]) -> None:
        self._ready.extend(messages)
        self.pass_on()

    async def _failed(self, source: _Source, error: Exception) -> float:
        source.failures += 1
        logger.log(logging.WARNING if source.failures in (1, 10, 100) else logging.DEBUG,
                   "pop of %s from %s failed %d times: %s", source.subscription.topic, source.broker, source.failures,
                   error)
        try:
            await self._session.routes.renew(source.subscription.topic)
        except ClientError as unknown:
            logger.debug("%s", unknown)
        return min(self.settings.retry_pause_ms << min(source.failures - 1, 10), _PAUSE_MAX_MS)


def _receipt(record: Record, header: PopMessageResponse, starts: Mapping[tuple[int, int], int], broker: str) -> Receipt:
    """Return the receipt that the record has, else the one that the answer gives for its queue."""
    message, offset = record.message, record.queue_offset
    written = codec.value_behind(message.properties, _POP_CK)
    if written is not None:
        with suppress(HeaderError):  # a sender may write the property into messages of a batch
            return attrs.evolve(Receipt.decode(written.decode(errors="replace")), offset=offset)
    flag = retry_flag(message.topic.decode(errors="replace"))
    return Receipt(starts.get((flag, message.queue_id), offset), header.pop_time, header.invisible_time,
                   header.revive_qid, flag, broker, message.queue_id, offset)


async def handle(messages: AsyncIterable[Popped], handler: Handler) -> None:
    """Handle messages one after the other, as ``for_each`` says."""
    async for message in messages:
        settle = message.ack
        try:
            await handler(message)
        except Exception:  # whatever the handler's defect is, other messages go on
            logger.exception("the handler failed for %r: its group gets it again", message)
            settle = message.retry_later
        try:
            await settle()
        except ClientError as error:
            logger.warning("%r comes again, since no broker took its outcome: %s", message, error)
