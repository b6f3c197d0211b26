"""Replicated locks with fencing tokens, and no clock in them.

A lock is held until it is released or taken over. A client that waits looks at it twice, one lease apart by its own
clock. If the holder has not renewed it meanwhile, ``Acquire`` with what was seen takes it over; if it has, that is
refused, as the lock has changed. So a wrong clock may cost a slow holder its lock, but two never get the same token.

A holder that sleeps may believe for a while that it still holds the lock. So it shows its token to the resource that
the lock protects, which refuses every token below the highest it has seen. Tokens rise over all locks and are never
given twice.
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
    """Takes a lock if nobody holds it, or if it is as it was seen: with the token ``instead_of``, ``renewed`` as often.

    ``owner`` must name one holder only, such as a host with a random number. An owner that repeats the command gets the
    same token again.
    """

    name: str = attrs.field(validator=_TEXT)
    owner: str = attrs.field(validator=_TEXT)
    instead_of: int = attrs.field(default=0, validator=_NUMBER)
    renewals: int = attrs.field(default=0, validator=_NUMBER)


@attrs.frozen
class Renew:
    """Says that the holder with this token is alive."""

    name: str = attrs.field(validator=_TEXT)
    token: int = attrs.field(validator=_NUMBER)


@attrs.frozen
class Release:
    """Releases a lock, if this token still holds it."""

    name: str = attrs.field(validator=_TEXT)
    token: int = attrs.field(validator=_NUMBER)


Command: TypeAlias = Acquire | Renew | Release


class Lock(TypedDict):
    """The present state of a lock, which every command and query returns. Token 0: nobody holds it."""

    token: int
    owner: str
    renewals: int


FREE: Lock = {"token": 0, "owner": "", "renewals": 0}


class Locks(StateMachine[Command, Lock, Lock]):
    """Holds locks by name; only those that are held cost memory. ``query`` takes a name in UTF-8.

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
