"""Properties of a message on its way in: read once, cleaned, and written as they are stored.

Pure text. Source: ``MessageDecoder.string2messageProperties`` and ``SendMessageProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNIQ_KEY: Final = "UNIQ_KEY"
"""The id that the sender gave."""
TIMERS: Final = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC")
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
SPECIAL: Final = frozenset({
    "POP_CK", "MSG_REGION", "TRACE_ON", "CLUSTER", "DELAY", "TRAN_MSG", *TIMERS, "TIMER_OUT_MS", "INNER_NUM",
    "__LITE_TOPIC", PRIORITY,
})
"""Whoever has none of these is stored as it came, with the broker's own behind it."""


def parse(text: str) -> dict[str, str] | None:
    """Keys and values; None where a pair is no pair, or a key comes twice: ``clean`` reads those."""
    pairs = [pair.split("\x01", 1) for pair in text.split("\x02") if pair]
    try:
        values = dict(pairs)
    except ValueError:
        return None
    return values if len(values) == len(pairs) else None


def clean(text: str) -> dict[str, str]:
    """As Java reads them: what has no key or no value is dropped, of two values of one key the last one stays."""
    values = {}
    for pair in text.split("\x02"):
        key, _, value = pair.partition("\x01")
        if key and value:
            values[key] = value
    return values


def write(values: Mapping[str, str]) -> bytes:
    """The bytes in the record. Raises ``UnicodeEncodeError`` for half of a surrogate pair."""
    return "".join([f"{key}\x01{value}\x02" for key, value in values.items()]).encode()


def waits(values: Mapping[str, str]) -> bool:
    """Whether its sender wants to hear that it is stored as the broker is configured to store."""
    wait = values.get("WAIT")
    return not wait or wait.lower() == "true"
