"""Decides what a bad link does to each packet: when it arrives, twice, or not at all. Seeded, and without any I/O.

It knows sizes and moments in ns, and nothing of packets' contents.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from random import Random

MS: Final = 1_000_000
OVERTAKEN_NS: Final = 10 * MS
"""Additional delay of a packet that others are to overtake."""
QUEUE_NS: Final = 500 * MS
"""A link of limited rate drops what would wait longer than this for its turn."""


@attrs.frozen
class Shape:
    """The shape of one way of a link.

    ``loss``, ``duplicate`` and ``reorder`` are shares of packets; a rate of 0 is no limit.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    bytes_per_s: float = 0.0


def together(shapes: Iterable[Shape]) -> Shape:
    """Combine the shapes of one link: delays add up, each loses its share, the least rate counts."""
    shapes = list(shapes)

    def any_of(shares: Iterable[float]) -> float:
        return 1 - prod(1 - share for share in shares)

    return Shape(
        sum(each.delay_ms for each in shapes), sum(each.jitter_ms for each in shapes),
        any_of(each.loss for each in shapes), any_of(each.duplicate for each in shapes),
        any_of(each.reorder for each in shapes),
        min((each.bytes_per_s for each in shapes if each.bytes_per_s), default=0.0))


@attrs.define
class Link:
    """One way, with its own chance, so that another link's packets change nothing here."""

    shape: Shape
    chance: Random
    _free_ns: int = 0
    """Time when the last packet has left."""
    _arrived_ns: int = 0
    """Time when the last one in order arrives."""

    def sent(self, now_ns: int, size: int) -> tuple[int, ...]:
        """Return when this packet of so many bytes arrives: once, twice, or never."""
        shape, draw = self.shape, self.chance.random
        if shape.loss and draw() < shape.loss:
            return ()
        leaves_ns = now_ns
        if shape.bytes_per_s:
            leaves_ns = max(now_ns, self._free_ns) + int(size * 1e9 / shape.bytes_per_s)
            if leaves_ns - now_ns > QUEUE_NS:
                return ()
            self._free_ns = leaves_ns
        at_ns = leaves_ns + int(shape.delay_ms * MS)
        if shape.jitter_ms:
            at_ns += int((2 * draw() - 1) * shape.jitter_ms * MS)
        if shape.reorder and draw() < shape.reorder:
            at_ns += OVERTAKEN_NS
        else:
            at_ns = self._arrived_ns = max(at_ns, self._arrived_ns, leaves_ns)
        twice = shape.duplicate and draw() < shape.duplicate
        return (at_ns, at_ns) if twice else (at_ns,)
