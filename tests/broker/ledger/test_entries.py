"""The entries of the acting ledger: bytes that are damaged or torn, and which of several entries counts."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ledger.entries import LASTING, OF_TABLES, STALE_MAX, Entry, Ledger, Mark, Subject, Thing, decode

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NUMBER = st.integers(1, (1 << 63) - 1)
THINGS = st.builds(Thing, st.sampled_from([*map(int, Subject), 200]), st.text(max_size=8), st.integers(0, 3))
ENTRIES = st.builds(Entry, st.builds(Mark, NUMBER, NUMBER), THINGS, INT64)
FEW = st.builds(Entry, st.builds(Mark, st.integers(0, 2), st.integers(1, 3)), st.builds(
    Thing, st.just(1), st.sampled_from("ab"), st.just(0)), st.integers(0, 9))


def test_the_bytes_are_those_of_the_manual() -> None:
    entry = Entry(Mark(2, 7), Thing(Subject.OFFSET, "T@G", 1), 300)
    assert entry.to_bytes().hex(" ", 4) == (
        "62ee3983 00000028 00000000 00000002 00000000 00000007 01000000 01000000 00000001 2c544047")
    assert decode(entry.to_bytes()) == ([entry], 40)


@given(st.lists(ENTRIES, max_size=4), st.integers(0), st.integers(0, 255))
def test_what_is_damaged_ends_what_is_read(entries: list[Entry], place: int, change: int) -> None:
    raw = bytearray(b"".join(entry.to_bytes() for entry in entries))
    assert decode(bytes(raw)) == (entries, len(raw))
    if raw:
        place %= len(raw)
        torn, end = decode(bytes(raw[:place]))
        assert torn == entries[:len(torn)] and end <= place
        before, raw[place] = raw[place], change
        found, end = decode(bytes(raw))
        assert found == entries[:len(found)]
        assert (change == before) == (end == len(raw)) and (change == before or end <= place)


@given(st.lists(FEW, unique_by=lambda entry: entry.mark), st.randoms())
def test_the_last_entry_of_each_thing_counts_in_whatever_order_they_come(entries: list[Entry], random: object) -> None:
    ledger = Ledger(entries)
    last = {entry.thing: entry for entry in sorted(entries, key=lambda entry: entry.mark)}
    assert list(ledger.after()) == sorted(last.values(), key=lambda entry: entry.mark)
    assert list(Ledger(reversed(entries)).after()) == list(ledger.after())
    end = ledger.end
    assert end == max((entry.mark for entry in entries), default=Mark())
    assert list(ledger.after(end)) == []
    (thing, *_) = [*last, Thing(1, "new", 0)]
    noted = ledger.note(thing, -1)
    assert noted is not None and ledger.note(thing, -1) is None
    assert list(ledger.after(end)) == [noted], "who begins to act writes behind all that it knows of"
    assert ledger.forget(end, (thing.kind,)) == 0
    assert ledger.forget(end) == len(last) - (thing in last)
    assert len(ledger) == 1
    assert list(ledger.after()) == [noted] and ledger.get(thing) == -1


def test_entries_of_a_kind_and_what_counts_no_more_is_let_go() -> None:
    ledger = Ledger()
    for value in range(3 * STALE_MAX):
        ledger.note(Thing(Subject.LEVEL, "", 1), value)
    ledger.note(Thing(Subject.DECIDED, "5", 0), 1)
    assert len(ledger._order) <= STALE_MAX + 5
    assert [entry.value for entry in ledger.of(Subject.LEVEL)] == [3 * STALE_MAX - 1]
    assert {entry.thing.kind for entry in ledger.of(*LASTING)} == {Subject.DECIDED}
    ledger.drop(Thing(Subject.LEVEL, "", 1))
    assert len(ledger) == 1 and list(ledger.of(Subject.LEVEL)) == []


def test_hundreds_of_thousands_are_read_in_pages_without_a_look_at_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    for number in range(5_000):
        ledger.note(Thing(Subject.ACKED, str(number), 0), 1)
    looked = 0
    known = Ledger._known

    def counted(self: Ledger, thing: Thing) -> Entry | None:
        nonlocal looked
        looked += 1
        return known(self, thing)

    monkeypatch.setattr(Ledger, "_known", counted)
    at, pages = Mark(), 0
    while page := list(islice(ledger.after(at), 10)):
        at, pages = page[-1].mark, pages + 1
    assert pages == 500 and looked <= 5_000 + pages


@pytest.mark.parametrize(("mark", "kind", "whole"), [
    (Mark(0, 0), Subject.END, True), (Mark(0, 0), Subject.OFFSET, False), (Mark(5, 0), Subject.OFFSET, False),
    (Mark(-1, 3), Subject.OFFSET, False), (Mark(1, -1), Subject.END, False), (Mark(0, 1), Subject.OFFSET, True)])
def test_a_mark_that_nobody_writes_ends_what_is_read(mark: Mark, kind: Subject, whole: bool) -> None:
    entry = Entry(mark, Thing(kind, "", 0), 0)
    assert decode(entry.to_bytes()) == (([entry], 37) if whole else ([], 0))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.sampled_from(["note", "note", "copy", "start"]),
                          st.integers(0, 9)), max_size=12), st.randoms())
def test_of_slaves_that_act_in_turn_the_later_one_counts(
        acts: list[tuple[int, int, str, int]], random: Random) -> None:
    """Whether they heard each other or not, and in whatever order the master reads them."""
    slaves, thing, now_ms = [Ledger() for _ in range(3)], Thing(Subject.OFFSET, "T@G", 0), 1_000
    acting, since_ms, last = -1, 0, None
    for who, passes_ms, act, value in acts:
        now_ms += passes_ms
        if act == "note":
            acting, since_ms = (acting, since_ms) if who == acting else (who, now_ms)
            slaves[who].note(thing, value, now_ms, since_ms)
            last = value
        elif act == "start":
            slaves[who] = Ledger(slaves[who].whole())
        else:
            for entry in [*slaves[(who + 1) % 3].after()]:
                slaves[who].take(entry)
    random.shuffle(slaves)
    master = Ledger(entry for slave in slaves for entry in slave.after())
    assert master.get(thing) == last


def test_of_two_entries_of_one_mark_all_members_take_the_same() -> None:
    thing, mark = Thing(Subject.OFFSET, "T@G", 0), Mark(5, 1)
    both = [Entry(mark, thing, 3), Entry(mark, thing, 4)]
    assert Ledger(both).get(thing) == Ledger(reversed(both)).get(thing) == 4


def test_a_clock_that_is_set_back_puts_nothing_before_what_was_noted() -> None:
    ledger, thing = Ledger(), Thing(Subject.OFFSET, "T@G", 0)
    marks = [entry.mark for value, now_ms in enumerate((900, 900, 100, 901))
             if (entry := ledger.note(thing, value, now_ms)) is not None]
    assert marks == [Mark(900, 1), Mark(900, 2), Mark(900, 3), Mark(901, 1)]


def test_what_was_kept_is_not_taken_again_and_later_entries_are_behind_it() -> None:
    ledger, offset, half = Ledger(), Thing(Subject.OFFSET, "T@G", 0), Thing(Subject.DECIDED, "5", 0)
    for kind in Subject:
        ledger.take(Entry(Mark(4, 1), Thing(kind, "5", 0), 1))
    later = Entry(Mark(5, 2), offset, 7)
    ledger.take(later)
    assert ledger.keeps(Mark(5, 1)) and not ledger.keeps(Mark(5, 1)) and not ledger.keeps(Mark(4, 9))
    for known in (ledger, Ledger(ledger.whole()), Ledger(decode(b"".join(map(Entry.to_bytes, ledger.whole())))[0])):
        assert {entry.thing.kind for entry in known.after()} == {
            Subject.OFFSET, Subject.TIMERS, Subject.DECIDED, Subject.ACKED, Subject.HELD_TIMERS}
        assert list(known.of(*OF_TABLES)) == [later] and known.kept == Mark(5, 1)
        assert not known.take(Entry(Mark(5, 1), Thing(Subject.OFFSET, "T@H", 0), 3))
        assert known.take(Entry(Mark(4, 2), half, 0)), "no table has it"
    assert ledger.keeps(Mark(900, 0)) and not list(ledger.of(*OF_TABLES))
    noted = Ledger(decode(b"".join(map(Entry.to_bytes, ledger.whole())))[0]).note(offset, 7, 100)
    assert noted is not None and noted.mark > Mark(900, 0)
