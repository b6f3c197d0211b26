"""The lease of a master by two clocks, and the minimum that it announced."""

from __future__ import annotations

import pytest

from broker.replicas.lease import CLOCK_DRIFT_PERCENT, Gate, Lease
from raft.config import Config
from raft.sim.world import MILLION, Clock
from remoting.codes import RequestCode
from tests.broker.replicas.test_manager import booted

LENGTH_NS = 5_000_000_000
FASTER_PPM = MILLION * (100 + CLOCK_DRIFT_PERCENT) // 100
SLOWER_PPM = MILLION * 100 // (100 + CLOCK_DRIFT_PERCENT) + 1


@pytest.mark.parametrize(("master_ppm", "controller_ppm"), [
    (MILLION, MILLION), (SLOWER_PPM, MILLION), (MILLION, FASTER_PPM), (FASTER_PPM, MILLION)])
def test_it_is_over_by_the_masters_clock_before_it_is_by_the_controllers(master_ppm: int, controller_ppm: int) -> None:
    """The heartbeat took no time on its way."""
    masters, controllers = Clock(7), Clock()
    masters.set_rate(0, master_ppm)
    controllers.set_rate(0, controller_ppm)
    lease = Lease(LENGTH_NS)
    lease.answered(masters.local(0), renewed=True)
    ends_ns = controllers.world(LENGTH_NS)
    assert not lease.holds(masters.local(ends_ns))
    assert lease.holds(masters.local(ends_ns * 8 // 10)), "no more of it is lost than that"


def test_clocks_may_drift_as_far_as_those_of_controllers_among_themselves() -> None:
    assert Config().clock_drift_percent == CLOCK_DRIFT_PERCENT


def test_without_controllers_that_grant_leases_it_has_no_end() -> None:
    lease = Lease(LENGTH_NS)
    lease.answered(0, renewed=None)
    assert lease.holds(1 << 62)
    lease.answered(0, renewed=False)
    assert not lease.holds(0), "they grant leases, and this one was never renewed"


def test_a_raised_minimum_is_in_force_at_once_and_a_lowered_one_when_it_was_answered() -> None:
    gate = Gate(2)
    gate.announce(3)
    assert gate.in_force == 3
    gate.announce(1)
    earlier = gate.generation - 1
    gate.answered(earlier)
    assert gate.in_force == 3, "that heartbeat said something else"
    gate.answered(gate.generation)
    assert gate.in_force == 1
    gate.begin(own=True)
    assert (gate.in_force, gate.shut) == (3, False), "another controller may know no later announcement"
    gate.begin(own=False)
    assert gate.shut, "another process may have announced any"
    gate.announce(2)
    gate.answered(gate.generation - 1)
    assert gate.shut
    gate.answered(gate.generation)
    assert (gate.in_force, gate.shut) == (2, False)


@pytest.mark.parametrize("told", [True, False], ids=["epoch told", "earlier release"])
def test_a_lease_of_a_later_mastership_is_none_of_the_one_before(told: bool) -> None:
    """Another one was master between both, and what that one wrote this one lacks."""
    broker = booted()
    broker.controller.tells_whose_lease = told
    broker.run(1_500)
    assert (broker.manager.epoch, broker.manager.serving) == (1, True)
    broker.controller.down = True
    broker.run(7_000)
    assert not broker.manager.serving
    broker.controller.answers = {RequestCode.CONTROLLER_GET_REPLICA_INFO: 1}
    broker.controller.down, broker.controller.epoch = False, 3
    broker.run(3_000)
    assert broker.manager.epoch == 1, "of the elections it has not heard yet"
    assert broker.manager.serving is not told
    broker.controller.answers = {}
    broker.run(5_000)
    assert (broker.manager.epoch, broker.manager.serving) == (3, True)


def test_who_hears_of_a_lease_of_a_later_mastership_asks_who_is_master() -> None:
    broker = booted()
    broker.run(1_500)
    broker.controller.epoch = 3
    broker.run(1_100)
    assert (broker.manager.epoch, broker.manager.serving) == (3, True), "before it asks by itself"
