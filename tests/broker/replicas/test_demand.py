"""What an operator demands of a running broker: in force at once, or when nobody can be elected for the lack of it."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ha.acks import QuorumConfig
from broker.ha.taking import BecomeMaster
from broker.replicas.demand import Demand
from broker.replicas.lease import Gate
from remoting.bodies.controller import SyncStateSet
from remoting.codes import RequestCode
from remoting.headers.controller import NotifyBrokerRoleChangedRequest
from tests.broker.replicas.test_manager import CONFIG, Broker, Controller


def demanded(gate: Gate) -> tuple[Demand, list[QuorumConfig]]:
    told: list[QuorumConfig] = []
    return Demand(lambda: gate, QuorumConfig(2, 1, gate.announced), told.append), told


def test_a_higher_minimum_counts_at_once_and_a_lower_one_when_its_announcement_was_answered() -> None:
    gate = Gate(2)
    demand, told = demanded(gate)
    demand.settle()
    assert told == [], "as at the start"
    demand.change(QuorumConfig(min_in_sync_replicas=3))
    assert [each.min_in_sync_replicas for each in told] == [3]
    demand.change(QuorumConfig(min_in_sync_replicas=1, slave_timeout_ms=50))
    demand.settle()
    assert [(each.min_in_sync_replicas, each.slave_timeout_ms) for each in told[1:]] == [(3, 50)]
    gate.answered(gate.generation - 1)
    demand.settle()
    assert len(told) == 2, "an answer to an older announcement says nothing"
    gate.answered(gate.generation)
    demand.settle()
    demand.settle()
    assert [(each.min_in_sync_replicas, each.slave_timeout_ms) for each in told[2:]] == [(1, 50)]


def test_a_new_mastership_begins_with_what_was_announced_at_any_time() -> None:
    """Whoever elected it may go by a heartbeat of before the minimum was lowered, and have others eligible for it."""
    gate = Gate(2)
    demand, told = demanded(gate)
    demand.change(QuorumConfig(min_in_sync_replicas=1))
    late = gate.generation
    gate.answered(late)
    demand.settle()
    gate.begin(own=True)
    demand.settle()
    assert [each.min_in_sync_replicas for each in told] == [2, 1, 2]
    gate.answered(late)
    demand.settle()
    assert gate.in_force == 2, "an answer to a heartbeat of the mastership before says nothing"
    gate.answered(gate.generation)
    demand.settle()
    assert told[-1].min_in_sync_replicas == 1


def test_a_master_that_is_elected_again_waits_until_the_new_epochs_controllers_have_heard_its_minimum() -> None:
    broker = Broker(Controller(), attrs.evolve(CONFIG, min_in_sync_replicas=2), life=5)
    broker.run(100)
    broker.manager.gate.announce(1)
    broker.run(2_000)
    assert broker.manager.gate.in_force == 1
    broker.lose = {RequestCode.BROKER_HEARTBEAT}
    outputs = broker.manager.notified(
        NotifyBrokerRoleChangedRequest(CONFIG.address, 7, 9, 1, master_life=5), SyncStateSet(frozenset({1}), 9),
        broker.now)
    assert any(isinstance(output, BecomeMaster) for output in outputs)
    assert broker.manager.gate.in_force == 2, "before it takes the role"
    broker.controller.epoch = 7
    broker.do(outputs)
    broker.lose = set()
    broker.run(2_000)
    assert broker.manager.gate.in_force == 1


@pytest.mark.parametrize("lives", [True, False], ids=["by its life", "by its address"])
def test_a_process_that_passes_for_the_one_before_serves_when_it_was_heard_as_master(lives: bool) -> None:
    """That one may have announced more. Controllers elected by it, and have others eligible."""
    broker = Broker(Controller(), life=5)
    broker.run(2_000)
    assert (broker.manager.serving, broker.manager.gate.in_force) == (True, 1)
    broker.start()
    broker.lose = {RequestCode.BROKER_HEARTBEAT}
    broker.run(2_000)
    assert (broker.manager.epoch, broker.manager.gate.shut, broker.manager.serving) == (1, True, False)
    broker.lose = set()
    broker.run(300)
    assert (broker.manager.gate.in_force, broker.manager.serving) == (1, True)
    outputs = broker.manager.notified(
        NotifyBrokerRoleChangedRequest(CONFIG.address, 7, 9, 1, master_life=5 if lives else None),
        SyncStateSet(frozenset({1}), 9), broker.now)
    assert any(isinstance(output, BecomeMaster) for output in outputs)
    assert broker.manager.gate.shut != lives, "what other controllers may know is this process's own"


def test_java_controllers_elect_by_no_minimum_so_who_was_heard_there_need_not_be_heard_again() -> None:
    broker = Broker(Controller(java=True), life=5)
    broker.run(2_000)
    assert (broker.manager.serving, broker.manager.gate.in_force) == (True, 1)
    broker.lose = {RequestCode.BROKER_HEARTBEAT}
    broker.manager.notified(
        NotifyBrokerRoleChangedRequest(CONFIG.address, 7, 9, 1), SyncStateSet(frozenset({1}), 9), broker.now)
    assert broker.manager.gate.in_force == 1


@given(st.integers(1, 5), st.lists(st.one_of(
    st.tuples(st.just("announce"), st.integers(1, 5)), st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("begin"), st.just(0))), max_size=20))
def test_nothing_less_is_in_force_than_who_elects_may_believe(first: int, script: list[tuple[str, int]]) -> None:
    """An election goes by any announcement so far; from then on answers tell that a later one was heard."""
    gate, ever, sent = Gate(first), [first], [(0, first)]
    believed = first
    for what, number in script:
        if what == "announce":
            gate.announce(number)
            ever.append(number)
            believed = max(believed, number)
            sent = [*sent, (gate.generation, number)]
        elif what == "begin":
            gate.begin(own=True)
            believed = max(ever)
            sent = [(gate.generation, ever[-1])]
        else:
            generation, said = sent[-1 - number % len(sent)]
            gate.answered(generation)
            if (generation, said) == sent[-1]:
                believed = said
        assert gate.in_force >= max(believed, gate.announced)
