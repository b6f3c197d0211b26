"""Spares brokers for a while: those that failed, and those that are slow.

A table of numbers; time is passed in. Source: ``MQFaultStrategy`` and ``LatencyFaultToleranceImpl`` of RocketMQ 5.5.0,
where this is off by default and an answer's failure counts as ten seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Final

import attrs

from remoting.bodies.consumers import MessageQueue

FAILED_MS: Final = 10_000
"""A failure counts as an answer that took so long."""


@attrs.frozen
class Sparing:
    """A broker whose answer took ``latencies_ms[i]`` or more is spared for ``durations_ms[i]``."""

    latencies_ms: tuple[int, ...] = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
    durations_ms: tuple[int, ...] = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)

    def __attrs_post_init__(self) -> None:
        if len(self.latencies_ms) != len(self.durations_ms) or sorted(self.latencies_ms) != [*self.latencies_ms]:
            raise ValueError(f"latencies_ms = {self.latencies_ms}: must rise, with one of durations_ms for each")

    def duration_ms(self, latency_ms: float) -> int:
        at = bisect_right(self.latencies_ms, latency_ms)
        return self.durations_ms[at - 1] if at else 0


class Faults:
    """Keeps until when each broker group is spared, by name. Empty while all is well, and then costs nothing."""

    def __init__(self, sparing: Sparing | None = None) -> None:
        self._sparing = sparing or Sparing()
        self.slow_ms = next((
            latency for latency, duration in zip(self._sparing.latencies_ms, self._sparing.durations_ms, strict=True)
            if duration), float("inf"))
        """Below this an answer changes nothing."""
        self._until: dict[str, float] = {}

    def note(self, broker: str, latency_ms: float, now_ms: float) -> None:
        """An answer took so long; ``FAILED_MS``: none came."""
        duration = self._sparing.duration_ms(latency_ms)
        if duration:
            self._until[broker] = now_ms + duration

    def forgive(self, broker: str) -> None:
        """Spare it no more: it has another master, or answered fast."""
        self._until.pop(broker, None)

    def spared(self, now_ms: float) -> Collection[str]:
        """Return the brokers to pass over now."""
        if not self._until:
            return ()
        for broker in [broker for broker, until in self._until.items() if until <= now_ms]:
            del self._until[broker]
        return self._until.keys()


class RoundRobin:
    """The queues of a topic in turn."""

    __slots__ = ("_index",)

    def __init__(self, start: int = 0) -> None:
        self._index = start

    def pick(
        self, queues: Sequence[MessageQueue], spared: Collection[str] = (), last: str | None = None,
    ) -> MessageQueue:
        """The next that is not spared; if all are, one on another broker than the ``last``; if there is none, any."""
        count = len(queues)
        self._index = index = (self._index + 1) % count
        queue = queues[index]
        if not spared and last is None:
            return queue
        turn = [*queues[index:], *queues[:index]]
        for fit in (lambda queue: queue.broker_name not in spared and queue.broker_name != last,
                    lambda queue: queue.broker_name not in spared, lambda queue: queue.broker_name != last):
            for at, queue in enumerate(turn):
                if fit(queue):
                    self._index = (index + at) % count
                    return queue
        return turn[0]
