"""The handle that takes a delayed message back: what a broker answers a send with, and what stands in it.

Pure functions. Source: ``RecallMessageHandle`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import attrs

from broker.client.errors import MessageIllegal
from remoting.fields import decimal

_VERSION: Final = "v1"


@attrs.frozen
class RecallHandle:
    """A recall handle: the broker and the message that it names, and the text as it was given."""

    text: str
    topic: str
    broker: str
    due_ms: int
    """Time when the message is delivered, by the broker's clock."""
    message_id: str


def read_handle(text: str) -> RecallHandle:
    """Raises ``MessageIllegal`` for what no broker gave out."""
    try:
        parts = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeError, ValueError):
        parts = []
    if len(parts) == 5 and parts[0] == _VERSION and all(parts):
        due_ms = decimal(parts[3])
        if due_ms is not None:
            return RecallHandle(text, parts[1], parts[2], due_ms, parts[4])
    raise MessageIllegal(f"{text[:60]!r} is no handle of a delayed message, as a send returns it (recall_handle)")
