"""``chaos sim``: seeded simulations by one front: the library, the controllers, the brokers, an exploration of yours.

    chaos sim raft --events 20M --jobs 2
    chaos sim controllers --profile leases --seed 7
    chaos sim tests/test_bank.py:test_bank --json
    chaos sim tests/test_bank.py:test_bank --replay failures/no_money_is_made-swarm-4.json

A function of yours calls ``raft.sim.explore``, or is a test that takes the fixture ``explore``. Options, tapes,
progress and reports are those of ``raft.sim.command``; no simulation runs in this module.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import attrs

from harness.chaos.subcommand import UNKNOWN, Refused
from raft.errors import UsageError
from raft.sim import command
from raft.sim.campaign import Program
from raft.sim.explored import Explored
from raft.sim.exploring import Counterexample, Exploration, explored_by
from raft.sim.tape import Tape

OURS: Final = {
    "raft": ("raft.sim.campaign", "RAFT"),
    "controllers": ("harness.simulation.controllers.scene", "CONTROLLERS"),
    "brokers": ("harness.simulation.brokers.scene", "BROKERS"),
}
"""What has a simulation here -> module and name of its program; loaded when it is asked for."""
NAME: Final = "sim"
ABOUT: Final = "run a seeded simulation: of the library, of controllers, of brokers, or an exploration of yours"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="WHAT", help=f"{', '.join(OURS)}, FILE.py:FUNCTION or MODULE:FUNCTION")
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="OPTIONS",
                        help="seeds, events, jobs, --replay FILE, --json …: `chaos sim WHAT --help` lists them")


def run(options: argparse.Namespace) -> int:
    """Do it; the exit code. Raises ``Refused`` and ``OSError``."""
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
    """Raises ``UsageError`` for what is none of ours and no function."""
    name = f"chaos sim {what}"
    if what in OURS:
        module, program = OURS[what]
        found: Program = getattr(importlib.import_module(module), program)
        return attrs.evolve(found, command=name)
    return attrs.evolve(exploration_of(what).program(name), scene=SceneOf(what))


@attrs.frozen
class SceneOf:
    """Makes scenes of a function's exploration. Worker processes get it by name, and load the function themselves."""

    what: str

    def __call__(self, tape: Tape, profile: str) -> Explored:
        return Explored(exploration_of(self.what).subject, tape, profile)


@functools.cache
def exploration_of(what: str) -> Exploration:
    """What ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION`` explores. Raises ``UsageError``."""
    place, colon, name = what.rpartition(":")
    if not colon:
        raise UsageError(f"{what!r} is none of {', '.join(OURS)}, and no FILE.py:FUNCTION")
    module = _load(Path(place)) if place.endswith(".py") else _import(place)
    function = getattr(module, name, None)
    if not callable(function):
        there = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        raise UsageError(f"{place} has no function {name}; it has {', '.join(there) or 'none'}")
    found: Any = function
    return explored_by(found)


def _import(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} cannot be imported: {error}") from error


def _load(path: Path) -> ModuleType:
    """A file as a module, its folder first on the path: what lies beside it is what it imports."""
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
    """Play a file, and tell what comes out with its script."""
    exploration = attrs.evolve(exploration_of(what), replay=path, repeat=f"chaos sim {what} --replay {{path}}")
    try:
        report = exploration.run()
    except Counterexample as found:
        if as_json:
            command.tell("replay", file=str(path), failure=found.failure, message=str(found), script=found.script)
        else:
            command.say(str(found))
        return 1
    if as_json:
        command.tell("replay", file=str(path), failure=None, events=report.events)
    else:
        command.say(f"passed: {path} breaks nothing")
    return 0
