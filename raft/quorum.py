"""Majority and joint arithmetic: pure functions over ids and numbers.

Paper §5.2, §5.4.2 and §6 (joint consensus: a majority of both halves).
This module knows no roles, logs or messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


def majority(size: int) -> int:
    """Smallest number of voters that is more than half of ``size``; 0 voters have no majority (returns 1)."""
    return size // 2 + 1


def has_majority(voters: Sequence[str], agree: Callable[[str], bool]) -> bool:
    """Whether more than half of ``voters`` agree. An empty set never does."""
    return sum(map(agree, voters)) >= majority(len(voters))


def has_quorum(voters: Sequence[str], outgoing: Sequence[str], agree: Callable[[str], bool]) -> bool:
    """A majority of ``voters`` and, while joint, of ``outgoing`` too."""
    return has_majority(voters, agree) and (not outgoing or has_majority(outgoing, agree))


def majority_value(values: Iterable[int]) -> int:
    """The largest number that a majority of ``values`` reaches or exceeds; 0 for none."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0


def quorum_value(voters: Sequence[str], outgoing: Sequence[str], value: Callable[[str], int]) -> int:
    """The largest number that a quorum reaches: the smaller of both halves while joint."""
    reached = majority_value(map(value, voters))
    return min(reached, majority_value(map(value, outgoing))) if outgoing else reached
