"""A member of a consumer group: takes its share of the queues, reads them, remembers how far it is.

The shell of a push-like consumer. Who gets which queue comes from ``allocation``, one queue is a ``Share``, positions
are kept by ``positions``, locks by ``locking``. Source: ``DefaultMQPushConsumerImpl`` and ``RebalanceImpl`` of
RocketMQ 5.5.0.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Final

import trio

from broker.client import running
from broker.client.checking import check_expressions
from broker.client.config import CONSUME_ORDERLY_MAX, ConsumerSettings
from broker.client.errors import ClientError, NoRoute, Refused, Unreachable
from broker.client.locking import QueueLocks, by_broker
from broker.client.message import RETRY_PREFIX, check_group, check_topic
from broker.client.messages import Messages
from broker.client.positions import BrokerPositions, FilePositions, Positions, Start, first_offset
from broker.client.producing import Producer
from broker.client.queries import Queries
from broker.client.returns import Returns
from broker.client.route import Route
from broker.client.session import CALL_TIMEOUT_MS, Session
from broker.client.share import Consumption, OrderedShare, Share
from remoting.allocation import java_order
from remoting.background import background
from remoting.bodies.consumers import (
    BROADCASTING,
    CLUSTERING,
    CONSUME_TYPES,
    ConsumerData,
    ConsumerIdList,
    MessageQueue,
    SubscriptionData,
)
from remoting.codes import RequestCode
from remoting.command import request
from remoting.errors import BodyError
from remoting.headers.consumers import ConsumerGroupRequest
from remoting.subscription import subscribe
from remoting.wakeup import Bell

logger = logging.getLogger("broker.client")

RECONSUME_TIMES_MAX: Final = 16
_UNBALANCED_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds until the next attempt to get a share, by the number of attempts that did not come out right."""
_UNTOLD_S: Final = 0.2
"""Seconds until a position that could not be told is told again, before its queue's lock is given up."""

Subscriptions = str | Mapping[str, str]
"""A topic, or topics with what is wanted of them: ``"new || old"``, or ``"*"`` for all."""


@asynccontextmanager
async def open_consumer(
    session: Session, producer: Producer, queries: Queries, group: str, subscriptions: Subscriptions, *,
    ordered: bool, broadcast: bool, start: Start | dt.datetime, settings: ConsumerSettings, random: Random,
) -> AsyncIterator[Messages]:
    """Open a member of ``group`` for as long as the block runs."""
    check_group(group)
    if group in session.consumers:
        raise ValueError(f"group {group!r}: this client is in it already; another consumer needs a client of its own")
    wanted = {subscriptions: "*"} if isinstance(subscriptions, str) else dict(subscriptions)
    if not wanted:
        raise ValueError("subscriptions: no topic is named")
    for topic in wanted:
        check_topic(topic)
    async with background() as nursery:
        consumer = Consumer(session, producer, queries, nursery, group, wanted, ordered, broadcast, start, settings,
                            random)
        session.consumers[group] = consumer
        session.ending.add(consumer.end)
        try:
            await consumer.open()
            yield consumer.messages
        finally:
            with trio.move_on_after(settings.close_timeout_ms / 1e3, shield=True):
                await consumer.close()
            session.ending.discard(consumer.end)
            if session.consumers.get(group) is consumer:  # ``close`` ran out of time
                del session.consumers[group]


class Consumer:
    """A group's member, made by ``open_consumer``. It answers the session and brokers (``SessionMember``)."""

    def __init__(
        self, session: Session, producer: Producer, queries: Queries, nursery: trio.Nursery, group: str,
        wanted: Mapping[str, str], ordered: bool, broadcast: bool, start: Start | dt.datetime,
        settings: ConsumerSettings, random: Random,
    ) -> None:
        self.group, self.settings, self.ordered, self.broadcast, self.start = group, settings, ordered, broadcast, start
        self.began_ms = session.wall_ms()
        self.subscriptions = {
            topic: subscribe(topic, expression, self.began_ms) for topic, expression in wanted.items()}
        if not broadcast:
            retry = RETRY_PREFIX + group
            self.subscriptions[retry] = subscribe(retry, version=self.began_ms)
        self.messages = Messages(lambda: sorted(self.shares, key=java_order))
        self.shares: dict[MessageQueue, Share] = {}
        times_max = settings.reconsume_times_max
        if times_max < 0:
            times_max = CONSUME_ORDERLY_MAX if ordered else RECONSUME_TIMES_MAX
        self._session, self._queries, self._nursery, self._random = session, queries, nursery, random
        self._delivery = Consumption(
            session, group, settings, self.messages, Returns(session, producer, group, times_max), nursery, broadcast)
        self._positions: Positions = (
            FilePositions(settings.offsets_dir, session.host, group) if broadcast else BrokerPositions(session, group))
        self._locks = QueueLocks(session, group)
        self._bell = Bell()
        self._unbalanced = 0
        self._seen: dict[str, set[str]] = {}
        """Members by topic, as shares were last taken by them."""
        self._missed_at: dict[str, float] = {}
        """Since when some of them are missing."""
        self._closing = False
        self._changing = trio.Lock()
        """Shares change under it."""
        self._committing = trio.CancelScope()
        self._turns: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
        """Positions are told to a broker one batch after the other: none may overtake a later one."""

    # --- life ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Join the group; a topic that is yet to be made is waited for.

        Raises ``NoNameServer``, and ``Refused`` for an expression that brokers do not take."""
        for topic in self.subscriptions:
            try:
                await self._session.routes.get(topic)
            except NoRoute as error:
                if not topic.startswith(RETRY_PREFIX):
                    logger.warning("%s", error)
        await check_expressions(self._session, self.group, self.subscriptions.values())
        await self._session.greet_all(again=True)
        for task in (self._keep_balanced, self._keep_committed, *([self._keep_locked] if self._locking else [])):
            self._nursery.start_soon(task, name=f"{self.group} {task.__name__.strip('_')}")

    async def close(self) -> None:
        """Stop reading, commit, unlock, say goodbye: each in its part of the time, for a broker may say nothing."""
        part_s = self.settings.close_timeout_ms / 3e3
        self.end()
        self._committing.cancel()  # it may wait for a silent broker
        with trio.move_on_after(part_s):
            await self._commit(confirmed=True)
        if self._locking:
            with trio.move_on_after(part_s):
                await self._locks.unlock_all()
        self.shares.clear()
        await self._session.forget(consumer=self.group)

    def end(self) -> None:
        """Stop reading; no message comes any more."""
        self._closing = True
        self.messages.close()
        for share in self.shares.values():
            share.drop()

    @property
    def _locking(self) -> bool:
        return self.ordered and not self.broadcast

    # --- its share of the queues -----------------------------------------------------------------------------

    def rebalance_soon(self) -> None:
        self._bell.ring()

    def route_changed(self, route: Route) -> None:
        if route.topic in self.subscriptions:
            self._bell.ring()

    async def _keep_balanced(self) -> None:
        while True:
            async with self._changing:
                balanced = await self._rebalance()
            self._unbalanced = 0 if balanced else self._unbalanced + 1
            pause_s = self.settings.rebalance_ms / 1e3
            if not balanced:
                pause_s = min(pause_s, _UNBALANCED_S[min(self._unbalanced, len(_UNBALANCED_S)) - 1])
            with trio.move_on_after(pause_s):
                await self._bell.wait()

    async def _rebalance(self) -> bool:
        """Share the queues out anew. Returns whether this client now has what it should have."""
        balanced = True
        for subscription in self.subscriptions.values():
            try:
                balanced &= await self._rebalance_topic(subscription)
            except ClientError as error:
                logger.debug("%s in %s: %s", subscription.topic, self.group, error)
                balanced &= isinstance(error, NoRoute)  # the route's own poll finds it
        return balanced

    async def _rebalance_topic(self, subscription: SubscriptionData) -> bool:
        route = await self._session.routes.get(subscription.topic)
        if self.broadcast or not route.readable:
            mine = set(route.readable)
        else:
            members = await self._members(route)
            if self._session.client_id not in members:
                await self._session.greet_all(again=True)
                return False
            if self._may_come_back(subscription.topic, members):
                return False
            mine = set(self.settings.allocate(self._session.client_id, route.readable, members))
        lost = [queue for queue in self.shares if queue.topic == subscription.topic and queue not in mine]
        leaving = [queue for queue in lost if self.shares[queue].may_leave]
        async with trio.open_nursery() as nursery:  # a silent broker delays no other
            for broker, theirs in by_broker(leaving).items():
                shares = [self.shares.pop(queue) for queue in theirs]
                for share in shares:
                    share.drop()
                nursery.start_soon(self._release, broker, shares)
        if self._locking:
            await self._locks.unlock_others(subscription.topic, mine | self.shares.keys())
        new = mine - self.shares.keys()
        async with trio.open_nursery() as nursery:
            for theirs in by_broker(new).values():
                nursery.start_soon(self._take_all, theirs, subscription)
        return leaving == lost and new <= self.shares.keys()

    async def _take_all(self, queues: list[MessageQueue], subscription: SubscriptionData) -> None:
        """Take queues of one broker, as far as it gives their locks."""
        asked_at = math.inf
        if self._locking:
            asked_at = trio.current_time()
            queues = list(await self._locks.lock(queues))
        for queue in sorted(queues, key=java_order):
            try:
                await self._take(queue, subscription, asked_at)
            except (ClientError, OSError) as error:
                logger.info("%s is not read by %s yet: its position cannot be asked: %s", queue, self.group, error)
                if isinstance(error, Unreachable):
                    return

    def _may_come_back(self, topic: str, members: Iterable[str]) -> bool:
        """Return whether a member is missing, and only since a moment ago: a new master hears of its consumers one
        after the other. Another member that took their queues meanwhile would read the same messages again."""
        now, known = trio.current_time(), self._seen.get(topic, set())
        if known <= set(members):
            self._missed_at.pop(topic, None)
        elif now < self._missed_at.setdefault(topic, now) + self.settings.member_grace_ms / 1e3:
            return True
        else:
            del self._missed_at[topic]
        self._seen[topic] = set(members)
        return False

    async def _members(self, route: Route) -> list[str]:
        """Client ids of the group, as one broker of the topic knows them; empty if none knows any."""
        names = sorted(route.brokers)
        self._random.shuffle(names)
        for name in names:
            member = route.address(name)
            if member is None:
                continue
            try:
                answer = await self._session.ask("members", member[0], request(
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequest(self.group)))
                return ConsumerIdList.from_json(answer.body).consumer_id_list
            except Refused:
                return []
            except (Unreachable, BodyError) as error:
                logger.debug("members of %s: %s", self.group, error)
                self._session.routes.renew_soon(route.topic)
        raise Unreachable(f"no broker of {route.topic} says who is in {self.group}")

    async def _take(self, queue: MessageQueue, subscription: SubscriptionData, locked_at: float) -> None:
        offset = await first_offset(self._positions, self._queries, queue, self.start)
        if self._closing:
            return
        kind = OrderedShare if self.ordered else Share
        self.shares[queue] = share = kind(self._delivery, queue, subscription, offset)
        if isinstance(share, OrderedShare):
            share.locked(locked_at + self.settings.lock_lives_ms / 1e3)
        logger.debug("%s reads %s from %d", self.group, queue, offset)
        self._nursery.start_soon(share.fetcher.run, name=f"reading {queue}")

    async def _release(self, broker: str, shares: list[Share]) -> None:
        """Tell the positions of ordered queues, then unlock these: their next owner begins at these positions.

        It is tried for as long as a broker may be silent anyway. Then the lock ends nevertheless: to wait for its end
        would tell nothing either."""
        deadline, untold = trio.current_time() + CALL_TIMEOUT_MS / 1e3, shares
        async with self._turns[broker]:
            while True:
                told = await self._positions.write(
                    {share.queue: share.fetcher.in_flight.committable for share in untold}, confirmed=True)
                untold = [share for share in untold if share.queue not in told]
                if not untold or not self._locking or trio.current_time() >= deadline:
                    break
                self._session.routes.renew_soon(untold[0].queue.topic)
                await trio.sleep(_UNTOLD_S)
        if self._locking:
            await self._locks.unlock([share.queue for share in shares])

    # --- locks -----------------------------------------------------------------------------------------------

    async def _keep_locked(self) -> None:
        while True:
            await trio.sleep(self.settings.lock_ms / 1e3)
            await self._lock_again()

    async def _lock_again(self) -> None:
        async with trio.open_nursery() as nursery:
            for theirs in by_broker(self.shares).values():
                nursery.start_soon(self._lock_theirs, {queue: self.shares[queue] for queue in theirs})

    async def _lock_theirs(self, shares: dict[MessageQueue, Share]) -> None:
        """Lock the queues of these shares, which are one broker's."""
        asked_at = trio.current_time()
        held = await self._locks.lock(shares)
        for queue, share in shares.items():
            assert isinstance(share, OrderedShare)
            if queue in held:
                share.locked(asked_at + self.settings.lock_lives_ms / 1e3)
            else:
                share.unlocked()
                self._bell.ring()

    # --- positions -------------------------------------------------------------------------------------------

    async def _keep_committed(self) -> None:
        with self._committing:
            while True:
                await trio.sleep(self.settings.commit_ms / 1e3)
                now = trio.current_time()
                if not self.ordered:
                    for share in self.shares.values():
                        share.give_back_overdue(now)
                await self._commit(confirmed=self.ordered)

    async def _commit(self, *, confirmed: bool) -> None:
        """Tell positions that changed. ``confirmed``: also those that were told and may not have arrived.

        In order, all are confirmed: one on its way could arrive after the last word on a queue that is released."""
        async with trio.open_nursery() as nursery:
            for broker in by_broker(self.shares):
                nursery.start_soon(self._commit_to, broker, confirmed)

    async def _commit_to(self, broker: str, confirmed: bool) -> None:
        async with self._turns[broker]:
            fetchers = [share.fetcher for queue, share in self.shares.items() if queue.broker_name == broker]
            moved = {fetcher.queue: fetcher.in_flight.committable for fetcher in fetchers
                     if fetcher.in_flight.committable != (fetcher.committed if confirmed else fetcher.told)}
            told = await self._positions.write(moved, confirmed=confirmed) if moved else ()
            for fetcher in fetchers:
                if fetcher.queue in told:
                    fetcher.told = moved[fetcher.queue]
                    if confirmed:
                        fetcher.committed = fetcher.told

    # --- what brokers ask (``SessionMember``) ----------------------------------------------------------------

    def heartbeat(self) -> ConsumerData:
        start = self.start.value if isinstance(self.start, Start) else "CONSUME_FROM_TIMESTAMP"
        model = BROADCASTING if self.broadcast else CLUSTERING
        return ConsumerData(self.group, CONSUME_TYPES[1], model, start, list(self.subscriptions.values()))

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere in those of these queues that are ours; messages on their way are void."""
        self._nursery.start_soon(self._reset, dict(offsets), name=f"{self.group} goes on elsewhere")

    async def _reset(self, offsets: dict[MessageQueue, int]) -> None:
        async with self._changing:
            mine = {queue: offset for queue, offset in offsets.items() if queue in self.shares}
            for queue in mine:
                self.shares.pop(queue).drop()
            for broker, theirs in by_broker(mine).items():
                async with self._turns[broker]:
                    await self._positions.write({queue: mine[queue] for queue in theirs}, confirmed=True)
        self._bell.ring()

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: share.fetcher.in_flight.committable
                for queue, share in self.shares.items() if queue.topic == topic}

    def running_info(self) -> bytes:
        return running.info(self)

    async def consume_directly(self, body: bytes, broker: str | None) -> bytes:
        return await running.consume(self.messages, body, broker, self._session.settings.expanded_bytes_max)
