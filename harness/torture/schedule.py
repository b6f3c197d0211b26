"""Plans the faults of a run, as data: drawn from a scenario and a seed, kept in ``schedule.json``, cut down later.

A seed repeats the schedule, not what real processes make of it. This module knows no process and no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final

import attrs

from harness.targets.fields import Fields, FormatError
from harness.torture.scenario import SECONDS_MIN, FaultPlan, TortureScenario
from harness.torture.selecting import Selector, as_json, choose, named, selector

STEPS_MAX: Final = 10_000


@attrs.frozen
class Step:
    """One fault: from ``at_ms`` since the run began, held for ``hold_ms``, then undone."""

    at_ms: int
    fault: str
    nodes: Selector
    hold_ms: int
    args: Mapping[str, Any] = attrs.field(factory=dict)
    beside: bool = False
    """Whether other faults may fall on the same nodes meanwhile."""

    def words(self) -> str:
        """One line of a script for people."""
        args = "".join(f", {name} {value}" for name, value in self.args.items())
        return f"{self.at_ms / 1e3:7.2f} s  {self.fault} {self.nodes.words}{args}, for {self.hold_ms / 1e3:.2f} s"


@attrs.frozen
class Schedule:
    """All that a run is told besides its scenario."""

    seed: int
    seconds: float
    clients: int
    steps: tuple[Step, ...]

    def words(self) -> str:
        """A script that a person can read."""
        first = f"seed {self.seed}: {self.clients} clients for {self.seconds:g} s"
        return "\n".join([first, *(step.words() for step in self.steps)])


def draw(scenario: TortureScenario, kinds: Mapping[str, str], seed: int) -> Schedule:
    """Draws a schedule; nodes too, unless a role is asked for. ``kinds``: node -> kind. Raises ``FormatError``."""
    steps: list[Step] = []
    for number, plan in enumerate(scenario.faults):
        chance = Random(f"{seed}/{number}/{plan.fault}")
        for at_s in _moments(plan, scenario.seconds, chance):
            who = plan.nodes
            if not who.needs_roles and not who.names:
                who = named(choose(who, kinds, {}, (), chance))
            steps.append(Step(round(at_s * 1e3), plan.fault, who, round(chance.uniform(*plan.hold_s) * 1e3), plan.args,
                              plan.beside))
            if len(steps) > STEPS_MAX:
                raise FormatError(f"more than {STEPS_MAX} faults: raise every_s, or lower seconds")
    steps.sort(key=lambda step: step.at_ms)
    assert all(0 <= step.at_ms <= scenario.seconds * 1e3 + 1 for step in steps)
    return Schedule(seed, scenario.seconds, scenario.load.clients, tuple(steps))


def _moments(plan: FaultPlan, seconds: float, chance: Random) -> Iterator[float]:
    if plan.every_s is None:
        yield from (at for at in plan.at_s if at < seconds)
        return
    at = chance.uniform(*plan.every_s)
    while at < seconds:
        yield at
        assert plan.every_s[0] > 0, "else this never ends"
        at += chance.uniform(*plan.every_s)


def to_json(schedule: Schedule) -> dict[str, Any]:
    """Return the content of ``schedule.json``, as an object."""
    return {"seed": schedule.seed, "seconds": schedule.seconds, "clients": schedule.clients, "steps": [
        {"at_ms": step.at_ms, "fault": step.fault, "nodes": as_json(step.nodes), "hold_ms": step.hold_ms}
        | ({"args": dict(step.args)} if step.args else {})
        | ({"beside": True} if step.beside else {}) for step in schedule.steps]}


def from_json(found: Any) -> Schedule:
    """Reads what ``to_json`` made. Raises ``FormatError``."""
    if not isinstance(found, dict):
        raise FormatError("a schedule is an object")
    fields = Fields("", found)
    made = Schedule(fields.whole("seed", least=-(1 << 63)), fields.number("seconds", least=SECONDS_MIN),
                    fields.whole("clients", least=1), tuple(map(_step, fields.tables("steps"))))
    fields.done()
    return made


def _step(fields: Fields) -> Step:
    args = fields.table("args")
    made = Step(fields.whole("at_ms"), fields.text("fault"), selector(fields.any("nodes"), fields.at("nodes")),
                fields.whole("hold_ms"), {} if args is None else dict(args.values),
                fields.flag("beside", False))
    fields.done()
    return made
