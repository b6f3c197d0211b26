"""Counts the messages that each group has in flight: popped here, and neither acknowledged nor come back.

A core. Messages that were popped before this process began are not counted.
Source: ``PopInflightMessageCounter`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

PAIRS_MAX: Final = 1_000
"""Most pairs of group and topic that are counted."""


@attrs.define
class Inflight:
    """The counts. Topics are those where the messages stand: retry topics, too."""

    _out: dict[tuple[str, str], int] = attrs.field(factory=dict)

    def gave(self, group: str, topic: str, count: int) -> None:
        one = group, topic
        if one in self._out or len(self._out) < PAIRS_MAX:
            self._out[one] = self._out.get(one, 0) + count

    def done(self, group: str, topic: str, count: int) -> None:
        """Take messages off the count: they were acknowledged, came back, or were deleted."""
        one = group, topic
        if one in self._out:
            self._out[one] = max(0, self._out[one] - count)

    def forget_topic(self, topic: str) -> None:
        for one in [one for one in self._out if one[1] == topic]:
            del self._out[one]

    def forget_group(self, group: str) -> None:
        for one in [one for one in self._out if one[0] == group]:
            del self._out[one]

    @property
    def of(self) -> Mapping[tuple[str, str], int]:
        """Return the count by group and topic, of all that popped here."""
        return self._out
