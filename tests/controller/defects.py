"""Every known defect of RocketMQ's controller, with the tests that show it absent; ``metadata.bugs`` has its own rows.

``python -m tests.controller.defects`` writes ``docs/reference/controller-defects.md`` from them. Reads test files as
syntax; runs nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from controller.metadata.invariants import INVARIANTS
from harness.simulation.brokers.statements import STATEMENTS as OF_BROKERS
from harness.simulation.controllers.watch import PREDICATES
from harness.simulation.controllers.watch import STATEMENTS as OF_CONTROLLERS
from tests.controller.metadata.bugs import HAZARDS, Defect
from tests.controller.metadata.bugs import ROWS as METADATA_ROWS
from tests.harness.simulation.controllers.mutants import PLANTED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/controller-defects.md"

ACTIVE_ROWS: dict[str, Defect] = {
    "A1": Defect(
        "apache/rocketmq#10812, #5712, #5711",
        "after a change of the active controller, brokers that it has not heard yet count as dead"),
    "A2": Defect(
        "read, DefaultBrokerHeartbeatManager",
        "a broker's first channel is kept: closing a stale one kills it, the close of the newer goes unnoticed"),
    "A3": Defect(
        "read, DefaultBrokerHeartbeatManager",
        "of the brokers that share a channel only one is found when it closes"),
    "A4": Defect(
        "apache/rocketmq#4800",
        "a master is replaced at once when the controller alone lost its connection to it: *kept on purpose*, as "
        "waiting would cost every failover a timeout; a master's announced lease can be waited for (A14)"),
    "A5": Defect(
        "apache/rocketmq#3747, #8380, #10875, #9717, #10416",
        "silence is found by a scan that comes late, or never ran; the timeout itself *stays fixed*, as configured"),
    "A6": Defect(
        "read, BrokerLiveInfo",
        "the largest epoch and offset ever told are kept, though the broker has truncated its log since"),
    "A7": Defect(
        "apache/rocketmq#5009, #6382, #6383",
        "an election is missed when the leader changes between loss and election, or when the master is null"),
    "A8": Defect(
        "read, ControllerManager",
        "elections of many groups run one after the other, up to 9 s each"),
    "A9": Defect(
        "read, ControllerManager",
        "an election whose proposal is lost is not asked for again"),
    "A10": Defect(
        "executed, ControllerManager",
        "the answers 2011 and 2004 are taken for failures and asked again three times at once"),
    "A11": Defect(
        "executed, ReplicasInfoManager",
        "an election by the controller for a group that never had a master bricks it: here none is asked for"),
    "A12": Defect(
        "read, ControllerManager",
        "a notification (1008) is sent once and one-way"),
    "A13": Defect(
        "apache/rocketmq#4330",
        "former members are not electable after an election; here they are while that is safe, and not longer"),
    "A14": Defect(
        "apache/rocketmq#4800",
        "a master that lost only its controllers goes on acknowledging beside the new one"),
    "A15": Defect(
        "found by simulation, here",
        "a heartbeat that comes late by a channel that was left takes its broker back to it, and its close then "
        "elects a living master away"),
    "A16": Defect(
        "read, DefaultBrokerHeartbeatManager",
        "whoever sends heartbeats fills the table, and nobody bounds it"),
}

SERVER_ROWS: dict[str, Defect] = {
    "S1": Defect(
        "apache/rocketmq#7163; read, JRaftController",
        "heartbeats are handled by the threads that handle everything else; with jRaft each is an entry of the log"),
    "S2": Defect(
        "executed, fastjson",
        "maps by number are written with keys without quotes, which is no JSON"),
    "S3": Defect(
        "read, DLedgerController",
        "by default a leader that was deposed, and does not know it, answers from its memory"),
    "S4": Defect(
        "apache/rocketmq#9082",
        "brokers on other machines are told that the leader is at 127.0.0.1, where it was configured so"),
    "S5": Defect(
        "read, ControllerMetricsManager",
        "elections that the controller asked for itself are counted under no cluster"),
    "S6": Defect(
        "read, ControllerStartup",
        "frames of a controller carry version 0"),
    "S7": Defect(
        "executed, RemotingCommand",
        "a field that is missing or cannot be read takes its type's default, and some exception follows, or none"),
}

ROWS = METADATA_ROWS | ACTIVE_ROWS | SERVER_ROWS

HEAD = """# Defects of the original controller

What is wrong, or was, in RocketMQ's controller, and what holds here instead. Each row is a test or several. *Executed*
and *read* say how a defect was found that has no issue: by running the Java classes of 5.3 and 5.5, or by reading them.
Rows K are about the replicated metadata, rows A about the active controller: who lives, when to elect, who is told;
rows S about what is on the wire. Races between Java's threads (apache/rocketmq#7163, JRaftControllerStateMachine) have
no row: here one thread does everything, and what looks at the metadata decides before anything else runs.

This page is written by `python -m tests.controller.defects` from the tests, and a test compares.
"""

_NAME = re.compile(r"test_BUG_([KAS]\d+)_\w+")


@attrs.frozen
class RowTest:
    """A test function of a row."""

    row: str
    file: str
    name: str
    about: str
    """First paragraph of its docstring."""


def collect_tests() -> list[RowTest]:
    """Every test of a row, in the order of files and lines."""
    out: list[RowTest] = []
    for path in sorted((ROOT / "tests/controller").rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (found := _NAME.fullmatch(node.name)):
                about = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
                out.append(RowTest(found[1], path.relative_to(ROOT).as_posix(), node.name, about))
    return out


def problems() -> Iterator[str]:
    """What is missing, in words."""
    tests = collect_tests()
    for row in ROWS:
        mine = [test for test in tests if test.row == row]
        if not mine:
            yield f"{row} has no test"
        elif not any(test.about for test in mine):
            yield f"none of the tests of {row} says what holds"
    yield from (f"{test.name} is for no row" for test in tests if test.row not in ROWS)


def render() -> str:
    """The page."""
    tests = collect_tests()
    out = [HEAD, "| Row | Source | The original | Here | Tests |", "| --- | --- | --- | --- | --- |"]
    for row, defect in ROWS.items():
        mine = [test for test in tests if test.row == row]
        here = next((test.about for test in mine if test.about), "")
        named = "<br>".join(f"`{test.file}::{test.name}`" for test in mine)
        out.append(f"| {row} | {defect.source} | {defect.what} | {here} | {named} |".replace("||", "\\|\\|"))
    out += ["", "Hazards by their names elsewhere: " + ", ".join(
        f"{name} is {' and '.join(rows)}" for name, rows in HAZARDS.items()) + ".", "",
        "## What is checked after every step", "",
        "`python -m harness.simulation.controllers` runs controllers and the real cores of brokers under faults and "
        "asks these after every step that could break them; a property that was never asked makes a run invalid. The "
        "bugs in the last column are planted by `make mutants-controllers`, and the property must notice.", "",
        "| Property | What must hold | Planted bugs that it notices |", "| --- | --- | --- |"]
    for name in sorted(PREDICATES, key=_number):
        planted = "; ".join(each.name for each in PLANTED if name in each.caught_by)
        out.append(f"| {name} | {statement(name)} | {planted} |")
    return "\n".join([*out, ""])


STATEMENTS = {**OF_BROKERS, **OF_CONTROLLERS}


def statement(name: str) -> str:
    """What a property says."""
    asked = INVARIANTS.get(name)
    text = STATEMENTS.get(name) or " ".join((asked.__doc__ or "").split()) if asked else STATEMENTS[name]
    return re.sub(r"^C\d+: ", "", text)


def _number(name: str) -> tuple[bool, int, str]:
    found = re.fullmatch(r"INV_([BC])(\d+)", name)
    return found is None, int(found[2]) + 100 * (found[1] == "B") if found else 0, name


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")
