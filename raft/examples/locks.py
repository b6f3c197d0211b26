"""Replicated locks with fencing tokens, and no clock in them.

A lock is held until it is released or taken over. Whoever waits looks at it twice, one lease apart by its own clock: if
the holder has not renewed it meanwhile, ``Acquire`` with what was seen takes it over; if it has, that is refused, for
the lock is not what it was. A wrong clock can so cost a slow holder its lock, but never gives two the same token.

A holder that sleeps may believe for a while that it still holds. So it shows its token to whatever the lock protects,
which refuses every token below the highest it has seen. Tokens rise over all locks and are never given twice.
"""

from __future__ import annotations

from typing import TypeAlias, TypedDict

import attrs
import cbor2
from attrs.validators import ge, instance_of

from raft.examples.commands import cbor_codec
from raft.statemachine import Codec, StateMachine

_TEXT = instance_of(str)
_NUMBER = (instance_of(int), ge(0))


@attrs.frozen
class Acquire:
    """Take a lock if nobody holds it, or if it is exactly as it was seen: ``instead_of`` that token, so often renewed.

    ``owner`` names one holder and nobody else, such as a host with a random number. An owner that repeats itself has
    the same token again.
    """

    name: str = attrs.field(validator=_TEXT)
    owner: str = attrs.field(validator=_TEXT)
    instead_of: int = attrs.field(default=0, validator=_NUMBER)
    renewals: int = attrs.field(default=0, validator=_NUMBER)


@attrs.frozen
class Renew:
    """Say that the holder with this token is alive."""

    name: str = attrs.field(validator=_TEXT)
    token: int = attrs.field(validator=_NUMBER)


@attrs.frozen
class Release:
    """Let go of a lock, if this token still holds it."""

    name: str = attrs.field(validator=_TEXT)
    token: int = attrs.field(validator=_NUMBER)


Command: TypeAlias = Acquire | Renew | Release


class Lock(TypedDict):
    """A lock as it is; what every command and query gives back. Token 0: nobody holds it."""

    token: int
    owner: str
    renewals: int


FREE: Lock = {"token": 0, "owner": "", "renewals": 0}


class Locks(StateMachine[Command, Lock, Lock]):
    """Locks by name; only those that are held cost memory. ``query`` takes a name in UTF-8.

    An ``Acquire`` or ``Renew`` was granted if the lock that comes back has the caller's owner or token.
    """

    codec: Codec[Command] = cbor_codec(Acquire, Renew, Release)

    def __init__(self) -> None:
        self.held: dict[str, Lock] = {}
        self.last_token = 0

    def apply(self, command: Command) -> Lock:
        lock = self.held.get(command.name, FREE)
        if isinstance(command, Acquire):
            if lock["owner"] == command.owner and lock["token"]:
                return lock
            if (lock["token"], lock["renewals"]) != (command.instead_of, command.renewals) and lock["token"]:
                return lock
            self.last_token += 1
            lock = self.held[command.name] = {"token": self.last_token, "owner": command.owner, "renewals": 0}
        elif command.token and lock["token"] == command.token:
            if isinstance(command, Release):
                del self.held[command.name]
                return FREE
            lock = self.held[command.name] = {**lock, "renewals": lock["renewals"] + 1}
        assert lock["token"] <= self.last_token
        return lock

    def query(self, data: bytes) -> Lock:
        return self.held.get(data.decode(), FREE)

    def snapshot(self) -> bytes:
        return cbor2.dumps([self.last_token, self.held])

    def restore(self, data: bytes) -> None:
        self.last_token, self.held = cbor2.loads(data)
