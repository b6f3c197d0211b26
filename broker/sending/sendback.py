"""Code 36: a consumer failed on a message and gives it back, to be tried again later or put with the dead letters.

Unlike Java it waits for replicas: the consumer's offset passes the message when it hears that it was taken, so a
message that only this broker held would be lost with it. Properties may have no room for what a retry adds: Java
refuses such a message for as long as its consumer tries; here it goes to the dead letters as it is.
Source: ``AbstractSendMessageProcessor.consumerSendMsgBack`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import attrs

from broker import properties as props
from broker.ha.acks import PutStatus
from broker.puts import PutResult, Puts
from broker.rules import Draft, Refusal, Rule
from broker.sending import chains
from broker.sending.answers import SLAVE, forbidden
from broker.sending.needs import Groups, WhenSaved
from broker.sending.retries import retries_max
from broker.sending.sending import Sending
from broker.store.errors import OffsetGone
from broker.topics.table import WRITE, TopicTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import DamagedRecord
from remoting.headers.sending import ConsumerSendMsgBackRequest
from remoting.record import NOTED, PROPERTIES_BYTES_MAX, Record, decode_properties, message_id

logger = logging.getLogger("broker")

_TIMES_MAX: Final = 2**31 - 1
"""Largest number of tries that a record has room for; senders may claim any."""


class SendBack:
    """Handles 36. ``read`` finds a message by its offset in the log; raises ``OffsetGone``, ``DamagedRecord``."""

    def __init__(self, sending: Sending, topics: TopicTable, file: WhenSaved, groups: Groups, puts: Puts,
                 read: Callable[[int], Record], store_host: bytes, random: Random, *, of_parts: Sequence[Rule]) -> None:
        self._sending, self._topics, self._file, self._groups, self._puts = sending, topics, file, groups, puts
        self._read, self._store_host, self._random = read, store_host, random
        self._rules = chains.of_given_back(*of_parts)

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, connection: Connection, request: Command) -> Command | None:
        """Take a message back. None: the answer follows when it is stored."""
        if not self._puts.serving and self._sending.rejects:
            return SLAVE.answer(request)
        asked = ConsumerSendMsgBackRequest.from_ext(request.ext)
        group = self._groups.find(asked.group)
        if group is None:
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                           f"subscription group not exist, {asked.group}").answer(request)
        if not self._sending.permission & WRITE:
            return forbidden(f"broker[{self._sending.config.broker_ip1}]").answer(request)
        if group.retry_queue_nums <= 0:
            return response(request)
        topic = self._topics.create_for_retry(asked.group, group.retry_queue_nums, unit=bool(asked.unit_mode))
        if not topic.perm & WRITE:
            return forbidden(f"topic[{topic.topic_name}]").answer(request)
        try:
            record = self._read(asked.offset)
        except (OffsetGone, DamagedRecord):
            return Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {asked.offset}").answer(request)
        dead = (record.message.reconsume_times >= retries_max(group, request.version, asked.max_reconsume_times)
                or asked.delay_level < 0)
        queues = min(group.retry_queue_nums, topic.read_queue_nums)  # a topic does not grow with its group's number
        if dead:
            topic = self._topics.create_for_dead_letters(asked.group)
        queue_id = 0 if dead else self._random.randrange(max(1, queues))
        draft = next_try(record, topic.topic_name, queue_id, asked.delay_level, dead)
        stop = self._rules.stops(draft)
        if isinstance(stop, Refusal):
            return stop.answer(request)
        if stop is not None:
            self._file.when_saved(lambda: self._again(connection, request))
            return None
        properties = props.write(draft.properties)
        if full := len(properties) > PROPERTIES_BYTES_MAX:
            draft.topic, draft.queue_id = self._topics.create_for_dead_letters(asked.group).topic_name, 0
            properties = record.message.properties
        message = attrs.evolve(
            record.message, topic=draft.topic.encode(), queue_id=draft.queue_id, properties=properties,
            sys_flag=record.message.sys_flag & ~NOTED, store_host=self._store_host,
            reconsume_times=draft.reconsume_times, prepared_offset=0)

        def done(result: PutResult) -> None:
            whose = f"{draft.properties['RETRY_TOPIC']}@{asked.group}"
            if full and result.status is PutStatus.PUT_OK:
                logger.warning("message %s of %s, group %s, is now a dead letter: its properties, %d bytes, have no "
                               "room for those of a retry", draft.properties["ORIGIN_MESSAGE_ID"],
                               draft.properties["RETRY_TOPIC"], asked.group, len(properties))
            connection.reply(request, self._answer(request, result, dead or full, whose))

        self._file.when_saved(lambda: self._puts.put((message,), done))
        return None

    def _again(self, connection: Connection, request: Command) -> None:
        answer = self.send_back(connection, request)
        if answer is not None:
            connection.reply(request, answer)

    def _answer(self, request: Command, result: PutResult, dead: bool, whose: str) -> Command:
        if result.status is not PutStatus.PUT_OK:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=result.words)
        counters = self._sending.counters
        counters.sent_back += 1
        counters.dead_letters += dead
        counters.sent_back_of[whose] = counters.sent_back_of.get(whose, 0) + 1
        return response(request)


def next_try(record: Record, topic: str, queue_id: int, level: int, dead: bool) -> Draft:
    """Return the draft of the next try of ``record``, or of its dead letter. ``level`` 0: the more tries, the later."""
    message = record.message
    values = props.without_own(decode_properties(message.properties))
    values.setdefault("RETRY_TOPIC", message.topic.decode(errors="replace"))
    values["WAIT"] = "false"
    if not values.get("ORIGIN_MESSAGE_ID", "").strip():
        values["ORIGIN_MESSAGE_ID"] = message_id(message.store_host, record.offset)
    level = 0 if dead else level or 3 + message.reconsume_times
    values[props.DELAY] = str(level)
    return Draft(topic, queue_id, values, message.sys_flag, level=level, dead=dead,
                 reconsume_times=min(message.reconsume_times + 1, _TIMES_MAX))
