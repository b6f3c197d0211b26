"""Plays the schedule: one or two faults at random times, held for some seconds and undone; then all must recover.

A seed decides faults and targets, but not the timing of processes: it repeats the schedule, not the run. After each
round every group must have a master and all replicas in sync. At the end the queues are read once more, and the logs of
a group's replicas are compared byte by byte.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import trio

from broker.client import ClientError, MessageQueue, connect
from harness.checkers.verdict import Valid, Verdict
from harness.nemesis.disks import Disk
from harness.nemesis.fault import Begun
from harness.nemesis.network import Network
from harness.scenarios.failovers.faults import EXPECTED, FAULTS, FILLS, STALLS, Busy, ClusterScene, Fault
from harness.scenarios.failovers.recording import JudgedHistory
from harness.scenarios.failovers.traffic import Traffic
from harness.scenarios.traffic import queues_of
from mqcluster.looking import ClusterView, look, until_settled
from mqcluster.plan import Durability, Kind, Planned, Size, cluster
from mqcluster.plan import Hosts as PlannedHosts
from mqcluster.processes import Cluster
from remoting.client import Client, open_client

TOPIC: Final = "failovers"
PORT: Final = 20_000
REPLICAS: Final = 3
PATIENCE_S: Final = 90.0
"""Longest recovery, even on a busy machine; after that the cluster counts as not recovered."""
HELD_S: Final = (0.3, 3.0)
HELD_SILENT_S: Final = (2.0, 9.0)
"""Faults that break no connection are held longer: only timeouts notice them."""
TWO_AT_ONCE: Final = 0.2


class Promise(Enum):
    """A promise of a mode; the value is its name in ``harness.checkers.queues``."""

    LOST = "lost"
    TWICE = "place"
    UNSEEN = "unseen"
    DENIED = "denied"
    PHANTOM = "phantom"


@attrs.frozen
class Mode:
    """The configuration of a group, and its promises."""

    durability: Durability
    settings: Mapping[str, object]
    promises: frozenset[Promise]

    @property
    def words(self) -> str:
        flush = self.settings.get("flushDiskType", "ASYNC_FLUSH")
        return f"{self.durability}, {flush}"


ALL: Final = frozenset(Promise)
PROMISED_BY_ALL: Final = frozenset({Promise.DENIED, Promise.PHANTOM})
MODES: Final[Mapping[str, Mode]] = {
    "safe": Mode(Durability(), {}, ALL),
    "synced": Mode(Durability(), {"flushDiskType": "SYNC_FLUSH"}, ALL),
    "alone": Mode(Durability(min_in_sync=1), {}, PROMISED_BY_ALL),
    "default": Mode(Durability(all_ack=False, min_in_sync=1), {}, PROMISED_BY_ALL),
}
"""``alone``: all members in sync acknowledge, and one may be enough; ``default``: RocketMQ's default."""

_BROKERS: Final[Mapping[str, object]] = {
    "controllerHeartBeatTimeoutMills": 3_000, "brokerHeartbeatInterval": 300, "masterLeaseMs": 1_500,
    "diskStallMs": 1_000, "mappedFileSizeCommitLog": 8 << 20, "mappedFileSizeConsumeQueue": 240_000,
    "maxIndexNum": 40_000, "maxHashSlotNum": 10_000, "cleanFileForciblyEnable": False,
}
"""Silence is noticed within 3 s, and a disk of some hundred megabytes is enough for a long run."""


@attrs.define(eq=False)
class Run:
    """A running campaign: its processes, its faults and its figures."""

    cluster: Cluster
    network: Network
    disks: Mapping[str, Disk]
    modes: Mapping[str, str]
    """Group -> its mode."""
    chance: Random
    recording: JudgedHistory
    say: Callable[[str], None]
    faults: Mapping[Fault, int] = attrs.field(factory=lambda: FAULTS)
    client: Client = attrs.field(init=False)
    queues: list[MessageQueue] = attrs.field(factory=list, init=False)
    traffic: Traffic = attrs.field(init=False)
    happened: Counter[str] = attrs.field(factory=Counter, init=False)
    failovers: int = 0
    gaps_ms: dict[str, list[float]] = attrs.field(factory=dict, init=False)
    """Fault -> longest times without an acknowledgement, in rounds with that fault alone."""
    verdicts: Mapping[str, Verdict] = attrs.field(factory=dict, init=False)
    """Group -> its verdict at the end."""
    began: float = attrs.field(factory=time.monotonic, init=False)

    async def play(self, failovers: int, seconds: float, producers: int, pause_s: float) -> None:
        """Play rounds until so many failovers happened or the time is over.

        Raises ``trio.TooSlowError`` if the cluster does not recover.
        """
        [namesrv] = self.cluster.of_kind(Kind.NAMESRV)
        self.traffic = Traffic(namesrv.plan.address, self.recording)
        async with open_client() as self.client:
            await self._settled()
            await self._topic(namesrv.plan.address)
            async with trio.open_nursery() as readers:
                async with trio.open_nursery() as senders:
                    for queue in self.queues:
                        readers.start_soon(self.traffic.read, queue, f"reader-{queue.broker_name}-{queue.queue_id}")
                        for number in range(producers):
                            senders.start_soon(self.traffic.produce, queue,
                                               f"{queue.broker_name}-{queue.queue_id}-{number}", pause_s)
                    await self._rounds(failovers, seconds)
                    self.traffic.stop.set()
                readers.cancel_scope.cancel()
            await self._settled()
            with trio.fail_after(PATIENCE_S):
                while True:
                    try:
                        for queue in self.queues:
                            await self.traffic.read_all(queue)
                        break
                    except ClientError as error:
                        self.say(f"the last reading begins again: {error}")
                        await trio.sleep(1)
        self.verdicts = self.recording.judges.verdicts()

    async def _rounds(self, failovers: int, seconds: float) -> None:
        ends, number = time.monotonic() + seconds, 0
        while self.failovers < failovers and time.monotonic() < ends:
            number += 1
            before = await self._settled()
            self.traffic.longest_s.clear()
            words, alone = await self._round(before)
            after = await self._settled()
            gap = 0.0
            for group, fault in alone.items():
                gap = self.traffic.longest_s.get(group, 0.0) * 1e3
                self.gaps_ms.setdefault(fault, []).append(gap)
            more = sum(after.groups[name].epoch - before.groups[name].epoch for name in self.modes)
            self.failovers += more
            self.say(f"{number}: {words}; {f'{gap:.0f} ms, ' if gap else ''}{self.failovers} of {failovers} failovers, "
                     f"{self.recording.judges.counts['acknowledged']:,} acknowledged")
            await trio.sleep(self.chance.uniform(0.1, 0.6))

    async def _round(self, view: ClusterView) -> tuple[str, dict[str, str]]:
        """Play one or two faults; returns them in words, and group and fault if it was one fault of a master."""
        group = self.chance.choice(sorted(self.modes))
        scene = ClusterScene(self.cluster, self.network, self.disks, view, group, self.chance)
        begun: list[Begun] = []
        chosen = [self._draw() for _ in range(2 if self.chance.random() < TWO_AT_ONCE else 1)]
        for fault in chosen:
            try:
                begun.append(await fault(scene))
            except Busy:
                continue
            self.happened[fault.__name__] += 1
            silent = not fault.__name__.startswith("kill")
            await trio.sleep(self.chance.uniform(*(HELD_SILENT_S if silent else HELD_S)))
        for each in reversed(begun):
            await each.undo()
        expected = len(chosen) == 1 and chosen[0] in EXPECTED
        alone = {scene.group: chosen[0].__name__} if expected else {}
        return f"{scene.group}: {' and '.join(each.words for each in begun)}", alone

    def _draw(self) -> Fault:
        kinds = {each.kind for each in self.disks.values()}
        possible = {fault: weight for fault, weight in self.faults.items()
                    if (fault not in STALLS or all(kind.stalls for kind in kinds))
                    and (fault not in FILLS or all(kind.fills for kind in kinds))}
        [fault] = self.chance.choices(list(possible), list(possible.values()))
        return fault

    async def _settled(self) -> ClusterView:
        controllers = [each.plan.address for each in self.cluster.of_kind(Kind.CONTROLLER)]
        try:
            return await until_settled(self.client, controllers, list(self.modes), REPLICAS, PATIENCE_S)
        except trio.TooSlowError:
            view = await look(self.client, controllers, list(self.modes))
            self.say(f"not well again after {PATIENCE_S:g} s: {view}")
            raise

    async def _topic(self, namesrv: str) -> None:
        async with connect([namesrv]) as client:
            with trio.fail_after(PATIENCE_S):
                await client.create_topic(TOPIC, queues=1)
                self.queues = await queues_of(client, TOPIC, list(self.modes))

    @property
    def result(self) -> dict[str, Any]:
        """The figures of the run, for people and files."""
        counts = self.recording.judges.counts
        gaps = {fault: sorted(each) for fault, each in sorted(self.gaps_ms.items())}
        return {
            "failovers": self.failovers, "minutes": round((time.monotonic() - self.began) / 60, 1),
            "modes": {group: MODES[mode].words for group, mode in self.modes.items()},
            "faults": dict(sorted(self.happened.items())),
            "acknowledged": counts["acknowledged"], "unknown": counts["unknown"], "refused": counts["refused"],
            "read": counts["received"], "at the end": counts["read at the end"],
            "gaps, ms": {fault: {"rounds": len(each), "p50": _at(each, 0.5), "p99": _at(each, 0.99)}
                         for fault, each in gaps.items()},
            "verdicts": {group: each.why for group, each in self.verdicts.items()},
            "broken": broken(self.verdicts, self.modes),
        }


def broken(verdicts: Mapping[str, Verdict], modes: Mapping[str, str]) -> list[str]:
    """Broken promises of the groups' modes, and undecided verdicts, in words."""
    words = []
    for group, verdict in verdicts.items():
        counted = {each.value for each in ALL - MODES[modes[group]].promises}
        if verdict.valid is Valid.UNKNOWN:
            words.append(f"{group}: nobody can tell: {verdict.why}")
        words += [f"{group}: {each.promise}: {each.words}" for each in verdict.broken if each.promise not in counted]
    return words


def _at(ordered: Sequence[float], share: float) -> float | None:
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 1) if ordered else None


def planned(root: Path, modes: Mapping[str, str], network: Network) -> list[Planned]:
    """Plan three controllers, a name server, and three brokers for each group."""
    made = cluster(root, Size(3, len(modes), REPLICAS), PORT, Durability(), _BROKERS,
                   PlannedHosts(network.address, network.bind))
    return [_in_mode(each, MODES[modes[each.group]]) if each.kind is Kind.BROKER else each for each in made]


def _in_mode(broker: Planned, mode: Mode) -> Planned:
    return attrs.evolve(broker, settings={**broker.settings, **mode.durability.settings, **mode.settings},
                        mode=mode.words)


def groups(modes: Sequence[str]) -> dict[str, str]:
    """Group -> mode, a group for each mode given."""
    return {f"broker-{letter}": mode for letter, mode in zip("abcdefghijklmnopqrstuvwxyz", modes, strict=False)}


def names(modes: Mapping[str, str]) -> list[str]:
    """The names of all servers, as in ``planned``."""
    return ["namesrv", *(f"n{number}" for number in range(3)),
            *(f"{group}-{number}" for group in modes for number in range(REPLICAS))]


def differing(root: Path, group: str) -> list[str]:
    """Return where the commit logs of a group's stopped replicas differ, up to the end of the shortest."""
    logs = {number: _log(root / f"{group}-{number}" / "store" / "commitlog") for number in range(REPLICAS)}
    found, least = [], min(len(log.rstrip(b"\0")) for log in logs.values())
    for number, log in logs.items():
        if log[:least] != logs[0][:least]:
            at = next(at for at in range(least) if log[at] != logs[0][at])
            found.append(f"{group}-{number} differs from {group}-0 at byte {at:,} of {least:,}")
    return found


def _log(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.name.isdigit())
