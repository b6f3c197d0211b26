"""What is done to a cluster, each with its undoing, in a few lines that a person can read.

Each begins at once and names what it did; undoing it is what a good operator, or the weather, would do some seconds
later. Faults of one moment never share a server, so that nobody waits for a disk that nobody will thaw.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Final

import attrs
import trio

from harness.nemesis.disks import Disk
from harness.nemesis.fault import Begun
from harness.nemesis.network import CLIENTS, Network
from mqcluster.looking import ClusterView
from mqcluster.plan import Kind
from mqcluster.processes import Cluster, Server


@attrs.define
class ClusterScene:
    """What there is to do something to, as it was when everything was well."""

    cluster: Cluster
    network: Network
    disks: Mapping[str, Disk]
    view: ClusterView
    group: str
    chance: Random
    taken: set[str] = attrs.field(factory=set)
    """Servers that something is done to already."""

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

    @property
    def standby(self) -> Server:
        """A controller that is not the active one."""
        return self._take(each for each in self.cluster.of_kind(Kind.CONTROLLER)
                          if each.plan.address != self.view.active)

    def everybody(self) -> list[Server]:
        """Of the group and the controllers."""
        return [self._take([each]) for each in (*self._brokers(), *self.cluster.of_kind(Kind.CONTROLLER))]

    def others(self, server: Server) -> list[str]:
        """Hosts of all but this one, and the clients'."""
        return [CLIENTS, *(name for name in self.cluster.servers if name != server.plan.name)]

    def _brokers(self) -> list[Server]:
        return [each for each in self.cluster.of_kind(Kind.BROKER) if each.plan.group == self.group]

    def _take(self, among: Iterable[Server]) -> Server:
        """Raises ``Busy`` where something is done to each of them already."""
        free = [each for each in among if each.plan.name not in self.taken]
        if not free:
            raise Busy
        chosen = self.chance.choice(free)
        self.taken.add(chosen.plan.name)
        return chosen


class Busy(Exception):
    """Another fault of this moment has that server."""


Fault = Callable[[ClusterScene], Awaitable[Begun]]


async def _killed(scene: ClusterScene, *servers: Server) -> Begun:
    async with trio.open_nursery() as nursery:
        for server in servers:
            nursery.start_soon(trio.to_thread.run_sync, server.signal, signal.SIGKILL)

    async def start() -> None:
        await trio.to_thread.run_sync(scene.cluster.start, servers)

    return Begun(f"kill -9 {_names(servers)}", start)


async def kill_master(scene: ClusterScene) -> Begun:
    return await _killed(scene, scene.master)


async def kill_slave(scene: ClusterScene) -> Begun:
    return await _killed(scene, scene.slave)


async def kill_active_controller(scene: ClusterScene) -> Begun:
    return await _killed(scene, scene.active)


async def kill_both(scene: ClusterScene) -> Begun:
    """Master and active controller."""
    return await _killed(scene, scene.active, scene.master)


async def kill_both_slaves(scene: ClusterScene) -> Begun:
    return await _killed(scene, scene.slave, scene.slave)


async def kill_slaves_then_master(scene: ClusterScene) -> Begun:
    """The slaves stand still while sends wait for them, and die; then the master does, and they are back before it."""
    slaves, master = (scene.slave, scene.slave), scene.master
    for slave in slaves:
        slave.signal(signal.SIGSTOP)
    await trio.sleep(scene.chance.uniform(0.2, 0.6))
    killed = await _killed(scene, *slaves)
    await trio.sleep(scene.chance.uniform(0.1, 3.5))
    last = await _killed(scene, master)

    async def start() -> None:
        await killed.undo()
        await trio.sleep(scene.chance.uniform(0.5, 3.0))
        await last.undo()

    return Begun(f"stop the slaves, {killed.words}, then {last.words}", start)


async def kill_everything(scene: ClusterScene) -> Begun:
    """All brokers of the group and all controllers, at once."""
    return await _killed(scene, *scene.everybody())


async def _stopped(server: Server) -> Begun:
    server.signal(signal.SIGSTOP)

    async def go_on() -> None:
        await trio.lowlevel.checkpoint()
        server.signal(signal.SIGCONT)

    return Begun(f"stop {server.plan.name}", go_on)


async def stop_master(scene: ClusterScene) -> Begun:
    """SIGSTOP: it is silent, and its connections stay."""
    return await _stopped(scene.master)


async def stop_slave(scene: ClusterScene) -> Begun:
    return await _stopped(scene.slave)


async def stop_active_controller(scene: ClusterScene) -> Begun:
    return await _stopped(scene.active)


async def _cut(scene: ClusterScene, server: Server, hears: bool, speaks: bool, others: Iterable[str]) -> Begun:
    name = server.plan.name
    for other in others:
        if not speaks:
            await scene.network.cut(name, other)
        if not hears:
            await scene.network.cut(other, name)
    what = "hears" if hears else "speaks" if speaks else ""
    from_whom = "some" if len(list(others)) < len(scene.others(server)) else "everybody"
    return Begun(f"cut {name} from {from_whom}{f', which it still {what} to' if what else ''}", scene.network.heal)


async def cut_master(scene: ClusterScene) -> Begun:
    master = scene.master
    return await _cut(scene, master, False, False, scene.others(master))


async def cut_master_from_clients(scene: ClusterScene) -> Begun:
    """Servers reach it, and nobody who sends."""
    return await _cut(scene, scene.master, False, False, [CLIENTS])


async def lose_masters_host(scene: ClusterScene) -> Begun:
    """It dies and nobody is told: no connection closes, as when a host loses its power."""
    master = scene.master
    cut = await _cut(scene, master, False, False, scene.others(master))
    killed = await _killed(scene, master)

    async def back() -> None:
        await cut.undo()
        await killed.undo()

    return Begun(f"lose the host of {master.plan.name}", back)


async def mute_master(scene: ClusterScene) -> Begun:
    """It hears and is not heard."""
    master = scene.master
    return await _cut(scene, master, True, False, scene.others(master))


async def deafen_master(scene: ClusterScene) -> Begun:
    """It is heard and hears nothing."""
    master = scene.master
    return await _cut(scene, master, False, True, scene.others(master))


async def cut_master_from_controllers(scene: ClusterScene) -> Begun:
    master = scene.master
    controllers = [each.plan.name for each in scene.cluster.of_kind(Kind.CONTROLLER)]
    return await _cut(scene, master, False, False, controllers)


async def cut_master_from_slaves(scene: ClusterScene) -> Begun:
    master = scene.master
    brokers = [name for name in scene.others(master) if name.startswith(scene.group)]
    return await _cut(scene, master, False, False, brokers)


async def cut_slave(scene: ClusterScene) -> Begun:
    slave = scene.slave
    return await _cut(scene, slave, False, False, scene.others(slave))


async def cut_active_controller(scene: ClusterScene) -> Begun:
    active = scene.active
    return await _cut(scene, active, False, False, scene.others(active))


async def _stalled(scene: ClusterScene, server: Server, *, syncs_alone: bool = False) -> Begun:
    disk = scene.disks[server.plan.name]
    await (disk.stall_syncs() if syncs_alone else disk.stall())
    return Begun(f"stall the {'syncs' if syncs_alone else 'disk'} of {server.plan.name}", disk.resume)


async def stall_masters_disk(scene: ClusterScene) -> Begun:
    return await _stalled(scene, scene.master)


async def stall_slaves_disk(scene: ClusterScene) -> Begun:
    return await _stalled(scene, scene.slave)


async def stall_masters_syncs(scene: ClusterScene) -> Begun:
    """It can write, and none of it comes to the disk."""
    return await _stalled(scene, scene.master, syncs_alone=True)


async def stall_slaves_syncs(scene: ClusterScene) -> Begun:
    return await _stalled(scene, scene.slave, syncs_alone=True)


async def stall_active_controllers_disk(scene: ClusterScene) -> Begun:
    return await _stalled(scene, scene.active)


async def _filled(scene: ClusterScene, server: Server) -> Begun:
    disk = scene.disks[server.plan.name]
    await trio.to_thread.run_sync(disk.fill)

    async def free() -> None:
        await trio.to_thread.run_sync(disk.free)

    return Begun(f"fill the disk of {server.plan.name}", free)


async def fill_masters_disk(scene: ClusterScene) -> Begun:
    return await _filled(scene, scene.master)


async def fill_slaves_disk(scene: ClusterScene) -> Begun:
    return await _filled(scene, scene.slave)


async def fill_active_controllers_disk(scene: ClusterScene) -> Begun:
    return await _filled(scene, scene.active)


def _names(servers: Iterable[Server]) -> str:
    return ", ".join(each.plan.name for each in servers)


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
"""Each with its weight."""
STALLS: Final = frozenset({
    stall_masters_disk, stall_slaves_disk, stall_active_controllers_disk, stall_masters_syncs, stall_slaves_syncs})
FILLS: Final = frozenset({fill_masters_disk, fill_slaves_disk, fill_active_controllers_disk})
EXPECTED: Final = frozenset({kill_master, kill_both, stall_masters_disk, stall_masters_syncs, fill_masters_disk})
"""After which a group has another master soon, if nothing else is done."""
