"""The order of tasks: drawn, repeated, put back; and what is said where trio no longer lets anybody decide it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio
from trio._core import _run

from raft.sim.tape import Tape
from raft.virtual import scheduling
from raft.virtual.scheduling import CHANCE, NOT_REPLAYABLE, SWITCH, Steps, ordered, why_not


def test_this_trio_is_replayable() -> None:
    assert NOT_REPLAYABLE == ""


@pytest.mark.parametrize(("loop", "version", "words"), [
    (_run, "0.26.0", "tried with trio 0.27 to "), (_run, "0.99.1", "this is 0.99.1"), (_run, "1.0", "this is 1.0"),
    (SimpleNamespace(_r=None), "0.35.0", f"has no {SWITCH}"),
    (None, "0.35.0", f"has no {SWITCH} and no {CHANCE}"),
])
def test_what_is_missing_is_said(loop: object, version: str, words: str) -> None:
    said = why_not(loop, version)
    assert said.startswith("not replayable: ") and words in said


def order(tape: Tape) -> list[int]:
    """In which order ten tasks run that are ready at once."""
    ran: list[int] = []

    async def one(number: int) -> None:
        await trio.sleep(1)
        ran.append(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(one, number)

    with ordered(tape.stream("order")):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return ran


def test_the_order_is_on_the_tape() -> None:
    orders = {seed: order(Tape(seed)) for seed in range(12)}
    assert len({tuple(each) for each in orders.values()}) > 4
    assert {seed: order(Tape(seed)) for seed in orders} == orders
    tape = Tape(3)
    drawn = order(tape)
    assert order(Tape(3, tape.deviations)) == drawn
    assert order(Tape(3, {})) == list(range(10)), "the boring order is that in which tasks were made"


def test_trio_is_as_before_afterwards() -> None:
    before = getattr(_run, SWITCH), getattr(_run, CHANCE)
    seen = []

    def fail() -> None:
        with ordered(Tape(1).stream("order")):
            seen.append(getattr(_run, SWITCH))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == [True]
    assert (getattr(_run, SWITCH), getattr(_run, CHANCE)) == before


def test_a_trio_without_the_switch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "_loop", lambda: None)
    assert sorted(order(Tape(1))) == list(range(10))


def test_living_tasks_are_known_by_name() -> None:
    from raft.sim.world import World

    clock = trio.testing.MockClock(autojump_threshold=0)
    steps = Steps(World(), lambda: 0)
    found: list[list[str]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            await trio.lowlevel.checkpoint()
            found.append(steps.below(trio.lowlevel.current_task()))

    trio.run(main, clock=clock, instruments=[steps])
    assert found == [["trio.sleep"]]
    assert not steps.living
