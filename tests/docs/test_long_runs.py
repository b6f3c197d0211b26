"""What the manual says of long runs is what their pages hold, and these show nothing broken; and what it says of CI."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "reference" / "chaos.md").read_text()
SAID = " ".join(REFERENCE.partition("### Long runs")[2].partition("\n## ")[0].split())
BYTES_MAX = 5_000_000
LEAST = {"kill": 1_000, "cut": 300}


CI = re.sub(r'"\$\{\w+:-(\w+)\}"', r"\1", (DOCS.parent / ".ci" / "run").read_text()).replace(".venv/bin/", "")
PLAYED = REFERENCE.partition("### What CI plays")[2].partition("\n### ")[0]


def test_ci_plays_what_the_manual_says() -> None:
    """A test that is left to ``make campaigns`` is none of CI's."""
    ours, theirs = PLAYED.split("| not by CI: ")
    commands = re.findall(r"`((?:make|chaos) [^`]+)`", ours)
    assert len(commands) >= 5 and [each for each in commands if each not in CI] == []
    assert "`make campaigns`" in theirs and "make campaigns" not in CI
    tests = "".join(path.read_text() for path in (DOCS.parent / "tests" / "harness" / "chaos").glob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", ours):
        found = re.search(rf"\n\n\n((?:[@ )].*\n)*)(?:async )?def {name}\(", tests)
        assert found is not None and "mark.campaign" not in found[1], name


def content(name: str) -> dict[str, Any]:
    """What a page shows."""
    page = (DOCS / "runs" / f"{name}.html").read_text()
    assert len(page.encode()) <= BYTES_MAX
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None and f"chaos run {name} --seed" in found[1]
    whole: dict[str, Any] = json.loads(found[1])
    return whole


def struck(fault: dict[str, Any]) -> str:
    """The fault, its group if there are several, and the kind of the nodes."""
    return " ".join([fault["name"], *sorted({re.sub(r"-[0-9]+$", "", node) for node in fault["on"]})])


@pytest.mark.parametrize("name", ["thousand-failovers", "hundreds-of-failovers"])
def test_nothing_that_is_promised_was_broken(name: str) -> None:
    found = content(name)
    assert found["valid"] is True and found["promises"] and all(each["valid"] is True for each in found["promises"])
    assert found["run"]["well"] and f"chaos run {name} --seed {found['run']['seed']}" in SAID
    assert found["counts"][2] < found["counts"][0], "most of it was answered"


def test_a_thousand_kills_and_hundreds_of_cuts_among_all_ways_to_keep_a_group() -> None:
    found = content("thousand-failovers")
    faults = Counter(map(struck, found["faults"]))
    of = {each["checker"]: each for each in found["promises"]}
    kinds = {kind: sum(many for name, many in faults.items() if name.split()[0] == kind) for kind in LEAST}
    assert all(kinds[kind] >= least for kind, least in LEAST.items()) and kinds == found["run"]["kinds"]
    masters = {group: faults[f"kill {group} broker"] + faults[f"kill {group} master"] for group in found["groups"]}
    active = {group: faults[f"kill {group} controller"] for group in found["groups"]}
    assert (f"{kinds['kill']:,} times `kill -9`, of {sum(masters.values())} masters and {sum(active.values())} active "
            f"controllers, and {kinds['cut']} cuts") in SAID
    for group in ("all-ack", "quorum-write", "acting", "elected"):
        queue, nodes = of[f"{group}: queue"], of[f"{group}: nodes"]["asked"]
        row = [f"`{group}`", str(masters[group]), str(active[group] or "none there"), str(nodes["cut"])]
        assert f"| {' | '.join(row)} | {nodes['failovers'] or 'nobody: it comes back'} | " in SAID
        lost = "0" if group != "elected" else "none that was never received"
        assert f" | {queue['asked']['acknowledged']:,} | {lost} | {queue['counts']['unknown']} |" in SAID
    assert f"{of['elected: queue']['counts']['place, not promised']} places were taken twice" in SAID


def test_hundreds_of_failovers_of_one_group() -> None:
    found = content("hundreds-of-failovers")
    kinds = Counter(each["name"] for each in found["faults"])
    queue = next(each for each in found["promises"] if each["checker"] == "queue")
    assert f"{kinds['kill']} masters were killed with -9 and {kinds['cut']} slaves cut off" in SAID
    assert f"{queue['asked']['acknowledged']:,} sends were acknowledged; each was read at the end" in SAID
    assert f"{queue['counts']['unknown']} sends never learned" in SAID
