"""One simulated controller: the shipped cores in a shell of virtual time.

It does what ``controller.handlers`` and ``controller.server`` do with trio: becomes active after its first read barrier
as the leader, answers requests, proposes and notifies what the core asks for, and reports the results. The decisions of
those two modules (dispatch by code, reads behind a barrier, no entry for a command without effect) are repeated here,
because they cannot run without an event loop; whole servers run in ``harness.simulation.worlds``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from controller import answers
from controller.active import ActiveController
from controller.liveness import Liveness
from controller.metadata.codec import encode
from controller.metadata.commands import AnyCommand, ElectMaster
from controller.metadata.groups import GroupKey
from controller.metadata.outcomes import Outcome, Refused
from controller.notifications import Notification
from controller.requests import WRITES, Seen, read_command, read_heartbeat
from harness.simulation.brokers.controller import members_of
from harness.simulation.controllers.messages import Answer, Ask, Channel, Closed, Notify, Told
from harness.simulation.controllers.metadata import SimMetadata
from raft.config import MS
from raft.errors import NotLeader, RaftError, Unknown
from raft.messages import Role, RoleChanged
from raft.sim.node import Life, Proposal, Reading
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.headers.controller import (
    GetMetadataResponse,
    GetNextBrokerIdRequest,
    GetReplicaInfoRequest,
    NotLeaderResponse,
)

if TYPE_CHECKING:
    from harness.simulation.controllers.scene import ControllerScene

LOST = "lostEpoch"
"""Ext field of a master that lost writes and asks for a successor."""
LOOK_NS = 300_000
NOTIFY_TIMEOUT_NS = 1_000 * MS
PATIENCE_NS = 800 * MS
"""A proposal or read that takes longer ends as unknown."""
NEVER = 1 << 62
(K_BEAT, K_ASK, K_CLOSED, K_TOLD, K_ACTIVE, K_TICK) = range(32, 38)

Then = Callable[[object], None]
"""Called with the first result, or an error."""


class ControllerProcess:
    """One run of one controller, from start to crash."""

    def __init__(self, scene: ControllerScene, name: str, life: Life) -> None:
        self.scene, self.name, self.life = scene, name, life
        self.number = life.node.number
        machine = life.machine.inner
        assert isinstance(machine, SimMetadata)
        self.machine = machine
        plan = scene.plan
        self.active = ActiveController(machine, Liveness(default_timeout_ms=plan.fleet.timeout_ms), plan.settings)
        machine.on_outcome = self._applied
        life._handlers[RoleChanged] = self._role_changed
        self.activated_ns = 0
        self._open: list[tuple[Proposal | Reading, Then]] = []
        self._looking = False
        self._timer = NEVER
        self._told: dict[int, Notification] = {}
        self._notices = self.accepted = 0
        self.role = 0
        """Rises with each change of role."""

    @property
    def now(self) -> int:
        return self.life.now

    # --- role ------------------------------------------------------------------------------------------------

    def _role_changed(self, changed: RoleChanged) -> None:
        """Become active at the first read barrier as leader, else inactive. Called inside the replica's turn."""
        self.role += 1
        if self.active.active:
            self.active.deactivate()
        if changed.role is Role.LEADER:
            self.life.later(0, self._begin, (self.role, changed.term))
        else:
            self.life.later(0, self._abandon, self.role)

    def _begin(self, which: tuple[int, int]) -> None:
        role, term = which

        def through(result: object) -> None:
            replica = self.life.replica
            if self.role != role or replica.role is not Role.LEADER or replica.term != term:
                return
            if isinstance(result, RaftError):
                self.life.later(20 * MS, self._begin, which)
                return
            self.activated_ns = self.now
            self.scene.watch.activated(self)
            self.active.activate(self.now, term)
            self._fold(K_ACTIVE, term)
            self.scene.releases.activated(self)
            self._act()

        self._read(through)

    def _abandon(self, role: int) -> None:
        """Fail all open requests of an ended leadership."""
        if self.role == role:
            waiting, self._open = self._open, []
            for _, then in waiting:
                then(NotLeader(None, None))

    # --- messages --------------------------------------------------------------------------------------------

    def receive(self, message: Ask | Closed | Told) -> None:
        """Take a message for this run of the controller."""
        life = self.life
        if life.dead:
            if isinstance(message, Ask):
                self.scene.reset(message.channel)
        elif life.paused is not None:
            life.paused.append((self.receive, message))
        elif isinstance(message, Told):
            notification = self._told.pop(message.number, None)
            if notification is not None:
                self._fold(K_TOLD, notification.broker_id)
                self.active.notifications.acknowledged(notification)
                self._act()
        elif isinstance(message, Closed):
            if message.channel.open_there:
                message.channel.open_there = False
                self._fold(K_CLOSED, message.channel.number)
                self.active.closed(message.channel)
                self._act()
        elif message.channel.open_there and message.number not in message.channel.heard:
            message.channel.heard.add(message.number)
            if message.command.code == RequestCode.BROKER_HEARTBEAT:
                self._beat(message)
            else:
                self._fold(K_ASK, message.command.code)
                self._ask(message)

    def _beat(self, ask: Ask) -> None:
        beat = read_heartbeat(ask.command)
        assert not isinstance(beat, Refused), beat
        ask.channel.names[beat.key.name] = beat.key
        now = self.now
        self._fold(K_BEAT, beat.broker_id)
        self.scene.watch.heard(self, beat, ask.channel, ask.sent)
        held = self.active.active and self.life.replica.lease_valid(now)
        renewed = self.active.heartbeat(now, beat, ask.channel, raft_lease=held, opened=ask.channel.number)
        if renewed:
            self.scene.watch.hindered.renewed(self, beat.key, beat.broker_id)
        if self.active.stirred:
            self._act()
        if not ask.command.is_oneway:
            sure = self.active.active and self.life.replica.lease_valid(now)
            self._answer(ask, answers.heartbeat(
                ask.command, self.machine.group(beat.key), renewed, beat.log_in_doubt,
                self.active.on_record(beat) if sure else None))

    def _ask(self, ask: Ask) -> None:
        command = ask.command
        if command.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            leader = self.life.replica.leader
            self._answer(ask, response(command, ResponseCode.SUCCESS, GetMetadataResponse(
                "g", leader, leader, self.active.active)))
            return
        if not self.active.active:
            self._answer(ask, self._not_leader(command))
            return
        if command.code in WRITES:
            self._behind_barrier(ask, lambda: self._write(ask))
        elif command.code == RequestCode.CONTROLLER_GET_REPLICA_INFO:
            self.scene.watch.read_reaches(self, ask)
            self._behind_barrier(ask, lambda: self._answer(ask, self._replica_info(command)))
        elif command.code == RequestCode.CONTROLLER_GET_SYNC_STATE_DATA:
            self._behind_barrier(ask, lambda: self._answer(
                ask, members_of(command, self.machine, self.active, self.now)))
        else:
            header = GetNextBrokerIdRequest.from_ext(command.ext)
            key = GroupKey(header.cluster_name, header.broker_name)
            self._behind_barrier(ask, lambda: self._answer(
                ask, answers.next_broker_id(command, key, self.machine.next_broker_id(key))))

    def _replica_info(self, command: Command) -> Command:
        header = GetReplicaInfoRequest.from_ext(command.ext)
        key = self.machine.resolve(header.broker_name, header.cluster_name)
        if isinstance(key, Refused):
            return answers.answer(command, key)
        return answers.replica_info(command, self.machine.group(key), key)

    def _behind_barrier(self, ask: Ask, go_on: Callable[[], None]) -> None:
        def through(result: object) -> None:
            if isinstance(result, RaftError):
                self._failed(ask)
            else:
                go_on()

        self._read(through)

    def _write(self, ask: Ask) -> None:
        command = ask.command
        if not self.active.active:
            self._answer(ask, self._not_leader(command))
            return
        wanted = read_command(command, self._seen(ask.channel))
        if self.active.stirred:
            self._act()
        if isinstance(wanted, Refused):
            self._answer(ask, answers.answer(command, wanted))
            return
        if isinstance(wanted, ElectMaster) and LOST not in command.ext:
            self.scene.watch.elects(self, wanted, command)
        ask.channel.names.setdefault(wanted.key.name, wanted.key)  # type: ignore[union-attr]
        self._decide(ask, wanted)

    def _decide(self, ask: Ask, command: AnyCommand) -> None:
        """Propose a command, or answer at once if it would change nothing."""
        outcome = self.machine.preview(command)
        if not outcome.changed:
            self._answer(ask, answers.answer(ask.command, outcome))
            return
        self.active.asked(command)

        def applied(result: object) -> None:
            done = result if isinstance(result, Outcome) else None
            self.active.answered(self.now, command, done)
            if done is None:
                self._failed(ask)
            else:
                self._answer(ask, answers.answer(ask.command, done))
            self._act()

        self.propose(command, applied)

    def _seen(self, channel: Channel) -> Seen:
        active = self.active
        return Seen(self.now, self.machine, active, channel.names)

    def _not_leader(self, command: Command) -> Command:
        return response(command, ResponseCode.CONTROLLER_NOT_LEADER, NotLeaderResponse(self.life.replica.leader))

    def _failed(self, ask: Ask) -> None:
        command = ask.command
        self._answer(ask, response(command, ResponseCode.SYSTEM_ERROR) if self.active.active
                     else self._not_leader(command))

    def _answer(self, ask: Ask, command: Command) -> None:
        if ask.channel.open_there:
            self.scene.send(self.name, ask.channel.host, ask.channel.kind, Answer(ask.channel, ask.number, command))

    # --- the core --------------------------------------------------------------------------------------------

    def _applied(self, outcome: Outcome) -> None:
        self.active.applied(self.now, outcome)
        self.life.later(0, self._later, None)  # commands must not start inside the turn that applies

    def _later(self, _: None) -> None:
        self._act()

    def _act(self) -> None:
        """Carry out the core's commands and notifications."""
        todo = self.active.poll(self.now)
        for command in todo.commands:
            if isinstance(command, ElectMaster):
                self.scene.watch.elects(self, command)
            self.propose(command, lambda result, command=command: self._own(command, result))  # type: ignore[misc]
        for notification in todo.notifications:
            self._notify(notification)
        self.rearm()

    def _own(self, command: AnyCommand, result: object) -> None:
        self.active.answered(self.now, command, result if isinstance(result, Outcome) else None)
        self._act()

    def rearm(self) -> None:
        """Arm a timer for the core's next deadline, by this node's clock."""
        due = self.active.next_deadline()
        self._timer = NEVER if due is None else due
        if due is not None:
            self.life.world.at(self.life.clock.world(due), self._tick, due)

    def _tick(self, due: int) -> None:
        life = self.life
        if life.dead or due != self._timer:
            return
        if life.paused is not None:
            life.paused.append((self._tick, due))
            return
        self._fold(K_TICK, 0)
        self._act()

    # --- raft ------------------------------------------------------------------------------------------------

    def propose(self, command: AnyCommand, then: Then) -> None:
        try:
            asked = self.life.propose([encode(command, self.machine.format)])
        except RaftError as error:
            self.life.later(0, _call, (then, error))
        else:
            self._await(asked, then)

    def _read(self, then: Then) -> None:
        try:
            asked = self.life.read(self.scene.plan.read, lambda machine: None)
        except RaftError as error:
            self.life.later(0, _call, (then, error))
        else:
            self._await(asked, then)

    def _await(self, asked: Proposal | Reading, then: Then) -> None:
        self._open.append((asked, then))
        if not self._looking:
            self._looking = True
            self.life.later(0, self._look, None)

    def _look(self, _: None) -> None:
        """Call the callbacks of resolved requests."""
        waiting, self._open = self._open, []
        done: list[tuple[object, Then]] = []
        overdue = self.life.world.now - PATIENCE_NS
        for asked, then in waiting:
            if asked.outcome is None or asked.outcome == []:
                if asked.at < overdue:
                    self.scene.counts["deadline passed"] += 1
                    done.append((Unknown(), then))
                else:
                    self._open.append((asked, then))
            else:
                done.append((asked.outcome, then))
        for outcome, then in done:
            then(outcome[0] if isinstance(outcome, list) else outcome)
        self._looking = bool(self._open)
        if self._looking:
            self.life.later(LOOK_NS, self._look, None)

    # --- notifications ---------------------------------------------------------------------------------------

    def _notify(self, notification: Notification) -> None:
        self._notices += 1
        number = self._notices
        self._told[number] = notification
        self.scene.notify(Notify(
            self, number, notification.address, notification.change.key, notification.broker_id,
            answers.role_changed(notification.change)))
        self.life.later(NOTIFY_TIMEOUT_NS, self._untold, number)

    def _untold(self, number: int) -> None:
        notification = self._told.pop(number, None)
        if notification is not None:
            self.active.notifications.failed(self.now, notification)
            self._act()

    def _fold(self, kind: int, what: int) -> None:
        self.life.world.fold(self.number, kind, self.active.term, int(self.active.active), what, 0)


def _call(what: tuple[Then, object]) -> None:
    then, result = what
    then(result)
