"""Auto-switch replication of one broker: the HA port, the connection to a master, the epoch file, and the role.

Roles are taken one at a time, each from no role at all: a master drops its slaves and a slave leaves its master before
the other role begins, so nobody is ever both. A master's epoch is on disk before anybody may write.
Source: ``AutoSwitchHAService`` of RocketMQ 5.5.0; unlike there a role that cannot be taken is refused.
It knows the journal, the cores and their shells, and neither controllers nor puts.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import attrs
import trio
from trio.abc import Listener, Stream

from broker.ha.acks import BrokerRole, Holders, Mode, Replicas
from broker.ha.config import HaConfig
from broker.ha.epochfile import EpochFile
from broker.ha.epochs import EpochError, EpochList
from broker.ha.following import Following
from broker.ha.insync import InSync
from broker.ha.mark import ConfirmMark
from broker.ha.master import Close, HaMaster, Idle, LogView, SendLog
from broker.ha.places import Standing
from broker.ha.serving import Frame, HaPort
from broker.ha.slave import HaSlave
from broker.ha.tail import cut_unfinished, undispatched
from broker.ha.wire import MasterHandshake, MasterMessages, SlaveMessages, Transfer, transfer_header
from broker.journal import Journal
from broker.replicas.outputs import BecomeMaster, BecomeSlave
from broker.store.errors import StoreError, StoreFailed
from remoting.bodies.broker import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from remoting.bodies.controller import EpochEntry
from remoting.errors import DamagedRecord
from remoting.streams import Connector, connect_tcp
from remoting.wakeup import Bell

logger = logging.getLogger("broker")

_MASTER: Final = Mode(BrokerRole.SYNC_MASTER, controller=True)
_SLAVE: Final = Mode(BrokerRole.SLAVE, controller=True)
_LOOK_S: Final = 0.001
"""Between two looks whether the queues are level: a slice takes about as long."""


async def at_once(work: Callable[[], None]) -> None:
    """On the loop's own thread."""
    work()


class RoleRefused(Exception):
    """The role was not taken; says why."""


@attrs.define(eq=False)
class MasterSide:
    """``HaMaster`` behind the HA port."""

    core: HaMaster
    _decoders: dict[int, SlaveMessages] = attrs.field(factory=dict)

    def opened(self, link: int, host: str, now_ns: int) -> None:
        self._decoders[link] = SlaveMessages()
        self.core.opened(link, now_ns)

    def heard(self, link: int, data: bytes, now_ns: int) -> list[Close]:
        closes: list[Close] = []
        for message in self._decoders[link].feed(data):
            closes += self.core.received(link, message, now_ns)
        return closes

    def closed(self, link: int) -> None:
        del self._decoders[link]
        self.core.closed(link)

    def tick(self, now_ns: int) -> list[Close]:
        return self.core.tick(now_ns)

    def standing(self, link: int) -> Standing:
        return self.core.standing(link)

    def next_frame(self, link: int, log: LogView, now_ns: int) -> Frame | Idle | Close:
        todo = self.core.next_send(link, log, now_ns)
        match todo:
            case SendLog(offset, size, epoch, confirm):
                return Frame(transfer_header(offset, size, epoch, confirm), offset, size)
            case MasterHandshake():
                return Frame(todo.to_bytes())
            case _:
                return todo


class AutoSwitch:
    """``run`` in a nursery, over an open journal; then roles. Implements ``broker.replication.Replication``.

    ``broker_id`` is to be set before the first role. Who calls methods of ``in_sync`` (the replicas manager) calls
    ``advance`` afterwards.
    """

    def __init__(
        self, journal: Journal, epoch_file: EpochFile, config: HaConfig, *, ha_address: str = "",
        connector: Connector = connect_tcp, learner: bool = False, sync_from_last_file: bool = False, least: int = 1,
        mark: ConfirmMark | None = None,
        run_sync: Callable[[Callable[[], None]], Awaitable[None]] = at_once,
    ) -> None:
        """``ha_address``: where slaves find this broker. ``run_sync``: where the epoch file is written while this
        broker becomes master. Raises ``OSError`` of that file."""
        self.broker_id: int | None = None
        self.ha_address = ha_address
        self.in_sync: InSync | None = None
        """While this broker is master."""
        self.advanced: list[Callable[[], None]] = []
        """Called when who holds what has changed otherwise than by the journal's growth."""
        self.changed: list[Callable[[], None]] = []
        """Called when the SyncStateSet may have to be changed, and at each end and beginning of a role."""
        self._journal, self._epoch_file, self._config = journal, epoch_file, config
        self._connector, self._learner, self._from_last_file = connector, learner, sync_from_last_file
        self._least = least
        self._run_sync = run_sync
        found = epoch_file.read()
        if found.damaged:
            logger.error("the epoch file, or its backup, cannot be read: %s", found.damaged)
        self._no_epochs = found.no_epochs
        self.doubtful_epoch = found.doubtful_epoch
        """No mastership of it, or of one before: others may hold bytes of it that are gone here."""
        self._epochs = found.epochs.within(journal.end)
        if self._epochs != found.epochs:  # of bytes that a crash took; other ones may come to stand there
            epoch_file.write(self._epochs)
        self._mark = mark
        if mark is not None:
            journal.confirm(mark.open(journal.end))
            journal.cutting.append(mark.cut)
        journal.on_failure.append(self._failed)  # the last flush may fail, which comes after ``run``
        self._port = HaPort(journal, config, advanced=self.advance, changed=self._tell)
        self._master: HaMaster | None = None
        self._slave: HaSlave | None = None
        self._role: BecomeMaster | BecomeSlave | None = None
        self._following: Following[MasterHandshake | Transfer] | None = None
        self._follower = trio.CancelScope()
        self._follower_ended = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._changing = trio.Lock()
        self._beginning = False
        """The epoch file is being written."""
        self._moved = Bell()
        self._was_joining = False
        self._replicas = Replicas()

    async def run(self, listeners: Sequence[Listener[Stream]] = (), *,
                  task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept slaves, and follow masters, until cancelled; closes the listeners."""
        self._journal.grown.append(self._grown)
        self._journal.settled.append(self._moved.ring)
        if self._mark is not None:
            self._journal.settled.append(self._keep_mark)
        self._journal.ticks.append(self._tick)
        try:
            async with trio.open_nursery() as self._nursery:
                await self._nursery.start(self._port.run, listeners)
                task_status.started()
        finally:
            self._journal.grown.remove(self._grown)
            self._journal.settled.remove(self._moved.ring)
            if self._mark is not None:
                self._journal.settled.remove(self._keep_mark)
                self._mark.close()
            self._journal.ticks.remove(self._tick)

    # --- roles -----------------------------------------------------------------------------------------------

    async def become_master(self, role: BecomeMaster) -> InSync:
        """Begin an epoch. Writes may be opened when it returns: consumers see all that is confirmed.

        Raises:
            RoleRefused: it is older than what this log has seen; or the disk refuses, and then the role before is over.
        """
        async with self._changing:
            self._check(role.epoch)
            if role.epoch <= self.doubtful_epoch:
                raise RoleRefused(f"epoch {role.epoch} was led by this broker before its machine went down: others may "
                                  "hold bytes of it that are gone here")
            if self._master is None:
                await self._leave("this broker becomes master")
            try:
                await self._stored()
                if self._master is None:
                    cut_unfinished(self._journal)
                in_sync = await self._begin(role)
            except (RoleRefused, StoreError, DamagedRecord, OSError) as error:
                await self._leave("this broker cannot be master")
                raise RoleRefused(str(error)) from error
            self._journal.confirm(in_sync.confirm)
            if in_sync.confirm < self._journal.end and self._config.veils:
                self._journal.veil.fall(self._journal.end)
            await self._visible()
            in_sync = attrs.evolve(  # from now on members can catch up
                in_sync, started_ns=self._journal.now_ns(), least=self._least)
            if self._master is None:
                self._master = HaMaster(self._config, in_sync, self._epochs)
                self._port.serve(MasterSide(self._master))
            else:
                self._master.renew(self._epochs, in_sync, self._journal.now_ns())
            self.in_sync, self._role = in_sync, role
            self._grown()
            self._tell()
            return in_sync

    async def become_slave(self, role: BecomeSlave, ha_address: str | None) -> None:
        """Follow that master. Without ``ha_address``, where the same one was found before; else nowhere until
        ``follow``. Raises ``RoleRefused`` as above."""
        async with self._changing:
            self._check(role.epoch)
            journal = self._journal
            if self._following is None:
                await self._leave("another broker becomes master")
                await self._stored()
                assert self.broker_id is not None
                self._slave = HaSlave(
                    self._config, self.broker_id, self._epochs, journal.end, journal.confirm_offset,
                    learner=self._learner, sync_from_last_file=self._from_last_file, no_epochs=self._no_epochs,
                    in_doubt=journal.store.in_doubt, trusted_end=journal.store.trusted_end)
                self._following = Following(
                    journal, self._slave, MasterMessages, self._config, self._connector, self._epoch_file)
                assert self._nursery is not None, "run comes before roles"
                self._follower, self._follower_ended = trio.CancelScope(), trio.Event()
                self._nursery.start_soon(self._follow, self._following, self._follower, self._follower_ended)
            elif ha_address is None and isinstance(self._role, BecomeSlave) and (
                    (self._role.master_id, self._role.master_address) == (role.master_id, role.master_address)):
                ha_address = self._following.address
            self._role = role
            self._following.follow(ha_address)
            self._tell()

    async def leave(self, reason: str) -> None:
        """No role, until the next one."""
        async with self._changing:
            await self._leave(reason)

    def follow(self, ha_address: str | None) -> None:
        """Where the master's HA port is, when that becomes known or changes. Nothing while this is no slave."""
        if self._following is not None:
            self._following.follow(ha_address)

    @staticmethod
    async def _follow(following: Following[MasterHandshake | Transfer], scope: trio.CancelScope,
                      ended: trio.Event) -> None:
        with scope:
            await following.run()
        ended.set()

    def _check(self, epoch: int) -> None:
        last = self.epochs.last
        if self.broker_id is None:
            raise RoleRefused("no controller has given this broker an id yet")
        if last is not None and epoch < last.epoch:
            raise RoleRefused(f"epoch {epoch} is over: this log has seen epoch {last.epoch}")

    async def _leave(self, reason: str) -> None:
        """No role, and nothing under way of the one before."""
        self._epochs = self.epochs
        self._role = self._master = self.in_sync = None
        self._journal.veil.lift()
        self._port.drop(reason)
        following, self._following, self._slave = self._following, None, None
        if following is not None:
            following.follow(None)
            self._follower.cancel()
            await self._follower_ended.wait()
        self._tell()

    async def _stored(self) -> None:
        """Until the system has what was appended, and the disk has it where puts wait for that."""
        journal = self._journal
        while journal.end < journal.store.log.max_offset or journal.durable_end < journal.end:
            if journal.failure is not None:
                raise RoleRefused(str(journal.failure))
            await self._moved.wait()

    async def _begin(self, role: BecomeMaster) -> InSync:
        """Nothing is appended meanwhile: writes are closed, and no master sends anything."""
        journal = self._journal
        assert self.broker_id is not None
        self._beginning = True
        try:
            epochs = self.epochs.within(journal.end).append(role.epoch, journal.end)
            await self._run_sync(partial(self._record, epochs))
        except (EpochError, OSError) as error:
            raise RoleRefused(f"epoch {role.epoch} cannot be recorded: {error}") from error
        finally:
            self._beginning = False
        self._epochs, start = epochs, epochs.start_of(role.epoch)
        assert start is not None
        return InSync(
            self.broker_id, self._config, role.sync_state_set, role.sync_state_set_epoch, start,
            min(journal.confirm_offset, journal.end), journal.end, journal.durable_end, journal.now_ns(), self._least)

    def _record(self, epochs: EpochList) -> None:
        """Others go by this log from now on, so there is nothing left to doubt. Raises ``OSError``."""
        self._epoch_file.lead(epochs)
        self._journal.store.trust()

    async def _visible(self) -> None:
        """Until consumers see what is confirmed: else they would find queues shorter than they were before."""
        with trio.move_on_after(self._config.dispatch_wait_ms / 1e3):
            while True:
                if not undispatched(self._journal):
                    return
                await trio.sleep(_LOOK_S)
        logger.warning("master, though consumers do not see all yet that is confirmed: waited %d ms",
                       self._config.dispatch_wait_ms)

    # --- what holds ------------------------------------------------------------------------------------------

    @property
    def epochs(self) -> EpochList:
        return self._slave.epochs if self._slave is not None else self._epochs

    @property
    def mode(self) -> Mode:
        return _SLAVE if self.in_sync is None else _MASTER

    @property
    def holders(self) -> Holders:
        assert self.in_sync is not None, "only a master's puts wait"
        return self.in_sync

    def replicas(self) -> Replicas:
        accepted = 0 if self.in_sync is None else len(self.in_sync.accepted)
        if accepted != self._replicas.accepted:
            self._replicas = Replicas(accepted=accepted)
        return self._replicas

    def demand(self, least: int) -> None:
        """``minInSyncReplicas`` as it is in force from now on."""
        if least != self._least:
            self._least = least
            if self.in_sync is not None:
                self.in_sync.demand(least)
                self.advance()

    def advance(self) -> None:
        """The SyncStateSet, or what its members hold, is another."""
        if self.in_sync is None:
            return
        self._journal.confirm(self.in_sync.confirm)
        for call in tuple(self.advanced):
            call()
        joining = self.in_sync.joining
        if joining or self._was_joining:
            self._was_joining = joining
            self._tell()

    def _grown(self) -> None:
        if self.in_sync is not None:
            journal = self._journal
            self.in_sync.advanced(journal.end, journal.durable_end)
            journal.confirm(self.in_sync.confirm)
            self._port.wake()

    def _keep_mark(self) -> None:
        """Before anybody sees what it confirms."""
        assert self._mark is not None
        self._mark.write(self._journal.confirm_offset)

    def _tick(self, now_ns: int) -> None:
        self._port.tick(now_ns)
        self.advance()
        kept = self.epochs.drop_before(self._journal.begin)
        if kept != self.epochs and not self._beginning:
            self._forget(kept)

    def _forget(self, kept: EpochList) -> None:
        """Epochs whose last byte was deleted with the oldest files. A role in whose way that comes writes them anew."""
        try:
            self._epoch_file.write(kept)
        except OSError as error:
            logger.warning("the epoch file cannot be written, tried again: %s", error)
            return
        self._epochs = kept
        for core in (self._master, self._slave):
            if core is not None:
                core.epochs = kept

    def _failed(self, _: StoreFailed) -> None:
        """Of what the system was given, nobody knows any more what is there."""
        try:
            self._epoch_file.doubt()
        except OSError as error:
            logger.error("the disk failed, and what tells the next start of it cannot be removed: %s", error)

    def _tell(self) -> None:
        for call in tuple(self.changed):
            call()

    # --- for administrators ----------------------------------------------------------------------------------

    def epoch_entries(self) -> list[EpochEntry]:
        """``epoch_list`` of the answer to 1007."""
        epochs = self.epochs
        return [EpochEntry(entry.epoch, entry.start, epochs.end(at)) for at, entry in enumerate(epochs)]

    def runtime_info(self) -> HARuntimeInfo:
        """Answer to 907."""
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
