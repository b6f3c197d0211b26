"""Majority and joint arithmetic: pure functions over ids and numbers.

Paper §5.2, §5.4.2 and §6 (joint consensus: a majority of both halves).
This module knows no roles, logs or messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


def majority(size: int) -> int:
    """Return the smallest number of voters that is more than half of ``size``; 1 for 0 voters, which have no
    majority."""
    return size // 2 + 1


def has_majority(voters: Sequence[str], agree: Callable[[str], bool]) -> bool:
    """Return whether more than half of ``voters`` agree. An empty set never does."""
    return sum(map(agree, voters)) >= majority(len(voters))


def has_quorum(voters: Sequence[str], outgoing: Sequence[str], agree: Callable[[str], bool]) -> bool:
    """Return whether a majority of ``voters`` agrees and, while joint, one of ``outgoing`` too."""
    return has_majority(voters, agree) and (not outgoing or has_majority(outgoing, agree))


def majority_value(values: Iterable[int]) -> int:
    """Return the largest number that a majority of ``values`` reaches or exceeds; 0 for no values."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0


def quorum_value(voters: Sequence[str], outgoing: Sequence[str], value: Callable[[str], int]) -> int:
    """Return the largest number that a quorum reaches: the smaller of both halves while joint."""
    reached = majority_value(map(value, voters))
    return min(reached, majority_value(map(value, outgoing))) if outgoing else reached
