"""The replicas manager against a controller of a few lines: first boot, role changes, faults and the lease."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.insync import InSync
from broker.ha.taking import Become, BecomeMaster, BecomeSlave
from broker.replicas.config import ManagerConfig
from broker.replicas.identity import load
from broker.replicas.machine import SEASONED, State
from broker.replicas.manager import ReplicasManager
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
from remoting.bodies.controller import ElectMasterResponseBody, SyncStateSet
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.headers.controller import (
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    ElectMasterRequest,
    ElectMasterResponse,
    GetMetadataResponse,
    GetNextBrokerIdResponse,
    GetReplicaInfoResponse,
    NotifyBrokerRoleChangedRequest,
    RegisterBrokerToControllerRequest,
    RegisterBrokerToControllerResponse,
)

MS = NS_PER_MS
CONFIG = ManagerConfig("c", "b", "10.0.0.1:10911", ("ctl1", "ctl2"))
HA = HaConfig(all_ack_in_sync_state_set=True)


@attrs.define
class Controller:
    """One group's metadata; ``down`` answers nothing."""

    next_id: int = 1
    codes: dict[int, str] = attrs.field(factory=dict)
    addresses: dict[int, str] = attrs.field(factory=dict)
    master: int | None = None
    epoch: int = 0
    members: frozenset[int] = frozenset()
    set_epoch: int = 0
    java: bool = False
    knows_doubt: bool = True
    """An earlier release does not."""
    tells_whose_lease: bool = True
    """An earlier release does not."""
    down: bool = False
    answers: dict[int, int] = attrs.field(factory=dict)
    """Request code -> the response code to give in place of an answer."""
    heartbeats: list[BrokerHeartbeatRequest] = attrs.field(factory=list)
    registrations: list[RegisterBrokerToControllerRequest] = attrs.field(factory=list)
    elections: list[ElectMasterRequest] = attrs.field(factory=list)
    seen: list[int] = attrs.field(factory=list)

    def answer(self, address: str, command: Command) -> Command | None:
        self.seen.append(command.code)
        if self.down:
            return None
        if command.code in self.answers:
            return response(command, self.answers[command.code])
        body = SyncStateSet(self.members, self.set_epoch).to_json()
        at = self.addresses.get(self.master or 0)
        match command.code:
            case RequestCode.CONTROLLER_GET_METADATA_INFO:
                return response(command, header=GetMetadataResponse(controller_leader_address="ctl1"))
            case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
                return response(command, header=GetNextBrokerIdResponse("c", "b", self.next_id))
            case RequestCode.CONTROLLER_APPLY_BROKER_ID:
                ask = ApplyBrokerIdRequest.from_ext(command.ext)
                if self.codes.setdefault(ask.applied_broker_id, ask.register_check_code) != ask.register_check_code:
                    return response(command, ResponseCode.CONTROLLER_BROKER_ID_INVALID)
                self.next_id = max(self.next_id, ask.applied_broker_id + 1)
                return response(command)
            case RequestCode.CONTROLLER_REGISTER_BROKER:
                who = RegisterBrokerToControllerRequest.from_ext(command.ext)
                if who.broker_id not in self.codes:
                    return response(command, ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED)
                self.registrations.append(who)
                self.addresses[who.broker_id] = who.broker_address
                known = (self.master, at, self.epoch, self.set_epoch) if at else (None,) * 4
                return response(command, header=RegisterBrokerToControllerResponse("c", "b", *known), body=body)
            case RequestCode.BROKER_HEARTBEAT:
                beat = BrokerHeartbeatRequest.from_ext(command.ext)
                self.heartbeats.append(beat)
                renewed = address == "ctl1" and not self.java and beat.broker_id == self.master
                doubt = beat.log_in_doubt if self.knows_doubt else None
                header = BrokerHeartbeatResponse(
                    renewed, doubt, lease_epoch=self.epoch if renewed and self.tells_whose_lease else None)
                return response(command, header=None if self.java else header)
            case RequestCode.CONTROLLER_ELECT_MASTER:
                return self._elect(command)
            case RequestCode.CONTROLLER_GET_REPLICA_INFO:
                return response(command, header=GetReplicaInfoResponse(self.master, at, self.epoch), body=body)
            case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                alter, wish = AlterSyncStateSetRequest.from_ext(command.ext), SyncStateSet.from_json(command.body)
                if (alter.master_epoch, wish.sync_state_set_epoch) != (self.epoch, self.set_epoch):
                    return response(command, ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH)
                self.members, self.set_epoch = wish.sync_state_set, self.set_epoch + 1
                return response(command, body=SyncStateSet(self.members, self.set_epoch).to_json())
        raise AssertionError(command.code)

    def _elect(self, command: Command) -> Command:
        elect = ElectMasterRequest.from_ext(command.ext)
        self.elections.append(elect)
        if not self.java and elect.lost_epoch == self.epoch and elect.broker_id == self.master:
            self.master, self.epoch = None, self.epoch + 1
            return response(command, ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE)
        if elect.designate_elect and elect.broker_id in self.addresses:
            self.master, self.epoch, self.set_epoch = elect.broker_id, self.epoch + 1, self.set_epoch + 1
        elif elect.designate_elect:
            return response(command, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
        elif self.master is not None:
            return response(
                command, ResponseCode.CONTROLLER_MASTER_STILL_EXIST, ElectMasterResponse(
                    self.master, self.addresses.get(self.master), self.epoch, self.set_epoch),
                ElectMasterResponseBody(self.members).to_json())
        if self.master is None:
            self.master, self.epoch, self.set_epoch = 1, self.epoch + 1, self.set_epoch + 1
            self.members = frozenset({1})
        return response(
            command, header=ElectMasterResponse(
                self.master, self.addresses.get(self.master), self.epoch, self.set_epoch),
            body=ElectMasterResponseBody(self.members).to_json())


POINTS = ["before 1012", "after 1012", "before application", "after application", "before 1013", "after 1013",
          "before identity", "between identity and removal", "after identity", "before 1003", "after 1003",
          "after 904", "before 1002", "after 1002"]


class Crash(Exception):
    pass


class Broker:
    """The manager and its surroundings: two files, replication that does what it is told, and a clock."""

    def __init__(self, controller: Controller, config: ManagerConfig = CONFIG, life: int | None = None,
                 lives: tuple[int, ...] | None = None) -> None:
        """``lives``: on its disk."""
        self.controller, self.config, self.life, self.lives = controller, config, life, lives
        self.in_doubt = False
        self.identity: str | None = None
        self.application: str | None = None
        self.now = 0
        self.starts = 0
        self.doubtful_epoch = -1
        self.crash_at = ""
        self.start()

    def start(self) -> None:
        self.starts += 1
        found = load("c", "b", self.identity, self.application)
        self.manager = ReplicasManager(self.config, found, f"10.0.0.1:10911;{self.starts}",
                                       self.doubtful_epoch, life=self.life, lives=self.lives)
        self.left = 0
        self.roles: list[Become] = []
        self.fences: list[str] = []
        self.reports: list[str] = []
        self.held: list[SendCommand] = []
        self.lose: set[int] = set()
        self.refuse_roles = False
        self.slow = False
        """A role is taken when ``taken`` says so."""
        self.taking: list[Become] = []

    def crash(self, where: str) -> None:
        if self.crash_at == where:
            self.crash_at = ""
            raise Crash

    def do(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case SendCommand(request, address, command, _):
                    if command.code in self.lose:
                        self.held.append(output)
                        continue
                    self.crash(f"before {command.code}")
                    answer = self.controller.answer(address, command)
                    self.crash(f"after {command.code}")
                    self.do(self.manager.answered(request, answer, self.now))
                case WriteApplication(application):
                    self.crash("before application")
                    self.application = application.to_text()
                    self.crash("after application")
                    self.do(self.manager.written(self.now))
                case WriteIdentity(identity):
                    self.crash("before identity")
                    self.identity = identity.to_text()
                    self.crash("between identity and removal")
                    self.application = None
                    self.crash("after identity")
                    self.do(self.manager.written(self.now))
                case WriteLives(lives, doubt):
                    self.crash("before lives")
                    self.in_doubt |= doubt
                    self.crash("between doubt and lives")
                    self.lives = lives
                    self.crash("after lives")
                    self.do(self.manager.written(self.now))
                case RemoveApplication():
                    self.application = None
                    self.do(self.manager.written(self.now))
                case BecomeMaster() | BecomeSlave():
                    self.take(output)
                case Leave():
                    self.left += 1
                    self.manager.in_sync = None
                case Serve():
                    self.fences.append("")
                case Fence(reason):
                    self.fences.append(reason)
                case Report(problem):
                    self.reports.append(problem)

    def take(self, role: Become) -> None:
        if self.refuse_roles:
            self.do(self.manager.role_failed(role, "no", self.now))
            return
        self.manager.in_sync = None
        if self.slow:
            self.taking.append(role)
        else:
            self.taken(role)

    def taken(self, role: Become) -> None:
        self.roles.append(role)
        if isinstance(role, BecomeMaster):
            assert self.manager.broker_id is not None
            self.manager.in_sync = InSync(self.manager.broker_id, HA, role.sync_state_set, role.sync_state_set_epoch,
                                          0, 0, 0, 0, self.now)
        self.do(self.manager.role_taken(role, self.now))

    def run(self, ms: int) -> None:
        """Time passes; the manager wakes when it says."""
        end = self.now + ms * MS
        self.do(self.manager.tick(self.now))
        while (due := self.manager.next_deadline(self.now)) is not None and due <= end:
            self.now = due
            self.do(self.manager.tick(self.now))
        self.now = end

    def notify(self, master: int, address: str, epoch: int, life: int | None = None) -> None:
        self.do(self.manager.notified(NotifyBrokerRoleChangedRequest(address, epoch, 9, master, life),
                                      SyncStateSet(frozenset({master}), 9), self.now))


def booted(**controller: object) -> Broker:
    broker = Broker(Controller(**controller))  # type: ignore[arg-type]
    broker.run(100)
    assert broker.manager.machine.state in SEASONED
    return broker


def test_first_boot() -> None:
    broker = booted()
    assert broker.identity == "c#b#1"
    assert broker.application is None
    assert broker.roles == [BecomeMaster(1, frozenset({1}), 1)]
    assert broker.fences == [""], "it serves once, when all is done"
    seen = broker.controller.seen
    assert seen.index(RequestCode.BROKER_HEARTBEAT) < seen.index(RequestCode.CONTROLLER_ELECT_MASTER)
    assert seen.index(RequestCode.CONTROLLER_REGISTER_BROKER) < seen.index(RequestCode.BROKER_HEARTBEAT)


def test_a_broker_that_was_cleaned_away_while_it_had_no_master_says_so() -> None:
    """It registered before, and would never do so again."""
    broker = Broker(Controller(answers={
        RequestCode.CONTROLLER_ELECT_MASTER: ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED}))
    broker.run(3_000)
    assert broker.manager.machine.state is State.IDLE
    assert "does not know broker 1" in broker.reports[0] and "remove the identity file" in broker.reports[0]


def test_a_learner_asks_for_no_election_and_follows_whom_others_elected() -> None:
    broker = Broker(Controller(), attrs.evolve(CONFIG, learner=True))
    broker.run(6_000)
    assert RequestCode.CONTROLLER_ELECT_MASTER not in broker.controller.seen
    assert broker.roles == []
    controller = broker.controller
    controller.addresses[2], controller.master, controller.epoch = "m2:1", 2, 1
    broker.run(6_000)
    assert broker.roles == [BecomeSlave(1, 2, "m2:1")]
    assert broker.manager.serving


def test_an_election_waits_for_an_answered_heartbeat() -> None:
    """Before it the controller does not know that this broker lives."""
    broker = Broker(Controller())
    broker.lose = {RequestCode.BROKER_HEARTBEAT}
    broker.run(7_000)
    assert broker.manager.machine.state is State.IDLE
    assert broker.controller.elections == []
    broker.lose = set()
    broker.run(1_000)
    assert len(broker.controller.elections) == 1 and broker.manager.serving


def test_heartbeats_say_what_the_controller_elects_by() -> None:
    config = attrs.evolve(CONFIG, min_in_sync_replicas=2, all_ack_in_sync_state_set=True, learner=True)
    broker = Broker(Controller(), config)
    broker.run(2_000)
    beat = broker.controller.heartbeats[-1]
    assert (beat.master_lease_ms, beat.min_in_sync_replicas, beat.all_ack_in_sync_state_set, beat.learner) == (
        5_000, 2, True, True)
    assert (beat.broker_id, beat.heartbeat_timeout_ms, beat.epoch) == (1, 10_000, -1)
    (registered,) = broker.controller.registrations
    assert (registered.master_lease_ms, registered.min_in_sync_replicas, registered.all_ack_in_sync_state_set,
            registered.learner) == (5_000, 2, True, True)
    assert len(broker.controller.heartbeats) in (4, 6), "each second to each controller"


def test_a_controller_that_never_answers_holds_up_no_heartbeat() -> None:
    """apache/rocketmq#5929."""
    broker = booted()
    broker.run(500)
    for beats in range(1, 6):
        broker.now += 1_000 * MS
        sent = [output for output in broker.manager.tick(broker.now) if isinstance(output, SendCommand)]
        before = len(broker.controller.heartbeats)
        broker.do([output for output in sent if output.address == "ctl1"])
        assert len(broker.controller.heartbeats) == before + 1, beats
        assert RequestCode.BROKER_HEARTBEAT in {output.command.code for output in sent if output.address == "ctl2"}
    assert broker.manager.serving


def test_a_master_without_a_controller_fences_itself_and_comes_back() -> None:
    broker = booted()
    broker.run(2_900)
    broker.controller.down = True
    broker.run(3_500)
    assert broker.fences == [""]
    broker.run(2_000)
    assert broker.fences[1:] == ["no active controller has renewed the lease for 4500 ms"]
    broker.controller.down = False
    broker.run(1_500)
    assert broker.fences[2:] == [""]


def test_who_becomes_master_again_after_its_lease_opens_at_once() -> None:
    broker = booted()
    controller = broker.controller
    controller.master, controller.epoch, controller.addresses[2] = 2, 2, "m2:1"
    broker.notify(2, "m2:1", 2)
    broker.run(8_300)
    assert broker.roles[-1] == BecomeSlave(2, 2, "m2:1")
    assert not broker.manager.lease.holds(broker.now), "a slave's is not renewed"
    controller.master, controller.epoch = 1, 3
    broker.notify(1, CONFIG.address, 3)
    assert isinstance(broker.roles[-1], BecomeMaster)
    assert broker.manager.serving, "without waiting for the next heartbeat"


def test_the_lease_counts_from_the_sending_of_the_heartbeat() -> None:
    broker = booted()
    broker.run(500)
    broker.lose = {RequestCode.BROKER_HEARTBEAT}
    broker.run(1_000)
    sent_at = broker.held[0]
    broker.run(3_000)
    broker.do(broker.manager.answered(
        sent_at.request, response(sent_at.command, header=BrokerHeartbeatResponse(True)), broker.now))
    assert broker.manager.lease.until_ns == 5_700 * MS


def test_a_new_master_serves_nobody_before_its_lease_is_granted() -> None:
    """It may have been cut off right after its election, and be replaced: nothing would ever tell it so."""
    broker = booted()
    controller = broker.controller
    controller.master, controller.addresses[2] = 2, "m2:1"
    broker.start()
    broker.run(2_000)
    assert isinstance(broker.roles[-1], BecomeSlave) and broker.manager.lease.until_ns is None
    controller.master, controller.epoch = 1, 2
    broker.lose = {RequestCode.BROKER_HEARTBEAT}
    broker.notify(1, CONFIG.address, 2)
    broker.run(1_000)
    assert isinstance(broker.roles[-1], BecomeMaster) and not broker.manager.serving
    assert len(broker.held) >= 10, "it asks again before the usual second is over"
    broker.lose = set()
    broker.run(200)
    assert broker.manager.serving


@pytest.mark.parametrize("alone", [True, False])
def test_a_master_that_lost_what_others_hold_resigns(alone: bool) -> None:
    """It asks for another epoch; the controller elects anew, it or another, and it serves in that."""
    broker = booted()
    controller = broker.controller
    controller.members = frozenset({1} if alone else {1, 2})
    beats = len(controller.heartbeats)
    broker.doubtful_epoch = 1
    broker.start()
    broker.run(100)
    (asked, *_) = controller.elections[1:]
    assert (asked.lost_epoch, asked.broker_id, asked.designate_elect) == (1, 1, False)
    assert [role.epoch for role in broker.roles] == [3], "one epoch without a master, and a new one"
    assert broker.manager.serving and len(controller.heartbeats) > beats
    assert ["went down while this broker was master in epoch 1" in report for report in broker.reports] == [True]


def test_a_controller_that_knows_no_resigning_is_asked_for_the_others() -> None:
    """Java's. Who is asked for is a member of the SyncStateSet, which holds all that was acknowledged."""
    broker = booted(java=True)
    broker.config = attrs.evolve(CONFIG, all_ack_in_sync_state_set=True)
    controller = broker.controller
    controller.members, controller.addresses[2] = frozenset({1, 2, 3}), "m2:1"
    broker.doubtful_epoch = 1
    beats = len(controller.heartbeats)
    broker.start()
    broker.run(100)
    assert broker.roles == [BecomeSlave(2, 2, "m2:1")]
    assert [each.broker_id for each in controller.elections[1:] if each.designate_elect] == [2]
    assert len(controller.heartbeats) == beats + 2, "none before it was replaced"
    assert broker.manager.serving


def test_a_master_that_resigns_is_silent_until_a_java_controller_gives_it_up() -> None:
    """In weaker modes the others may lack what was acknowledged: the controller chooses."""
    broker = booted(java=True)
    controller = broker.controller
    controller.members = frozenset({1, 2})
    broker.doubtful_epoch = 1
    broker.start()
    beats = len(controller.heartbeats)
    broker.run(9_000)
    assert broker.roles == [] and not broker.manager.serving
    assert len(controller.heartbeats) == beats
    assert not any(each.designate_elect for each in controller.elections)
    controller.master, controller.epoch = None, 2
    broker.run(2_000)
    assert [role.epoch for role in broker.roles] == [3]
    assert broker.manager.serving


def test_a_doubtful_epoch_is_no_matter_to_a_slave_or_in_a_later_epoch() -> None:
    broker = booted()
    broker.doubtful_epoch = 1
    broker.controller.epoch = 2
    broker.start()
    broker.run(100)
    assert [role.epoch for role in broker.roles] == [2] and broker.manager.serving


def test_no_lease_under_a_java_controller_nor_where_it_is_off() -> None:
    java = booted(java=True)
    off = Broker(Controller(), attrs.evolve(CONFIG, master_lease_ms=0))
    off.run(100)
    for broker in (java, off):
        broker.controller.down = True
        broker.run(60_000)
        assert broker.fences == [""]


def held(broker: Broker, code: RequestCode) -> SendCommand:
    """Return the next request of that code, which is on its way."""
    broker.lose = {code}
    broker.run(CONFIG.sync_broker_metadata_period_ms + 100)
    broker.lose = set()
    return broker.held.pop()


def test_a_master_whose_epoch_ended_while_it_took_the_role_serves_nobody() -> None:
    """The poll left before it was named, and tells of the epoch after."""
    broker = booted(java=True)
    controller = broker.controller
    poll = held(broker, RequestCode.CONTROLLER_GET_REPLICA_INFO)
    broker.slow = True
    broker.notify(1, "10.0.0.1:10911", 2)
    controller.master, controller.epoch = None, 3
    controller.answers[RequestCode.CONTROLLER_ELECT_MASTER] = ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    broker.do(broker.manager.answered(poll.request, controller.answer("ctl1", poll.command), broker.now))
    broker.taken(broker.taking.pop())
    assert broker.left == 1 and not broker.manager.serving
    del controller.answers[RequestCode.CONTROLLER_ELECT_MASTER]
    broker.run(CONFIG.sync_broker_metadata_period_ms)
    broker.taken(broker.taking.pop())
    assert broker.roles[-1].epoch == 4 and broker.manager.serving


def test_an_epoch_that_is_over_is_not_taken_though_its_election_is_answered_late() -> None:
    broker = booted(java=True)
    controller = broker.controller
    controller.master, controller.epoch = None, 2
    elect = held(broker, RequestCode.CONTROLLER_ELECT_MASTER)
    late = controller.answer("ctl1", elect.command)
    controller.master, controller.epoch = None, 4
    controller.answers[RequestCode.CONTROLLER_ELECT_MASTER] = ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    broker.run(CONFIG.sync_broker_metadata_period_ms + 100)
    broker.do(broker.manager.answered(elect.request, late, broker.now))
    assert [role.epoch for role in broker.roles] == [1] and not broker.manager.serving


def test_notifications_and_polls() -> None:
    broker = booted()
    broker.notify(2, "m2:1", 3)
    assert broker.roles[1:] == [BecomeSlave(3, 2, "m2:1")]
    broker.notify(1, "10.0.0.1:10911", 2)
    broker.notify(2, "m2:1", 3)
    assert len(broker.roles) == 2, "older and known ones say nothing"
    broker.notify(2, "m2:2", 3)
    assert broker.roles[2:] == [BecomeSlave(3, 2, "m2:2")], "the master's new address is followed"
    broker.controller.master, broker.controller.epoch = 1, 4
    broker.run(6_000)
    assert isinstance(broker.roles[-1], BecomeMaster)


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("epoch", [1, 2])
def test_what_is_told_to_a_broker_without_a_role_may_be_old(epoch: int, registered: bool) -> None:
    """A late word of an epoch that is over made it master, alone in sync; or left it waiting for a registered role."""
    broker = booted()
    broker.controller.epoch = 2
    broker.start()
    if registered:
        broker.controller.answers[RequestCode.CONTROLLER_ELECT_MASTER] = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        broker.controller.master = None
        broker.run(100)
        assert broker.manager.machine.state is State.IDLE
        broker.controller.answers.clear()
    broker.controller.master = 2
    broker.controller.addresses[2] = "m2:1"
    broker.notify(1, "10.0.0.1:10911", epoch)
    broker.run(100)
    assert broker.roles == [BecomeSlave(2, 2, "m2:1")]
    assert broker.manager.machine.state in SEASONED and broker.manager.serving


def test_an_answer_that_was_asked_for_before_a_later_epoch_was_told_of_gives_no_role() -> None:
    """A broker that came back led an epoch that was over, though a controller had told it of the next one."""
    broker = booted()
    broker.start()
    broker.lose = {RequestCode.CONTROLLER_REGISTER_BROKER}
    broker.run(100)
    (asked,) = broker.held
    answer = broker.controller.answer(asked.address, asked.command)
    broker.controller.master, broker.controller.epoch, broker.controller.addresses[2] = 2, 2, "m2:1"
    broker.notify(2, "m2:1", 2)
    broker.do(broker.manager.answered(asked.request, answer, broker.now))
    assert not any(isinstance(role, BecomeMaster) for role in broker.roles)
    broker.run(100)
    assert broker.roles == [BecomeSlave(2, 2, "m2:1")] and broker.manager.serving


def test_an_epoch_from_where_no_controller_runs_makes_the_broker_ask() -> None:
    """One forged notification with a huge epoch deposed a master until the controllers had come so far."""
    broker = booted()

    def told(master: int, epoch: int) -> None:
        broker.do(broker.manager.notified(NotifyBrokerRoleChangedRequest(f"m{master}:1", epoch, 9, master),
                                          SyncStateSet(frozenset({master}), 9), broker.now, known=False))

    asked = broker.controller.seen.count(RequestCode.CONTROLLER_GET_REPLICA_INFO)
    for master in (1, 2):
        told(master, 2**31 - 1)
    assert [role.epoch for role in broker.roles] == [1] and broker.manager.serving
    assert broker.controller.seen.count(RequestCode.CONTROLLER_GET_REPLICA_INFO) == asked + 2
    told(2, 1)
    assert broker.controller.seen.count(RequestCode.CONTROLLER_GET_REPLICA_INFO) == asked + 2, "nothing newer"
    broker.controller.master, broker.controller.epoch, broker.controller.addresses[2] = 2, 2, "m2:1"
    told(2, 2)
    assert broker.roles[1:] == [BecomeSlave(2, 2, "m2:1")], "one that is true counts in the same turn"


def test_a_deposed_master_is_fenced_before_it_takes_its_new_role() -> None:
    broker = booted()
    outputs = broker.manager.notified(NotifyBrokerRoleChangedRequest("m2:1", 3, 9, 2),
                                      SyncStateSet(frozenset({2}), 9), broker.now)
    assert [type(o) for o in outputs] == [BecomeSlave, Fence] or [type(o) for o in outputs] == [Fence, BecomeSlave]
    assert not broker.manager.serving


def test_a_role_that_replication_refuses_is_no_role() -> None:
    """There the result was ignored, and the broker acted as master without its replication."""
    broker = Broker(Controller())
    broker.refuse_roles = True
    broker.run(1_000)
    assert broker.fences == []
    assert "cannot take the role of epoch 1: no" in broker.reports[0]
    broker.refuse_roles = False
    broker.run(6_000)
    assert broker.fences == [""]


def test_a_newer_role_waits_for_the_one_that_is_being_taken() -> None:
    broker = booted()
    (first, *_) = broker.manager.notified(NotifyBrokerRoleChangedRequest("m2:1", 3, 9, 2),
                                          SyncStateSet(frozenset({2}), 9), broker.now)
    later = broker.manager.notified(NotifyBrokerRoleChangedRequest("m3:1", 5, 9, 3),
                                    SyncStateSet(frozenset({3}), 9), broker.now)
    assert not [o for o in later if isinstance(o, BecomeSlave)]
    assert isinstance(first, BecomeSlave)
    assert BecomeSlave(5, 3, "m3:1") in broker.manager.role_taken(first, broker.now)


def slave_caught_up(broker: Broker) -> InSync:
    held = broker.manager.in_sync
    assert held is not None
    held.opened(2, False, broker.now)
    held.acked(2, 0, broker.now)
    return held


def test_a_slave_that_caught_up_is_reported_and_accepted() -> None:
    broker = booted()
    held = slave_caught_up(broker)
    broker.run(1)
    assert broker.controller.members == {1, 2}
    assert (held.accepted, held.accepted_epoch) == (frozenset({1, 2}), 2)
    assert not held.asked


def test_a_member_that_cannot_be_written_down_is_asked_for_later() -> None:
    broker = booted()
    held, written = slave_caught_up(broker), [False]
    held.keep = lambda epoch, members: written[0]
    broker.run(5_000)
    assert broker.controller.members == {1} and not held.asked
    written[0] = True
    broker.run(2_000)
    assert broker.controller.members == {1, 2}


@pytest.mark.parametrize(("code", "counted"), [
    (ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, False), (ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, False),
    (ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, True), (ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, True),
    (ResponseCode.CONTROLLER_INVALID_MASTER, True),
    (ResponseCode.SYSTEM_ERROR, True), (ResponseCode.CONTROLLER_NOT_LEADER, True)])
def test_only_a_certain_refusal_ends_the_union(code: int, counted: bool) -> None:
    broker = booted()
    broker.controller.answers[RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET] = code
    held = slave_caught_up(broker)
    broker.run(1)
    assert bool(held.asked) is counted
    broker.controller.answers.clear()
    held.acked(2, 0, broker.now)
    broker.run(8_000)
    assert held.accepted == {1, 2}


def test_a_lost_answer_is_found_by_the_poll() -> None:
    broker = booted()
    held = slave_caught_up(broker)
    broker.lose = {RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET}
    broker.run(1)
    broker.controller.answer("ctl1", broker.held[0].command)
    assert held.members == {1, 2}
    broker.run(6_000)
    assert held.accepted == {1, 2}
    assert not held.asked


def test_the_gate_is_lowered_when_the_active_controller_has_answered() -> None:
    broker = Broker(Controller(), attrs.evolve(CONFIG, min_in_sync_replicas=2))
    broker.run(100)
    broker.lose = {RequestCode.BROKER_HEARTBEAT}
    broker.manager.gate.announce(1)
    broker.run(1_500)
    assert broker.manager.gate.in_force == 2
    follower, active = (next(s for s in broker.held if s.address == a) for a in ("ctl2", "ctl1"))
    broker.do(broker.manager.answered(follower.request, response(follower.command), broker.now))
    assert broker.manager.gate.in_force == 2
    broker.do(broker.manager.answered(
        active.request, response(active.command, header=BrokerHeartbeatResponse(True)), broker.now))
    assert broker.manager.gate.in_force == 1


def test_an_answer_to_a_heartbeat_of_while_a_change_of_the_set_was_under_way_lowers_no_gate() -> None:
    """That one said that two are demanded, and may let others be elected after the heartbeat was answered."""
    broker = Broker(Controller(), attrs.evolve(CONFIG, min_in_sync_replicas=2, all_ack_in_sync_state_set=True))
    broker.run(100)
    held = slave_caught_up(broker)
    broker.lose = {RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET}
    broker.run(1)
    assert held.asked and broker.held[0].command.ext["minInSyncReplicas"] == "2"
    broker.manager.gate.announce(1)
    broker.run(3_000)
    assert held.asked and broker.manager.gate.in_force == 2
    broker.lose = set()
    (late,) = broker.held
    broker.do(broker.manager.answered(late.request, broker.controller.answer("ctl1", late.command), broker.now))
    broker.run(3_000)
    assert not held.asked and broker.manager.gate.in_force == 1


@pytest.mark.parametrize(("all_ack", "least", "said"), [(True, 3, "3"), (True, 1, None), (False, 3, None)])
def test_a_master_that_waits_for_its_whole_set_says_with_each_change_of_it_how_many_it_demands(
    all_ack: bool, least: int, said: str | None,
) -> None:
    config = attrs.evolve(CONFIG, min_in_sync_replicas=least, all_ack_in_sync_state_set=all_ack)
    broker = Broker(Controller(), config)
    broker.run(100)
    slave_caught_up(broker)
    broker.lose = {RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET}
    broker.run(1)
    assert broker.held[0].command.ext.get("minInSyncReplicas") == said


def test_a_lost_leader_is_looked_for_without_haste_and_an_unreadable_answer_harms_nobody() -> None:
    broker = booted()
    broker.controller.down = True
    before = len(broker.controller.seen)
    broker.run(10_000)
    assert len(broker.controller.seen) - before < 80
    broker.do(broker.manager.tick(broker.now))
    broker.controller.down = False
    broker.lose = {RequestCode.CONTROLLER_GET_REPLICA_INFO}
    broker.run(6_000)
    sent = broker.held[0]
    bad = response(sent.command, body=b"{")
    broker.do(broker.manager.answered(sent.request, bad, broker.now))
    assert "cannot be read" in broker.reports[-1]


def test_a_master_that_hands_over_writes_nothing_again() -> None:
    broker = booted()
    broker.do(broker.manager.hand_over(broker.now))
    broker.controller.down = True
    broker.run(7_000)
    assert not broker.manager.lease.holds(broker.now)
    broker.controller.down = False
    broker.run(3_000)
    assert broker.manager.lease.holds(broker.now)
    broker.notify(1, "10.0.0.1:10911", 5)
    broker.run(3_000)
    assert broker.roles[-1].epoch == 5, "elected once more"
    assert broker.fences == ["", "mastership is handed over"]
    broker.notify(2, "10.0.0.2:10911", 6)
    assert broker.manager.serving, "as a slave"


def test_shutdown_fences_and_ends_all() -> None:
    broker = booted()
    broker.do(broker.manager.shutdown(broker.now))
    assert broker.fences[-1] == "the broker has no role: it is about to end"
    assert broker.manager.tick(broker.now + 10**12) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(
    st.tuples(st.just("run"), st.integers(1, 9_000)), st.tuples(st.just("crash"), st.sampled_from(POINTS)),
    st.tuples(st.just("down"), st.booleans()), st.tuples(st.just("java"), st.booleans()),
    st.tuples(st.just("elect"), st.integers(1, 3))), max_size=25))
def test_whatever_happens_it_serves_only_by_right_and_ends_up_serving(script: list[tuple[str, object]]) -> None:
    controller = Controller()
    broker = Broker(controller)
    for name, argument in script:
        if name == "down":
            controller.down = bool(argument)
        elif name == "elect" and controller.master is not None and isinstance(argument, int):
            controller.addresses.setdefault(argument, f"m{argument}:1")
            controller.master, controller.epoch = argument, controller.epoch + 1
            controller.members, controller.set_epoch = frozenset({argument}), controller.set_epoch + 1
        elif name == "crash":
            broker.crash_at = str(argument)
        elif isinstance(argument, int):
            epoch = broker.manager.epoch
            try:
                broker.run(argument)
            except Crash:
                broker.start()
                epoch = 0
            assert broker.manager.epoch >= epoch
        manager = broker.manager
        if manager.serving:
            assert manager.machine.state in SEASONED
            assert broker.identity == "c#b#1"
    controller.down, broker.crash_at = False, ""
    broker.run(20_000)
    assert broker.manager.serving
    assert controller.next_id == 2
    assert broker.manager.epoch == controller.epoch
    assert isinstance(broker.manager.role, BecomeMaster) == (controller.master == 1)
