"""What simulated brokers believe, report and forget."""

from __future__ import annotations

import pytest

from harness.fleet.broker import BrokerGroup, SimulatedBroker, View

ALLOWED_S = 2.0


def group_of_three() -> BrokerGroup:
    group = BrokerGroup("c", "g")
    for number in range(3):
        broker = SimulatedBroker(group, number, f"127.64.0.{number}:1", number + 1, running=True, registered=True)
        group.brokers.append(broker)
    return group


def lead(group: BrokerGroup, master: int, epoch: int, in_sync: set[int], in_sync_epoch: int = 1) -> SimulatedBroker:
    for broker in group.brokers:
        broker.learn(View(master, epoch, frozenset(in_sync), in_sync_epoch))
    found = group.broker(master)
    assert found is not None
    return found


@pytest.mark.parametrize(("told", "believed", "switched"), [
    (View(2, 2, frozenset({2}), 5), True, True),
    (View(1, 1, frozenset({1, 2}), 2), True, False),
    (View(1, 1, frozenset({1}), 1), False, False),
    (View(None, 2, frozenset({1}), 1), True, True),
    (View(3, 0, frozenset({3}), 9), False, False),
], ids=["a newer epoch", "a newer set", "what it knows", "no master", "an old epoch"])
def test_only_news_is_believed(told: View, believed: bool, switched: bool) -> None:
    broker = group_of_three().brokers[0]
    assert broker.learn(View(1, 1, frozenset({1}), 1))
    assert broker.learn(told) is switched
    assert (broker.view == told) is believed or told == View(1, 1, frozenset({1}), 1)


def test_a_dead_broker_keeps_its_id_and_epoch_only() -> None:
    group = group_of_three()
    master = lead(group, 1, 4, {1, 2, 3})
    master.die()
    assert (master.broker_id, master.view, master.registered) == (1, View(None, 4), False)
    assert group.master is None
    assert not group.settled()


def test_a_master_is_one_that_knows_it_and_that_nobody_knows_better() -> None:
    group = group_of_three()
    lead(group, 1, 1, {1, 2, 3})
    group.brokers[1].learn(View(2, 2, frozenset({2}), 2))
    assert group.master is group.brokers[1]
    group.brokers[2].learn(View(3, 3, frozenset({3}), 3))
    group.brokers[2].die()
    assert group.master is group.brokers[1]


def test_settled_is_all_living_ones_and_no_other() -> None:
    group = group_of_three()
    lead(group, 1, 1, {1, 2})
    assert not group.settled()
    group.brokers[2].die()
    assert group.settled()
    lead(group, 1, 1, {1, 2, 3}, 2)
    assert not group.settled()


def test_a_master_reports_who_caught_up_and_drops_who_is_long_gone() -> None:
    group = group_of_three()
    master = lead(group, 1, 2, {1})
    assert group.wanted_in_sync(master, 0.0, ALLOWED_S) == {1}
    group.following.update({2: 2, 3: 1})
    assert group.wanted_in_sync(master, 0.0, ALLOWED_S) == {1, 2}, "3 caught up with an earlier master"
    master.learn(View(1, 2, frozenset({1, 2}), 2))
    group.missing_since[2] = 10.0
    assert group.wanted_in_sync(master, 10.0 + ALLOWED_S / 2, ALLOWED_S) == {1, 2}
    assert group.wanted_in_sync(master, 10.0 + ALLOWED_S, ALLOWED_S) == {1}


def test_who_left_before_it_was_in_the_set_is_not_reported() -> None:
    group = group_of_three()
    master = lead(group, 1, 2, {1})
    group.following[2] = 2
    group.missing_since[2] = 10.0
    assert group.wanted_in_sync(master, 10.1, ALLOWED_S) == {1}
