"""The part that takes messages: of producers, and what consumers give back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from broker.config import BrokerConfig, pick
from broker.consumers.part import ClientsPart
from broker.groups.part import GroupsPart
from broker.part import Part, Parts, Shared
from broker.rate import Rate
from broker.sending.config import SendingConfig
from broker.sending.sendback import SendBack
from broker.sending.sending import Sending
from broker.topics.part import TopicsPart
from remoting.endpoint import Handler

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page


class SendingPart(Part):
    def __init__(self, shared: Shared, before: Parts) -> None:
        config, standing, topics, groups = shared.config, shared.standing, before[TopicsPart], before[GroupsPart].table
        host, journal = config.store_host, shared.journal
        rules = [rule for part in before for rule in part.rules()]
        self.sending = Sending(
            pick(config, SendingConfig), topics.table, topics.file, groups, before[ClientsPart].locks, shared.puts,
            host, shared.rng, lambda: standing.role.takes_puts, of_parts=rules)
        self._send_back = SendBack(
            self.sending, topics.table, topics.file, groups, shared.puts, journal.log.record, host, shared.rng,
            of_parts=rules)
        self._rate = Rate(lambda: self.sending.counters.messages)

    def handlers(self) -> Mapping[int, Handler]:
        return {**self.sending.handlers(), **self._send_back.handlers()}

    def runtime_info(self) -> Mapping[str, str]:
        counters = self.sending.counters
        return {
            "putTps": self._rate.text(), "msgPutTotalTodayNow": str(counters.messages), "msgPutTotalTodayMorning": "0",
            "msgPutTotalYesterdayMorning": "0", "putMessageTimesTotal": str(counters.messages),
            "putMessageSizeTotal": str(counters.bytes), "putMessageFailedTimes": str(counters.refused),
            "putMessageAverageSize": str(counters.bytes / max(1, counters.messages))}

    def metrics(self, page: Page) -> Iterator[Metric]:
        counters = self.sending.counters
        yield page.counter("rocketmq_messages_in", "Messages stored.", [((), counters.messages)])
        yield page.counter("rocketmq_throughput_in", "Their bytes.", [((), counters.bytes)])
        yield page.counter("rocketmq_send_to_dlq_messages", "Dead letters.", [((), counters.dead_letters)])
        yield page.counter("broker_sends_refused", "Sends that stored nothing. Ours.", [((), counters.refused)])
        yield page.counter("broker_messages_sent_back", "Messages that consumers gave back. Ours.",
                           [((), counters.sent_back)])

    def configure(self, config: BrokerConfig) -> None:
        self.sending.configure(pick(config, SendingConfig))
        self.sending.permission = config.broker_permission

    def due_ns(self) -> int:
        return self._rate.due_ns

    def tick(self, now_ns: int) -> None:
        self._rate.sample(now_ns)
