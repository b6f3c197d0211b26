"""The lives that a directory has had, and those of its peers that it met. No I/O.

A life is one opening of a directory. Its number counts openings, and has 40 random bits, since a copy of a directory
counts on as its original does. Two nodes that greet each other tell which lives of the other they met. A node that is
told of a life which it never had runs on an older copy of its directory: it lacks what was acknowledged since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import attrs
import cbor2

from raft.errors import MalformedMessage

RANDOM_BITS: Final = 40
LIFE_BITS: Final = 63
"""Bits of a life's number: enough for one opening each second for three months."""
OWN_MAX: Final = 1_024
"""Own lives that a directory remembers. Nothing is concluded from lives before these."""
MET_MAX: Final = 8
"""Lives of one peer that are remembered: the newest."""
TOLD_MAX: Final = 16
"""Lives that one group remembers although its directory never had them."""
PEERS_MAX: Final = 1_024


@attrs.frozen
class Met:
    """The lives that were met of one directory, the newest last."""

    incarnation: bytes = b""
    lives: tuple[int, ...] = ()


NONE_MET: Final = Met()


class Lives:
    """The lives of one directory. ``now`` is this life; 0 before ``begin``, and where it could not be kept."""

    def __init__(self, own: Iterable[int] = (), met: dict[str, Met] | None = None) -> None:
        self.now = 0
        self._own = list(own)
        self._met = dict(met or {})

    def begin(self, chance: int) -> None:
        """Begin a new life. ``chance`` has ``RANDOM_BITS``. It must be durable before a peer hears of it."""
        assert 0 <= chance < 1 << RANDOM_BITS, chance
        opening = (max(self._own, default=0) >> RANDOM_BITS) + 1
        self.now = (opening << RANDOM_BITS | chance) & ((1 << LIFE_BITS) - 1)
        self._own = [*self._own, self.now][-OWN_MAX:]
        assert self.now < 1 << LIFE_BITS

    def unsaid(self) -> None:
        """Take back this life, since it could not be made durable: no peer hears of it."""
        assert self.now == self._own[-1]
        self.now = 0
        self._own.pop()

    def meet(self, peer: str, incarnation: bytes, life: int) -> bool:
        """Note a peer's life from its hello; 0: it does not say. Return whether that must be written down."""
        known = self._met.get(peer, NONE_MET)
        if known.incarnation != incarnation:
            known = Met(incarnation)
        if not life or life in known.lives:
            return False
        self._met[peer] = Met(incarnation, (*known.lives, life)[-MET_MAX:])
        assert self._met[peer].lives[-1] == life, "the newest stands last"
        return True

    def forget_guests(self, is_member: Callable[[str], bool]) -> None:
        """Drop a peer if there are too many: a peer that greets under ever new names must not fill the memory."""
        if len(self._met) > PEERS_MAX:
            del self._met[next((peer for peer in self._met if not is_member(peer)), next(iter(self._met)))]

    def met(self, peer: str) -> Met:
        """Return the lives of this peer that were met, to be told to it."""
        return self._met.get(peer, NONE_MET)

    def missing(self, incarnation: bytes, told: Met) -> tuple[int, ...]:
        """Return the lives that a peer says it met of this directory (``incarnation``), and that were none of it."""
        if told.incarnation != incarnation:
            return ()
        oldest = min(self._own, default=0) >> RANDOM_BITS
        return tuple(life for life in told.lives if life not in self._own and life >> RANDOM_BITS >= oldest)

    def encode(self, is_member: Callable[[str], bool] = bool) -> bytes:
        """Return the bytes to keep. Peers that are no members are left out."""
        return cbor2.dumps([self._own, {
            peer: [met.incarnation, list(met.lives)] for peer, met in sorted(self._met.items()) if is_member(peer)}])

    @classmethod
    def decode(cls, data: bytes) -> Lives:
        """Read the bytes that ``encode`` made. Raises ``MalformedMessage``."""
        try:
            own, met = cbor2.loads(data)
            return cls(check_lives(own), {str(peer): take_met(each) for peer, each in met.items()})
        except (ValueError, TypeError, AttributeError, cbor2.CBORError, RecursionError, OverflowError,
                MemoryError) as error:
            raise MalformedMessage(f"no lives: {error}") from error


def take_met(fields: object) -> Met:
    """Read lives that were met from a list of a file or a hello. Raises ``ValueError``, ``TypeError``."""
    if type(fields) is not list or len(fields) != 2 or type(fields[0]) is not bytes:
        raise ValueError("lives that were met are an incarnation and numbers")
    return Met(fields[0], tuple(check_lives(fields[1])[-MET_MAX:]))


def check_lives(lives: object) -> list[int]:
    """Return a list of lives unchanged. Raises ``ValueError`` if it is no list of lives' numbers."""
    if type(lives) is not list or not all(type(life) is int and 0 < life < 1 << LIFE_BITS for life in lives):
        raise ValueError("a life is a number")
    return lives
