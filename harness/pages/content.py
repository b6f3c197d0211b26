"""The content of a run's page, as one value that becomes JSON: operations in columns, faults, gaps, promises.

Columns keep a page of 100,000 events below 5 MB. Times are whole microseconds since the run's begin. Knows no file and
no markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from harness.checkers.recovery import DEFINITIONS, Fault, Recovery, figures
from harness.histories.events import FAIL, INFO, OK, Event, Operation, Process, short

NS_PER_US: Final = 1_000
VALUE_CHARS_MAX: Final = 60
VALUES_MAX: Final = 100_000
"""Most operations whose values are put on the page."""
GAPS_SHOWN: Final = 24
MESSAGES_MAX: Final = 20_000
_OPEN_NS: Final = 1 << 63
"""The end of what never ended."""
OUTCOMES: Final = {OK: 0, FAIL: 1, INFO: 2}
"""As numbers, in the column."""


@attrs.frozen
class Arrow:
    """A message in a trace, from one server to another. ``received_ns`` is None for one that was lost."""

    sender: str
    receiver: str
    sent_ns: int
    received_ns: int | None
    what: str = ""


@attrs.frozen
class WholeRun:
    """All that is known of a run. ``run`` and ``verdict`` are the objects of its files; ``shrunk`` is a script."""

    name: str
    run: Mapping[str, Any]
    verdict: Mapping[str, Any]
    operations: Sequence[Operation]
    faults: Sequence[Fault] = ()
    recoveries: Sequence[Recovery] = ()
    messages: Sequence[Arrow] = ()
    shrunk: str = ""
    groups: Sequence[str] = ()
    """For a run of groups at once: their names; names of processes and nodes begin with one."""


@attrs.frozen
class Seen:
    """Observations of one group's clients, and what was done to the group."""

    operations: Sequence[Operation]
    faults: Sequence[Fault]
    recoveries: Sequence[Recovery]


def merged(name: str, run: Mapping[str, Any], verdict: Mapping[str, Any], groups: Mapping[str, Seen]) -> WholeRun:
    """A run of groups at once: clients, objects, nodes and recovery times say of which group they are."""
    operations: list[Operation] = []
    faults: list[Fault] = []
    recovered: list[Recovery] = []
    for group, seen in groups.items():
        operations += [Operation(_of(group, each.invoked), each.ended and _of(group, each.ended))
                       for each in seen.operations]
        faults += [attrs.evolve(each, on=tuple(f"{group} {node}" for node in each.on)) for each in seen.faults]
        recovered += [attrs.evolve(each, fault=attrs.evolve(each.fault, name=f"{group}: {each.fault.name}"))
                      for each in seen.recoveries]
    return WholeRun(name, run, verdict, sorted(operations, key=lambda each: each.invoked.time_ns),
                    sorted(faults, key=lambda fault: fault.start_ns), recovered, groups=[*groups])


def _of(group: str, event: Event) -> Event:
    return event._replace(process=f"{group} {event.process}", key=None if event.key is None else f"{group} {event.key}")


def content(told: WholeRun) -> dict[str, Any]:
    """The value that the page shows."""
    end_ns = max((_end_ns(each) for each in told.operations), default=0)
    end_ns = max([end_ns, *(fault.end_ns or fault.start_ns for fault in told.faults)])
    lanes, names = packed(told.operations, told.groups)
    assert len(lanes) == len(told.operations)
    functions: dict[str, int] = {}
    keys: dict[str, int] = {}
    counts = [0, 0, 0]
    columns: dict[str, list[Any]] = {
        name: [] for name in ("start", "took", "lane", "f", "key", "outcome", "line", "value")}
    for operation, lane in zip(told.operations, lanes, strict=True):
        asked, ended = operation
        outcome = OUTCOMES[ended.type] if ended is not None else OUTCOMES[INFO]
        counts[outcome] += 1
        columns["start"].append(asked.time_ns // NS_PER_US)
        columns["took"].append((ended.time_ns - asked.time_ns) // NS_PER_US if ended is not None else -1)
        columns["lane"].append(lane)
        columns["f"].append(functions.setdefault(asked.f, len(functions)))
        columns["key"].append(-1 if asked.key is None else keys.setdefault(short(asked.key), len(keys)))
        columns["outcome"].append(outcome)
        columns["line"].append((ended or asked).line or (ended or asked).index)
        if len(told.operations) <= VALUES_MAX:
            columns["value"].append(_value(operation))
    failing = {str(each.get("failing", "")) for each in _checkers(told.verdict).values()}
    return {
        "name": told.name, "run": dict(told.run), "valid": told.verdict.get("valid", "unknown"),
        "end": end_ns // NS_PER_US, "counts": counts, "functions": [*functions], "keys": [*keys], "lanes": names,
        "operations": columns, "faults": [_fault(each, end_ns) for each in told.faults],
        "promises": _promises(told.verdict), "gaps": gaps(told.operations, lanes, names, end_ns),
        "recovery": _recovery(told.recoveries), "messages": [_message(each) for each in told.messages[:MESSAGES_MAX]],
        "failing": next((place for place, each in enumerate(told.operations)
                         if failing - {""} and each.words() in failing), -1),
        "shrunk": told.shrunk, "groups": [*told.groups]}


def _checkers(verdict: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = verdict.get("checkers") or {}
    return found


def _end_ns(operation: Operation) -> int:
    return (operation.ended or operation.invoked).time_ns


def _value(operation: Operation) -> str:
    asked, ended = operation
    words = "" if asked.value is None else short(asked.value, VALUE_CHARS_MAX)
    if operation.answer is not None:
        words += f" → {short(operation.answer, VALUE_CHARS_MAX)}"
    return words if ended is None or ended.error is None else f"{words} ({short(ended.error, VALUE_CHARS_MAX)})"


def packed(found: Sequence[Operation], groups: Sequence[str] = ()) -> tuple[list[int], list[str]]:
    """The lane of each operation, and the lanes' names: processes of a group that follow each other share one.

    Lanes of the same group stand together.
    """
    spans: dict[Process, list[int]] = {}
    for operation in found:
        span = spans.setdefault(operation.invoked.process, [operation.invoked.time_ns, 0])
        span[1] = max(span[1], _OPEN_NS if operation.ended is None else operation.ended.time_ns)
    lane_of: dict[Process, int] = {}
    names: list[str] = []
    ends: list[int] = []
    for group in groups or [""]:
        first = len(ends)
        ours = [item for item in spans.items() if not group or str(item[0]).startswith(f"{group} ")]
        for process, (begin, end) in sorted(ours, key=lambda item: (item[1][0], str(item[0]))):
            lane = next((lane for lane in range(first, len(ends)) if ends[lane] <= begin), len(ends))
            if lane == len(ends):
                ends.append(end)
                names.append(str(process))
            else:
                ends[lane] = end
                names[lane] = names[lane] if "…" in names[lane] else f"{names[lane]} …"
            lane_of[process] = lane
    assert len(ends) == len(names)
    return [lane_of[each.invoked.process] for each in found], names


def gaps(found: Sequence[Operation], lanes: Sequence[int], names: Sequence[str], end_ns: int) -> list[dict[str, Any]]:
    """Return each lane's longest time without an answer ``ok``, the longest first."""
    last = [0] * len(names)
    worst = [(0, 0, 0)] * len(names)
    done = sorted((each.ended.time_ns, lane) for each, lane in zip(found, lanes, strict=True)
                  if each.ended is not None and each.ended.type == OK)
    for at, lane in [*done, *((end_ns, lane) for lane in range(len(names)))]:
        worst[lane] = max(worst[lane], (at - last[lane], last[lane], at))
        last[lane] = at
    rows = [{"lane": names[lane], "took": took // NS_PER_US, "from": begin // NS_PER_US}
            for lane, (took, begin, _) in enumerate(worst)]
    return sorted(rows, key=lambda row: -int(str(row["took"])))[:GAPS_SHOWN]


def _fault(fault: Fault, end_ns: int) -> dict[str, Any]:
    end = fault.end_ns if fault.end_ns is not None else fault.start_ns
    return {"name": fault.name, "on": list(fault.on), "start": fault.start_ns // NS_PER_US,
            "end": min(end, end_ns) // NS_PER_US}


def _promises(verdict: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"checker": name, "valid": each.get("valid", "unknown"), "why": each.get("why", ""),
             "asked": each.get("asked") or {}, "counts": each.get("counts") or {}, "broken": each.get("broken") or [],
             "prefix": each.get("prefix", 0), "states": each.get("states") or [], "failing": each.get("failing", "")}
            for name, each in _checkers(verdict).items()]


def _recovery(recoveries: Sequence[Recovery]) -> list[dict[str, Any]]:
    rows = []
    for name in dict.fromkeys(each.fault.name for each in recoveries):
        alike = [each for each in recoveries if each.fault.name == name]
        for definition in DEFINITIONS:
            found = figures(alike, definition)
            if found is not None:
                rows.append({"fault": name, "definition": definition, "p50": found.p50, "p99": found.p99,
                             "most": found.most, "seen": found.seen, "missing": found.missing})
    return rows


def _message(message: Arrow) -> list[Any]:
    received = None if message.received_ns is None else message.received_ns // NS_PER_US
    return [message.sender, message.receiver, message.sent_ns // NS_PER_US, received, message.what]


def messages_from_json(rows: Iterable[Mapping[str, Any]]) -> list[Arrow]:
    """Return arrows of the objects in ``messages.jsonl``. Raises ``KeyError`` for one without ends or time."""
    return [Arrow(str(row["from"]), str(row["to"]), row["sent_ns"], row.get("received_ns"), str(row.get("what", "")))
            for row in rows]
