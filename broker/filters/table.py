"""The filters that groups have registered by heartbeats: ``config/consumerFilter.json``, as Java writes it.

A filter that its group no longer wants is dead, and still there for a day. It does no I/O. Replicas copy the table, and
hear most heartbeats themselves: of two filters the one with the higher version is newer.
Source: ``ConsumerFilterManager`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import attrs

from broker.filters.bloom import BITS, positions
from broker.filters.errors import FilterIllegal
from broker.filters.expressions import SQL92, Expression, compiled
from broker.filters.numbers import LONG_MAX
from remoting.bodies.consumers import TAG, SubscriptionData
from remoting.body import Body, body
from remoting.daemon.keys import key
from remoting.fields import Int32, Int64

PATH: Final = "config/consumerFilter.json"
GET_ALL_FILTERS: Final = 61_021
"""Ours: the whole table. Java has no request for it."""
FILTERS_MAX: Final = 20_000
"""Ours: most filters of all groups."""
CHARACTERS_MAX: Final = 2 << 20
"""Ours: most characters of all expressions; compiled ones take some hundred times as much memory."""


@body
class BloomFilterData(Body):
    """Bits that Java looks for with ``enableCalcFilterBitMap``."""

    bit_num: Int32 = BITS
    bit_pos: list[Int32] = attrs.field(factory=list)


@body
class FilterData(Body):
    """A group's filter for a topic, and since when it has it; times in milliseconds. ``dead_time`` 0: it lives."""

    topic: str
    consumer_group: str
    expression: str | None = None
    expression_type: str | None = SQL92
    born_time: Int64 = 0
    dead_time: Int64 = 0
    dead: bool = False
    client_version: Int64 = 0
    bloom_filter_data: BloomFilterData | None = None


@body
class TopicFilters(Body):
    """The filters of one topic, by group."""

    topic: str
    group_filter_data: dict[str, FilterData] = attrs.field(factory=dict)


@body
class ConsumerFilters(Body):
    """``consumerFilter.json``, and the answer to 61021."""

    filter_data_by_topic: dict[str, TopicFilters] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class FilterKeys:
    """The keys of the broker's configuration that belong to filters."""

    enable_property_filter: bool = key(False, "consumers may filter by properties, with SQL92", live=True)
    filter_support_retry: bool = key(
        False, "messages that a group is given again pass its filter again", live=True)
    filter_data_clean_time_span: int = key(
        86_400_000, "ms after which a filter that no member wants any more is forgotten", least=0, most=LONG_MAX,
        live=True)


@attrs.define
class Registered:
    """One group's filter of a topic."""

    expression: Expression
    version: int
    born_ms: int
    dead_ms: int = 0


class Filters:
    """The table. ``config`` may be replaced at any time."""

    def __init__(self, config: FilterKeys, wall_ms: Callable[[], int], kept: ConsumerFilters | None = None) -> None:
        """``kept``: the table at the last stop; groups that still want their filters will say so."""
        self.config = config
        self.on_change: Callable[[], None] = lambda: None
        self._wall_ms = wall_ms
        self._groups: dict[str, dict[str, Registered]] = {}
        self._count = self._characters = 0
        for data in _all(kept or ConsumerFilters()):
            self._take(data, dead_ms=data.dead_time or max(data.born_time, wall_ms() - 30_000))

    def __len__(self) -> int:
        return self._count

    def get(self, group: str, topic: str) -> Registered | None:
        """The filter of this group and topic, dead or alive."""
        found = self._groups.get(group)
        return None if found is None else found.get(topic)

    def has(self, group: str) -> bool:
        """Return whether it has a filter for any topic."""
        return group in self._groups

    def cost(self, group: str) -> int:
        """Return the cost of its dearest filter; 0: it has none."""
        return max((found.expression.cost for found in self._groups.get(group, {}).values()), default=0)

    # --- heartbeats --------------------------------------------------------------------------------------------

    def register(self, group: str, wanted: Collection[SubscriptionData]) -> None:
        """Register what a member says that its group wants now; other filters of the group die."""
        for data in wanted:
            if data.expression_type not in (None, "", TAG) and data.sub_string:
                self._register(group, data)
        topics = {data.topic for data in wanted}
        for topic, registered in self._groups.get(group, {}).items():
            if topic not in topics:
                self._kill(registered)

    def _register(self, group: str, data: SubscriptionData) -> None:
        present = self.get(group, data.topic)
        if present is not None and data.sub_version <= present.version:
            if data.sub_version == present.version and present.dead_ms:
                present.dead_ms = 0
                self.on_change()
            return
        try:
            expression = compiled(data.sub_string, data.expression_type)
        except FilterIllegal:  # the group's pulls are refused
            if present is not None:
                self._remove(group, data.topic)
                self.on_change()
            return
        if present is not None and present.expression.text == expression.text:
            present.version, present.dead_ms = data.sub_version, 0
        else:
            self._put(group, data.topic, Registered(expression, data.sub_version, self._wall_ms()))
        self.on_change()

    def unregister(self, group: str) -> None:
        """Let a group's filters die: its last member is gone."""
        for registered in self._groups.get(group, {}).values():
            self._kill(registered)

    def _kill(self, registered: Registered) -> None:
        if not registered.dead_ms:
            registered.dead_ms = self._wall_ms()
            self.on_change()

    # --- the table -------------------------------------------------------------------------------------------

    def clean(self) -> None:
        """Forget filters that have been dead for too long."""
        limit_ms = self._wall_ms() - self.config.filter_data_clean_time_span
        self._forget(key for key, found in self._items() if found.dead_ms and found.dead_ms <= limit_ms)

    def snapshot(self) -> ConsumerFilters:
        """All filters, as ``consumerFilter.json`` holds them."""
        topics: dict[str, TopicFilters] = {}
        for (group, topic), found in self._items():
            topics.setdefault(topic, TopicFilters(topic)).group_filter_data[group] = FilterData(
                topic, group, found.expression.text, born_time=found.born_ms, dead_time=found.dead_ms,
                dead=bool(found.dead_ms), client_version=found.version,
                bloom_filter_data=BloomFilterData(BITS, positions(group, topic)))
        return ConsumerFilters(topics)

    def copy(self, answer: bytes) -> None:
        """Take over a master's filters that are newer than those of heartbeats here. Raises ``BodyError``."""
        for data in _all(ConsumerFilters.from_json(answer)):
            present = self.get(data.consumer_group, data.topic)
            if present is None or data.client_version > present.version:
                self._take(data, dead_ms=data.dead_time)
                self.on_change()

    def _take(self, data: FilterData, dead_ms: int) -> None:
        try:
            expression = compiled(data.expression, data.expression_type)
        except FilterIllegal:
            return
        self._put(data.consumer_group, data.topic, Registered(
            expression, data.client_version, data.born_time, dead_ms))

    def _items(self) -> Iterator[tuple[tuple[str, str], Registered]]:
        for group, topics in self._groups.items():
            for topic, found in topics.items():
                yield (group, topic), found

    def _put(self, group: str, topic: str, registered: Registered) -> None:
        """Keep a filter. If there is no room even without the dead ones, it is dropped, and pulls are told so."""
        self._remove(group, topic)
        if not self._has_room(registered):
            self._forget(key for key, found in self._items() if found.dead_ms)
            if not self._has_room(registered):
                return
        self._groups.setdefault(group, {})[topic] = registered
        self._count += 1
        self._characters += len(registered.expression.text)

    def _has_room(self, registered: Registered) -> bool:
        return self._count < FILTERS_MAX and self._characters + len(registered.expression.text) <= CHARACTERS_MAX

    def _forget(self, keys: Iterable[tuple[str, str]]) -> None:
        for group, topic in list(keys):
            self._remove(group, topic)
            self.on_change()

    def _remove(self, group: str, topic: str) -> None:
        topics = self._groups.get(group)
        if topics is None or (found := topics.pop(topic, None)) is None:
            return
        self._count -= 1
        self._characters -= len(found.expression.text)
        if not topics:
            del self._groups[group]


def _all(table: ConsumerFilters) -> Iterator[FilterData]:
    for topic in table.filter_data_by_topic.values():
        yield from topic.group_filter_data.values()
