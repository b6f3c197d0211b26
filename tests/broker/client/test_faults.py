"""Which brokers are spared, and which queue comes next."""

from __future__ import annotations

import pytest

from broker.client.faults import FAILED_MS, Faults, RoundRobin, Sparing
from remoting.bodies.consumers import MessageQueue

QUEUES = [MessageQueue("t", broker, number) for broker in "ab" for number in range(2)]


@pytest.mark.parametrize(("latency_ms", "spared_ms"), [
    (0, 0), (49, 0), (50, 0), (549, 0), (550, 2_000), (1_799, 2_000), (1_800, 5_000), (3_000, 6_000), (5_000, 10_000),
    (FAILED_MS, 10_000), (15_000, 30_000), (99_999, 30_000),
])
def test_slower_answers_are_spared_for_longer(latency_ms: int, spared_ms: int) -> None:
    assert Sparing().duration_ms(latency_ms) == spared_ms


def test_a_broker_is_spared_until_its_time_is_over_or_it_is_forgiven() -> None:
    faults = Faults()
    assert faults.slow_ms == 550 and not faults.spared(0)
    faults.note("a", FAILED_MS, 1_000)
    faults.note("b", 10, 1_000)
    assert set(faults.spared(10_999)) == {"a"}
    assert not faults.spared(11_000)
    faults.note("a", 600, 0)
    faults.forgive("a")
    assert not faults.spared(0)


def test_tables_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="must rise"):
        Sparing((100, 50), (0, 0))
    with pytest.raises(ValueError, match="must rise"):
        Sparing((100,), (0, 0))


def test_queues_take_turns() -> None:
    turn = RoundRobin(-1)
    assert [turn.pick(QUEUES) for _ in range(8)] == QUEUES * 2


def test_spared_brokers_and_the_last_one_are_passed_over_as_far_as_there_are_others() -> None:
    turn = RoundRobin(-1)
    assert {turn.pick(QUEUES, {"a"}).broker_name for _ in range(4)} == {"b"}
    assert {turn.pick(QUEUES, (), "b").broker_name for _ in range(4)} == {"a"}
    assert turn.pick(QUEUES, {"a"}, "b").broker_name == "b", "rather the last than one that is spared"
    assert turn.pick(QUEUES, {"a", "b"}, "b").broker_name == "a"
    assert turn.pick(QUEUES[:2], {"a"}, "a").broker_name == "a", "there is no other"
