"""``connect``: a client of a cluster, for as long as a block runs. What it can do is a method each.

The outermost shell: it puts the parts together and knows the process (its id, its address, its clocks).
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Any, Final

import trio

from broker.client.config import ClientSettings, ConsumerSettings
from broker.client.consuming import Subscriptions, open_consumer
from broker.client.faults import Faults
from broker.client.ids import UniqueIds
from broker.client.message import NO_PROPERTIES, Message, Received, Sent, check_group
from broker.client.messages import Messages
from broker.client.opening import KeptBlock, openable
from broker.client.popping import INVISIBLE_MS, Popper, open_popper
from broker.client.positions import Start
from broker.client.producing import Producer
from broker.client.pulling import Puller, open_puller
from broker.client.pushes import Pushes
from broker.client.queries import Queries
from broker.client.recalling import recall
from broker.client.requesting import REQUEST_TIMEOUT_MS, Reply, Requests
from broker.client.routes import Routes
from broker.client.session import Session
from broker.client.transactions import Checker, Transactions, open_transactions
from remoting.address import split_address
from remoting.background import background
from remoting.bodies.consumers import MessageQueue
from remoting.client import open_client
from remoting.config import ClientConfig
from remoting.streams import Connector, TLSContext, connect_tcp

_GOODBYE_S: Final = 1.0
_ANYWHERE: Final = "127.0.0.1"
_EVERYTHING: Final = 2**63 - 1


@openable
@asynccontextmanager
async def connect(
    name_servers: str | Sequence[str], *, producer_group: str = "quorate-producers", client_id: str | None = None,
    host: str | None = None, settings: ClientSettings | None = None, tls: TLSContext | None = None,
    connector: Connector = connect_tcp, random: Random | None = None,
) -> AsyncIterator[Client]:
    """A client of the cluster that ``name_servers`` (``host:port``, a list or joined by ``;``) know.

    ``async with connect(...) as client`` for a block; ``client = await connect(...)`` for as long as you like, and then
    ``await client.aclose()``.

    Dials nobody before the first request. ``host`` is this machine's IP address in ids of messages, if it is not to be
    the one that it has towards the name servers. ``client_id`` must differ between clients of one group; without one it
    is made of the address, the process and chance. Raises ``ValueError`` for an address or a group that is none.
    """
    addresses = name_servers.split(";") if isinstance(name_servers, str) else list(name_servers)
    if not addresses:
        raise ValueError("name_servers: at least one is needed")
    for address in addresses:
        split_address(address)
    check_group(producer_group)
    settings, random = settings or ClientSettings(), random or Random()
    host = host or await _own_host(addresses)
    pushes, faults = Pushes(), Faults(settings.sparing)
    async with background() as nursery:
        async with open_client(
            ClientConfig(), connector=connector, tls=tls, handlers=pushes.handlers(),
            on_close=lambda connection, reason: session.closed(connection, reason),  # noqa: PLW0108  # it comes later
        ) as remoting:
            session = Session(
                client_id=client_id or f"{host}@{os.getpid()}#{random.getrandbits(48)}", host=host,
                producer_group=producer_group, settings=settings, remoting=remoting,
                ids=UniqueIds(host, os.getpid(), random.getrandbits(32), month_of), wall_ms=_wall_ms, nursery=nursery,
                faults=faults)
            session.routes = Routes(remoting, addresses, settings, nursery, session.route_changed)
            pushes.session = session
            nursery.start_soon(session.routes.poll, name="poll of routes")
            nursery.start_soon(session.beat, name="heartbeats")
            try:
                yield Client(session, random)
            finally:
                session.end()
                with trio.move_on_after(_GOODBYE_S, shield=True):
                    await session.forget(producer=producer_group)
                nursery.cancel_scope.cancel()  # before connections close: its tasks would open them again


class Client:
    """A client, made by ``connect``. Any number of tasks may use it; they share one connection to each broker."""

    kept: KeptBlock[Any] | None = None
    """The block that ``await connect(...)`` opened; None: ``async with`` owns the client."""

    def __init__(self, session: Session, random: Random) -> None:
        self._session, self._random = session, random
        self._producer = Producer(session, random.randrange(1 << 16))
        session.nursery.start_soon(self._producer.follow, name="sends that hang")
        self._queries = Queries(session)
        self._requests = Requests(session, self._producer, random)

    @property
    def id(self) -> str:
        """Name by which brokers and the other members of its groups know this client."""
        return self._session.client_id

    async def aclose(self) -> None:
        """End a client that was awaited: say goodbye, close its connections. The second time nothing happens.

        Raises ``RuntimeError`` for one that ``async with`` made: its block ends it.
        """
        if self.kept is None:
            raise RuntimeError("this client belongs to the block `async with connect(...)`, and ends with it")
        await self.kept.close()

    # --- sending ---------------------------------------------------------------------------------------------

    async def send(
        self, message: Message, *, timeout_ms: float | None = None, queue: MessageQueue | None = None,
        order_by: str | None = None,
    ) -> Sent:
        """Store a message; returns where it is, once the broker has it as safe as it is configured to.

        The queues of the topic take turns, unless ``queue`` names one, or ``order_by`` is a key: equal keys go to one
        queue, in the order of sending. Any number of tasks may send at once, and should.

        Raises:
            SendFailed: it is stored nowhere.
            SendUnknown: it may be stored or not.
            MessageIllegal, CompressionMissing: nothing was sent, and never can be as it is.
        """
        return await self._producer.send(message, timeout_ms, queue, order_by)

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, order_by: str | None = None,
    ) -> None:
        """Send without an answer: to return says that the message left, no more. Nobody learns what happens to it.

        Raises:
            SendFailed: it did not leave: no route, no connection.
        """
        await self._producer.send_oneway(message, queue, order_by)

    async def send_batch(
        self, messages: Sequence[Message], *, timeout_ms: float | None = None, queue: MessageQueue | None = None,
        order_by: str | None = None,
    ) -> list[Sent]:
        """Store many messages of one topic in few requests, each whole or not at all, at up to ``batch_bytes_max``.

        Raises:
            SendFailed, SendUnknown: of the request that failed; ``sent`` are the messages of those before it.
            MessageIllegal: topics differ, or one of them is delayed or too large.
        """
        return await self._producer.send_batch(messages, timeout_ms, queue, order_by)

    async def request(
        self, message: Message, *, timeout_ms: float = REQUEST_TIMEOUT_MS, order_by: str | None = None,
    ) -> Reply:
        """Send a message and wait for the reply of whoever consumes it, in this client or any of RocketMQ's.

        Raises:
            NoReply: nobody replied in time; the message may be consumed all the same.
            SendFailed: it is stored nowhere.
            MessageIllegal, CompressionMissing: nothing was sent; or the reply is one that this client cannot read.
        """
        return await self._requests.ask(message, timeout_ms, order_by)

    async def reply(
        self, asked: Received, body: bytes, *, properties: Mapping[str, str] = NO_PROPERTIES,
        timeout_ms: float | None = None,
    ) -> None:
        """Answer a request. It returns when the one who waits has the reply.

        Raises:
            SendFailed: it did not leave, or no broker took it.
            SendUnknown: it may have arrived or not: brokers answer so for one who is gone, too.
            MessageIllegal, CompressionMissing: nothing was sent: ``asked`` is no request, or the reply no message.
        """
        await self._requests.reply(asked, body, properties, timeout_ms)

    async def recall(self, sent: Sent | str) -> str:
        """Take back a message that was sent with ``delay`` or ``deliver_at``; returns its ``message_id``.

        ``sent`` is what the send returned, or the ``recall_handle`` of that. The broker notes the recall; it cannot
        take back what it delivers in that very second.

        Raises:
            Refused: with code 604 it is too late; brokers allow recalls with ``recallMessageEnable`` alone.
            Unreachable: nobody answered; it may be taken back or not, and asking again does no harm.
            MessageIllegal: there is no handle, or it is none.
            NoRoute, NoNameServer: as when sending.
        """
        return await recall(self._session, sent)

    def transactions(
        self, checker: Checker, *, topics: Sequence[str] = (), checks_at_once: int = 16,
    ) -> AbstractAsyncContextManager[Transactions]:
        """Send in transactions while the block runs, and answer brokers that ask what became of one.

        ``checker`` gets a half as a message and returns a ``Decision``: ``UNDECIDED`` if it does not know. It is asked
        for transactions whose block left it open, and for those of other and earlier clients of the producer group.
        Brokers of ``topics`` may ask before anything is sent. Up to ``checks_at_once`` checkers run at a time.

        At the end what is decided is told, for a second at most. Raises ``ValueError``: it has a checker already.
        """
        return open_transactions(self._session, self._producer, checker, topics, checks_at_once)

    # --- receiving -------------------------------------------------------------------------------------------

    def consume(
        self, group: str, subscriptions: Subscriptions, *, ordered: bool = False, broadcast: bool = False,
        start: Start | dt.datetime = Start.LAST, settings: ConsumerSettings | None = None,
    ) -> AbstractAsyncContextManager[Messages]:
        """Be a member of a consumer group while the block runs; its members share out the queues among themselves.

        ``subscriptions``: a topic, or topics with the tags wanted: ``{"orders": "new || old", "returns": "*"}``.
        ``ordered``: a queue's messages one by one, by one member at a time. ``broadcast``: every member gets all.
        ``start``: where a group begins that has read nothing yet.

        At the end positions are committed; messages that were not acknowledged come again, here or elsewhere.
        """
        return open_consumer(
            self._session, self._producer, self._queries, group, subscriptions, ordered=ordered, broadcast=broadcast,
            start=start, settings=settings or ConsumerSettings(), random=self._random)

    def pop(
        self, group: str, subscriptions: Subscriptions, *, ordered: bool = False, invisible_ms: int = INVISIBLE_MS,
        start: Start = Start.LAST, settings: ConsumerSettings | None = None,
    ) -> AbstractAsyncContextManager[Popper]:
        """Get messages for ``invisible_ms`` each while the block runs: what is not acknowledged in that time comes
        again, to any client of the group. Its clients share no queues out, so there may be more of them than queues.

        ``subscriptions`` as of ``consume``. ``ordered``: the messages of a queue one by one, in their order, whoever
        gets them; the time of each begins when a task takes it. ``start``: where a group begins that has popped nothing
        yet; with ``LAST`` that is the last message of each queue. What nobody took from it is given back at the end.
        """
        return open_popper(
            self._session, self._producer, group, subscriptions, ordered=ordered, invisible_ms=invisible_ms,
            from_first=start is Start.FIRST, settings=settings or ConsumerSettings())

    def pull(
        self, group: str, *, start: Start | dt.datetime = Start.LAST, settings: ConsumerSettings | None = None,
    ) -> AbstractAsyncContextManager[Puller]:
        """Read queues of your own choice: ``assign``, ``seek``, ``poll``, ``commit``; ``group`` names the positions."""
        return open_puller(self._session, self._queries, group, settings or ConsumerSettings(), start)

    # --- looking ---------------------------------------------------------------------------------------------
    # All raise ``Refused``, ``Unreachable``, ``NoRoute``, ``NoNameServer``.

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read."""
        return await self._queries.queues(topic)

    async def query(
        self, topic: str, key: str, *, most: int = 32, begin_ms: int = 0, end_ms: int = _EVERYTHING,
    ) -> list[Received]:
        """Messages with ``key`` among their keys that were stored in that time (wall clock of the broker)."""
        return await self._queries.query(topic, key, most=most, begin_ms=begin_ms, end_ms=end_ms)

    async def query_id(self, topic: str, message_id: str) -> list[Received]:
        """The message with that ``message_id``, and its copies if it was sent again."""
        return await self._queries.query(topic, message_id, unique=True)

    async def view(self, offset_message_id: str) -> Received:
        """The message with that id of a broker's. Raises ``MessageIllegal`` for what is no such id."""
        return await self._queries.view(offset_message_id)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the first message that is kept."""
        return await self._queries.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Offset that the next message will get."""
        return await self._queries.max_offset(queue)

    async def search_offset(self, queue: MessageQueue, time: dt.datetime, *, upper: bool = False) -> int:
        """The first message stored at ``time`` or later; ``upper``: the last stored until then."""
        return await self._queries.search_offset(queue, int(time.timestamp() * 1e3), upper=upper)

    async def earliest_time_ms(self, queue: MessageQueue) -> int:
        """Return the store time of the first message that is kept, in milliseconds; -1 if there is none."""
        return await self._queries.earliest_time(queue)

    async def create_topic(self, topic: str, queues: int = 8) -> None:
        """Make a topic with so many queues on every broker. It takes a moment until name servers know it."""
        await self._queries.create_topic(topic, queues)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def month_of(time_ms: int) -> tuple[int, int]:
    """Return when the month (UTC) of ``time_ms`` began, and when the next begins, in milliseconds."""
    at = dt.datetime.fromtimestamp(time_ms / 1e3, dt.UTC)
    first = dt.datetime(at.year, at.month, 1, tzinfo=dt.UTC)
    following = dt.datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=dt.UTC)
    return int(first.timestamp() * 1e3), int(following.timestamp() * 1e3)


async def _own_host(addresses: Sequence[str]) -> str:
    """The address that this machine has towards the name servers. Nothing is sent to find it."""
    for address in addresses:
        host, port = split_address(address)
        try:
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        except ValueError:
            family = socket.AF_INET
        try:
            with trio.socket.socket(family, socket.SOCK_DGRAM) as sock, trio.fail_after(1):
                await sock.connect((host, port))
                return str(ipaddress.ip_address(sock.getsockname()[0]))
        except (OSError, ValueError, trio.TooSlowError):
            continue
    return _ANYWHERE
