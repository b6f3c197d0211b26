"""Reads and writes OpenChaos' history files: tab-separated requests, responses and faults. Knows no file.

    CLIENT  OPERATION  REQUEST   VALUE  SHARDING-KEY  MS  INFO
    CLIENT  OPERATION  RESPONSE  SUCCESS|FAILURE|UNKNOWN  VALUE  SHARDING-KEY  MS  SEND-MS  INFO  END-TO-END-MS
    fault   NAME       start|end  MS

A client there may have several operations open, since messages are pushed to it, or several answer one request. So each
response becomes its own operation, of the process ``client/operation``, or of a new one if that is busy. Times are
milliseconds; they become nanoseconds since the first. Values are texts, and messages their bodies alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from harness.histories.events import FAIL, INFO, INVOKE, NEMESIS, OK, Event, HistoryError, Process, short

NS_PER_MS: Final = 1_000_000
MS_DIGITS_MAX: Final = 18
_RESULTS: Final = {"SUCCESS": OK, "FAILURE": FAIL, "UNKNOWN": INFO}
_NAMES: Final = {kind: result for result, kind in _RESULTS.items()}
_NOTHING: Final = "null"
_BATCHES: Final = frozenset({"dequeue", "pop", "receive", "poll", "consume", "drain"})
"""Operations that bring any number of messages, also unasked: each has a response of its own."""


@attrs.define
class _Reader:
    """Numbers events, and names processes that never go on after an unknown outcome."""

    begin_ms: int | None = None
    number: int = 0
    last_ns: int = 0
    lives: dict[str, int] = attrs.field(factory=dict)
    open: dict[str, Event] = attrs.field(factory=dict)

    def event(self, kind: str, process: Process, f: str, key: str | None, value: object, ms: int, line: int,
              error: str | None = None) -> Event:
        self.begin_ms = ms if self.begin_ms is None else self.begin_ms
        # threads take the time before they write: a row may come some ms too late
        self.last_ns = max(self.last_ns, (ms - self.begin_ms) * NS_PER_MS)
        assert self.begin_ms is not None
        made = Event(self.number, kind, process, f, key, value, self.last_ns, error, line)
        self.number += 1
        return made

    def process(self, client: str, f: str) -> str:
        who = f"{client}/{f}"
        life = self.lives.get(who, 0)
        return f"{who}/{life}" if life else who


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """The events of such lines. Raises ``HistoryError``."""
    reader = _Reader()
    for line, text in enumerate(lines, 1):
        fields = text.rstrip("\r\n").split("\t")
        if fields == [""]:
            continue
        if fields[0] == "fault":
            yield _fault(reader, fields, line)
        elif len(fields) >= 7 and fields[2] == "REQUEST":
            yield from _request(reader, fields, line)
        elif len(fields) >= 8 and fields[2] == "RESPONSE":
            yield from _response(reader, fields, line)
        else:
            raise HistoryError(line, f"no row of OpenChaos (7 fields of a REQUEST, 10 of a RESPONSE, 4 of a fault): "
                                     f"{short(text.rstrip())}")


def _fault(reader: _Reader, fields: list[str], line: int) -> Event:
    if len(fields) != 4 or fields[2] not in ("start", "end"):
        raise HistoryError(line, f"a fault has a name, start or end, and a time; this is {short(fields)}")
    return reader.event(INFO, NEMESIS, fields[1], None, fields[2], _ms(fields[3], line), line)


def _request(reader: _Reader, fields: list[str], line: int) -> Iterator[Event]:
    client, f, _, value, key, at, *_ = fields
    process = reader.process(client, f)
    if process in reader.open:
        raise HistoryError(line, f"client {client} asks {f} again before what it asked at line "
                                 f"{reader.open[process].line} was answered")
    made = reader.event(INVOKE, process, f, _value(key), _value(value), _ms(at, line), line)
    reader.open[process] = made
    yield made


def _response(reader: _Reader, fields: list[str], line: int) -> Iterator[Event]:
    client, f, _, result, value, key, at, *_ = fields
    if result not in _RESULTS:
        raise HistoryError(line, f"a result is SUCCESS, FAILURE or UNKNOWN, not {short(result)}")
    process, ms = reader.process(client, f), _ms(at, line)
    asked = reader.open.pop(process, None)
    if asked is None:  # a push, or one more message of a batch
        if f not in _BATCHES:
            raise HistoryError(line, f"client {client} is answered {f}, which it has not asked")
        yield reader.event(INVOKE, process, f, _value(key), None, ms, line)
    kind = _RESULTS[result]
    error = fields[8] if len(fields) > 8 and kind != OK and fields[8] != _NOTHING else None
    yield reader.event(kind, process, f, _value(key), _value(value), ms, line, error)
    if kind == INFO:
        reader.lives[f"{client}/{f}"] = reader.lives.get(f"{client}/{f}", 0) + 1


def _ms(text: str, line: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > MS_DIGITS_MAX:
        raise HistoryError(line, f"a time is a whole number of milliseconds, not {short(text)}")
    return int(text)


def _value(text: str) -> str | None:
    return None if text == _NOTHING else text


@attrs.define
class Writer:
    """Writes events as rows. Clients are numbered as they come; times count from ``begin_ms``."""

    begin_ms: int = 0
    _clients: dict[Process, int] = attrs.field(factory=dict)
    _asked: dict[Process, Event] = attrs.field(factory=dict)

    def line_of(self, event: Event) -> str:
        """The rows of an event; "" if OpenChaos has none for it. Raises ``TypeError`` for a value it cannot hold."""
        ms = self.begin_ms + event.time_ns // NS_PER_MS
        if event.process == NEMESIS:
            return f"fault\t{event.f}\t{event.value}\t{ms}\n" if event.value in ("start", "end") else ""
        client = self._clients.setdefault(event.process, len(self._clients))
        key = _text(event.key)
        if event.type == INVOKE:
            self._asked[event.process] = event
            value = _NOTHING if event.f in _BATCHES else _text(_body(event.value))  # a batch has only options
            return f"{client}\t{event.f}\tREQUEST\t{value}\t{key}\t{ms}\tnull\n"
        asked = self._asked.pop(event.process, event)
        took = (event.time_ns - asked.time_ns) // NS_PER_MS
        error = _NOTHING if event.error is None else str(event.error).replace("\t", " ").replace("\n", " ")
        return "".join(f"{client}\t{event.f}\tRESPONSE\t{_NAMES[event.type]}\t{_text(value)}\t{key}\t{ms}\t{took}\t"
                       f"{error}\t0\n" for value in _told(asked, event))


def _told(asked: Event, event: Event) -> list[object]:
    """The values of an answer's rows."""
    if event.f not in _BATCHES:
        body = _body(event.value)
        return [_body(asked.value) if body is None else body]
    found = event.value if isinstance(event.value, list) else [event.value]
    return [_body(each) for each in found] or [None]


def _body(value: object) -> object:
    """A message's body; None if the value only tells its place."""
    if isinstance(value, Mapping) and value.keys() & {"body", "offset"}:
        return value.get("body")
    return value


def _text(value: object) -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"a value there is a text, not {short(value)}")
    text = str(value)
    if text == _NOTHING or "\t" in text or "\n" in text:
        raise TypeError(f"{short(text)!r} would be read as another value")
    return text
