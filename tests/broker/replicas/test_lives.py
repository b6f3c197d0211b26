"""A replicas manager whose id is another process's: it has no role, asks again, and never leads that one's epoch."""

from __future__ import annotations

import attrs
import pytest

from broker.ha.taking import Become, BecomeMaster, BecomeSlave
from broker.replicas.machine import SEASONED, State
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.headers.controller import BrokerHeartbeatRequest, RegisterBrokerToControllerRequest
from tests.broker.replicas.test_manager import CONFIG, MS, Broker, Controller

MINE, OTHER = 71, 72
THERE = "10.9.9.9:10911"


@attrs.define
class Knowing(Controller):
    """Knows lives. ``other``: whoever else is on record for the id, and is not dead."""

    life: int = 0
    """On record."""
    other: bool = False
    asked: list[RegisterBrokerToControllerRequest] = attrs.field(factory=list)

    def answer(self, address: str, command: Command) -> Command | None:
        if self.down or self.java:
            return Controller.answer(self, address, command)
        if command.code == RequestCode.CONTROLLER_REGISTER_BROKER:
            who = RegisterBrokerToControllerRequest.from_ext(command.ext)
            self.asked.append(who)
            if self.other:
                return response(command, ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark="it lives")
            self.life = who.broker_life or 0
        answer = Controller.answer(self, address, command)
        if answer is None:
            return None
        if command.code == RequestCode.BROKER_HEARTBEAT and address == "ctl1" and command.code not in self.answers:
            beat = BrokerHeartbeatRequest.from_ext(command.ext)
            if beat.broker_life != self.life:
                answer.ext["registeredLife"] = str(self.life)
        elif "masterBrokerId" in answer.ext and self.life:
            answer.ext["masterLife"] = str(self.life)
        return answer

    def comes_in(self, broker_id: int = 1) -> None:
        """Another process took the place of this one, and leads what this one led."""
        self.other, self.life, self.addresses[broker_id] = True, OTHER, THERE

    def dies(self) -> None:
        self.other = False


def booted(**controller: object) -> Broker:
    broker = Broker(Knowing(**controller), life=MINE)  # type: ignore[arg-type]
    broker.run(100)
    assert broker.manager.machine.state in SEASONED
    return broker


def known(broker: Broker) -> Knowing:
    assert isinstance(broker.controller, Knowing)
    return broker.controller


def test_its_life_is_registered_and_told_with_each_heartbeat() -> None:
    broker = booted()
    assert known(broker).life == MINE
    assert {beat.broker_life for beat in broker.controller.heartbeats} == {MINE}
    assert not any(each.already_running for each in known(broker).asked)


def test_a_refused_registration_is_asked_again_each_retry_and_takes_no_role() -> None:
    broker = Broker(Knowing(codes={1: "10.0.0.1:10911;0"}, next_id=2, other=True, life=OTHER), life=MINE)
    broker.identity = "c#b#1"
    broker.start()
    broker.run(5_000)
    assert not broker.roles and len(known(broker).asked) in (5, 6)
    assert not broker.controller.heartbeats, "it speaks for nobody"
    assert "asked again" in broker.reports[0]
    known(broker).dies()
    broker.run(1_100)
    assert broker.manager.machine.state in SEASONED and broker.roles


def test_told_of_another_life_by_a_heartbeat_it_gives_up_its_role() -> None:
    broker = booted()
    assert broker.fences[-1] == ""
    known(broker).comes_in()
    broker.run(1_100)
    assert broker.left and broker.fences[-1]
    beats = len(broker.controller.heartbeats)
    broker.run(10_000)
    assert broker.manager.role is None and len(broker.controller.heartbeats) == beats
    assert len(known(broker).asked) >= 10


def test_it_never_leads_again_what_the_other_one_may_have_led() -> None:
    """Back on record, with no other epoch since: it asks for one instead."""
    broker = booted()
    known(broker).comes_in()
    broker.run(1_100)
    known(broker).dies()
    broker.controller.addresses[1] = CONFIG.address
    broker.run(10_000)
    assert [role.epoch for role in broker.roles] == [1, 3]
    assert broker.controller.elections[-1].lost_epoch == 1 or broker.controller.elections[-2].lost_epoch == 1


@pytest.mark.parametrize("told", ["poll", "elect"])
def test_told_that_its_id_is_master_in_another_life_it_takes_no_role(told: str) -> None:
    """By the active controller's answer to its own request."""
    broker = booted(answers={RequestCode.BROKER_HEARTBEAT: 0})
    if told == "elect":
        broker.controller.master, broker.controller.epoch = None, 2
        broker.run(5_100)
    known(broker).comes_in()
    broker.controller.master, broker.controller.epoch = 1, 4
    before = len(broker.roles)
    broker.run(6_000)
    assert broker.left and broker.manager.role is None and len(broker.roles) == before


def test_a_notification_that_names_another_life_only_makes_it_ask() -> None:
    broker = booted()
    broker.controller.seen.clear()
    broker.notify(1, THERE, 9, OTHER)
    assert broker.manager.role == BecomeMaster(1, frozenset({1}), 1) and not broker.left
    assert RequestCode.CONTROLLER_GET_REPLICA_INFO in broker.controller.seen
    broker.notify(1, CONFIG.address, 9, MINE)
    assert broker.manager.epoch == 9


def test_a_notification_without_a_life_is_judged_by_the_address() -> None:
    broker = booted()
    broker.notify(1, THERE, 9)
    assert broker.manager.epoch == 1 and not broker.left


def test_java_controllers_are_believed_by_the_address() -> None:
    """A copy that registered there moved the address: this one takes no role, and registers again."""
    broker = booted(java=True)
    assert broker.controller.master == 1
    broker.controller.addresses[1] = THERE
    broker.run(5_100)
    assert broker.left
    broker.run(2_000)
    assert broker.controller.addresses[1] == CONFIG.address
    leads = [role for role in broker.roles if isinstance(role, BecomeMaster) and role.epoch == 1]
    assert len(leads) == 1, "the other one may lead that epoch"


def test_registered_without_its_life_it_tells_it_and_keeps_its_role() -> None:
    broker = booted()
    roles = list(broker.roles)
    known(broker).life = 0  # an older controller's record
    broker.run(1_100)
    assert known(broker).life == MINE and known(broker).asked[-1].already_running
    assert broker.roles == roles and not broker.left and broker.manager.serving
    asked = len(known(broker).asked)
    broker.run(5_000)
    assert len(known(broker).asked) == asked


@pytest.mark.parametrize(("master", "role"), [(1, BecomeMaster), (2, BecomeSlave)])
def test_what_its_registration_tells_of_a_newer_epoch_is_believed_at_once(master: int, role: type[Become]) -> None:
    """A master of the epoch before would write on until its next poll, although it was told."""
    broker = booted()
    known(broker).life = 0
    broker.controller.master, broker.controller.epoch = master, 2
    broker.controller.addresses[2] = "10.0.0.2:10911"
    broker.run(1_100)
    assert known(broker).asked[-1].already_running
    assert isinstance(broker.manager.role, role) and broker.manager.role.epoch == 2 and not broker.left


def test_a_slave_stops_copying_too() -> None:
    broker = booted()
    broker.controller.master, broker.controller.epoch = 2, 2
    broker.controller.addresses[2] = "10.0.0.2:10911"
    broker.run(5_100)
    assert isinstance(broker.manager.role, BecomeSlave)
    known(broker).comes_in()
    broker.run(1_100)
    assert broker.left == 1 and broker.manager.role is None


def test_a_role_that_was_being_taken_meanwhile_is_none() -> None:
    broker = booted()
    broker.slow = True
    broker.notify(1, CONFIG.address, 2)
    (role,) = broker.taking
    known(broker).comes_in()
    broker.run(1_100)
    assert broker.left == 1
    broker.taken(role)
    assert broker.left == 2, "replication has left once more what it has taken since"
    assert broker.manager.role is None and not broker.manager.serving
    due = broker.manager.next_deadline(broker.now)
    assert due is not None and due <= broker.now + 1_000 * MS


def test_a_role_that_is_still_being_taken_is_no_role_of_the_next_registration() -> None:
    """Replication takes one role at a time: what is wanted next waits for it, and is then taken from no role."""
    broker = booted()
    broker.slow = True
    broker.notify(2, "10.0.0.2:10911", 2)
    (old,) = broker.taking
    known(broker).comes_in()
    broker.run(1_100)
    known(broker).dies()
    controller = broker.controller
    controller.addresses |= {1: CONFIG.address, 2: "10.0.0.2:10911"}
    controller.master, controller.epoch = 2, 2
    broker.run(3_000)
    assert broker.manager.machine.state is State.ENTERING and broker.taking == [old], "the same is wanted, and waits"
    broker.taken(old)
    assert broker.taking == [old, old] and not broker.manager.serving, "the first of them was left"
    broker.taken(old)
    assert broker.manager.role == old and broker.fences[-1] == "", "it serves"


def test_of_the_next_registration_nothing_is_left_by_what_the_one_before_began() -> None:
    broker = booted()
    broker.slow = True
    broker.notify(2, "10.0.0.2:10911", 2)
    (old,) = broker.taking
    known(broker).comes_in()
    broker.run(1_100)
    known(broker).dies()
    broker.controller.answers[RequestCode.CONTROLLER_ELECT_MASTER] = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    broker.controller.master = None
    broker.run(3_000)
    assert broker.manager.machine.state is State.IDLE
    left = broker.left
    broker.taken(old)
    assert broker.left == left + 1 and not broker.manager.serving
