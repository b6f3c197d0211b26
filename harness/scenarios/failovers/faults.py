"""The faults of a cluster, each with its undoing.

They are those of ``harness.nemesis``, applied to a master, a slave or the active controller. Two faults at once never
hit the same server: the undoing of one could wait for ever for a disk that the other froze.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import attrs
import trio

from harness.nemesis.disks import Disk, empty
from harness.nemesis.fault import Begun
from harness.nemesis.faults import fault
from harness.nemesis.network import CLIENTS, Network
from mqcluster.looking import ClusterView
from mqcluster.plan import Kind
from mqcluster.processes import Cluster, ClusterError, Server


@attrs.frozen
class ClusterServer:
    """A server of ``mqcluster`` as a target of faults."""

    cluster: Cluster
    server: Server

    @property
    def name(self) -> str:
        return self.server.plan.name

    @property
    def kind(self) -> str:
        return self.server.plan.kind.value

    @property
    def ports(self) -> Mapping[str, str]:
        return {"remoting": self.server.plan.address}

    @property
    def data(self) -> Path:
        return self.server.home / "store"

    @property
    def running(self) -> bool:
        return self.server.running

    @property
    def pid(self) -> int:
        return self.server.pid if self.server.running else 0

    async def start(self) -> None:
        await trio.to_thread.run_sync(self.cluster.start, [self.server])

    async def kill(self) -> None:
        with suppress(ClusterError):  # the server ended by itself
            await trio.to_thread.run_sync(self.server.signal, signal.SIGKILL)

    async def stop(self) -> None:
        await trio.to_thread.run_sync(self.cluster.stop, [self.server])

    def pause(self) -> None:
        self.server.signal(signal.SIGSTOP)

    def resume(self) -> None:
        with suppress(ClusterError):  # another fault killed the server
            self.server.signal(signal.SIGCONT)

    async def wipe(self) -> None:
        await trio.to_thread.run_sync(empty, self.data)

    def upgrade(self) -> bool:
        return False


@attrs.define
class ClusterScene:
    """The targets of faults, with the roles that they had before the round."""

    cluster: Cluster
    network: Network
    disks: Mapping[str, Disk]
    view: ClusterView
    group: str
    chance: Random
    taken: set[str] = attrs.field(factory=set)
    """Servers that a fault of this round hits already."""

    @property
    def master(self) -> Server:
        return self._take(each for each in self._brokers() if each.plan.address == self.view.groups[self.group].master)

    @property
    def slave(self) -> Server:
        return self._take(each for each in self._brokers() if each.plan.address != self.view.groups[self.group].master)

    @property
    def active(self) -> Server:
        return self._take(each for each in self.cluster.of_kind(Kind.CONTROLLER)
                          if each.plan.address == self.view.active)

    def everybody(self) -> list[Server]:
        """All brokers of the group and all controllers."""
        return [self._take([each]) for each in (*self._brokers(), *self.cluster.of_kind(Kind.CONTROLLER))]

    @property
    def nodes(self) -> dict[str, ClusterServer]:
        return {name: ClusterServer(self.cluster, server) for name, server in self.cluster.servers.items()}

    async def chosen(self, selector: str | Sequence[str]) -> list[str]:
        await trio.lowlevel.checkpoint()
        return [selector] if isinstance(selector, str) else list(selector)

    def _brokers(self) -> list[Server]:
        return [each for each in self.cluster.of_kind(Kind.BROKER) if each.plan.group == self.group]

    def _take(self, among: Iterable[Server]) -> Server:
        """Choose a server and mark it as taken. Raises ``Busy`` if all are taken."""
        free = [each for each in among if each.plan.name not in self.taken]
        if not free:
            raise Busy
        chosen = self.chance.choice(free)
        self.taken.add(chosen.plan.name)
        return chosen


class Busy(Exception):
    """Another fault of this round hits that server."""


Fault = Callable[[ClusterScene], Awaitable[Begun]]


async def _do(scene: ClusterScene, name: str, servers: Iterable[Server], **args: object) -> Begun:
    """Begin a fault of the registry on these servers."""
    kind = fault(name)
    return await kind.begin(scene, [each.plan.name for each in servers], kind.checked(args))


async def kill_master(scene: ClusterScene) -> Begun:
    return await _do(scene, "kill", [scene.master])


async def kill_slave(scene: ClusterScene) -> Begun:
    return await _do(scene, "kill", [scene.slave])


async def kill_active_controller(scene: ClusterScene) -> Begun:
    return await _do(scene, "kill", [scene.active])


async def kill_both(scene: ClusterScene) -> Begun:
    """Kill the master and the active controller."""
    return await _do(scene, "kill", [scene.active, scene.master])


async def kill_both_slaves(scene: ClusterScene) -> Begun:
    return await _do(scene, "kill", [scene.slave, scene.slave])


async def kill_slaves_then_master(scene: ClusterScene) -> Begun:
    """Pause the slaves while sends wait for them and kill them, then the master; start the slaves before it."""
    slaves, master = (scene.slave, scene.slave), scene.master
    await _do(scene, "pause", slaves)
    await trio.sleep(scene.chance.uniform(0.2, 0.6))
    killed = await _do(scene, "kill", slaves)
    await trio.sleep(scene.chance.uniform(0.1, 3.5))
    last = await _do(scene, "kill", [master])

    async def start() -> None:
        await killed.undo()
        await trio.sleep(scene.chance.uniform(0.5, 3.0))
        await last.undo()

    return Begun(f"stop the slaves, {killed.words}, then {last.words}", start)


async def kill_everything(scene: ClusterScene) -> Begun:
    """Kill all brokers of the group and all controllers at once."""
    return await _do(scene, "kill", scene.everybody())


async def stop_master(scene: ClusterScene) -> Begun:
    """Send SIGSTOP to the master: it is silent, and its connections stay."""
    return await _do(scene, "pause", [scene.master])


async def stop_slave(scene: ClusterScene) -> Begun:
    return await _do(scene, "pause", [scene.slave])


async def stop_active_controller(scene: ClusterScene) -> Begun:
    return await _do(scene, "pause", [scene.active])


async def cut_master(scene: ClusterScene) -> Begun:
    return await _do(scene, "cut", [scene.master])


async def cut_master_from_clients(scene: ClusterScene) -> Begun:
    """Cut the master off from clients, not from servers."""
    return await _do(scene, "cut", [scene.master], **{"from": [CLIENTS]})


async def lose_masters_host(scene: ClusterScene) -> Begun:
    """Kill the master without closing its connections, as when a host loses power."""
    return await _do(scene, "host-loss", [scene.master])


async def mute_master(scene: ClusterScene) -> Begun:
    """Drop all that the master sends; it still receives."""
    return await _do(scene, "cut", [scene.master], side="out")


async def deafen_master(scene: ClusterScene) -> Begun:
    """Drop all that the master should receive; it still sends."""
    return await _do(scene, "cut", [scene.master], side="in")


async def cut_master_from_controllers(scene: ClusterScene) -> Begun:
    controllers = [each.plan.name for each in scene.cluster.of_kind(Kind.CONTROLLER)]
    return await _do(scene, "cut", [scene.master], **{"from": controllers})


async def cut_master_from_slaves(scene: ClusterScene) -> Begun:
    brokers = [name for name in scene.cluster.servers if name.startswith(scene.group)]
    return await _do(scene, "cut", [scene.master], **{"from": brokers})


async def cut_slave(scene: ClusterScene) -> Begun:
    return await _do(scene, "cut", [scene.slave])


async def cut_active_controller(scene: ClusterScene) -> Begun:
    return await _do(scene, "cut", [scene.active])


async def stall_masters_disk(scene: ClusterScene) -> Begun:
    return await _do(scene, "stall-disk", [scene.master])


async def stall_slaves_disk(scene: ClusterScene) -> Begun:
    return await _do(scene, "stall-disk", [scene.slave])


async def stall_masters_syncs(scene: ClusterScene) -> Begun:
    """Stall the syncs of the master's disk: it can write, but no write becomes durable."""
    return await _do(scene, "stall-syncs", [scene.master])


async def stall_slaves_syncs(scene: ClusterScene) -> Begun:
    return await _do(scene, "stall-syncs", [scene.slave])


async def stall_active_controllers_disk(scene: ClusterScene) -> Begun:
    return await _do(scene, "stall-disk", [scene.active])


async def fill_masters_disk(scene: ClusterScene) -> Begun:
    return await _do(scene, "fill-disk", [scene.master])


async def fill_slaves_disk(scene: ClusterScene) -> Begun:
    return await _do(scene, "fill-disk", [scene.slave])


async def fill_active_controllers_disk(scene: ClusterScene) -> Begun:
    return await _do(scene, "fill-disk", [scene.active])


FAULTS: Final[Mapping[Fault, int]] = {
    kill_master: 12, kill_slave: 2, kill_active_controller: 2, kill_both: 3, kill_both_slaves: 1,
    kill_slaves_then_master: 2, kill_everything: 2,
    stop_master: 1, stop_slave: 1, stop_active_controller: 1,
    cut_master: 1, mute_master: 1, deafen_master: 1, cut_master_from_controllers: 1, cut_master_from_slaves: 1,
    cut_master_from_clients: 1, lose_masters_host: 1, cut_slave: 1, cut_active_controller: 1,
    stall_masters_disk: 1, stall_slaves_disk: 1, stall_active_controllers_disk: 1,
    stall_masters_syncs: 1, stall_slaves_syncs: 1,
    fill_masters_disk: 1, fill_slaves_disk: 1, fill_active_controllers_disk: 1,
}
"""Fault -> its weight in the draw."""
STALLS: Final = frozenset({
    stall_masters_disk, stall_slaves_disk, stall_active_controllers_disk, stall_masters_syncs, stall_slaves_syncs})
FILLS: Final = frozenset({fill_masters_disk, fill_slaves_disk, fill_active_controllers_disk})
EXPECTED: Final = frozenset({kill_master, kill_both, stall_masters_disk, stall_masters_syncs, fill_masters_disk})
"""Faults after which a group soon has another master, if there is no other fault."""
