"""The handle by which a timer is recalled: base64 of ``v1``, topic, broker name, time and unique id.

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
    """Within the moment that the message waits for."""
    uniq_key: str

    def encode(self) -> str:
        text = f"{_V1} {self.topic} {self.broker_name} {self.time_ms} {self.uniq_key}"
        return urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Handle | None:
        """None for what is no handle. A time that is none is -1, as Java reads it."""
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
