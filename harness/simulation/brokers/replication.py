"""The shipped replication code on simulated streams in place of sockets, and on turns in place of tasks.

All decisions are those of ``broker.ha.switching``, ``port`` and ``copying``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import attrs

from broker.ha.config import HaConfig
from broker.ha.copying import FAULTS, Copying, CopyingCore, Decoder, MessageT
from broker.ha.epochfile import EpochFile
from broker.ha.epochs import EpochList
from broker.ha.mark import ConfirmMark
from broker.ha.master import Close, Idle
from broker.ha.port import Frame, Link, Port
from broker.ha.slave import (
    HaSlave,
    LogTrusted,
    Output,
    Send,
    SetConfirm,
    TruncateLog,
    WriteEpochs,
)
from broker.ha.switching import Pauses, RoleRefused, Switching, Wait, Work
from broker.ha.taking import Become, BecomeSlave
from broker.ha.wire import HaFrameError, MasterHandshake, MasterMessages, Transfer
from harness.simulation.brokers.streams import End
from raft.config import MS

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess, Turns

(E_LOOK, E_CONNECTED, E_FOUND, E_HEARD) = range(30, 34)
WINDOW_BYTES: Final = 8_000
"""Bytes in flight before a writer waits for room."""
FIND_NS: Final = 60 * MS


Done = Callable[[str | None], None]


class Switch(Switching):
    """Takes roles for one run: a step that waits is tried again in a later turn."""

    _port: SimulatedPort

    def __init__(self, process: BrokerProcess) -> None:
        self.process, self.scene = process, process.scene
        plan, host = self.scene.plan, process.host
        super().__init__(
            process.journal, EpochFile(host.files, boot=f"{host.name}.{host.boots}"), plan.ha(), learner=host.learner,
            sync_from_last_file=plan.from_last_file, least=host.min_in_sync, mark=ConfirmMark(host.files))
        self.journal: Turns = process.journal
        self.config = self._config
        self._port = SimulatedPort(process, self.config, advanced=self.advance, changed=self._tell)
        self._taking: tuple[Pauses, Done] | None = None
        self._to_leave = False
        """Leave the role as soon as it is taken."""
        self._rung = self._looks = False

    @property
    def port(self) -> SimulatedPort:
        return self._port

    def slaves(self) -> list[int]:
        """The slave's id of each connection on which a slave sent its handshake."""
        master = self._master
        found = [] if master is None else [master.slave_of(number) for number in self.port.links]
        return [slave[0] for slave in found if slave is not None]

    @property
    def following(self) -> Following | None:
        assert self._copying is None or isinstance(self._copying, Following)
        return self._copying

    @property
    def is_taking(self) -> bool:
        """True while the broker takes a role."""
        return self._taking is not None

    @property
    def epoch_file(self) -> EpochFile:
        return self._epoch_file

    def after(self) -> None:
        if self._rung:
            self._rung = False
            self._go_on()
        self.port.after()
        if self.following is not None:
            self.following.after()

    def gone(self) -> None:
        """End all connections after the process died."""
        for link in [*self.port.links.values()]:
            link.stream.close()
        if self.following is not None:
            self.following.drop()

    # --- roles -----------------------------------------------------------------------------------------------

    def take(self, role: Become, broker_id: int | None, done: Done) -> None:
        """Take a role, one at a time; ``done`` gets the reason of a refusal, or None."""
        assert self._taking is None, "the manager asks for one role at a time"
        self.broker_id = broker_id
        self._taking = self.taking(role, "this broker takes another role"), done
        self._go_on()

    def _record(self, epochs: EpochList, failures: list[Exception]) -> None:
        """Write the epochs of a master. Its log is what others compare theirs with from then on, even if it is killed
        right behind the note on its disk."""
        try:
            super()._record(epochs, failures)
        finally:
            if not failures:
                self.scene.watch.doubts.trusted(self.process)

    def leave(self) -> None:
        """Leave the role, after one that is being taken."""
        if self._taking is not None:
            self._to_leave = True
        else:
            self._leave()

    def _leave(self) -> None:
        for _ in self.leaving("another process has this broker's id"):
            """Do not wait: its connection ends at once."""

    def _go_on(self) -> None:
        if self._taking is None:
            return
        pauses, done = self._taking
        refused: str | None = None
        try:
            for pause in pauses:
                if isinstance(pause, Work):
                    pause.run()
                elif pause is not Wait.ENDED:
                    self._look_later()
                    return
        except RoleRefused as error:
            refused = str(error)
        self._taking, to_leave, self._to_leave = None, self._to_leave, False
        done(refused)
        if to_leave:
            self._leave()

    def _look_later(self) -> None:
        if not self._looks:
            self._looks = True
            self.process.later(MS, E_LOOK, self._look_again)

    def _look_again(self) -> None:
        self._looks = False
        self._moved()

    def _moved(self) -> None:
        self._rung = True

    def _left(self, reason: str) -> None:
        following = self.following
        super()._left(reason)
        if following is not None:
            following.over()

    def cut(self) -> None:
        super().cut()
        self.scene.watch.cut_off(self.process)

    def copy(self, role: Become, ha_address: str | None) -> None:
        super().copy(role, ha_address)
        self._find(role)

    def _begin_to_copy(self, slave: HaSlave) -> Following:
        return Following(self, slave)

    def _find(self, role: Become) -> None:
        """Ask the master for its replication address until it answers."""
        following = self.following
        assert isinstance(role, BecomeSlave)
        if self.role is not role or following is None or following.address is not None:
            return
        target = self.scene.host_at(role.master_address)

        def found() -> None:
            if self.role is role:
                self.follow(target.ha_address)

        def asked() -> None:
            self.scene.send(target, self.process.host, "find", lambda: self.process.host.do(
                self.process, E_FOUND, found))

        self.scene.send(self.process.host, target, "find", lambda: target.do(target.process, E_FOUND, asked))
        self.process.later(FIND_NS, E_FOUND, lambda: self._find(role))

    # --- hooks for the watch -----------------------------------------------------------------------------------

    def _confirms(self, offset: int) -> None:
        super()._confirms(offset)
        self.scene.watch.confirms(self.process)


# --- master ----------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Link(Link):
    """One accepted connection, with the bytes that wait for its reader."""

    stream: End = attrs.field(kw_only=True)
    lost: Callable[[_Link], None] = attrs.field(kw_only=True)
    waited: Callable[[_Link], None] = attrs.field(kw_only=True)
    rung: bool = True
    waiting: list[bytes] = attrs.field(factory=list)

    def ring(self) -> None:
        self.rung = True

    def opened(self) -> None:
        self.rung = True
        if self.waiting:
            self.waited(self)

    def end(self) -> None:
        self.lost(self)


class SimulatedPort(Port[_Link]):
    """The shipped port over simulated streams."""

    def __init__(self, process: BrokerProcess, config: HaConfig, *, advanced: Callable[[], None],
                 changed: Callable[[], None]) -> None:
        super().__init__(process.journal, config, advanced=advanced, changed=changed)
        self.process = process

    def accept(self, end: End) -> None:
        """Takes the end of a connection that another broker has made."""
        link = _Link(self._new_number(), f"{end.peer_ip}:1", self._journal.now_ns(), stream=end, lost=self._lost,
                     waited=self._wake_reader)
        end.heard = lambda data: self._received(link, data)
        end.lost = lambda: self._gone(link)
        end.room = link.ring
        self._came(link)

    def after(self) -> None:
        """Run the writers of its connections."""
        for link in [*self.links.values()]:
            if link.rung:
                link.rung = False
                self._write(link)

    def _received(self, link: _Link, data: bytes) -> None:
        link.spoke = True
        link.waiting.append(data)
        if len(link.waiting) == 1:
            self._hear(link)  # with more, the reader is awake already

    def _wake_reader(self, link: _Link) -> None:
        self.process.later(0, E_HEARD, lambda: self._hear(link))

    def _hear(self, link: _Link) -> None:
        try:
            while link.waiting and link.side is not None:
                self._heard(link, link.waiting.pop(0))
        except HaFrameError:
            self._gone(link)

    def _write(self, link: _Link) -> None:
        while link.side is not None and link.stream.in_flight < WINDOW_BYTES:
            todo = self._next(link)
            match todo:
                case Idle():
                    return  # the next ring goes on: each tick rings
                case Close():
                    self._close([todo])
                case Frame(data, offset, size):
                    link.stream.send(data + self._body(todo))
                    link.sent(offset, size)

    def _close(self, closes: Iterable[Close]) -> None:
        closes = [*closes]
        self.process.scene.counts["connection refused"] += len(closes)
        super()._close(closes)

    def _gone(self, link: _Link) -> None:
        """Drop a connection that ended on either side."""
        self._lost(link)
        self._closed(link)

    def _lost(self, link: _Link) -> None:
        self.links.pop(link.number, None)
        link.stream.close()


# --- slave -----------------------------------------------------------------------------------------------------


class Dialling(Copying[MessageT]):
    """The shipped connection of a slave over simulated streams, for either protocol."""

    def __init__(self, process: BrokerProcess, core: CopyingCore[MessageT], decoder: Callable[[], Decoder[MessageT]],
                 connect_timeout_ms: int, epoch_file: EpochFile | None = None,
                 trusted: Callable[[], None] = lambda: None) -> None:
        super().__init__(process.journal, core, decoder, epoch_file, trusted)
        self.process, self.scene = process, process.scene
        self.end_: End | None = None
        self._connect_timeout_ms = connect_timeout_ms
        self._connecting = 0
        self._is_over = False
        self.begin()

    def over(self) -> None:
        """End copying: this broker is no slave any more."""
        self.drop()
        self._is_over = True
        self.end()

    def drop(self) -> None:
        end, self.end_ = self.end_, None
        self._connecting = 0
        self._disconnected()
        if end is not None:
            end.close()

    def after(self) -> None:
        """Run its task: end one connection and begin the next."""
        if self._is_over:
            return
        if self._left and (self.end_ is not None or self._connecting):
            self.drop()
        if self.end_ is None and not self._connecting:
            address = self._address_to_connect()
            if address is not None:
                self._connect(address)

    def _connect(self, address: str) -> None:
        scene, host = self.scene, self.process.host
        target = scene.host_at(address)
        self._connects()
        self.process.dialled += 1
        number = self._connecting = self.process.dialled

        def through() -> None:
            if self._connecting != number or self._is_over:
                mine.close()
                return
            self._connecting = 0
            self.end_ = mine
            mine.heard, mine.lost = self._received, self._lost
            self._carefully(self._opened)

        mine = End(self.process, number)

        def reached() -> None:
            """Connect at once, as the peer's system does; its process may be paused and hear of it later."""
            there = target.process
            if there is None or not there.opened:
                return
            theirs = End(there, number, mine)
            mine.other = theirs
            target.do(there, E_CONNECTED, lambda: there.port.accept(theirs))
            scene.send(target, host, mine.kind, lambda: host.do(
                self.process, E_CONNECTED, through))

        scene.send(host, target, mine.kind, reached)
        self.process.later(self._connect_timeout_ms * MS, E_CONNECTED, lambda: self._not_connected(number))

    def _not_connected(self, number: int) -> None:
        if self._connecting == number:
            self._connecting = 0
            self._closed()

    def _lost(self) -> None:
        """Note that the other end or the network ended the connection."""
        if self.end_ is not None:
            self.drop()
            self._closed()

    def _received(self, data: bytes) -> None:
        self._carefully(lambda: self._hear(data))

    def _carefully(self, call: Callable[[], object]) -> None:
        """Call this; a protocol error ends the connection."""
        try:
            call()
        except FAULTS as error:
            self.scene.counts[f"connection ended by {type(error).__name__}"] += 1
            self.drop()
            self._closed()

    def _wake(self) -> None:
        """Do nothing: the task runs after each event."""

    def _hang_up(self) -> None:
        """Do nothing: the task runs after each event."""

    def _write(self, data: bytes) -> None:
        if self.end_ is not None:
            self.end_.send(data)


class Following(Dialling[MasterHandshake | Transfer]):
    """Copies from the master of an epoch, and is watched."""

    def __init__(self, switch: Switch, core: HaSlave) -> None:
        super().__init__(switch.process, core, MasterMessages, switch.config.connect_timeout_ms, switch.epoch_file,
                         switch._tell)
        self.core = core

    def _one(self, output: Output) -> None:
        process, watch = self.process, self.scene.watch
        match output:
            case Send(data):
                watch.copies.acknowledges(process, self.end_, data)
            case TruncateLog(point):
                watch.copies.truncates(process, point)
            case LogTrusted():
                watch.doubts.trusted(process)  # it may be killed when that is on its disk
        super()._one(output)
        match output:
            case SetConfirm():
                watch.confirms(process)
            case WriteEpochs():
                watch.copies.wrote_epochs(process)
            case TruncateLog(point):
                watch.copies.truncated(process, point)

    def _append_whole(self, whole: list[bytes | memoryview], begin: int) -> None:
        self.scene.watch.copies.stores(self.process, self.end_, begin, b"".join(whole))
        super()._append_whole(whole, begin)
