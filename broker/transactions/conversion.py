"""The rule of transactions: turns a message that is sent in a transaction into a half, which no consumer sees.

Source: ``SendMessageProcessor`` and ``TransactionalMessageBridge.parseHalfMessageInner`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from broker.properties import TRAN_MSG, text
from broker.rules import Diverted, Draft, Refusal, rule
from broker.topics.names import HALF
from broker.transactions.records import QUEUE, as_half
from remoting.codes import ResponseCode
from remoting.record import PROPERTIES_BYTES_MAX, ROLLBACK

SPARE_BYTES: Final = 512
"""Bytes of the properties that stay free: a half that is put back has more properties."""


@attrs.frozen(kw_only=True)
class ConversionConfig:
    """Keys of ``BrokerConfig`` and their defaults."""

    reject_transaction_message: bool = False
    broker_ip1: str = "127.0.0.1"


class Conversion:
    """Turns messages into halves. ``config`` may be replaced at any time."""

    def __init__(self) -> None:
        self.config = ConversionConfig()
        self.delays: Callable[[Draft], Refusal | None] = lambda draft: None
        """Returns why the message would be refused if it were committed now; None: it would not."""
        self.rule = rule(self.transactions, TRAN_MSG)

    def transactions(self, draft: Draft) -> Diverted | Refusal | None:
        """Divert a message of a transaction to the half topic. A delayed retry of such a message is not diverted."""
        if draft.properties.get(TRAN_MSG, "").lower() != "true" or draft.dead or (
                draft.reconsume_times > 0 and draft.level > 0):
            return None
        if self.config.reject_transaction_message:
            return Refusal(ResponseCode.NO_PERMISSION,
                           f"the broker[{self.config.broker_ip1}] sending transaction message is forbidden")
        refusal = self.delays(draft)
        if refusal is not None:
            return refusal
        values, most = draft.properties, PROPERTIES_BYTES_MAX - SPARE_BYTES
        as_half(values)
        characters = sum(map(len, values)) + sum(map(len, values.values())) + 2 * len(values) + len(draft.topic)
        if 4 * characters > most:  # else they have room, whatever they are
            size = len(text(values).encode(errors="replace")) + len(draft.topic.encode())
            if size > most:
                return Refusal(ResponseCode.MESSAGE_ILLEGAL,
                               f"properties of {size} bytes; a message of a transaction may have {most}")
        draft.sys_flag &= ~ROLLBACK
        return Diverted(HALF, QUEUE)
