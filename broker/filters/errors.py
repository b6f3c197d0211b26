"""Errors of an expression: what is wrong, and where. It knows no expression."""

from __future__ import annotations

from typing import Final

INVALID: Final = "Invalid MessageSelector. "
"""The words of Java's answer; it says no more."""


class FilterIllegal(ValueError):
    """An illegal expression. ``position``: of the first character that is not understood, from 0."""

    def __init__(self, position: int, words: str) -> None:
        super().__init__(f"{INVALID}At character {position + 1}: {words}")
        self.position, self.words = position, words
