"""Request 61061: an acting slave hands a record to a master of its own container, which stores it as it is.

The body is the record, as a log has it; its offsets and its store time are 0. The slave leaves out what names places of
its own log: another broker would take it for a word about its own. The master says where the record goes: it is the
broker that stores it, and has as many queues as it has. Pure values. Source: ``EscapeBridge.putMessage`` of RocketMQ
5.5.0, which changes nothing, and asks neither for the topic nor for the queue: consumers do not find such a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from broker import properties as props
from broker.properties import OWN, REAL_QID, REAL_TOPIC
from broker.rules import Refusal
from broker.topics.names import NOT_FOR_SENDERS, RETRY_PREFIX, SCHEDULE, SYSTEM_PREFIX, TIMER, TIMER_DEAD, topic_fault
from broker.topics.table import READ, WRITE, TopicTable
from remoting.codes import ResponseCode
from remoting.errors import DamagedRecord
from remoting.fields import decimal
from remoting.header import Header, header
from remoting.record import NOTED, ROLLBACK, Message, decode, decode_properties, encode

HAND_OVER: Final = 61_061
REFUSED_S: Final = 5.0
"""A sibling that takes nothing is not asked again for so long."""
_OF_ONE: Final = frozenset({ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST})
"""Codes that refuse one message; another one may be stored there."""
_OWN: Final = OWN.encode()
_WAIT: Final = frozenset({TIMER, SCHEDULE})
"""Topics where a message waits; ``REAL_TOPIC`` says where it goes then."""
_STAYS: Final = NOT_FOR_SENDERS - _WAIT - {TIMER_DEAD}
"""Topics of a group's own, whose records only its own master may write."""
_RETRY: Final = RETRY_PREFIX.encode()


@header
class HandOverRequest(Header):
    """Request 61061; its body is the record."""

    cluster: str
    broker_name: str
    """Name of the group whose slave asks."""
    beside: str = ""
    """For a message that POP brings back: the topic that it was popped from, which must be readable at the master."""


# --- the slave's side ------------------------------------------------------------------------------------------------


def stays(message: Message) -> str:
    """Return why this record is for its own group's master alone; "": another master may store it."""
    topic = message.topic.decode(errors="replace")
    if topic in _WAIT:
        topic = decode_properties(message.properties).get(REAL_TOPIC, topic)
    elif topic == TIMER_DEAD:
        return ""
    if topic in _STAYS or topic.startswith(SYSTEM_PREFIX):
        return f"{topic}: messages of this broker's own topics wait for its master"
    return ""


def record(message: Message) -> bytes:
    """The body of the request. Raises ``MessageIllegal``."""
    kept = b"\x02".join(pair for pair in message.properties.split(b"\x02") if not pair.startswith(_OWN))
    return encode(attrs.evolve(message, properties=kept, prepared_offset=0,
                               sys_flag=message.sys_flag & ~(NOTED | ROLLBACK)), 0, 0, 0)


class Choice:
    """The order in which siblings are asked. A sibling that takes nothing at all is left alone for ``REFUSED_S``. One
    order for all messages, so that those of a queue go to one master. If no sibling stores a message, it goes over the
    network."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._why = ""

    def in_turn(self, names: Iterable[str], now_s: float) -> Iterator[str]:
        return (name for name in sorted(names) if self._until.get(name, 0.0) <= now_s)

    def refused(self, name: str, code: int | None, why: str, now_s: float) -> None:
        """The sibling answered with that code, and ``why`` says it in words; None: with nothing."""
        if code not in _OF_ONE:
            self._until[name], self._why = now_s + REFUSED_S, why

    def why_left_alone(self, now_s: float) -> str:
        """What the last sibling said that is left alone now; "": none is."""
        return self._why if any(until > now_s for until in self._until.values()) else ""


# --- the master's side -----------------------------------------------------------------------------------------------


def read(body: bytes) -> Message | Refusal:
    """The message in the body of a request."""
    try:
        found = decode(body)
    except DamagedRecord as error:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the body is no record: {error}")
    if found.size != len(body):
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the body has {len(body) - found.size} bytes behind the record")
    return found.message


def foreign(asked: HandOverRequest, cluster: str, broker_name: str) -> Refusal | None:
    """Refuse a slave of another cluster, or of this broker's own group: its master alone delivers its messages."""
    if asked.cluster != cluster:
        return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker is of cluster {cluster}")
    if asked.broker_name == broker_name:
        return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker is of group {broker_name} itself")
    return None


def placed(message: Message, beside: str, topics: TopicTable, store_host: bytes, *, timers: bool,
           levels: int) -> Message | Refusal:
    """The message as this master stores it, in a queue that its topic has here; or why not. ``timers``: this broker
    has the timer wheel; ``levels``: so many delay levels. A retry topic that is missing is to be made before:
    ``missing_retry`` says which."""
    name = message.topic.decode(errors="replace")
    waits = name in _WAIT
    values = decode_properties(message.properties) if waits else {}
    why = _unreadable(beside, topics) or stays(message)
    if name == TIMER and not timers:
        why = "this broker has no timers (timerWheelEnable)"
    elif name == SCHEDULE and not 0 <= message.queue_id < levels:
        why = f"this broker has {levels} delay levels, and not level {message.queue_id + 1}"
    if why:
        return Refusal(ResponseCode.NO_PERMISSION, why)
    name = values.get(REAL_TOPIC, "") if waits else name
    topic = topics.get(name)
    if topic is None:
        return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist here")
    if not topic.perm & WRITE or not topic.write_queue_nums:
        return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{name}] cannot be written to here")
    if not waits:
        return attrs.evolve(message, queue_id=message.queue_id % topic.write_queue_nums, store_host=store_host)
    queue_id = decimal(values.get(REAL_QID, "")) or 0
    values[REAL_QID] = str(queue_id % topic.write_queue_nums)
    return attrs.evolve(message, properties=props.write(values), store_host=store_host)


def missing_retry(message: Message, beside: str, topics: TopicTable) -> str:
    """The retry topic that has to be made for this message; "": none."""
    if not message.topic.startswith(_RETRY) or _unreadable(beside, topics):
        return ""
    name = message.topic.decode(errors="replace")
    return "" if topics.get(name) is not None or topic_fault(name) is not None else name


def _unreadable(beside: str, topics: TopicTable) -> str:
    topic = topics.get(beside) if beside else None
    return "" if not beside or (topic is not None and topic.perm & READ) else (
        f"the topic[{beside}] cannot be read here")
