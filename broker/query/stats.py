"""Statistics of the last minute, hour and day: counters by name and key, sampled at intervals.

Counting costs two additions; spans are made of samples of the counters. It does no I/O and has no clock.
Source: ``BrokerStatsManager`` and ``StatsItem`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from remoting.bodies.queries import BrokerStatsData, BrokerStatsItem

GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
"""By ``topic@group``: messages given to consumers."""
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
"""By ``topic@group``: bytes given to consumers."""
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
"""By cluster."""
TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
"""By topic: messages that became visible."""
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
"""By topic: bytes of records that senders brought here."""
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
"""By ``topic@group``: messages that consumers gave back."""
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
"""By cluster."""
BROKER_GET_WITHOUT_SYSTEM: Final = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"
BROKER_PUT_WITHOUT_SYSTEM: Final = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
"""Both by cluster; of topics that are not the system's own."""
BROKER_CK_NUMS: Final = "BROKER_CK_NUMS"
"""By cluster: checkpoints of POP that were stored."""
BROKER_ACK_NUMS: Final = "BROKER_ACK_NUMS"
"""By cluster: messages that were acknowledged to POP, or whose time was changed."""
Counted = tuple[str, Mapping[str, int]]
"""A name, and by key what was counted since this process began."""

SAMPLE_INTERVAL_MS: Final = 10_000
_MINUTE: Final = 7
"""Samples of a minute: one more than its intervals."""
_HOUR_EVERY: Final = 60
_HOUR: Final = 7
_DAY_EVERY: Final = 360
_DAY: Final = 25
_IDLE_SAMPLES: Final = 24 * _DAY_EVERY
"""Samples of a day: a counter that did not rise for so many is forgotten."""

Sample = tuple[int, int, int]
"""Time in nanoseconds, sum, how many times."""


@attrs.define(eq=False)
class _Item:
    sum: int = 0
    times: int = 0
    idle: int = 0
    """Samples since it last rose."""
    minute: deque[Sample] = attrs.field(factory=lambda: deque(maxlen=_MINUTE))
    hour: deque[Sample] = attrs.field(factory=lambda: deque(maxlen=_HOUR))
    day: deque[Sample] = attrs.field(factory=lambda: deque(maxlen=_DAY))


class Stats:
    """The statistics. ``cluster`` is the key of the broker's own counters; ``more`` are counters that others keep.

    ``put`` returns how many messages each topic has ever had; ``is_system`` whether a topic is the system's own."""

    def __init__(self, cluster: str, put: Callable[[], Mapping[str, int]], now_ns: Callable[[], int], *,
                 is_system: Callable[[str], bool] = lambda topic: False,
                 more: Callable[[], Iterable[Counted]] = tuple) -> None:
        self._cluster, self._put, self._now_ns = cluster, put, now_ns
        self._is_system, self._more = is_system, more
        self._items: dict[tuple[str, str], _Item] = {}
        self._samples = 0

    def got(self, group: str, topic: str, count: int, size: int) -> None:
        """Messages were given to a consumer (of ``Pulling.on_found``)."""
        key = f"{topic}@{group}"
        for name, where, value in (
                (GROUP_GET_NUMS, key, count), (GROUP_GET_SIZE, key, size), (BROKER_GET_NUMS, self._cluster, count),
                (BROKER_GET_WITHOUT_SYSTEM, self._cluster, 0 if self._is_system(topic) else count)):
            item = self._items.get((name, where))
            if item is None:
                item = self._made(name, where)
            item.sum += value
            item.times += 1

    def sample(self) -> None:
        """Take a sample; it is due every ``SAMPLE_INTERVAL_MS``."""
        now_ns, total, of_users = self._now_ns(), 0, 0
        for topic, count in self._put().items():
            total += count
            of_users += 0 if self._is_system(topic) else count
            self._set(TOPIC_PUT_NUMS, topic, count)
        self._set(BROKER_PUT_NUMS, self._cluster, total)
        self._set(BROKER_PUT_WITHOUT_SYSTEM, self._cluster, of_users)
        for name, counted in self._more():
            for where, count in counted.items():
                self._set(name, where, count)
        self._samples += 1
        for key, item in list(self._items.items()):
            item.idle = item.idle + 1 if item.minute and item.minute[-1][1] == item.sum else 0
            if item.idle > _IDLE_SAMPLES:
                del self._items[key]
                continue
            self._keep(item, (now_ns, item.sum, item.times))

    def _keep(self, item: _Item, sample: Sample) -> None:
        item.minute.append(sample)
        if not item.hour or self._samples % _HOUR_EVERY == 0:
            item.hour.append(sample)
        if not item.day or self._samples % _DAY_EVERY == 0:
            item.day.append(sample)

    def _set(self, name: str, key: str, value: int) -> None:
        item = self._items.get((name, key)) or self._made(name, key, 0 if self._samples else value)
        if value < item.sum:  # the topic was deleted and made again
            item.minute.clear()
            item.hour.clear()
            item.day.clear()
        item.times += value != item.sum
        item.sum = value

    def _made(self, name: str, key: str, value: int = 0) -> _Item:
        """Make a counter. ``value``: the sum before counting began."""
        item = self._items[name, key] = _Item(value)
        self._keep(item, (self._now_ns(), value, 0))
        return item

    # --- reading ---------------------------------------------------------------------------------------------

    def data(self, name: str, key: str) -> BrokerStatsData | None:
        """Return the counter's statistics; None: nothing of it was ever counted."""
        item = self._items.get((name, key))
        if item is None:
            return None
        now = self._now_ns(), item.sum, item.times
        return BrokerStatsData(*(_span(samples, now) for samples in (item.minute, item.hour, item.day)))

    def tps(self, name: str, key: str) -> float:
        """Rate per second over the last minute."""
        item = self._items.get((name, key))
        return 0.0 if item is None else _span(item.minute, (self._now_ns(), item.sum, item.times)).tps


def _span(samples: deque[Sample], now: Sample) -> BrokerStatsItem:
    """Return the rates from the oldest sample until now."""
    since_ns, before, times_before = samples[0] if samples else now
    count, times, seconds = now[1] - before, now[2] - times_before, (now[0] - since_ns) / 1e9
    return BrokerStatsItem(count, count / seconds if seconds else 0.0, count / times if times else 0.0)
