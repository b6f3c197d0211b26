"""Codes 10, 310 and 320: from a request to a put, and from its status to the answer.

The checks and their order are Java's. Most messages take the short way: topic known, no property that means anything
to a broker. A topic that a send makes is on disk before its first message is put; until then its messages wait in
their order. Transactions are refused, and so are timer messages, as by a Java broker without a timer wheel.
Source: ``SendMessageProcessor``, ``AbstractSendMessageProcessor`` and ``HookUtils`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache, partial
from random import Random
from typing import Final

import attrs

from broker.ha.acks import PutStatus
from broker.puts import PutResult, Puts
from broker.schedule import levels
from broker.sending import properties as props
from broker.sending.answers import SLAVE, STORED, Refusal, refusal
from broker.sending.needs import Groups, Locks, WhenSaved
from broker.sending.request import V1, V2, Names, SendRequest, decode
from broker.store.batch import Batch
from broker.store.tables import SubscriptionGroup
from broker.topics import names
from broker.topics.table import UNIT, UNIT_SUB, WRITE, TopicTable
from remoting.address import split_address
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY, RESPONSE, Command
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import MessageIllegal
from remoting.fields import decimal, shown
from remoting.record import (
    BODY_BYTES_MAX,
    COMMIT,
    INNER_BATCH,
    MULTI_TAGS,
    PREPARED,
    ROLLBACK,
    TOPIC_BYTES_MAX,
    Message,
    decode_batch,
    message_ids,
)

MAX_RECONSUME_TIMES_VERSION: Final = 121
"""``V3_4_9``: clients from it on say how often a message may be tried."""
_NO_HOST: Final = bytes(8)
_NEVER: Final = PREPARED | INNER_BATCH
"""Bits of ``sys_flag`` that nothing here serves; the first one is in those of a rollback too."""


@attrs.frozen(kw_only=True)
class SendingConfig:
    """Keys of ``BrokerConfig`` and ``MessageStoreConfig`` and their defaults."""

    broker_cluster_name: str = "DefaultCluster"
    broker_ip1: str = "127.0.0.1"
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    reject_transaction_message: bool = False
    enable_slave_acting_master: bool = False
    """A slave then answers that its service is not available, not that it is busy."""
    max_message_size: int = BODY_BYTES_MAX
    message_delay_level: str = levels.DEFAULT


@attrs.define
class Counters:
    """They only ever rise."""

    messages: int = 0
    bytes: int = 0
    """Of records."""
    refused: int = 0
    """Sends without a message stored."""
    dead_letters: int = 0
    sent_back: int = 0


@attrs.frozen
class Target:
    """A topic that was checked, with what a message for it needs of it."""

    name: bytes
    queues: int
    write_queues: int
    sys_flag: int
    group: str | None
    """Whose retry topic it is."""


@attrs.frozen
class _Prepared:
    """Where a message goes, with its properties."""

    topic: bytes
    queue_id: int
    properties: bytes
    wait: bool
    uniq_key: str


_AGAIN: Final = object()
"""A topic was made: once it is on disk, this request starts anew."""


class Sending:
    """``takes_puts``: whether this broker's role does; asked while ``puts`` does not serve."""

    def __init__(self, config: SendingConfig, topics: TopicTable, file: WhenSaved, groups: Groups, locks: Locks,
                 puts: Puts, store_host: bytes, random: Random, takes_puts: Callable[[], bool]) -> None:
        """``store_host``: this broker's address, as ``packed_host`` makes it."""
        self.config = config
        self.permission = WRITE | 4
        """``brokerPermission``. Whoever changes it calls ``TopicTable.touch``."""
        self.counters = Counters()
        self._topics, self._file, self._groups, self._locks, self._puts = topics, file, groups, locks, puts
        self._store_host, self._random, self._takes_puts = store_host, random, takes_puts
        self._levels = len(levels.parse(config.message_delay_level))
        trace_on = "true" if config.trace_on else "false"
        self._own_ext = {"MSG_REGION": config.region_id, "TRACE_ON": trace_on}
        self._own = {**self._own_ext, "CLUSTER": config.broker_cluster_name}
        self._own_text = props.write(self._own).decode()
        self._targets: dict[str, Target] = {}
        """Forgotten whenever a topic changes."""
        self._waiting: dict[str, list[tuple[Connection, Command, SendRequest]]] = {}
        """By topic that is not on disk yet."""
        topics.on_change.append(self._targets.clear)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: partial(self._handle, V1),
            RequestCode.SEND_MESSAGE_V2: partial(self._handle, V2),
            RequestCode.SEND_BATCH_MESSAGE: partial(self._handle, V2),
        }

    def _handle(self, named: Names, connection: Connection, request: Command) -> Command | None:
        if not self._puts.serving and self.rejects:
            return self.refused(SLAVE)
        return self._send(connection, request, decode(request.ext, named))

    @property
    def rejects(self) -> bool:
        """Whether this broker takes nothing from clients, because it follows another one."""
        return not self.config.enable_slave_acting_master and not self._takes_puts()

    def _send(self, connection: Connection, request: Command, asked: SendRequest) -> Command | None:
        """None: it is under way."""
        target = self._targets.get(asked.topic)
        if target is None:
            checked = self._check(asked)
            if checked is _AGAIN:
                self._after_saved(connection, request, asked)
                return None
            if type(checked) is Refusal:
                return self.refused(checked)
            assert isinstance(checked, Target)
            target = checked
        if asked.queue_id >= target.queues:
            return self.refused(Refusal(ResponseCode.INVALID_PARAMETER, (
                f"request queueId[{asked.queue_id}] is illegal, topic {asked.topic} has {target.queues} queues "
                f"Producer: {connection.peer}")))
        if asked.queue_id < 0:
            if not target.write_queues:
                return self.refused(Refusal(
                    ResponseCode.INVALID_PARAMETER, f"topic {asked.topic} has no queue to write to"))
            asked.queue_id = self._random.randrange(target.write_queues)
        if asked.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
            return self._send_batch(connection, request, asked, target)
        return self._send_one(connection, request, asked, target)

    # --- the topic -------------------------------------------------------------------------------------------

    def _check(self, asked: SendRequest) -> Target | Refusal | object:
        """The topic may be sent to, or why not; an unknown one is made."""
        name = asked.topic
        ordered = self._topics.is_ordered(name)
        if ordered and not self.permission & WRITE:
            return Refusal(ResponseCode.NO_PERMISSION,
                           f"the broker[{self.config.broker_ip1}] sending message is forbidden")
        fault = names.topic_fault(name)
        if fault is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if name in names.NOT_FOR_SENDERS:
            return Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        if name in self._waiting:
            return _AGAIN
        topic = self._topics.get(name)
        if topic is None:
            retry = name.startswith(names.RETRY_PREFIX)
            unit = (UNIT_SUB if retry else UNIT) if asked.unit_mode else 0
            if self._topics.create_for_send(name, asked.default_topic, asked.default_topic_queue_nums, unit) is None:
                return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
            return _AGAIN
        group = name.removeprefix(names.RETRY_PREFIX)
        if group == name and len(name) > TOPIC_BYTES_MAX:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(name)}")
        found = Target(
            name.encode(), max(topic.write_queue_nums, topic.read_queue_nums), topic.write_queue_nums,
            MULTI_TAGS if topic.topic_filter_type == "MULTI_TAG" else 0, group if group != name else None)
        self._targets[name] = found
        return found

    def _after_saved(self, connection: Connection, request: Command, asked: SendRequest) -> None:
        """Start anew when the topic is on disk; those for one topic stay in their order."""
        topic = asked.topic
        waiting = self._waiting.setdefault(topic, [])
        waiting.append((connection, request, asked))
        if len(waiting) == 1:
            self._file.when_saved(lambda: self._go_on(topic))

    def _go_on(self, topic: str) -> None:
        for connection, request, asked in self._waiting.pop(topic):
            answer = self._send(connection, request, asked)
            if answer is not None:
                connection.reply(request, answer)

    # --- one message -----------------------------------------------------------------------------------------

    def _send_one(self, connection: Connection, request: Command, asked: SendRequest, target: Target) -> Command | None:
        if not 0 < len(request.body) <= self.config.max_message_size or asked.sys_flag & _NEVER:
            return self.refused(self._never(request, asked))
        text = asked.properties
        values = props.parse(text)
        if target.group is None and values is not None and "UNIQ_KEY" in values and props.SPECIAL.isdisjoint(values):
            topic, queue_id, uniq_key = target.name, asked.queue_id, values["UNIQ_KEY"]
            raw = (text + self._own_text if text[-1] == "\x02" else f"{text}\x02{self._own_text}").encode()
            wait = "WAIT" not in values or props.waits(values)
        else:
            prepared = self._prepare(request, asked, target, props.clean(text))
            if prepared is _AGAIN:
                self._after_saved(connection, request, asked)
                return None
            if type(prepared) is Refusal:
                return self.refused(prepared)
            assert isinstance(prepared, _Prepared)
            topic, queue_id, raw = prepared.topic, prepared.queue_id, prepared.properties
            wait, uniq_key = prepared.wait, prepared.uniq_key
        message = Message(
            topic, request.body, queue_id, raw, asked.flag, asked.sys_flag | target.sys_flag, asked.born_time_ms,
            packed_peer(connection.peer), self._store_host, asked.reconsume_times)

        def done(result: PutResult) -> None:
            connection.reply(request, self._answer(request, result, asked.queue_id, uniq_key))

        self._puts.put((message,), done, wait_store_ok=wait)
        return None

    def _never(self, request: Command, asked: SendRequest) -> Refusal:
        """Of a message that no consumer could ever see, or that is too large."""
        if request.body and asked.sys_flag & PREPARED:
            return Refusal(ResponseCode.NO_PERMISSION, self._no_transactions)
        if not request.body:
            return self._illegal("It has no body.")
        if asked.sys_flag & _NEVER:
            return self._illegal("It is a batch within a message, which no topic here takes.")
        return self._too_large(request.body)

    def _illegal(self, reason: str) -> Refusal:
        return refusal(PutStatus.MESSAGE_ILLEGAL, self.config.max_message_size, reason)

    def _too_large(self, body: bytes) -> Refusal:
        """Said here and not where it is stored: what the log has goes to other queues whatever its size."""
        return self._illegal(f"body of {len(body)} bytes; {self.config.max_message_size} are allowed")

    @property
    def _no_transactions(self) -> str:
        forbidden = self.config.reject_transaction_message
        return (f"the broker[{self.config.broker_ip1}] sending transaction message is forbidden" if forbidden else
                f"the broker[{self.config.broker_ip1}] does not support transaction messages")

    def _prepare(self, request: Command, asked: SendRequest, target: Target, values: dict[str, str],
                 ) -> _Prepared | Refusal | object:
        """The long way: retries, dead letters, delays, and what is refused."""
        topic, queue_id = asked.topic, asked.queue_id
        if target.group is not None:
            dead = self._is_dead(request, asked, target.group)
            if isinstance(dead, Refusal):
                return dead
            if dead:
                topic, queue_id = names.dlq_topic(target.group), 0
                if self._topics.get(topic) is None:
                    self._topics.create_for_dead_letters(target.group)
                    return _AGAIN
                values["DELAY"] = "-1"
        values.pop("POP_CK", None)
        uniq_key = values.get(props.UNIQ_KEY)
        if not uniq_key:
            uniq_key = values[props.UNIQ_KEY] = f"{self._random.getrandbits(128):032X}"
        values |= self._own
        level = decimal(values.get("DELAY", "0"))
        if level is None:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, (
                f"DELAY is {shown(values['DELAY'])}; a delay level is a whole number"))
        if (refused := self._unsupported(asked, values, level)) is not None:
            return refused
        wait = props.waits(values)
        priority = values.get(props.PRIORITY)
        if priority is not None:
            number = decimal(priority)
            if number is None or number < 0 or level > 0 or "__SHARDINGKEY" in values:
                del values[props.PRIORITY]
            else:
                queue_id = min(number, max(0, target.write_queues - 1))
        self.counters.dead_letters += topic != asked.topic
        if level > 0 and asked.sys_flag & ROLLBACK in (0, COMMIT):
            for key in props.TIMERS:
                values.pop(key, None)
            queue_id = levels.put_aside(values, topic, queue_id, level, self._levels)
            topic = names.SCHEDULE
        try:
            return _Prepared(topic.encode(), queue_id, props.write(values), wait, uniq_key)
        except UnicodeEncodeError:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "a property holds half of a surrogate pair")

    def _is_dead(self, request: Command, asked: SendRequest, group: str) -> bool | Refusal:
        """Whether a message that a consumer failed on goes to the dead letters.

        It was tried too often; or its group consumes in order, and then a message comes here when the consumer has
        given up on it.
        """
        found = self._groups.find(group)
        if found is None:
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}")
        return (asked.reconsume_times > retries_max(found, request.version, asked.max_reconsume_times)
                or self._locks.held_by_group(group))

    def _unsupported(self, asked: SendRequest, values: dict[str, str], level: int) -> Refusal | None:
        if values.get("TRAN_MSG", "").lower() == "true" and not (asked.reconsume_times > 0 and level > 0):
            return Refusal(ResponseCode.NO_PERMISSION, self._no_transactions)
        if "INNER_NUM" in values:
            return self._illegal("INNER_NUM is for batches alone.")
        if "__LITE_TOPIC" in values:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "this broker has no light topics (property __LITE_TOPIC)")
        if level <= 0 and "TIMER_OUT_MS" not in values and any(key in values for key in props.TIMERS):
            return refusal(PutStatus.WHEEL_TIMER_NOT_ENABLE, self.config.max_message_size)
        return None

    # --- batches ---------------------------------------------------------------------------------------------

    def _send_batch(self, connection: Connection, request: Command, asked: SendRequest,
                    target: Target) -> Command | None:
        """Many messages for one queue, all or none; each has the properties that it came with."""
        values = props.clean(asked.properties)
        refused = self._batch_refused(asked, target, values)
        if refused is not None:
            return self.refused(refused)
        born_host, sys_flag = packed_peer(connection.peer), asked.sys_flag | target.sys_flag
        try:
            messages = Batch(Message(
                target.name, b"", asked.queue_id, b"", 0, sys_flag, asked.born_time_ms, born_host, self._store_host,
                asked.reconsume_times), decode_batch(request.body))
        except MessageIllegal as error:
            return self.refused(self._illegal(str(error)))
        if not messages:
            return self.refused(self._illegal("It has no message."))
        if len(request.body) > self.config.max_message_size:  # else none of its bodies can be
            longest = max((body for _, body, _ in messages.parts), key=len)
            if len(longest) > self.config.max_message_size:
                return self.refused(self._too_large(longest))

        def done(result: PutResult) -> None:
            connection.reply(request, self._answer(request, result, asked.queue_id, values.get(props.UNIQ_KEY)))

        self._puts.put(messages, done, wait_store_ok=props.waits(values))
        return None

    def _batch_refused(self, asked: SendRequest, target: Target, values: dict[str, str]) -> Refusal | None:
        if len(asked.topic) > TOPIC_BYTES_MAX:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(asked.topic)}")
        if target.group is not None:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {asked.topic}")
        if asked.sys_flag & (ROLLBACK | INNER_BATCH) or values.get("TRAN_MSG", "").lower() == "true":
            return self._illegal("A batch takes no transaction.")
        if (decimal(values.get("DELAY", "0")) or 0) > 0:
            return self._illegal("A batch cannot be delayed.")
        return None

    # --- answers ---------------------------------------------------------------------------------------------

    def refused(self, refused: Refusal) -> Command:
        self.counters.refused += 1
        return Command(refused.code, 0, RESPONSE, dict(self._own_ext), b"", refused.remark)

    def _answer(self, request: Command, result: PutResult, queue_id: int, uniq_key: str | None) -> Command:
        puts, counters = result.puts, self.counters
        code = STORED.get(result.status)
        if code is None:
            return self.refused(refusal(result.status, self.config.max_message_size, result.remark))
        counters.messages += len(puts)
        counters.bytes += puts[-1].offset + puts[-1].size - puts[0].offset
        if request.flag & ONEWAY:
            return Command(code)
        ext = {
            **self._own_ext,
            "msgId": ",".join(message_ids(self._store_host, [put.offset for put in puts])),
            "queueId": str(queue_id),
            "queueOffset": str(puts[0].queue_offset),
        }
        if uniq_key:
            ext["transactionId"] = uniq_key
        return Command(code, 0, RESPONSE, ext, b"", result.remark or None)


def retries_max(group: SubscriptionGroup, version: int, asked: int | None) -> int:
    """How often a message may be tried: what the group says, or a client that is new enough to say it itself."""
    return group.retry_max_times if asked is None or version < MAX_RECONSUME_TIMES_VERSION else asked


@lru_cache(1 << 14)
def packed_peer(peer: str) -> bytes:
    """The other end as a record has it; zeros where it is no IP address, as of a stream within this process."""
    try:
        host, port = split_address(peer)
        return ipaddress.ip_address(host).packed + port.to_bytes(4, "big")
    except ValueError:
        return _NO_HOST
