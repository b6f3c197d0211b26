"""The clusters whose RTO is measured: ours and Java's by one plan, each server on a host and a disk of its own.

A sandbox of the failover campaign has one network of such hosts for all clusters of a run, which come one after the
other. Knows how both makers' servers are configured, started and ended, and nothing of what is done to them.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import attrs
import trio

from benchmarks.broker_gap import child_of
from harness.nemesis import disks, sandbox
from harness.nemesis.disks import Disk
from harness.nemesis.network import Network
from harness.processes.java import JVM, Release, settings
from harness.processes.java.servers import SMALL
from mqcluster.looking import ClusterView, look, until_settled
from mqcluster.plan import Durability, Hosts, Kind, Planned, Size, cluster
from mqcluster.processes import Cluster, ClusterError, Server
from remoting.address import split_address
from remoting.client import Client

GROUP: Final = "broker-a"
REPLICAS: Final = 3
PORT: Final = 20_000
DISK_BYTES: Final = 1 << 30
PATIENCE_S: Final = 120.0
NAMES: Final = ("namesrv", *(f"n{number}" for number in range(3)), *(f"{GROUP}-{number}" for number in range(REPLICAS)))
MODE: Final = Durability()
"""Acknowledged by all in sync, at least two: what both makers promise to keep."""
_SMALL: Final[Mapping[str, object]] = {
    "mappedFileSizeCommitLog": 8 << 20, "mappedFileSizeConsumeQueue": 240_000, "maxIndexNum": 40_000,
    "maxHashSlotNum": 10_000}
_MAINS: Final[Mapping[Kind, tuple[str, JVM]]] = {
    Kind.NAMESRV: ("org.apache.rocketmq.namesrv.NamesrvStartup", SMALL),
    Kind.CONTROLLER: ("org.apache.rocketmq.controller.ControllerStartup", SMALL),
    Kind.BROKER: ("org.apache.rocketmq.broker.BrokerStartup", JVM(heap_mb=512, heap_first_mb=256)),
}


@attrs.frozen
class Side:
    """One kind of cluster."""

    maker: str
    profile: str
    guarded: bool = False

    @property
    def name(self) -> str:
        return f"{self.maker}{', guarded' if self.guarded else ''}, {self.profile}"


@attrs.define(eq=False)
class Guarded(Server):
    """A broker of ours under its guardian: what is done to a process is done to the broker."""

    def signal(self, number: signal.Signals) -> None:
        try:
            broker = child_of(self.pid)
        except (OSError, ValueError):
            raise ClusterError(f"{self.plan.name}: its guardian has no broker at the moment") from None
        os.kill(broker, number)


@attrs.define(eq=False)
class JavaServer(Server):
    """One of Java's, without the leash of the harness: the sandbox ends it."""

    release: Release = attrs.field(kw_only=True)

    @property
    def command(self) -> Sequence[str]:
        main, jvm = _MAINS[self.plan.kind]
        (self.home / "tmp").mkdir(exist_ok=True)
        return ["env", "-u", "JAVA_TOOL_OPTIONS", self.release.java, *jvm.options(self.home), "-cp",
                self.release.classpath, main, "-c", str(self.file)]


@attrs.define(eq=False)
class Stand:
    """A cluster that runs, all in sync."""

    side: Side
    cluster: Cluster
    network: Network
    disks: Mapping[str, Disk]
    remoting: Client

    @property
    def namesrv(self) -> str:
        return self.cluster.servers["namesrv"].plan.address

    @property
    def _controllers(self) -> list[str]:
        return [each.plan.address for each in self.cluster.of_kind(Kind.CONTROLLER)]

    async def look(self) -> ClusterView:
        """As it is now, as far as anybody says."""
        return await look(self.remoting, self._controllers, [GROUP])

    async def settled(self) -> ClusterView:
        """Raises ``trio.TooSlowError``."""
        return await until_settled(self.remoting, self._controllers, [GROUP], REPLICAS, PATIENCE_S)

    async def without_backoff(self, view: ClusterView) -> ClusterView:
        """Ours hand over to another active controller, which counts elections of living masters anew. Raises
        ``ClusterError``, ``trio.TooSlowError``."""
        active = [each for each in self.cluster.of_kind(Kind.CONTROLLER) if each.plan.address == view.active]
        if self.side.maker == "java" or not active:
            return view
        await trio.to_thread.run_sync(self.cluster.stop, active)
        await trio.to_thread.run_sync(self.cluster.start, active)
        return await self.settled()

    async def raise_the_dead(self) -> None:
        """Start what ended by itself. Raises ``ClusterError``."""
        await trio.to_thread.run_sync(self.cluster.start, list(self.cluster.servers.values()))


def planned(side: Side, root: Path, network: Network) -> list[Planned]:
    """The same servers at the same addresses, each with its maker's configuration."""
    made = cluster(root, Size(3, 1, REPLICAS), PORT, MODE, {**_SMALL, "enableGuardian": side.guarded},
                   Hosts(network.address, network.bind), quick=side.profile == "quick")
    return [_in_java(each, made, root) for each in made] if side.maker == "java" else made


def _in_java(server: Planned, everybody: Sequence[Planned], root: Path) -> Planned:
    host, port = split_address(server.address)
    controllers = [each.address for each in everybody if each.kind is Kind.CONTROLLER]
    home = root / server.name
    match server.kind:
        case Kind.NAMESRV:
            values = settings.namesrv(home, host=host, port=port, extra={})
        case Kind.CONTROLLER:
            values = settings.dledger_controller(
                home, host=host, index=controllers.index(server.address), peers=controllers, extra={})
        case _:
            names = [each.address for each in everybody if each.kind is Kind.NAMESRV]
            values = settings.broker(
                home, host=host, announced=host, port=port, ha_port=port + 1, group=GROUP, cluster="DefaultCluster",
                namesrv=names, extra={
                    **settings.controlled(controllers), "totalReplicas": REPLICAS, "diskMaxUsedSpaceRatio": 75,
                    "allAckInSyncStateSet": MODE.all_ack, "minInSyncReplicas": MODE.min_in_sync})
    return attrs.evolve(server, settings=values)


def servers(side: Side, planned: Sequence[Planned], root: Path, network: Network,
            release: Release | None) -> dict[str, Server]:
    """Of these plans, not started."""
    made: dict[str, Server] = {}
    for each in planned:
        home, prefix = root / each.name, network.prefix(each.name)
        if side.maker == "java":
            assert release is not None
            made[each.name] = JavaServer(each, home, prefix, release=release)
        else:
            guarded = side.guarded and each.kind is Kind.BROKER
            made[each.name] = (Guarded if guarded else Server)(each, home, prefix)
    return made


@asynccontextmanager
async def stand(side: Side, root: Path, network: Network, remoting: Client,
                release: Release | None) -> AsyncIterator[Stand]:
    """Raises ``ClusterError`` or ``trio.TooSlowError`` when it does not come up."""
    plans = planned(side, root, network)
    mounted = disks.make(root, [each.name for each in plans if each.kind is Kind.BROKER], DISK_BYTES, sandbox.inside())
    there = Cluster.create(root, plans)
    there.servers = servers(side, plans, root, network, release)
    made = Stand(side, there, network, mounted, remoting)
    try:
        for kinds in ((Kind.NAMESRV, Kind.CONTROLLER), (Kind.BROKER,)):
            await trio.to_thread.run_sync(there.start, [each for kind in kinds for each in there.of_kind(kind)])
        await made.settled()
        yield made
    finally:
        with trio.CancelScope(shield=True):
            await network.heal()
            for disk in mounted.values():
                await disk.resume()
            for server in there.servers.values():
                _end(server)
            for disk in mounted.values():
                await trio.run_process(["umount", "--lazy", str(disk.place)], check=False, capture_stderr=True)
            shutil.rmtree(root, ignore_errors=True)


def _end(server: Server) -> None:
    """Of a guarded broker, the guardian first, which would start it again."""
    pids = [server.pid] if server.running else []
    if pids and isinstance(server, Guarded):
        with suppress(OSError, ValueError):
            pids.append(child_of(server.pid))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
