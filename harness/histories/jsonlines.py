"""Reads and writes our history files: an event a line, as a JSON object.

    {"index": 0, "type": "invoke", "process": 0, "f": "write", "key": "x", "value": 3, "time_ns": 1200}

``key`` may be left out, and ``index`` and ``time_ns`` by all events or none. Knows no file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson

from harness.histories.events import DEPTH_MAX, OK, TYPES, Event, HistoryError, short

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_LONG: Final = re.compile(rb"[0-9]{19}(?:[0-9]|(?<=-[0-9]{19}))")
"""20 digits, or 19 and a minus: an integer may have more than 64 bits, of which orjson makes a float."""
_KNOWN: Final = frozenset({"index", "type", "process", "f", "key", "value", "time_ns", "error"})


def parse(lines: Iterable[bytes]) -> Iterator[Event]:
    """Read events from lines. Raises ``HistoryError`` with the bad line."""
    number = 0
    for line, text in enumerate(lines, 1):
        if len(text) > LINE_BYTES_MAX:
            raise HistoryError(line, f"{len(text)} bytes long, more than {LINE_BYTES_MAX}: no history has such lines")
        if not text.strip():
            continue
        try:
            found = exact(text)
        except (ValueError, RecursionError) as error:
            cut = "" if text.endswith(b"\n") else f": the file ends within it; `head -n {line - 1}` keeps what is whole"
            raise HistoryError(line, f"no JSON: {error}{cut}") from None
        yield event_of(found, line, number)
        number += 1


def exact(text: bytes) -> Any:
    """The value of a JSON text, integers of any length exact. Raises ``ValueError``, or ``RecursionError``.

    NaN and infinity are none, as a number that only an infinite float holds. Nor is what no checker could look through.
    """
    found = json.loads(text, parse_constant=_finite, parse_float=_finite) if _LONG.search(text) else orjson.loads(text)
    if text.count(b"[") + text.count(b"{") > DEPTH_MAX and _is_deep(found):
        raise ValueError(f"values within values, {DEPTH_MAX} deep")
    return found


def _is_deep(found: Any) -> bool:
    level = [found]
    for _ in range(DEPTH_MAX):
        level = [each for value in level if isinstance(value, list | dict)
                 for each in (value.values() if isinstance(value, dict) else value)]
    return bool(level)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


def event_of(found: Any, line: int, number: int) -> Event:
    """The event of an object. ``number`` is the default of its index and time. Raises ``HistoryError``."""
    try:
        kind, process, f = found["type"], found["process"], found["f"]
    except (KeyError, TypeError):
        missing = [name for name in ("type", "process", "f") if not isinstance(found, dict) or name not in found]
        raise HistoryError(line, f"an event has {', '.join(missing)}; this is {short(found)}") from None
    if kind not in TYPES:
        raise HistoryError(line, f"type is invoke, ok, fail or info, not {short(kind)}")
    if type(process) not in (int, str) or not isinstance(f, str):
        raise HistoryError(line, f"process is a number or a name, f a name; here {short(process)} and {short(f)}")
    index, time_ns = found.get("index", number), found.get("time_ns", number)
    if type(index) is not int or type(time_ns) is not int:
        raise HistoryError(line, f"index and time_ns are whole numbers; here {short(index)} and {short(time_ns)}")
    if unknown := found.keys() - _KNOWN:
        raise HistoryError(line, f"no event has {', '.join(sorted(map(str, unknown)))}; put it into value")
    return Event(index, kind, process, f, found.get("key"), found.get("value"), time_ns, found.get("error"), line)


def line_of(event: Event) -> bytes:
    """An event as a line, with its end. Raises ``TypeError`` for a value that JSON cannot hold."""
    made: dict[str, Any] = {"index": event.index, "type": event.type, "process": event.process, "f": event.f}
    if event.key is not None:
        made["key"] = event.key
    if event.value is not None or event.type == OK:
        made["value"] = event.value
    made["time_ns"] = event.time_ns
    if event.error is not None:
        made["error"] = event.error
    try:
        line = orjson.dumps(made, default=_plain, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return _strict_line_of(made)
    if b"null" in line:  # perhaps of a float that is no number
        _strict_line_of(made)
    return line


def _strict_line_of(made: dict[str, Any]) -> bytes:
    """The line of an event as json writes it: with integers beyond 64 bits, and without floats that are no numbers."""
    try:
        text = json.dumps(made, default=_plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode() + b"\n"
    except ValueError as error:
        raise TypeError(str(error)) from None


def _plain(value: Any) -> Any:
    """JSON for values that only EDN has."""
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return str(value)
