"""Auto-switch replication of one broker without its waits: the role, the epochs, and what each step of
``broker.ha.taking`` does.

``AutoSwitch`` and the simulation of brokers drive it: both go through ``taking``, and each waits in its own way for
what that yields. A master's epoch is on disk before anybody may write.
Source: ``AutoSwitchHAService`` of RocketMQ 5.5.0; unlike there a role that cannot be taken is refused.
It knows the journal and the cores, and neither controllers nor puts.
"""

from __future__ import annotations

import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

import attrs

from broker.ha.acks import BrokerRole, Holders, Mode, Replicas
from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.copying import Copying
from broker.ha.epochfile import EpochFile
from broker.ha.epochs import EpochError, EpochList
from broker.ha.insync import InSync
from broker.ha.mark import ConfirmMark, MembersAsked
from broker.ha.master import Close, HaMaster, Idle, LogView, SendLog
from broker.ha.places import Stage
from broker.ha.port import Frame, Port
from broker.ha.slave import HaSlave
from broker.ha.tail import cut_unfinished, undispatched
from broker.ha.taking import Become, BecomeMaster, BecomeSlave, From, Step, steps
from broker.ha.wire import MasterHandshake, SlaveMessages, Transfer, transfer_header
from broker.journal import Journal
from broker.store.errors import StoreError, StoreFailed
from remoting.bodies.controller import EpochEntry
from remoting.errors import DamagedRecord

logger = logging.getLogger("broker")

_MASTER: Final = Mode(BrokerRole.SYNC_MASTER, controller=True)
_SLAVE: Final = Mode(BrokerRole.SLAVE, controller=True)


class RoleRefused(Exception):
    """The role was not taken; says why."""


REFUSALS: Final = (RoleRefused, StoreError, DamagedRecord, OSError)
"""Errors that a step may raise: the role is not taken."""


class Wait(enum.Enum):
    """The conditions that a step waits for. The step looks again itself, so it may be woken too early."""

    STORED = "the disk has moved on"
    SHOWN = "a moment has passed"
    ENDED = "the connection to the former master is closed"


@attrs.frozen(eq=False)
class Work:
    """A call that must be made before a step goes on, on any thread. It raises nothing."""

    run: Callable[[], None]


Pauses = Generator[Wait | Work, None, None]


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

    def standing(self, link: int) -> Stage:
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


class Switching(ABC):
    """Replication over an open journal: ``begin`` it, then one role at a time. Implements ``broker.puts.Replication``.

    ``broker_id`` is to be set before the first role. A caller of methods of ``in_sync`` (the replicas manager) calls
    ``advance`` afterwards.
    """

    _port: Port[Any]
    """Set by the heir, whose port calls ``advance`` and ``_tell``."""

    def __init__(
        self, journal: Journal, epoch_file: EpochFile, config: HaConfig, *, learner: bool = False,
        sync_from_last_file: bool = False, least: int = 1, mark: ConfirmMark | None = None,
    ) -> None:
        """Raises ``OSError`` of the epoch file."""
        self.broker_id: int | None = None
        self.in_sync: InSync | None = None
        """The sets of this master; None: this broker is no master."""
        self.role: Become | None = None
        """The role that is being taken; None while there is none."""
        self.advanced: Callable[[], None] = lambda: None
        """Called when it changed which replicas hold what, by other things than the journal's growth."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the SyncStateSet may have to be changed, when a slave's log is in doubt no longer, and at each
        end and beginning of a role."""
        self.may_begin: Callable[[int], bool] = lambda offset: True
        """Returns whether an empty log may begin at that offset now."""
        self._journal, self._veil, self._trust = journal, journal.veil, journal.trust
        self._epoch_file, self._config = epoch_file, config
        self._learner, self._from_last_file = learner, sync_from_last_file
        self._least = least
        found = epoch_file.read()
        if found.damaged:
            logger.error("the epoch file, or its backup, cannot be read: %s", found.damaged)
        self._no_epochs = found.no_epochs
        self.doubtful_epoch = found.doubtful_epoch
        """The last epoch that this broker may not lead again: others may hold bytes of it that are gone here."""
        self._epochs = found.epochs.within(journal.end)
        if self._epochs != found.epochs:  # a crash took bytes of later epochs; other bytes may follow there
            epoch_file.write(self._epochs)
        self._mark = mark
        if mark is not None:
            journal.confirm(mark.open(journal.end))
            journal.cutting.join("role", mark.cut)
        journal.on_failure.join("role", self._failed)  # for good: the last flush comes after ``end``, and may fail
        self._master: HaMaster | None = None
        self._slave: HaSlave | None = None
        self._copying: Copying[MasterHandshake | Transfer] | None = None
        self._young: InSync | None = None
        """The sets of a new master between the steps ``RECORD`` and ``OPEN``."""
        self._recording = False
        """The epoch file is being written."""
        self._was_joining = self._was_silent = False
        self._replicas = Replicas()

    def begin(self) -> None:
        """Listen to the journal, from now on."""
        self._journal.grown.join("role", self._grown)
        self._journal.settled.join("role", self._settled)
        self._journal.ticks.join("role", self._tick)

    def end(self) -> None:
        self._journal.grown.leave("role", self._grown)
        self._journal.settled.leave("role", self._settled)
        self._journal.ticks.leave("role", self._tick)
        if self._mark is not None:
            self._mark.close()

    # --- for the heir ----------------------------------------------------------------------------------------

    @abstractmethod
    def _begin_to_copy(self, slave: HaSlave) -> Copying[MasterHandshake | Transfer]:
        """Make a connection for that core; it follows nobody yet."""

    @abstractmethod
    def _moved(self) -> None:
        """Wake a step that waits for the journal."""

    # --- the steps of a role ---------------------------------------------------------------------------------

    def taking(self, role: Become, reason: str, ha_address: str | None = None) -> Pauses:
        """Take the role. This yields what has to be waited for or done, until the role is taken.

        ``ha_address`` as in ``copy``; ``reason`` is told to slaves that are dropped.

        Raises:
            RoleRefused: it is older than what this log has seen; or the disk refuses, and then the role before is over.
        """
        todo = self.steps(role)
        try:
            for step in todo:
                yield from self._do(step, role, reason, ha_address)
        except REFUSALS as error:
            yield from self.leaving("this broker cannot take its role")
            raise RoleRefused(str(error)) from error

    def _do(self, step: Step, role: Become, reason: str, ha_address: str | None) -> Pauses:
        match step:
            case Step.LEAVE:
                yield from self.leaving(reason)
            case Step.STORE:
                while not self.stored:
                    yield Wait.STORED
            case Step.CUT:
                self.cut()
            case Step.RECORD:
                yield from self.recording(role)
            case Step.CONFIRM:
                self.confirm()
            case Step.SHOW:
                yield from self._show()
            case Step.OPEN:
                self.open(role)
            case Step.FOLLOW:
                self.copy(role, ha_address)

    def leaving(self, reason: str) -> Pauses:
        """Leave the role; there is none until the next one."""
        self._left(reason)
        yield Wait.ENDED
        self._tell()

    def _show(self) -> Pauses:
        deadline_ns = self._journal.now_ns() + self._config.dispatch_wait_ms * NS_PER_MS
        while not self.shown:
            if self._journal.now_ns() >= deadline_ns:
                logger.warning("this broker is master, though consumers do not see all that is confirmed yet: waited "
                               "%d ms", self._config.dispatch_wait_ms)
                return
            yield Wait.SHOWN

    def steps(self, role: Become) -> tuple[Step, ...]:
        """Return the steps of this role change, in order. Raises ``RoleRefused``: the present role goes on."""
        last, epoch = self.epochs.last, role.epoch
        if self.broker_id is None:
            raise RoleRefused("no controller has given this broker an id yet")
        if last is not None and epoch < last.epoch:
            raise RoleRefused(f"epoch {epoch} is over: this log has seen epoch {last.epoch}")
        if isinstance(role, BecomeMaster) and epoch <= self.doubtful_epoch:
            raise RoleRefused(f"epoch {epoch} was led by this broker before its machine went down: others may "
                              "hold bytes of it that are gone here")
        before = From.MASTER if self._master is not None else From.SLAVE if self._copying is not None else From.NONE
        return steps(before, role)

    def _left(self, reason: str) -> None:
        """``LEAVE``: end the role before; a connection may still be closing."""
        self._epochs = self.epochs
        self.role = self._master = self.in_sync = self._young = None
        self._veil.lift()
        self._port.drop(reason)
        copying, self._copying, self._slave = self._copying, None, None
        if copying is not None:
            copying.follow(None)

    @property
    def stored(self) -> bool:
        """``STORE``: return whether the system has what was appended, and the disk where puts wait for that. Raises
        ``RoleRefused``."""
        journal = self._journal
        if journal.end >= journal.log.max_offset and journal.durable_end >= journal.end:
            return True
        if journal.failure is not None:
            raise RoleRefused(str(journal.failure))
        return False

    def cut(self) -> None:
        """``CUT``: cut off a part of a message. No master sends any more, and writes are closed."""
        cut_unfinished(self._journal)

    def recording(self, role: Become) -> Pauses:
        """``RECORD``: write the epoch to disk; nothing is appended meanwhile. Raises ``RoleRefused``."""
        journal = self._journal
        assert isinstance(role, BecomeMaster) and self.broker_id is not None
        failures: list[Exception] = []
        epochs = self.epochs.within(journal.end)
        try:
            epochs = epochs.append(role.epoch, journal.end)
        except EpochError as error:
            failures.append(error)
        else:
            self._recording = True
            try:
                yield Work(lambda: self._record(epochs, failures))
            finally:
                self._recording = False
        for failure in failures:
            raise RoleRefused(f"epoch {role.epoch} cannot be recorded: {failure}") from failure
        self._epochs, start = epochs, epochs.start_of(role.epoch)
        assert start is not None
        self._young = InSync(
            self.broker_id, self._config, role.sync_state_set, role.sync_state_set_epoch, start,
            min(journal.confirm_offset, journal.end), journal.end, journal.durable_end, journal.now_ns(), self._least,
            self._asked_before(role), partial(self._keep_asked, role.epoch))

    def _asked_before(self, role: BecomeMaster) -> frozenset[int]:
        """Return members that a killed run of this epoch asked for, and that controllers may accept yet."""
        asked = MembersAsked() if self._mark is None else self._mark.asked
        counts = asked.epoch == role.epoch and asked.set_epoch >= role.sync_state_set_epoch
        return asked.members - role.sync_state_set if counts else frozenset()

    def _keep_asked(self, epoch: int, set_epoch: int, members: frozenset[int]) -> bool:
        return self._mark is None or self._mark.note(MembersAsked(epoch, set_epoch, members))

    def _record(self, epochs: EpochList, failures: list[Exception]) -> None:
        """Write the epochs of a new master. Others follow this log from now on, so nothing is left to doubt."""
        try:
            self._epoch_file.lead(epochs)
            self._trust.regained()
        except OSError as error:
            failures.append(error)

    def confirm(self) -> None:
        """``CONFIRM``: veil what is not known to be confirmed."""
        journal, young = self._journal, self._young
        assert young is not None
        journal.confirm(young.confirm)
        if young.confirm < journal.end and self._config.veils:
            self._veil.fall(journal.end)

    @property
    def shown(self) -> bool:
        """``SHOW``: return whether consumers see what is confirmed; else they would find queues shorter than before."""
        return not undispatched(self._journal)

    def open(self, role: Become) -> InSync:
        """``OPEN``: serve slaves, so that members can catch up."""
        journal = self._journal
        assert isinstance(role, BecomeMaster) and self._young is not None
        in_sync, self._young = attrs.evolve(self._young, started_ns=journal.now_ns(), least=self._least), None
        if self._master is None:
            self._master = HaMaster(self._config, in_sync, self._epochs)
            self._port.serve(MasterSide(self._master))
        else:
            self._master.renew(self._epochs, in_sync, journal.now_ns())
        self.in_sync, self.role = in_sync, role
        self._grown()
        self._tell()
        return in_sync

    def copy(self, role: Become, ha_address: str | None) -> None:
        """``FOLLOW``: copy from ``ha_address``; None: from where this master was before, else wait for ``follow``."""
        journal = self._journal
        assert isinstance(role, BecomeSlave) and self.broker_id is not None
        if self._copying is None:
            self._slave = HaSlave(
                self._config, self.broker_id, self._epochs, journal.end, journal.confirm_offset,
                learner=self._learner, sync_from_last_file=self._from_last_file, no_epochs=self._no_epochs,
                in_doubt=self._trust.in_doubt, trusted_end=self._trust.trusted_end, may_begin=self.may_begin,
                begin=lambda: journal.begin)
            self._copying = self._begin_to_copy(self._slave)
        elif ha_address is None and isinstance(self.role, BecomeSlave) and (
                (self.role.master_id, self.role.master_address) == (role.master_id, role.master_address)):
            ha_address = self._copying.address
        self.role = role
        self._copying.follow(ha_address)
        self._tell()

    def follow(self, ha_address: str | None) -> None:
        """Note the address of the master's HA port when it becomes known or changes. Only a slave does something."""
        if self._copying is not None:
            self._copying.follow(ha_address)

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
        """Set ``minInSyncReplicas`` as it is in force from now on."""
        if least != self._least:
            self._least = least
            if self.in_sync is not None:
                self.in_sync.demand(least)
                self.advance()

    def advance(self) -> None:
        """Follow a change of the SyncStateSet, or of what its members hold."""
        if self.in_sync is None:
            return
        self._confirms(self.in_sync.confirm)
        self.advanced()
        joining = self.in_sync.joining
        if joining or self._was_joining:
            self._was_joining = joining
            self._tell()

    def _confirms(self, offset: int) -> None:
        """Move the confirm offset to where this master knows the log to be held."""
        self._journal.confirm(offset)

    @property
    def master_silent(self) -> bool:
        """Return whether this is a slave that hears nothing from its master, as ``HaSlave`` judges it."""
        return self._slave is not None and self._slave.master_silent(self._journal.now_ns())

    def epoch_entries(self) -> list[EpochEntry]:
        """``epoch_list`` of the answer to 1007."""
        epochs = self.epochs
        return [EpochEntry(entry.epoch, entry.start, epochs.end(at)) for at, entry in enumerate(epochs)]

    # --- the journal -----------------------------------------------------------------------------------------

    def _grown(self) -> None:
        if self.in_sync is not None:
            journal = self._journal
            self.in_sync.advanced(journal.end, journal.durable_end)
            self._confirms(self.in_sync.confirm)
            self._port.wake()

    def _settled(self) -> None:
        """Write the mark before consumers see what it confirms."""
        self._moved()
        if self._mark is not None:
            self._mark.write(self._journal.confirm_offset)

    def _tick(self, now_ns: int) -> None:
        self._port.tick(now_ns)
        self.advance()
        kept = self.epochs.drop_before(self._journal.begin)
        if kept != self.epochs and not self._recording:
            self._forget(kept)
        silent = self.master_silent
        if silent is not self._was_silent:
            self._was_silent = silent
            self._tell()
        self._journal.tick_by(0)  # what is in sync, and what is silent, needs frequent looks

    def _forget(self, kept: EpochList) -> None:
        """Forget epochs whose last byte was deleted with the oldest files. A role that is taken meanwhile writes them.
        """
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
        """Let the next start doubt the log: after a failed flush the kernel may have dropped unsynced pages."""
        try:
            self._epoch_file.doubt()
        except OSError as error:
            logger.error("the disk failed, and a file that hides this from the next start cannot be removed: %s", error)

    def _tell(self) -> None:
        self.changed()
