"""Classifies the outcome of an attempt to send, and says what follows: a table over answers and errors.

Pure functions. Three things matter of a failure: whether the message may be stored all the same, whether another
attempt makes sense, and whether the same broker may simply be asked again until the deadline. Source:
``SendMessageProcessor.handlePutMessageResult`` and ``DefaultMQProducerImpl.sendDefaultImpl`` of RocketMQ 5.5.0, which
tries again on codes 1, 2, 14, 16, 17, 204, 205 and 1500, and on errors of the connection.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs

from remoting.codes import ResponseCode
from remoting.errors import ConnectFailed, NotEncodable, RemotingError


class Next(Enum):
    """The step that follows a failed attempt to send."""

    STOP = "no attempt could do better"
    RETRY = "another attempt, of the number allowed"
    WAIT = "it passes, as a failover does: again until the deadline, with a fresh route"


@attrs.frozen
class Failure:
    """One failed attempt. ``maybe_stored``: the message may be in the broker's log."""

    maybe_stored: bool
    next: Next
    broker_is_well: bool = False
    """It answered as it should: no reason to spare it."""


_UNHELD: Final = Failure(True, Next.STOP, broker_is_well=True)
"""Stored at the master; its disk or its replicas did not confirm in time. Sent again it would be there twice."""
_PASSES: Final = Failure(False, Next.WAIT)
_ELSEWHERE: Final = Failure(False, Next.RETRY)
_REFUSED: Final = Failure(False, Next.STOP, broker_is_well=True)
_UNSURE: Final = Failure(True, Next.RETRY)

BY_CODE: Final[dict[int, Failure]] = {
    ResponseCode.FLUSH_DISK_TIMEOUT: _UNHELD,
    ResponseCode.SLAVE_NOT_AVAILABLE: _UNHELD,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: _UNHELD,
    ResponseCode.SYSTEM_ERROR: _UNSURE,  # a defect, perhaps after the message was kept
    ResponseCode.SYSTEM_BUSY: _PASSES,
    ResponseCode.SERVICE_NOT_AVAILABLE: _PASSES,
    ResponseCode.GO_AWAY: _PASSES,
    ResponseCode.NO_PERMISSION: _ELSEWHERE,
    ResponseCode.TOPIC_NOT_EXIST: _ELSEWHERE,
    ResponseCode.NO_BUYER_ID: _ELSEWHERE,
    ResponseCode.NOT_IN_CURRENT_UNIT: _ELSEWHERE,
}
"""All others are refusals of this message, which every broker would repeat."""


TOO_FEW_REPLICAS: Final = "in-sync replicas not enough"
"""A new master answers so until its replicas have followed it."""

BY_REMARK: Final[dict[str, Failure]] = {
    TOO_FEW_REPLICAS: _PASSES,
    "accurate timer message is not enabled": _REFUSED,
    "timer message is under flow control": attrs.evolve(_ELSEWHERE, broker_is_well=True),
}
"""Beginnings of remarks with which a broker answers SYSTEM_ERROR before it keeps anything: the wire has no code for
these."""


def of_answer(code: int, remark: str | None) -> Failure:
    """Classify an answer other than SUCCESS."""
    if code == ResponseCode.SYSTEM_ERROR and remark is not None:
        for beginning, failure in BY_REMARK.items():
            if remark.startswith(beginning):
                return failure
    return BY_CODE.get(code, _REFUSED)


def of_error(error: RemotingError) -> Failure:
    """Classify a call that brought no answer."""
    if isinstance(error, ConnectFailed):
        return _PASSES
    if isinstance(error, NotEncodable):
        return _REFUSED
    return _UNSURE


# --- what the decision of a transaction came to --------------------------------------------------------------


class Heard(Enum):
    """Meanings of an answer to END_TRANSACTION (37)."""

    CONFIRMED = "the broker has it"
    AGAIN = "it was not heard: again until the deadline, with a fresh route"
    LEFT = "nobody knows: the broker asks when it wants to know"
    REFUSED = "no broker takes it, now or later"
    CONTRADICTED = "the broker has the other decision"


HEARD_BY_CODE: Final[dict[int, Heard]] = {
    ResponseCode.SUCCESS: Heard.CONFIRMED,
    ResponseCode.SLAVE_NOT_AVAILABLE: Heard.AGAIN,  # it is no master, or not any more
    ResponseCode.SYSTEM_BUSY: Heard.AGAIN,
    ResponseCode.SERVICE_NOT_AVAILABLE: Heard.AGAIN,
    ResponseCode.GO_AWAY: Heard.AGAIN,
    ResponseCode.FLUSH_DISK_TIMEOUT: Heard.LEFT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Heard.LEFT,
    ResponseCode.SYSTEM_ERROR: Heard.LEFT,  # a defect, perhaps after the message was kept
    ResponseCode.ILLEGAL_OPERATION: Heard.LEFT,  # the half may be decided by an answer to a check alone
}
"""All others are refusals."""
HEARD_BY_REMARK: Final[dict[str, Heard]] = {
    TOO_FEW_REPLICAS: Heard.AGAIN,
    "Find prepared transaction message failed": Heard.REFUSED,
    "The producer group wrong": Heard.REFUSED,
    "The transaction state table offset wrong": Heard.REFUSED,
    "The commit log offset wrong": Heard.REFUSED,
}
"""Beginnings of remarks with which a broker answers SYSTEM_ERROR and has done nothing."""
DECIDED_BEFORE: Final = " was decided before"
"""In the remark of a broker of this project that has the other decision, and answers ILLEGAL_OPERATION. Java's has no
memory of decisions, and answers so to what comes too late."""


def of_decision(code: int, remark: str | None) -> Heard:
    """Classify a broker's answer to the decision of a transaction."""
    if code == ResponseCode.ILLEGAL_OPERATION and DECIDED_BEFORE in (remark or ""):
        return Heard.CONTRADICTED
    if code == ResponseCode.SYSTEM_ERROR and remark is not None:
        for beginning, ended in HEARD_BY_REMARK.items():
            if remark.startswith(beginning):
                return ended
    return HEARD_BY_CODE.get(code, Heard.REFUSED)
