"""The interface ``Abroad``, by which parts use other groups' masters, and an implementation that has none. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from broker.abroad.tickets import Ticket
from remoting.record import Message, Record

Told = Callable[[str, bool], None]
"""Called with why records are not stored, or "", and with whether they may be stored nevertheless."""
Stored = Callable[[Ticket | str], None]
"""Called with the ticket of the master that holds the records, or with why none does."""
Found = Callable[[Mapping[int, Record], frozenset[int]], None]
"""Called with the messages found, by offset, and with the offsets that are deleted. Others cannot be read now."""


class Abroad(Protocol):
    """Other groups' masters. Each method calls back once, perhaps before it returns."""

    def store(self, topic: str, records: Sequence[Message], stored: Stored, left_over: Callable[[Ticket], None],
              first: Ticket | None = None) -> None:
        """Store records in one revive queue of a master where ``topic`` can be popped, if possible in that of
        ``first``. ``left_over`` is called for each place that may hold some of them after a failed attempt."""

    def store_at(self, ticket: Ticket, records: Sequence[Message], told: Told) -> None:
        """Store records at the master that the ticket names."""

    def read(self, broker_name: str, topic: str, queue_id: int, offsets: Sequence[int], found: Found) -> None:
        """Read messages of a queue of that group. Only its master's word that they are deleted counts."""


class Nowhere:
    """Implements ``Abroad`` for a broker that knows no other group."""

    def store(self, topic: str, records: Sequence[Message], stored: Stored, left_over: Callable[[Ticket], None],
              first: Ticket | None = None) -> None:
        stored("no other group is known")

    def store_at(self, ticket: Ticket, records: Sequence[Message], told: Told) -> None:
        told("no other group is known", False)

    def read(self, broker_name: str, topic: str, queue_id: int, offsets: Sequence[int], found: Found) -> None:
        found({}, frozenset())
