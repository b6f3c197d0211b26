"""A send as it was asked for, read from the ext fields of 10, 310 and 320.

One pass over the dict, because this is done for every message: a typed header would cost three times as much. Missing
fields have defaults, as senders in other languages leave many out; unreadable ones are refused.
Source: ``SendMessageRequestHeader`` and ``SendMessageRequestHeaderV2`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from remoting.errors import HeaderError
from remoting.fields import decimal, shown


@attrs.define
class SendRequest:
    """A send as it was asked for. ``queue_id`` below 0: the broker chooses. Times in milliseconds."""

    topic: str
    queue_id: int
    properties: str
    sys_flag: int
    born_time_ms: int
    flag: int
    reconsume_times: int
    batch: bool
    default_topic: str
    default_topic_queue_nums: int
    unit_mode: bool
    max_reconsume_times: int | None


Names = tuple[str, str, str, str, str, str, str, str, str, str, str, str]

V1: Final[Names] = (
    "topic", "queueId", "properties", "sysFlag", "bornTimestamp", "flag", "reconsumeTimes", "batch", "defaultTopic",
    "defaultTopicQueueNums", "unitMode", "maxReconsumeTimes")
V2: Final[Names] = ("b", "e", "i", "f", "g", "h", "j", "m", "c", "d", "k", "l")

_SMALL: Final = {str(number): number for number in range(1_024)}
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63


def decode(ext: Mapping[str, str], names: Names) -> SendRequest:
    """Read the fields of a send. Raises ``HeaderError``."""
    (topic, queue_id, properties, sys_flag, born, flag, reconsume_times, batch, default_topic, default_queues,
     unit_mode, max_reconsume_times) = names
    get, small = ext.get, _SMALL
    return SendRequest(
        get(topic, ""),
        small[text] if (text := get(queue_id, "0")) in small else _number(text, queue_id),
        get(properties, ""),
        small[text] if (text := get(sys_flag, "0")) in small else _number(text, sys_flag),
        _number(get(born, "0"), born, _INT64),
        small[text] if (text := get(flag, "0")) in small else _number(text, flag),
        small[text] if (text := get(reconsume_times, "0")) in small else _number(text, reconsume_times),
        get(batch, "false") == "true",
        get(default_topic, ""),
        small[text] if (text := get(default_queues, "4")) in small else _number(text, default_queues),
        get(unit_mode, "false") == "true",
        None if (asked := get(max_reconsume_times)) is None else _number(asked, max_reconsume_times),
    )


def _number(text: str, name: str, bound: int = _INT32) -> int:
    number = decimal(text)
    if number is None or not -bound <= number < bound:
        raise HeaderError("SendMessageRequestHeader", name, f"is {shown(text)}; a whole number is needed")
    return number
