"""The part of filters over properties: what groups have registered, its file, and how replicas copy it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker.config import BrokerConfig, pick
from broker.filters.table import GET_ALL_FILTERS, PATH, ConsumerFilters, FilterKeys, Filters
from broker.part import Part, Parts, Shared, Table
from broker.store.tables import load
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler

_CLEAN_NS: Final = 600 * 1_000_000_000


class FiltersPart(Part):
    keys = FilterKeys

    def __init__(self, shared: Shared, before: Parts) -> None:
        self.filters = Filters(
            pick(shared.config, FilterKeys), shared.wall_ms, load(shared.files, ConsumerFilters, PATH))
        self._file = shared.table_file(self.filters.snapshot, path=PATH)
        self.filters.on_change = self._file.changed
        self._due_ns = shared.now_ns() + _CLEAN_NS

    def handlers(self) -> Mapping[int, Handler]:
        return {GET_ALL_FILTERS: self._all}

    def tables(self) -> Sequence[Table]:
        return (Table(self._file, GET_ALL_FILTERS, self.filters.copy, self.filters.copy),)

    def configure(self, config: BrokerConfig) -> None:
        self.filters.config = pick(config, FilterKeys)

    def due_ns(self) -> int:
        return self._due_ns

    def tick(self, now_ns: int) -> None:
        self._due_ns = now_ns + _CLEAN_NS
        self.filters.clean()

    def _all(self, _: Connection, request: Command) -> Command:
        return response(request, body=self.filters.snapshot().to_json())
