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


def test_an_attempt_that_asks_again_may_block_only_as_long_as_it_asks_for_now() -> None:
    """Its second answer may be lost too, or its put may be in doubt: the shorter time may be in force."""
    judge = InOrder(broken)
    judge.given(0, [0], 10, 500, "a", 10, 1)
    judge.given(1, [0], 10, 500, "b", 10, 1)
    judge.tries_again("a", 200)
    judge.given(0, [0], 250, 900, "c", 250, 1)
    judge.given(2, [0], 20, 500, "a", 20, 1)  # the first answer leaves after the second request
    judge.given(2, [0], 250, 900, "d", 250, 1)
    with pytest.raises(InvariantViolation, match="INV_B47: given while a consumer has an earlier one"):
        judge.given(1, [0], 250, 900, "e", 250, 1)
