"""Codes 10, 310 and 320: from a request to a put, and from its status to the answer.

The steps of a send: decode the request, find its topic, pass the rules, put, answer. Each is a module of its own; here
they are one after the other. Most messages pass by the rules: topic known, no property that means anything to a
broker. A topic that a send makes is on disk before its first message is put; until then its messages wait in their
order. The checks and their order are Java's.
Source: ``SendMessageProcessor``, ``AbstractSendMessageProcessor`` and ``HookUtils`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from random import Random
from typing import Final

from broker import properties as props
from broker.puts import PutResult, Puts
from broker.rules import Draft, Refusal, Rule, Stop
from broker.sending import batches, chains
from broker.sending.answers import SLAVE, Answers
from broker.sending.config import SendingConfig
from broker.sending.needs import GroupLocks, Groups, WhenSaved
from broker.sending.request import V1, V2, Names, SendRequest, decode
from broker.sending.shortway import ShortWay
from broker.sending.targets import Target, Targets
from broker.topics.table import TopicTable
from remoting.address import split_address
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.record import NOTED, PREPARED, Message, read_properties

_NO_HOST: Final = bytes(8)
_NOTHING: Final[Mapping[str, str]] = {}
SENDERS: Final = ~NOTED
"""Flags that a sender may set."""
_SURROGATE: Final = Refusal(ResponseCode.MESSAGE_ILLEGAL, "a property holds half of a surrogate pair")


class Sending:
    """Handles sends. ``takes_puts`` returns whether this broker's role does; asked while ``puts`` does not serve."""

    def __init__(self, config: SendingConfig, topics: TopicTable, file: WhenSaved, groups: Groups, locks: GroupLocks,
                 puts: Puts, store_host: bytes, random: Random, takes_puts: Callable[[], bool], *,
                 of_parts: Sequence[Rule]) -> None:
        """``store_host``: this broker's address, as ``packed_host`` makes it; ``of_parts``: rules of other parts."""
        self._file, self._puts, self._store_host, self._random = file, puts, store_host, random
        self._takes_puts, self._of_parts = takes_puts, of_parts
        told = {"MSG_REGION": config.region_id, "TRACE_ON": "true" if config.trace_on else "false"}
        self._own = chains.Own({**told, "CLUSTER": config.broker_cluster_name},
                               lambda: f"{random.getrandbits(128):032X}")
        self._dead_letters = chains.DeadLetters(topics, groups, locks)
        self._waiting: dict[str, list[tuple[Connection, Command, SendRequest]]] = {}
        """Sends that wait, by their topic, which is not on disk yet."""
        self.targets = Targets(topics, self._waiting, config.broker_ip1)
        self.answers = Answers(told, store_host)
        self.counters = self.answers.counters
        self.configure(config)
        topics.on_change.join("sends", self.targets.known.clear)
        topics.on_delete.join("sends", puts.topic_gone)

    def configure(self, config: SendingConfig) -> None:
        """Set the keys for sends from now on."""
        self.config = config
        self._unserved = chains.Unserved(config)
        self._rules = chains.of_sends(self._dead_letters, self._own, self._unserved, *self._of_parts)
        self._batch_rules = chains.of_batches(self._unserved, *self._of_parts)
        self._short = ShortWay(self._rules.looked_at, self._own.values)
        self.answers.body_bytes_max = config.max_message_size

    @property
    def permission(self) -> int:
        """``brokerPermission``. After a change ``TopicTable.touch`` must be called."""
        return self.targets.permission

    @permission.setter
    def permission(self, permission: int) -> None:
        self.targets.permission = permission

    @property
    def rejects(self) -> bool:
        """Return whether this broker takes nothing from clients, since it follows a master."""
        return not self.config.enable_slave_acting_master and not self._takes_puts()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: partial(self._handle, V1),
            RequestCode.SEND_MESSAGE_V2: partial(self._handle, V2),
            RequestCode.SEND_BATCH_MESSAGE: partial(self._handle, V2),
        }

    def _handle(self, named: Names, connection: Connection, request: Command) -> Command | None:
        if not self._puts.serving and self.rejects:
            return self.answers.refused(SLAVE)
        return self._send(connection, request, decode(request.ext, named))

    def _send(self, connection: Connection, request: Command, asked: SendRequest) -> Command | None:
        """Store a message. None: the answer follows when it is stored."""
        target = self.targets.known.get(asked.topic)
        if target is None:
            found = self.targets.find(asked)
            if not isinstance(found, Target):
                return self._stopped(found, connection, request, asked)
            target = found
        if not 0 <= asked.queue_id < target.queues:
            refused = target.has_no(asked.queue_id, asked.topic, connection.peer)
            if refused is not None:
                return self.answers.refused(refused)
            asked.queue_id = self._random.randrange(target.write_queues)
        if asked.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
            return self._send_batch(connection, request, asked, target)
        return self._send_one(connection, request, asked, target)

    def _stopped(self, stop: Stop, connection: Connection, request: Command, asked: SendRequest) -> Command | None:
        """Refuse a send, or let it start anew when its topic is on disk. Sends to one topic stay in their order."""
        if isinstance(stop, Refusal):
            return self.answers.refused(stop)
        topic = asked.topic
        waiting = self._waiting.setdefault(topic, [])
        waiting.append((connection, request, asked))
        if len(waiting) == 1:
            self._file.when_saved(lambda: self._go_on(topic))
        return None

    def _go_on(self, topic: str) -> None:
        for connection, request, asked in self._waiting.pop(topic):
            answer = self._send(connection, request, asked)
            if answer is not None:
                connection.reply(request, answer)

    def _send_one(self, connection: Connection, request: Command, asked: SendRequest, target: Target) -> Command | None:
        special = not 0 < len(request.body) <= self.config.max_message_size or asked.sys_flag & chains.SPECIAL
        if special:
            refused = self._unserved.body(request.body, asked.sys_flag)
            if refused is not None:
                return self.answers.refused(refused)
        plain = self._short.taken(asked.properties) if target.group is None and not special else None
        if plain is not None:
            topic, queue_id, sys_flag = target.name, asked.queue_id, asked.sys_flag
            raw, uniq_key, wait = plain
            answered = _NOTHING
        else:
            draft = Draft(asked.topic, asked.queue_id, read_properties(asked.properties), asked.sys_flag,
                          target.write_queues, target.group, asked.reconsume_times, asked.max_reconsume_times,
                          request.version)
            stop = self._rules.stops(draft)
            if stop is not None:
                return self._stopped(stop, connection, request, asked)
            self.counters.dead_letters += draft.dead
            try:
                raw = props.write(draft.properties)
            except UnicodeEncodeError:
                return self.answers.refused(_SURROGATE)
            if draft.sys_flag & PREPARED:
                return self.answers.refused(self._unserved.prepared())
            topic, queue_id, sys_flag = draft.topic.encode(), draft.queue_id, draft.sys_flag
            uniq_key, wait = draft.properties[props.UNIQ_KEY], props.waits(draft.properties)
            answered = draft.answered
        message = Message(
            topic, request.body, queue_id, raw, asked.flag, sys_flag & SENDERS | target.sys_flag, asked.born_time_ms,
            packed_peer(connection.peer), self._store_host, asked.reconsume_times)

        def done(result: PutResult) -> None:
            connection.reply(request, self.answers.of_put(
                request, result, asked.topic, asked.queue_id, uniq_key, answered))

        self._puts.put((message,), done, wait_store_ok=wait)
        return None

    def _send_batch(self, connection: Connection, request: Command, asked: SendRequest,
                    target: Target) -> Command | None:
        """Store many messages for one queue, all or none; each keeps the properties that it came with."""
        values = read_properties(asked.properties)
        draft = Draft(asked.topic, asked.queue_id, values, asked.sys_flag, target.write_queues, target.group)
        stop = self._batch_rules.stops(draft)
        if stop is None and draft.topic != asked.topic:
            stop = self._unserved.delayed_batch()
        if stop is not None:
            return self._stopped(stop, connection, request, asked)
        messages = batches.decoded(request.body, Message(
            target.name, b"", asked.queue_id, b"", 0, asked.sys_flag & SENDERS | target.sys_flag, asked.born_time_ms,
            packed_peer(connection.peer), self._store_host, asked.reconsume_times), self.config.max_message_size)
        if isinstance(messages, Refusal):
            return self.answers.refused(messages)

        def done(result: PutResult) -> None:
            connection.reply(request, self.answers.of_put(
                request, result, asked.topic, asked.queue_id, values.get(props.UNIQ_KEY)))

        self._puts.put(messages, done, wait_store_ok=props.waits(values))
        return None


@lru_cache(1 << 14)
def packed_peer(peer: str) -> bytes:
    """Pack a peer's address as records have it; zeros if it is no IP address, as for a stream within this process."""
    try:
        host, port = split_address(peer)
        return ipaddress.ip_address(host).packed + port.to_bytes(4, "big")
    except ValueError:
        return _NO_HOST
