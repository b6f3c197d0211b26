"""A replicated queue, first in first out. No item is given out twice, and no push is done twice.

A client opens a session and numbers its commands 1, 2, 3, ... It sends a command whose outcome is unknown again with
the same number: that is not done again, and the first answer comes back. An item is given to one ``Pop`` only; if the
client that took it dies, the item is lost: delivery is at most once, not at least once.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeAlias, TypedDict

import attrs
import cbor2
from attrs.validators import ge, instance_of

from raft.examples.commands import cbor_codec
from raft.statemachine import Codec, StateMachine

BYTES_MAX = 64 << 20
SESSIONS_MAX = 1_024
_NUMBER = (instance_of(int), ge(1))


@attrs.frozen
class OpenSession:
    """Opens a session, and returns its number. If it is repeated, it opens another one, and the first is forgotten in
    time."""


@attrs.frozen
class Push:
    """Appends an item to the queue."""

    session: int = attrs.field(validator=_NUMBER)
    number: int = attrs.field(validator=_NUMBER)
    item: bytes = attrs.field(validator=instance_of(bytes))


@attrs.frozen
class Pop:
    """Takes the oldest item, if there is one."""

    session: int = attrs.field(validator=_NUMBER)
    number: int = attrs.field(validator=_NUMBER)


Command: TypeAlias = OpenSession | Push | Pop


class Answered(TypedDict):
    """The answer to a command."""

    why: Literal["", "empty", "full", "forgotten", "order"]
    """Reason of a refusal; "": it was done. "forgotten": the session is gone, so nobody knows whether the command was
    done. "order": its number is neither the session's last nor the next."""
    session: int
    item: bytes | None


@attrs.define
class Session:
    """The last command of a session, and its answer."""

    number: int
    outcome: Answered


class Queue(StateMachine[Command, Answered, int]):
    """Holds items of at most ``bytes_max`` bytes, each counted as one more, for at most ``sessions_max`` sessions: the
    one that was silent for longest is forgotten for a new one. Both are the same on all nodes.

    ``query`` answers with the number of items, whatever it is asked.
    """

    codec: Codec[Command] = cbor_codec(OpenSession, Push, Pop)

    def __init__(self, bytes_max: int = BYTES_MAX, sessions_max: int = SESSIONS_MAX) -> None:
        self.bytes_max, self.sessions_max = bytes_max, sessions_max
        self.items: deque[bytes] = deque()
        self.bytes = self.opened = 0
        self.sessions: dict[int, Session] = {}
        """Sessions by number; the one that was silent for longest is first."""

    def apply(self, command: Command) -> Answered:
        if isinstance(command, OpenSession):
            return self._open()
        session = self.sessions.pop(command.session, None)
        if session is None:
            return {"why": "forgotten", "session": command.session, "item": None}
        self.sessions[command.session] = session
        if command.number == session.number:
            return session.outcome
        if command.number != session.number + 1:
            return {"why": "order", "session": command.session, "item": None}
        outcome = self._push(command) if isinstance(command, Push) else self._pop(command)
        session.number, session.outcome = command.number, outcome
        return outcome

    def _open(self) -> Answered:
        while len(self.sessions) >= self.sessions_max:
            del self.sessions[next(iter(self.sessions))]
        self.opened += 1
        outcome: Answered = {"why": "", "session": self.opened, "item": None}
        self.sessions[self.opened] = Session(0, outcome)
        return outcome

    def _push(self, command: Push) -> Answered:
        size = len(command.item) + 1
        if self.bytes + size > self.bytes_max:
            return {"why": "full", "session": command.session, "item": None}
        self.items.append(command.item)
        self.bytes += size
        return {"why": "", "session": command.session, "item": None}

    def _pop(self, command: Pop) -> Answered:
        if not self.items:
            return {"why": "empty", "session": command.session, "item": None}
        item = self.items.popleft()
        self.bytes -= len(item) + 1
        assert self.bytes >= len(self.items)
        return {"why": "", "session": command.session, "item": item}

    def query(self, data: bytes) -> int:
        return len(self.items)

    def snapshot(self) -> bytes:
        sessions = [[number, session.number, session.outcome] for number, session in self.sessions.items()]
        return cbor2.dumps([self.opened, list(self.items), sessions])

    def restore(self, data: bytes) -> None:
        self.opened, items, sessions = cbor2.loads(data)
        self.items = deque(items)
        self.bytes = sum(len(item) + 1 for item in items)
        self.sessions = {number: Session(last, outcome) for number, last, outcome in sessions}
