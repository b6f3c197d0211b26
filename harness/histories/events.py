"""Events of a history, its rules, and its operations. Knows no file and no format.

An operation is an ``invoke`` and its outcome: ``ok``, it happened; ``fail``, it surely did not; ``info``, unknown. One
without an end counts as ``info``: it may happen at any later time, or never.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

INVOKE: Final = "invoke"
OK: Final = "ok"
FAIL: Final = "fail"
INFO: Final = "info"
TYPES: Final = frozenset({INVOKE, OK, FAIL, INFO})
NEMESIS: Final = "nemesis"
"""The process that injects faults; its events are ``info``, each without an ``invoke``."""
OBSERVER: Final = "observer"
"""The process that watches the system; its events are ``info``, each without an ``invoke``."""
APART: Final = frozenset({NEMESIS, OBSERVER})

DEPTH_MAX: Final = 200
"""Most forms within forms that a file may have."""

TIME_BITS: Final = 63

Process = int | str


class HistoryError(ValueError):
    """A file or its events are no history. ``line`` counts from 1; 0: no single line is at fault."""

    def __init__(self, line: int, words: str, file: object = "") -> None:
        super().__init__(f"{f'{file}, ' if file else ''}line {line}: {words}" if line else words)
        self.line, self.words = line, words


class Event(NamedTuple):
    """One event. ``time_ns`` counts from the run's begin; ``line`` is its line in a file, from 1; 0: none."""

    index: int  # type: ignore[assignment]  # hides a method of tuples
    type: str
    process: Process
    f: str
    key: Any
    value: Any
    time_ns: int
    error: Any = None
    line: int = 0


class Operation(NamedTuple):
    """An operation. ``ended`` is None while its outcome is unknown."""

    invoked: Event
    ended: Event | None

    @property
    def answer(self) -> str | None:
        """The answer's value in words; None if the answer only says that it was done."""
        asked, end = self.invoked, self.ended
        if end is None or end.type != OK or (end.value == asked.value and end.value is not None):
            return None
        if end.value is None:
            return NOTHING if asked.f in ASKING else None
        return short(end.value)

    def words(self) -> str:
        """The operation in words: process, function, value and outcome."""
        asked, end = self.invoked, self.ended
        of = "" if asked.key is None else f" of {short(asked.key)}"
        told = f" {short(asked.value)}" if asked.value is not None else ""
        came = "unknown" if end is None or end.type == INFO else end.type
        if self.answer is not None:
            came += f" {self.answer}"
        return f"process {asked.process}: {asked.f}{of}{told}, {came} ({place(end if end is not None else asked)})"


ASKING: Final = frozenset({"read", "get", "receive", "poll", "consume", "dequeue", "pop", "drain", "read-all",
                           "contains"})
"""Functions whose empty answer is information, too."""
NOTHING: Final = "nothing"


def place(event: Event) -> str:
    """Return the place of an event in words."""
    return f"line {event.line}" if event.line else f"event {event.index}"


def short(value: Any, most: int = 80) -> str:
    """A value in words, cut where it is long."""
    words = value if isinstance(value, str) and value else repr(value)
    return words if len(words) <= most else words[:most - 1] + "…"


def checked(events: Iterable[Event]) -> Iterator[Event]:
    """The same events, numbered from 0. Raises ``HistoryError`` at the first that no history can have.

    A process does one thing at a time; one whose operation ended with ``info`` does nothing any more, as nobody knows
    whether it still does the former; time does not run back, and no number is left out.
    """
    open_at: dict[Process, int] = {}
    gone: set[Process] = set()
    before, number, first = -1, None, 0
    for event in events:
        line = event.line or event.index
        if number is None:
            first = number = event.index
        if event.index != number:
            raise HistoryError(line, f"its index is {event.index} where {number} follows: events are missing, doubled "
                                     "or out of order")
        number += 1
        if first:
            event = event._replace(index=event.index - first)
        if event.time_ns < before:
            raise HistoryError(line, f"its time, {event.time_ns} ns, is before that of the event above, {before} ns: "
                                     "sort the events by time")
        if event.time_ns.bit_length() > TIME_BITS:
            raise HistoryError(line, f"no time has more than {TIME_BITS} bits of nanoseconds")
        before = event.time_ns
        if event.process in APART:
            yield event
            continue
        if event.type == INVOKE:
            if event.process in open_at:
                raise HistoryError(line, f"process {event.process} begins {event.f} before what it began at line "
                                         f"{open_at[event.process]} has ended: give each concurrent client a process "
                                         "of its own")
            if event.process in gone:
                raise HistoryError(line, f"process {event.process} goes on after an unknown outcome (info): the client "
                                         "must go on as a new process, since the old operation may still happen")
            open_at[event.process] = line
        elif event.process not in open_at:
            raise HistoryError(line, f"process {event.process} ends {event.f} ({event.type}), which it has not begun: "
                                     "the beginning of the history is missing, or an end is doubled")
        else:
            del open_at[event.process]
            if event.type == INFO:
                gone.add(event.process)
        yield event


def operations(events: Iterable[Event]) -> list[Operation]:
    """All operations, in the order of their begins. Events of nemesis and observer are no operations."""
    began: dict[Process, int] = {}
    found: list[Operation] = []
    for event in events:
        if event.process in APART:
            continue
        if event.type == INVOKE:
            began[event.process] = len(found)
            found.append(Operation(event, None))
        elif (place := began.pop(event.process, None)) is not None:
            assert found[place].invoked.process == event.process
            found[place] = Operation(found[place].invoked, event)
    return found
