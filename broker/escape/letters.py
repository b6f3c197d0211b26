"""Turns a message into the send to another group's master, and chooses the masters and queues that may take it.

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
    OWN,
    POP_REVIVED,
    REAL_QID,
    REAL_TOPIC,
    TIMER_OUT_MS,
    TIMERS,
    TRAN_MSG,
    UNIQ_KEY,
)
from broker.topics.names import HALF, SCHEDULE, TIMER, popped_from
from remoting.bodies.namesrv import TopicRouteData
from remoting.fields import decimal
from remoting.record import COMPRESSED, COMPRESSION_SHIFT, Message, decode_properties

DELIVER_MS: Final = "TIMER_DELIVER_MS"
PRODUCER_GROUP: Final = "PGROUP"
PLACES: Final = (REAL_TOPIC, REAL_QID, "TRAN_PREPARED_QUEUE_OFFSET")
"""Properties that name places of the old log."""
_COMPRESSION: Final = COMPRESSED | 7 << COMPRESSION_SHIFT
"""Bits of the system flag that describe the body's compression."""
_TIMES_MAX: Final = 2**31 - 1
"""Retry limit of a revived message: no master may turn it into a dead letter."""


@attrs.frozen
class Parcel:
    """A send of one message: the fields of request 310, except the queue. ``key`` identifies the message over several
    attempts; "" if it has nothing that distinguishes it. ``message`` is what a master of the same container stores."""

    topic: str
    queue: int
    """The queue that the message is meant for. Messages of one queue go to one queue while the route stays."""
    fields: dict[str, str]
    body: bytes
    key: str
    message: Message
    beside: str = ""
    """For a revived message: the topic that it was popped from. It must go to a master where that can be popped."""


def parcel(message: Message, group: str, precision_ms: int = 1_000) -> Parcel:
    """The send of a message. ``group``: producer group if the message names none. ``precision_ms``: length of a timer's
    slot. A message that would be delayed here, as a timer or in a level, is sent with its delay; a half is sent as a
    message of a transaction."""
    values = decode_properties(message.properties)
    topic, queue_id, key = message.topic.decode(errors="replace"), message.queue_id, _key(message, values)
    is_half = topic == HALF
    due_ms = _due_ms(values.pop(TIMER_OUT_MS, ""), values.get(DELIVER_MS, ""), precision_ms)
    level = values.get(DELAY, "") if is_half else values.pop(DELAY, "")
    if topic in (TIMER, SCHEDULE, HALF):
        topic, queue_id = values.get(REAL_TOPIC, topic), max(0, decimal(values.get(REAL_QID, "")) or 0)
    beside = popped_from(topic, values.get(ORIGIN_GROUP, "")) if POP_REVIVED in values else ""
    if message.topic != TIMER.encode():
        due_ms = ""
    if message.topic != SCHEDULE.encode():
        level = ""
    for name in [*PLACES, *(() if is_half else TIMERS), *(name for name in values if name.startswith(OWN))]:
        values.pop(name, None)
    if is_half:
        values[TRAN_MSG] = "true"
    if due_ms:
        values[DELIVER_MS] = due_ms
    if level:
        values[DELAY] = level
    return Parcel(topic, queue_id, {
        "a": values.get(PRODUCER_GROUP) or group, "b": topic, "c": "", "d": "0", "e": "",
        "f": str(message.sys_flag & _COMPRESSION), "g": str(message.born_time_ms), "h": str(message.flag),
        "i": props.text(values), "j": str(message.reconsume_times), "k": "false", "m": "false",
        **({"l": str(_TIMES_MAX)} if beside else {})}, message.body, key, message, beside)


def _due_ms(out_ms: str, asked_ms: str, precision_ms: int) -> str:
    """When a timer is due whose slot begins at ``out_ms``: at the time that it asked for, if that is known and in the
    slot, else when the slot is over. "": at once."""
    out, asked = decimal(out_ms), decimal(asked_ms)
    if out is None:
        return ""
    return str(asked if asked is not None and out < asked <= out + precision_ms else out + precision_ms)


def _key(message: Message, values: dict[str, str]) -> str:
    unique = values.get(UNIQ_KEY, "")
    own = "\0".join(f"{name}={value}" for name, value in sorted(values.items()) if name.startswith(OWN))
    return f"{message.topic!r}\0{message.queue_id}\0{unique}\0{own}" if unique or own else ""


@attrs.frozen(order=True)
class Refuge:
    """A queue at another group's master, to which a message may escape."""

    broker_name: str
    queue_id: int
    address: str = attrs.field(order=False)


def places(route: TopicRouteData, cluster: str, broker_name: str, perm: int = WRITE) -> list[Refuge]:
    """Queues of a topic with permission ``perm`` at the other masters of this cluster, in an order that is the same for
    all brokers."""
    masters = {each.broker_name: each.broker_addrs[MASTER] for each in route.broker_datas
               if MASTER in each.broker_addrs and each.broker_name != broker_name and each.cluster in (None, cluster)}
    return sorted(Refuge(queues.broker_name, number, masters[queues.broker_name])
                  for queues in route.queue_datas if queues.perm & perm and queues.broker_name in masters
                  for number in range(min(
                      queues.write_queue_nums if perm & WRITE else queues.read_queue_nums, _QUEUES_MAX)))


_QUEUES_MAX: Final = 1 << 10
"""Most queues of one topic at one broker that are used."""


def in_turn(found: list[Refuge], parcel: Parcel, refused: Collection[str]) -> Iterator[Refuge]:
    """The order in which to try places: one at each broker, beginning by the parcel's queue; ``refused`` ones last."""
    if not found:
        return
    first = parcel.queue % len(found)
    turned = found[first:] + found[:first]
    for among in ([place for place in turned if place.broker_name not in refused],
                  [place for place in turned if place.broker_name in refused]):
        yield from {place.broker_name: place for place in reversed(among)}.values()
