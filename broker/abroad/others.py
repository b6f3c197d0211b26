"""What a part needs of other groups' masters, and a broker that knows none of them.

It knows records and tickets, and not how anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from broker.abroad.tickets import Ticket
from remoting.record import Message, Record

Told = Callable[[str, bool], None]
"""Hears why records are not stored, "" if they are; and whether they may be though, as nobody knows."""
Stored = Callable[[Ticket | str], None]
"""Hears who holds them, or why nobody does."""
Found = Callable[[Mapping[int, Record], frozenset[int]], None]
"""Hears of the messages that are found, by offset, and of the offsets that are gone. Any other is not to be read now.
"""


class Abroad(Protocol):
    """Other groups' masters. Each calls back once, perhaps before it returns."""

    def store(self, topic: str, records: Sequence[Message], stored: Stored, left_over: Callable[[Ticket], None],
              first: Ticket | None = None) -> None:
        """In one revive queue of a master where ``topic`` can be popped, if possible in that of ``first``.
        ``left_over`` hears of each place that may have some of them though they are not stored there."""

    def store_at(self, ticket: Ticket, records: Sequence[Message], told: Told) -> None:
        """At whoever the ticket is of."""

    def read(self, broker_name: str, topic: str, queue_id: int, offsets: Sequence[int], found: Found) -> None:
        """Messages of a queue of that broker. Its master says what is gone, and nobody in its place."""


class Nowhere:
    """There are none. Implements ``Abroad``."""

    def store(self, topic: str, records: Sequence[Message], stored: Stored, left_over: Callable[[Ticket], None],
              first: Ticket | None = None) -> None:
        stored("no other group is known")

    def store_at(self, ticket: Ticket, records: Sequence[Message], told: Told) -> None:
        told("no other group is known", False)

    def read(self, broker_name: str, topic: str, queue_id: int, offsets: Sequence[int], found: Found) -> None:
        found({}, frozenset())
