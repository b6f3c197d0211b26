"""What a client remembers of its transactions: all orders of what may happen to one, and the bound of its memory."""

from __future__ import annotations

from itertools import product

import pytest

from broker.client.decisions import Decision, Decisions
from broker.client.errors import Contradicted

COMMIT, ROLLBACK, UNDECIDED = Decision.COMMIT, Decision.ROLLBACK, Decision.UNDECIDED
EVENTS = ("begin", "commit", "rollback", "over", "confirmed here", "confirmed there", "asked here", "asked there")
HERE, THERE = "one connection", "another"


@pytest.mark.parametrize("first", EVENTS)
def test_in_every_order_nobody_is_told_both(first: str) -> None:
    """And nothing is told while the body or its decision is under way, nor a commit where it was confirmed."""
    for events in product(EVENTS, repeat=5):
        decisions = Decisions()
        busy, made, told, confirmed = False, None, set[Decision](), None
        for event in (first, *events):
            what, where = event.split()[0], HERE if event.endswith(" here") else THERE
            if event == "begin":
                decisions.begin("x")
                busy = True
            elif event == "over":
                decisions.over("x")
                busy = False
            elif what == "confirmed":
                decisions.confirmed("x", where)
                confirmed = where if made is not None else None
            elif what == "asked":
                answer = decisions.told("x", where)
                assert (answer is UNDECIDED) == (busy or (made is COMMIT and confirmed == where))
                assert (answer is None) == (not busy and made is None)
                if answer is not None:
                    told.add(answer)
            else:
                decision = COMMIT if event == "commit" else ROLLBACK
                try:
                    assert decisions.decide("x", decision) == (made is None)
                    made = decision
                except Contradicted:
                    contradicts = made not in (None, decision)
                    assert contradicts
            assert decisions.of("x") is made and decisions.busy("x") is busy
        assert len(told - {UNDECIDED}) <= 1 and told <= {made, UNDECIDED}


def test_the_oldest_decisions_are_forgotten() -> None:
    decisions = Decisions(kept=3)
    for number in range(5):
        decisions.decide(str(number), COMMIT)
    assert [decisions.told(str(number)) for number in range(5)] == [None, None, COMMIT, COMMIT, COMMIT]
    assert not decisions.decide("4", COMMIT)
    assert decisions.told("2") is COMMIT
