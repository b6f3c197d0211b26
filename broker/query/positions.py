"""Positions in a queue: codes 29 (by time), 30 (end), 31 (beginning), 32 (time of the first message), 321 (entries).

Source: ``AdminBrokerProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Final

from broker.consumers.members import Consumers
from broker.store.consumequeue import ENTRY
from broker.store.messages import StoredMessages
from broker.veil import Veil
from remoting.bodies.queries import ConsumeQueueData, QueryConsumeQueueResponseBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.headers.pulling import OffsetResponse, QueueRequest, SearchOffsetRequest, TimestampResponse
from remoting.headers.queries import QueryConsumeQueueRequest

UPPER: Final = "upper"
ENTRIES_MAX: Final = 1_000
"""Most entries in one answer to 321."""


class PositionRequests:
    """Answers requests for offsets. They wait while a new master shows less than it holds, and are told the shown end.
    """

    def __init__(self, messages: StoredMessages, consumers: Consumers, veil: Veil) -> None:
        self._messages, self._consumers, self._veil = messages, consumers, veil

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._veil.behind(self.by_time),
            RequestCode.GET_MAX_OFFSET: self._veil.behind(self.end),
            RequestCode.GET_MIN_OFFSET: self.begin,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.first_time,
            RequestCode.QUERY_CONSUME_QUEUE: self.entries,
        }

    def by_time(self, _: Connection, request: Command) -> Command:
        """Answer 29 with the first message of that time or later; with UPPER the last one of that time or earlier."""
        asked, messages = SearchOffsetRequest.from_ext(request.ext), self._messages
        topic = asked.topic.encode(errors="replace")
        if (asked.boundary_type or "").lower() != UPPER:
            found = messages.offset_by_time(topic, asked.queue_id, asked.timestamp)
            return response(request, header=OffsetResponse(found))
        behind = messages.offset_by_time(topic, asked.queue_id, asked.timestamp + 1)
        found = behind - 1 if behind > messages.min_offset(topic, asked.queue_id) else 0
        return response(request, header=OffsetResponse(found))

    def end(self, _: Connection, request: Command) -> Command:
        """Answer 30 with the offset after the last message that consumers see."""
        asked = QueueRequest.from_ext(request.ext)
        return response(request, header=OffsetResponse(self._messages.max_offset(_key(asked), asked.queue_id)))

    def begin(self, _: Connection, request: Command) -> Command:
        """Code 31: the least offset of a queue."""
        asked = QueueRequest.from_ext(request.ext)
        return response(request, header=OffsetResponse(self._messages.min_offset(_key(asked), asked.queue_id)))

    def first_time(self, _: Connection, request: Command) -> Command:
        """Answer 32 with the time of the first message; -1: there is none."""
        asked = QueueRequest.from_ext(request.ext)
        topic, queue_id = _key(asked), asked.queue_id
        first = self._messages.min_offset(topic, queue_id)
        return response(request, header=TimestampResponse(self._messages.store_time_ms(topic, queue_id, first)))

    def entries(self, _: Connection, request: Command) -> Command:
        """Code 321: entries of a consume queue."""
        asked = QueryConsumeQueueRequest.from_ext(request.ext)
        queue = self._messages.queue(asked.topic.encode(errors="replace"), asked.queue_id)
        if queue is None:
            return response(request, ResponseCode.SYSTEM_ERROR,
                            remark=f"{asked.queue_id}@{asked.topic} is not exist!")
        wanted = filter_data = None
        if asked.consumer_group is not None:
            wanted = self._consumers.find(asked.consumer_group, asked.topic)
            filter_data = "null" if wanted else f"{asked.consumer_group}@{asked.topic} is not online!"
        least, most, found, remark = queue.min_offset, queue.max_offset, list[ConsumeQueueData](), None
        if least <= asked.index < most:
            raw = queue.read(asked.index, max(0, min(asked.count, ENTRIES_MAX)))
            found = [ConsumeQueueData(offset, size, code) for offset, size, code in ENTRY.iter_unpack(raw)]
        else:
            remark = f"Index {asked.index} of {asked.queue_id}@{asked.topic} is not exist!"
        return response(request, remark=remark, body=QueryConsumeQueueResponseBody(
            None if wanted is None else wanted.data, filter_data, found, most, least).to_json())


def _key(asked: QueueRequest) -> bytes:
    return asked.topic.encode(errors="replace")
