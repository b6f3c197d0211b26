"""The state of a broker in the words of code 28, and the rates that need a memory. Read when somebody asks.

Keys are those of ``AdminBrokerProcessor.prepareRuntimeInfo`` of RocketMQ 5.5.0, as far as they mean something here;
sizes of Java's thread pools are 0, since requests wait in no queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import attrs
import trio

from broker.config import BrokerConfig
from broker.services import Services
from broker.store.errors import StoreError
from remoting.codes import VERSION
from remoting.errors import DamagedRecord

SAMPLE_S: Final = 1.0
_SPANS_S: Final = (10, 60, 600)
_QUEUES: Final = ("send", "pull", "litePull", "query", "ack")
VERSION_NAME: Final = "V5_5_0"


@attrs.define
class Rate:
    """Of a counter that only rises, over the latest ten seconds, minute and ten minutes."""

    read: Callable[[], int]
    _samples: deque[tuple[float, int]] = attrs.field(factory=lambda: deque(maxlen=_SPANS_S[-1] + 1))

    def sample(self, now_s: float) -> None:
        self._samples.append((now_s, self.read()))

    def per_second(self, span_s: float) -> float:
        if not self._samples:
            return 0.0
        now_s, count = self._samples[-1]
        first_s, first = next((when, was) for when, was in self._samples if now_s - when <= span_s)
        return (count - first) / (now_s - first_s) if now_s > first_s else 0.0

    def text(self) -> str:
        """As Java writes it: three numbers."""
        return " ".join(f"{self.per_second(span_s):.2f}" for span_s in _SPANS_S)


class Runtime:
    """``run`` samples rates; ``disk_used`` is the share of the disk that is in use, 0 to 1."""

    def __init__(
        self, config: BrokerConfig, services: Services, *, wall_ms: Callable[[], int], disk_used: Callable[[], float],
    ) -> None:
        self._config, self._services, self._wall_ms, self._disk_used = config, services, wall_ms, disk_used
        self._booted_ms = wall_ms()
        sending, given = services.sending.counters, services.given
        self._put, self._get = Rate(lambda: sending.messages), Rate(lambda: given.pulls)
        self._transferred = Rate(lambda: given.messages)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        task_status.started()
        while True:
            now_s = trio.current_time()
            for rate in (self._put, self._get, self._transferred):
                rate.sample(now_s)
            await trio.sleep(SAMPLE_S)

    def table(self) -> Mapping[str, str]:
        """Answer to 28."""
        services, now_ms = self._services, self._wall_ms()
        journal, sending = services.journal, services.sending.counters
        alive_ms = now_ms - self._booted_ms
        days, hours, minutes, seconds = _split(alive_ms // 1_000)
        used = f"{self._disk_used():.4f}"
        empty = {f"{name}ThreadPool{what}": "0" for name in _QUEUES
                 for what in ("QueueSize", "QueueCapacity", "QueueHeadWaitTimeMills")}
        return {
            "brokerVersionDesc": VERSION_NAME, "brokerVersion": str(VERSION), "brokerActive": "true",
            "bootTimestamp": str(self._booted_ms), "runtimeMillis": str(alive_ms),
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]",
            "putTps": self._put.text(), "getTotalTps": self._get.text(), "getFoundTps": self._get.text(),
            "getTransferredTps": self._transferred.text(), "getTransferedTps": self._transferred.text(),
            "msgPutTotalTodayNow": str(sending.messages), "msgGetTotalTodayNow": str(services.given.messages),
            "msgPutTotalTodayMorning": "0", "msgPutTotalYesterdayMorning": "0",
            "msgGetTotalTodayMorning": "0", "msgGetTotalYesterdayMorning": "0",
            "putMessageTimesTotal": str(sending.messages), "putMessageSizeTotal": str(sending.bytes),
            "commitLogMinOffset": str(journal.begin), "commitLogMaxOffset": str(journal.end),
            "dispatchBehindBytes": str(journal.end - journal.store.dispatched_offset),
            "remainHowManyDataToFlush": f"{journal.end - journal.log.flushed_offset} B",
            "earliestMessageTimeStamp": str(self._earliest_ms()), "pageCacheLockTimeMills": "0",
            "commitLogDiskRatio": used, "consumeQueueDiskRatio": used,
            "brokerPermission": str(services.config.broker_permission),
            "brokerRole": "MASTER" if services.standing.role.leads else "SLAVE",
            **empty, **services.delays.running_stats(),
        }

    def _earliest_ms(self) -> int:
        journal = self._services.journal
        if journal.begin == journal.log.max_offset:
            return -1
        try:
            return journal.store.get_by_id(journal.log.next_offset(journal.begin)).store_time_ms
        except (StoreError, DamagedRecord):
            return -1


def _split(seconds: int) -> tuple[int, int, int, int]:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return days, hours, minutes, seconds
