"""A name server and brokers in memory for tests of the client: small, honest, and able to fail as they are told.

A broker here keeps messages in lists, holds pulls, knows members, positions and locks. Everything runs on memory
streams and trio's clock, so tests use a virtual one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random

import trio

from broker.client import Client, ClientSettings, connect
from harness.simulation.worlds.streams import Net
from remoting import record as codec
from remoting.bodies.consumers import (
    ConsumerIdList,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
)
from remoting.bodies.namesrv import BrokerData, QueueData, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.header import Header
from remoting.headers.consumers import ConsumerGroupRequest, UnregisterClientRequest
from remoting.headers.namesrv import GetRouteInfoRequest
from remoting.headers.pulling import (
    COMMIT_OFFSET,
    SUSPEND,
    OffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetRequest,
    QueueRequest,
    SearchOffsetRequest,
    TimestampResponse,
    UpdateConsumerOffsetRequest,
)
from remoting.headers.queries import QueryMessageRequest, ViewMessageRequest
from remoting.headers.sending import ConsumerSendMsgBackRequest, SendMessageRequestV2, SendMessageResponse
from remoting.record import Message, Record
from remoting.server import Server

NAME_SERVER = "ns:9876"
Refuse = Callable[[Command], Command | None]


class FakeNameServer:
    """Routes as they are set; how often each topic was asked for."""

    def __init__(self) -> None:
        self.routes: dict[str, TopicRouteData] = {}
        self.asked: dict[str, int] = defaultdict(int)

    def set(self, topic: str, brokers: dict[str, dict[int, str]], queues: int = 2, perm: int = 6) -> None:
        self.routes[topic] = TopicRouteData(
            [QueueData(name, queues, queues, perm) for name in brokers],
            [BrokerData(name, "cluster", addresses) for name, addresses in brokers.items()])

    def server(self) -> Server:
        return Server({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route})

    def _route(self, _: Connection, command: Command) -> Command:
        topic = GetRouteInfoRequest.from_ext(command.ext).topic
        self.asked[topic] += 1
        if topic.startswith("%") and self.routes:  # brokers make these by themselves
            first = next(iter(self.routes.values()))
            return response(command, body=TopicRouteData(
                [QueueData(each.broker_name, 1, 1, 6) for each in first.broker_datas], first.broker_datas).to_json())
        if topic not in self.routes:
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
        return response(command, body=self.routes[topic].to_json())


class FakeBroker:
    """One broker. ``refuse`` may answer any request in its place; None from it lets the broker work."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: list[Record] = []
        self.queues: dict[tuple[str, int], list[int]] = defaultdict(list)
        """Indexes in the log by topic and queue id."""
        self.trimmed: dict[tuple[str, int], int] = {}
        """First queue offset that is kept."""
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, dict[str, Connection]] = defaultdict(dict)
        self.producers: set[str] = set()
        self.locks: dict[tuple[str, MessageQueue], str] = {}
        self.refuse: Refuse = lambda command: None
        self.seen: list[tuple[int, dict[str, str]]] = []
        self.held: list[tuple[Connection, Command, PullMessageRequest]] = []
        self.heartbeats: list[HeartbeatData] = []
        self.retry_times_max = 16
        self.delay_ms = 0.0
        self._nursery: trio.Nursery | None = None

    def server(self, nursery: trio.Nursery) -> Server:
        self._nursery = nursery
        return Server({code: self._guarded(handler) for code, handler in self.handlers().items()}, on_close=self._gone)

    def handlers(self) -> dict[int, Callable[[Connection, Command], Command | None]]:
        """By code of the request."""
        codes = RequestCode
        return {
            codes.SEND_MESSAGE_V2: self._send, codes.SEND_BATCH_MESSAGE: self._batch, codes.PULL_MESSAGE: self._pull,
            codes.HEART_BEAT: self._beat, codes.UNREGISTER_CLIENT: self._leave,
            codes.GET_CONSUMER_LIST_BY_GROUP: self._list, codes.QUERY_CONSUMER_OFFSET: self._offset,
            codes.UPDATE_CONSUMER_OFFSET: self._commit, codes.GET_MAX_OFFSET: self._max,
            codes.GET_MIN_OFFSET: self._min,
            codes.SEARCH_OFFSET_BY_TIMESTAMP: self._search, codes.CONSUMER_SEND_MSG_BACK: self._back,
            codes.LOCK_BATCH_MQ: self._lock, codes.UNLOCK_BATCH_MQ: self._unlock, codes.QUERY_MESSAGE: self._query,
            codes.VIEW_MESSAGE_BY_ID: self._view, codes.GET_EARLIEST_MSG_STORETIME: self._earliest,
            codes.UPDATE_AND_CREATE_TOPIC: self._well,
        }

    def _guarded(self, handler: Callable[[Connection, Command], Command | None]) -> Handler:
        def handle(connection: Connection, command: Command) -> Command | None:
            self.seen.append((command.code, command.ext))
            refused = self.refuse(command)
            if refused is not None:
                return refused if refused is not SILENCE else None
            answer = handler(connection, command)
            if self.delay_ms and answer is not None and self._nursery is not None:
                self._nursery.start_soon(self._late, connection, command, answer)
                return None
            return answer

        return handle

    async def _late(self, connection: Connection, command: Command, answer: Command) -> None:
        await trio.sleep(self.delay_ms / 1e3)
        connection.reply(command, answer)

    def asked(self, code: int) -> list[dict[str, str]]:
        return [ext for each, ext in self.seen if each == code]

    # --- sending ---------------------------------------------------------------------------------------------

    def put(self, topic: str, queue_id: int, body: bytes, **properties: str) -> Record:
        """A message as if sent, stored at this moment of trio's clock."""
        return self._store(Message(topic.encode(), body, queue_id, codec.encode_properties(properties)))

    def _store(self, message: Message) -> Record:
        topic, now_ms = message.topic.decode(), int(trio.current_time() * 1e3)
        queue = self.queues[topic, message.queue_id]
        raw = codec.encode(message, len(queue), len(self.log), now_ms)
        record = codec.decode(raw)
        queue.append(len(self.log))
        self.log.append(record)
        for held in [held for held in self.held if (held[2].topic, held[2].queue_id) == (topic, message.queue_id)]:
            self.held.remove(held)
            held[0].reply(held[1], self._found(held[1], held[2]))
        return record

    def _send(self, _: Connection, command: Command) -> Command:
        header = SendMessageRequestV2.from_ext(command.ext)
        record = self._store(Message(
            header.topic.encode(), command.body, header.queue_id, (header.properties or "").encode(), header.flag,
            header.sys_flag, header.born_timestamp, reconsume_times=header.reconsume_times or 0))
        return response(command, header=SendMessageResponse(
            record.message_id, header.queue_id, record.queue_offset))

    def _batch(self, _: Connection, command: Command) -> Command:
        header = SendMessageRequestV2.from_ext(command.ext)
        assert header.batch
        records = [self._store(Message(header.topic.encode(), body, header.queue_id, properties, flag))
                   for flag, body, properties in codec.decode_batch(command.body)]
        return response(command, header=SendMessageResponse(
            ",".join(record.message_id for record in records), header.queue_id, records[0].queue_offset))

    def _back(self, _: Connection, command: Command) -> Command:
        header = ConsumerSendMsgBackRequest.from_ext(command.ext)
        old = self.log[header.offset].message
        times = header.max_reconsume_times if header.max_reconsume_times is not None else self.retry_times_max
        dead = header.delay_level < 0 or old.reconsume_times >= times
        properties = codec.decode_properties(old.properties)
        properties.setdefault("RETRY_TOPIC", old.topic.decode())
        self._store(Message(
            (("%DLQ%" if dead else "%RETRY%") + header.group).encode(), old.body, 0,
            codec.encode_properties(properties), reconsume_times=old.reconsume_times + 1))
        return response(command)

    # --- reading ---------------------------------------------------------------------------------------------

    def _pull(self, connection: Connection, command: Command) -> Command | None:
        header = PullMessageRequest.from_ext(command.ext)
        if header.sys_flag & COMMIT_OFFSET:
            self._keep((header.consumer_group, header.topic, header.queue_id), header.commit_offset)
        least, end = self._range(header.topic, header.queue_id)
        if header.queue_offset == end and header.sys_flag & SUSPEND:
            assert self._nursery is not None
            held = connection, command, header
            self.held.append(held)
            self._nursery.start_soon(self._let_go, held)
            return None
        if not least <= header.queue_offset <= end:
            there = least if header.queue_offset < least else end
            return response(command, ResponseCode.PULL_OFFSET_MOVED, PullMessageResponse(0, there, least, end))
        return self._found(command, header)

    async def _let_go(self, held: tuple[Connection, Command, PullMessageRequest]) -> None:
        await trio.sleep(held[2].suspend_timeout_millis / 1e3)
        if held in self.held:
            self.held.remove(held)
            held[0].reply(held[1], self._found(held[1], held[2]))

    def _found(self, command: Command, header: PullMessageRequest) -> Command:
        least, end = self._range(header.topic, header.queue_id)
        places = self.queues[header.topic, header.queue_id][header.queue_offset : header.queue_offset
                                                            + header.max_msg_nums]
        if not places:
            return response(command, ResponseCode.PULL_NOT_FOUND,
                            PullMessageResponse(0, header.queue_offset, least, end))
        body = b"".join(self._raw(self.log[place]) for place in places)
        following = PullMessageResponse(0, header.queue_offset + len(places), least, end)
        return response(command, header=following, body=body)

    def _raw(self, record: Record) -> bytes:
        return codec.encode(record.message, record.queue_offset, record.offset, record.store_time_ms)

    def _range(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self.trimmed.get((topic, queue_id), 0), len(self.queues[topic, queue_id])

    def _offset(self, _: Connection, command: Command) -> Command:
        header = QueryConsumerOffsetRequest.from_ext(command.ext)
        offset = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            return response(command, ResponseCode.QUERY_NOT_FOUND, remark="Not found")
        return response(command, header=OffsetResponse(offset))

    def _commit(self, connection: Connection, command: Command) -> Command | None:
        header = UpdateConsumerOffsetRequest.from_ext(command.ext)
        self._keep((header.consumer_group, header.topic, header.queue_id), header.commit_offset)
        return response(command)

    def _keep(self, place: tuple[str, str, int], offset: int) -> None:
        self.offsets[place] = offset

    def _max(self, _: Connection, command: Command) -> Command:
        header = QueueRequest.from_ext(command.ext)
        return response(command, header=OffsetResponse(self._range(header.topic, header.queue_id)[1]))

    def _min(self, _: Connection, command: Command) -> Command:
        header = QueueRequest.from_ext(command.ext)
        return response(command, header=OffsetResponse(self._range(header.topic, header.queue_id)[0]))

    def _earliest(self, _: Connection, command: Command) -> Command:
        header = QueueRequest.from_ext(command.ext)
        places = self.queues[header.topic, header.queue_id]
        return response(command, header=TimestampResponse(self.log[places[0]].store_time_ms if places else -1))

    def _search(self, _: Connection, command: Command) -> Command:
        header = SearchOffsetRequest.from_ext(command.ext)
        places = self.queues[header.topic, header.queue_id]
        offset = sum(self.log[place].store_time_ms < header.timestamp for place in places)
        return response(command, header=OffsetResponse(offset))

    def _query(self, _: Connection, command: Command) -> Command:
        header = QueryMessageRequest.from_ext(command.ext)
        name = b"UNIQ_KEY" if header.unique else b"KEYS"
        found = [record for record in self.log if record.message.topic.decode() == header.topic
                 and header.key.encode() in (codec.property_of(record.message.properties, name) or b"").split()]
        if not found:
            return response(command, ResponseCode.QUERY_NOT_FOUND)
        return response(command, body=b"".join(map(self._raw, found)))

    def _view(self, _: Connection, command: Command) -> Command:
        offset = ViewMessageRequest.from_ext(command.ext).offset
        if offset >= len(self.log):
            return response(command, ResponseCode.SYSTEM_ERROR, remark="not there")
        return response(command, body=self._raw(self.log[offset]))

    # --- groups ----------------------------------------------------------------------------------------------

    def _beat(self, connection: Connection, command: Command) -> Command:
        data = HeartbeatData.from_json(command.body)
        self.heartbeats.append(data)
        self.producers |= {each.group_name for each in data.producer_data_set}
        for each in data.consumer_data_set:
            if data.client_id not in self.members[each.group_name]:
                self.members[each.group_name][data.client_id] = connection
                self.notify(each.group_name)
        return response(command)

    def _leave(self, _: Connection, command: Command) -> Command:
        header = UnregisterClientRequest.from_ext(command.ext)
        if header.consumer_group is not None:
            self.members[header.consumer_group].pop(header.client_id, None)
            self.notify(header.consumer_group)
        if header.producer_group is not None:
            self.producers.discard(header.producer_group)
        return response(command)

    def _gone(self, connection: Connection, _: str) -> None:
        for group, members in self.members.items():
            for client_id in [client_id for client_id, theirs in members.items() if theirs is connection]:
                del members[client_id]
                self.notify(group)

    def notify(self, group: str) -> None:
        self.push(group, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequest(group), oneway=True)

    def push(self, group: str, code: int, header: Header, *, oneway: bool) -> None:
        for connection in self.members[group].values():
            if not connection.closed:
                connection.send(request(code, header, oneway=oneway))

    def _list(self, _: Connection, command: Command) -> Command:
        members = self.members.get(ConsumerGroupRequest.from_ext(command.ext).consumer_group)
        if not members:
            return response(command, ResponseCode.SYSTEM_ERROR, remark="no consumer for this group")
        return response(command, body=ConsumerIdList(list(members)).to_json())

    def _lock(self, _: Connection, command: Command) -> Command:
        body = LockBatchRequestBody.from_json(command.body)
        won = [queue for queue in body.mq_set
               if self.locks.setdefault((body.consumer_group, queue), body.client_id) == body.client_id]
        return response(command, body=LockBatchResponseBody(won).to_json())

    def _unlock(self, _: Connection, command: Command) -> Command:
        body = LockBatchRequestBody.from_json(command.body)
        for queue in body.mq_set:
            if self.locks.get((body.consumer_group, queue)) == body.client_id:
                del self.locks[body.consumer_group, queue]
        return response(command)

    def _well(self, _: Connection, command: Command) -> Command:
        return response(command)


class ThreadedBroker(FakeBroker):
    """A Java broker's way with positions: threads, each of which looks for the group's map of a topic, makes one where
    there is none, and keeps it ``thread_s`` later; pulls have other threads, which may be ``late_s``. Source:
    ``ConsumerOffsetManager.commitOffset`` of RocketMQ 5.5.0."""

    thread_s = 0.01
    late_s = 0.0

    def _commit(self, connection: Connection, command: Command) -> Command | None:
        header = UpdateConsumerOffsetRequest.from_ext(command.ext)
        self._start((header.consumer_group, header.topic, header.queue_id), header.commit_offset, 0,
                    lambda: connection.reply(command, response(command)))
        return None

    def _keep(self, place: tuple[str, str, int], offset: int) -> None:
        self._start(place, offset, self.late_s, lambda: None)

    def _start(self, place: tuple[str, str, int], offset: int, late_s: float, done: Callable[[], object]) -> None:
        async def work() -> None:
            await trio.sleep(late_s)
            known = any(each[:2] == place[:2] for each in self.offsets)
            await trio.sleep(self.thread_s)
            if not known:
                self.offsets = {each: kept for each, kept in self.offsets.items() if each[:2] != place[:2]}
            self.offsets[place] = offset
            done()

        assert self._nursery is not None
        self._nursery.start_soon(work)


SILENCE = Command(-1)
"""What ``refuse`` returns to leave a request without an answer."""


def refusing(code: int, answer: int, remark: str = "told so") -> Refuse:
    """Requests of ``code`` are answered ``answer``."""
    return lambda command: response(command, answer, remark=remark) if command.code == code else None


class Cluster:
    """Brokers at addresses, and a name server that knows them."""

    def __init__(self, net: Net) -> None:
        self.net, self.name_server = net, FakeNameServer()
        self.brokers: dict[str, FakeBroker] = {}
        self._scopes: dict[str, trio.CancelScope] = {}

    async def start(self, address: str, broker: FakeBroker) -> FakeBroker:
        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            with trio.CancelScope() as self._scopes[address]:
                async with trio.open_nursery() as nursery:
                    server = broker.server(nursery)
                    await nursery.start(server.run)
                    self.net.servers[address] = server
                    task_status.started()

        await self.net.nursery.start(run)
        self.brokers[broker.name] = broker
        return broker

    def kill(self, address: str) -> None:
        """As ``kill -9``: its connections break, and nobody listens there any more."""
        server = self.net.servers.pop(address)
        for connection in server.connections:
            connection.close("killed")
        self._scopes.pop(address).cancel()

    @asynccontextmanager
    async def client(
        self, client_id: str = "client", settings: ClientSettings | None = None, name_servers: Iterable[str] = (),
    ) -> AsyncGenerator[Client, None]:
        async with connect(
            list(name_servers) or [NAME_SERVER], producer_group="producers", client_id=client_id, host="127.0.0.1",
            settings=settings, connector=self.net.connect, random=Random(1),
        ) as client:
            yield client


@asynccontextmanager
async def cluster(
    *names: str, topics: tuple[str, ...] = ("orders",), kind: type[FakeBroker] = FakeBroker,
) -> AsyncGenerator[Cluster, None]:
    """Brokers of these names, each at ``name:1``, with topics of two queues each."""
    async with trio.open_nursery() as nursery:
        made = Cluster(Net(nursery))
        await made.net.serve(NAME_SERVER, made.name_server.server())
        for name in names:
            await made.start(f"{name}:1", kind(name))
        for topic in topics:
            made.name_server.set(topic, {name: {0: f"{name}:1"} for name in names})
        yield made
        nursery.cancel_scope.cancel()
