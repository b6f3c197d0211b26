"""Histories as systems make them: one that is right, with clients that time out, and ways to spoil what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import attrs

from harness.checkers.models import ILLEGAL, UNKNOWN, Call, Model
from harness.histories.events import FAIL, INFO, INVOKE, OK, Event

Draw = Callable[[Random], tuple[str, object]]


def register_call(chance: Random) -> tuple[str, object]:
    f = chance.choice(("read", "write", "cas"))
    values = chance.randrange(5), chance.randrange(5)
    return f, None if f == "read" else values[0] if f == "write" else list(values)


@attrs.define
class _Open:
    process: int
    f: str
    value: object
    happened: bool = False
    result: object = None
    refused: bool = False


def history(
    chance: Random, model: Model, draw: Draw, answers: Callable[[object, str, object], object], *, operations: int,
    clients: int = 5, unknown: float = 0.0, key: object = None,
) -> list[Event]:
    """Events of a system that does each operation at one moment between its begin and its end.

    ``answers`` is what a system in that state tells. ``unknown`` is the share of operations that time out: half of
    them happen, at any later time.
    """
    events: list[Event] = []
    state = model.begin()
    idle, fresh = list(range(clients)), clients
    open_now: list[_Open] = []
    lost: list[_Open] = []
    begun = 0

    def event(kind: str, of: _Open, value: object) -> None:
        events.append(Event(len(events), kind, of.process, of.f, key, value, len(events) * 1_000))

    def happen(of: _Open) -> None:
        nonlocal state
        of.result = answers(state, of.f, of.value)
        after = model.step(state, Call(of.f, of.value, UNKNOWN if of.f != "read" else of.result))
        of.refused = after is ILLEGAL
        state = state if of.refused else after
        of.happened = True

    while begun < operations or open_now:
        move = chance.random()
        if idle and begun < operations and move < 0.4:
            of = _Open(idle.pop(chance.randrange(len(idle))), *draw(chance))
            begun += 1
            open_now.append(of)
            event(INVOKE, of, of.value)
        elif open_now:
            of = chance.choice(open_now)
            if not of.happened and chance.random() < unknown:
                open_now.remove(of)
                event(INFO, of, None)
                lost.append(of)
                idle.append(fresh)
                fresh += 1
            elif not of.happened:
                happen(of)
            else:
                open_now.remove(of)
                idle.append(of.process)
                event(FAIL if of.refused else OK, of, of.value if of.f != "read" else of.result)
        if lost and chance.random() < 0.1:
            late = lost.pop(chance.randrange(len(lost)))
            if chance.random() < 0.5:
                happen(late)
    return events


def register_answers(state: object, f: str, value: object) -> object:
    return state if f == "read" else value


def spoiled(chance: Random, events: Sequence[Event]) -> list[Event]:
    """One read says something else."""
    made = list(events)
    reads = [place for place, each in enumerate(made) if each.type == OK and each.f == "read"]
    place = chance.choice(reads)
    others = [value for value in range(5) if value != made[place].value]
    made[place] = made[place]._replace(value=chance.choice(others))
    return made
