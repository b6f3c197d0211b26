"""Writes the table of promises: ``python -m tests.promises.page``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache

from tests.harness.planting import Planted
from tests.harness.simulation.brokers import mutants as of_brokers
from tests.harness.simulation.controllers import mutants as of_controllers
from tests.promises import acting, consuming, controller, durability, guarantees, hosting, popping, replication
from tests.promises.pages import ROOT, Unit, units
from tests.promises.table import SIMULATORS, Page, Promise
from tests.raft.bugs.run_mutants import collect, labelled

PAGE = ROOT / "docs/reference/promises.md"
PAGES = (guarantees.PAGE, durability.PAGE, controller.PAGE, consuming.PAGE, popping.PAGE, replication.PAGE,
         hosting.MASTERS, acting.PAGE, hosting.CONTAINER, hosting.LOCKS)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
"""Links lead from another folder: their words alone are shown."""
MOST_NAMED = 3
"""Mutants by name in a cell; of others it says how many."""

HEAD = """# Promises, and what asks them

Each sentence of the manual that promises something: the invariant in code that states it, the simulator that asks it
after its events, what asks it of real processes, and the mutants, bugs planted on purpose, that they notice. *Cannot be
asked there* says why; then the tests ask. A test compares this page with the others, and finds a sentence that has no
row. It is written by `python -m tests.promises.page`.

`failovers` is `python -m harness.scenarios.failovers`, with the promise that it asks; `interop` is a scenario of
`python -m harness.scenarios.interop`; `powercut` is `python -m tests.powercut`. [RocketMQ's design of acting
masters](acting-design.md) has its tests beside each statement.
"""


def found(page: Page) -> Iterator[tuple[Promise, Unit]]:
    """Promises with their sentences; one that has none is left out."""
    text = list(units((ROOT / page.path).read_text(encoding="utf-8")))
    for unit in text:
        yield from ((each, unit) for each in page.promises if unit.text.startswith(each.start))


@cache
def _mutants() -> tuple[tuple[str, frozenset[str]], ...]:
    """Each with what notices it: tests and invariants."""
    planted: tuple[Planted, ...] = (*of_controllers.PLANTED, *of_brokers.PLANTED)
    return (*((label, frozenset(mutant.tests)) for label, mutant in labelled(collect()[0])),
            *((each.name, frozenset(each.caught_by)) for each in planted))


def caught(promise: Promise, unit: Unit) -> list[str]:
    """Mutants that one of its invariants or tests notices."""
    by = {*promise.invariants, *promise.tests, *unit.shown_by, *promise.real}
    return [name for name, noticed in _mutants() if noticed & by]


def render() -> str:
    """The page."""
    out = [HEAD]
    for page in PAGES:
        out += [f"## {page.path.removeprefix('docs/')}", ""]
        out += ["| Promise | Invariant | Simulator | Tests | Real processes | Mutants |", "|---|---|---|---|---|---|"]
        out += [_line(promise, unit) for promise, unit in found(page)]
        out.append("")
    return "\n".join(out)


def _line(promise: Promise, unit: Unit) -> str:
    simulators = dict.fromkeys(SIMULATORS[name[0]] for name in promise.asks.split())
    mutants = caught(promise, unit)
    cells = (
        _LINK.sub(r"\1", unit.text),
        " ".join(f"`{name}`" for name in promise.invariants),
        ", ".join(simulators) or f"cannot be asked there, because {promise.not_simulated}",
        "<br>".join(f"`{each}`" for each in (*unit.shown_by, *promise.tests)),
        "<br>".join(f"`{each}`" for each in promise.real) or f"cannot be asked there, because {promise.not_real}",
        "; ".join(mutants[:MOST_NAMED]) + (f"; {len(mutants) - MOST_NAMED} more" if len(mutants) > MOST_NAMED else ""))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} written\n")
