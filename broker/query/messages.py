"""Single messages: codes 12 (by key or unique id) and 33 (by place in the log).

Records go as they stand in the log. Codes and words are Java's. Source: ``QueryMessageProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from broker.store.errors import StoreError
from broker.store.messages import StoredMessages
from broker.store.visible import Visible
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.errors import DamagedRecord
from remoting.headers.queries import QueryMessageRequest, QueryMessageResponse, ViewMessageRequest

if TYPE_CHECKING:
    from remoting.connection import Connection
    from remoting.endpoint import Handler

TAG: Final = "T"
ANSWER_BYTES_MAX: Final = 8 << 20
"""Most bytes of records in one answer; the first record comes in any case."""


@attrs.frozen
class QueryConfig:
    """Keys of ``MessageStoreConfig`` and their defaults."""

    default_query_max_num: int = 32
    """Messages of a query by unique id."""
    max_msgs_num_batch: int = 64
    """Messages of a query by key."""


class MessageQueries:
    def __init__(self, config: QueryConfig, messages: StoredMessages, visible: Visible) -> None:
        self.config = config
        self._messages, self._log, self._visible = messages, messages.log, visible

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.QUERY_MESSAGE: self.by_key, RequestCode.VIEW_MESSAGE_BY_ID: self.by_offset}

    def by_key(self, _: Connection, request: Command) -> Command:
        """Code 12: messages with a key, the newest first."""
        asked = QueryMessageRequest.from_ext(request.ext)
        if asked.index_type == TAG and not asked.unique:
            return response(request, ResponseCode.INVALID_PARAMETER, QueryMessageResponse(),
                            remark="indexType T is not offered: messages are found by key (K) or unique id (U)")
        most = self.config.default_query_max_num if asked.unique else min(asked.max_num, self.config.max_msgs_num_batch)
        found = self._messages.get_by_key(
            asked.topic.encode(errors="replace"), asked.key, begin_ms=asked.begin_timestamp, end_ms=asked.end_timestamp,
            most=max(most, 1))
        header = QueryMessageResponse(found[0].store_time_ms if found else 0, self._visible.offset)
        records: list[bytes] = []
        left = ANSWER_BYTES_MAX
        for record in found:
            left -= record.size
            if records and left < 0:
                break
            records.append(self._log.read(record.offset, record.size))
        if not records:
            return response(request, ResponseCode.QUERY_NOT_FOUND, header,
                            remark="can not find message, maybe time range not correct")
        return response(request, header=header, body=b"".join(records))

    def by_offset(self, _: Connection, request: Command) -> Command:
        """Code 33: the message at an offset of the log."""
        offset = ViewMessageRequest.from_ext(request.ext).offset
        try:
            body = self._log.read(offset, self._log.record(offset).size)
        except (StoreError, DamagedRecord) as error:
            return response(request, ResponseCode.SYSTEM_ERROR,
                            remark=f"can not find message by the offset, {offset}: {error}")
        return response(request, body=body)
