"""Whom a master takes for the active controller: who renews its lease, at once; and everybody else's way, by asking."""

from __future__ import annotations

import itertools

import attrs
import pytest

from broker.replicas.leader import MEMBERS_MAX
from broker.replicas.outputs import SendCommand
from remoting.bodies.controller import SyncStateSet
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.headers.controller import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    GetMetadataResponse,
    NotifyBrokerRoleChangedRequest,
)
from tests.broker.replicas.test_manager import CONFIG, MS, Broker, Controller

LOOK, BEAT = RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.BROKER_HEARTBEAT
ALTER, POLL = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_GET_REPLICA_INFO


@attrs.define
class Group(Controller):
    """Two controllers, of which one is active; ``names``: what they call themselves, where that is not as configured.
    """

    active: str = "ctl1"
    left: dict[str, str] = attrs.field(factory=dict)
    """Who left the group -> who led it then."""
    dead: set[str] = attrs.field(factory=set)
    names: dict[str, str] = attrs.field(factory=dict)
    asked: list[tuple[str, int]] = attrs.field(factory=list)

    def answer(self, address: str, command: Command) -> Command | None:
        here = next((known for known, name in self.names.items() if name == address), address)
        self.asked.append((here, command.code))
        if here in self.dead:
            return None
        active = here == self.active
        if command.code == LOOK:
            leader = self.left.get(here, self.active)
            return response(command, header=GetMetadataResponse(
                controller_leader_address=self.names.get(leader, leader), is_leader=active))
        if command.code == BEAT and not self.java:
            beat = BrokerHeartbeatRequest.from_ext(command.ext)
            return response(command, header=BrokerHeartbeatResponse(active and beat.broker_id == self.master))
        if not active and command.code != BEAT:
            return response(command, ResponseCode.CONTROLLER_NOT_LEADER)
        return Controller.answer(self, address, command)

    def fails_over(self) -> None:
        self.dead, self.active = {"ctl1"}, "ctl2"

    def count(self, code: int, address: str | None = None) -> int:
        return sum(asked == code and address in (None, where) for where, asked in self.asked)


def master(**group: object) -> tuple[Broker, Group]:
    made = Group(**group)  # type: ignore[arg-type]
    broker = Broker(made, attrs.evolve(CONFIG, retry_ms=5_000))
    broker.run(1_500)
    assert broker.manager.serving and broker.roles
    return broker, made


def test_who_renews_the_lease_leads_and_is_asked_for_what_waits() -> None:
    broker, group = master()
    held = broker.manager.in_sync
    assert held is not None
    group.fails_over()
    broker.lose = {LOOK}  # nobody answers who leads
    held.opened(2, False, broker.now)
    held.acked(2, held.log_end, broker.now)
    broker.do(broker.manager.tick(broker.now))
    assert group.asked[-1] == ("ctl1", ALTER), "in vain"
    broker.run(broker.config.heartbeat_interval_ms)
    assert broker.manager.leader == "ctl2"
    assert ("ctl2", ALTER) in group.asked and group.members == {1, 2}, "at once, though it had been asked for just now"


def test_what_a_host_that_is_gone_was_asked_keeps_nothing_waiting() -> None:
    broker, group = master()
    held = broker.manager.in_sync
    assert held is not None
    broker.lose = {ALTER}
    held.opened(2, False, broker.now)
    held.acked(2, held.log_end, broker.now)
    broker.do(broker.manager.tick(broker.now))
    [lost] = broker.held
    broker.lose = {LOOK}
    group.fails_over()
    broker.run(broker.config.heartbeat_interval_ms)
    assert ("ctl2", ALTER) in group.asked and group.members == {1, 2}
    before = group.count(ALTER)
    broker.do(broker.manager.answered(lost.request, None, broker.now))
    broker.run(1_000)
    assert group.count(ALTER) == before and held.accepted == {1, 2} and not held.asked


def test_a_slave_and_a_broker_without_a_role_ask_who_leads() -> None:
    broker, group = master()
    group.master, group.epoch = 2, 2
    group.addresses[2] = "10.0.0.2:10911"
    broker.notify(2, "10.0.0.2:10911", 2)
    group.fails_over()
    broker.lose = {LOOK}
    broker.run(5_000)
    assert broker.manager.leader == "ctl1"
    broker.lose = set()
    for send in broker.held:
        broker.do(broker.manager.answered(send.request, group.answer(send.address, send.command), broker.now))
    broker.run(broker.config.retry_ms)
    assert broker.manager.leader == "ctl2"


def test_with_java_controllers_it_is_asked_for() -> None:
    broker, group = master(java=True)
    group.fails_over()
    broker.run(broker.config.retry_ms + broker.config.sync_broker_metadata_period_ms)
    assert broker.manager.leader == "ctl2" and group.count(LOOK, "ctl2") >= 2


def test_an_older_answer_takes_nothing_back() -> None:
    broker, group = master()
    broker.lose = {BEAT}
    broker.run(1_000)
    late = next(send for send in broker.held if send.address == "ctl1")
    answer = group.answer("ctl1", late.command)
    broker.lose = {LOOK}
    group.fails_over()
    broker.run(1_500)
    assert broker.manager.leader == "ctl2"
    asked = len(group.asked)
    broker.do(broker.manager.answered(late.request, answer, broker.now))
    assert broker.manager.leader == "ctl2" and len(group.asked) == asked, "not even for a moment"


@pytest.mark.parametrize("names", [{"ctl1": "10.9.9.9:1"}, {"ctl1": "10.9.9.9:1", "ctl2": "10.9.9.8:1"}])
def test_a_controller_that_calls_itself_otherwise_is_one_and_the_same(names: dict[str, str]) -> None:
    """Each change of the leader asks it everything anew: two names must not take turns."""
    broker, group = master(names=names)
    before = group.count(POLL)
    leaders = set()
    for _ in range(120):
        broker.run(500)
        leaders.add(broker.manager.leader)
    assert len(leaders) == 1
    assert group.count(POLL) - before <= 60_000 // broker.config.sync_broker_metadata_period_ms + 1
    group.fails_over()
    broker.run(1_500)
    assert broker.manager.leader in ("ctl2", names.get("ctl2"))


def test_a_role_told_from_elsewhere_makes_it_look_but_not_for_ever() -> None:
    broker, group = master(java=True)
    broker.run(6_000)
    group.active = "ctl2"
    broker.lose = {POLL}  # the former one's host is gone: nobody says that it leads no longer
    looked = group.count(LOOK)
    for number in range(50):
        broker.do(broker.manager.notified(NotifyBrokerRoleChangedRequest("10.0.0.2:10911", 99, 9, 2),
                                          SyncStateSet(frozenset({2}), 9), broker.now + number * MS, known=False))
    broker.run(broker.config.retry_ms)
    assert broker.manager.leader == "ctl2"
    assert group.count(LOOK) - looked <= 2 * 2, "each of two controllers, at most twice"
    assert broker.manager.epoch == 1, "and nothing more is believed"


def test_a_role_told_from_elsewhere_makes_it_look_at_once() -> None:
    """Who leads was asked for just now, by all that saw a connection to the former one close; then one was elected."""
    broker, group = master()
    group.dead, group.active = {"ctl1"}, ""
    broker.do(broker.manager.tick(broker.now))
    broker.run(1_000)
    looked = group.count(LOOK)
    assert broker.manager.leader == "ctl1", "nobody leads by now"
    group.active, group.epoch, group.master, group.addresses[2] = "ctl2", 2, 2, "10.0.0.2:10911"
    broker.do(broker.manager.notified(NotifyBrokerRoleChangedRequest("10.0.0.2:10911", 2, 2, 2),
                                      SyncStateSet(frozenset({2}), 2), broker.now, known=False))
    assert (broker.manager.leader, broker.manager.epoch) == ("ctl2", 2), "at the same moment"
    assert group.count(LOOK) == looked + 2


def trips(broker: Broker, group: Group, ms: int) -> set[str | None]:
    """Time passes, and each answer takes a while. Whom the broker took for the active controller."""
    leaders = set()
    broker.lose = {*RequestCode}
    for _ in range(ms // 50):
        broker.run(50)
        held, broker.held = broker.held, []
        for send in held:
            broker.do(broker.manager.answered(send.request, group.answer(send.address, send.command), broker.now))
            leaders.add(broker.manager.leader)
    return leaders


@pytest.mark.parametrize("java", [False, True])
@pytest.mark.parametrize("order", [*itertools.permutations(["ctl1", "ctl2", "ctl3"])])
def test_who_says_itself_that_it_leads_is_asked_whatever_others_say(order: tuple[str, ...], java: bool) -> None:
    """They name for ever who led as they left, though it left as well: who is named last was never who leads."""
    group = Group(active="ctl3", left={"ctl1": "ctl2", "ctl2": "ctl1"}, java=java)
    broker = Broker(group, attrs.evolve(CONFIG, controllers=order))
    trips(broker, group, 3_000)
    assert broker.roles and broker.manager.serving
    assert trips(broker, group, 60_000) == {"ctl3"}


@pytest.mark.parametrize("dead", [set(), {"ctl1"}])
def test_a_yes_counts_until_the_first_no(dead: set[str]) -> None:
    broker, group = master(java=True)
    trips(broker, group, 12_000)
    group.active, group.dead = "ctl4", dead
    broker.lose = set()
    trips(broker, group, broker.config.sync_broker_metadata_period_ms + 2_000)
    assert broker.manager.leader == "ctl4"


def test_who_renews_the_lease_says_so_itself() -> None:
    broker, group = master()
    group.fails_over()
    broker.lose = {LOOK, BEAT}
    broker.run(broker.config.sync_broker_metadata_period_ms)
    broker.lose = {LOOK}
    broker.run(broker.config.heartbeat_interval_ms)
    assert broker.manager.leader == "ctl2"
    group.dead, group.left = set(), {"ctl1": "ctl3"}
    late = [send for send in broker.held if (send.address, send.command.code) == ("ctl1", LOOK)]
    assert late
    for send in late:
        broker.do(broker.manager.answered(send.request, group.answer("ctl1", send.command), broker.now))
    assert "ctl3" not in dict(group.asked)


@attrs.define
class Replaced(Group):
    """A group of ours whose members change while the configuration stays; ``members_of_it`` by id."""

    members_of_it: dict[str, str] = attrs.field(factory=lambda: {"n1": "ctl1", "n2": "ctl2"})

    def answer(self, address: str, command: Command) -> Command | None:
        answer = Group.answer(self, address, command)
        if command.code == LOOK and answer is not None:
            here = self.asked[-1][0]
            who = next((member for member, known in self.members_of_it.items() if known in (here, address)), None)
            peers = "".join(f"{member}:{known};" for member, known in self.members_of_it.items())
            answer.ext.update(peers=peers, **({"controllerId": who} if who else {}))
        return answer


def replaced(**group: object) -> tuple[Broker, Replaced]:
    made = Replaced(**group)  # type: ignore[arg-type]
    broker = Broker(made, attrs.evolve(CONFIG, controllers=("ctl1:1", "ctl2:1")))
    broker.run(1_500)
    assert broker.manager.serving
    return broker, made


def test_a_controller_that_took_a_configured_ones_place_hears_the_broker_before_it_leads() -> None:
    broker, group = replaced(active="ctl1:1", members_of_it={"n1": "ctl1:1", "n2": "ctl2:1"})
    group.members_of_it = {"n1": "ctl1:1", "n3": "ctl3:1"}
    group.dead = {"ctl2:1"}
    broker.run(broker.config.sync_controller_metadata_period_ms + broker.config.heartbeat_interval_ms)
    assert group.count(BEAT, "ctl3:1")
    group.dead, group.active = {"ctl1:1", "ctl2:1"}, "ctl3:1"
    serving = len(broker.fences)
    broker.run(60_000)
    assert broker.manager.leader == "ctl3:1" and broker.manager.serving and len(broker.fences) == serving


def test_an_active_controller_that_no_other_named_before_hears_the_broker_too() -> None:
    """It was handed the lead as soon as it came, by one that lives and leads no longer."""
    broker, group = replaced(active="ctl1:1")
    group.active, group.members_of_it = "ctl3:1", {"n1": "ctl1:1", "n2": "ctl2:1", "n3": "ctl3:1"}
    serving = len(broker.fences)
    broker.run(60_000)
    assert group.count(BEAT, "ctl3:1") and broker.manager.leader == "ctl3:1"
    assert broker.manager.serving and len(broker.fences) == serving, "it looked before the lease was over"


def test_a_member_that_calls_itself_otherwise_hears_each_heartbeat_once() -> None:
    names = {"ctl1:1": "10.9.9.1:1", "ctl2:1": "10.9.9.2:1"}
    broker, group = replaced(active="ctl1:1", names=names, members_of_it={"n1": "10.9.9.1:1", "n2": "10.9.9.2:1"})
    group.asked.clear()
    broker.run(20_000)
    group.active = "ctl2:1"
    broker.run(20_000)
    assert broker.manager.controllers == ("ctl1:1", "ctl2:1")
    assert group.count(BEAT, "ctl2:1") <= 45


@pytest.mark.parametrize("peers", [
    "ip:1;", ";;:", "n1:ctl9;", "n9:ctl9:x;", "".join(f"n{number}:h:{number};" for number in range(99))])
def test_peers_that_cannot_be_read_or_are_too_many_are_passed_over(peers: str) -> None:
    broker, _ = replaced(active="ctl1:1")
    look = next(iter(broker.manager.tick(broker.now + 20_000 * MS)))
    assert isinstance(look, SendCommand) and look.command.code == LOOK
    header = GetMetadataResponse(controller_leader_address="ctl1:1", is_leader=True, peers=peers, controller_id="n1")
    broker.do(broker.manager.answered(look.request, response(look.command, header=header), broker.now))
    assert len(broker.manager.controllers) <= 2 + MEMBERS_MAX
    assert {"ctl9", "ctl9:x"}.isdisjoint(broker.manager.controllers)
