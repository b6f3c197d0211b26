"""The trace file: every line is JSON, samples say how many they stand for, and it stays within its limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from raft.errors import ConfigError
from raft.trace import BecameFollower, CommitAdvanced, Event, VoteCast
from raft.tracefile import TraceFile, open_trace_file


def commit(index: int) -> CommitAdvanced:
    return CommitAdvanced(index, "n0", 1, 3, index, True)


def role(number: int) -> BecameFollower:
    return BecameFollower(number, "n0", 1, 3, None, f"reason {number}")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_rare_events_are_all_there_and_frequent_ones_are_sampled(tmp_path: Path,
                                                                       autojump_clock: MockClock) -> None:
    path = tmp_path / "trace.ndjson"
    async with open_trace_file(path, sample_every=10) as trace:
        for index in range(1, 26):
            trace(commit(index))
            trace(role(index))
        vote = VoteCast(9, "n0", 1, 3, "n2", 4, False, "ACCEPT", (3, 7), (3, 6))
        trace(vote)
    opened, *events = lines(path)
    assert (opened["event"], opened["version"], opened["sample_every"]) == ("Opened", 1, 10)
    assert [line["index"] for line in events if line["event"] == "CommitAdvanced"] == [1, 11, 21]
    assert [line["seen"] for line in events if line["event"] == "CommitAdvanced"] == [1, 11, 21]
    rare = [line["reason"] for line in events if line["event"] == "BecameFollower"]
    assert rare == [f"reason {number}" for number in range(1, 26)]
    assert events[-1] == vote.as_dict() | {"candidate_last": [3, 7], "own_last": [3, 6]}
    assert trace.written == len(events)


async def test_lines_reach_the_file_while_it_is_open(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "trace.ndjson"
    async with open_trace_file(path, flush_interval_ms=200) as trace:
        trace(role(1))
        assert len(lines(path)) == 1
        await trio.sleep(0.25)
        while trace.written < 1:
            await trio.sleep(0.1)
        assert lines(path)[-1]["reason"] == "reason 1"


async def test_what_does_not_fit_is_dropped_and_counted(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "trace.ndjson"
    async with open_trace_file(path, queue_events_max=5) as trace:
        for number in range(12):
            trace(role(number))
    assert trace.dropped == 7
    assert lines(path)[-1] == {"event": "Overflow", "count": 7}
    assert len(lines(path)) == 1 + 5 + 1


async def test_a_file_that_is_there_is_continued(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "trace.ndjson"
    for number in range(2):
        async with open_trace_file(path) as trace:
            trace(role(number))
    assert [line["event"] for line in lines(path)] == ["Opened", "BecameFollower"] * 2


def test_the_files_stay_within_their_limit(tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"
    trace = TraceFile(path, sample_every=1, queue_events_max=100, file_bytes_max=2_000)
    for number in range(60):
        trace(role(number))
        trace.flush()
    trace.close()
    older = tmp_path / "trace.ndjson.1"
    assert path.stat().st_size <= 2_000 and older.stat().st_size <= 2_000
    kept = [line["at_ns"] for part in (older, path) for line in lines(part) if line["event"] == "BecameFollower"]
    assert kept == list(range(kept[0], 60))
    assert sorted(found.name for found in tmp_path.iterdir()) == ["trace.ndjson", "trace.ndjson.1"]
    assert {lines(part)[0]["event"] for part in (older, path)} == {"Opened"}


def test_a_disk_that_fails_costs_the_events_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    trace = TraceFile(folder / "trace.ndjson", sample_every=1, queue_events_max=100, file_bytes_max=2_000)
    trace(role(1))
    trace.flush()
    assert (trace.dropped, trace.error is None) == (1, False)
    folder.mkdir()
    trace(role(2))
    trace.close()
    assert (trace.dropped, trace.error) == (1, None)
    assert [line["event"] for line in lines(folder / "trace.ndjson")] == ["Opened", "BecameFollower", "Overflow"]


async def test_an_exception_leaves_the_block_as_it_is_and_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"

    async def fail(scope: trio.CancelScope | None = None) -> None:
        async with open_trace_file(path) as trace:
            trace(role(1))
            if scope is not None:
                scope.cancel()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with trio.CancelScope() as scope, pytest.raises(ZeroDivisionError):
        await fail(scope)
    with trio.CancelScope() as scope:
        async with open_trace_file(path) as trace:
            trace(role(2))
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert [line["event"] for line in lines(path)] == ["Opened", "BecameFollower"] * 3


async def test_a_file_that_cannot_be_opened_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        async with open_trace_file(tmp_path / "gone" / "trace.ndjson"):
            pytest.fail("must not open")


@pytest.mark.parametrize("field", ["sample_every", "flush_interval_ms", "queue_events_max", "file_bytes_max"])
async def test_a_limit_of_zero_is_refused(tmp_path: Path, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        async with open_trace_file(tmp_path / "t", **{field: 0}):
            pytest.fail("must not open")


def test_every_event_of_the_vocabulary_makes_a_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"
    trace = TraceFile(path, sample_every=1, queue_events_max=100, file_bytes_max=1 << 20)
    kinds: list[Any] = list(Event.__subclasses__())
    for kind in kinds:
        trace(kind(1, "n0", 1, 1, *["x"] * (len(attrs.fields(kind)) - 4)))
    trace.close()
    assert [line["event"] for line in lines(path)[1:]] == [kind.__name__ for kind in kinds]
