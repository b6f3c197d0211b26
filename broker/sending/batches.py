"""Decodes a client's batch: its messages out of the body, or why they cannot be taken. All or none of them are."""

from __future__ import annotations

from broker.rules import Refusal
from broker.sending.answers import illegal, too_large
from broker.store.batch import Batch
from remoting.errors import MessageIllegal
from remoting.record import Message, decode_batch


def decoded(body: bytes, common: Message, body_bytes_max: int) -> Batch | Refusal:
    """Decode a batch. ``common``: what the request says of all its messages."""
    try:
        messages = Batch(common, decode_batch(body))
    except MessageIllegal as error:
        return illegal(str(error), body_bytes_max)
    if not messages:
        return illegal("It has no message.", body_bytes_max)
    if len(body) > body_bytes_max:  # only then can one of its bodies be too large
        longest = max(len(body) for _, body, _ in messages.parts)
        if longest > body_bytes_max:
            return too_large(longest, body_bytes_max)
    return messages
