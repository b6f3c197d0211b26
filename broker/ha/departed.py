"""Slaves that are gone, of which something is remembered for when they are back: the latest, and no more of them.

Anybody may open a connection and say any broker id, again and again.
"""

from __future__ import annotations

from collections.abc import Collection


class Departed:
    """Ids of slaves without a connection, those that left last at the end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ids: dict[int, None] = {}

    def left(self, broker_id: int, members: Collection[int]) -> list[int]:
        """A slave's connection ended. Returns whom to forget for that; no members, who do not count here."""
        self.back(broker_id)
        self._ids[broker_id] = None
        others = [each for each in self._ids if each not in members] if len(self._ids) > self._most else []
        forgotten = others[: max(len(others) - self._most, 0)]
        for each in forgotten:
            del self._ids[each]
        return forgotten

    def back(self, broker_id: int) -> None:
        """This slave has a connection again."""
        self._ids.pop(broker_id, None)
