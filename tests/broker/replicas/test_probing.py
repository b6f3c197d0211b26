"""Slaves of a silent master ask each other whether they are there, and say so by heartbeats that leave at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import attrs
import pytest
import trio

from broker.ha.taking import BecomeMaster, BecomeSlave
from broker.replicas.machine import State
from broker.replicas.manager import LogState
from broker.replicas.probing import PROBE_MEMBER, ProbeMemberRequest
from harness.simulation.worlds.controllers import world
from remoting.bodies.controller import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from tests.broker.replicas.test_manager import CONFIG, Broker, Controller
from tests.broker.replicas.test_shell import Node

MEMBERS = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA


@attrs.define
class Group(Controller):
    """This broker is 1, a slave of 2; ``there`` answer probes: the address of whoever is, and what it says."""

    there: dict[str, int] = attrs.field(factory=dict)
    probed: list[tuple[str, ProbeMemberRequest]] = attrs.field(factory=list)
    listed: int = 0

    def answer(self, address: str, command: Command) -> Command | None:
        if command.code == PROBE_MEMBER:
            self.probed.append((address, ProbeMemberRequest.from_ext(command.ext)))
            return response(command, self.there[address]) if address in self.there else None
        if command.code == MEMBERS and not self.down:
            self.listed += 1
            known = [ReplicaIdentity("b", broker_id, address, True) for broker_id, address in self.addresses.items()]
            return response(command, body=BrokerReplicasInfo({"b": ReplicasInfo(
                2, "m2:1", 5, 5, [each for each in known if each.broker_id != 4],
                [each for each in known if each.broker_id == 4])}).to_json())
        return Controller.answer(self, address, command)


def slave(**changes: object) -> tuple[Broker, Group]:
    group = Group(next_id=1, addresses={2: "m2:1", 3: "m3:1", 4: "m4:1"}, master=2, epoch=5, set_epoch=5,
                  members=frozenset({1, 2, 3}), there={"m3:1": ResponseCode.SUCCESS, "m4:1": ResponseCode.SUCCESS})
    java = bool(changes.pop("java", False))
    group.java = java
    broker = Broker(group, attrs.evolve(CONFIG, **changes))  # type: ignore[arg-type]
    broker.run(100)
    assert broker.roles == [BecomeSlave(5, 2, "m2:1")]
    broker.run(1_050)
    group.heartbeats.clear()
    return broker, group


def hears(broker: Broker, *, silent: bool = True) -> None:
    """What the slave hears of its master is another."""
    broker.manager.log = LogState(5, 100, 100, master_silent=silent)
    broker.do(broker.manager.tick(broker.now))


def said(group: Group) -> tuple[int | None, str | None]:
    return group.heartbeats[-1].silent_epoch, group.heartbeats[-1].reaches


def test_a_slave_of_a_silent_master_says_whom_it_reaches_at_once() -> None:
    broker, group = slave()
    hears(broker)
    assert said(group) == (5, "3,4"), "without a moment in between"
    assert group.probed == [("m3:1", ProbeMemberRequest("c", "b", 3)), ("m4:1", ProbeMemberRequest("c", "b", 4))]
    assert all(address != "m2:1" for address, _ in group.probed), "its master is silent by its own word"


def test_the_silence_is_told_before_anybody_answers() -> None:
    broker, group = slave()
    group.there.clear()
    hears(broker)
    assert said(group) == (5, None)


def test_probes_are_repeated_while_the_silence_lasts() -> None:
    broker, group = slave()
    hears(broker)
    group.probed.clear()
    broker.run(3 * CONFIG.probe_interval_ms)
    assert [address for address, _ in group.probed] == ["m3:1", "m4:1"] * 3
    hears(broker, silent=False)
    assert said(group) == (None, None), "and this leaves at once, too"
    group.probed.clear()
    broker.run(5_000)
    assert not group.probed


def test_who_answers_no_more_is_reached_no_more() -> None:
    broker, group = slave()
    hears(broker)
    del group.there["m3:1"]
    broker.run(CONFIG.silence_ms - 1)
    assert said(group) == (5, "3,4")
    broker.run(1)
    assert said(group) == (5, "4"), "told when it is so"


@pytest.mark.parametrize("code", [ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR])
def test_who_does_not_know_the_question_is_not_reached(code: int) -> None:
    """As brokers of Java, earlier ones, and others at that address."""
    broker, group = slave()
    group.there["m3:1"] = code
    hears(broker)
    assert said(group) == (5, "4")


def test_an_answer_of_an_earlier_silence_says_nothing() -> None:
    broker, group = slave()
    broker.lose = {PROBE_MEMBER}
    hears(broker)
    (_, asked) = broker.held
    hears(broker, silent=False)
    broker.lose = set()
    group.there.clear()
    broker.notify(3, "m3:1", 6)
    hears(broker)
    broker.do(broker.manager.answered(asked.request, response(asked.command), broker.now))
    assert said(group) == (6, None)


def test_a_controller_that_is_away_is_asked_again_for_the_members() -> None:
    broker, group = slave()
    broker.lose = {MEMBERS}
    hears(broker)
    assert said(group) == (5, None) and not group.probed
    broker.lose = set()
    (sent,) = broker.held
    broker.do(broker.manager.answered(sent.request, None, broker.now))
    broker.run(CONFIG.retry_ms)
    assert said(group) == (5, "3,4")


def test_members_that_move_are_found() -> None:
    broker, group = slave()
    hears(broker)
    group.addresses[3] = "m3:2"
    group.there = {"m3:2": ResponseCode.SUCCESS}
    broker.run(CONFIG.silence_ms + CONFIG.probe_interval_ms)
    assert said(group) == (5, "3")


def test_java_controllers_have_no_use_for_it() -> None:
    broker, group = slave(java=True)
    hears(broker)
    broker.run(5_000)
    assert not group.probed and not group.listed and said(group) == (None, None)


def test_a_learner_asks_nobody() -> None:
    broker, group = slave(learner=True)
    hears(broker)
    broker.run(1_000)
    assert not group.probed and said(group) == (None, None)


def test_where_nobody_beats_nobody_is_probed() -> None:
    broker, group = slave(probe_interval_ms=0)
    hears(broker)
    broker.run(1_000)
    assert not group.probed and said(group) == (None, None)


def test_who_changes_its_role_asks_no_more() -> None:
    broker, group = slave()
    hears(broker)
    broker.slow = True
    broker.notify(3, "m3:1", 6)
    group.probed.clear()
    broker.run(1_000)
    assert broker.manager.machine.state is State.CHANGING
    assert not group.probed and said(group) == (None, None)


def test_the_request_is_a_header_of_three_fields() -> None:
    """What it looks like is part of the protocol between our brokers."""
    sent = request(PROBE_MEMBER, ProbeMemberRequest("c", "b", 3))
    assert (sent.code, sent.ext) == (61_011, {"clusterName": "c", "brokerName": "b", "brokerId": "3"})


async def test_only_the_member_that_is_named_answers(autojump_clock: trio.abc.Clock) -> None:
    """And it no more, when controllers count another process as that member."""
    async with world(3) as made:
        node = Node(made, "b1")
        await made.nursery.start(node.run)
        await node.wait((BecomeMaster, 1))
        there = cast(Connection, SimpleNamespace(peer="m2:1"))

        def answers(cluster: str, name: str, broker_id: int) -> bool:
            asked = request(PROBE_MEMBER, ProbeMemberRequest(cluster, name, broker_id))
            answer = node.member.handlers()[PROBE_MEMBER](there, asked)
            assert isinstance(answer, Command)
            return answer.code == ResponseCode.SUCCESS

        assert answers("c", "b", 1)
        assert not answers("c", "b", 2) and not answers("c", "other", 1) and not answers("other", "b", 1)
        node.member.manager.machine.displaced()
        assert not answers("c", "b", 1)
