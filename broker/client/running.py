"""Answers operators who ask a consumer through its broker how it does, or to handle one message while they watch.

Bodies in the shape of ``ConsumerRunningInfo`` and ``ConsumeMessageDirectlyResult`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from broker.client.message import Received
from broker.client.messages import Messages
from broker.client.share import OrderedShare
from remoting.bodies.consumers import MessageQueue
from remoting.fastjson import Pairs, dumps
from remoting.record import decode

if TYPE_CHECKING:
    from broker.client.consuming import Consumer

_WATCH_S: Final = 9.0
"""A broker waits 10 s for the outcome."""


def info(consumer: Consumer) -> bytes:
    """Body of the answer to code 307."""
    tables: list[tuple[Any, Any]] = []
    for queue, share in consumer.shares.items():
        in_flight = share.fetcher.in_flight
        tables.append((queue.to_plain(), {
            "commitOffset": in_flight.committable, "cachedMsgCount": len(in_flight),
            "cachedMsgSizeInMiB": in_flight.size_bytes >> 20,
            "cachedMsgMinOffset": in_flight.committable if len(in_flight) else 0,
            "cachedMsgMaxOffset": in_flight.last if len(in_flight) else 0,
            "locked": isinstance(share, OrderedShare), "droped": share.dropped,
        }))
    return dumps({
        "properties": {
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMEORDERLY": str(consumer.ordered).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(consumer.began_ms), "PROP_THREADPOOL_CORE_SIZE": "1",
            "PROP_CLIENT_VERSION": "V5_5_0",
        },
        "subscriptionSet": [each.to_plain() for each in consumer.subscriptions.values()],
        "mqTable": Pairs(tables), "statusTable": {}, "userConsumerInfo": {},
    })


class _Watched:
    """Origin of a message that comes from an operator, not from a queue."""

    def __init__(self) -> None:
        self.dropped = False
        self.outcome: str | None = None
        self.told = trio.Event()

    def acknowledged(self, _: Received) -> None:
        self._tell("CR_SUCCESS")

    async def later(self, _: Received, __: int) -> None:
        self._tell("CR_LATER")

    def _tell(self, outcome: str) -> None:
        self.outcome = outcome
        self.told.set()


async def consume(messages: Messages, body: bytes, broker: str | None, bytes_max: int) -> bytes:
    """Answer to 309: deliver the record in ``body`` and report what became of it. Raises ``DamagedRecord``."""
    record, began = decode(body), trio.current_time()
    queue = MessageQueue(record.message.topic.decode(errors="replace"), broker or "", record.message.queue_id)
    origin = _Watched()
    messages.put((Received(record, queue, bytes_max, origin),))
    with trio.move_on_after(_WATCH_S):
        await origin.told.wait()
    origin.dropped = True
    return dumps({
        "order": False, "autoCommit": True, "consumeResult": origin.outcome or "CR_RETURN_NULL",
        "remark": None if origin.outcome else f"not settled within {_WATCH_S:g} s",
        "spentTimeMills": int((trio.current_time() - began) * 1e3),
    })
