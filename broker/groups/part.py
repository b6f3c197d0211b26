"""The part of the consumer groups: their table, its file, and what administrators do with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.config import BrokerConfig, pick
from broker.groups.admin import GroupAdmin
from broker.groups.table import GroupsConfig, GroupTable
from broker.part import Part, Parts, Shared, Table
from broker.standing import Role
from broker.store.tables import SubscriptionGroups, load
from remoting.codes import RequestCode
from remoting.endpoint import Handler

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page


class GroupsPart(Part):
    def __init__(self, shared: Shared, before: Parts) -> None:
        self.table = GroupTable(
            pick(shared.config, GroupsConfig), shared.wall_ms, load(shared.files, SubscriptionGroups))
        self._file = shared.table_file(self.table.snapshot)
        self.admin = GroupAdmin(self.table, self._file.saved)
        self.table.on_change = self._file.changed

    def handlers(self) -> Mapping[int, Handler]:
        return self.admin.handlers()

    def tables(self) -> Sequence[Table]:
        return (Table(self._file, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.table.copy, self.table.join),)

    def metrics(self, page: Page) -> Iterator[Metric]:
        yield page.gauge("rocketmq_consumer_group_number", "Consumer groups.", [((), len(self.table.groups))])

    def configure(self, config: BrokerConfig) -> None:
        self.table.config = pick(config, GroupsConfig)

    def role_changed(self, role: Role) -> None:
        self.table.state_version = role.epoch
