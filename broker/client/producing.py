"""Sending: a queue is chosen, the message leaves on the shared connection of its broker, and the answer is waited for.

Many tasks send at once; their requests travel together and no task is made for them. When a broker fails, the route is
asked for at once and another attempt follows, until the deadline. What a failure means is ``outcomes``' business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Final

import trio

from broker.client.errors import MessageIllegal, NoNameServer, NoRoute, SendFailed, SendUnknown
from broker.client.faults import FAILED_MS, RoundRobin
from broker.client.message import NO_PROPERTIES, WAIT, Encoded, Message, Sent, encode
from broker.client.outcomes import Failure, Next, of_answer, of_error
from broker.client.route import Route
from broker.client.session import Session
from remoting.bodies.consumers import MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY, Command
from remoting.connection import Connection
from remoting.errors import ConnectFailed, RemotingError
from remoting.hashing import java_hash
from remoting.record import PREPARED, encode_batch, encode_properties

_SUCCESS: Final = int(ResponseCode.SUCCESS)
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_REPLY: Final = int(RequestCode.SEND_REPLY_MESSAGE_V2)
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_BATCH_PROPERTIES: Final = encode_properties({WAIT: "true"}).decode()
_ONEWAY_BYTES: Final = 1 << 20
"""One-way messages that wait to be written to one broker; further ones wait."""
_ONEWAY_TURN: Final = 32
"""One-way messages in one turn of the loop."""

_LOOKS: Final = 5
"""Looks after a send that hangs, in as much time as passed before the first look."""

_Asked = tuple[float, tuple[str, str, str]]
"""Since when; of which topic, which group, and at which address."""

Choose = Callable[[Route], MessageQueue]
"""A queue that must be used, of a route."""


class Producer:
    """The sending half of a client. Any number of tasks may send at once."""

    def __init__(self, session: Session, start: int) -> None:
        self._session = session
        self._settings = session.settings
        self._now = trio.lowlevel.current_clock().current_time
        self._start = start
        self._turns: dict[str, RoundRobin] = {}
        self._oneways = 0
        self._free_bytes = session.settings.in_flight_bytes_max
        self._waiting: deque[tuple[int, trio.Event]] = deque()
        self._under_way: dict[int, _Asked] = {}
        """Sends that wait for their answer, the oldest first."""

    # --- public ----------------------------------------------------------------------------------------------

    async def send(
        self, message: Message, timeout_ms: float | None, queue: MessageQueue | None, order_by: str | None,
    ) -> Sent:
        encoded = self.encode(message)
        deadline = self._now() + (self._settings.send_timeout_ms if timeout_ms is None else timeout_ms) / 1e3
        return await self._send(message, encoded, deadline, _choice(queue, order_by))

    async def send_half(
        self, message: Message, further: Mapping[str, str], timeout_ms: float | None, queue: MessageQueue | None,
        order_by: str | None, abandoned: Callable[[str, Sent | None], None],
    ) -> Sent:
        """Send the half of a transaction with ``further`` properties; each attempt has an id of its own.

        Two halves with one id would be two messages in the end. So a half that may be stored is ``abandoned``, and the
        next attempt has another id.

        Raises ``SendFailed``, ``SendUnknown``: every half that may be stored is abandoned."""
        deadline = self._now() + (self._settings.send_timeout_ms if timeout_ms is None else timeout_ms) / 1e3
        retries = self._settings.retries if self._settings.resend_unknown else 0
        while True:
            encoded = self.encode(message, further=further)
            fields = self._fields(
                message.topic, encoded.sys_flag | PREPARED, message.flag, encoded.properties, encoded.born_time_ms)
            try:
                found, answer = await self._store(
                    _SEND, message.topic, encoded.message_id, fields, encoded.body, deadline, _choice(queue, order_by),
                    resend_unknown=False)
                return _sent(encoded.message_id, found, answer)
            except SendFailed:
                raise
            except SendUnknown as unknown:
                abandoned(encoded.message_id, unknown.place)
                retries -= 1
                if retries < 0 or unknown.place is not None or self._now() >= deadline:
                    raise
            except BaseException:  # cancelled: it may have left
                abandoned(encoded.message_id, None)
                raise

    async def send_request(
        self, message: Message, further: Mapping[str, str], deadline: float, order_by: str | None,
    ) -> Sent:
        """Send a message whose sender waits for a reply: ``further`` tells its consumers so."""
        return await self._send(message, self.encode(message, further=further), deadline, _choice(None, order_by))

    async def send_reply(self, message: Message, further: Mapping[str, str], timeout_ms: float | None) -> None:
        """Send a reply to the client that waits for it; whether the broker keeps it, too, does not matter here.

        Raises ``SendFailed``: nobody has it. ``SendUnknown``: perhaps nobody has it, as the waiting client went away.
        """
        encoded = self.encode(message, further=further)
        deadline = self._now() + (self._settings.send_timeout_ms if timeout_ms is None else timeout_ms) / 1e3
        fields = self._fields(message.topic, encoded.sys_flag, message.flag, encoded.properties, encoded.born_time_ms)
        await self._store(_REPLY, message.topic, encoded.message_id, fields, encoded.body, deadline, None)

    async def send_again(self, topic: str, encoded: Encoded, flag: int, reconsume_times: int, times_max: int) -> Sent:
        """Send a message that a consumer gives back, as a new one, to its group's retry topic."""
        deadline = self._now() + self._settings.send_timeout_ms / 1e3
        fields = self._fields(topic, encoded.sys_flag, flag, encoded.properties, encoded.born_time_ms)
        fields["j"], fields["l"] = str(reconsume_times), str(times_max)
        queue, answer = await self._store(_SEND, topic, encoded.message_id, fields, encoded.body, deadline, None)
        return _sent(encoded.message_id, queue, answer)

    async def send_oneway(self, message: Message, queue: MessageQueue | None, order_by: str | None) -> None:
        encoded = self.encode(message)
        try:
            route = await self._session.routes.get(message.topic, template=True)
        except (NoRoute, NoNameServer) as error:
            raise SendFailed(f"{message.topic}: {error}") from None
        fields = self._fields(message.topic, encoded.sys_flag, message.flag, encoded.properties, encoded.born_time_ms)
        found, address = self._pick(route, message.topic, _choice(queue, order_by), None)
        try:
            if found is None or address is None:
                raise ConnectFailed("?", "no master is known")
            deadline = self._now() + self._settings.send_timeout_ms / 1e3
            connection = await self._connection(address, deadline)
            while connection.queued_bytes > _ONEWAY_BYTES:  # it tells nobody when it has written
                if self._now() >= deadline:
                    raise RemotingError(f"{address} does not read: {connection.queued_bytes} bytes wait to be sent")
                await trio.sleep(0.001)
            fields["e"], fields["n"] = str(found.queue_id), found.broker_name
            connection.send(Command(_SEND, 0, ONEWAY, fields, encoded.body))
        except RemotingError as error:
            if found is not None:
                self._session.faults.note(found.broker_name, FAILED_MS, self._now() * 1e3)
            self._session.routes.renew_soon(message.topic)
            raise SendFailed(f"{message.topic}: {error}") from None
        self._oneways += 1
        if self._oneways % _ONEWAY_TURN:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()  # others get their turn; then all that is queued leaves in one piece

    async def send_batch(
        self, messages: Sequence[Message], timeout_ms: float | None, queue: MessageQueue | None, order_by: str | None,
    ) -> list[Sent]:
        """Send messages in as few requests as their size allows; nothing is sent if one is illegal.

        Each request is stored whole or not at all."""
        encoded = [self._of_batch(at, message) for at, message in enumerate(messages)]
        topic = _one_topic(messages)
        deadline = self._now() + (self._settings.send_timeout_ms if timeout_ms is None else timeout_ms) / 1e3
        choose, sent = _choice(queue, order_by), list[Sent]()
        inner: list[tuple[int, bytes, bytes]] = []
        ids: list[str] = []
        size = 0
        for message, one in zip(messages, encoded, strict=True):
            properties = one.properties.encode()
            more = 22 + len(one.body) + len(properties)
            if inner and size + more > self._settings.batch_bytes_max:
                await self._send_part(topic, inner, ids, deadline, choose, sent)
                inner, ids, size = [], [], 0
            inner.append((message.flag, one.body, properties))
            ids.append(one.message_id)
            size += more
        await self._send_part(topic, inner, ids, deadline, choose, sent)
        return sent

    def _of_batch(self, at: int, message: Message) -> Encoded:
        try:
            return self.encode(message, compress=False)
        except MessageIllegal as error:
            raise MessageIllegal(f"message {at} of the batch: {error}") from None

    async def _send_part(
        self, topic: str, inner: list[tuple[int, bytes, bytes]], ids: list[str], deadline: float,
        choose: Choose | None, sent: list[Sent],
    ) -> None:
        fields = self._fields(topic, 0, 0, _BATCH_PROPERTIES, self._session.wall_ms())
        fields["m"] = "true"
        try:
            queue, answer = await self._store(_BATCH, topic, ids[0], fields, encode_batch(inner), deadline, choose)
            first = _sent(ids[0], queue, answer)
        except (SendFailed, SendUnknown) as error:
            error.sent = tuple(sent)
            raise
        theirs = first.offset_message_id.split(",")
        theirs += [""] * (len(ids) - len(theirs))
        sent += (Sent(ours, first.queue, first.queue_offset + at, theirs[at]) for at, ours in enumerate(ids))

    # --- one message -----------------------------------------------------------------------------------------

    def encode(
        self, message: Message, *, compress: bool = True, further: Mapping[str, str] = NO_PROPERTIES,
    ) -> Encoded:
        """Encode a message, with a new id. Raises ``MessageIllegal``, ``CompressionMissing``."""
        settings, now_ms = self._settings, self._session.wall_ms()
        return encode(
            message, self._session.ids.next(now_ms), now_ms,
            compress_from=settings.compress_from_bytes if compress else settings.message_bytes_max,
            compression=settings.compression, level=settings.compression_level,
            body_bytes_max=settings.message_bytes_max, further=further)

    def _fields(self, topic: str, sys_flag: int, flag: int, properties: str, born_time_ms: int) -> dict[str, str]:
        """Return the ext fields of 310 and 320 without the queue: ``SendMessageRequestV2`` without its defaults.

        Made by hand, since this is done for each message."""
        return {
            "a": self._session.producer_group, "b": topic, "c": self._settings.default_topic,
            "d": str(self._settings.default_topic_queues), "e": "", "f": str(sys_flag), "g": str(born_time_ms),
            "h": str(flag), "i": properties,
        }

    async def _send(self, message: Message, encoded: Encoded, deadline: float, choose: Choose | None) -> Sent:
        fields = self._fields(message.topic, encoded.sys_flag, message.flag, encoded.properties, encoded.born_time_ms)
        queue, answer = await self._store(
            _SEND, message.topic, encoded.message_id, fields, encoded.body, deadline, choose)
        return _sent(encoded.message_id, queue, answer)

    async def _store(
        self, code: int, topic: str, message_id: str, fields: dict[str, str], body: bytes, deadline: float,
        choose: Choose | None, *, resend_unknown: bool | None = None,
    ) -> tuple[MessageQueue, Command]:
        """Make all attempts. Raises ``SendFailed``, ``SendUnknown``."""
        if resend_unknown is None:
            resend_unknown = self._settings.resend_unknown
        size = min(len(body), self._settings.in_flight_bytes_max)
        if self._waiting or self._free_bytes < size:
            await self._wait_for_room(size, deadline)
        else:
            self._free_bytes -= size
        try:
            return await self._attempts(code, topic, message_id, fields, body, deadline, choose, resend_unknown)
        finally:
            self._free_bytes += size
            if self._waiting:
                self._let_in()

    async def _attempts(
        self, code: int, topic: str, message_id: str, fields: dict[str, str], body: bytes, deadline: float,
        choose: Choose | None, resend_unknown: bool,
    ) -> tuple[MessageQueue, Command]:
        session, now = self._session, self._now
        routes, faults, retries = session.routes, session.faults, self._settings.retries
        maybe_stored, last, answer_code, place = False, None, None, None
        while True:
            route = routes.cached(topic) or await self.route(topic, deadline)
            queue, address = self._pick(route, topic, choose, last)
            started = now()
            if queue is None or address is None:
                failure, why, answer_code = _NO_MASTER, f"{topic}: no master of its queues is known", None
            else:
                fields["e"], fields["n"] = str(queue.queue_id), queue.broker_name
                command = Command(code, 0, 0, fields, body)
                self._under_way[id(command)] = (started, (topic, queue.broker_name, address))
                try:
                    if session.remoting.connection(address) is None:
                        await self._connection(address, deadline)
                    answer = await session.remoting.call(address, command, (deadline - now()) * 1e3)
                except RemotingError as error:
                    failure, why, answer_code = of_error(error), f"{topic}: {error}", None
                else:
                    if answer.code == _SUCCESS:
                        took_ms = (now() - started) * 1e3
                        if took_ms >= faults.slow_ms:
                            faults.note(queue.broker_name, took_ms, now() * 1e3)
                        return queue, answer
                    failure, answer_code = of_answer(answer.code, answer.remark), answer.code
                    place = _place(message_id, queue, answer)
                    why = f"{topic}: {address} answered {answer.code}: {answer.remark or 'no remark'}"
                finally:
                    del self._under_way[id(command)]
                if not failure.broker_is_well and not self._followed(topic, queue.broker_name, address):
                    faults.note(queue.broker_name, FAILED_MS, now() * 1e3)
                last = queue.broker_name
            maybe_stored |= failure.maybe_stored
            retries -= failure.next is Next.RETRY
            final = failure.next is Next.STOP or retries < 0 or (
                failure.maybe_stored and not resend_unknown)
            if not final and choose is None and self._others(route, last):
                routes.renew_soon(topic)
            elif not final:
                with trio.move_on_at(deadline):
                    if failure.next is Next.RETRY and answer_code is not None:
                        await trio.sleep(_pause_s(self._settings.retries - retries))
                    await routes.renew(topic)
            if final or routes.over or now() >= deadline:
                if maybe_stored:
                    raise SendUnknown(why, message_id, answer_code, place=place)
                raise SendFailed(why, answer_code)

    async def follow(self) -> None:
        """Watch masters until cancelled. One that is silent or hangs closes no connection: sends that wait for it are
        freed as if it had, as soon as name servers know another one."""
        patience_s = self._settings.answer_patience_ms / 1e3
        while True:
            hung = self._hanging(self._now() - patience_s)
            for topic, broker, address in hung:
                connection = self._session.remoting.connection(address)
                if not self._followed(topic, broker, address):
                    self._session.routes.renew_soon(topic)
                elif connection is not None:
                    connection.close("another broker is master of its group now")
            await trio.sleep(patience_s / _LOOKS if hung else patience_s)

    def _hanging(self, since: float) -> set[tuple[str, str, str]]:
        """Return the brokers that sends have been waiting for since then."""
        return {where for _, where in takewhile(lambda asked: asked[0] <= since, self._under_way.values())}

    def _followed(self, topic: str, broker: str, address: str) -> bool:
        """Return whether the group has another master than that one."""
        route = self._session.routes.cached(topic)
        return route is not None and route.master(broker) not in (None, address)

    async def route(self, topic: str, deadline: float) -> Route:
        """Get a topic's first route: name servers that do not answer are asked again until the deadline."""
        why = "no route in time"
        with trio.move_on_at(deadline):
            while True:
                try:
                    return await self._session.routes.get(topic, template=True)
                except NoRoute as error:
                    raise SendFailed(str(error)) from None
                except NoNameServer as error:
                    why = str(error)
                    if self._session.routes.over:
                        break
        raise SendFailed(f"{topic}: {why}")

    def _pick(
        self, route: Route, topic: str, choose: Choose | None, last: str | None,
    ) -> tuple[MessageQueue | None, str | None]:
        """Choose a queue. Returns it and the address of its master; None for what is missing."""
        if choose is not None:
            if not route.writable:
                return None, None
            queue = choose(route)
        else:
            if not route.sendable:
                return None, None
            turn = self._turns.get(topic)
            if turn is None:
                turn = self._turns[topic] = RoundRobin(self._start)
            queue = turn.pick(route.sendable, self._session.faults.spared(self._now() * 1e3), last)
        return queue, route.master(queue.broker_name)

    def _others(self, route: Route, last: str | None) -> bool:
        """Return whether another group than the last could take the message now."""
        spared = self._session.faults.spared(self._now() * 1e3)
        return any(queue.broker_name != last and queue.broker_name not in spared for queue in route.sendable)

    async def _connection(self, address: str, deadline: float) -> Connection:
        """Connect. Raises ``ConnectFailed``, also when it takes so long that the route should be looked at again."""
        patience_ms = self._settings.connect_patience_ms
        with trio.move_on_at(min(deadline, self._now() + patience_ms / 1e3)):
            return await self._session.remoting.connect(address)
        raise ConnectFailed(address, f"no connection within {patience_ms} ms")

    # --- room ------------------------------------------------------------------------------------------------

    async def _wait_for_room(self, size: int, deadline: float) -> None:
        """Take ``size`` of the free bytes when it is this send's turn; first come, first served."""
        place = (size, trio.Event())
        self._waiting.append(place)
        try:
            with trio.move_on_at(deadline):
                await place[1].wait()
                return
        except trio.Cancelled:
            self._give_up(place)
            raise
        self._give_up(place)
        raise SendFailed("in_flight_bytes_max is full of other sends, and the time-out came first; send less at once")

    def _give_up(self, place: tuple[int, trio.Event]) -> None:
        if place[1].is_set():
            self._free_bytes += place[0]
        else:
            self._waiting.remove(place)
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free_bytes:
            size, event = self._waiting.popleft()
            self._free_bytes -= size
            event.set()


_NO_MASTER: Final = Failure(False, Next.WAIT)


def _pause_s(attempts: int) -> float:
    """Return the pause before the only broker is asked again. A new master may not know the topic for a moment."""
    return min(0.05 * 4.0 ** (attempts - 1), 1.0)


def _sent(message_id: str, queue: MessageQueue, answer: Command) -> Sent:
    """Return where the message is stored. Raises ``SendUnknown`` for an answer that does not say it."""
    place = _place(message_id, queue, answer)
    if place is None:
        raise SendUnknown(f"{queue.topic}: the answer says no place: {sorted(answer.ext)}", message_id)
    return place


def _place(message_id: str, queue: MessageQueue, answer: Command) -> Sent | None:
    """Return the place that an answer gives for the message; None: it gives none."""
    ext = answer.ext
    try:
        number = int(ext["queueId"])
        if number != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, number)
        return Sent(message_id, queue, int(ext["queueOffset"]), ext["msgId"], ext.get("recallHandle"))
    except (KeyError, ValueError):
        return None


def _choice(queue: MessageQueue | None, order_by: str | None) -> Choose | None:
    if queue is not None:
        return lambda _: queue
    if order_by is None:
        return None

    def by_key(route: Route) -> MessageQueue:
        # As ``SelectMessageQueueByHash``, over queues with and without a master: none changes in a failover.
        return route.writable[abs(java_hash(order_by)) % len(route.writable)]

    return by_key


def _one_topic(messages: Sequence[Message]) -> str:
    topics = {message.topic for message in messages}
    if len(topics) != 1:
        raise MessageIllegal(f"a batch has messages of one topic; here are {len(topics)}: {sorted(topics)[:5]}")
    (topic,) = topics
    if any(message.delayed for message in messages):
        raise MessageIllegal("a batch has no delayed messages; send them one by one")
    if topic.startswith("%RETRY%"):
        raise MessageIllegal("a batch cannot go to a retry topic")
    return topic
