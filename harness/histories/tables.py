"""Reads histories from tables, CSV or TSV with a header: an event or a whole operation a row. Knows no file.

    process,type,f,key,value,time_ms                     an event a row, in order of time
    client,op,key,value,start_ms,end_ms,outcome,result   an operation a row, in any order; sorted here by start and end

The outcome of a whole operation without an end is unknown, as is any outcome but the words below. Names may be in any
case; each column has several. Cells are whole numbers, true, false, null, or else text: 007 is text, and not 7.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import attrs

from harness.histories.events import FAIL, INFO, INVOKE, OK, TYPES, Event, HistoryError, Process, short

OPERATIONS_MAX: Final = 5_000_000
"""Whole operations are sorted, so all of them are held at once."""
TIME_DIGITS_MAX: Final = 30
DIGITS_MAX: Final = 4_000
"""Python makes no number of many more; as text they are equal where the numbers are."""
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "process": ("process", "client", "client_id", "worker", "thread", "session"),
    "type": ("type", "outcome", "result_type", "status"),
    "f": ("f", "op", "operation", "function", "method", "command"),
    "key": ("key", "k"),
    "value": ("value", "v", "arg", "argument", "input"),
    "result": ("result", "output", "returned", "response"),
    "start": ("start", "begin", "call", "invoked", "start_time", "called_at", "invoke_time"),
    "end": ("end", "return", "finish", "completed", "end_time", "returned_at", "return_time", "complete_time"),
    "time": ("time", "timestamp", "at"),
    "error": ("error", "message"),
}
_UNITS: Final[Mapping[str, int]] = {"_ns": 1, "_us": 10**3, "_ms": 10**6, "_s": 10**9}
"""Suffixes of time columns, in ns. Without one the first time decides for all: seconds with a point, else ns."""
_TIMES: Final = ("start", "end", "time")
_OUTCOMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ok", "success", "succeeded", "true", "200", "done"), OK),
    **dict.fromkeys(("fail", "failed", "failure", "refused", "rejected", "false"), FAIL), INVOKE: INVOKE}


@attrs.frozen
class _Row:
    """The cells of a row by column; times are ns, None if the cell is empty."""

    line: int
    cells: Mapping[str, str]
    times: Mapping[str, int | None]

    def value(self, name: str) -> Any:
        return _cell(self.cells.get(name, ""))

    @property
    def f(self) -> str:
        return self.cells["f"].lower()


def recognise(header: str) -> str | None:
    """The delimiter, if this line names the columns of such a table."""
    for delimiter in ",\t;":
        if _names_all(_columns(name.strip('"') for name in header.strip().split(delimiter))):
            return delimiter
    return None


def _names_all(columns: Mapping[str, object]) -> bool:
    """Return whether what every table has is there."""
    return {"process", "f"} <= columns.keys() and bool(columns.keys() & {"type", "start"})


def _columns(header: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Column -> its place, and the unit of its times in ns; 0: its name has none."""
    found: dict[str, tuple[int, int]] = {}
    for place, name in enumerate(header):
        plain, unit = name.strip().lower(), 0
        for end, size in _UNITS.items():
            if plain.endswith(end):
                plain, unit = plain.removesuffix(end), size
                break
        for wanted, names in _NAMES.items():
            if plain in names and wanted not in found and (not unit or wanted in _TIMES):
                found[wanted] = place, unit
                break
    return found


def parse(lines: Iterable[str], delimiter: str) -> Iterator[Event]:
    """The events of such lines. Raises ``HistoryError``."""
    reader = csv.reader(lines, delimiter=delimiter)
    try:
        header = next(reader)
    except csv.Error as error:
        raise HistoryError(1, f"no CSV: {error}") from None
    columns = _columns(header)
    if not _names_all(columns):
        raise HistoryError(1, f"the first line of a table names process, f, and type or start; here "
                              f"{', '.join(columns) or 'none of them'}: a quote in it may be open")
    rows = _rows(reader, header, columns)
    return _whole(rows) if "start" in columns else _events(rows)


@attrs.define
class _Clock:
    """Reads times. All columns whose name has no unit have the same: one unit a table, not a cell."""

    in_seconds: bool | None = None
    """None: no such time came yet."""

    def moment(self, text: str, unit: int, line: int, column: str) -> int | None:
        """A time in ns; None if the cell is empty. Raises ``HistoryError``."""
        if not text:
            return None
        try:
            found = Decimal(text)
            if found.is_nan() or found.adjusted() > TIME_DIGITS_MAX:
                raise InvalidOperation
            if not unit:
                unit = self._unit(text, line)
            return int(found * unit)
        except ArithmeticError:
            raise HistoryError(line, f"{column} is a time, a number, not {short(text)}") from None

    def _unit(self, text: str, line: int) -> int:
        in_seconds = "." in text or "e" in text.lower()
        if self.in_seconds is None:
            self.in_seconds = in_seconds
        if self.in_seconds is not in_seconds:
            raise HistoryError(line, f"the time {short(text)} has {'a' if in_seconds else 'no'} point, and those above "
                                     f"have {'none' if in_seconds else 'one'}: name the columns with _s or _ns")
        return _UNITS["_s" if in_seconds else "_ns"]


def _rows(reader: Any, header: Sequence[str], columns: Mapping[str, tuple[int, int]]) -> Iterator[_Row]:
    clock = _Clock()
    try:
        for row in reader:
            line = reader.line_num
            if not row:
                continue
            if len(row) != len(header):
                raise HistoryError(line, f"{len(row)} cells where the first line names {len(header)}: the file was "
                                         "cut, or a cell with the delimiter in it is not quoted")
            cells = {name: row[place].strip() for name, (place, _) in columns.items()}
            if not cells["process"] or not cells["f"]:
                raise HistoryError(line, "each row says its process and what it did")
            times: dict[str, int | None] = {
                name: clock.moment(cells[name], unit, line, header[place].strip())
                for name, (place, unit) in columns.items() if name in _TIMES}
            yield _Row(line, cells, times)
    except csv.Error as error:
        raise HistoryError(reader.line_num, f"no CSV: {error}") from None


def _events(rows: Iterable[_Row]) -> Iterator[Event]:
    for number, row in enumerate(rows):
        kind = row.cells["type"].lower()
        kind = kind if kind in TYPES else _OUTCOMES.get(kind, "")
        if not kind:
            raise HistoryError(row.line, f"type is invoke, ok, fail or info, not {short(row.cells['type'])}")
        time_ns = row.times.get("time", number)
        if time_ns is None:
            raise HistoryError(row.line, "this row has no time")
        yield Event(number, kind, _process(row.cells["process"]), row.f, row.value("key"), row.value("value"), time_ns,
                    row.value("error"), row.line)


def _whole(rows: Iterable[_Row]) -> Iterator[Event]:
    """Two events for each operation, in order of time; at equal times begins come first.

    So operations that touch are concurrent, which is never too strict. A client with several open operations, or one
    that goes on after an unknown outcome, becomes several processes.
    """
    held = list(itertools.islice(rows, OPERATIONS_MAX + 1))
    if len(held) > OPERATIONS_MAX:
        raise HistoryError(held[-1].line, f"more than {OPERATIONS_MAX} operations to sort: write an event a row")
    timed = [(_begun(row), row) for row in held]
    timed.sort(key=lambda each: each[0])
    moments: list[tuple[int, int, Event]] = []
    busy_until: dict[str, list[float]] = {}
    for start, row in timed:
        kind, end = _outcome(row), row.times.get("end")
        if kind != INFO and end is None:
            raise HistoryError(row.line, f"{kind} without a time of its end; an unknown outcome is left empty")
        if end is not None and end < start:
            raise HistoryError(row.line, "it ends before it begins")
        ends = busy_until.setdefault(row.cells["process"], [])
        lane = next((lane for lane, until in enumerate(ends) if until < start), len(ends))
        ends[lane:lane + 1] = [math.inf if kind == INFO or end is None else end]
        who = _process(row.cells["process"]) if not lane else f"{row.cells['process']}/{lane}"
        key, value = row.value("key"), row.value("value")
        moments.append((start, 0, Event(0, INVOKE, who, row.f, key, value, 0, None, row.line)))
        if kind != INFO and end is not None:
            result = row.value("result") if row.cells.get("result") or kind == FAIL else value
            moments.append((end, 1, Event(0, kind, who, row.f, key, result, 0, row.value("error"), row.line)))
    assert len(moments) <= 2 * len(held)
    moments.sort(key=lambda moment: moment[:2])
    begin = moments[0][0] if moments else 0
    return (event._replace(index=number, time_ns=at - begin) for number, (at, _, event) in enumerate(moments))


def _begun(row: _Row) -> int:
    start = row.times["start"]
    if start is None:
        raise HistoryError(row.line, "this row has no time of its start")
    return start


def _outcome(row: _Row) -> str:
    if "type" not in row.cells:
        return OK if row.cells.get("end") else INFO
    kind = _OUTCOMES.get(row.cells["type"].lower(), INFO)
    if kind == INVOKE:
        raise HistoryError(row.line, "a row with start and end is a whole operation; its outcome is ok, fail or info")
    return kind


def _process(text: str) -> Process:
    number = whole(text)
    return text if number is None else number


def _cell(text: str) -> Any:
    if text in ("", "null", "nil", "None"):
        return None
    if text in ("true", "false", "True", "False"):
        return text.lower() == "true"
    number = whole(text)
    return text if number is None else number


def whole(text: str) -> int | None:
    """The whole number that is written exactly so; 007, +7 and 1_000 are text, and another value than 7 and 1000."""
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and (digits[0] != "0" or text == "0") and len(digits) <= DIGITS_MAX
    return int(text) if plain else None
