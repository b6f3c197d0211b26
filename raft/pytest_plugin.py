"""The pytest plug-in of ``quorate-raft``, with the fixture and the marker ``explore``, and options for both.

A project loads it in its ``conftest.py``: ``pytest_plugins = ["raft.pytest_plugin"]``. It is no entry point of the
wheel: pytest would then load it in every run where the library is installed, and rewrite the asserts of all packages of
the wheel, so that the library would be compiled anew and ``runpy`` could run none of its modules.
The fixture loads the simulator. Knows pytest's options; explorations themselves are in ``raft.sim.exploring``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from raft.sim.exploring import ExplorationReport

OPTIONS: Final = {
    "seeds": (int, "seeds of each exploration"), "first": (int, "first seed"),
    "events": (int, "stop an exploration after so many events"),
    "budget": (float, "stop an exploration after so many seconds"),
    "profile": (str, "faults: swarm, network, disk, crash, ..."), "nodes": (int, "voters of each cluster"),
    "jobs": (int, "processes that play seeds"),
}
"""Name of an option after ``--explore-`` -> its type and its help."""
FOLDER: Final = ".explore"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("explore", "explorations of replicated state machines (quorate-raft)")
    for name, (kind, says) in OPTIONS.items():
        group.addoption(f"--explore-{name}", type=kind, default=None, help=says)
    group.addoption("--explore-replay", metavar="FILE", default=None, help="play this file and nothing else")
    group.addoption("--explore-corpus", metavar="DIR", default=None,
                    help=f"where failures are kept ({FOLDER} in pytest's root)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "explore(**options): options of the fixture `explore`, as seeds=500 or "
                                       'replay="FILE"; those of the command line win')


def given(config: pytest.Config) -> dict[str, Any]:
    """Return the options of the command line, by their names in ``explore``."""
    found = {name: config.getoption(f"explore_{name}") for name in (*OPTIONS, "replay")}
    found["budget_s"] = found.pop("budget")
    return {name: value for name, value in found.items() if value is not None}


def corpus(config: pytest.Config) -> Path:
    """Return the folder in which failures are kept."""
    told = config.getoption("explore_corpus")
    return Path(told) if told else config.rootpath / FOLDER


def pytest_report_header(config: pytest.Config) -> list[str]:
    options, folder = given(config), corpus(config)
    if not options and not folder.is_dir():
        return []
    said = ", ".join(f"{name}={value}" for name, value in options.items()) or "options of each test"
    return [f"explore: {said}; {len(list(folder.glob('*/*.json')))} earlier failures in {folder}"]


@pytest.fixture
def explore(request: pytest.FixtureRequest) -> Callable[..., ExplorationReport]:
    """Return ``raft.sim.explore`` with this test's name, its marker's options and those of the command line."""
    from raft.sim.exploring import explore as exploring
    from raft.sim.tape import load

    marker = request.node.get_closest_marker("explore")
    options: dict[str, Any] = {**(marker.kwargs if marker else {}), **given(request.config)}
    name = request.node.nodeid
    if request.config.getoption("explore_replay"):
        _, notes = load(Path(options["replay"]))
        if (of := notes.get("exploration", name)) != name:
            pytest.skip(f"the file that is replayed is of {of}")
    repeat = (f'pytest "{name}" --explore-replay {{path}}\n'
              'or, above the test,\n    @pytest.mark.explore(replay="{path}")')
    settings = {"name": name, "corpus": corpus(request.config), "repeat": repeat}

    def go(*args: Any, **own: Any) -> ExplorationReport:
        __tracebackhide__ = True
        return partial(exploring, *args)(**{**settings, **own, **options})

    return go
