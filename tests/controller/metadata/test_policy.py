"""Elect policies, enumerated: every pair of candidates, and none that depends on anything else."""

from __future__ import annotations

import itertools

import pytest

from controller.metadata.commands import LiveReplica
from controller.metadata.policy import POLICIES

LONG = 2**40


def choose(policy: str, preferred: int | None = None, /, **candidates: LiveReplica) -> int:
    return POLICIES[policy].choose({int(name[1:]): replica for name, replica in candidates.items()}, preferred)


def live(epoch: int, longest: int, priority: int = 100, confirmed: int = -1) -> LiveReplica:
    return LiveReplica(epoch, longest, confirmed, priority)


@pytest.mark.parametrize(("better", "worse"), [
    (live(2, 0), live(1, LONG)),
    (live(1, 2), live(1, 1)),
    (live(1, LONG), live(1, LONG - 2**31)),
    (live(1, 2**62), live(1, -1)),
    (live(1, 1, 5), live(1, 1, 6)),
    (live(1, 1, -(2**31)), live(1, 1, 2**31 - 1)),
    (live(1, 2, 9), live(1, 1, 0)),
])
def test_default_takes_epoch_then_offset_then_priority(better: LiveReplica, worse: LiveReplica) -> None:
    assert choose("default", b1=worse, b2=better) == choose("default", b2=better, b1=worse) == 2
    assert choose("default", b1=better, b2=worse) == 1


def test_equals_are_told_apart_by_id() -> None:
    assert choose("default", b3=live(1, 1), b2=live(1, 1)) == 2


def test_preferred_wins_if_its_log_holds_what_is_confirmed() -> None:
    candidates = {"b1": live(1, 100, confirmed=50), "b2": live(1, 50, confirmed=40), "b3": live(1, 49)}
    assert choose("preferred", 2, **candidates) == 2
    assert choose("preferred", 3, **candidates) == 1
    assert choose("preferred", 9, **candidates) == 1
    assert choose("preferred", None, **candidates) == 1


def test_preferred_must_be_of_the_latest_epoch() -> None:
    assert choose("preferred", 2, b1=live(2, 1), b2=live(1, LONG)) == 1


def test_priority_comes_before_length_among_those_that_hold_what_is_confirmed() -> None:
    candidates = {"b1": live(1, 100, 3, 50), "b2": live(1, 50, 2), "b3": live(1, 49, 1)}
    assert choose("priority", **candidates) == 2
    assert choose("priority", b1=live(1, 100, 2), b2=live(1, 200, 2)) == 2


def test_a_confirmed_offset_beyond_every_log_rules_nobody_out() -> None:
    for policy in POLICIES:
        assert choose(policy, 1, b1=live(1, 10, confirmed=LONG), b2=live(1, 5)) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_the_order_of_candidates_says_nothing(policy: str) -> None:
    shapes = [live(e, o, p, c) for e in (0, 1) for o in (1, 9) for p in (1, 2) for c in (-1, 5)]
    for three in itertools.combinations(shapes, 3):
        answers = {
            POLICIES[policy].choose({i: three[i] for i in order}, 2) for order in itertools.permutations(range(3))
        }
        assert len(answers) == 1 and answers <= {0, 1, 2}
