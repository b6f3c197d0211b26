"""The part that gives messages to consumers that pull. ``requests`` handles the pulls."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs
import trio

from broker.config import BrokerConfig, pick
from broker.consumers.part import ClientsPart
from broker.filters.part import FiltersPart
from broker.groups.part import GroupsPart
from broker.offsets.part import OffsetsPart
from broker.part import Part, Parts, Shared
from broker.pulling.checks import PullConfig
from broker.pulling.laggards import LOOK_INTERVAL_NS
from broker.pulling.reading import ReadConfig
from broker.pulling.requests import Pulling
from broker.rate import Rate
from broker.standing import Role
from broker.topics.part import TopicsPart
from remoting.endpoint import Handler

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker")


class PullingPart(Part):
    def __init__(self, shared: Shared, before: Parts) -> None:
        self._groups, self._standing = before[GroupsPart].table, shared.standing
        self._look_due_ns = shared.now_ns() + LOOK_INTERVAL_NS
        self.pulling = Pulling(
            pick(shared.config, PullConfig), pick(shared.config, ReadConfig), journal=shared.journal,
            topics=before[TopicsPart].table, groups=self._groups, offsets=before[OffsetsPart].table,
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
        self.pulling.holding.wake_all()

    def role_changed(self, role: Role) -> None:
        self.pulling.role_changed()

    def all_seen(self) -> None:
        self.pulling.all_seen()

    def due_ns(self) -> int:
        return min(self._pulls.due_ns, self._look_due_ns)

    def tick(self, now_ns: int) -> None:
        if self._pulls.due_ns <= now_ns:
            for rate in (self._pulls, self._messages, self._misses, self._all):
                rate.sample(now_ns)
        if self._look_due_ns <= now_ns:
            self._look_due_ns = now_ns + LOOK_INTERVAL_NS
            self._shut_out_laggards()

    def _shut_out_laggards(self) -> None:
        config = self.pulling.config
        found = self.pulling.laggards.look(config.consumer_fallbehind_threshold)
        if not (config.disable_consume_if_consumer_read_slowly and self._standing.role.leads):
            return
        for name, behind in found.items():
            group = self._groups.get(name)
            if group is not None and group.consume_enable:
                self._groups.update([attrs.evolve(group, consume_enable=False)])
                logger.warning("a group reads slowly, and may no longer consume", extra={
                    "group": name, "behind_bytes": behind})

    def stopping(self) -> None:
        self.pulling.finish()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self.pulling.run(task_status=task_status)
