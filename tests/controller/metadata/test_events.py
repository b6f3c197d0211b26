"""What changed, told from a group before and after."""

from __future__ import annotations

from controller.metadata.events import (
    BrokerAdded,
    BrokerMoved,
    BrokerRemoved,
    EligibleChanged,
    GroupRemoved,
    MasterChanged,
    SyncStateSetChanged,
)
from tests.controller.metadata.fleet import CONTROLLER, GATED, KEY, Fleet, led, registered, seen


def told(fleet: Fleet) -> list[object]:
    """The events since the last call."""
    events: list[object] = list(fleet.events)
    fleet.events.clear()
    return events


def test_a_broker_comes_moves_and_becomes_a_learner() -> None:
    fleet = registered(1)
    assert told(fleet) == [BrokerAdded(1, KEY, 1, "10.0.0.1:10911")]
    fleet.register(1, "a:2", learner=True)
    assert told(fleet) == [BrokerMoved(1, KEY, 1, "a:2", "10.0.0.1:10911", learner=True)]
    fleet.register(1, "a:2", learner=True)
    assert told(fleet) == []


def test_a_failover() -> None:
    fleet = led()
    told(fleet)
    fleet.elect(CONTROLLER, None, seen(b2=GATED, b3=GATED))
    assert told(fleet) == [
        MasterChanged(1, KEY, 2, 1, 2), SyncStateSetChanged(1, KEY, frozenset({2}), frozenset({1, 2, 3}), 3),
        EligibleChanged(1, KEY, frozenset({1, 3})),
    ]
    fleet.lost()
    assert told(fleet) == [MasterChanged(1, KEY, None, 2, 3)]
    fleet.lost()
    assert told(fleet) == []


def test_a_set_that_grows_and_a_refusal() -> None:
    fleet = led(1)
    told(fleet)
    fleet.alter(1, {1, 2})
    fleet.alter(2, {1, 2, 3})
    assert told(fleet) == [SyncStateSetChanged(1, KEY, frozenset({1, 2}), frozenset({1}), 2)]


def test_a_group_goes() -> None:
    fleet = led(1)
    told(fleet)
    fleet.clean(None, force=True)
    assert told(fleet) == [
        *(BrokerRemoved(1, KEY, broker_id) for broker_id in (1, 2, 3)), MasterChanged(1, KEY, None, 1, 2),
        SyncStateSetChanged(1, KEY, frozenset(), frozenset({1}), 2), GroupRemoved(1, KEY),
    ]


def test_one_line_of_a_trace() -> None:
    assert SyncStateSetChanged(7, KEY, frozenset({2, 1}), frozenset(), 3).as_dict() == {
        "event": "SyncStateSetChanged", "cluster": "DefaultCluster", "broker": "broker-a", "term": 7,
        "sync_state_set": [1, 2], "previous": [], "sync_state_set_epoch": 3,
    }
