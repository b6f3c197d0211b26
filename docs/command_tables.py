"""What was run of each command of RocketMQ's ``mqadmin``, for ``docs/generate.py``.

A command counts as compared where the function that a scenario plays names it; when that was run, ``interop.json``
says. Other tests are found by its name, too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import attrs

from controller.admin.absent import ABSENT
from controller.admin.command import COMMANDS
from harness.scenarios.interop import operators, tools
from harness.scenarios.interop.report import read as read_results

ROOT: Final = Path(__file__).resolve().parents[1]
RELEASE: Final = "5.5.0"
TESTS: Final = ("tests/controller/admin", "tests/broker/container", "harness/scenarios/interop/first_hour.py")


@attrs.frozen
class Compared:
    """What asks both tools, and the scenarios that play it: on our servers, and on Java's ("": none does)."""

    play: Callable[..., Any]
    ours: str
    java: str


COMPARED: Final = (
    Compared(tools.compare, "both_tools_say_the_same_of_our_controllers", "our_mqadmin_against_java_controllers"),
    Compared(tools.elect, "both_tools_say_the_same_of_our_controllers", ""),
    Compared(tools.forget, "both_tools_say_the_same_of_our_controllers", "our_mqadmin_against_java_controllers"),
    Compared(operators.a_member, "both_tools_say_the_same_of_a_consumer",
             "both_tools_say_the_same_of_a_consumer_of_java"),
    Compared(operators.containers, "both_tools_say_the_same_of_our_container", ""),
    Compared(tools.everyday, "both_tools_say_the_same_of_our_broker", "both_tools_say_the_same_of_a_java_broker"),
    Compared(operators.queues_and_settings, "both_tools_say_the_same_of_queues_and_settings",
             "both_tools_say_the_same_of_queues_and_settings_of_java"),
    Compared(operators.clients_and_upkeep, "both_tools_say_the_same_of_clients_and_upkeep",
             "both_tools_say_the_same_of_clients_and_upkeep_of_java"),
)

ENDLESS: Final = "it goes on until it is stopped, so there is no end to compare"
NO_CONTAINER: Final = "no container of Java's is run: the harness fetches none"
NOT_COMPARED: Final[Mapping[str, tuple[str, str]]] = {
    "addBroker": ("", NO_CONTAINER),
    "removeBroker": ("", NO_CONTAINER),
    "clusterRT": (ENDLESS, ENDLESS),
    "startMonitoring": (ENDLESS, ENDLESS),
    "electMaster": ("", "by ours alone: Java's cannot read what Java's controller answers, a number as a name"),
}
"""Why no scenario compares a command on our servers, and on Java's; "": one does."""


@cache
def named(play: Callable[..., Any]) -> frozenset[str]:
    """Commands that a function names."""
    return frozenset(re.findall(r'\("(\w+)"', inspect.getsource(play))) & COMMANDS.keys()


@cache
def tests() -> Mapping[str, str]:
    """By path, the text of each test that may name commands."""
    files = [file for place in TESTS for file in ([ROOT / place] if place.endswith(".py") else
                                                  sorted((ROOT / place).glob("test_*.py")))]
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


def ran(name: str, java: bool) -> str:
    """When a comparison of this command was last run, and what came of it; or why none is."""
    results = read_results(ROOT / "docs" / "reference" / "interop.json")
    for each in COMPARED:
        if name in named(each.play) and (scenario := each.java if java else each.ours):
            found = results.get((scenario, RELEASE))
            return f"{found.outcome}, {found.day}" if found is not None else "not yet"
    return NOT_COMPARED.get(name, ("", ""))[java]


def asked(name: str) -> str:
    """Links to the tests that run it."""
    own = [path for path, text in tests().items()
           if re.search(rf'["\'(]{name}["\', ]', text) and not path.endswith("test_command_list.py")]
    return ", ".join(f"[`{Path(path).stem}`](../../{path})" for path in own)


def runs() -> Iterator[str]:
    """A row per command of the release."""
    yield "| command | both tools compared, our servers | Java's servers | tests of ours |"
    yield "|---|---|---|---|"
    for name in sorted({*COMMANDS, *ABSENT}, key=str.lower):
        if name in ABSENT:
            yield f"| `{name}` | | | not here; that it says so: `test_command_list` |"
        else:
            yield f"| `{name}` | {ran(name, java=False)} | {ran(name, java=True)} | {asked(name)} |"


PARTS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {"mqadmin-runs": runs}
