"""Reads Jepsen's histories: EDN maps, one a line or in one vector, and its tab-separated text; writes the maps.

    {:index 0, :type :invoke, :process 0, :f :write, :value 3, :time 1200}
    0	:invoke	:write	3                                  also with a logger's words before it

An independent key is in the value, as [key value], or in :key. The file's order is the order of events: a :time before
that of the event above, as from two threads, is raised to it. Knows no file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from harness.histories.edn import Keyword, forms, text_of
from harness.histories.events import APART, INFO, INVOKE, NEMESIS, OK, TYPES, Event, HistoryError, short

SAMPLE: Final = 2_000
"""Events that are read ahead, to recognise [key value]."""
_READS: Final = frozenset({"read", "get", "r"})
_LINE: Final = re.compile(r"(?:.*?\s)?:?(nemesis|\d+)\s+:(invoke|ok|fail|info)\s+:([^\s,]+)(?:\s+(.*))?", re.DOTALL)


def parse(lines: Iterable[str], keyed: bool | None = None) -> Iterator[Event]:
    """Read EDN. ``keyed``: values are [key value]; None: judged by the first reads. Raises ``HistoryError``."""
    return _keyed(_forward(map(_event, itertools.count(), forms(lines, unwrap=True))), keyed)


def parse_text(lines: Iterable[str], keyed: bool | None = None) -> Iterator[Event]:
    """Read ``history.txt``, or a log with its lines. Raises ``HistoryError``."""
    return _keyed(_of_text(lines), keyed)


def is_text(line: str) -> bool:
    """Return whether a line is one of Jepsen's text."""
    return _LINE.fullmatch(line) is not None


def _event(number: int, form: tuple[int, Any]) -> Event:
    line, found = form
    if not isinstance(found, dict):
        raise HistoryError(line, f"an operation of Jepsen is a map; this is {short(found)}")
    missing = [f":{name}" for name in ("type", "process", "f") if name not in found]
    if missing:
        raise HistoryError(line, f"an operation of Jepsen has {', '.join(missing)}; this is {short(found)}")
    kind, process, error = str(found["type"]), found["process"], found.get("error", found.get("exception"))
    if kind not in TYPES:
        raise HistoryError(line, f":type is :invoke, :ok, :fail or :info, not {short(kind)}")
    if isinstance(process, bool) or not isinstance(process, int | str):
        raise HistoryError(line, f":process is a number or :nemesis, not {short(process)}")
    value, index, time_ns = found.get("value"), found.get("index", number), found.get("time", number)
    if type(index) is not int or type(time_ns) is not int:
        raise HistoryError(line, f":index and :time are whole numbers; here {short(index)} and {short(time_ns)}")
    return _plain(Event(index, kind, process, str(found["f"]), found.get("key"), value, time_ns, error, line))


def _forward(events: Iterable[Event]) -> Iterator[Event]:
    latest = 0
    for event in events:
        latest = max(latest, event.time_ns)
        yield event if event.time_ns == latest else event._replace(time_ns=latest)


def _of_text(lines: Iterable[str]) -> Iterator[Event]:
    number = 0
    for line, text in enumerate(lines, 1):
        if not text.strip() or text.lstrip().startswith((";", "#")):
            continue
        found = _LINE.fullmatch(text.strip())
        if found is None:
            raise HistoryError(line, f"no line of Jepsen's text (process, :type, :f, value): {short(text.strip())}")
        who, kind, f, rest = found.groups()
        try:
            values = [value for _, value in forms([rest or "nil"])]
        except HistoryError as error:
            raise HistoryError(line, str(error).partition(": ")[2]) from None
        value, told = [*values, None, None][:2]
        yield _plain(Event(number, kind, int(who) if who.isdigit() else who, f, None, value, number, told, line))
        number += 1


def _plain(event: Event) -> Event:
    """Normalise an event: old files have an error in place of the value; the nemesis' events become ``info``."""
    if event.process == NEMESIS:
        return event._replace(type=INFO)
    if event.type not in (INVOKE, OK) and isinstance(event.value, Keyword):
        return event._replace(value=None, error=event.error or event.value)
    return event


def _keyed(events: Iterator[Event], keyed: bool | None) -> Iterator[Event]:
    if keyed is None:
        sample = list(itertools.islice(events, SAMPLE))
        keyed = _look_keyed(sample)
        events = itertools.chain(sample, events)
    return map(_split, events) if keyed else events


def _look_keyed(sample: Sequence[Event]) -> bool:
    """Return whether values are [key value], as all reads begin with [key nil]; without reads they are not.

    Nor are they where an event has a :key, as all do that are written here.
    """
    if any(event.key is not None for event in sample):
        return False
    asked = [event for event in sample if event.type == INVOKE and event.process not in APART]
    reads = [event.value for event in asked if event.f in _READS]
    return bool(reads) and all(_pair(value) and value[1] is None for value in reads) and all(
        _pair(event.value) for event in asked)


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _split(event: Event) -> Event:
    if event.process in APART or not _pair(event.value):
        return event
    key, value = event.value
    return event._replace(key=key, value=value)


def line_of(event: Event) -> str:
    """An event as Jepsen writes it, with its key in :key. Raises ``TypeError`` for a value that EDN cannot hold.

    A key in the value would be told from it only in a history of reads.
    """
    made = {Keyword("index"): event.index, Keyword("time"): event.time_ns, Keyword("type"): Keyword(event.type),
            Keyword("process"): Keyword(event.process) if isinstance(event.process, str) else event.process,
            Keyword("f"): Keyword(event.f), Keyword("value"): event.value}
    if event.key is not None:
        made[Keyword("key")] = event.key
    if event.error is not None:
        made[Keyword("error")] = event.error
    return text_of(made) + "\n"
