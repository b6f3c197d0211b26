"""Messages that wait for a write to be durable: of what says the same, only the latest, and never more than so many.

A disk may stand still for hours while leaders come and go and beats are answered. What is dropped here is as good as
lost on the way: whoever waits for it asks again. Knows messages' kinds; no disk, no transport.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

from raft.messages import ReadReply, Send, VoteReply

HELD_MAX: Final = 1_024
"""Messages that one node holds back, whatever the number of its peers; then the oldest goes."""


class Held:
    """In the order of their tokens, which never fall."""

    __slots__ = ("_sends",)

    def __init__(self) -> None:
        self._sends: dict[Hashable, Send] = {}

    def __len__(self) -> int:
        return len(self._sends)

    def __iter__(self) -> Iterator[Send]:
        return iter(self._sends.values())

    def add(self, send: Send) -> None:
        """Hold this back; it takes the place of what said the same to the same peer."""
        sends, key = self._sends, _key(send)
        assert not sends or next(reversed(sends.values())).after <= send.after, "tokens never fall"
        sends.pop(key, None)
        sends[key] = send
        if len(sends) > HELD_MAX:
            del sends[next(iter(sends))]
        assert len(sends) <= HELD_MAX

    def due(self, token: int) -> Iterator[Send]:
        """Those that waited for writes up to ``token``; they are held no longer."""
        sends = self._sends
        while sends:
            key = next(iter(sends))
            if sends[key].after > token:
                return
            yield sends.pop(key)

    def clear(self) -> None:
        """What they rest on is gone."""
        self._sends.clear()


def _key(send: Send) -> Hashable:
    message = send.message
    kind = type(message)
    if kind is VoteReply:
        return send.peer, kind, message.probe  # type: ignore[union-attr]
    if kind is ReadReply:
        return send.peer, kind, message.ticket  # type: ignore[union-attr]
    return send.peer, kind
