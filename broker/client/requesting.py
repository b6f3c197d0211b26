"""Asking and answering: a message whose sender waits for a reply, and the reply to such a message.

A reply comes as a push of any broker of the cluster, whichever it was sent to. What is known here are correlation ids
and who waits for each; how a message is sent is ``producing``'s business. Source: ``DefaultMQProducerImpl.request`` and
``MessageUtil`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

import attrs
import trio

from broker.client.errors import CompressionMissing, MessageIllegal, NoReply, SendUnknown
from broker.client.message import NO_PROPERTIES, Message, Received, Sent
from broker.client.producing import Producer
from broker.client.session import Session
from remoting.compression import expand
from remoting.errors import CompressionMissing as LibraryMissing
from remoting.errors import MessageIllegal as NotEncodable
from remoting.headers.sending import ReplyMessageRequest
from remoting.record import decode_properties

CORRELATION: Final = "CORRELATION_ID"
REPLY_TO: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
MESSAGE_TYPE: Final = "MSG_TYPE"
CLUSTER: Final = "CLUSTER"
REQUEST_TIMEOUT_MS: Final = 3_000


@attrs.frozen
class Reply:
    """A reply. ``properties`` are all of the reply's, the user's own among them."""

    body: bytes
    properties: Mapping[str, str]
    flag: int
    born_host: str
    """``host:port`` of who replied, as the broker saw it."""
    store_time_ms: int
    """Time when it reached the broker, by the broker's wall clock."""


@attrs.define(eq=False)
class _Asked:
    came: trio.Event = attrs.field(factory=trio.Event)
    reply: Reply | ClientErrors | None = None


ClientErrors = CompressionMissing | MessageIllegal


class Requests:
    """The requests of one client; ``take`` is given every reply that is pushed to it."""

    def __init__(self, session: Session, producer: Producer, random: Random) -> None:
        self._session, self._producer, self._random = session, producer, random
        self._asked: dict[str, _Asked] = {}
        self._silent: set[str] = set()
        """Addresses of masters that said nothing when they were greeted; heartbeats go on."""
        session.requests = self

    async def ask(self, message: Message, timeout_ms: float, order_by: str | None) -> Reply:
        """Ask, and wait for the reply. Raises ``NoReply``, and what ``Producer.send`` raises except ``SendUnknown``.

        A request that may be stored may be answered."""
        deadline, correlation = trio.current_time() + timeout_ms / 1e3, f"{self._random.getrandbits(128):032x}"
        further = {CORRELATION: correlation, REPLY_TO: self._session.client_id, TTL: str(max(1, int(timeout_ms)))}
        asked = self._asked[correlation] = _Asked()
        sent: Sent | None = None
        try:
            await self._known(message.topic, deadline)
            try:
                sent = await self._producer.send_request(message, further, deadline, order_by)
            except SendUnknown as unknown:
                sent = unknown.place
            with trio.move_on_at(deadline):
                await asked.came.wait()
        finally:
            del self._asked[correlation]
        if isinstance(asked.reply, Reply):
            return asked.reply
        if asked.reply is not None:
            raise asked.reply
        raise NoReply(message.topic, timeout_ms, sent)

    async def reply(
        self, asked: Received, body: bytes, properties: Mapping[str, str], timeout_ms: float | None,
    ) -> None:
        """Answer a request. Raises ``MessageIllegal``: it was no request, or the reply is no message."""
        given = asked.properties
        missing = [name for name in (CLUSTER, CORRELATION, REPLY_TO) if not given.get(name)]
        if missing:
            raise MessageIllegal(f"message {asked.message_id} asks for no reply: it has no {missing[0]}")
        further = {MESSAGE_TYPE: "reply", CORRELATION: given[CORRELATION], REPLY_TO: given[REPLY_TO],
                   TTL: given.get(TTL, str(REQUEST_TIMEOUT_MS))}
        await self._producer.send_reply(
            Message(f"{given[CLUSTER]}_REPLY_TOPIC", body, properties=properties), further, timeout_ms)

    def take(self, header: ReplyMessageRequest, body: bytes) -> None:
        """Hand a reply to its waiter. A reply that nobody waits for any more is thrown away."""
        properties = decode_properties((header.properties or "").encode()) if header.properties else NO_PROPERTIES
        asked = self._asked.get(properties.get(CORRELATION, ""))
        if asked is None or asked.came.is_set():
            return
        try:
            whole = expand(body, header.sys_flag, self._session.settings.message_bytes_max)
        except LibraryMissing as missing:
            asked.reply = CompressionMissing(str(missing), missing.library)
        except NotEncodable as error:
            asked.reply = MessageIllegal(str(error))
        else:
            asked.reply = Reply(whole, properties, header.flag, header.born_host, header.store_timestamp)
        asked.came.set()

    async def _known(self, topic: str, deadline: float) -> None:
        """Greet every master that this client knows: a broker pushes replies only to clients that it has heard.

        One that says nothing is not waited for again: others may well have the request, and its reply."""
        session = self._session
        if session.routes.cached(topic) is None:
            await self._producer.route(topic, deadline)
        if not (strangers := session.ungreeted):
            return
        self._silent &= strangers
        patience_s = session.settings.answer_patience_ms / 1e3
        with trio.move_on_at(min(deadline, trio.current_time() + patience_s)) as waiting:
            async with trio.open_nursery() as nursery:
                for address in strangers - self._silent:
                    nursery.start_soon(session.greet_first, address)
        if waiting.cancelled_caught:
            self._silent |= strangers & session.ungreeted
