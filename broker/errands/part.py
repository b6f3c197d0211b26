"""The part of errands: stores records of POP at another group's master, and reads messages from another group.

Records of one POP go to one revive queue of one master. They count as stored when each is answered with 0, so the
master holds them as its group's mode demands. After an unknown outcome a record is sent there once more; a second copy
does no harm. If that fails, another master is tried, and the caller is told where records may be left over.
Source: ``EscapeBridge.putMessageToSpecificQueue`` and ``getMessage`` of RocketMQ 5.5.0, which chooses a master and
queue for each record alone, and finds another one after a change of the route.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import trio

from broker import properties as props
from broker.abroad.others import Found, Stored, Told
from broker.abroad.tickets import QUEUES, Ticket
from broker.client.route import MASTER, READ, WRITE
from broker.escape.letters import Refuge, places
from broker.part import Part
from broker.standing import Standing
from broker.topics.names import revive_topic
from remoting.bodies.broker import HARuntimeInfo
from remoting.bodies.namesrv import TopicRouteData
from remoting.client import Client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.errors import BodyError, ConnectFailed, DamagedRecord, HeaderError, RemotingError
from remoting.headers.pulling import SUBSCRIPTION, PullMessageRequest, PullMessageResponse
from remoting.record import Message, Record, decode_all, decode_properties

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker.errands")

SEND_TIMEOUT_MS: Final = 3_000
READ_TIMEOUT_MS: Final = 5_000
READERS: Final = "TOOLS_CONSUMER"
"""The consumer group that reads messages: every broker has it, and keeps no offset for it."""
ROUTE_S: Final = 30.0
NO_ROUTE_S: Final = 1.0
ROUTES_MAX: Final = 10_000
REFUSED_S: Final = 5.0
"""A master that refused records is tried last for this long; a broker that could not be read from is not asked."""
TRIES_MAX: Final = 3
UNDER_WAY_MAX: Final = 1_024
READ_MAX: Final = 32
"""Messages that one pull asks for."""


@attrs.define
class ErrandsCounters:
    """Sums since this process began; they only ever rise."""

    stored: int = 0
    """Records that another group's master stored."""
    again: int = 0
    """Records with an unknown outcome: they were sent again, and may be stored twice."""
    failed: int = 0
    """Requests whose records no master stored."""
    read: int = 0
    """Messages that were read from other groups' brokers."""
    unread: int = 0
    """Messages that could not be read, counted at each attempt."""


@attrs.define
class _Route:
    places: list[Refuge]
    asked_at: float
    until: float


class ErrandsPart(Part):
    """Runs errands. ``run`` must be running. Implements ``broker.abroad.others.Abroad``."""

    def __init__(self, client: Client, standing: Standing,
                 route: Callable[[str], Awaitable[TopicRouteData | None]]) -> None:
        """``route`` asks name servers for a topic's route."""
        self.counters = ErrandsCounters()
        self._client, self._standing, self._ask_route = client, standing, route
        self._revive_topic = revive_topic(standing.cluster_name)
        self._routes: dict[tuple[str, int], _Route] = {}
        self._refused: dict[str, float] = {}
        self._unread: dict[str, float] = {}
        """Brokers that could not be read from, until they are asked again."""
        self._under_way = self._turn = 0
        self._why = ""
        """Reason why the last records were not stored; "" if they were."""
        self._nursery: trio.Nursery | None = None

    def metrics(self, page: Page) -> Iterable[Metric]:
        for name, about in (("stored", "Records of POP that another group's master stored"),
                            ("again", "Records of POP that were sent again after an unknown outcome"),
                            ("failed", "Requests whose records of POP no other group's master stored"),
                            ("read", "Messages that were read from another group's broker"),
                            ("unread", "Messages of other groups that could not be read, at each attempt")):
            yield page.counter(f"broker_errands_{name}", f"{about}. Ours.", [((), getattr(self.counters, name))])

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    # --- storing ---------------------------------------------------------------------------------------------

    def store(self, topic: str, records: Sequence[Message], stored: Stored, left_over: Callable[[Ticket], None],
              first: Ticket | None = None) -> None:
        if self._nursery is None or self._under_way >= UNDER_WAY_MAX:
            stored(f"{self._under_way} requests to other masters are in flight")
            return
        self._under_way += 1
        self._turn += 1
        self._nursery.start_soon(self._store, topic, records, stored, left_over, first, self._turn)

    def store_at(self, ticket: Ticket, records: Sequence[Message], told: Told) -> None:
        if self._nursery is None or self._under_way >= UNDER_WAY_MAX:
            told(f"{self._under_way} requests to other masters are in flight", False)
            return
        self._under_way += 1
        self._nursery.start_soon(self._store_at, ticket, records, told)

    async def _store(self, topic: str, records: Sequence[Message], stored: Stored, left_over: Callable[[Ticket], None],
                     first: Ticket | None, turn: int) -> None:
        why = f"{topic}: no other group of the cluster has a master where it can be popped"
        tried: set[str] = set()
        outcome: Ticket | str = ""
        try:
            for anew in (False, True):
                for place in self._in_turn(await self._where(topic, anew=anew), first, turn):
                    if place.broker_name in tried or len(tried) >= TRIES_MAX:
                        continue
                    tried.add(place.broker_name)
                    ticket = Ticket.of(place.broker_name, place.queue_id)
                    problem, some = await self._send_all(place, records)
                    if not problem:
                        outcome = ticket
                        return
                    why = f"{topic}: {place.broker_name}, {place.address}: {problem}"
                    if some:
                        left_over(ticket)
        finally:
            self._end("" if outcome else why)
            stored(outcome or why)

    async def _store_at(self, ticket: Ticket, records: Sequence[Message], told: Told) -> None:
        why = "no master of the cluster is known to hold the checkpoint of this receipt"
        tried: list[Refuge] = []
        stored = False  # True: some of the records may be stored somewhere
        try:
            for anew in (False, True):
                there = [attrs.evolve(place, queue_id=ticket.queue)
                         for place in await self._of_each(self._revive_topic, WRITE, anew=anew)
                         if ticket.is_of(place.broker_name)]
                if not there or [place.address for place in there] == [place.address for place in tried]:
                    continue  # no master is there, or the same ones were asked before
                tried, before, stored = there, stored, True
                outcomes = [(place, *await self._send_all(place, records)) for place in there]
                stored = before or any(not problem or some for _, problem, some in outcomes)
                why = next((f"{place.broker_name}, {place.address}: {problem}" for place, problem, _ in outcomes
                            if problem), "")
                if not why:
                    return
        finally:
            self._end(why)
            told(why, stored)

    def _end(self, why: str) -> None:
        self._under_way -= 1
        self.counters.failed += bool(why)
        if why and why != self._why:
            logger.warning("no other group's master stored records of POP", extra={"why": why})
        self._why = why

    async def _where(self, topic: str, *, anew: bool) -> list[Refuge]:
        """A revive queue of each master where the topic can be popped."""
        readable = {place.broker_name for place in await self._of_each(topic, READ, anew=anew)}
        return [place for place in await self._of_each(self._revive_topic, WRITE, anew=anew)
                if place.broker_name in readable]

    async def _of_each(self, topic: str, perm: int, *, anew: bool) -> list[Refuge]:
        """The last queue of the topic at each master; its id tells how many queues there are."""
        known, now = self._routes.get((topic, perm)), trio.current_time()
        if known is not None and known.until > now and not (anew and known.asked_at + NO_ROUTE_S <= now):
            return known.places
        route, standing = await self._ask_route(topic), self._standing
        found = [] if route is None else [*{place.broker_name: place for place in places(
            route, standing.cluster_name, standing.broker_name, perm)}.values()]
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        now = trio.current_time()
        self._routes[topic, perm] = _Route(found, now, now + (ROUTE_S if found else NO_ROUTE_S))
        return found

    def _in_turn(self, found: list[Refuge], first: Ticket | None, turn: int) -> Iterator[Refuge]:
        """The masters in turn, each with a queue to use; those that refused lately come last."""
        now, begin = trio.current_time(), turn % max(1, len(found))
        turned = found[begin:] + found[:begin]

        def late(place: Refuge) -> tuple[bool, bool]:
            return (self._refused.get(place.broker_name, 0.0) > now,
                    first is not None and not first.is_of(place.broker_name))

        for place in sorted(turned, key=late):
            kept = first is not None and first.is_of(place.broker_name)
            queue = first.queue if first is not None and kept else turn // len(found) % min(place.queue_id + 1, QUEUES)
            yield attrs.evolve(place, queue_id=queue)

    async def _send_all(self, place: Refuge, records: Sequence[Message]) -> tuple[str, bool]:
        """Send all records to one place. Returns why not all are stored, or "", and whether some may be."""
        problems: list[str] = []
        counts = [0, 0]

        async def send(record: Message) -> None:
            problem, unknown = await self._send(place, record)
            if unknown:
                self.counters.again += 1
                problem, again = await self._send(place, record)
                counts[1] += again or bool(problem)
            counts[0] += not problem
            if problem:
                problems.append(problem)

        async with trio.open_nursery() as nursery:
            for record in records:
                nursery.start_soon(send, record)
        if problems:
            self._refused[place.broker_name] = trio.current_time() + REFUSED_S
            return problems[0], any(counts)
        self._refused.pop(place.broker_name, None)
        return "", False

    async def _send(self, place: Refuge, record: Message) -> tuple[str, bool]:
        """Send one record. Returns why it is not stored as its mode demands, or "", and whether it may be stored."""
        try:
            answer = await self._client.call(place.address, _letter(place, record), SEND_TIMEOUT_MS)
        except RemotingError as error:
            return str(error), not isinstance(error, ConnectFailed)
        if answer.code == ResponseCode.SUCCESS:
            self.counters.stored += 1
            return "", False
        stored = answer.code in (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT,
                                 ResponseCode.SLAVE_NOT_AVAILABLE)
        return f"answered {answer.code}: {answer.remark or 'no remark'}", stored

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, broker_name: str, topic: str, queue_id: int, offsets: Sequence[int], found: Found) -> None:
        if self._nursery is None or self._unread.get(broker_name, 0.0) > trio.current_time():
            self.counters.unread += len(offsets)
            found({}, frozenset())
        else:
            self._nursery.start_soon(self._read, broker_name, topic, queue_id, sorted(offsets), found)

    async def _read(self, broker_name: str, topic: str, queue_id: int, offsets: list[int], found: Found) -> None:
        records: dict[int, Record] = {}
        gone: set[int] = set()
        why = ""
        try:
            address, is_id0 = await self._address(broker_name, topic)
            left = offsets if address else []
            why = "" if address else "name servers do not list the broker"
            while left:
                least, some = await self._pull(address, topic, queue_id, left)
                records |= some
                gone |= {offset for offset in left if offset < least}
                here = [offset for offset in left if offset not in some and offset >= least]
                if here == left:
                    break
                left = here
            if gone and not (is_id0 and await self._is_master(address)):
                gone.clear()
        except (RemotingError, HeaderError, BodyError, DamagedRecord) as error:
            why = str(error)
        finally:
            unread = len(offsets) - len(records) - len(gone)
            self.counters.read += len(records)
            self.counters.unread += unread
            if why:
                self._unread[broker_name] = trio.current_time() + REFUSED_S
            if unread:
                logger.warning("messages of another group's broker cannot be read now", extra={
                    "broker": broker_name, "topic": topic, "queue": queue_id, "offsets": unread, "why": why})
            found(records, frozenset(gone))

    async def _address(self, broker_name: str, topic: str) -> tuple[str, bool]:
        """Address of a broker of this name, and whether it has id 0, which is preferred; "": none is listed."""
        for name in (topic, self._revive_topic):
            route = await self._ask_route(name)
            for each in () if route is None else route.broker_datas:
                if each.broker_name == broker_name and each.cluster in (None, self._standing.cluster_name):
                    address = each.broker_addrs.get(MASTER) or next(iter(each.broker_addrs.values()), "")
                    if address:
                        return address, MASTER in each.broker_addrs
        return "", False

    async def _pull(self, address: str, topic: str, queue_id: int,
                    offsets: Sequence[int]) -> tuple[int, dict[int, Record]]:
        """Pull from the first offset on. Returns the queue's first offset, and those wanted messages that came. Raises
        ``RemotingError``, ``HeaderError``, ``BodyError``, ``DamagedRecord``."""
        answer = await self._client.call(address, request(RequestCode.PULL_MESSAGE, PullMessageRequest(
            READERS, topic, queue_id, offsets[0], min(READ_MAX, offsets[-1] - offsets[0] + 1), SUBSCRIPTION,
            subscription="*", expression_type="TAG")), READ_TIMEOUT_MS)
        codes = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
                 ResponseCode.PULL_OFFSET_MOVED)
        if answer.code not in codes:
            raise BodyError(f"{address} answered {answer.code}: {answer.remark or 'no remark'}")
        told, wanted = PullMessageResponse.from_ext(answer.ext), frozenset(offsets)
        if answer.code != ResponseCode.SUCCESS:
            return told.min_offset, {}
        return told.min_offset, {record.queue_offset: record for record in decode_all(answer.body)
                                 if record.queue_offset in wanted and record.message.topic == topic.encode()}

    async def _is_master(self, address: str) -> bool:
        """Return whether it is a master, not an acting slave that is listed with id 0: a slave's log may begin later.

        Brokers that do not know the request have no acting slaves. Raises ``RemotingError``, ``BodyError``."""
        answer = await self._client.call(address, Command(RequestCode.GET_BROKER_HA_STATUS), READ_TIMEOUT_MS)
        if answer.code == ResponseCode.SUCCESS:
            return HARuntimeInfo.from_json(answer.body).master
        return answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def _letter(place: Refuge, record: Message) -> Command:
    """The send of one record to a revive queue."""
    values = decode_properties(record.properties)
    return Command(RequestCode.SEND_MESSAGE_V2, 0, 0, {
        "a": f"InnerProducerGroup_{place.broker_name}", "b": record.topic.decode(), "c": "", "d": "0",
        "e": str(place.queue_id), "f": "0", "g": str(record.born_time_ms), "h": str(record.flag),
        "i": props.text(values), "j": "0", "k": "false", "m": "false", "n": place.broker_name}, record.body)
