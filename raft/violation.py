"""The error that reports a broken property.

Knows no property, and nothing of what properties are about.
"""

from __future__ import annotations


class InvariantViolation(AssertionError):
    """A property does not hold. ``id`` is its name, like ``INV_R7``."""

    def __init__(self, id: str, message: str) -> None:  # noqa: A002  the word of the table
        super().__init__(f"{id}: {message}")
        self.id, self.message = id, message


def require(holds: bool, id: str, message: str, *facts: object) -> None:  # noqa: A002  the word of the table
    """Raise ``InvariantViolation`` with the facts unless ``holds``."""
    if not holds:
        raise InvariantViolation(id, f"{message}: {', '.join(map(str, facts))}" if facts else message)
