"""What is sent to another master in the place of a message that would be stored here, and which masters may take it.

Pure values. Source: ``EscapeBridge`` and ``TopicPublishInfo.selectOneMessageQueue`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import attrs

from broker import properties as props
from broker.client.route import MASTER, WRITE
from broker.properties import (
    DELAY,
    ORIGIN_GROUP,
    POP_REVIVED,
    REAL_QID,
    REAL_TOPIC,
    TIMER_OUT_MS,
    TIMERS,
    UNIQ_KEY,
)
from broker.topics.names import SCHEDULE, TIMER, popped_from
from remoting.bodies.namesrv import TopicRouteData
from remoting.record import COMPRESSED, COMPRESSION_SHIFT, Message, decode_properties

OWN: Final = "__QUORATE_"
"""How the names of properties begin that say something of this broker's log."""
DELIVER_MS: Final = "TIMER_DELIVER_MS"
PRODUCER_GROUP: Final = "PGROUP"
_COMPRESSION: Final = COMPRESSED | 7 << COMPRESSION_SHIFT
"""Bits of the system flag that are the body's."""
_TIMES_MAX: Final = 2**31 - 1
"""What POP brings back is never given up: no master is to count how often it came."""


@attrs.frozen
class Parcel:
    """A send: fields of 310 but for the queue. ``key`` is the same each time that it is made of one message; "" where
    nothing tells two messages apart."""

    topic: str
    queue: int
    """That the message was meant for: messages of one queue go to one queue, as long as the route stays."""
    fields: dict[str, str]
    body: bytes
    key: str
    beside: str = ""
    """Of what POP brings back: the topic that it was popped from. Whoever pops that at a master gets it there, too."""


def parcel(message: Message, group: str) -> Parcel:
    """``group``: of producers, where the message names none. What would wait here, as a timer or in a level, waits
    there."""
    values = decode_properties(message.properties)
    topic, queue_id, key = message.topic.decode(errors="replace"), message.queue_id, _key(message, values)
    due_ms, level = values.pop(TIMER_OUT_MS, ""), values.pop(DELAY, "")
    if topic in (TIMER, SCHEDULE):
        topic, queue_id = values.get(REAL_TOPIC, topic), int(values.get(REAL_QID, "0"))
    beside = popped_from(topic, values.get(ORIGIN_GROUP, "")) if POP_REVIVED in values else ""
    if message.topic != TIMER.encode():
        due_ms = ""
    if message.topic != SCHEDULE.encode():
        level = ""
    for name in [REAL_TOPIC, REAL_QID, *TIMERS, *(name for name in values if name.startswith(OWN))]:
        values.pop(name, None)
    if due_ms:
        values[DELIVER_MS] = due_ms
    if level:
        values[DELAY] = level
    return Parcel(topic, queue_id, {
        "a": values.get(PRODUCER_GROUP) or group, "b": topic, "c": "", "d": "0", "e": "",
        "f": str(message.sys_flag & _COMPRESSION), "g": str(message.born_time_ms), "h": str(message.flag),
        "i": props.text(values), "j": str(message.reconsume_times), "k": "false", "m": "false",
        **({"l": str(_TIMES_MAX)} if beside else {})}, message.body, key, beside)


def _key(message: Message, values: dict[str, str]) -> str:
    unique = values.get(UNIQ_KEY, "")
    own = "\0".join(f"{name}={value}" for name, value in sorted(values.items()) if name.startswith(OWN))
    return f"{message.topic!r}\0{message.queue_id}\0{unique}\0{own}" if unique or own else ""


@attrs.frozen(order=True)
class Refuge:
    """A queue of another master."""

    broker_name: str
    queue_id: int
    address: str = attrs.field(order=False)


def places(route: TopicRouteData, cluster: str, broker_name: str, perm: int = WRITE) -> list[Refuge]:
    """Queues of the topic that may be written to, or have that permission, at masters of this cluster but for this
    group; in an order that is the same whoever asks."""
    masters = {each.broker_name: each.broker_addrs[MASTER] for each in route.broker_datas
               if MASTER in each.broker_addrs and each.broker_name != broker_name and each.cluster in (None, cluster)}
    return sorted(Refuge(queues.broker_name, number, masters[queues.broker_name])
                  for queues in route.queue_datas if queues.perm & perm and queues.broker_name in masters
                  for number in range(min(
                      queues.write_queue_nums if perm & WRITE else queues.read_queue_nums, _QUEUES_MAX)))


_QUEUES_MAX: Final = 1 << 10
"""Of one topic at one broker, whatever a name server says."""


def in_turn(found: list[Refuge], parcel: Parcel, refused: Collection[str]) -> Iterator[Refuge]:
    """Where to try it: by its queue, one place at each broker; brokers that refused lately are the last."""
    if not found:
        return
    first = parcel.queue % len(found)
    turned = found[first:] + found[:first]
    for among in ([place for place in turned if place.broker_name not in refused],
                  [place for place in turned if place.broker_name in refused]):
        yield from {place.broker_name: place for place in reversed(among)}.values()
