"""Each property is shown to object, and to let pass what is right."""

from __future__ import annotations

from harness.fleet import BrokerGroup, SimulatedBroker, Witness
from harness.fleet.broker import View


def view(master: int | None, epoch: int, *in_sync: int) -> View:
    return View(master, epoch, frozenset(in_sync), 1)


def test_nothing_wrong_is_nothing_said() -> None:
    witness = Witness()
    for epoch, master in ((1, 1), (2, 2), (2, 2), (3, 1)):
        witness.answered("g", view(master, epoch, master, 3), witness.asked("g"))
    witness.told("g", view(1, 1, 1))
    witness.answered("g", view(None, 4), witness.asked("g"))
    witness.answered("h", view(2, 1, 2), witness.asked("h"))
    assert witness.violations == []
    assert witness.checks == {"epochs never fall": 6, "one master per epoch": 6, "the master is in sync": 6}


def test_two_masters_of_one_epoch() -> None:
    witness = Witness()
    witness.told("g", view(1, 5, 1))
    witness.told("g", view(2, 5, 2))
    assert witness.violations == ["g: master epoch 5 has two masters, 1 and 2"]


def test_an_answer_older_than_what_was_known_when_it_was_asked_for() -> None:
    witness = Witness()
    early = witness.asked("g")
    witness.answered("g", view(1, 2, 1), witness.asked("g"))
    witness.answered("g", view(1, 1, 1), early)
    assert witness.violations == [], "both were under way at once"
    witness.answered("g", view(1, 1, 1), witness.asked("g"))
    assert witness.violations == ["g: an answer has master epoch 1; 2 was told before the question left"]


def test_a_master_that_is_not_in_sync() -> None:
    witness = Witness()
    witness.told("g", view(1, 5, 2, 3))
    assert witness.violations == ["g: master 1 of epoch 5 is not among the SyncStateSet [2, 3]"]


def test_an_id_given_twice() -> None:
    witness, group = Witness(), BrokerGroup("c", "g")
    first, second = SimulatedBroker(group, 0, "a:1"), SimulatedBroker(group, 1, "b:1")
    witness.given(first, 1)
    witness.given(first, 1)
    witness.given(second, 2)
    assert witness.violations == []
    witness.given(second, 1)
    assert witness.violations == ["g: id 1 was given to a:1 and to b:1"]
