"""Finding logs, planning by heads and footers, and reading ranges: without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs as arrow_fs
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from analysis.errors import BadOption, NothingToRead
from analysis.files.filesystem import Tree
from analysis.files.finding import find_logs
from analysis.parsing.rows import Wanted
from analysis.parsing.selection import Selection
from analysis.schemas import Format, arrow_schema
from analysis.source.options import parse_options
from analysis.source.planning import Range, open_log, plan
from analysis.source.pushdown import push
from analysis.source.reading import Reader
from tests.analysis.by_hand import (
    SEGMENT_BYTES,
    Log,
    frame,
    frames,
    mark_of,
    save_identity,
    segment_file,
    span,
    state,
    truncate,
)

TIME = ("wall_time",)


def at(ms: int, us: int = 0) -> datetime:
    return datetime(1970, 1, 1, 0, 0, 0, ms * 1_000 + us, tzinfo=UTC)


def three_segments() -> Log:
    """Entries 1..4, 5..8 and 9..10 of group 1, and of group 2 only in the second; built at 1000, 5000 and 9000 ms."""
    log = Log()
    log.begin()
    one = frames(1, [2, 2], wall_ms=1000)
    at = log.block(*one) + 64
    log.footer(span(1, 1, (4, 1, mark_of(one[1])), at))
    log.begin(state(1, 4, 1, mark_of(one[1])))
    two, other = frames(5, [2, 2], chain=mark_of(one[1]), wall_ms=5000, term=2), frame(1, b"x", group=2, wall_ms=5000)
    at = log.block(*two, other) + 64
    log.footer(span(1, 5, (8, 2, mark_of(two[1])), at, term=2),
               span(2, 1, (1, 1, mark_of(other)), at + sum(map(len, two))))
    log.begin(state(1, 8, 2, mark_of(two[1])), state(2, 1, 1, mark_of(other)))
    log.block(*frames(9, [2], chain=mark_of(two[1]), wall_ms=9000, term=2))
    log.block()
    return log


def planned(root: Path, *, form: Format = "entries", prune: bool = True, slack_ms: int = 0, partition_bytes: int = 1,
            selection: Selection | None = None) -> Iterator[tuple[Tree, Wanted, Range]]:
    wanted = Wanted(form, selection=selection or Selection())
    for found in find_logs([str(root)]):
        for each in plan(open_log(found), found.tree, wanted, clock_slack_ms=slack_ms, prune=prune,
                         partition_bytes=partition_bytes):
            yield Tree.of(each.log.root), wanted, each


def read(root: Path, **options: Any) -> list[dict[str, Any]]:
    batches = [batch for tree, wanted, each in planned(root, **options) for batch in Reader(tree, wanted).read(each)]
    rows: list[dict[str, Any]] = pa.Table.from_batches(
        batches, arrow_schema(options.get("form", "entries"))).to_pylist()
    return rows


def segments(root: Path, **options: Any) -> list[int]:
    return [sequence for _, _, each in planned(root, **options) for sequence, _ in each.segments]


def damage(rows: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return [(Path(row["file"]).name, row["offset"], row["damage"]) for row in rows if row["damage"] is not None]


def test_a_sound_log(tmp_path: Path) -> None:
    three_segments().save(tmp_path / "a")
    rows = read(tmp_path)
    assert [row["index"] for row in rows if row["group_id"] == 1] == list(range(1, 11))
    assert damage(rows) == []
    assert {row["node"] for row in rows} == {"n0"}


def test_logs_are_found_below_a_path_and_each_once(tmp_path: Path) -> None:
    three_segments().save(tmp_path / "x" / "deep" / "n0")
    three_segments().save(tmp_path / "y", node="n1")
    found = find_logs([str(tmp_path), str(tmp_path / "y")])
    assert [each.tree.root for each in found] == [f"{tmp_path}/x/deep/n0", f"{tmp_path}/y"]


def test_a_log_with_a_second_name_is_one_log(tmp_path: Path) -> None:
    three_segments().save(tmp_path / "runs" / "42" / "n0")
    (tmp_path / "latest").symlink_to("runs/42")
    for name in ("1-all", "2-all"):
        (tmp_path / "runs" / name).symlink_to(".")
    assert [each.tree.root for each in find_logs([str(tmp_path)])] == [f"{tmp_path}/runs/42/n0"]
    roundabout = [f"{tmp_path}/latest/n0", f"{tmp_path}/runs/../runs", f"file://{tmp_path}"]
    assert len(find_logs(roundabout)) == 1


def test_what_lies_beside_logs_does_not_hide_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An analyst may not look into the lost+found of a mounted disk, and links lead to themselves."""
    three_segments().save(tmp_path / "n0")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("lost+found", "n1"):
        (tmp_path / name).mkdir()
    scandir, closed = os.scandir, {"lost+found"}

    def guarded(path: str) -> object:
        if Path(path).name in closed:
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    assert [each.tree.root for each in find_logs([str(tmp_path)])] == [f"{tmp_path}/n0"]
    closed.add("n1")
    with pytest.raises(NothingToRead, match=r"cannot be read: .*Permission denied: .*n1"):
        find_logs([str(tmp_path)])


@pytest.mark.parametrize(("filters", "low", "high"), [
    ([EqualTo(TIME, at(5))], 5, 5), ([EqualTo(TIME, at(5, 400))], 5, 6), ([In(TIME, (at(7), at(5)))], 5, 7),
    ([GreaterThan(TIME, at(5)), LessThan(TIME, at(9))], 6, 8),
    ([GreaterThan(TIME, at(5, 400)), LessThan(TIME, at(9, 400))], 6, 9),
    ([GreaterThanOrEqual(TIME, at(5)), LessThanOrEqual(TIME, at(9))], 5, 9),
    ([GreaterThanOrEqual(TIME, at(5, 400)), LessThanOrEqual(TIME, at(9, 400))], 6, 9),
])
def test_filters_on_timestamps_bound_the_milliseconds(filters: list[Filter], low: int, high: int) -> None:
    found = Selection()
    push(found, filters)
    assert (found.wall_ms.low, found.wall_ms.high) == (low, high)


@pytest.mark.parametrize("value", [None, "1970", datetime(1970, 1, 1)])  # noqa: DTZ001
def test_what_is_no_timestamp_bounds_nothing(value: object) -> None:
    found = Selection()
    push(found, [EqualTo(TIME, value), GreaterThan(TIME, value)])
    assert found.wall_ms.open


@pytest.mark.parametrize(("bounds", "expected"), [
    ({"index": (5, 6)}, [2, 3]), ({"index": (2, 4)}, [1, 3]), ({"index": (9, 9)}, [3]), ({"term": (2, 2)}, [2, 3]),
    ({"wall_ms": (4000, 8000)}, [1, 2, 3]), ({"wall_ms": (5006, 8000)}, [2, 3]), ({"wall_ms": (0, 2000)}, [1, 3]),
])
def test_segments_whose_footer_excludes_them_are_not_read(
    tmp_path: Path, bounds: dict[str, tuple[int, int]], expected: list[int],
) -> None:
    """The newest has no footer, so it is always read."""
    three_segments().save(tmp_path)
    some = Selection()
    for name, (low, high) in bounds.items():
        getattr(some, name).narrow(low, high)
    assert segments(tmp_path, selection=some) == expected
    assert segments(tmp_path, selection=some, prune=False) == [1, 2, 3]
    assert read(tmp_path, selection=some) == read(tmp_path, selection=some, prune=False) != []


def test_a_group_is_looked_for_where_it_is(tmp_path: Path) -> None:
    three_segments().save(tmp_path)
    assert segments(tmp_path, selection=Selection(group_ids=frozenset({2}))) == [2, 3]
    assert segments(tmp_path, selection=Selection(nodes=frozenset({"other"}))) == []


def test_only_what_is_needed_is_read(tmp_path: Path) -> None:
    three_segments().save(tmp_path)
    some = Selection()
    some.index.narrow(9, 10)
    ((tree, wanted, work),) = planned(tmp_path, selection=some)
    assert len(list(Reader(tree, wanted).read(work))) == 1
    assert tree.read_bytes == SEGMENT_BYTES
    three_segments().save(tmp_path / "many" / "n0")
    found = find_logs([str(tmp_path / "many")])[0]
    plan(open_log(found), found.tree, wanted, clock_slack_ms=0, prune=True, partition_bytes=1)
    assert found.tree.read_bytes < 1.1 * SEGMENT_BYTES


def test_a_footer_of_an_earlier_life_does_not_count(tmp_path: Path) -> None:
    log = three_segments()
    log.save(tmp_path)
    path = segment_file(tmp_path, 2)
    data = bytearray(path.read_bytes())
    other = Log(sequence=77)
    other.begin()
    other.segments = {2: other.segments[1]}
    other.footer(span(1, 500, (600, 1, 0), 64))
    path.write_bytes(data[:-200] + bytes(other.segments[2])[-200:])
    some = Selection()
    some.index.narrow(5, 5)
    assert [row["index"] for row in read(tmp_path, selection=some)] == [5]


def test_flipped_byte_missing_segment_and_cut_tail(tmp_path: Path) -> None:
    log = three_segments()
    for name in ("flipped", "missing", "cut"):
        log.save(tmp_path / name)
    path = segment_file(tmp_path / "flipped", 1)
    data = bytearray(path.read_bytes())
    at = log.starts[1][1] + 64
    data[at + 70] ^= 16
    path.write_bytes(data)
    rows = read(tmp_path / "flipped")
    assert damage(rows) == [(path.name, at, "crc")]
    assert [row["index"] for row in rows if row["group_id"] == 1] == list(range(3, 11))

    segment_file(tmp_path / "missing", 2).unlink()
    rows = read(tmp_path / "missing")
    assert damage(rows) == [(path.name.replace("1.", "2."), 0, "missing")]
    assert [row["index"] for row in rows if row["group_id"] == 1] == [1, 2, 3, 4, 9, 10]

    path = segment_file(tmp_path / "cut", 3)
    at = log.starts[-2][1]
    path.write_bytes(path.read_bytes()[: at + 100])
    assert damage(read(tmp_path / "cut")) == [(path.name, at, "cut")]


def test_a_sealed_segment_that_lost_its_end(tmp_path: Path) -> None:
    log = three_segments()
    log.save(tmp_path)
    path = segment_file(tmp_path, 2)
    at = next(offset for segment, offset in log.starts if segment == 2 and offset)
    path.write_bytes(path.read_bytes()[: at + 10])
    rows = read(tmp_path)
    assert damage(rows) == [(path.name, at, "cut")]
    assert [row["index"] for row in rows if row["group_id"] == 1] == [1, 2, 3, 4, 9, 10]


def test_a_segment_that_does_not_follow(tmp_path: Path) -> None:
    """A segment of another history in the place of the second: the first does not reach it, and it not the third."""
    log = three_segments()
    log.save(tmp_path)
    forked = Log(sequence=40, chain=9)
    forked.begin(sequence=2)
    forked.segments[2] = forked.segments.pop(2)
    forked.block(*frames(5, [2], text="other", term=3))
    segment_file(tmp_path, 2).write_bytes(forked.data(2))
    codes = damage(read(tmp_path))
    assert [(name[-5:], code) for name, _, code in codes] == [("1.seg", "crc"), ("2.seg", "crc")]


@pytest.mark.parametrize("with_footers", [True, False])
def test_what_a_later_segment_cut_off_is_marked(tmp_path: Path, with_footers: bool) -> None:
    log = Log()
    log.begin()
    one = frames(1, [2, 2])
    at = log.block(*one) + 64
    if with_footers:
        log.footer(span(1, 1, (4, 1, mark_of(one[1])), at))
    log.begin(state(1, 4, 1, mark_of(one[1])))
    kept = mark_of(one[0])
    two = frames(3, [1], term=2, chain=kept)
    at = log.block(truncate(1, 2, 1, kept), *two) + 64 + 52
    if with_footers:
        log.footer(span(1, 3, (3, 2, mark_of(two[0])), at, term=2, base=[1, 2, 1, kept]))
    log.begin(state(1, 3, 2, mark_of(two[0])))
    log.block(truncate(1, 2, 1, kept), *frames(3, [1], term=3, chain=kept))
    log.block()
    log.save(tmp_path)
    for partition_bytes in (1, 1 << 30):
        rows = read(tmp_path, partition_bytes=partition_bytes)
        assert damage(rows) == []
        assert [(row["index"], row["term"], row["truncated"]) for row in rows] == [
            (1, 1, False), (2, 1, False), (3, 1, True), (4, 1, True), (3, 2, True), (3, 3, False)]


def test_a_purged_beginning_needs_a_snapshot_where_snapshots_are_kept(tmp_path: Path) -> None:
    log = three_segments()
    log.save(tmp_path)
    segment_file(tmp_path, 1).unlink()
    assert damage(read(tmp_path)) == []
    (tmp_path / "snapshots").mkdir()
    assert damage(read(tmp_path)) == [("0" * 19 + "1.seg", 0, "missing")]
    (tmp_path / "snapshots" / f"1-{4:020d}-1.snap").touch()
    assert damage(read(tmp_path)) == []


def test_snapshots_without_a_log_have_lost_one(tmp_path: Path) -> None:
    three_segments().save(tmp_path)
    for path in (tmp_path / "log").iterdir():
        path.unlink()
    assert damage(read(tmp_path)) == []
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / f"1-{4:020d}-1.snap").touch()
    assert damage(read(tmp_path)) == [(f"{1:020d}.seg", 0, "missing")]


def test_purged_while_it_is_read(tmp_path: Path) -> None:
    three_segments().save(tmp_path)
    works = list(planned(tmp_path))
    segment_file(tmp_path, 1).unlink()
    rows = [row for tree, wanted, each in works for batch in Reader(tree, wanted).read(each)
            for row in batch.to_pylist()]
    assert damage(rows) == [] and min(row["index"] for row in rows if row["group_id"] == 1) == 5
    segment_file(tmp_path, 2).rename(tmp_path / "log" / "spare-0000000001")
    three_segments().save(tmp_path)
    segment_file(tmp_path, 2).unlink()
    rows = [row for tree, wanted, each in works for batch in Reader(tree, wanted).read(each)
            for row in batch.to_pylist()]
    assert [code for _, _, code in damage(rows)] == ["missing"]


def test_openings_are_told_once_across_segments(tmp_path: Path) -> None:
    log = Log()
    log.begin()
    log.begin()
    log.life = 8
    log.block()
    log.begin()
    log.begin()
    log.save(tmp_path)
    found = [(row["segment"], row["detail"]) for row in read(tmp_path, form="events") if row["kind"] == "opened"]
    assert found == [(1, '{"life": 7}'), (2, '{"life": 8}')]


def test_an_arrow_file_system(tmp_path: Path) -> None:
    three_segments().save(tmp_path / "a")
    local = read(tmp_path)
    system = arrow_fs.SubTreeFileSystem(str(tmp_path), arrow_fs.LocalFileSystem())
    tree = Tree("sub://a", system, "a")
    assert next(entry.name for entry in tree.entries("log") or ()) == segment_file(tmp_path, 1).name
    assert tree.entries("none") is None and tree.list("none") == []
    log = open_log(find_logs([str(tmp_path)])[0])
    work = plan(log, tree, Wanted(), clock_slack_ms=0, prune=True, partition_bytes=1 << 30)
    rows = [row for each in work for batch in Reader(tree, Wanted()).read(each) for row in batch.to_pylist()]
    assert rows == local


def test_paths_without_a_log_say_what_is_wrong(tmp_path: Path) -> None:
    def words(path: str) -> str:
        with pytest.raises(NothingToRead) as caught:
            find_logs([path])
        return str(caught.value)

    assert "is empty" in words(str(tmp_path))
    assert "no such directory" in words(str(tmp_path / "nope"))
    (tmp_path / "notes.txt").write_text("hello")
    assert "no Raft log" in words(str(tmp_path)) and "notes.txt" in words(str(tmp_path))
    assert "is a file" in words(str(tmp_path / "notes.txt"))
    three_segments().save(tmp_path / "n0")
    assert "give the node's directory" in words(str(tmp_path / "n0" / "log"))
    assert "no file system for weird://" in words("weird://x/y")


def test_identities_that_cannot_be_read_are_damage(tmp_path: Path) -> None:
    three_segments().save(tmp_path / "a")
    save_identity(tmp_path / "a", form=2)
    three_segments().save(tmp_path / "b")
    (tmp_path / "b" / "identity").write_bytes(b"hello, world")
    three_segments().save(tmp_path / "c")
    rows = read(tmp_path)
    assert [(os.path.dirname(row["file"])[-1], row["damage"]) for row in rows if row["damage"] is not None] == [
        ("a", "version"), ("b", "crc")]
    assert "format 2" in rows[0]["reason"]
    assert sum(row["damage"] is None for row in rows) == 11


@pytest.mark.parametrize(("options", "words"), [
    ({"format": "rows"}, "one of frames, entries, events"), ({"payload": "some"}, "one of none, prefix, full"),
    ({"min_index": "x"}, "a whole number"), ({"partition_mb": "0"}, "1 or more"), ({"colour": "red"}, "unknown option"),
])
def test_wrong_options(options: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        parse_options({"path": "/x", **options})
    with pytest.raises(NothingToRead, match="no path"):
        parse_options({})


def test_what_follows_a_question_mark_of_an_address_stays_at_its_end() -> None:
    address = "mock://bucket/logs?endpoint_override=host:9000/x"
    tree = Tree(address, arrow_fs.LocalFileSystem(), "/bucket/logs")
    assert tree.below("n0").root == "mock://bucket/logs/n0?endpoint_override=host:9000/x"
    assert tree.path_of("n0/log/a.seg") == "mock://bucket/logs/n0/log/a.seg?endpoint_override=host:9000/x"
    assert Tree("/data/what?", None, "/data/what?").path_of("a") == "/data/what?/a"
