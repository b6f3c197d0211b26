"""Verdicts on a registration. The rules, the counters and the answers share these words."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """Outcomes of a request to register a broker."""

    ACCEPTED = "accepted"
    OUTRANKED = "outranked"
    """Another address holds this id with a newer state version. The newcomer leaves the tables; Java answers it with
    success and nothing else, and so do we."""
    TOO_EARLY = "too early"
    """A single topic of a broker id that has not registered as a whole."""
    FULL = "full"
    """The tables have no room."""
