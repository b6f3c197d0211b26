"""The part that gives messages to consumers who pull. What a pull finds, and how one waits, is ``requests``'s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import trio

from broker.config import BrokerConfig, pick
from broker.consumers.part import ClientsPart
from broker.filters.part import FiltersPart
from broker.groups.part import GroupsPart
from broker.offsets.part import OffsetsPart
from broker.part import Part, Parts, Shared
from broker.pulling.checks import PullConfig
from broker.pulling.reading import ReadConfig
from broker.pulling.requests import Pulling
from broker.rate import Rate
from broker.standing import Role
from broker.topics.part import TopicsPart
from remoting.endpoint import Handler

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page


class PullingPart(Part):
    def __init__(self, shared: Shared, before: Parts) -> None:
        self.pulling = Pulling(
            pick(shared.config, PullConfig), pick(shared.config, ReadConfig), journal=shared.journal,
            topics=before[TopicsPart].table, groups=before[GroupsPart].table, offsets=before[OffsetsPart].table,
            consumers=before[ClientsPart].consumers, filters=before[FiltersPart].filters,
            standing=shared.standing, now_ns=shared.now_ns,
            memory=shared.memory_bytes)
        given = self.pulling.given
        self._pulls, self._messages = Rate(lambda: given.pulls), Rate(lambda: given.messages)
        self._misses, self._all = Rate(lambda: given.misses), Rate(lambda: given.pulls + given.misses)

    def handlers(self) -> Mapping[int, Handler]:
        return self.pulling.handlers()

    def runtime_info(self) -> Mapping[str, str]:
        pulls, messages = self._pulls.text(), self._messages.text()
        return {
            "getTotalTps": self._all.text(), "getFoundTps": pulls, "getMissTps": self._misses.text(),
            "getTransferredTps": messages, "getTransferedTps": messages,
            "msgGetTotalTodayNow": str(self.pulling.given.messages), "msgGetTotalTodayMorning": "0",
            "msgGetTotalYesterdayMorning": "0"}

    def metrics(self, page: Page) -> Iterator[Metric]:
        given = self.pulling.given
        yield page.counter("rocketmq_messages_out", "Messages given to consumers.", [((), given.messages)])
        yield page.counter("rocketmq_throughput_out", "Their bytes.", [((), given.bytes)])

    def configure(self, config: BrokerConfig) -> None:
        self.pulling.config, self.pulling.reads = pick(config, PullConfig), pick(config, ReadConfig)

    def role_changed(self, role: Role) -> None:
        self.pulling.role_changed()

    def all_seen(self) -> None:
        self.pulling.all_seen()

    def due_ns(self) -> int:
        return self._pulls.due_ns

    def tick(self, now_ns: int) -> None:
        for rate in (self._pulls, self._messages, self._misses, self._all):
            rate.sample(now_ns)

    def stopping(self) -> None:
        self.pulling.finish()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self.pulling.run(task_status=task_status)
