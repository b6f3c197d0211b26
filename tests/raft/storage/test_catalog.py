"""The catalog against a plain model: whatever is written, cut, installed or dropped, both know the same entries."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import attrs
import pytest

from raft.errors import MalformedMessage
from raft.frame import Kind
from raft.messages import HardState
from raft.storage.blocks import ORIGIN, GroupState, Position
from raft.storage.catalog import (
    INDEX_BYTES,
    Base,
    Catalog,
    Segment,
    Span,
    decode_footer,
    encode_footer,
)

GROUPS = (1, 2, 3)


@attrs.frozen
class Entry:
    """One entry that the log holds: the frame it lies in, and where that is."""

    term: int
    segment: int
    offset: int
    end: Position
    kind: Kind


@attrs.define
class Model:
    """One group's log as a plain table."""

    entries: dict[int, Entry] = attrs.field(factory=dict)
    purged: Position = ORIGIN
    last: Position = ORIGIN

    def cut(self, end: Position) -> None:
        for index in [index for index in self.entries if index > end.index]:
            del self.entries[index]
        self.last = end


class Play:
    """Random writes into a catalog and its models. ``footers`` and ``records`` are what sealed segments hold."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.catalog = Catalog()
        self.footers: dict[int, bytes] = {}
        self.records: dict[int, list[tuple[str, Any]]] = {}
        self.models = {number: Model() for number in GROUPS}
        self.sequence = self.offset = self.mark = 0
        self.roll()

    def step(self) -> None:
        number = self.rng.choice(GROUPS)
        self.rng.choices((self.frame, self.truncate, self.install, self.drop, self.roll), (12, 3, 1, 2, 3))[0](number)

    def write(self, what: str, *fields: Any) -> None:
        self.records[self.sequence].append((what, fields))
        getattr(self.catalog, what)(*fields)

    def frame(self, number: int) -> None:
        model = self.models[number]
        kind = self.rng.choice((Kind.COMMANDS, Kind.COMMANDS, Kind.MEMBERSHIP))
        first, count = model.last.index + 1, 1 if kind is Kind.MEMBERSHIP else self.rng.randint(1, 3)
        term, end = model.last.term + self.rng.choice((0, 0, 1)), first + count - 1
        self.mark += 1
        self.write("frame", number, first, end, term, int(kind), self.mark, self.offset)
        model.last = Position(end, term, self.mark)
        for index in range(first, end + 1):
            model.entries[index] = Entry(term, self.sequence, self.offset, model.last, kind)
        self.offset += self.rng.choice((200, INDEX_BYTES // 2, INDEX_BYTES))

    def truncate(self, number: int) -> None:
        model = self.models[number]
        ends = {entry.end for entry in model.entries.values()} | {model.purged}
        end = self.rng.choice(sorted(ends))
        self.write("truncate", number, end)
        model.cut(end)

    def install(self, number: int) -> None:
        boundary = Position(self.rng.randint(1, 40), self.rng.randint(1, 5), self.rng.randint(1, 99))
        self.write("install", number, boundary)
        self.models[number] = Model({}, boundary, boundary)

    def drop(self, number: int) -> None:
        purge_to = {each: self.rng.randint(0, 40) for each in self.rng.sample(GROUPS, 2)}
        held = [{each for each, model in self.models.items() for index, entry in model.entries.items()
                 if entry.segment == segment.sequence and index > purge_to.get(each, 0)}
                for segment in self.catalog.segments]
        free = next((count for count, groups in enumerate(held[:-1]) if groups), len(held) - 1)
        assert self.catalog.droppable(purge_to) == free
        assert sorted(self.catalog.holders(purge_to)) == sorted(held[0])
        gone = {segment.sequence for segment in self.catalog.drop(free)}
        for model in self.models.values():
            for index in sorted(index for index, entry in model.entries.items() if entry.segment in gone):
                model.purged = model.entries.pop(index).end

    def roll(self, number: int = 0) -> None:
        if self.catalog.segments:
            sealed = self.catalog.segments[-1]
            sealed.end = self.offset
            self.footers[self.sequence] = encode_footer(sealed, 70 + self.sequence, 5)
            self.reopen()
        self.sequence, self.offset = self.sequence + 1, 64
        self.records[self.sequence] = []
        states = {each: GroupState(HardState(), model.last) for each, model in self.models.items()}
        self.catalog.begin(Segment(self.sequence, f"{self.sequence}", 1 << 30, self.sequence, states))

    def frames(self, sequence: int) -> list[tuple[str, Any]]:
        return [record for record in self.records[sequence] if record[0] == "frame"]

    def reopen(self) -> None:
        """Whoever reads the footers, or the records, knows what the catalog knows."""
        for by_footers in (True, False):
            again = Catalog()
            for number, state in self.catalog.segments[0].states.items():
                again.group(number).purged = again.group(number).last = state.last
            for segment in self.catalog.segments:
                footer = decode_footer(self.footers[segment.sequence])
                assert (footer.first_write, footer.last_write, footer.last_crc) == (
                    segment.sequence, 70 + segment.sequence, 5)
                if by_footers:
                    again.adopt(attrs.evolve(segment, spans=footer.spans, end=footer.end))
                    continue
                again.begin(attrs.evolve(segment, spans={}))
                for what, fields in self.records[segment.sequence]:
                    getattr(again, what)(*fields)
            self.same(again)

    def same(self, again: Catalog) -> None:
        for number, model in self.models.items():
            assert (again.group(number).purged, again.group(number).last) == (model.purged, model.last)
        for one, other in zip(self.catalog.segments, again.segments, strict=True):
            assert one.end == other.end and one.spans.keys() == other.spans.keys()
            for number, span in one.spans.items():
                assert attrs.astuple(attrs.evolve(span, jump=True)) == attrs.astuple(
                    attrs.evolve(other.spans[number], jump=True))

    def check(self) -> None:
        self.catalog.segments[-1].end = self.offset
        for number, model in self.models.items():
            group = self.catalog.group(number)
            assert (group.purged, group.last) == (model.purged, model.last)
            for index in range(model.last.index + 3):
                self.check_entry(number, model, index)
            runs: list[tuple[int, int]] = []
            for index, entry in sorted(model.entries.items()):
                if not runs or runs[-1][1] != entry.term:
                    runs.append((index, entry.term))
            assert self.catalog.term_runs(number) == runs
            for newest in (1, 2):
                recent = {segment.sequence for segment in self.catalog.segments[-newest:]}
                assert self.catalog.is_quiet(number, newest) is not any(
                    entry.segment in recent for entry in model.entries.values())
            memberships = [found for segment in self.catalog.segments if number in segment.spans
                           for found in segment.spans[number].memberships]
            assert memberships == [(index, entry.offset) for index, entry in sorted(model.entries.items())
                                   if entry.kind is Kind.MEMBERSHIP]

    def check_entry(self, number: int, model: Model, index: int) -> None:
        entry = model.entries.get(index)
        for term in (0, 1, 2, 3, model.purged.term, entry.term if entry else 0):
            held = index < model.purged.index or (index == model.purged.index and term == model.purged.term)
            if index > model.purged.index:
                held = entry is not None and entry.term == term
            assert self.catalog.holds(number, index, term) is held
        if index == model.purged.index:
            assert self.catalog.position_at(number, index, 9) == model.purged
        elif entry is not None:
            assert self.catalog.position_at(number, index, 9) == Position(index, entry.term, 9)
        elif index > model.last.index:
            assert self.catalog.position_at(number, index, 9) == Position(index, 0, 9)
        found = self.catalog.locate(number, index, 0)
        assert (found is None) is (entry is None)
        if found is not None and entry is not None:
            segment, extents = found
            assert segment.sequence == entry.segment
            assert extents[0].first <= index <= extents[0].last and extents[0].offset <= entry.offset
            assert entry.offset - extents[0].offset < INDEX_BYTES and entry.offset < extents[0].limit
            walked = [(first, last) for what, (group, first, last, *_, offset) in self.frames(segment.sequence)
                      if group == number and extents[0].offset <= offset <= entry.offset]
            assert walked[0][0] == extents[0].first and walked[-1][0] <= index <= walked[-1][1]
            assert all(one[1] + 1 == other[0] for one, other in pairwise(walked)), "none that was cut off lies between"
            assert [each.first for each in extents[1:]] == [each.last + 1 for each in extents[:-1]]


@pytest.mark.parametrize("seed", range(20))
def test_the_catalog_says_what_the_model_says(seed: int) -> None:
    play = Play(seed)
    for _ in range(60):
        play.step()
        play.check()


def located(max_bytes: int) -> list[tuple[int, int, int, int]]:
    catalog = Catalog()
    catalog.begin(Segment(1, "1", 1 << 30, 1, {}))
    for number in range(6):
        catalog.frame(1, 2 * number + 1, 2 * number + 2, 1, int(Kind.COMMANDS), 0, number * INDEX_BYTES)
    catalog.segments[0].end = 6 * INDEX_BYTES - 1
    found = catalog.locate(1, 4, max_bytes)
    assert found is not None
    return [tuple(each) for each in found[1]]  # type: ignore[misc]  # four numbers each


@pytest.mark.parametrize(("max_bytes", "count"), [
    (0, 2), (INDEX_BYTES - 1, 2), (INDEX_BYTES, 3), (2 * INDEX_BYTES, 4), (9 * INDEX_BYTES, 5)])
def test_so_much_is_located_as_may_be_read_and_a_piece_more(max_bytes: int, count: int) -> None:
    """The first piece may begin with entries before the wanted one."""
    ends = [*[(number + 1) * INDEX_BYTES for number in range(1, 5)], 6 * INDEX_BYTES - 1]
    assert located(max_bytes) == [
        (2 * number + 1, 2 * number + 2, number * INDEX_BYTES, ends[number - 1]) for number in range(1, 1 + count)]


@pytest.mark.parametrize(("places", "indexed"), [
    ((0, INDEX_BYTES - 1, INDEX_BYTES), [1, 3]), ((0, INDEX_BYTES, INDEX_BYTES + 9, 2 * INDEX_BYTES), [1, 2, 4])])
def test_an_index_entry_stands_every_so_many_bytes(places: tuple[int, ...], indexed: list[int]) -> None:
    catalog = Catalog()
    catalog.begin(Segment(1, "1", 1 << 30, 1, {}))
    for index, place in enumerate(places, 1):
        catalog.frame(1, index, index, min(index, 2), int(Kind.COMMANDS), 0, 64 + place)
    span = catalog.segments[0].spans[1]
    assert list(span.firsts) == indexed and span.runs == [(1, 1), (2, 2)]


def test_what_was_cut_off_does_not_lie_between_two_that_are_read() -> None:
    """Else a reader meets an entry that is not due."""
    catalog = Catalog()
    catalog.begin(Segment(1, "1", 1 << 30, 1, {}))
    for index in (1, 2, 3):
        catalog.frame(1, index, index, 1, int(Kind.COMMANDS), 0, 100 * index)
    catalog.truncate(1, Position(1, 1, 0))
    catalog.frame(1, 2, 2, 2, int(Kind.COMMANDS), 0, 400)
    span = catalog.segments[0].spans[1]
    assert (list(span.firsts), list(span.offsets), span.runs) == ([1, 2], [100, 400], [(1, 1), (2, 2)])


def test_what_a_segment_did_to_the_log_before_it_has_its_number_on_disk() -> None:
    assert [(each.name, int(each)) for each in Base] == [("CUT", 1), ("RESET", 2)]


def test_a_catalog_without_segments_has_none_to_drop() -> None:
    assert Catalog().droppable({}) == 0


@pytest.mark.parametrize("first", [5, 7])
@pytest.mark.parametrize("base", [None, (Base.CUT, Position(5, 1, 1)), (Base.RESET, Position(5, 1, 1))])
def test_a_span_that_does_not_continue_is_not_adopted(base: tuple[Base, Position] | None, first: int) -> None:
    catalog = Catalog()
    catalog.group(1).last = Position(5, 1, 1)
    with pytest.raises(MalformedMessage, match=f"continues with entry {first} after 5"):
        catalog.adopt(Segment(1, "1", 1 << 30, 1, {}, {1: Span(base, first, Position(9, 1, 2))}))
    assert catalog.segments == []
