"""Finds the scenario, target and schedule of a run by name. Reads files; starts nothing.

A scenario or target is one of the library, or a path. Paths in a scenario begin at its folder.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

import attrs

from harness.chaos import check
from harness.chaos.subcommand import Refused
from harness.checkers import chosen as checkers
from harness.nemesis import faults as registry
from harness.nemesis.fault import NODES, PORT, Argument, BadArguments
from harness.nemesis.network import CLIENTS
from harness.targets import target as targets
from harness.targets.fields import FormatError, nearest
from harness.targets.target import NODES_MAX, Target
from harness.torture import scenario as scenarios
from harness.torture import selecting
from harness.torture.scenario import Check, ClientLoad, FaultPlan, TogetherScenario, TortureScenario
from harness.torture.schedule import Schedule, Step, draw
from harness.workloads import chosen

SCENARIOS: Final = "harness.scenarios.library"
TARGETS: Final = "harness.targets.library"


@attrs.frozen
class RunRequest:
    """A scenario with its target. ``here``: the folder of the target's file; ``beside``: of the scenario's."""

    scenario: TortureScenario
    scenario_text: str
    target: Target
    target_text: str
    here: Path
    beside: Path

    @property
    def kinds(self) -> dict[str, str]:
        """Name of a node -> its kind."""
        return {node: self.target.kind_of(node).name for node in self.target.nodes}

    def check_fault(self, where: str, plan: FaultPlan | Step) -> None:
        """Check a fault's name, arguments and nodes. Raises ``Refused``."""
        try:
            kind = registry.fault(plan.fault)
            args = kind.checked(plan.args)
        except (registry.UnknownFault, BadArguments) as error:
            raise Refused(f"{where} {error}") from None
        if words := selecting.unknown(plan.nodes, self.kinds, bool(self.target.roles)):
            raise Refused(f"{where} nodes: {words}")
        for name, argument in kind.arguments.items():
            if args[name] and (words := self._misnamed(argument, args[name])):
                raise Refused(f"{where} {plan.fault}'s {name}: {words}")

    def _misnamed(self, argument: Argument, value: Any) -> str:
        """A sentence on an argument that names what the target has not; empty: nothing is wrong."""
        if argument.names == PORT:
            ports = {port for kind in self.target.kinds.values() for port in kind.ports}
            return "" if value in ports else f"no node has a port {value}{nearest(str(value), ports)}"
        if argument.names != NODES or value == CLIENTS:
            return ""
        try:
            which = selecting.selector(value if isinstance(value, str) else [*value], "it")
        except FormatError as error:
            return str(error)
        names = tuple(name for name in which.names if name != CLIENTS)
        return selecting.unknown(attrs.evolve(which, names=names), self.kinds, bool(self.target.roles))

    def drawn(self, seed: int) -> Schedule:
        """Draw the schedule of this seed. Raises ``Refused``."""
        try:
            return draw(self.scenario, self.kinds, seed)
        except FormatError as error:
            raise Refused(f"{self.scenario.name}: {error}") from None

    def lasting(self, seconds: float) -> RunRequest:
        """The same request with another duration."""
        return attrs.evolve(self, scenario=attrs.evolve(self.scenario, seconds=seconds))


@attrs.frozen
class TogetherRequest:
    """Scenarios of several groups that are played at once. ``groups``: name of the group -> its request."""

    scenario: TogetherScenario
    text: str
    groups: Mapping[str, RunRequest]

    @classmethod
    def of(cls, text: str, name: str, groups: Mapping[str, RunRequest]) -> TogetherRequest:
        """The request of a scenario's text. Raises ``Refused``."""
        try:
            return cls(scenarios.parse_together(text, name), text, groups)
        except FormatError as error:
            raise Refused(f"{name}: {error}") from None

    def drawn(self, seed: int) -> dict[str, Schedule]:
        """Draw each group's schedule: the first with this seed, the next one with the next. Raises ``Refused``."""
        return {name: request.lasting(self.scenario.seconds).drawn(seed + number)
                for number, (name, request) in enumerate(self.groups.items())}

    def lasting(self, seconds: float) -> TogetherRequest:
        """The same request with another duration."""
        return attrs.evolve(self, scenario=attrs.evolve(self.scenario, seconds=seconds))


def library(package: str) -> dict[str, Path]:
    """Name -> file, for all files of a library."""
    folder = Path(str(resources.files(package)))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def asked_for(
    what: str, target: str | None = None, options: Mapping[str, str] | None = None,
) -> RunRequest | TogetherRequest:
    """Find the scenario ``what``, of one target or of several groups. Raises ``Refused``, with the file."""
    path = _found(what, library(SCENARIOS), Path.cwd(), "scenario")
    text = _text(path)
    try:
        if not scenarios.is_together(text):
            return asked(what, target, options)
        found = scenarios.parse_together(text, path.stem)
    except FormatError as error:
        raise Refused(f"{path}: {error}") from None
    if target is not None or options:
        raise Refused(f"{path.stem} has groups: --target and --option are for the scenario of one, as "
                      f"{next(iter(found.groups.values()))}")
    groups = {name: asked(_beside(path, each)) for name, each in found.groups.items()}
    nodes = sum(len(each.target.nodes) for each in groups.values())
    if nodes > NODES_MAX:
        raise Refused(f"{path}: {nodes} nodes in all groups; at most {NODES_MAX}")
    return TogetherRequest(found, text, groups)


def _text(path: Path) -> str:
    """The text of a file. Raises ``Refused`` if it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is no text: no UTF-8 at byte {error.start}") from None


def _beside(path: Path, name: str) -> str:
    """A scenario that another one names: one of the library, or a path from its folder."""
    return name if name in library(SCENARIOS) else str(path.parent / name)


def asked(what: str, target: str | None = None, options: Mapping[str, str] | None = None) -> RunRequest:
    """Find the scenario ``what``, with another target if one is given. Raises ``Refused``, with the file."""
    path = _found(what, library(SCENARIOS), Path.cwd(), "scenario")
    text = _text(path)
    try:
        if scenarios.is_together(text):
            raise Refused(f"{path} is made of groups, and cannot be one")
        scenario = scenarios.parse(text, path.stem)
    except FormatError as error:
        raise Refused(f"{path}: {error}") from None
    at = _found(target or scenario.target, library(TARGETS), Path.cwd() if target else path.parent, "target")
    return made(scenario, text, at, _text(at), at.parent, path.parent, options or {})


def made(
    scenario: TortureScenario, text: str, at: Path, target_text: str, here: Path, beside: Path,
    options: Mapping[str, str],
) -> RunRequest:
    """Make and check a request from the texts of its files, and from the folders of both. Raises ``Refused``."""
    scenario = _in_folder(scenario, beside)
    try:
        target = targets.parse(target_text, at.stem, {**scenario.options, **options})
    except FormatError as error:
        raise Refused(f"{at}: {error}") from None
    for kind in target.kinds.values():
        if kind.stop not in signal.Signals.__members__:
            raise Refused(f"{at}: [nodes.{kind.name}] stop is {kind.stop!r}, which is no signal here"
                          f"{nearest(kind.stop, signal.Signals.__members__)}")
    found = RunRequest(scenario, text, target, target_text, here, beside)
    try:
        chosen.check_args(scenario.load.name, scenario.load.args, attrs.fields_dict(ClientLoad).keys() - {"args"})
        check.require(judging(scenario, Path()))
    except (FormatError, checkers.NotChosen) as error:
        raise Refused(f"{scenario.name}: {error}") from None
    for number, plan in enumerate(scenario.faults, 1):
        found.check_fault(f"{scenario.name}: [faults {number}]", plan)
    return found


def _in_folder(scenario: TortureScenario, folder: Path) -> TortureScenario:
    """The same scenario, whose ``FILE.py:NAME``, paths from this folder, are found from any."""
    options = dict(scenario.check.options)
    if "model" in options:
        options["model"] = checkers.beside(options["model"], folder)
    return attrs.evolve(
        scenario, load=attrs.evolve(scenario.load, name=checkers.beside(scenario.load.name, folder)),
        check=Check(tuple(checkers.beside(each, folder) for each in scenario.check.checkers), options))


def judging(scenario: TortureScenario, path: Path) -> list[str]:
    """The command line of ``chaos check`` that judges a run of the scenario in that directory: a workload's ``checks``
    are the default of the scenario's. Raises ``FormatError``."""
    line: list[str] = [str(path)]
    for name in scenario.check.checkers:
        line += ["--checker", name]
    usual = getattr(chosen.find(scenario.load.name), "checks", {})
    for name, value in {**usual, **scenario.check.options}.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            line.append(option)
        elif isinstance(value, list):
            for each in value:
                line += [option, str(each)]
        elif value is not False:
            line += [option, str(value)]
    return line


def _found(name: str, there: Mapping[str, Path], folder: Path, kind: str) -> Path:
    if name in there:
        return there[name]
    path = Path(name).expanduser()
    path = path if path.is_absolute() else folder / path
    if path.is_file():
        return path.resolve()
    raise Refused(f"no {kind} is called {name}, and there is no file {path}{nearest(name, there)}")
