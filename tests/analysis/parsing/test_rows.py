"""Rows out of hand-made segments, and the same from the library's own writer as its own reader has them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cbor2
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.parsing.rows import Payload, Place, Wanted, batches
from analysis.parsing.selection import Selection
from analysis.parsing.tables import tabulate
from analysis.parsing.walk import Cursor, walk
from analysis.schemas import Format, arrow_schema
from raft.frame import build
from raft.messages import Write
from raft.storage.audit import records
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage
from tests.analysis.by_hand import OWNER, Log, frame, frames, hard_state, mark_of, state, truncate

PLACE = Place("c", "n0", "log/1.seg", 1, {2: "orders"})


def rows(data: bytes, form: Format, *, owner: int = OWNER, segment: int = 1, payload: Payload = "none", prefix: int = 4,
         selection: Selection | None = None) -> list[dict[str, Any]]:
    found = walk(data, owner, segment, Cursor(), sealed=False)
    good, damages = tabulate(data, found, {})
    wanted = Wanted(form, payload, prefix, selection or Selection())
    made = list(batches(good, found, damages, PLACE, wanted))
    for batch in made:
        assert batch.schema.equals(arrow_schema(form))
        batch.validate(full=True)
    table = pa.Table.from_batches(made, arrow_schema(form))
    found_rows: list[dict[str, Any]] = table.to_pylist()
    return found_rows


def sample() -> Log:
    log = Log()
    log.begin()
    log.block(frame(1, b"alpha", b"", b"gamma!", wall_ms=1000))
    log.block(*frames(1, [1], group=2, term=5, wall_ms=2000), frame(4, b"d", wall_ms=1500))
    log.block()
    return log


def columns(found: Sequence[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in found]


def test_entries() -> None:
    log = sample()
    found = rows(log.data(1), "entries", payload="full")
    assert columns(found, "group", "group_id", "term", "index", "wall_ms", "payload_bytes", "payload") == [
        ("1", 1, 1, 1, 1000, 5, b"alpha"), ("1", 1, 1, 2, 1000, 0, b""), ("1", 1, 1, 3, 1000, 6, b"gamma!"),
        ("orders", 2, 5, 1, 2001, 7, b"entry 1"), ("1", 1, 1, 4, 1500, 1, b"d"),
    ]
    assert columns(found, "node", "kind") == [("n0", "commands")] * 5
    assert columns(found[2:], "wall_time") == [
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),), (datetime(1970, 1, 1, 0, 0, 2, 1_000, tzinfo=UTC),),
        (datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),)]
    assert {row["offset"] for row in found[:3]} == {log.starts[1][1] + 64}
    assert columns(found, "write", "segment", "truncated", "file", "damage", "reason") == [
        (write, 1, False, None, None, None) for write in (2, 2, 2, 3, 3)]


@pytest.mark.parametrize("form", ["entries", "frames", "events"])
def test_a_clock_beyond_the_years_of_timestamps_gives_its_milliseconds_alone(form: Format) -> None:
    log = Log()
    log.begin()
    last = 253_402_300_799_999
    log.block(frame(1, b"", kind=2, wall_ms=last), frame(1, b"", kind=2, group=2, wall_ms=last + 1),
              frame(1, b"", kind=2, group=3, wall_ms=(1 << 63) - 1))
    log.block()
    found = [row for row in rows(log.data(1), form) if row["kind"] == "noop"]
    assert columns(found, "wall_ms", "wall_time") == [
        (last, datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)), (last + 1, None), ((1 << 63) - 1, None)]
    if form == "events":
        assert columns(found, "after_time") == [(None,), (found[0]["wall_time"],), (None,)]


def test_payload_by_prefix_and_not_at_all() -> None:
    data = sample().data(1)
    assert columns(rows(data, "entries", payload="prefix"), "payload") == [
        (b"alph",), (b"",), (b"gamm",), (b"entr",), (b"d",)]
    assert columns(rows(data, "entries"), "payload") == [(None,)] * 5


def test_frames() -> None:
    log = sample()
    found = rows(log.data(1), "frames", payload="full")
    assert columns(found, "index", "last_index", "count", "frame_bytes", "payload_bytes", "synced") == [
        (1, 3, 3, 64 + 12 + 11, 11, 1), (1, 1, 1, 64 + 4 + 7, 7, 2), (4, 4, 1, 64 + 4 + 1, 1, 2)]
    assert columns(found, "cluster", "file") == [("c", "log/1.seg")] * 3
    first = log.data(1)[log.starts[1][1] + 64 :]
    assert (found[0]["mark"], found[0]["body_crc"]) == (
        mark_of(first), int.from_bytes(first[48:52], "little"))
    assert found[0]["payload"] == first[64 : 64 + 23]
    assert rows(log.data(1), "frames", payload="prefix", prefix=6)[0]["payload"] == first[64:70]


def test_events() -> None:
    log = Log()
    log.begin(state(1, 4, 2, 99, hard_term=3, vote="n2"))
    won = {"leader": "n0", "cause": "timeout", "rounds": 2, "votes": ["n0", "n1"], "previous_leader": "n2",
           "election_ms": 150}
    noop = frame(5, cbor2.dumps(won), kind=2, term=4, wall_ms=7000, chain=99)
    member = frame(6, cbor2.dumps([["n0", "n1"], [], ["n3"], {"n0": ["h:1", b"\1" * 16, 0]}]), kind=3, term=4,
                   wall_ms=7001, chain=mark_of(noop))
    log.block(hard_state(1, 4, None), noop)
    log.block(member, frame(7, b"", kind=2, term=4, wall_ms=7002, chain=mark_of(member)))
    log.life = 8
    log.block(truncate(1, 6, 4, mark_of(member)))
    log.block()
    found = rows(log.data(1), "events")
    assert columns(found, "kind", "term", "index", "mark", "voted_for", "wall_ms", "after_ms", "truncated") == [
        ("opened", None, None, None, None, None, None, False),
        ("state", 3, 4, 99, "n2", None, None, False),
        ("hard_state", 4, None, None, None, None, None, False),
        ("noop", 4, 5, mark_of(noop), None, 7000, None, False),
        ("membership", 4, 6, mark_of(member), None, 7001, 7000, False),
        ("noop", 4, 7, found[5]["mark"], None, 7002, 7001, True),
        ("opened", None, None, None, None, None, 7002, False),
        ("truncate", 4, 6, mark_of(member), None, None, 7002, False),
    ]
    assert json.loads(found[3]["detail"]) == won
    assert json.loads(found[4]["detail"])["learners"] == ["n3"] and found[5]["detail"] is None
    assert json.loads(found[6]["detail"]) == {"life": 8}


def test_damage_is_a_row_of_every_format() -> None:
    log = sample()
    data = bytearray(log.data(1))
    at = log.starts[1][1] + 64
    data[at + 64 + 12] ^= 1
    forms: tuple[Format, ...] = ("entries", "frames", "events")
    for form in forms:
        found = [row for row in rows(bytes(data), form) if row["damage"] is not None]
        assert columns(found, "kind", "node", "file", "segment", "offset", "damage") == [
            ("damage", "n0", "log/1.seg", 1, at, "crc")]
        assert "body of frame 1" in found[0]["reason"]


def test_selection_leaves_out_what_was_not_asked_for() -> None:
    data = sample().data(1)
    some = Selection()
    some.index.narrow(2, 3)
    assert columns(rows(data, "entries", selection=some), "index") == [(2,), (3,)]
    assert columns(rows(data, "frames", selection=some), "index") == [(1,)]
    late = Selection(groups=frozenset({"orders"}))
    assert columns(rows(data, "entries", selection=late), "group_id") == [(2,)]
    late.wall_ms.narrow(high=1999)
    assert rows(data, "entries", selection=late) == []
    assert columns(rows(data, "entries", selection=Selection(kinds=frozenset({"noop", "damage"}))), "index") == []


@pytest.mark.parametrize("seed", range(3))
def test_the_writers_own_log_reads_as_its_own_reader_has_it(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    files = DirectoryFiles(tmp_path)
    files.lock()
    identity = format_directory(files, "c", "n0", rng.randbytes(16))
    storage = SegmentStorage(files, "c", "n0", segment_bytes=64 << 10, rng=rng)
    storage.open()
    tails = {1: (0, 0), 2: (0, 0)}
    for _ in range(300):
        group = rng.choice((1, 2))
        last, chain = tails[group]
        payloads = [rng.randbytes(rng.choice((0, 1, 30, 200))) for _ in range(rng.choice((1, 1, 2, 17)))]
        made = build(kind=1, group=group, term=1, first=last + 1, payloads=payloads, wall_ms=5, chain=chain)
        tails[group] = made.last, made.mark
        storage.write([Write(0, group, frames=[made])])
        storage.sync()
    storage.close()
    plain = []
    for record in records(files):
        if record.frame is not None:
            plain += [(record.group, record.frame.first + at, payload, record.offset, record.write)
                      for at, payload in enumerate(record.frame.payloads())]
    found: list[tuple[Any, ...]] = []
    segments = sorted(tmp_path.glob("log/0*.seg"))
    for path in segments:
        its = rows(path.read_bytes(), "entries", owner=identity.owner, segment=int(path.stem), payload="full")
        found += columns(its, "group_id", "index", "payload", "offset", "write")
    assert found == plain and len(segments) > 1
    files.unlock()


@given(st.binary(max_size=300), st.integers(0, 2000), st.integers(0, 300))
def test_no_bytes_make_it_fail(junk: bytes, at: int, keep: int) -> None:
    """Anything may lie in a file: rows or damage come of it, never an error."""
    data = sample().data(1)[:1500]
    broken = data[:at] + junk + data[at + len(junk) - keep :]
    for form in ("entries", "events"):
        rows(broken, form, payload="full")
