"""Properties of a message on its way in: read once, cleaned, and written as they are stored.

Pure text. Source: ``MessageDecoder.string2messageProperties`` and ``SendMessageProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNIQ_KEY: Final = "UNIQ_KEY"
"""The id that the sender gave."""
DELAY: Final = "DELAY"
"""The delay level."""
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
"""The queue that a diverted message is meant for."""
TIMERS: Final = frozenset({"TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"})
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
OWN: Final = "__QUORATE_"
"""Prefix of properties that refer to this broker's log, and mean nothing elsewhere."""
TIMER_DONE: Final = "__QUORATE_TIMER"
"""Ours, of a timer that was delivered or put again: offset in the log of the message that it was made of."""
TIMER_MOVED: Final = "__QUORATE_TIMER_MOVED"
"""Ours, of a timer that was put again before its slot came, so that an old file may go: the same offset."""
POP_PROGRESS: Final = "__QUORATE_POP"
"""Ours, of a checkpoint: how far it takes its group (``broker.pop.progress``)."""
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
SHARDING_KEY: Final = "__SHARDINGKEY"
TRAN_MSG: Final = "TRAN_MSG"
POP_CK: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
"""For a message that came back: the group that popped it."""
POP_REVIVED: Final = "__QUORATE_REVIVED"
"""Ours, for a message that came back: revive queue, place of the checkpoint there, and offset of the message that it
was made of."""
INNER_NUM: Final = "INNER_NUM"
LITE_TOPIC: Final = "__LITE_TOPIC"


def parse(text: str) -> dict[str, str] | None:
    """Read keys and values; None: a pair is no pair, or a key comes twice, which ``read_properties`` can read."""
    pairs = [pair.split("\x01", 1) for pair in text.split("\x02") if pair]
    try:
        values = dict(pairs)
    except ValueError:
        return None
    return values if len(values) == len(pairs) else None


def without_own(values: Mapping[str, str]) -> dict[str, str]:
    """Return the properties for a copy: without those that refer to the record's place in this broker's log."""
    return {name: value for name, value in values.items() if not name.startswith(OWN)}


def text(values: Mapping[str, str]) -> str:
    """Write properties as one line, as the headers of requests carry them."""
    return "".join([f"{key}\x01{value}\x02" for key, value in values.items()])


def write(values: Mapping[str, str]) -> bytes:
    """Write properties as bytes of a record. Raises ``UnicodeEncodeError`` for half of a surrogate pair."""
    return text(values).encode()


def waits(values: Mapping[str, str]) -> bool:
    """Return whether the sender waits until the message is as safe as the broker is configured to make it."""
    wait = values.get("WAIT")
    return not wait or wait.lower() == "true"
