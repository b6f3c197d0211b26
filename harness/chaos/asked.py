"""Finds the scenario, target and schedule of a run by name. Reads files; starts nothing.

A scenario or target is one of the library, or a path. Paths in a scenario begin at its folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Final

import attrs

from harness.chaos.subcommand import Refused
from harness.nemesis import faults as registry
from harness.nemesis.fault import BadArguments
from harness.targets import target as targets
from harness.targets.fields import FormatError, nearest
from harness.targets.target import NODES_MAX, Target
from harness.torture import scenario as scenarios
from harness.torture import selecting
from harness.torture.scenario import TogetherScenario, TortureScenario
from harness.torture.schedule import Schedule, draw
from harness.workloads import chosen

SCENARIOS: Final = "harness.scenarios.library"
TARGETS: Final = "harness.targets.library"


@attrs.frozen
class RunRequest:
    """A scenario with its target. ``here``: the folder of the target's file."""

    scenario: TortureScenario
    scenario_text: str
    target: Target
    target_text: str
    here: Path

    @property
    def kinds(self) -> dict[str, str]:
        """Name of a node -> its kind."""
        return {node: self.target.kind_of(node).name for node in self.target.nodes}

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
    text = path.read_text(encoding="utf-8")
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


def _beside(path: Path, name: str) -> str:
    """A scenario that another one names: one of the library, or a path from its folder."""
    return name if name in library(SCENARIOS) else str(path.parent / name)


def asked(what: str, target: str | None = None, options: Mapping[str, str] | None = None) -> RunRequest:
    """Find the scenario ``what``, with another target if one is given. Raises ``Refused``, with the file."""
    path = _found(what, library(SCENARIOS), Path.cwd(), "scenario")
    text = path.read_text(encoding="utf-8")
    try:
        if scenarios.is_together(text):
            raise Refused(f"{path} is made of groups, and cannot be one")
        scenario = scenarios.parse(text, path.stem)
    except FormatError as error:
        raise Refused(f"{path}: {error}") from None
    at = _found(target or scenario.target, library(TARGETS), Path.cwd() if target else path.parent, "target")
    return made(scenario, text, at, at.read_text(encoding="utf-8"), at.parent, options or {})


def made(
    scenario: TortureScenario, text: str, at: Path, target_text: str, here: Path, options: Mapping[str, str],
) -> RunRequest:
    """Make and check a request from the texts of its files. Raises ``Refused``."""
    try:
        target = targets.parse(target_text, at.stem, {**scenario.options, **options})
    except FormatError as error:
        raise Refused(f"{at}: {error}") from None
    found = RunRequest(scenario, text, target, target_text, here)
    try:
        chosen.find(scenario.load.name)
    except FormatError as error:
        raise Refused(f"{scenario.name}: {error}") from None
    for number, plan in enumerate(scenario.faults, 1):
        try:
            registry.fault(plan.fault).checked(plan.args)
        except (registry.UnknownFault, BadArguments) as error:
            raise Refused(f"{scenario.name}: [faults {number}] {error}") from None
        words = selecting.unknown(plan.nodes, found.kinds, bool(target.roles))
        if words:
            raise Refused(f"{scenario.name}: [faults {number}] nodes: {words}")
    return found


def _found(name: str, there: Mapping[str, Path], folder: Path, kind: str) -> Path:
    if name in there:
        return there[name]
    path = Path(name).expanduser()
    path = path if path.is_absolute() else folder / path
    if path.is_file():
        return path.resolve()
    raise Refused(f"no {kind} is called {name}, and there is no file {path}{nearest(name, there)}")
