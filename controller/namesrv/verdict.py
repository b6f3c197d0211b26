"""Verdicts on a registration. The rules, the counters and the answers share these words."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """Outcomes of a request to register a broker."""

    ACCEPTED = "accepted"
    OUTRANKED = "outranked"
    """Another address holds this id with a newer state version: the newcomer leaves the tables.

    The answer is success and nothing else, as in Java.
    """
    TOO_EARLY = "too early"
    """A single topic of a broker id that has not registered as a whole."""
    FULL = "full"
    """The tables have no room."""
