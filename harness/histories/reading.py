"""Reads history files in any format, and writes them. Does the file I/O and nothing else.

The format is recognised by the first line with content. Files that end with ``.gz`` are unpacked.
"""

from __future__ import annotations

import codecs
import gzip
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Final

import attrs

from harness.histories import jepsen, jsonlines, openchaos, tables
from harness.histories.events import Event, HistoryError, checked, short

JSON: Final = "json"
EDN: Final = "edn"
TEXT: Final = "text"
OPENCHAOS: Final = "openchaos"
TABLE: Final = "table"
FORMATS: Final[Mapping[str, str]] = {
    JSON: "JSON lines", EDN: "Jepsen's EDN", TEXT: "Jepsen's text", OPENCHAOS: "OpenChaos", TABLE: "a table"}
EVENTS_MAX: Final = 20_000_000
_HEAD_BYTES: Final = 64 * 1024


@attrs.frozen
class Source:
    """A file of events. ``events`` can be read once."""

    path: Path
    format: str
    events: Iterator[Event]


def open_history(
    path: Path, kind: str | None = None, *, keyed: bool | None = None, events_max: int = EVENTS_MAX,
) -> Source:
    """Open a history file, or a run's directory. ``kind``: one of FORMATS; None: recognise it.

    ``keyed``: whether Jepsen's values are [key value]; None: recognise it. Raises ``HistoryError``, perhaps while
    events are read, and ``OSError``.
    """
    if path.is_dir():
        path = path / "history.jsonl"
    if kind is None:
        with _open(path) as file:
            kind = recognise(file.read(_HEAD_BYTES), str(path))
    return Source(path, kind, _capped(checked(_parsed(path, kind, keyed)), events_max, path))


def recognise(head: bytes, name: str) -> str:
    """The format of a file that begins so. Raises ``HistoryError``."""
    try:
        text = head.decode("utf-8", "strict" if len(head) < _HEAD_BYTES else "ignore")  # the head may end in a letter
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise HistoryError(0, f"{name} is no text: it begins with {head[:16]!r}")
    lines = [line.strip() for line in text.splitlines()]
    first = next((line for line in lines if line and not line.startswith(("#{", ";", "# "))), "")
    if not first:
        raise HistoryError(0, f"{name} is empty: no event, no verdict")
    if first.startswith("{"):
        return EDN if first[1:].lstrip().startswith(":") else JSON
    if first.startswith(("[", "(", "#")):
        return EDN
    if tables.recognise(first) is not None:
        return TABLE
    fields = first.split("\t")
    if fields[0] == "fault" or (len(fields) >= 7 and fields[2] in ("REQUEST", "RESPONSE")):
        return OPENCHAOS
    if jepsen.is_text(first):
        return TEXT
    raise HistoryError(1, f"{name} is in no format that is known here ({', '.join(FORMATS.values())}; a table's first "
                          f"line names process, f, and type or start): it begins with {short(first)}")


def _parsed(path: Path, kind: str, keyed: bool | None) -> Iterator[Event]:
    with _open(path) as file:
        if kind == JSON:
            yield from jsonlines.parse(file)
            return
        lines = _texts(file)
        if kind == TABLE:
            header = next(lines, "")
            delimiter = tables.recognise(header)
            if delimiter is None:
                raise HistoryError(1, f"the first line of a table names process, f, and type or start; it is "
                                      f"{short(header.strip())}")
            yield from tables.parse(itertools.chain([header], lines), delimiter)
        elif kind == OPENCHAOS:
            yield from openchaos.parse(lines)
        else:
            yield from (jepsen.parse if kind == EDN else jepsen.parse_text)(lines, keyed)


def _texts(file: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise HistoryError(number, f"no UTF-8: {error.reason} at byte {error.start}") from None


@contextmanager
def _open(path: Path) -> Iterator[BufferedReader | gzip.GzipFile]:
    """Open the file to read it, behind a mark of its letters, as spreadsheets write one.

    Raises ``HistoryError`` if what it unpacks is damaged or cut off.
    """
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        try:
            if file.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
                file.read(len(codecs.BOM_UTF8))
            yield file
        except (EOFError, zlib.error) as error:
            raise HistoryError(0, f"{path} is damaged or cut off: {error}") from None


def _capped(events: Iterator[Event], most: int, path: Path) -> Iterator[Event]:
    """So many of the events at most. What is wrong with one is told with the file."""
    try:
        for number, event in enumerate(events):
            if number == most:
                raise HistoryError(event.line, f"more than {most} events: cut the history, or raise --events-max")
            yield event
    except HistoryError as error:
        raise HistoryError(error.line, error.words, path) from None


def write_history(path: Path, events: Iterable[Event], kind: str) -> int:
    """Write events in JSON, EDN or OPENCHAOS; returns how many. Raises ``TypeError`` for a value it cannot hold."""
    chaos = openchaos.Writer()
    writers: dict[str, Callable[[Event], bytes]] = {
        JSON: jsonlines.line_of, EDN: lambda event: jepsen.line_of(event).encode(),
        OPENCHAOS: lambda event: chaos.line_of(event).encode()}
    number = 0
    staged = path.with_name(path.name + ".part")
    try:
        with staged.open("wb") as file:
            for event in events:
                file.write(writers[kind](event))
                number += 1
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)
    return number
