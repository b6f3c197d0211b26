"""Every sentence of the pages that promise something is a row of the table, or is said to promise nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from controller.metadata.invariants import INVARIANTS
from harness.scenarios.failovers.campaign import Promise as Asked
from harness.scenarios.interop import __main__ as _registers  # noqa: F401  the scenarios
from harness.scenarios.interop.scenario import SCENARIOS
from harness.simulation.brokers.acting.statements import ACTING_STATEMENTS
from harness.simulation.brokers.statements import PREDICATES as OF_BROKERS
from harness.simulation.controllers.watch import PREDICATES as OF_CONTROLLERS
from raft.invariants import DECLARED
from tests.docs.test_guarantees import names_in
from tests.promises.page import PAGE, PAGES, found, render
from tests.promises.pages import ROOT, Unit, units
from tests.promises.table import Page, Promise

INVARIANT_NAMES = {*DECLARED, *INVARIANTS, *OF_BROKERS, *ACTING_STATEMENTS, *OF_CONTROLLERS}
SCENARIO_NAMES = {each.name for each in SCENARIOS}


def unclear(page: Page, text: list[Unit]) -> Iterator[str]:
    """Sentences without one place in the table, and rows without one sentence."""
    starts = [*(each.start for each in page.promises), *page.others]
    for unit in text:
        fitting = [start for start in starts if unit.text.startswith(start)]
        if len(fitting) != 1:
            yield f"{len(fitting)} rows for: {unit.text}"
    for start in starts:
        if sum(unit.text.startswith(start) for unit in text) != 1:
            yield f"not one sentence begins so: {start}"


def problems(promise: Promise, unit: Unit) -> Iterator[str]:
    """What a row names that is not there, and what it leaves open."""
    tests = (*unit.shown_by, *promise.tests)
    if bool(promise.asks) == bool(promise.not_simulated):
        yield "it names invariants, or says why no simulator can ask: one of both"
    if bool(promise.real) == bool(promise.not_real):
        yield "it names what asks real processes, or says why none can: one of both"
    if not tests and not promise.asks:
        yield "nothing asks it"
    yield from (f"no such invariant: {name}" for name in promise.invariants if name not in INVARIANT_NAMES)
    for each in (*tests, *promise.real):
        kind, _, name = each.partition(" ")
        if kind == "failovers":
            there = name in Asked.__members__
        elif kind == "interop":
            there = name in SCENARIO_NAMES
        else:
            file, _, function = each.partition("::")
            there = each == "powercut" or function in names_in(file)
        if not there:
            yield f"no such thing: {each}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_every_sentence_has_its_place(page: Page) -> None:
    assert list(unclear(page, list(units((ROOT / page.path).read_text())))) == []


def test_each_invariant_is_what_a_sentence_promises() -> None:
    asked = {name for page in PAGES for promise in page.promises for name in promise.invariants}
    assert INVARIANT_NAMES - asked == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_every_row_names_what_is_there(page: Page) -> None:
    assert [f"{unit.text}: {each}" for promise, unit in found(page) for each in problems(promise, unit)] == []


def test_the_page_is_what_the_rows_say() -> None:
    assert PAGE.read_text() == render(), "python -m tests.promises.page writes it"


def test_a_sentence_without_a_row_and_a_row_without_a_sentence_are_noticed() -> None:
    page = Page("docs/none.md", (Promise("Nothing is lost", "R10", not_real="because"),), others=("It is", "Gone"))
    text = list(units("# Some\n\nNothing is lost. It is said. And a sentence is\nnew. [`x`](y) is one too.\n"))
    said = list(unclear(page, text))
    assert len(said) == 3
    assert re.search("0 rows for: And a sentence is new", said[0])
    assert "not one sentence begins so: Gone" in said[2]


@pytest.mark.parametrize("promise", [
    Promise("x", "R10"), Promise("x", "R99", not_real="y"), Promise("x", not_simulated="y", not_real="y"),
    Promise("x", "R10", "y", not_real="y"), Promise("x", "R10", real=("failovers NOTHING",)),
    Promise("x", "R10", real=("interop nothing",)), Promise("x", "R10", real=("tests/none.py::test_nothing",)),
])
def test_a_row_that_leaves_something_open_is_noticed(promise: Promise) -> None:
    assert list(problems(promise, Unit("", "x")))


def test_tables_and_lists_are_units() -> None:
    assert [(unit.text, unit.shown_by) for unit in units(
        "## A\n\n| Guarantee | Shown by |\n|---|---|\n| one | `tests/a.py::test_b`<br>`tests/c.py::test_d` |\n\n"
        "- two. Three\n- four\n\n```\nno\n```\n")] == [
        ("one", ("tests/a.py::test_b", "tests/c.py::test_d")), ("two.", ()), ("Three", ()), ("four", ())]
