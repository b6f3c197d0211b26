"""Measures recovery times after each fault (RTO), by four definitions. Knows no file.

    refused   from the first send that failed or is unknown to the first acknowledged one after it
    elected   from the fault until an observer sees another master: process observer, f elected, key, value the epoch;
              without a key it is for all keys
    accepted  from the fault until a send that began after it is acknowledged
    consumed  from the fault until a client receives a message that was sent after it

Each is measured for each fault and key, up to the next fault. Losses (RPO) are reported by ``queues``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from harness.checkers.models import State, frozen
from harness.checkers.queues import NS_PER_MS, RECEIVES, SENDS
from harness.histories.events import INVOKE, NEMESIS, OK, Event

DEFINITIONS: Final = ("refused", "elected", "accepted", "consumed")
ELECTED: Final = "elected"
WRITES: Final = SENDS | {"write", "put", "set", "append", "cas", "add"}
READS: Final = RECEIVES | {"read", "get"}


@attrs.frozen
class Fault:
    """A fault in a history. ``end_ns`` is None for one that happened at once, or never ended."""

    name: str
    start_ns: int
    end_ns: int | None = None
    on: tuple[str, ...] = ()
    over: bool = True
    """False: it began, and never ended."""


@attrs.define
class Recovery:
    """Recovery times of one fault and key, in ms; None: not seen before the next fault."""

    fault: Fault
    key: Any
    refused: float | None = None
    elected: float | None = None
    accepted: float | None = None
    consumed: float | None = None
    tried: bool = False
    """True once a send was answered that began after the fault was over."""

    def as_json(self) -> dict[str, Any]:
        """The recovery as an object of ``verdict.json``."""
        return {"fault": self.fault.name, "on": list(self.fault.on), "at_ms": self.fault.start_ns / NS_PER_MS,
                "key": self.key} | {name: getattr(self, name) for name in DEFINITIONS}


def faults_of(events: Iterable[Event]) -> list[Fault]:
    """Faults from the nemesis' events in a history: f is the fault, value is start, end, or else for once."""
    open_now: dict[str, int] = {}
    found: list[Fault] = []
    for event in events:
        if event.process != NEMESIS:
            continue
        name, phase = _phase(event)
        if phase == "end":
            place = open_now.pop(name, None)
            if place is not None:
                found[place] = attrs.evolve(found[place], end_ns=event.time_ns, over=True)
        else:
            if phase == "start":
                open_now[name] = len(found)
            found.append(Fault(name, event.time_ns, over=phase != "start"))
    return found


def _phase(event: Event) -> tuple[str, str]:
    """(fault, start, end or once). Jepsen's own have :start and :stop, alone or with the fault's name."""
    if event.value in ("start", "end"):
        return event.f, event.value
    for word, phase in (("start", "start"), ("stop", "end")):
        if event.f == word or event.f.startswith(f"{word}-"):
            return event.f.removeprefix(word).removeprefix("-") or "fault", phase
    return event.f, "once"


def faults_from_json(rows: Iterable[dict[str, Any]]) -> list[Fault]:
    """Faults from the objects of ``nemesis.jsonl``.

    Raises ``KeyError`` for one without fault, phase or time, and ``TypeError`` where they are none.
    """
    open_now: dict[tuple[str, tuple[str, ...]], int] = {}
    found: list[Fault] = []
    for row in rows:
        if not isinstance(row, dict):
            raise TypeError(f"{row!r} is no object")
        if type(row["time_ns"]) is not int:
            raise TypeError(f"time_ns is a whole number, not {row['time_ns']!r}")
        on = tuple(row.get("on") or ())
        if row["phase"] == "end":
            place = open_now.pop((row["fault"], on), None)
            if place is not None:
                found[place] = attrs.evolve(found[place], end_ns=row["time_ns"], over=True)
            continue
        if row["phase"] == "start":
            open_now[row["fault"], on] = len(found)
        found.append(Fault(row["fault"], row["time_ns"], None, on, over=row["phase"] != "start"))
    return found


@attrs.define
class _Watch:
    """Measures one key after one fault."""

    recovery: Recovery
    refused_ns: int | None = None


def recoveries(events: Iterable[Event], faults: Sequence[Fault]) -> list[Recovery]:
    """Recovery times for each fault and key with sends after it, in the order of faults; ``events`` are in order."""
    starts = sorted(faults, key=lambda fault: fault.start_ns)
    found: list[Recovery] = []
    watches: dict[State, _Watch] = {}
    of_all: Event | None = None
    """The first election after the fault that is of every key."""
    current = -1
    asked: dict[Any, Event] = {}
    sent: dict[State, State] = {}
    """Value sent after the fault -> its key, since reads need not name the key."""
    for event in events:
        while current + 1 < len(starts) and starts[current + 1].start_ns <= event.time_ns:
            current += 1
            watches, sent, of_all = {}, {}, None
        if current < 0 or event.process == NEMESIS:
            continue
        if event.type == INVOKE:
            asked[event.process] = event
            if event.f in WRITES:
                sent[frozen(_body(event.value))] = frozen(event.key)
            continue
        begun = asked.pop(event.process, event)
        if begun.f in READS:
            if event.type == OK:
                _consumed(watches, sent, event)
        elif event.f == ELECTED and event.key is None:
            for each in watches.values():
                _see(each, begun, event)
            of_all = of_all or event
        elif begun.f in WRITES or event.f == ELECTED:
            watch = watches.get(frozen(begun.key))
            if watch is None:
                watch = watches[frozen(begun.key)] = _Watch(Recovery(starts[current], begun.key))
                found.append(watch.recovery)
                if of_all is not None:
                    _see(watch, of_all, of_all)
            _see(watch, begun, event)
    return found


def _consumed(watches: dict[State, _Watch], sent: dict[State, State], event: Event) -> None:
    for value in event.value if isinstance(event.value, list) else [event.value]:
        body = frozen(_body(value))
        watch = watches.get(sent[body]) if body in sent else None
        if watch is not None and watch.recovery.consumed is None:
            watch.recovery.consumed = (event.time_ns - watch.recovery.fault.start_ns) / NS_PER_MS


def _see(watch: _Watch, begun: Event, event: Event) -> None:
    recovery, start_ns = watch.recovery, watch.recovery.fault.start_ns
    assert event.time_ns >= start_ns, "a fault sees what comes after it"
    since_ms = (event.time_ns - start_ns) / NS_PER_MS
    over_ns = start_ns if recovery.fault.end_ns is None else recovery.fault.end_ns
    recovery.tried |= recovery.fault.over and event.f != ELECTED and begun.time_ns >= over_ns
    if event.f == ELECTED:
        if recovery.elected is None:
            recovery.elected = since_ms
    elif event.type == OK:
        if recovery.accepted is None and begun.time_ns >= start_ns:
            recovery.accepted = since_ms
        if watch.refused_ns is not None and recovery.refused is None:
            recovery.refused = (event.time_ns - watch.refused_ns) / NS_PER_MS
    elif watch.refused_ns is None:
        watch.refused_ns = max(begun.time_ns, start_ns)


def _body(value: Any) -> Any:
    return value["body"] if isinstance(value, dict) and "body" in value else value


def unserved(found: Iterable[Recovery]) -> list[Recovery]:
    """Return keys that accepted nothing after their last fault although clients tried, by the recovery from it.

    Only the last fault counts: damage by one fault may heal only after the next one.
    """
    last = {frozen(each.key): each for each in found if each.tried or each.accepted is not None}
    return [each for each in last.values() if each.accepted is None]


@attrs.frozen
class Outage:
    """Time in which a key accepted nothing, from the first fault after its last acceptance, over any more faults."""

    fault: Fault
    key: Any
    ms: float
    over: bool
    """True: it accepted something at the end; False: requests failed to the end."""
    later: int
    """Faults that began meanwhile."""


def outages(events: Iterable[Event], faults: Sequence[Fault]) -> list[Outage]:
    """Outages of each key that clients wrote to, in the order of their ends. ``events`` are in the order of time."""
    starts = sorted(faults, key=lambda fault: fault.start_ns)
    waiting: dict[State, list[Fault]] = {}
    """Key -> the faults since whose begin no send was accepted."""
    in_vain: dict[State, Outage] = {}
    found: list[Outage] = []
    asked: dict[Any, Event] = {}
    begun_faults = 0
    for event in events:
        while begun_faults < len(starts) and starts[begun_faults].start_ns <= event.time_ns:
            for each in waiting.values():
                each.append(starts[begun_faults])
            begun_faults += 1
        if event.process == NEMESIS:
            continue
        if event.type == INVOKE and event.f in WRITES:
            asked[event.process] = event
            waiting.setdefault(frozen(event.key), starts[:begun_faults][-1:])
        elif event.type != INVOKE and (begun := asked.pop(event.process, None)) is not None:
            key = frozen(begun.key)
            over = [each for each in waiting[key] if each.start_ns <= begun.time_ns]
            if not over:
                continue
            outage = Outage(over[0], begun.key, (event.time_ns - over[0].start_ns) / NS_PER_MS, event.type == OK,
                            len(waiting[key]) - 1)
            in_vain[key] = outage
            if outage.over:
                found.append(outage)
                del in_vain[key], waiting[key][:len(over)]
    return [*found, *in_vain.values()]


@attrs.frozen
class Figures:
    """Percentiles of one definition over many recoveries, in ms. ``missing``: how often it was not seen."""

    seen: int
    missing: int
    p50: float
    p99: float
    most: float


def figures(of: Iterable[Recovery], definition: str) -> Figures | None:
    """Percentiles of one definition; None if it was never seen."""
    values = [getattr(each, definition) for each in of]
    found = sorted(value for value in values if value is not None)
    if not found:
        return None
    return Figures(len(found), len(values) - len(found), percentile(found, 50), percentile(found, 99), found[-1])


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The percentile of sorted values, by nearest rank."""
    assert ordered and 0 <= percent <= 100
    return ordered[max(math.ceil(percent / 100 * len(ordered)) - 1, 0)]
