"""Finds groups that read far behind the end of the log, and may no longer consume if the operator says so.

Java notes at each read how far behind the end it was, and looks at its notes every three minutes. Here a look forgets
the notes: a group that was allowed to consume again is judged by what it reads from then on.
Source: ``BrokerController.protectBroker`` and ``DefaultMessageStore.getMessage`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Final

LOOK_INTERVAL_NS: Final = 180 * 1_000_000_000


class Laggards:
    """The lag of consumer groups in what they read since the last look."""

    def __init__(self) -> None:
        self._behind: dict[tuple[str, str, int], int] = {}

    def note(self, group: str, topic: str, queue_id: int, behind: int) -> None:
        """Note that the last record that ``group`` looked at lies ``behind`` bytes before the log's end."""
        self._behind[group, topic, queue_id] = behind

    def look(self, threshold: int) -> dict[str, int]:
        """Return groups that are further behind in some queue, and by how many bytes; all is forgotten."""
        found: dict[str, int] = {}
        for (group, _, _), behind in self._behind.items():
            if behind > threshold:
                found[group] = max(behind, found.get(group, 0))
        self._behind.clear()
        return found
