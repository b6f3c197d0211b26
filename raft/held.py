"""Messages that wait until a write is durable: only the latest of those that say the same, and a bounded number.

A disk may stand still for hours while leaders change and heartbeats are answered. A message that is dropped here counts
as lost on the way: its receiver asks again. Knows messages' kinds; no disk, no transport.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

from raft.messages import ReadReply, Send, VoteReply

HELD_MAX: Final = 1_024
"""Most messages that one node holds back, whatever the number of its peers; beyond it the oldest is dropped."""


class Held:
    """The messages of one node that wait, in the order of their tokens, which never fall."""

    __slots__ = ("_sends",)

    def __init__(self) -> None:
        self._sends: dict[Hashable, Send] = {}

    def __len__(self) -> int:
        return len(self._sends)

    def __iter__(self) -> Iterator[Send]:
        return iter(self._sends.values())

    def add(self, send: Send) -> None:
        """Hold this message back. It replaces one that says the same to the same peer."""
        sends, key = self._sends, _key(send)
        assert not sends or next(reversed(sends.values())).after <= send.after, "tokens never fall"
        sends.pop(key, None)
        sends[key] = send
        if len(sends) > HELD_MAX:
            del sends[next(iter(sends))]
        assert len(sends) <= HELD_MAX

    def due(self, token: int) -> Iterator[Send]:
        """Release the messages that waited for writes up to ``token``."""
        sends = self._sends
        while sends:
            key = next(iter(sends))
            if sends[key].after > token:
                return
            yield sends.pop(key)

    def clear(self) -> None:
        """Drop all messages, since the writes that they rest on are gone."""
        self._sends.clear()


def _key(send: Send) -> Hashable:
    message = send.message
    kind = type(message)
    if kind is VoteReply:
        return send.peer, kind, message.probe  # type: ignore[union-attr]
    if kind is ReadReply:
        return send.peer, kind, message.ticket  # type: ignore[union-attr]
    return send.peer, kind
