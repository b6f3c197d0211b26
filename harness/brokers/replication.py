"""Roles, the HA port and the connection to a master, as ``broker.ha.autoswitch``, ``serving`` and ``following`` have
them: the same steps in the same order, with simulated streams in place of sockets and turns in place of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Final

import attrs

from broker.ha.acks import BrokerRole, Holders, Mode, Replicas
from broker.ha.epochfile import EpochFile
from broker.ha.epochs import EpochError, EpochList
from broker.ha.insync import InSync
from broker.ha.mark import ConfirmMark
from broker.ha.master import Close, HaMaster, Idle, LogView, SendLog
from broker.ha.slave import (
    AppendLog,
    Connect,
    Disconnect,
    HaSlave,
    LogTrusted,
    Output,
    Send,
    SetConfirm,
    TruncateLog,
    WriteEpochs,
)
from broker.ha.tail import cut_unfinished, undispatched
from broker.ha.whole import WholeRecords
from broker.ha.wire import HaFrameError, MasterHandshake, MasterMessages, SlaveMessages, transfer_header
from broker.replicas.outputs import Become, BecomeMaster, BecomeSlave
from broker.store.errors import StoreError
from harness.brokers.streams import End
from raft.config import MS
from remoting.errors import DamagedRecord

if TYPE_CHECKING:
    from harness.brokers.process import Process, Turns

(E_LOOK, E_CONNECTED, E_FOUND) = range(30, 33)
WINDOW_BYTES: Final = 8_000
"""So much is on its way before a writer waits for room."""
FIND_NS: Final = 60 * MS


class RoleRefused(Exception):
    """The role was not taken; says why."""


Taking = Generator[None, None, None]
Done = Callable[[str | None], None]


class Switch:
    """Of one run. Implements ``broker.replication.Replication``."""

    def __init__(self, process: Process) -> None:
        self.process, self.scene = process, process.scene
        self.journal: Turns = process.journal
        plan = self.scene.plan
        self.config = plan.ha()
        self.broker_id: int | None = None
        self.in_sync: InSync | None = None
        self.advanced: list[Callable[[], None]] = []
        self.changed: list[Callable[[], None]] = []
        self.epoch_file = EpochFile(process.host.files, boot=f"{process.host.name}.{process.host.boots}")
        found = self.epoch_file.read()
        self._no_epochs = found.no_epochs
        self.doubtful_epoch = found.doubtful_epoch
        self._epochs = found.epochs.within(self.journal.end)
        if self._epochs != found.epochs:
            self.epoch_file.write(self._epochs)
        self.mark = ConfirmMark(process.host.files)
        self.journal.confirm(self.mark.open(self.journal.end))
        self.journal.cutting.append(self.mark.cut)
        self.master: HaMaster | None = None
        self.following: Following | None = None
        self.role: Become | None = None
        self.port = Port(self)
        self._least = process.host.min_in_sync
        self._was_joining = False
        self._taking: tuple[Taking, Done] | None = None
        self.dialled = 0
        """Connections that this run of the process asked for."""
        self._rung = False

    def run(self) -> None:
        journal = self.journal
        journal.grown.append(self._grown)
        journal.settled.append(self._moved)
        journal.settled.append(lambda: self.mark.write(journal.confirm_offset))
        journal.ticks.append(self._tick)

    def after(self) -> None:
        if self._rung:
            self._rung = False
            self._go_on()
        self.port.after()
        if self.following is not None:
            self.following.after()

    def gone(self) -> None:
        """The process died."""
        for end in [*self.port.links.values()]:
            end.end.close()
        if self.following is not None:
            self.following.drop()

    # --- roles -----------------------------------------------------------------------------------------------

    def take(self, role: Become, broker_id: int | None, done: Done) -> None:
        """One at a time; ``done`` gets why it was refused, or None. Raises ``RoleRefused`` at once, too."""
        assert self._taking is None, "the manager asks for one role at a time"
        self.broker_id = broker_id
        self._check(role.epoch)
        steps = self._become_master(role) if isinstance(role, BecomeMaster) else self._become_slave(role)
        self._taking = steps, done
        self._go_on()

    def leave(self) -> None:
        """No role until the next one; what is being taken is not."""
        self._taking = None
        self._leave("another process has this broker's id")

    def _go_on(self) -> None:
        if self._taking is None:
            return
        steps, done = self._taking
        try:
            next(steps)
        except StopIteration:
            self._taking = None
            done(None)
        except (RoleRefused, StoreError, DamagedRecord, OSError) as refused:
            self._taking = None
            done(str(refused))
        else:
            self.process.later(MS, E_LOOK, self._moved)

    def _moved(self) -> None:
        self._rung = True

    def _become_master(self, role: BecomeMaster) -> Taking:
        journal = self.journal
        if self.master is None:
            self._leave("this broker becomes master")
        try:
            yield from self._stored()
            if self.master is None:
                cut_unfinished(journal)
                self.scene.watch.cut_off(self.process)
            in_sync = self._begin(role)
        except (RoleRefused, StoreError, DamagedRecord, OSError):
            self._leave("this broker cannot be master")
            raise
        journal.confirm(in_sync.confirm)
        if in_sync.confirm < journal.end and self.config.veils:
            journal.veil.fall(journal.end)
        deadline = journal.now_ns() + self.config.dispatch_wait_ms * MS
        while undispatched(journal) and journal.now_ns() < deadline:
            yield
        in_sync = attrs.evolve(in_sync, started_ns=journal.now_ns(), least=self._least)
        if self.master is None:
            self.master = HaMaster(self.config, in_sync, self._epochs)
            self.port.serve(self.master)
        else:
            self.master.renew(self._epochs, in_sync, journal.now_ns())
        self.in_sync, self.role = in_sync, role
        self._grown()
        self._tell()

    def _become_slave(self, role: BecomeSlave) -> Taking:
        journal = self.journal
        if self.following is None:
            self._leave("another broker becomes master")
            yield from self._stored()
            assert self.broker_id is not None
            slave = HaSlave(
                self.config, self.broker_id, self._epochs, journal.end, journal.confirm_offset,
                learner=self.process.host.learner, sync_from_last_file=self.scene.plan.from_last_file,
                no_epochs=self._no_epochs, in_doubt=journal.store.in_doubt, trusted_end=journal.store.trusted_end)
            self.following = Following(self, slave)
        before, self.role = self.role, role
        same = isinstance(before, BecomeSlave) and before.master_address == role.master_address
        if not same:
            self.following.follow(None)
        self._find(role, self.following)
        self._tell()

    def _find(self, role: BecomeSlave, following: Following) -> None:
        """Ask the master where it replicates from, until it answers."""
        if self.role is not role or self.following is not following or following.address is not None:
            return
        target = self.scene.host_at(role.master_address)

        def found() -> None:
            if self.role is role and self.following is following:
                following.follow(target.ha_address)

        def asked() -> None:
            self.scene.send(target, self.process.host, "find", lambda: self.process.host.do(
                self.process, E_FOUND, found))

        self.scene.send(self.process.host, target, "find", lambda: target.do(target.process, E_FOUND, asked))
        self.process.later(FIND_NS, E_FOUND, lambda: self._find(role, following))

    def _check(self, epoch: int) -> None:
        last = self.epochs.last
        if last is not None and epoch < last.epoch:
            raise RoleRefused(f"epoch {epoch} is over: this log has seen epoch {last.epoch}")

    def _leave(self, reason: str) -> None:
        self._epochs = self.epochs
        self.role = self.master = self.in_sync = None
        self.journal.veil.lift()
        self.port.drop()
        following, self.following = self.following, None
        if following is not None:
            following.end()
        self._tell()

    def _stored(self) -> Taking:
        journal = self.journal
        while journal.end < journal.store.log.max_offset or journal.durable_end < journal.end:
            if journal.failure is not None:
                raise RoleRefused(str(journal.failure))
            yield

    def _begin(self, role: BecomeMaster) -> InSync:
        journal = self.journal
        assert self.broker_id is not None
        try:
            epochs = self.epochs.within(journal.end).append(role.epoch, journal.end)
            self.epoch_file.lead(epochs)
            journal.store.trust()
        except EpochError as error:
            raise RoleRefused(str(error)) from error
        self._epochs, start = epochs, epochs.start_of(role.epoch)
        assert start is not None
        return InSync(
            self.broker_id, self.config, role.sync_state_set, role.sync_state_set_epoch, start,
            min(journal.confirm_offset, journal.end), journal.end, journal.durable_end, journal.now_ns(), self._least)

    # --- what holds ------------------------------------------------------------------------------------------

    @property
    def epochs(self) -> EpochList:
        return self.following.core.epochs if self.following is not None else self._epochs

    @property
    def mode(self) -> Mode:
        return Mode(BrokerRole.SLAVE if self.in_sync is None else BrokerRole.SYNC_MASTER, controller=True)

    @property
    def holders(self) -> Holders:
        assert self.in_sync is not None, "only a master's puts wait"
        return self.in_sync

    def replicas(self) -> Replicas:
        return Replicas(accepted=0 if self.in_sync is None else len(self.in_sync.accepted))

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
        self.journal.confirm(self.in_sync.confirm)
        self.scene.watch.confirms(self.process)
        for call in tuple(self.advanced):
            call()
        joining = self.in_sync.joining
        if joining or self._was_joining:
            self._was_joining = joining
            self._tell()

    def _grown(self) -> None:
        if self.in_sync is not None:
            journal = self.journal
            self.in_sync.advanced(journal.end, journal.durable_end)
            journal.confirm(self.in_sync.confirm)
            self.scene.watch.confirms(self.process)
            self.port.wake()

    def _tick(self, now_ns: int) -> None:
        self.port.tick(now_ns)
        self.advance()

    def _tell(self) -> None:
        for call in tuple(self.changed):
            call()


# --- master ----------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Link:
    """An accepted connection."""

    number: int
    end: End
    accepted_ns: int
    side: HaMaster | None = None
    rung: bool = True
    waiting: list[bytes] = attrs.field(factory=list)
    decoder: SlaveMessages = attrs.field(factory=SlaveMessages)


class Port:
    """The HA port."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.links: dict[int, _Link] = {}
        self._accepted = 0
        """Connections so far, of this run of the process: they are numbered here, as by the real port."""
        self._side: HaMaster | None = None

    @property
    def _now(self) -> int:
        return self.switch.process.now

    def accept(self, end: End) -> None:
        self._accepted += 1
        link = self.links[self._accepted] = _Link(self._accepted, end, self._now)
        end.heard = lambda data: self._heard(link, data)
        end.lost = lambda: self._lost(link)
        end.room = lambda: self._room(link)
        if self._side is not None:
            self._open(link, self._side)

    def serve(self, side: HaMaster) -> None:
        self._side = side
        for link in [*self.links.values()]:
            if link.side is None:
                self._open(link, side)

    def drop(self) -> None:
        self._side = None
        for link in [*self.links.values()]:
            if link.side is not None:
                self._lost(link)

    def wake(self) -> None:
        for link in self.links.values():
            link.rung = True

    def tick(self, now_ns: int) -> None:
        if self._side is not None:
            self._close(self._side.tick(now_ns))
        for link in [*self.links.values()]:
            if link.side is None and now_ns - link.accepted_ns >= self.switch.config.role_wait_ms * MS:
                self._lost(link)
            link.rung = True

    def after(self) -> None:
        """Its writers."""
        for link in [*self.links.values()]:
            if link.rung:
                link.rung = False
                self._write(link)

    def _room(self, link: _Link) -> None:
        link.rung = True

    def _open(self, link: _Link, side: HaMaster) -> None:
        link.side = side
        side.opened(link.number, self._now)
        link.rung = True
        self.switch._tell()
        waiting, link.waiting = link.waiting, []
        for data in waiting:
            self._heard(link, data)

    def _heard(self, link: _Link, data: bytes) -> None:
        side = link.side
        if side is None:
            link.waiting.append(data)
            return
        try:
            for message in link.decoder.feed(data):
                self._close(side.received(link.number, message, self._now))
                if link.side is None:
                    break
        except HaFrameError:
            self._lost(link)
        link.rung = True
        self.switch.advance()

    def _write(self, link: _Link) -> None:
        journal = self.switch.journal
        file_bytes = journal.store.log.file_bytes
        while link.side is not None and link.end.flying < WINDOW_BYTES:
            view = LogView(journal.begin, journal.end, max(journal.begin, journal.end - journal.end % file_bytes),
                           file_bytes)
            todo = link.side.next_send(link.number, view, self._now)
            match todo:
                case Idle():
                    return  # until somebody rings; each tick does
                case Close():
                    self._close([todo])
                case SendLog(offset, size, epoch, confirm):
                    body = journal.read(offset, size) if size else b""
                    assert len(body) == size, "a frame lies within one file and below the end"
                    link.end.send(transfer_header(offset, size, epoch, confirm) + body)
                case MasterHandshake():
                    link.end.send(todo.to_bytes())

    def _close(self, closes: Iterable[Close]) -> None:
        for close in closes:
            link = self.links.get(close.connection)
            if link is not None:
                self.switch.scene.counts["connection refused"] += 1
                self._lost(link)

    def _lost(self, link: _Link) -> None:
        """It is over, whoever ended it."""
        if self.links.pop(link.number, None) is None:
            return
        link.end.close()
        side, link.side = link.side, None
        if side is not None:
            side.closed(link.number)
            self.switch._tell()
            self.switch.advance()


# --- slave -----------------------------------------------------------------------------------------------------


class Following:
    """The slave's core and its connections."""

    def __init__(self, switch: Switch, core: HaSlave) -> None:
        self.switch, self.core = switch, core
        self.process, self.scene = switch.process, switch.scene
        self.journal: Turns = switch.journal
        self.address: str | None = None
        self.end_: End | None = None
        self._connecting = 0
        self._to_connect: str | None = None
        self._left = ""
        self._hearing = self._over = False
        self._decoder, self._whole = MasterMessages(), WholeRecords(self.journal.store.log.file_bytes)
        self.journal.grown.append(self._grown)
        self.journal.ticks.append(self._tick)

    @property
    def _now(self) -> int:
        return self.process.now

    def follow(self, address: str | None) -> None:
        if address == self.address:
            return
        self.address, self._to_connect = address, None
        self._do(self.core.follow(address, self._now))
        self._leave("the master's HA address changed")

    def end(self) -> None:
        """No slave any more."""
        self.follow(None)
        self.drop()
        self._over = True
        self.journal.grown.remove(self._grown)
        self.journal.ticks.remove(self._tick)

    def drop(self) -> None:
        end, self.end_ = self.end_, None
        self._connecting = 0
        if end is not None:
            end.close()

    def after(self) -> None:
        """Its task: the end of one connection, the beginning of the next."""
        if self._over:
            return
        if self._left and (self.end_ is not None or self._connecting):
            self.drop()
        self._left = ""
        address, self._to_connect = self._to_connect, None
        if address is not None:
            self._connect(address)

    def _connect(self, address: str) -> None:
        scene, host = self.scene, self.process.host
        target = scene.host_at(address)
        self.switch.dialled += 1
        number = self._connecting = self.switch.dialled

        def through(there: Process, theirs: End) -> None:
            if self._connecting != number or self._over:
                mine.close()
                return
            self._connecting = 0
            self.end_, self._decoder = mine, MasterMessages()
            self._whole = WholeRecords(self.journal.store.log.file_bytes)
            self.core.not_stored(self.journal.end)
            mine.heard, mine.lost = self._heard, self._lost
            self._carefully(lambda: self._do(self.core.connected(self._now)))

        mine = End(self.process, number)

        def dialled() -> None:
            there = target.process
            assert there is not None
            theirs = End(there, number, mine)
            mine.other = theirs
            there.switch.port.accept(theirs)
            scene.send(target, host, mine.kind, lambda: host.do(
                self.process, E_CONNECTED, lambda: through(there, theirs)))

        scene.send(host, target, mine.kind, lambda: target.do(target.process, E_CONNECTED, dialled))
        self.process.later(self.switch.config.connect_timeout_ms * MS, E_CONNECTED, lambda: self._not_connected(number))

    def _not_connected(self, number: int) -> None:
        if self._connecting == number:
            self._connecting = 0
            self.core.closed(self._now)

    def _lost(self) -> None:
        """The other end, or the network, ended it."""
        if self.end_ is not None:
            self.drop()
            self.core.closed(self._now)

    def _heard(self, data: bytes) -> None:
        self._carefully(lambda: self._hear(data))

    def _hear(self, data: bytes) -> None:
        journal, now_ns = self.journal, self._now
        end = journal.end
        self._hearing = True
        try:
            for message in self._decoder.feed(data):
                self._do(self.core.received(message, now_ns))
                if self._left:
                    return
        finally:
            self._hearing = False
        if journal.end != end:
            self._do(self.core.stored(journal.durable_end, now_ns))

    def _carefully(self, call: Callable[[], None]) -> None:
        """What breaks ends the connection."""
        try:
            call()
        except (HaFrameError, StoreError, DamagedRecord) as error:
            self.scene.counts[f"connection ended by {type(error).__name__}"] += 1
            self.drop()
            if not self._left:
                self.core.closed(self._now)

    def _do(self, outputs: Iterable[Output]) -> None:
        journal, watch = self.journal, self.scene.watch
        for output in outputs:
            match output:
                case Send(data):
                    watch.acknowledges(self.process, self.end_, data)
                    if self.end_ is not None:
                        self.end_.send(data)
                case AppendLog(offset, body):
                    try:
                        self._append(body, offset)
                    except StoreError:
                        self.core.not_stored(journal.end)
                        raise
                case SetConfirm(confirm):
                    journal.confirm(confirm)
                    watch.confirms(self.process)
                case WriteEpochs(epochs):
                    self.switch.epoch_file.write(epochs)
                    watch.wrote_epochs(self.process)
                case LogTrusted():
                    journal.store.trust()
                    watch.doubts.trusted(self.process)
                case TruncateLog():
                    self._do(self.core.truncated(self._truncate(output), self._now))
                    watch.truncated(self.process, output.point)
                case Connect(address):
                    self._to_connect = address
                case Disconnect(reason):
                    self._leave(reason)

    def _append(self, body: bytes | memoryview, offset: int) -> None:
        at = offset - self._whole.bytes_held
        for part in self._whole.take(body, offset):
            self.scene.watch.stores(self.process, self.end_, at, bytes(part))
            self.journal.append_raw(part, at)
            at += len(part)

    def _truncate(self, cut: TruncateLog) -> int | None:
        journal = self.journal
        self.scene.watch.truncates(self.process, cut.point)
        try:
            journal.truncate(cut.point, everything=cut.everything)
        except (StoreError, DamagedRecord, OSError):
            return None
        return journal.end

    def _leave(self, reason: str) -> None:
        self._left = self._left or reason

    def _grown(self) -> None:
        if not self._hearing:
            self._do(self.core.stored(self.journal.durable_end, self._now))

    def _tick(self, now_ns: int) -> None:
        self._do(self.core.tick(now_ns))
