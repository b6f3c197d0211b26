"""The state of a whole broker in the words of code 28; each part adds its own lines.

Keys are those of ``AdminBrokerProcessor.prepareRuntimeInfo`` of RocketMQ 5.5.0, as far as they mean something here.
Sizes of Java's thread pools are 0, since requests wait in no queue, and so are times that nobody measures here.
Exporters that read a fixed set of keys find all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.part import Part, Parts, Shared
from broker.store.errors import StoreError
from remoting.codes import VERSION
from remoting.errors import DamagedRecord

_QUEUES: Final = ("send", "pull", "litePull", "query", "ack")
_UNITS: Final = "KMGTPE"
VERSION_NAME: Final = "V5_5_0"
DISTRIBUTION: Final = " ".join(f"[{span}]:0" for span in (
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s", "2~3s", "3~4s", "4~5s",
    "5~10s", "10s~"))
"""Distribution of put times as Java writes it after its first minute: exporters cannot read the `null` of that
minute."""
UNMEASURED: Final[Mapping[str, str]] = {
    "putMessageEntireTimeMax": "0", "getMessageEntireTimeMax": "0", "putMessageDistributeTime": DISTRIBUTION,
    "dispatchMaxBuffer": "0", "startAcceptSendRequestTimeStamp": "0", "remainTransientStoreBufferNumbs": str(2**31 - 1),
    "remainHowManyDataToCommit": "0 B", "EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": "0",
}
"""Values of a Java broker that has just started, without a pool of buffers."""


class RuntimeInfoPart(Part):
    def __init__(self, shared: Shared, before: Parts) -> None:
        self._journal, self._standing, self._wall_ms = shared.journal, shared.standing, shared.wall_ms
        self._disk_used, self._log_used = shared.disk_used, shared.log_used
        self._booted_ms, self._files = shared.wall_ms(), shared.files

    def runtime_info(self) -> Mapping[str, str]:
        journal = self._journal
        alive_ms = self._wall_ms() - self._booted_ms
        days, hours, minutes, seconds = _split(alive_ms // 1_000)
        used, logs, space = self._disk_used(), self._log_used(), self._files.space()
        empty = {f"{name}ThreadPool{what}": "0" for name in _QUEUES
                 for what in ("QueueSize", "QueueCapacity", "QueueHeadWaitTimeMills")}
        return {
            "brokerVersionDesc": VERSION_NAME, "brokerVersion": str(VERSION), "brokerActive": "true",
            "bootTimestamp": str(self._booted_ms), "runtimeMillis": str(alive_ms),
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]",
            "commitLogMinOffset": str(journal.begin), "commitLogMaxOffset": str(journal.end),
            "dispatchBehindBytes": str(journal.end - journal.visible.offset),
            "remainHowManyDataToFlush": f"{journal.end - journal.log.flushed_offset} B",
            "earliestMessageTimeStamp": str(self._earliest_ms()), "pageCacheLockTimeMills": "0",
            "commitLogDiskRatio": _ratio(min(logs.values(), default=used)), "consumeQueueDiskRatio": _ratio(used),
            **{f"commitLogDiskRatio_{path}": _ratio(ratio) for path, ratio in logs.items()},
            "brokerRole": "MASTER" if self._standing.role.leads else "SLAVE",
            "commitLogDirCapacity": f"Total : {_readable(space.total)}, Free : {_readable(space.free)}.",
            **UNMEASURED, **empty,
        }

    def _earliest_ms(self) -> int:
        journal = self._journal
        if journal.begin == journal.log.max_offset:
            return -1
        try:
            return journal.log.record(journal.log.next_offset(journal.begin)).store_time_ms
        except (StoreError, DamagedRecord):
            return -1


def _ratio(used: float) -> str:
    return f"{used:.4f}"


def _readable(size: int) -> str:
    """Bytes as ``MixAll.humanReadableByteCount`` of Java writes them."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**power:.1f} {_UNITS[power - 1]}iB"


def _split(seconds: int) -> tuple[int, int, int, int]:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return days, hours, minutes, seconds
