"""Deletes old files and unused queues when an administrator says so: codes 306, 316 and 329.

The store decides what goes. Source: ``AdminBrokerProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from remoting.codes import RequestCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler

logger = logging.getLogger("broker")

Clean = Callable[[], object]


class Cleaning:
    """Handles these codes by functions that delete.

    ``expired_queues``: entries of messages that are gone; ``unused_topics``: queues of topics that are not in the
    table; ``expired_log``: files of the log that are old enough."""

    def __init__(self, *, expired_queues: Clean, unused_topics: Clean, expired_log: Clean) -> None:
        self._work = {
            int(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE): expired_queues,
            int(RequestCode.CLEAN_UNUSED_TOPIC): unused_topics,
            int(RequestCode.DELETE_EXPIRED_COMMITLOG): expired_log,
        }

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys(self._work, self.clean)

    def clean(self, connection: Connection, request: Command) -> Command:
        logger.info("%s asks for %s", connection.peer, RequestCode(request.code).name)
        self._work[request.code]()
        return response(request)
