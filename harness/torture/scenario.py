"""Reads a scenario's file: a target, a workload, faults, and how the history is judged. It knows no process.

    about = "Everything is killed at once, again and again."
    target = "regkv"              # of the library, or a path beside this file
    seconds = 30                  # of load and faults; then all is healed, and the last reads follow

    [workload]
    name = "register"
    clients = 5
    rate = 50.0                   # operations a second, of all clients

    [[faults]]
    fault = "kill"
    nodes = "all"
    every_s = [3.0, 6.0]          # or at_s = [5.0, 9.0]
    hold_s = [1.0, 3.0]

Another kind of file names scenarios that are played at once, each against a target of its own:

    about = "Two stores are tortured side by side."
    seconds = 30

    [together]
    one = "kill-store"            # a group's name, and a scenario of the library, or a path beside this file
    other = "mine.toml"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from harness.targets.fields import Fields, FormatError
from harness.targets.target import table
from harness.torture.selecting import Selector, selector

CLIENTS_MAX: Final = 200
SECONDS_MIN: Final = 0.1
SECONDS_MAX: Final = 1e7
"""Longest time that a run may last, a fault may hold, and the next one may let wait."""
_TOGETHER: Final = "together"
_GROUP: Final = re.compile(r"[a-z][a-z0-9-]*")
_CHECKS: Final = {"ordered": bool, "no_duplicates": bool, "drained": bool, "delayed": bool,
                  "early_ms": int, "late_ms": int, "accepted_within_ms": int,
                  "model": str, "memory": str, "steps_max": int, "not_promised": list}

Range = tuple[float, float]


@attrs.frozen
class ClientLoad:
    """The number of clients, their workload, and how often they ask."""

    name: str
    clients: int
    rate: float
    """Operations a second, of all clients."""
    keys: int
    timeout_ms: int
    args: Mapping[str, Any]
    """Arguments of the workload itself."""


@attrs.frozen
class FaultPlan:
    """One kind of fault: on whom, when, for how long."""

    fault: str
    nodes: Selector
    every_s: Range | None
    """Seconds from one beginning to the next; None: ``at_s`` says when."""
    at_s: tuple[float, ...]
    hold_s: Range
    args: Mapping[str, Any]
    beside: bool
    """Whether other faults may fall on the same nodes meanwhile."""


@attrs.frozen
class Check:
    """Options of ``chaos check``; empty: whatever fits the history."""

    checkers: tuple[str, ...]
    options: Mapping[str, Any]


@attrs.frozen
class TortureScenario:
    """The content of one scenario's file, checked."""

    name: str
    about: str
    target: str
    options: Mapping[str, str]
    """Options of the target by name."""
    seconds: float
    seed: int | None
    load: ClientLoad
    check: Check
    faults: tuple[FaultPlan, ...]


@attrs.frozen
class TogetherScenario:
    """Scenarios that are played at once, each against a target of its own, by the names of their groups."""

    name: str
    about: str
    seconds: float
    """It counts for all of them."""
    seed: int | None
    groups: Mapping[str, str]


def is_together(text: str) -> bool:
    """Return whether a file names scenarios that are played at once. Raises ``FormatError``."""
    return _TOGETHER in table(text)


def parse_together(text: str, name: str) -> TogetherScenario:
    """Reads a file that names scenarios in ``[together]``. Raises ``FormatError``."""
    fields = Fields("", table(text))
    inner = fields.table(_TOGETHER)
    groups = {} if inner is None else {each: inner.text(each) for each in inner.values}
    if not groups:
        raise FormatError(f"[{_TOGETHER}] is empty: group = \"scenario\" is wanted")
    for each in groups:
        if not _GROUP.fullmatch(each):
            raise FormatError(f"[{_TOGETHER}] {each}: a group's name is small letters, digits and -")
    made = TogetherScenario(
        name, fields.text("about"), fields.number("seconds", least=SECONDS_MIN), _seed(fields), groups)
    fields.done()
    return made


def parse(text: str, name: str) -> TortureScenario:
    """Reads a scenario's file. Raises ``FormatError``."""
    fields = Fields("", table(text))
    options = fields.table("options")
    load, check = fields.table("workload"), fields.table("check")
    if load is None:
        raise FormatError("[workload] is missing: its name says what clients ask for")
    made = TortureScenario(
        name, fields.text("about"), fields.text("target"),
        {} if options is None else {each: _option(options, each) for each in options.values},
        fields.number("seconds", least=SECONDS_MIN), _seed(fields), _load(load), _check(check),
        tuple(_fault(each) for each in fields.tables("faults")))
    fields.done()
    return made


def _seed(fields: Fields) -> int | None:
    seed: Any = fields.any("seed")
    if seed is not None and not (isinstance(seed, int) and not isinstance(seed, bool)):
        raise FormatError(f"seed is {seed!r}; a whole number is wanted")
    return seed


def _option(fields: Fields, name: str) -> str:
    found = fields.any(name)
    return str(found).lower() if isinstance(found, bool) else str(found)


def _load(fields: Fields) -> ClientLoad:
    made = ClientLoad(
        fields.text("name"), fields.whole("clients", 5, least=1), fields.number("rate", 50.0, least=0.001),
        fields.whole("keys", 3, least=1), fields.whole("timeout_ms", 2_000, least=1), fields.rest())
    if made.clients > CLIENTS_MAX:
        raise FormatError(f"{fields.at('clients')} is {made.clients}; at most {CLIENTS_MAX}")
    return made


def _check(fields: Fields | None) -> Check:
    if fields is None:
        return Check((), {})
    checkers, options = fields.texts("checkers", ()), fields.table("options")
    fields.done()
    found = {} if options is None else dict(options.values)
    for name, value in found.items():
        if name not in _CHECKS or type(value) is not _CHECKS[name]:
            raise FormatError(f"[check.options] {name} = {value!r}; known are "
                              + ", ".join(f"{each} ({kind.__name__})" for each, kind in _CHECKS.items()))
    return Check(checkers, found)


def _fault(fields: Fields) -> FaultPlan:
    name, nodes = fields.text("fault"), fields.any("nodes", "one")
    every, moments = fields.any("every_s"), fields.any("at_s")
    if (every is None) == (moments is None):
        raise FormatError(f"[{fields.place}] has either every_s or at_s")
    made = FaultPlan(
        name, selector(nodes, fields.at("nodes")), None if every is None else _range(every, fields.at("every_s"), 0.05),
        () if moments is None else _moments(moments, fields.at("at_s")),
        _range(fields.any("hold_s", [1.0, 3.0]), fields.at("hold_s"), 0.0), _args(fields),
        fields.flag("beside", False))
    fields.done()
    return made


def _args(fields: Fields) -> dict[str, Any]:
    inner = fields.table("args")
    return {} if inner is None else dict(inner.values)


def _range(value: Any, place: str, least: float) -> Range:
    both = [value, value] if _is_number(value) else value
    if not (isinstance(both, list) and len(both) == 2 and all(map(_is_number, both))
            and least <= both[0] <= both[1] <= SECONDS_MAX):
        raise FormatError(f"{place} is {value!r}; a number of seconds is wanted, or [from, to], at least {least:g} and "
                          f"at most {SECONDS_MAX:g}")
    return float(both[0]), float(both[1])


def _moments(value: Any, place: str) -> tuple[float, ...]:
    found = [value] if _is_number(value) else value
    if not isinstance(found, list) or not all(_is_number(each) and each >= 0 for each in found):
        raise FormatError(f"{place} is {value!r}; seconds since the beginning are wanted, one or a list")
    return tuple(sorted(map(float, found)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
