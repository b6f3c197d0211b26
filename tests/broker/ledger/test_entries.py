"""The entries of the acting ledger: bytes that are damaged or torn, and which of several entries counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.ledger.entries import Entry, Ledger, Mark, Subject, Thing, decode

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NUMBER = st.integers(0, (1 << 63) - 1)
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
    assert ledger.forget(end) == len(last) - (thing in last)
    assert list(ledger.after()) == [noted] and ledger.get(thing) == -1
