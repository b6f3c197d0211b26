"""How many timers wait for each topic (code 61), and what operators read of them (code 28, the page for Prometheus).

The numbers are of what went through this process, begun with what the last one wrote: they decide nothing.
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
"""More are not counted one by one."""


@body
class TopicTimers(Body):
    """How many timers of a topic wait, and since when that is so."""

    count: Int64 = 0
    time_stamp: Int64 = 0


@body
class TimerMetrics(Body):
    """``timermetrics``, and the body of 61."""

    timing_count: dict[str, TopicTimers] = attrs.field(factory=dict)
    data_version: DataVersion = DataVersion()


class Waiting:
    """Counts them. ``changed`` is called when the table is another."""

    def __init__(self, kept: TimerMetrics, wall_ms: Callable[[], int]) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.state_version = 0
        """The master epoch, for the version of what is counted from now on."""
        self._wall_ms = wall_ms
        self.replace(kept)

    def table(self) -> TimerMetrics:
        return TimerMetrics(dict(self._topics), self._version)

    def replace(self, table: TimerMetrics) -> None:
        """Become what a master has, or what was kept."""
        self._topics, self._version = dict(table.timing_count), table.data_version
        self._names = {java_hash(name): name for name in self._topics}

    def copy(self, answer: bytes) -> None:
        """``replace`` by what a master answered to 61. Raises ``BodyError``."""
        told = TimerMetrics.from_json(answer)
        if told != self.table():
            self.replace(told)
            self.changed()

    def came(self, topic: str) -> None:
        self._names[java_hash(topic)] = topic
        self._add(topic, 1)

    def left(self, topic_hash: int) -> None:
        """One of that topic is done."""
        topic = self._names.get(topic_hash)
        if topic is not None:
            self._add(topic, -1)

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
        # a Java slave takes the numbers of its master when their version is another
        self._version = DataVersion(self.state_version, self._wall_ms(), self._version.counter + 1)
        self.changed()
