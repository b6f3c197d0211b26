"""Code 36: a consumer failed on a message and gives it back, to be tried again later or put with the dead letters.

Where Java does not wait for replicas, this does: the consumer's offset passes the message when it hears that it was
taken, so a message that only this broker held would be lost with it.
Source: ``AbstractSendMessageProcessor.consumerSendMsgBack`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from broker.ha.acks import PutStatus
from broker.puts import PutResult, Puts
from broker.schedule import levels
from broker.sending import properties as props
from broker.sending.answers import SLAVE
from broker.sending.needs import Groups, WhenSaved
from broker.sending.sending import Sending, retries_max
from broker.store.errors import OffsetGone
from broker.topics import names
from broker.topics.table import WRITE, TopicTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import DamagedRecord
from remoting.headers.sending import ConsumerSendMsgBackRequest
from remoting.record import Message, Record, decode_properties, message_id

_TIMES_MAX: Final = 2**31 - 1
"""What a record has room for; senders may claim any."""


class SendBack:
    """``read`` finds a message by its offset in the log; raises ``OffsetGone``, ``DamagedRecord``."""

    def __init__(self, sending: Sending, topics: TopicTable, file: WhenSaved, groups: Groups, puts: Puts,
                 read: Callable[[int], Record], store_host: bytes, random: Random) -> None:
        self._sending, self._topics, self._file, self._groups, self._puts = sending, topics, file, groups, puts
        self._read, self._store_host, self._random = read, store_host, random
        self._levels = len(levels.parse(sending.config.message_delay_level))

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, connection: Connection, request: Command) -> Command | None:
        if not self._puts.serving and self._sending.rejects:
            return response(request, SLAVE.code, remark=SLAVE.remark)
        asked = ConsumerSendMsgBackRequest.from_ext(request.ext)
        group = self._groups.find(asked.group)
        if group is None:
            return response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                            remark=f"subscription group not exist, {asked.group}")
        if not self._sending.permission & WRITE:
            return response(request, ResponseCode.NO_PERMISSION, remark=(
                f"the broker[{self._sending.config.broker_ip1}] sending message is forbidden"))
        if group.retry_queue_nums <= 0:
            return response(request)
        topic = self._topics.create_for_retry(asked.group, group.retry_queue_nums, unit=bool(asked.unit_mode))
        if not topic.perm & WRITE:
            return response(request, ResponseCode.NO_PERMISSION, remark=(
                f"the topic[{topic.topic_name}] sending message is forbidden"))
        try:
            record = self._read(asked.offset)
        except (OffsetGone, DamagedRecord):
            return response(request, ResponseCode.SYSTEM_ERROR,
                            remark=f"look message by offset failed, {asked.offset}")
        dead = (record.message.reconsume_times >= retries_max(group, request.version, asked.max_reconsume_times)
                or asked.delay_level < 0)
        queues = min(group.retry_queue_nums, topic.read_queue_nums)  # a topic does not grow with its group
        queue_id = 0 if dead else self._random.randrange(max(1, queues))
        if dead:
            topic = self._topics.create_for_dead_letters(asked.group)
        message = self._message(record, topic.topic_name, queue_id, asked.delay_level, dead)

        def done(result: PutResult) -> None:
            connection.reply(request, self._answer(request, result, dead))

        self._file.when_saved(lambda: self._puts.put((message,), done))
        return None

    def _message(self, record: Record, topic: str, queue_id: int, level: int, dead: bool) -> Message:
        """The next try of what ``record`` holds."""
        message = record.message
        values = decode_properties(message.properties)
        values.setdefault("RETRY_TOPIC", message.topic.decode(errors="replace"))
        values["WAIT"] = "false"
        if not values.get("ORIGIN_MESSAGE_ID", "").strip():
            values["ORIGIN_MESSAGE_ID"] = message_id(message.store_host, record.offset)
        if dead:
            values["DELAY"] = "0"
        else:
            level = level or 3 + message.reconsume_times
            queue_id = levels.put_aside(values, topic, queue_id, level, self._levels)
            topic = names.SCHEDULE
        return attrs.evolve(
            message, topic=topic.encode(), queue_id=queue_id, properties=props.write(values),
            store_host=self._store_host, reconsume_times=min(message.reconsume_times + 1, _TIMES_MAX),
            prepared_offset=0)

    def _answer(self, request: Command, result: PutResult, dead: bool) -> Command:
        if result.status is not PutStatus.PUT_OK:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=" ".join(
                filter(None, (result.status.name, result.remark))))
        self._sending.counters.sent_back += 1
        self._sending.counters.dead_letters += dead
        return response(request)
