"""The outlet of an acting slave: sends each message to another group's master, and reports the put when it is stored.

A master of the same container is asked first, without the network, whatever ``enableRemoteEscape`` says.

A put is stored when all of its messages are. If only some are, these are remembered, and the next attempt sends only
the rest. A message with an unknown outcome is sent again, and counted. No refusal is final: the caller keeps what was
not stored, and tries again. Source: ``EscapeBridge.putMessage`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio

from broker.client.route import READ, WRITE
from broker.config import BrokerConfig, pick
from broker.escape.letters import Parcel, Refuge, in_turn, parcel, places
from broker.ha.acks import PutStatus
from broker.part import Part
from broker.puts import Done, NotTaken, PutResult
from broker.standing import Standing
from broker.topics.names import RETRY_PREFIX, SYSTEM_PREFIX
from remoting.bodies.namesrv import TopicRouteData
from remoting.client import Client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import ConnectFailed, RemotingError
from remoting.record import Message

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker.escape")

SEND_TIMEOUT_MS: Final = 3_000
ROUTE_S: Final = 30.0
"""Lifetime of a cached route, as in RocketMQ."""
NO_ROUTE_S: Final = 1.0
ROUTES_MAX: Final = 10_000
STORED_MAX: Final = 100_000
"""Keys of stored messages that are remembered from incomplete puts."""
UNDER_WAY_MAX: Final = 64
BYTES_MAX: Final = 32 << 20
REFUSED_S: Final = 5.0
"""A broker that refused a message is tried last for this long."""
TRIES_MAX: Final = 3
DISABLED: Final = "enableRemoteEscape is false: messages that are due wait for the master"
_STORED: Final = frozenset({
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE})
"""Codes of a message that is in the master's log; only the first promises what its group's mode demands."""


@attrs.frozen(kw_only=True)
class EscapeConfig:
    """A key of ``BrokerConfig`` and its default."""

    timer_precision_ms: int = 1_000


@attrs.define
class _Route:
    places: list[Refuge]
    until: float


@attrs.define
class EscapeCounters:
    """Sums since this process began; they only ever rise."""

    sent: int = 0
    """Messages that another master stored."""
    again: int = 0
    """Sends with an unknown outcome: the message is sent again, and may be stored twice."""
    kept: int = 0
    """Messages that no master took; their put is tried again."""
    unsure: int = 0
    """Messages of ``sent`` that were stored, but not replicated or synced as their group's mode demands."""


class Beside(Protocol):
    """The masters of the same container."""

    async def hand_over(self, message: Message, beside: str) -> str:
        """Have one of them store the message. ``beside``: as ``Parcel.beside``. Returns why none did, or ""."""
        ...


class EscapePart(Part):
    """Sends puts to other masters. Implements ``broker.puts.Outlet``."""

    def __init__(self, config: BrokerConfig, client: Client, standing: Standing,
                 route: Callable[[str], Awaitable[TopicRouteData | None]], stir: Callable[[], None]) -> None:
        """``route`` asks name servers for a topic's route. ``stir`` is called when a put has ended."""
        self.counters = EscapeCounters()
        self.siblings: Beside | None = None
        self._client, self._standing, self._route, self._stir = client, standing, route, stir
        self._group = f"InnerProducerGroup_{config.broker_name}_{config.broker_id}"
        self._precision_ms = pick(config, EscapeConfig).timer_precision_ms
        self._enabled = config.enable_remote_escape
        self._routes: dict[tuple[str, str], _Route] = {}
        self._stored: dict[str, None] = {}
        self._refused: dict[str, float] = {}
        self._under_way = self._bytes = 0
        self._why = ""
        """Reason why the last message was not taken; "" once a put is stored."""
        self._nursery: trio.Nursery | None = None

    def configure(self, config: BrokerConfig) -> None:
        self._enabled = config.enable_remote_escape

    def runtime_info(self) -> Mapping[str, str]:
        return {"escapeWaitsFor": self._why}

    def metrics(self, page: Page) -> Iterable[Metric]:
        counters = self.counters
        for name, about in (("sent", "that another group's master stored"),
                            ("again", "sent again after an unknown outcome"),
                            ("kept", "that no master took, and are tried again"),
                            ("unsure", "stored, but not replicated or synced as their group's mode demands")):
            yield page.counter(f"broker_escape_{name}", f"Messages of an acting slave {about}. Ours.",
                               [((), getattr(counters, name))])

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    # --- puts ------------------------------------------------------------------------------------------------

    def put(self, messages: Sequence[Message], done: Done) -> None:
        size = sum(len(message.body) for message in messages)
        if not self._enabled and self.siblings is None:
            self._keep(len(messages), done, DISABLED)
        elif self._nursery is None:
            self._keep(len(messages), done, "the escape does not run")
        elif self._under_way >= UNDER_WAY_MAX or (self._bytes and self._bytes + size > BYTES_MAX):
            self._keep(len(messages), done, f"{self._under_way} puts to other masters are in flight")
        else:
            self._under_way += 1
            self._bytes += size
            self._nursery.start_soon(self._put, [
                parcel(message, self._group, self._precision_ms) for message in messages], size, done)

    def _keep(self, count: int, done: Done, why: str, *, alone: bool = False) -> None:
        if why != self._why:
            logger.warning("messages that are due cannot be stored at another master, and wait", extra={"why": why})
        self._why = why
        self.counters.kept += count
        done((NotTaken if alone else PutResult)(PutStatus.SERVICE_NOT_AVAILABLE, remark=why))

    async def _put(self, parcels: Sequence[Parcel], size: int, done: Done) -> None:
        """Send one put. Messages of one queue are sent one after the other, so that they keep their order."""
        queues: dict[tuple[str, int], list[Parcel]] = {}
        for each in parcels:
            queues.setdefault((each.topic, each.queue), []).append(each)
        whys: list[str] = []
        stored: list[Parcel] = []

        async def send_all(of_queue: list[Parcel]) -> None:
            for each in of_queue:
                why = "" if each.key and each.key in self._stored else await self._send(each)
                if why:
                    whys.append(why)
                    break
                stored.append(each)

        try:
            await self._each(send_all, queues.values())
        finally:
            self._under_way -= 1
            self._bytes -= size
            self._stir()
        for each in stored:
            self._stored.pop(each.key, None)
        if whys:
            for each in stored:
                if each.key:
                    self._stored[each.key] = None
            while len(self._stored) > STORED_MAX:
                del self._stored[next(iter(self._stored))]
            self._keep(len(parcels) - len(stored), done, whys[0], alone=len(parcels) == 1)
        else:
            self._why = ""
            done(PutResult(PutStatus.PUT_OK))

    async def _each(self, send_all: Callable[[list[Parcel]], Awaitable[None]], queues: Iterable[list[Parcel]]) -> None:
        async with trio.open_nursery() as nursery:
            for of_queue in queues:
                nursery.start_soon(send_all, of_queue)

    def _now_s(self) -> float:
        return trio.current_time()

    async def _send(self, each: Parcel) -> str:
        """Send one message, to several masters if needed. Returns why no master took it, or ""."""
        if self.siblings is not None:
            why = await self.siblings.hand_over(each.message, each.beside)
            if not why:
                return ""
            if not self._enabled:
                return f"{DISABLED}; {why}"
        if each.topic.startswith(SYSTEM_PREFIX):
            return f"{each.topic}: messages of this broker's own topics wait for its master"
        why, tried, fresh = "", 0, False
        while tried < TRIES_MAX:
            found, fresh = await self._places(each, anew=tried > 0)
            now = self._now_s()
            refused = {name for name, until in self._refused.items() if until > now}
            for place in in_turn(found, each, refused):
                tried += 1
                problem = await self._send_to(place, each)
                if not problem:
                    self._refused.pop(place.broker_name, None)
                    return ""
                why = f"{each.topic}: {place.broker_name}, {place.address}: {problem}"
                self._refused[place.broker_name] = self._now_s() + REFUSED_S
                if tried >= TRIES_MAX:
                    break
            if fresh or not found:
                break
        what = "where it can be popped" if each.beside else "that takes it"
        return why or f"{each.beside or each.topic}: no other group of the cluster has a master {what}"

    async def _send_to(self, place: Refuge, each: Parcel) -> str:
        command = Command(RequestCode.SEND_MESSAGE_V2, 0, 0, {
            **each.fields, "e": str(place.queue_id), "n": place.broker_name}, each.body)
        try:
            answer = await self._client.call(place.address, command, SEND_TIMEOUT_MS)
        except RemotingError as error:
            self.counters.again += not isinstance(error, ConnectFailed)
            return str(error)
        if answer.code not in _STORED:
            return f"answered {answer.code}: {answer.remark or 'no remark'}"
        self.counters.sent += 1
        self.counters.unsure += answer.code != ResponseCode.SUCCESS
        return ""

    async def _places(self, each: Parcel, *, anew: bool) -> tuple[list[Refuge], bool]:
        """The places that may take a message, and whether name servers were asked now."""
        topic, now = each.topic, self._now_s()
        known = self._routes.get((topic, each.beside))
        if known is not None and known.until > now and not anew:
            return known.places, False
        found = await self._ask(each.beside, READ) if each.beside else await self._ask(topic)
        if each.beside:  # the retry topic has one queue, and is created where it is missing
            found = [*{place.broker_name: attrs.evolve(place, queue_id=0) for place in found}.values()]
        elif not found and topic.startswith(RETRY_PREFIX):  # each broker creates it for the first message
            found = [attrs.evolve(place, queue_id=0) for place in await self._ask(self._standing.cluster_name)]
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[topic, each.beside] = _Route(found, self._now_s() + (ROUTE_S if found else NO_ROUTE_S))
        return found, True

    async def _ask(self, topic: str, perm: int = WRITE) -> list[Refuge]:
        route, standing = await self._route(topic), self._standing
        return [] if route is None else places(route, standing.cluster_name, standing.broker_name, perm)
