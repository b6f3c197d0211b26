"""A broker that knows no other group says so at once, and finds nothing."""

from __future__ import annotations

from broker.abroad.others import Nowhere
from broker.abroad.tickets import Ticket


def test_a_broker_that_knows_no_others() -> None:
    said = list[object]()
    Nowhere().store("T", [], said.append, said.append)
    Nowhere().store_at(Ticket(1, 1), [], lambda *told: said.append(told))
    Nowhere().read("b", "T", 0, [1], lambda found, gone: said.append((dict(found), gone)))
    why = "no other group is known"
    assert said == [why, (why, False), ({}, frozenset())]
