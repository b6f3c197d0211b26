"""The judge of POP in order knows what a consumer has."""

from __future__ import annotations

import pytest

from harness.simulation.brokers.ordered import InOrder
from raft.invariants import InvariantViolation


def broken(name: str, words: str, *facts: object) -> None:
    raise InvariantViolation(name, words)


def test_who_asks_again_as_the_same_attempt_did_not_get_the_first_answer() -> None:
    judge = InOrder(broken)
    judge.given(0, [0, 1], 10, 500, "a", 10, 1)
    judge.given(0, [0], 20, 300, "a", 20, 1)
    judge.asks(0, 0)
    judge.given(0, [1], 400, 900, "b", 400, 1)
    with pytest.raises(InvariantViolation, match="INV_B47: given while a consumer has an earlier one"):
        judge.given(0, [1], 450, 900, "c", 450, 1)
