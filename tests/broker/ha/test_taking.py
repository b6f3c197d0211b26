"""The table of steps by which a role is taken: what has to come before what."""

from __future__ import annotations

from itertools import product

import pytest

from broker.ha.taking import STEPS, BecomeMaster, BecomeSlave, From, Step, To, steps

WAYS = [*product(From, To)]


def before(first: Step, then: Step, todo: tuple[Step, ...]) -> bool:
    """Whether ``first`` is done when ``then`` begins."""
    return first in todo[:todo.index(then)]


def test_there_is_a_way_from_everywhere_to_everywhere() -> None:
    assert set(STEPS) == set(WAYS)
    assert {step for todo in STEPS.values() for step in todo} == set(Step)
    assert all(len(set(todo)) == len(todo) for todo in STEPS.values()), "each is done once"


@pytest.mark.parametrize(("at", "to"), WAYS)
def test_the_last_step_is_the_role(at: From, to: To) -> None:
    assert STEPS[at, to][-1] is (Step.OPEN if to is To.MASTER else Step.FOLLOW)


@pytest.mark.parametrize(("at", "to"), [(at, to) for at, to in WAYS if at.value != to.value])
def test_another_role_begins_by_leaving_the_one_before(at: From, to: To) -> None:
    assert STEPS[at, to][0] is Step.LEAVE


@pytest.mark.parametrize(("at", "to"), [(at, to) for at, to in WAYS if at.value == to.value])
def test_the_same_role_keeps_its_connections(at: From, to: To) -> None:
    assert Step.LEAVE not in STEPS[at, to]


@pytest.mark.parametrize("at", From)
def test_no_epoch_is_recorded_before_the_log_is_stored(at: From) -> None:
    assert before(Step.STORE, Step.RECORD, STEPS[at, To.MASTER])


@pytest.mark.parametrize("at", [From.NONE, From.SLAVE])
def test_no_epoch_begins_behind_a_part_of_a_message(at: From) -> None:
    """Its master wrote none; what a slave has of one may have no end any more."""
    assert before(Step.STORE, Step.CUT, STEPS[at, To.MASTER]) and before(Step.CUT, Step.RECORD, STEPS[at, To.MASTER])


@pytest.mark.parametrize("at", From)
def test_nothing_is_confirmed_shown_or_written_in_an_epoch_that_is_not_on_disk(at: From) -> None:
    todo = STEPS[at, To.MASTER]
    assert all(before(Step.RECORD, step, todo) for step in (Step.CONFIRM, Step.SHOW, Step.OPEN))
    assert before(Step.CONFIRM, Step.SHOW, todo) and before(Step.SHOW, Step.OPEN, todo)


def test_a_role_names_its_way() -> None:
    assert steps(From.SLAVE, BecomeMaster(2, frozenset({1}), 1)) == STEPS[From.SLAVE, To.MASTER]
    assert steps(From.SLAVE, BecomeSlave(2, 1, "b1:1")) == (Step.FOLLOW,)
