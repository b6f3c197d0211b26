"""Counts waiting timers by topic, for code 61 and for metrics.

The counts start from the file of the last process. No decision depends on them, so they may be inexact after a crash.
Source: ``TimerMetrics`` of RocketMQ 5.5.0, ``DefaultStoreMetricsConstant`` for the names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from remoting.bodies.namesrv import DataVersion
from remoting.body import Body, body
from remoting.fields import Int64
from remoting.hashing import java_hash

PATH: Final = "config/timermetrics"
TOPICS_MAX: Final = 10_000
"""Topics that are counted; timers of further ones are not."""


@body
class TopicTimers(Body):
    """Number of waiting timers of a topic, and when it changed last."""

    count: Int64 = 0
    time_stamp: Int64 = 0


@body
class TimerMetrics(Body):
    """The file ``timermetrics``, and the body of the answer to 61."""

    timing_count: dict[str, TopicTimers] = attrs.field(factory=dict)
    data_version: DataVersion = DataVersion()


class Waiting:
    """Counts waiting timers by topic. ``changed`` is called at each change of the table."""

    def __init__(self, kept: TimerMetrics, wall_ms: Callable[[], int]) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.state_version = 0
        """The master epoch, which goes into the table's version."""
        self._wall_ms = wall_ms
        self.replace(kept)

    def table(self) -> TimerMetrics:
        return TimerMetrics(dict(self._topics), self._version)

    def replace(self, table: TimerMetrics) -> None:
        """Take over a whole table, of the file or of a master."""
        self._topics, self._version = dict(table.timing_count), table.data_version
        self._names = {java_hash(name): name for name in self._topics}

    def copy(self, answer: bytes) -> None:
        """Take over the table of a master's answer to 61. Raises ``BodyError``."""
        told = TimerMetrics.from_json(answer)
        if told != self.table():
            self.replace(told)
            self.changed()

    def came(self, topic: str) -> None:
        self._names[java_hash(topic)] = topic
        self._add(topic, 1)

    def left(self, topic_hash: int, count: int = 1) -> None:
        """So many timers of the topic with this hash are done."""
        topic = self._names.get(topic_hash)
        if topic is not None:
            self._add(topic, -count)

    def _add(self, topic: str, count: int) -> None:
        before = self._topics.get(topic)
        if before is None and (count < 0 or len(self._topics) >= TOPICS_MAX):
            self._names.pop(java_hash(topic), None)
            return
        left = max(0, (before.count if before is not None else 0) + count)
        if left:
            self._topics[topic] = TopicTimers(left, self._wall_ms())
        else:
            self._topics.pop(topic, None)
            self._names.pop(java_hash(topic), None)
        # A RocketMQ slave takes its master's counts when their version changes.
        self._version = DataVersion(self.state_version, self._wall_ms(), self._version.counter + 1)
        self.changed()
