"""Recall handles, by which clients recall timers: base64 of ``v1``, topic, broker name, time and unique id.

Pure text. Source: ``RecallMessageHandle`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from typing import Final

import attrs

from remoting.fields import decimal

_V1: Final = "v1"
_FIELDS: Final = 5
_LENGTH_MAX: Final = 4_096


@attrs.frozen
class Handle:
    topic: str
    broker_name: str
    time_ms: int
    """A time within the slot in which the message waits."""
    uniq_key: str

    def encode(self) -> str:
        text = f"{_V1} {self.topic} {self.broker_name} {self.time_ms} {self.uniq_key}"
        return urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Handle | None:
        """The handle in this text; None: it is none. A time that is no number becomes -1, as in RocketMQ."""
        if len(text) > _LENGTH_MAX:
            return None
        try:
            raw = urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)).decode()
        except (Error, UnicodeError, ValueError):
            return None
        fields = raw.split(" ")
        if len(fields) < _FIELDS or fields[0] != _V1 or not fields[4]:
            return None
        time_ms = decimal(fields[3])
        return cls(fields[1], fields[2], -1 if time_ms is None else time_ms, fields[4])
