"""Auto-switch replication of one broker as tasks: the HA port, the connection to a master, and the waits between the
steps of a role.

*The idea.* A role is a row of steps, in a table (``broker.ha.taking``). What each step does, and the loop over them,
stands in ``broker.ha.switching``: a generator that yields what has to be waited for. This module adds the waits: for
the disk, for the queues, for the end of a connection. One lock lets one role be taken at a time.

*Rejected.*

- To turn a slave into a master in place. Bytes of the former master could still arrive and be appended behind those of
  the new epoch. So the connection's task is ended first, and awaited.
- To open writes first and record the epoch meanwhile. A crash would leave bytes that belong to no epoch, and the slaves
  could not tell which of two masters wrote them.
- To try a role again that could not be taken. Who named it may have named another one by now: the broker leaves its
  role, says why (``RoleRefused``), and the role machine decides.
- A second implementation for the simulation of brokers. It would be the copy that is proven. The simulation drives
  ``Switching.taking`` as this module does, and waits on its own clock.

*Why it is right.*

- *Nobody is master and slave at once.* ``LEAVE`` is the first step between the two. It drops all slaves, and returns
  when the task that follows a master has ended.
- *Each byte belongs to one epoch.* ``STORE`` waits until all that was appended is stored, ``CUT`` drops a message of
  which only a part came, and ``RECORD`` writes to disk that the new epoch begins at the log's end. Writes are closed
  until the last step, so nothing moves that end meanwhile.
- *Consumers see nothing that may vanish, and miss nothing that they saw.* ``CONFIRM`` hides what is not known to be
  confirmed, and ``SHOW`` waits until the queues hold what is. It waits no longer than ``dispatch_wait_ms``: a queue
  that is built late is a nuisance, a group without a master is an outage.
- *A step that fails leaves no half of a role*: the broker leaves, and has none.

It knows the shells of the port and of the connection, and neither controllers nor puts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from typing import Final

import trio
from trio.abc import Listener, Stream

from broker.ha.config import HaConfig
from broker.ha.epochfile import EpochFile
from broker.ha.following import Following
from broker.ha.insync import InSync
from broker.ha.mark import ConfirmMark
from broker.ha.serving import HaPort
from broker.ha.slave import HaSlave
from broker.ha.switching import Pauses, RoleRefused, Switching, Wait, Work
from broker.ha.taking import BecomeMaster, BecomeSlave
from broker.ha.wire import MasterHandshake, MasterMessages, Transfer
from broker.journal import Journal
from remoting.bodies.broker import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from remoting.streams import Connector, connect_tcp
from remoting.wakeup import Bell

__all__ = ["AutoSwitch", "RoleRefused"]

_LOOK_S: Final = 0.001
"""Between two looks whether the queues are level: a slice takes about as long."""


async def at_once(work: Callable[[], None]) -> None:
    """Run ``work`` on the loop's own thread."""
    work()


class AutoSwitch(Switching):
    """Replication of one broker: ``run`` it in a nursery, over an open journal, then give it roles."""

    def __init__(
        self, journal: Journal, epoch_file: EpochFile, config: HaConfig, *, ha_address: str = "",
        connector: Connector = connect_tcp, learner: bool = False, sync_from_last_file: bool = False, least: int = 1,
        mark: ConfirmMark | None = None,
        run_sync: Callable[[Callable[[], None]], Awaitable[None]] = at_once,
    ) -> None:
        """``ha_address``: where slaves find this broker. ``run_sync``: where the epoch file is written while this
        broker becomes master. Raises ``OSError`` of that file."""
        super().__init__(journal, epoch_file, config, learner=learner, sync_from_last_file=sync_from_last_file,
                         least=least, mark=mark)
        self.ha_address = ha_address
        self._connector, self._run_sync = connector, run_sync
        self._port: HaPort = HaPort(journal, config, advanced=self.advance, changed=self._tell)
        self._following: Following[MasterHandshake | Transfer] | None = None
        self._follower = trio.CancelScope()
        self._follower_ended = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._changing = trio.Lock()
        self._bell = Bell()

    async def run(self, listeners: Sequence[Listener[Stream]] = (), *,
                  task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept slaves, and follow masters, until cancelled; closes the listeners."""
        self.begin()
        try:
            async with trio.open_nursery() as self._nursery:
                await self._nursery.start(self._port.run, listeners)
                task_status.started()
        finally:
            self.end()

    # --- roles -----------------------------------------------------------------------------------------------

    async def become_master(self, role: BecomeMaster) -> InSync:
        """Begin an epoch. Writes may be opened when it returns: consumers see all that is confirmed.

        Raises:
            RoleRefused: it is older than what this log has seen; or the disk refuses, and then the role before is over.
        """
        await self._go_through(self.taking(role, "this broker becomes master"))
        assert self.in_sync is not None
        return self.in_sync

    async def become_slave(self, role: BecomeSlave, ha_address: str | None) -> None:
        """Follow that master; ``ha_address`` as in ``copy``. Raises ``RoleRefused`` as above."""
        await self._go_through(self.taking(role, "another broker becomes master", ha_address))

    async def leave(self, reason: str) -> None:
        """Leave the role; there is none until the next one."""
        await self._go_through(self.leaving(reason))

    async def _go_through(self, pauses: Pauses) -> None:
        async with self._changing:
            with closing(pauses):
                for pause in pauses:
                    await self._wait(pause)

    async def _wait(self, pause: Wait | Work) -> None:
        match pause:
            case Work(run):
                await self._run_sync(run)
            case Wait.STORED:
                await self._bell.wait()
            case Wait.SHOWN:
                await trio.sleep(_LOOK_S)
            case Wait.ENDED:
                following, self._following = self._following, None
                if following is not None:
                    self._follower.cancel()
                    await self._follower_ended.wait()

    def _begin_to_copy(self, slave: HaSlave) -> Following[MasterHandshake | Transfer]:
        following = self._following = Following(
            self._journal, slave, MasterMessages, self._config, self._connector, self._epoch_file, self._tell)
        assert self._nursery is not None, "run comes before roles"
        self._follower, self._follower_ended = trio.CancelScope(), trio.Event()
        self._nursery.start_soon(self._follow, following, self._follower, self._follower_ended)
        return following

    @staticmethod
    async def _follow(following: Following[MasterHandshake | Transfer], scope: trio.CancelScope,
                      ended: trio.Event) -> None:
        with scope:
            await following.run()
        ended.set()

    def _moved(self) -> None:
        self._bell.ring()

    # --- for administrators ----------------------------------------------------------------------------------

    def runtime_info(self) -> HARuntimeInfo:
        """Body of the answer to code 907."""
        journal = self._journal
        if self._master is None:
            return HARuntimeInfo(ha_client_runtime_info=self._following.runtime_info() if self._following
                                 else HAClientRuntimeInfo(max_offset=journal.end))
        held = self._master.in_sync
        found = []
        for link in self._port.links.values():
            slave = self._master.slave_of(link.number)
            if slave is not None:
                broker_id, ack = slave
                found.append(HAConnectionRuntimeInfo(
                    link.peer, ack, journal.end - ack, broker_id in held.accepted, link.rate, link.next))
        return HARuntimeInfo(True, journal.end, len(held.accepted) - 1, found)
