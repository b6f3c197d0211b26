"""Controllers with shipped metadata, liveness and decisions, on one copy of the log; the active one changes.

The active controller decides a command from its own view; the command takes effect a moment later, or perhaps never if
a failover comes first. Raft itself is simulated in ``harness.simulation.controllers``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from controller import answers
from controller.active import ActiveController, ElectionSettings
from controller.liveness import Life, Liveness
from controller.metadata.codec import encode
from controller.metadata.commands import AnyCommand, ElectMaster
from controller.metadata.groups import GroupKey
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Outcome, Refused
from controller.notifications import Notification
from controller.requests import WRITES, Seen, read_command, read_heartbeat
from raft.config import MS
from remoting.bodies.controller import BrokerNames
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.headers.controller import (
    GetMetadataResponse,
    GetNextBrokerIdRequest,
    GetReplicaInfoRequest,
    GetSyncStateDataRequest,
)

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.scene import BrokerScene

NAMES: Final = ("n0:9878", "n1:9878")
LIFE: Final = ("brokerLife", "alreadyRunning", "knownLives")
"""Fields of requests that carry a broker's life."""
UNKNOWN_TO_JAVA: Final = (*LIFE, "minInSyncReplicas")
"""Fields that Java's controllers ignore: there only the SyncStateSet is eligible."""
NOTIFY_TIMEOUT_NS: Final = 400 * MS
(E_ASK, E_CLOSED, E_ACT, E_COMMIT) = range(40, 44)
NEVER: Final = 1 << 62


@attrs.define(eq=False)
class BrokerChannel:
    """A connection from one run of a broker to a controller."""

    process: BrokerProcess
    controller: Controller
    names: dict[str, GroupKey] = attrs.field(factory=dict)
    open_here: bool = True
    """True while the broker's end is open; ``open_there``: the controller's."""
    open_there: bool = True


Reply = Callable[[Command], None]


def members_of(command: Command, machine: MetadataMachine, active: ActiveController, now_ns: int) -> Command:
    """Answer a 1006 for one group with a cluster name."""
    (name,) = BrokerNames.from_json(command.body).names
    key = GroupKey(GetSyncStateDataRequest.from_ext(command.ext).cluster_name or "", name)
    group = machine.group(key)
    return answers.sync_state_data(
        command, [] if group is None else [(key, group)],
        lambda key, broker_id: active.liveness.life(now_ns, key, broker_id) is Life.ALIVE)


class Controller:
    """One controller of the simulated group."""

    def __init__(self, scene: BrokerScene, number: int) -> None:
        self.scene, self.number, self.address = scene, 100 + number, NAMES[number]
        self.name = self.address.partition(":")[0]
        plan = scene.plan
        self.active = ActiveController(scene.machine, Liveness(default_timeout_ms=plan.timeout_ms), ElectionSettings(
            unclean=plan.unclean, wait_master_lease=plan.wait_master_lease))
        self._timer = NEVER
        self.paused: list[Callable[[], None]] | None = None
        """Events that wait while its process is paused; None: it runs."""

    @property
    def now(self) -> int:
        return self.scene.world.now

    def fold(self, kind: int, what: int = 0) -> None:
        self.scene.world.fold(self.number, kind, what, int(self.active.active), 0, 0)

    def activate(self, term: int) -> None:
        self.active.activate(self.now, term)
        self.act()

    # --- its process -----------------------------------------------------------------------------------------

    def pause(self) -> None:
        self.paused = self.paused or []

    def resume(self) -> None:
        waiting, self.paused = self.paused or [], None
        for call in waiting:
            self.do(call)

    def do(self, call: Callable[[], None]) -> None:
        """Call it now, or when the paused process resumes."""
        if self.paused is not None:
            self.paused.append(call)
        else:
            call()

    # --- requests --------------------------------------------------------------------------------------------

    def closed(self, channel: BrokerChannel) -> None:
        self.do(lambda: self._closed(channel))

    def _closed(self, channel: BrokerChannel) -> None:
        if channel.open_there:
            channel.open_there = False
            self.fold(E_CLOSED)
            self.active.closed(channel)
            self.act()

    def asked(self, channel: BrokerChannel, command: Command, reply: Reply) -> None:
        self.do(lambda: self._asked(channel, command, reply))

    def _asked(self, channel: BrokerChannel, command: Command, reply: Reply) -> None:
        if not channel.open_there:
            return
        self.fold(E_ASK, command.code)
        if self.scene.plan.java_controllers:
            for name in UNKNOWN_TO_JAVA:
                command.ext.pop(name, None)
        code, active, machine = command.code, self.active, self.scene.machine
        if code == RequestCode.BROKER_HEARTBEAT:
            beat = read_heartbeat(command)
            assert not isinstance(beat, Refused), beat
            channel.names[beat.key.name] = beat.key
            if self.scene.plan.java_controllers:
                beat = attrs.evolve(beat, log_in_doubt=False)
            group, renewed = machine.group(beat.key), active.heartbeat(
                self.now, beat, channel, raft_lease=active.active)
            self.act()
            reply(response(command, ResponseCode.SUCCESS) if self.scene.plan.java_controllers else answers.heartbeat(
                command, group, renewed, beat.log_in_doubt, active.on_record(beat) if active.active else None))
        elif code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            leader = self.scene.leader
            reply(response(command, ResponseCode.SUCCESS, GetMetadataResponse(
                "g", leader.name if leader else None, leader.address if leader else None, active.active)))
        elif not active.active:
            reply(response(command, ResponseCode.CONTROLLER_NOT_LEADER))
        elif code in WRITES:
            if self.scene.plan.java_controllers:
                command.ext.pop("lostEpoch", None)
            wanted = read_command(command, Seen(self.now, machine, active, channel.names))
            if isinstance(wanted, Refused):
                reply(answers.answer(command, wanted))
            else:
                self._decide(command, wanted, reply)
        elif code == RequestCode.CONTROLLER_GET_REPLICA_INFO:
            info = GetReplicaInfoRequest.from_ext(command.ext)
            key = machine.resolve(info.broker_name, info.cluster_name)
            reply(answers.answer(command, key) if isinstance(key, Refused)
                  else answers.replica_info(command, machine.group(key), key))
        elif code == RequestCode.CONTROLLER_GET_SYNC_STATE_DATA:
            reply(members_of(command, machine, active, self.now))
        else:
            next_id = GetNextBrokerIdRequest.from_ext(command.ext)
            key = GroupKey(next_id.cluster_name, next_id.broker_name)
            reply(answers.next_broker_id(command, key, machine.next_broker_id(key)))

    def _decide(self, command: Command, wanted: AnyCommand, reply: Reply) -> None:
        outcome = self.scene.machine.preview(wanted)
        if not outcome.changed:
            reply(answers.answer(command, outcome))
            return
        self.active.asked(wanted)

        def applied(done: Outcome | None) -> None:
            self.active.answered(self.now, wanted, done)
            reply(answers.answer(command, done) if done is not None
                  else response(command, ResponseCode.CONTROLLER_NOT_LEADER))
            self.act()

        self._propose(wanted, applied)

    # --- the core --------------------------------------------------------------------------------------------

    def _propose(self, command: AnyCommand, then: Callable[[Outcome | None], None]) -> None:
        """Propose a command: it is committed a moment later in this term, unless a failover loses it."""
        scene, term = self.scene, self.active.term
        data = encode(command, scene.machine.format)

        def commit(lost: bool = False) -> None:
            if commit not in scene.pending:
                return
            scene.pending.remove(commit)
            self.fold(E_COMMIT)
            if lost:
                scene.counts["proposal lost"] += 1
                self.do(lambda: then(None))
                return
            outcome = scene.machine.apply_at(data, term)
            for controller in scene.controllers:
                controller.applied(outcome)
            self.do(lambda: then(outcome if self.active.active else None))
            for controller in scene.controllers:
                controller.do(controller.act)

        scene.pending.append(commit)
        late = scene.commits.seldom(0.1, lambda _, chance: 1 + int(chance() * 250)) or 0
        scene.after((scene.commits.between(0, 4, 1) + late) * MS, commit)

    def applied(self, outcome: Outcome) -> None:
        """Take an applied entry, from any proposer."""
        self.do(lambda: self.active.applied(self.now, outcome))

    def act(self) -> None:
        todo = self.active.poll(self.now)
        for command in todo.commands:
            if isinstance(command, ElectMaster):
                self.scene.counts["elected by the controller"] += 1
            self._propose(command, lambda done, command=command: self._own(command, done))  # type: ignore[misc]
        for notification in todo.notifications:
            self._notify(notification)
        due = self.active.next_deadline()
        if due is not None and due != self._timer:
            self._timer = due
            self.scene.world.at(due, lambda due: self.do(lambda: self._tick(due)), due)

    def _own(self, command: AnyCommand, done: Outcome | None) -> None:
        self.active.answered(self.now, command, done)
        self.act()

    def _tick(self, due: int) -> None:
        if due == self._timer:
            self._timer = NEVER
            self.fold(E_ACT)
            self.act()

    def _notify(self, notification: Notification) -> None:
        told = [False]

        def acknowledged() -> None:
            if not told[0]:
                told[0] = True
                self.active.notifications.acknowledged(notification)
                self.act()

        def failed() -> None:
            if not told[0]:
                told[0] = True
                self.active.notifications.failed(self.now, notification)
                self.act()

        self.scene.notify(self, notification.address, answers.role_changed(notification.change),
                          lambda: self.do(acknowledged))
        self.scene.after(NOTIFY_TIMEOUT_NS, lambda: self.do(failed))
