"""Giving messages back: the broker delivers them again later, or puts them with the dead letters.

A shell: one request, and where that fails the message is sent anew to the group's retry topic. Source:
``DefaultMQPushConsumerImpl.sendMessageBack`` and ``ConsumeMessageOrderlyService.sendMessageBack`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from typing import Final

from broker.client.errors import ClientError
from broker.client.message import (
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_ID,
    RECONSUME_TIMES,
    RETRY_PREFIX,
    RETRY_TOPIC,
    Encoded,
    MessageView,
)
from broker.client.producing import Producer
from broker.client.session import Session
from remoting.codes import RequestCode
from remoting.command import request
from remoting.errors import MessageIllegal as NotEncodable
from remoting.headers.sending import ConsumerSendMsgBackRequest
from remoting.record import COMPRESSED, COMPRESSION_SHIFT, encode_properties

logger = logging.getLogger("broker.client")

_BODY_FLAGS: Final = COMPRESSED | 7 << COMPRESSION_SHIFT
_FIRST_LEVEL: Final = 3
"""Delay level after a first failure; each further failure has the next."""
_DROPPED: Final = (DELAY, RECONSUME_TIMES, MAX_RECONSUME_TIMES, "TRAN_MSG", "POP_CK", "1ST_POP_TIME")


class Returns:
    """Gives messages of one group back to their brokers."""

    def __init__(self, session: Session, producer: Producer, group: str, times_max: int) -> None:
        self._session, self._producer, self._group, self.times_max = session, producer, group, times_max

    async def give_back(self, message: MessageView, level: int) -> bool:
        """Give a message back. Returns whether a broker has it now."""
        session, queue = self._session, message.queue
        try:
            address, _ = await session.address(queue.topic, queue.broker_name)
            await session.ask("giving back", address, request(
                RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest(
                    message.record.offset, self._group, level, message.message_id, message.topic, False,
                    self.times_max)))
        except ClientError as error:
            logger.info("%r: %s; sending it to the retry topic", message, error)
            return await self.send_again(message)
        return True

    async def send_again(self, message: MessageView) -> bool:
        """Send the message again as a new one, which a broker that holds a lock for the group puts with the dead
        letters."""
        record, times = message.record, message.reconsume_times
        properties = {key: value for key, value in message.properties.items() if key not in _DROPPED}
        properties[RETRY_TOPIC] = message.topic
        properties.setdefault(ORIGIN_ID, message.message_id)
        properties[DELAY] = str(_FIRST_LEVEL + times)
        try:
            encoded = Encoded(
                message.message_id, record.message.body, record.message.sys_flag & _BODY_FLAGS,
                encode_properties(properties).decode(), self._session.wall_ms())
            await self._producer.send_again(
                RETRY_PREFIX + self._group, encoded, message.flag, times + 1, self.times_max)
        except (ClientError, NotEncodable) as error:  # full properties have no room for what is added
            logger.warning("%r cannot be given back: %s", message, error)
            return False
        return True
