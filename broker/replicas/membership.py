"""A broker in its group without its waits: the replicas manager, its files, and the order of what it asks for.

``shell.GroupMember`` and the simulation of brokers drive it: each sends requests, changes roles and keeps time its own
way. What follows from an output comes behind those that are there already. It decides nothing and knows no connections.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from broker.ha.insync import InSync
from broker.ha.taking import Become, BecomeMaster, BecomeSlave
from broker.replicas import identity
from broker.replicas.carrying import Carrier
from broker.replicas.config import ManagerConfig
from broker.replicas.machine import REGISTERED, TAKING
from broker.replicas.manager import LogState, ReplicasManager
from broker.replicas.outputs import (
    Fence,
    Leave,
    Output,
    RemoveApplication,
    Report,
    SendCommand,
    Serve,
    WriteApplication,
    WriteIdentity,
    WriteLives,
)
from broker.replicas.probing import ProbeMemberRequest
from broker.store.lives import StoreLives
from remoting.bodies.controller import SyncStateSet
from remoting.codes import ResponseCode
from remoting.command import Command, response
from remoting.headers.controller import NotifyBrokerRoleChangedRequest

if TYPE_CHECKING:
    from remoting.daemon.files import Files

TEMP: Final = "-temp"
"""``<identity file>-temp`` holds the application for an id."""


class Membership(ABC):
    """A broker's membership: ``carry_out`` what the manager says, and tell it what came of that."""

    def __init__(
        self, config: ManagerConfig, *, files: Files, identity_path: str, check_code: str,
        log_state: Callable[[], LogState], advance: Callable[[], None], doubtful_epoch: int, life: int | None,
        lives: StoreLives | None,
    ) -> None:
        """``advance`` is replication's; the two before the last are as in ``ReplicasManager``. Raises
        ``IdentityError``, ``OSError``."""
        self._config, self._files, self._path, self._log_state = config, files, identity_path, log_state
        self._lives = lives
        try:
            found = identity.load(config.cluster_name, config.broker_name, self._read(identity_path),
                                  self._read(identity_path + TEMP))
        except identity.IdentityError as error:
            raise identity.IdentityError(f"{identity_path}: {error}") from None
        if isinstance(found, identity.Identity):
            files.remove(identity_path + TEMP)  # a crash may have come before its removal
            assert self._read(identity_path + TEMP) is None, "who has an id applies for none"
        self.manager: ReplicasManager = ReplicasManager(
            config, found, check_code, doubtful_epoch, life=life, lives=None if lives is None else lives.read())
        self._carry = Carrier(self._one, lambda: self.manager.in_sync, advance)
        self._unwritten: Output | None = None
        """The output whose file the disk refused to write or remove."""

    def _read(self, path: str) -> str | None:
        content = self._files.read(path)
        return None if content is None else content.decode(errors="replace")

    def _now_manager(self) -> ReplicasManager:
        self.manager.log = self._log_state()
        return self.manager

    # --- for the heir ----------------------------------------------------------------------------------------

    @abstractmethod
    def _clock(self) -> int:
        """Return the monotonic time, in nanoseconds."""

    @abstractmethod
    def _ring(self) -> None:
        """Have the manager tick soon: something changed."""

    @abstractmethod
    def _send(self, send: SendCommand) -> None:
        """Begin to send this request; ``_answered`` is called with what comes."""

    @abstractmethod
    def _change(self, change: Become | Leave) -> None:
        """Begin this role behind those under way; then call ``_took`` or ``_refused``, but not for ``Leave``."""

    @abstractmethod
    def _told(self, role: Become) -> None:
        """Tell the rest of the broker that it has that role; so far only replication and the manager know."""

    @abstractmethod
    def _serve(self) -> None:
        """Writes are open from now on."""

    @abstractmethod
    def _fence(self, reason: str) -> None:
        """Writes are closed from now on."""

    @abstractmethod
    def _report(self, problem: str) -> None:
        """Report what keeps this broker from its work."""

    # --- what happens ----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.carry_out(self._now_manager().tick(self._clock()))

    def _answered(self, send: SendCommand, answer: Command | None) -> None:
        self.carry_out(self._now_manager().answered(send.request, answer, self._clock()))
        self._ring()  # deadlines have changed

    def _notified(self, command: Command, *, known: bool) -> None:
        """Take a notice of 1008. ``known``: it comes from where a controller runs."""
        header = NotifyBrokerRoleChangedRequest.from_ext(command.ext)
        members = SyncStateSet.from_json(command.body) if command.body else SyncStateSet(frozenset())
        self.carry_out(self._now_manager().notified(header, members, self._clock(), known=known))

    def probed(self, command: Command) -> Command:
        """Answer 61,011, by which another member asks whether this one is there."""
        asked, config, manager = ProbeMemberRequest.from_ext(command.ext), self._config, self.manager
        if (asked.cluster_name, asked.broker_name) != (config.cluster_name, config.broker_name):
            return response(command, ResponseCode.SYSTEM_ERROR, remark="this broker is of another group")
        if asked.broker_id != manager.broker_id or manager.machine.state not in REGISTERED:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=f"this is not broker {asked.broker_id}, or no "
                                                                      "controller counts it as that one")
        return response(command)

    def _took(self, role: Become, in_sync: InSync | None) -> None:
        """Replication has taken that role. ``in_sync``: the sets of a master."""
        assert in_sync is None or in_sync.self_id == self.manager.broker_id, "a master's books are its own"
        assert isinstance(role, BecomeMaster) is (in_sync is not None), "only a master keeps books"
        self.manager.in_sync = in_sync
        outputs = self._now_manager().role_taken(role, self._clock())
        if self.manager.machine.state not in TAKING and self.manager.role == role:
            self._told(role)  # a role that is not wanted any more is not told
        self.carry_out(outputs)
        self._ring()

    def _refused(self, role: Become, reason: str) -> None:
        """Replication could not take that role."""
        self.carry_out(self._now_manager().role_failed(role, reason, self._clock()))
        self._ring()

    # --- outputs ---------------------------------------------------------------------------------------------

    def carry_out(self, outputs: Iterable[Output]) -> None:
        """Carry out outputs in order; what follows from one comes behind those that are there already."""
        self._carry(outputs)

    def _one(self, output: Output) -> None:
        match output:
            case SendCommand():
                self._send(output)
            case BecomeMaster() | BecomeSlave() | Leave():
                self.manager.in_sync = None
                self._change(output)
            case Serve():
                self._serve()
            case Fence(reason=reason):
                self._fence(reason)
            case Report(problem=problem):
                self._report(problem)
            case _:
                self._write(output)

    def _write(self, output: Output) -> None:
        """Write a file on this thread: at most a few times in a broker's life, before it serves anybody."""
        assert self._unwritten in (None, output), "one file at a time"
        try:
            match output:
                case WriteApplication(application=application):
                    self._files.replace(self._path + TEMP, application.to_text().encode())
                case WriteIdentity(identity=granted):
                    self._files.replace(self._path, granted.to_text().encode())
                    self._files.remove(self._path + TEMP)
                case RemoveApplication():
                    self._files.remove(self._path + TEMP)
                case WriteLives(lives=lives, doubt=doubt):
                    assert self._lives is not None, "who has read lives writes them"
                    self._lives.write(lives, doubt=doubt)
        except OSError as error:
            self._unwritten = output
            what = "lives" if isinstance(output, WriteLives) else "identity"
            self._report(f"the broker's {what} cannot be written beside {self._path}: {error}")
            return
        self._unwritten = None
        self.carry_out(self._now_manager().written(self._clock()))
