"""``chaos sim``: one command for all seeded simulations: of the library, controllers, brokers and your own code.

    chaos sim raft --events 20M --jobs 2
    chaos sim controllers --profile leases --seed 7
    chaos sim tests/test_bank.py:test_bank --json
    chaos sim tests/test_bank.py:test_bank --replay failures/no_money_is_made-swarm-4.json

A function of yours calls ``raft.sim.explore``, is a test that takes the fixture ``explore``, or is a coroutine function
for ``raft.virtual.search``: whole servers on virtual time. Options, tapes, progress and reports are those of
``raft.sim.command``; no simulation runs in this module.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import attrs

from harness.chaos.subcommand import UNKNOWN, Refused
from raft.errors import UsageError
from raft.sim import command
from raft.sim.campaign import Played, Program
from raft.sim.explored import Explored
from raft.sim.exploring import Counterexample, Exploration, explored_by
from raft.sim.tape import Tape
from raft.virtual.running import Main, Servers
from raft.virtual.scheduling import NOT_REPLAYABLE
from raft.virtual.searching import program_of_servers, tell

OURS: Final = {
    "raft": ("raft.sim.campaign", "RAFT"),
    "controllers": ("harness.simulation.controllers.scene", "CONTROLLERS"),
    "brokers": ("harness.simulation.brokers.scene", "BROKERS"),
}
"""Simulation -> module and name of its program, loaded only when needed."""
NAME: Final = "sim"
ABOUT: Final = "run a seeded simulation: of the library, of controllers, of brokers, an exploration or servers of yours"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="WHAT", help=f"{', '.join(OURS)}, FILE.py:FUNCTION or MODULE:FUNCTION")
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="OPTIONS",
                        help="seeds, events, jobs, --replay FILE, --json …: `chaos sim WHAT --help` lists them")


def run(options: argparse.Namespace) -> int:
    """Run the simulation; returns the exit code. Raises ``Refused`` and ``OSError``."""
    what, rest = options.what, options.options
    try:
        program = program_of(what)
        told = command.parse(rest, program)
        if what not in OURS and told.replay is not None:
            return replay(what, told.replay, as_json=told.json)
        status = command.main(rest, program)
    except UsageError as error:
        raise Refused(str(error)) from error
    return UNKNOWN if status == command.INVALID else status


def program_of(what: str) -> Program:
    """The program of a simulation or a function. Raises ``UsageError`` if it is neither."""
    name = f"chaos sim {what}"
    if what in OURS:
        module, program = OURS[what]
        found: Program = getattr(importlib.import_module(module), program)
        return attrs.evolve(found, command=name)
    function = function_of(what)
    if not inspect.iscoroutinefunction(function):
        return attrs.evolve(exploration_of(what).program(name), scene=SceneOf(what))
    if NOT_REPLAYABLE:
        sys.stderr.write(f"{NOT_REPLAYABLE}\n")
    return attrs.evolve(program_of_servers(function, name), scene=SceneOf(what))


@attrs.frozen
class SceneOf:
    """Makes scenes of your function. Worker processes get its name, and load the function themselves."""

    what: str

    def __call__(self, tape: Tape, profile: str) -> Played:
        function = function_of(self.what)
        if inspect.iscoroutinefunction(function):
            return Servers(function, tape)
        return Explored(exploration_of(self.what).subject, tape, profile)


def exploration_of(what: str) -> Exploration:
    """The exploration of a function. Raises ``UsageError``."""
    return explored_by(function_of(what))


@functools.cache
def function_of(what: str) -> Callable[..., Any]:
    """Load ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``. Raises ``UsageError``."""
    place, colon, name = what.rpartition(":")
    if not colon:
        raise UsageError(f"{what!r} is none of {', '.join(OURS)}, and no FILE.py:FUNCTION")
    module = _load(Path(place)) if place.endswith(".py") else _import(place)
    function = getattr(module, name, None)
    if not callable(function):
        there = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        raise UsageError(f"{place} has no function {name}; it has {', '.join(there) or 'none'}")
    found: Callable[..., Any] = function
    return found


def _import(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} cannot be imported: {error}") from error


def _load(path: Path) -> ModuleType:
    """Load a file as a module, with its folder first on the path for its imports."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def replay(what: str, path: Path, *, as_json: bool) -> int:
    """Replay a file, and print the result with its script."""
    try:
        events = _replayed(what, path, f"chaos sim {what} --replay {{path}}")
    except Counterexample as found:
        if as_json:
            command.tell("replay", file=str(path), failure=found.failure, message=str(found), script=found.script)
        else:
            command.say(str(found))
        return 1
    if as_json:
        command.tell("replay", file=str(path), failure=None, events=events)
    else:
        command.say(f"passed: {path} breaks nothing")
    return 0


def _replayed(what: str, path: Path, repeat: str) -> int:
    """Replay a file; returns the number of its events. Raises ``Counterexample``."""
    main: Main = function_of(what)
    if inspect.iscoroutinefunction(main):
        return tell(main, path, "the failure is still there", repeat).world.events
    return attrs.evolve(exploration_of(what), replay=path, repeat=repeat).run().events
