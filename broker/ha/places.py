"""Chooses the connection that ends when the HA port has no place left, so that strangers keep no replica out.

Members of the SyncStateSet have places of their own, and so have replicas that copy: a flood takes neither. Of all
others the newest is always let in: a replica says who it is at once, and a silent connection loses nothing by its end.
Pure: it knows the address and the stage of each connection, and closes nothing itself.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from typing import Final

import attrs

_SPARED: Final = 4
"""The newest connections keep one place in so many: a replica has that long to say who it is."""
NEIGHBOURS: Final = 8
"""So many connections of one address are no crowd: they may be replicas behind one NAT."""


class Stage(enum.IntEnum):
    """Stages of a connection; one of the lowest stage ends first."""

    SILENT = 0
    SPOKE = 1
    """It has said nothing so far that makes it a replica that copies."""
    COPIES = 2
    """It has acknowledged a part of the log."""
    MEMBER = 3
    """Its broker id counts for what is confirmed, or is about to."""


@attrs.frozen
class Place:
    """One connection. Numbers rise in the order in which they came."""

    number: int
    host: str
    standing: Stage


def superfluous(places: Iterable[Place], most: int) -> list[int]:
    """Connections to end, so that at most ``most`` copy and as many others stay; ``places`` in order of arrival."""
    copying: list[Place] = []
    others: list[Place] = []
    for place in places:
        if place.standing is Stage.COPIES:
            copying.append(place)
        elif place.standing < Stage.COPIES:
            others.append(place)
    # Of connections that copy the newest end first; of the others the oldest do, to make room for new ones.
    return [*_beyond(copying, most, newest_first=True), *_beyond(others, most, spared=most // _SPARED + 1)]


def _beyond(places: list[Place], most: int, *, newest_first: bool = False, spared: int = 0) -> list[int]:
    """Return connections of the most crowded address, those of the lowest stage first; none of the newest ``spared``.
    """
    assert 0 <= spared <= most, "somebody can be ended who is not spared"
    ended: list[int] = []
    while len(places) > most:
        crowd = Counter(place.host for place in places)
        least = min(places[:len(places) - spared], key=lambda place: (
            -max(crowd[place.host], NEIGHBOURS), place.standing, -place.number if newest_first else place.number))
        places.remove(least)
        ended.append(least.number)
    return ended
