"""Request 370: recalls a timer by its handle, with a marker that waits in the same slot and stops the timer there.

Source: ``RecallMessageProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker import properties as props
from broker.puts import PutResult, Puts
from broker.rules import Chain, Draft, Refusal
from broker.sending.answers import STORED
from broker.sending.sending import packed_peer
from broker.timer.admission import DELETES, DELIVER_MS, Timers
from broker.timer.handles import Handle
from broker.topics.table import TopicTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.headers.transactions import RecallMessageRequest, RecallMessageResponse
from remoting.record import Message

_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"
_NO_SERVICE: Final = "recall failed, broker service not available"
_FAILED: Final = "recall failed, execute error"


class Recall:
    """Handles recalls. ``enabled`` may be replaced at any time."""

    def __init__(self, timers: Timers, topics: TopicTable, puts: Puts, broker_name: str, store_host: bytes, *,
                 leads: Callable[[], bool], wall_ms: Callable[[], int]) -> None:
        self.enabled = False
        self._timers, self._rules = timers, Chain(timers.rule)
        self._topics, self._puts, self._broker_name, self._store_host = topics, puts, broker_name, store_host
        self._leads, self._wall_ms = leads, wall_ms

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, connection: Connection, request: Command) -> Command | None:
        """Store a marker. None: the answer follows. Success means: recalled, unless it was delivered before."""
        asked = RecallMessageRequest.from_ext(request.ext)
        handle = self._checked(asked)
        if isinstance(handle, Refusal):
            return response(request, handle.code, remark=handle.remark)
        now_ms = self._wall_ms()
        draft = Draft(handle.topic, 0, {
            "TAGS": _TAG, DELETES: handle.uniq_key, props.UNIQ_KEY: handle.uniq_key, DELIVER_MS: str(handle.time_ms),
            "BORN_TIMESTAMP": str(now_ms), "TRACE_CONTEXT": "", "PGROUP": asked.producer_group or ""})
        stop = self._rules.stops(draft)
        if stop is not None:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=(
                f"{_FAILED}: {stop.remark}" if isinstance(stop, Refusal) else _FAILED))
        message = Message(
            draft.topic.encode(), _BODY, draft.queue_id, props.write(draft.properties), born_time_ms=now_ms,
            born_host=packed_peer(connection.peer), store_host=self._store_host)

        def done(result: PutResult) -> None:
            if result.status in STORED:
                answer = response(request, header=RecallMessageResponse(handle.uniq_key))
            else:
                answer = response(request, ResponseCode.SYSTEM_ERROR, remark=f"{_FAILED}: {result.words}")
            connection.reply(request, answer)

        self._puts.put((message,), done)
        return None

    def _checked(self, asked: RecallMessageRequest) -> Handle | Refusal:
        """The handle of a request, after RocketMQ's checks in its order."""
        if not self.enabled:
            return Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if not self._leads():
            return Refusal(ResponseCode.SLAVE_NOT_AVAILABLE, _NO_SERVICE)
        if not self._puts.serving:
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, _NO_SERVICE)
        if self._topics.get(asked.topic) is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{asked.topic}] not exist")
        handle = Handle.decode(asked.recall_handle)
        if handle is None:
            return _illegal("recall handle is invalid")
        if handle.topic != asked.topic:
            return _illegal("recall failed, topic not match")
        if handle.broker_name != self._broker_name:
            return _illegal(_NO_SERVICE)
        if not 0 < handle.time_ms - self._wall_ms() < self._timers.keys.timer_max_delay_sec * 1_000:
            return _illegal("recall failed, timestamp invalid")
        return handle


def _illegal(words: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, words)
