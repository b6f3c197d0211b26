"""Requests 324 and 325: push a reply to its requester (326), and store it in the reply topic.

Checks, their order, codes and texts are RocketMQ's. Differences: a reply that is too large to be stored is not pushed;
the log keeps the flag of a compressed reply; a reply that reaches a new master before its requester's first heartbeat
waits a while. Source: ``ReplyMessageProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Final

import attrs
import trio

from broker import properties as props
from broker.consumers.members import Producers
from broker.puts import PutResult, Puts
from broker.replies.absent import Absent
from broker.rules import Refusal
from broker.sending.answers import SLAVE, STORED, illegal, too_large
from broker.sending.request import V1, V2, Names, SendRequest, decode
from broker.sending.sending import SENDERS, Sending, packed_peer
from broker.sending.targets import Target
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import RemotingError
from remoting.fields import decimal
from remoting.headers.sending import ReplyMessageRequest
from remoting.record import Message, message_id, packed_host, read_properties

REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
PUSH_TIMEOUT_MS: Final = 10_000


@attrs.define
class ReplyCounters:
    """Sums since this process began."""

    pushed: int = 0
    not_pushed: int = 0
    waited: int = 0
    """Replies that waited for a requester's first heartbeat."""


class Replies:
    """Handles replies. ``saved`` waits until created topics are on disk."""

    def __init__(self, sending: Sending, producers: Producers, puts: Puts, saved: Callable[[], Awaitable[None]],
                 store_host: tuple[str, int], random: Random, *, now_ns: Callable[[], int],
                 wall_ms: Callable[[], int]) -> None:
        self.store = True
        """The value of the key ``storeReplyMessageEnable``."""
        self.absent = Absent()
        self.counters = ReplyCounters()
        self._sending, self._producers, self._puts, self._saved = sending, producers, puts, saved
        self._host, self._packed_host = "{}:{}".format(*store_host), packed_host(*store_host)
        self._random, self._now_ns, self._wall_ms = random, now_ns, wall_ms
        producers.on_come = self.absent.came

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: partial(self.reply, V1, "producerGroup"),
            RequestCode.SEND_REPLY_MESSAGE_V2: partial(self.reply, V2, "a"),
        }

    async def reply(self, named: Names, group_name: str, connection: Connection, command: Command) -> Command:
        """Answer 324 and 325: push the reply, store it, and report both results."""
        sending = self._sending
        if not self._puts.serving and sending.rejects:
            return sending.answers.refused(SLAVE)
        asked = decode(command.ext, named)
        refused = await self._refused(asked, connection, command)
        if refused is not None:
            return sending.answers.refused(refused)
        values = read_properties(asked.properties)
        fault = await self._push(connection, command, asked, values, command.ext.get(group_name, ""))
        stored = await self._stored(connection, command, asked, values) if self.store else None
        self.counters.pushed += fault is None
        self.counters.not_pushed += fault is not None
        ext = {**sending.answers.own, "msgId": "0", "queueId": str(asked.queue_id), "queueOffset": "0"}
        if stored is not None and stored.status in STORED:
            (put,) = stored.puts
            ext |= {"msgId": message_id(self._packed_host, put.offset), "queueOffset": str(put.queue_offset)}
        answer = response(command, ResponseCode.SUCCESS if fault is None else ResponseCode.SYSTEM_ERROR, remark=fault)
        answer.ext.update(ext)
        return answer

    async def _refused(self, asked: SendRequest, connection: Connection, command: Command) -> Refusal | None:
        """Return why the reply is refused. None: it is not, its topic is on disk, and its queue is chosen."""
        targets = self._sending.targets
        while not isinstance(found := targets.known.get(asked.topic) or targets.find(asked), Target):
            if isinstance(found, Refusal):
                return found
            await self._saved()
        refused = found.has_no(asked.queue_id, asked.topic, connection.peer)
        if refused is None and len(command.body) > self._sending.config.max_message_size:
            refused = too_large(len(command.body), self._sending.config.max_message_size)
        if refused is None and not command.body:
            refused = illegal("a reply without a body", self._sending.config.max_message_size)
        if refused is None and asked.queue_id < 0:
            asked.queue_id = self._random.randrange(found.write_queues)
        return refused

    # --- to the requester ------------------------------------------------------------------------------------

    async def _push(self, connection: Connection, command: Command, asked: SendRequest, values: dict[str, str],
                    group: str) -> str | None:
        """Push a reply. Returns why its requester did not get it; None: it did."""
        client_id = values.get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        requester = await self._requester(client_id, decimal(values.get(TTL, "")) or 0)
        if requester is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        told = {**values, PUSH_REPLY_TIME: str(self._wall_ms())}
        header = ReplyMessageRequest(
            group, asked.topic, asked.default_topic, asked.default_topic_queue_nums, asked.queue_id, asked.sys_flag,
            asked.born_time_ms, asked.flag, props.text(told), asked.reconsume_times, asked.unit_mode, connection.peer,
            self._host, self._wall_ms())
        try:
            pushed = await requester.call(
                request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, command.body), PUSH_TIMEOUT_MS)
        except RemotingError as error:
            return f"push reply message to {client_id} fail. {error}"
        if pushed.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail. {pushed.remark or pushed.code}"
        return None

    async def _requester(self, client_id: str, ttl_ms: int) -> Connection | None:
        """The requester's connection; None: it did not come in time."""
        found = self._producers.client(client_id)
        patience_ns = self.absent.patience_ns(self._now_ns(), ttl_ms) if found is None else 0
        if not patience_ns:
            return found
        came = trio.Event()
        self.absent.wait(client_id, came.set)
        self.counters.waited += 1
        with trio.move_on_after(patience_ns / 1e9):
            await came.wait()
        self.absent.give_up(client_id, came.set)
        return self._producers.client(client_id)

    # --- to the log ------------------------------------------------------------------------------------------

    async def _stored(self, connection: Connection, command: Command, asked: SendRequest,
                      values: dict[str, str]) -> PutResult:
        message = Message(
            asked.topic.encode(), command.body, asked.queue_id, props.write(values), asked.flag,
            asked.sys_flag & SENDERS, asked.born_time_ms, packed_peer(connection.peer), self._packed_host,
            asked.reconsume_times)
        results: list[PutResult] = []
        ended = trio.Event()

        def done(result: PutResult) -> None:
            results.append(result)
            ended.set()

        self._puts.put((message,), done, wait_store_ok=props.waits(values))
        await ended.wait()
        (result,) = results
        return result
