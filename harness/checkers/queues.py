"""Checks queues by values sent once: none lost, phantom, unseen, two at one place, out of order or too early.

    send, enqueue       the value, ok with or without its place: {"body", "offset", "due_ms"}, or the body alone. One
                        with "delay_ms" is due so long after some moment between its begin and its end
    receive, poll       the answer's value: a message or a list of them; a request takes nothing away
    dequeue             the same, but the message is taken, even if the answer is lost
    pop                 the same for a list of up to {"most"} messages; without "most" for any number
    abandon             taken, but not acknowledged: it has to come again, so it counts as not received
    drain               ok: all messages left, of the key or of all keys; it takes any number
    read-all            ok: the whole queue of the key, from its beginning, with places

``key`` is the queue, or the ordering key. One pass, with a bound on memory. Knows no file.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

import attrs

from harness.checkers.models import State, frozen
from harness.checkers.verdict import SHOWN, Breach, Valid, Verdict, broken
from harness.histories.events import APART, FAIL, INFO, INVOKE, OK, Event, HistoryError, Process, place, short

NS_PER_MS: Final = 1_000_000
SENDS: Final = frozenset({"send", "enqueue", "push", "produce"})
POP: Final = "pop"
TAKES: Final = frozenset({"dequeue", POP})
RECEIVES: Final = frozenset({"receive", "poll", "consume"}) | TAKES
DRAIN: Final = "drain"
READ_ALL: Final = "read-all"
ABANDON: Final = "abandon"
FUNCTIONS: Final = SENDS | RECEIVES | {ABANDON, DRAIN, READ_ALL}
PROMISES: Final = ("lost", "phantom", "denied", "place", "unseen", "order", "once", "early", "late", "unique")
MEMORY_BYTES: Final = 2 << 30
VALUE_BYTES: Final = 400
"""Largest memory of a value and its place, if its text is short."""
_NEVER: Final = -1


@attrs.frozen
class Rules:
    """Further promises to check. ``late_ms`` and ``early_ms`` are bounds of delayed messages; None: no bound."""

    ordered: bool = False
    """By key: a value that was acknowledged before another was sent comes first."""
    once: bool = False
    """No value comes twice."""
    drained: bool = False
    """Consumers had received all messages at the end of the history."""
    delayed: bool = False
    """Messages are delayed: unknown if no message with a known due time came. ``late_ms`` implies it."""
    early_ms: int = 0
    late_ms: int | None = None
    memory_bytes: int = MEMORY_BYTES
    not_promised: frozenset[str] = frozenset()
    """``PROMISES`` whose breaches are only counted and reported."""


@attrs.define
class _Sent:
    """Columns by number of a value: events at which its send began and was acknowledged, and how often it came.

    ``_NEVER``: there was no such event. ``read``: how often a whole reading found it; that is no receipt.
    """

    begun: array[int] = attrs.field(factory=lambda: array("q"))
    acked: array[int] = attrs.field(factory=lambda: array("q"))
    came: array[int] = attrs.field(factory=lambda: array("l"))
    read: array[int] = attrs.field(factory=lambda: array("l"))


@attrs.define
class _Places:
    """Columns by number of a place: the value that was seen there first, and the event at which."""

    numbers: dict[tuple[int, int], int] = attrs.field(factory=dict)
    whose: array[int] = attrs.field(factory=lambda: array("l"))
    since: array[int] = attrs.field(factory=lambda: array("q"))


@attrs.frozen
class _Reading:
    """A whole reading: the event at which it began, its values by place, and those without one."""

    began: int
    places: dict[int, int]
    bare: set[int]


@attrs.define
class _Order:
    """Receipts of one key, by event. ``latest``: the latest begin of a send among the values received by then."""

    ends: array[int] = attrs.field(factory=lambda: array("q"))
    latest: array[int] = attrs.field(factory=lambda: array("q"))
    whose: array[int] = attrs.field(factory=lambda: array("q"))
    answer: int = _NEVER
    """The event of the last answer; ``in_answer`` and ``whose_in_answer`` are the same for its values."""
    in_answer: int = _NEVER
    whose_in_answer: int = _NEVER


class _Late(NamedTuple):
    """A value that came after one that was sent later, ``whose``; that came at the event ``since``."""

    since: int
    number: int
    whose: int
    event: Event


@attrs.define
class QueueCheck:
    """One pass over a history: ``add`` each event in order, then ask for the ``verdict``."""

    rules: Rules = attrs.field(factory=Rules)
    _numbers: dict[State, int] = attrs.field(factory=dict)
    _bodies: list[Any] = attrs.field(factory=list)
    _sent: _Sent = attrs.field(factory=_Sent)
    _keys: array[int] = attrs.field(factory=lambda: array("l"))
    _key_numbers: dict[State, int] = attrs.field(factory=dict)
    _key_names: list[Any] = attrs.field(factory=list)
    _failed: set[int] = attrs.field(factory=set)
    _due_ms: dict[int, tuple[int, int | None]] = attrs.field(factory=dict)
    """Value -> the first and the last time at which it may be due; None: the last is unknown."""
    _places: _Places = attrs.field(factory=_Places)
    _acked_places: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    _orders: dict[int, _Order] = attrs.field(factory=dict)
    _open: dict[Process, Event] = attrs.field(factory=dict)
    _drained: dict[int, int] = attrs.field(factory=dict)
    """Key, or _NEVER for all keys -> the event at which the last drain began."""
    _whole: dict[int, _Reading] = attrs.field(factory=dict)
    """Key -> its last whole reading."""
    _takes: list[tuple[int, int | None]] = attrs.field(factory=list)
    """Receives of unknown outcome: the event at which each began, and the most values that it may have taken; None: any
    number."""
    _late: list[_Late] = attrs.field(factory=list)
    _held_bytes: int = 0
    _full: bool = False
    counts: Counter[str] = attrs.field(factory=Counter)
    _broken: list[Breach] = attrs.field(factory=list)
    _breaks: Counter[str] = attrs.field(factory=Counter)

    def add(self, event: Event) -> None:
        """Take the next event; beyond the memory bound it is ignored.

        Raises ``HistoryError`` for what is no time and no offset.
        """
        if not self._full and event.process not in APART:
            self._take(event)

    def _take(self, event: Event) -> None:
        if event.type == INVOKE:
            self._open[event.process] = event
            if event.f in SENDS:
                self._begin(event)
            return
        asked = self._open.pop(event.process, event)
        assert asked.index <= event.index, "events come in their order"
        if event.f in SENDS:
            self._told(asked, event)
        elif event.f in FUNCTIONS and event.f != ABANDON:
            self._received(asked, event)

    def _number(self, body: Any) -> int:
        name = frozen(body)
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self._bodies)
            self._bodies.append(body)
            for column in (self._sent.begun, self._sent.acked):
                column.append(_NEVER)
            self._sent.came.append(0)
            self._sent.read.append(0)
            self._keys.append(0)
            self._held_bytes += VALUE_BYTES + (len(body) if isinstance(body, str) else 0)
            self._full = self._held_bytes > self.rules.memory_bytes
        return found

    def _key(self, key: Any) -> int:
        found = self._key_numbers.setdefault(frozen(key), len(self._key_names))
        if found == len(self._key_names):
            self._key_names.append(key)
        return found

    # --- sends -----------------------------------------------------------------------------------------------

    def _begin(self, event: Event) -> None:
        body, _, due_ms = _message(event.value, event)
        number = self._number(body)
        self.counts["sent"] += 1
        if self._sent.begun[number] != _NEVER:
            self._break("unique", f"{short(body)} was sent twice ({place(event)}): values must be unique", event)
            return
        self._sent.begun[number] = event.index
        self._keys[number] = self._key(event.key)
        if (due := _ms("due_ms", due_ms, event)) is not None:
            self._due_ms[number] = due
        elif (delay := _delay_ms(event)) is not None:
            self._due_ms[number] = event.time_ns // NS_PER_MS + delay[0], None

    def _told(self, asked: Event, event: Event) -> None:
        number = self._number(_message(asked.value, asked)[0])
        if event.type == FAIL:
            self._failed.add(number)
            self.counts["refused"] += 1
            if self._sent.came[number] or self._sent.read[number]:
                self._denied(number, event)
            return
        if event.type == INFO:
            self.counts["unknown"] += 1
            return
        self.counts["acknowledged"] += 1
        self._sent.acked[number] = event.index
        body, offset, due_ms = _message(event.value, event)
        if (due := _ms("due_ms", due_ms, event)) is not None:
            self._due_ms[number] = due
        elif (delay := _delay_ms(asked)) is not None and number in self._due_ms:
            self._due_ms[number] = self._due_ms[number][0], event.time_ns // NS_PER_MS + delay[1]
        if offset is not None and (body is None or self._numbers.get(frozen(body)) == number):
            at = self._key(event.key if event.key is not None else asked.key), offset
            self._acked_places[number] = at
            self._at(at, number, event, "acknowledged")

    def _at(self, at: tuple[int, int], number: int, event: Event, how: str) -> None:
        assert number < len(self._bodies), "a value has its number first"
        where = self._places.numbers.setdefault(at, len(self._places.whose))
        if where == len(self._places.whose):
            self._places.whose.append(number)
            self._places.since.append(event.index)
        before = self._places.whose[where]
        if before != number:
            self._break("place", f"{self._key_words(at)}: {short(self._bodies[before])} was there, and then "
                                 f"{short(self._bodies[number])} was {how} there ({place(event)})", event)

    def _key_words(self, at: tuple[int, int]) -> str:
        key = self._key_names[at[0]]
        return f"offset {at[1]}" if key is None else f"{short(key)}, offset {at[1]}"

    # --- receives --------------------------------------------------------------------------------------------

    def _received(self, asked: Event, event: Event) -> None:
        if event.type == INFO:
            self.counts["receives unknown"] += 1
            self.counts["taken unseen"] += event.f in TAKES
            if (most := _most(asked)) != 0:
                self._takes.append((asked.index, most))
            return
        found = [*_messages(event)] if event.type == OK else []
        if event.f == READ_ALL or event.f == DRAIN:
            if event.type == FAIL:
                return
            key = _NEVER if asked.key is None else self._key(asked.key)
            self._drained[key] = asked.index
            self.counts["whole readings"] += 1
        key_number = self._key(event.key if event.key is not None else asked.key)
        if event.f == READ_ALL:
            self._read_all(key_number, found, asked, event)
            return
        for body, offset, _ in found:
            self._one(self._number(body), key_number, offset, asked, event)

    def _one(self, number: int, key: int, offset: int | None, asked: Event, event: Event) -> None:
        self.counts["received"] += 1
        times = self._sent.came[number] = self._sent.came[number] + 1
        if offset is not None:
            self._at((key, offset), number, event, "received")
        if times > 1:
            self.counts["received again"] += 1
            if self.rules.once:
                self._break("once", f"{short(self._bodies[number])} came {times} times ({place(event)})", event)
            return
        if self._sent.begun[number] == _NEVER:
            self._break("phantom", f"{short(self._bodies[number])} came, and nobody sent it ({place(event)})", event)
            return
        if number in self._failed:
            self._denied(number, event)
        if self._due_ms:
            self._on_time(number, event)
        if self.rules.ordered:
            self._in_order(number, asked, event)

    def _denied(self, number: int, event: Event) -> None:
        self._break("denied", f"{short(self._bodies[number])} came, and its sender was told that it is nowhere "
                              f"({place(event)})", event)

    def _on_time(self, number: int, event: Event) -> None:
        due = self._due_ms.get(number)
        if due is None:
            return
        first_ms, last_ms = due
        now_ms = event.time_ns // NS_PER_MS
        self.counts["delayed"] += 1
        if first_ms - now_ms > self.rules.early_ms:
            self._break("early", f"{short(self._bodies[number])} came {first_ms - now_ms} ms before it was due "
                                 f"({place(event)})", event)
        if self.rules.late_ms is not None and last_ms is not None and now_ms - last_ms > self.rules.late_ms:
            self._break("late", f"{short(self._bodies[number])} came {now_ms - last_ms} ms after it was due, more than "
                                f"{self.rules.late_ms} ({place(event)})", event)

    def _in_order(self, number: int, asked: Event, event: Event) -> None:
        """Check order: a value sent after this one was acknowledged must not have come before this one was requested.

        The values of one answer are in the order of the answer.
        """
        order = self._orders.get(self._keys[number])
        if order is None:
            order = self._orders[self._keys[number]] = _Order()
        begun, acked = self._sent.begun[number], self._sent.acked[number]
        first = bisect_right(order.latest, acked) if acked != _NEVER else len(order.ends)
        if first < len(order.ends) and order.ends[first] < asked.index:
            self._came_late(order.ends[first], number, order.whose[first], event)
        elif order.answer == event.index and _NEVER < acked < order.in_answer:
            self._came_late(event.index, number, order.whose_in_answer, event)
        assert begun != _NEVER, "what nobody sent has no order"
        if order.answer != event.index or begun > order.in_answer:
            order.answer, order.in_answer, order.whose_in_answer = event.index, begun, number
        if not order.ends or begun > order.latest[-1]:
            order.ends.append(event.index)
            order.latest.append(begun)
            order.whose.append(number)

    def _came_late(self, since: int, number: int, whose: int, event: Event) -> None:
        assert since <= event.index, "the other value came first"
        self._late.append(_Late(since, number, whose, event._replace(value=None)))
        self._held_bytes += VALUE_BYTES

    def _read_all(self, key: int, found: list[tuple[Any, int | None, int | None]], asked: Event, event: Event) -> None:
        reading = _Reading(asked.index, {}, set())
        numbers: dict[int, int | None] = {}
        for body, offset, _ in found:
            number = self._number(body)
            if self.rules.once and number in numbers and (offset is None or reading.places.get(offset) != number):
                self._break("once", f"{short(body)} is there more than once ({place(event)})", event)
            numbers.setdefault(number, offset)
            self._sent.read[number] += 1
            self.counts["read at the end"] += 1
            if self._sent.begun[number] == _NEVER:
                self._break("phantom", f"{short(body)} is there, and nobody sent it ({place(event)})", event)
            elif number in self._failed:
                self._denied(number, event)
            if offset is not None:
                reading.places[offset] = number
                self._at((key, offset), number, event, "read")
            else:
                reading.bare.add(number)
        self._whole[key] = reading
        if self.rules.ordered:
            self._reading_in_order(numbers, event)

    def _reading_in_order(self, numbers: dict[int, int | None], event: Event) -> None:
        """Check order within a whole reading: that of its places, or of the answer where it has none."""
        placed = sorted((offset, number) for number, offset in numbers.items() if isinstance(offset, int))
        order = [number for _, number in placed] if len(placed) == len(numbers) else [*numbers]
        latest: dict[int, tuple[int, int]] = {}
        for number in order:
            begun, acked, key = self._sent.begun[number], self._sent.acked[number], self._keys[number]
            if begun == _NEVER:
                continue
            self._orders.setdefault(key, _Order())
            before, whose = latest.get(key, (_NEVER, _NEVER))
            if acked != _NEVER and acked < before:
                self._break("order", f"{short(self._bodies[whose])} is before {short(self._bodies[number])} "
                                     f"({place(event)}), which was acknowledged before the former was sent", event)
            latest[key] = max((before, whose), (begun, number))

    # --- the end ---------------------------------------------------------------------------------------------

    def _break(self, promise: str, words: str, event: Event | None = None) -> None:
        assert promise in PROMISES
        if promise in self.rules.not_promised:
            self.counts[f"{promise}, not promised"] += 1
            return
        self._breaks[promise] += 1
        if self._breaks[promise] <= SHOWN:
            self._broken.append(Breach(promise, words, event.index + 1 if event is not None else 0))

    def verdict(self, name: str = "queue") -> Verdict:
        """Call once, after the last event."""
        assert len(self._sent.acked) == len(self._bodies) == len(self._keys)
        for event in [*self._open.values()]:
            self._take(event._replace(type=INFO))  # what is under way may have happened
        disordered = self._disordered()
        waiting = 0
        if not self._full:  # else what came behind the bound is not known
            waiting = self._lost()
            self._unseen()
        asked = {each: self.counts[each] for each in ("acknowledged", "received", "read at the end")}
        if self.rules.ordered:
            asked["orders"] = len(self._orders)
        counts = {each: of for each, of in self.counts.items() if of and each not in asked}
        if self._breaks:
            made = broken(name, self._broken, self._breaks, asked, counts)
            return attrs.evolve(made, why=made.why + self._hint())
        unknown = self._doubts(waiting, disordered)
        if unknown:
            return Verdict(name, Valid.UNKNOWN, unknown, asked, counts=counts)
        spared = [f"{promise} {counts[told]:,} times" for promise in PROMISES
                  if (told := f"{promise}, not promised") in counts]
        words = (f"nothing is broken that is promised; {', '.join(spared)}, which is not promised here" if spared else
                 "everything acknowledged came, and nothing else")
        return Verdict(name, Valid.TRUE, words, asked, counts=counts)

    def _hint(self) -> str:
        left = self.counts["receives unknown"] - len(self._takes)
        if not left or "lost" not in self._breaks:
            return ""
        return (f"; {left:,} receives were not answered, which take nothing away here: if they do in this queue, they "
                "are `dequeue`s")

    def _doubts(self, waiting: int, disordered: int) -> str:
        if self._full:
            return (f"more than {self.rules.memory_bytes:,} bytes of values: only the first {self.counts['sent']:,} "
                    "sends were looked at")
        if not self.counts["acknowledged"]:
            return "no send was ever acknowledged: nothing was asked"
        if not self.counts["received"] + self.counts["read at the end"]:
            return "nothing was ever received: nothing was asked"
        if (self.rules.delayed or self.rules.late_ms is not None) and not self.counts["delayed"]:
            return "no message came of which the history says when it is due (due_ms or delay_ms): nothing was asked"
        taken = self.counts["taken unseen"]
        if disordered:
            return (f"{disordered:,} values are out of order, unless they had come before: {taken:,} receives of "
                    "unknown outcome may have taken them")
        if waiting:
            return f"{waiting:,} acknowledged values never came" + (
                f"; {taken:,} receives of unknown outcome may have taken them" if taken else
                ", and no drain says that the queue was empty (--drained, if it was)")
        return ""

    def _disordered(self) -> int:
        """Report values that came too late; returns how many may have come before, to a request of unknown outcome.

        Such a request must have begun before the other value came, and it took no more than it may. Where no value may
        come twice, what it took does not come again.
        """
        late, takes = sorted(self._late), sorted(self._takes, key=itemgetter(0))
        certain, most, at = 0, 0.0, 0
        for count, each in enumerate(late, 1):
            while at < len(takes) and takes[at][0] < each.since:
                most += _room(takes[at][1])
                at += 1
            if count > most or (self.rules.once and "once" not in self.rules.not_promised):
                certain = count
        assert certain <= len(late) and at <= len(takes)
        for _, number, whose, event in sorted(late[:certain], key=lambda each: each.event.index):
            self._break("order", f"{short(self._bodies[whose])} came before {short(self._bodies[number])} "
                                 f"({place(event)}), which was acknowledged before the former was sent", event)
        return 0 if "order" in self.rules.not_promised else len(late) - certain

    def _lost(self) -> int:
        """Report lost values; returns how many acknowledged values never came but may still wait."""
        waiting: list[int] = []
        lost: list[int] = []
        for number, acked in enumerate(self._sent.acked):
            if acked == _NEVER:
                continue
            at = self._acked_places.get(number)
            key = self._keys[number] if at is None else at[0]
            reading = self._whole.get(key)
            if reading is not None and at is not None and acked < reading.began and (
                    words := self._missed(number, at[1], reading)):
                self._break("lost", f"{short(self._bodies[number])} was acknowledged at {self._key_words(at)}, and "
                                    f"the last reading finds {words}")
            elif not self._sent.came[number] and not self._sent.read[number]:
                drained = max(self._drained.get(key, _NEVER), self._drained.get(_NEVER, _NEVER))
                (lost if self.rules.drained or acked < drained else waiting).append(number)
        if lost and len(lost) <= sum(_room(most) for _, most in self._takes):
            return len(waiting) + len(lost)
        for number in lost:
            self._break("lost", f"{short(self._bodies[number])} was acknowledged (event {self._sent.acked[number]}), "
                                "and never came")
        return len(waiting)

    def _missed(self, number: int, offset: int, reading: _Reading) -> str:
        """The content of a whole reading at the place of a value, in words.

        Empty if the value is there, or, if another took its place or places were not told, anywhere.
        """
        there = reading.places.get(offset)
        if there == number or number in reading.bare:
            return ""
        if there is None and not reading.bare:
            return "nothing there"
        if number in reading.places.values():
            return ""
        return "it nowhere" if there is None else f"{short(self._bodies[there])} there"

    def _unseen(self) -> None:
        """Check that values that were received before the last whole reading are at their places in it."""
        for (key, offset), where in self._places.numbers.items():
            reading, number = self._whole.get(key), self._places.whose[where]
            if reading is None or offset in reading.places or number in reading.bare:
                continue
            if self._places.since[where] >= reading.began or self._acked_places.get(number) == (key, offset):
                continue  # it may have been sent since; ``lost`` reports an acknowledged message
            self._break("unseen", f"{short(self._bodies[number])} was received at {self._key_words((key, offset))}, "
                                  "and the last reading finds nothing there")


def _message(value: Any, event: Event) -> tuple[Any, int | None, int | None]:
    """(body, offset, due_ms) of an event's value. Raises ``HistoryError`` for what is no offset."""
    if not isinstance(value, dict) or not ("body" in value or "offset" in value):
        return value, None, None
    offset = value.get("offset")
    if offset is not None and type(offset) is not int:
        raise HistoryError(event.line or event.index, f"offset is a whole number, not {short(offset)}")
    return value.get("body"), offset, value.get("due_ms")


def _delay_ms(send: Event) -> tuple[int, int] | None:
    return _ms("delay_ms", send.value.get("delay_ms"), send) if isinstance(send.value, dict) else None


def _ms(name: str, value: Any, event: Event) -> tuple[int, int] | None:
    """The least and the most whole milliseconds of a time, None without one. Raises ``HistoryError``."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise HistoryError(event.line or event.index, f"{name} is a number of milliseconds, not {short(value)}")
    return math.floor(value), math.ceil(value)


def _most(asked: Event) -> int | None:
    """Return the most values that a request may have taken if its answer was lost; None: any number."""
    if asked.f not in TAKES and asked.f != DRAIN:
        return 0
    if asked.f == DRAIN or asked.f == POP:
        most = asked.value.get("most") if isinstance(asked.value, dict) else None
        return most if isinstance(most, int) else None
    return 1


def _room(most: int | None) -> float:
    return math.inf if most is None else max(0, most)


def _messages(answer: Event) -> Iterator[tuple[Any, int | None, int | None]]:
    value = answer.value
    if value is not None:
        for each in value if isinstance(value, list) else [value]:
            yield _message(each, answer)


def check(events: Iterable[Event], rules: Rules | None = None, *, name: str = "queue") -> Verdict:
    """Check a whole history in one pass."""
    made = QueueCheck(rules or Rules())
    for event in events:
        made.add(event)
    return made.verdict(name)
