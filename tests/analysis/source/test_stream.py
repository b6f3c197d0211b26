"""``spark.readStream.format("raftlog")`` over logs that grow, roll, are torn and are purged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from analysis.source.options import parse_options
from analysis.source.stream import RaftLogStream
from tests.analysis.by_hand import Log, frame, frames, hard_state, mark_of, segment_file, state


def stream(root: Path, **options: str) -> RaftLogStream:
    return RaftLogStream(parse_options({"path": str(root), **options}))


def step(source: RaftLogStream, start: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What one micro-batch does."""
    end = source.latestOffset(start, ReadAllAvailable())
    rows = [row for part in source.partitions(start, end) for batch in source.read(part) for row in batch.to_pylist()]
    return end, rows


def indices(rows: list[dict[str, Any]]) -> list[int]:
    assert all(row["damage"] is None for row in rows), rows
    return [row["index"] for row in rows]


def test_each_entry_once_while_the_log_grows_and_rolls(tmp_path: Path) -> None:
    log, made = Log(), frames(1, [2, 1, 3, 1])
    log.begin()
    log.block(made[0])
    log.save(tmp_path)
    source = stream(tmp_path)
    at, rows = step(source, source.initialOffset())
    assert indices(rows) == [1, 2]
    assert step(source, at) == (at, [])
    log.block(made[1])
    log.save(tmp_path)
    at, rows = step(source, at)
    assert indices(rows) == [3]
    log.block(hard_state(1, 2, None), made[2])
    log.begin(state(1, 6, 1, mark_of(made[2])))
    log.block(made[3])
    log.save(tmp_path)
    at, rows = step(stream(tmp_path), at)  # a restart knows only the offset
    assert indices(rows) == [4, 5, 6, 7]
    assert {row["segment"] for row in rows} == {1, 2}
    assert step(source, at) == (at, [])


def test_offsets_are_those_of_the_file(tmp_path: Path) -> None:
    log, made = Log(), frames(1, [1, 1])
    log.begin()
    log.block(made[0])
    log.save(tmp_path)
    source = stream(tmp_path)
    at, _ = step(source, {})
    begin = log.block(made[1])
    log.save(tmp_path)
    _, rows = step(source, at)
    assert [(row["index"], row["offset"]) for row in rows] == [(2, begin + 64)]


def test_a_block_counts_once_it_is_whole(tmp_path: Path) -> None:
    log, made = Log(), frames(1, [1, 1])
    log.begin()
    log.block(made[0])
    begin = log.block(made[1])
    log.save(tmp_path)
    path = segment_file(tmp_path, 1)
    whole = path.read_bytes()
    source = stream(tmp_path)
    at: dict[str, Any] = {}
    for torn in (begin + 30, begin + 64, begin + 64 + 70):
        path.write_bytes(whole[:torn].ljust(len(whole), b"\0"))
        at, rows = step(source, {})
        assert indices(rows) == [1]
    path.write_bytes(whole)
    assert indices(step(source, at)[1]) == [2]


def test_damage_is_a_row_and_the_stream_goes_on(tmp_path: Path) -> None:
    log, made = Log(), frames(1, [1, 1, 1])
    log.begin()
    for each in made:
        log.block(each)
    log.block()
    log.save(tmp_path)
    path = segment_file(tmp_path, 1)
    data = bytearray(path.read_bytes())
    at = log.starts[2][1] + 64
    data[at + 66] ^= 1
    path.write_bytes(data)
    end, rows = step(stream(tmp_path), {})
    assert [(row["index"], row["offset"], row["damage"]) for row in rows if row["damage"]] == [(None, at, "crc")]
    assert [row["index"] for row in rows if not row["damage"]] == [1, 3]
    assert step(stream(tmp_path), end)[1] == []


def test_a_damaged_block_header_in_a_sealed_segment(tmp_path: Path) -> None:
    log, made = Log(), frames(1, [1, 1, 1])
    log.begin()
    for each in made[:2]:
        log.block(each)
    log.begin(state(1, 2, 1, mark_of(made[1])))
    log.block(made[2])
    log.save(tmp_path)
    path = segment_file(tmp_path, 1)
    data = bytearray(path.read_bytes())
    data[log.starts[1][1] + 20] ^= 1
    path.write_bytes(data)
    _, rows = step(stream(tmp_path), {})
    assert [(row["offset"], row["damage"]) for row in rows if row["damage"]] == [(log.starts[1][1], "crc")]
    assert [row["index"] for row in rows if not row["damage"]] == [2, 3]


def test_a_batch_is_bounded(tmp_path: Path) -> None:
    log, chain = Log(), 0
    log.begin()
    for index in range(1, 5):
        made = frame(index, b"x" * 6000, chain=chain)
        chain = mark_of(made)
        log.block(made)
    log.save(tmp_path)
    source = stream(tmp_path)
    object.__setattr__(source.options, "max_bytes_per_batch", 13_000)
    at, rows = step(source, {})
    assert indices(rows) == [1, 2]
    at, rows = step(source, at)
    assert indices(rows) == [3, 4]


def test_what_is_purged_before_it_was_read_is_told(tmp_path: Path) -> None:
    log, made = Log(), frames(1, [1, 1, 1])
    log.begin()
    log.block(made[0])
    log.save(tmp_path)
    source = stream(tmp_path)
    at, _ = step(source, {})
    for each, index in ((made[1], 1), (made[2], 2)):
        log.begin(state(1, index, 1, mark_of(made[index - 1])))
        log.block(each)
    log.save(tmp_path)
    for number in (1, 2):
        segment_file(tmp_path, number).unlink()
    at, rows = step(source, at)
    assert [(row["index"], row["damage"]) for row in rows] == [(None, "missing"), (3, None)]
    assert "purged before the stream" in rows[0]["reason"]
    assert step(source, at)[1] == []


def test_what_was_read_to_its_end_may_be_purged(tmp_path: Path) -> None:
    log, made = Log(), frames(1, [1, 1])
    log.begin()
    log.block(made[0])
    log.save(tmp_path)
    source = stream(tmp_path)
    at, _ = step(source, {})
    log.begin(state(1, 1, 1, mark_of(made[0])))
    log.block(made[1])
    log.save(tmp_path)
    segment_file(tmp_path, 1).unlink()
    assert indices(step(source, at)[1]) == [2]


def test_a_segment_that_was_waited_for_and_is_purged_is_told(tmp_path: Path) -> None:
    """The stream stood at its start: its first block was not written yet."""
    log, made = Log(), frames(1, [1, 1, 1])
    log.begin()
    log.block(made[0])
    log.save(tmp_path)
    segment_file(tmp_path, 2).write_bytes(bytes(4_096))
    source = stream(tmp_path)
    at, rows = step(source, {})
    assert indices(rows) == [1] and next(iter(at.values()))[:2] == [2, 0]
    for each, index in ((made[1], 1), (made[2], 2)):
        log.begin(state(1, index, 1, mark_of(made[index - 1])))
        log.block(each)
    log.save(tmp_path)
    for number in (1, 2):
        segment_file(tmp_path, number).unlink()
    assert [(row["index"], row["damage"]) for row in step(source, at)[1]] == [(None, "missing"), (3, None)]


def test_from_now_on(tmp_path: Path) -> None:
    log, made = Log(), frames(1, [1, 1])
    log.begin()
    log.block(made[0])
    log.save(tmp_path)
    source = stream(tmp_path, start="latest")
    at = source.initialOffset()
    log.block(made[1])
    log.save(tmp_path)
    assert indices(step(source, at)[1]) == [2]


def test_an_idle_log_costs_a_small_read(tmp_path: Path) -> None:
    log, made = Log(), frames(1, [1])
    log.begin()
    log.block(made[0])
    log.save(tmp_path)
    source = stream(tmp_path)
    at, _ = step(source, {})
    ((tree, its),) = source._logs()
    before = tree.read_bytes
    assert source.latestOffset(at, ReadAllAvailable()) == at
    assert before < 1000 and its.node == "n0"


@pytest.mark.java
def test_spark_streams_what_is_there_and_what_comes(spark: SparkSession, tmp_path: Path) -> None:
    log, made = Log(), frames(1, [2, 1, 3])
    log.begin()
    log.block(made[0])
    log.save(tmp_path / "n0")
    found: list[int] = []

    def run() -> None:
        query = (
            spark.readStream.format("raftlog").option("nodes", "n0").load(str(tmp_path))
            .writeStream.foreachBatch(lambda batch, _: found.extend(row["index"] for row in batch.collect()))
            .option("checkpointLocation", str(tmp_path.parent / f"{tmp_path.name}-checkpoint"))
            .trigger(availableNow=True).start())
        query.awaitTermination(120)
        assert query.exception() is None

    run()
    assert found == [1, 2]
    log.block(made[1])
    log.block(made[2])
    log.save(tmp_path / "n0")
    run()
    assert found == [1, 2, 3, 4, 5, 6]
