"""Every question on four clusters put together by hand, held against a plain-Python reading of the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from analysis.logs import Logs, open_logs
from analysis.questions import QUESTIONS
from analysis.schemas import time_of
from tests.analysis import clusters, plain
from tests.analysis.questions import plainly
from tests.analysis.scene import T0

pytestmark = [pytest.mark.java, pytest.mark.slow]

MOMENTS = ("wall_ms", "began_ms", "until_ms", "first_write_ms", "last_write_ms", "bucket_ms", "lost_ms", "recovered_ms",
           "from_ms", "snapshot_taken_ms")
SPLIT_MS = T0 + 2_500
UNSAID = ("node", "file", "offset")
"""Of what the controllers decided: any replica's copy of the frame will do."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("clusters")
    clusters.write(root)
    return root


@pytest.fixture(scope="module", params=[True, False], ids=["driver", "workers"])
def logs(request: pytest.FixtureRequest, spark: SparkSession, tree: Path) -> Iterator[Logs]:
    found = open_logs(spark, str(tree), split_ms=SPLIT_MS, in_driver=request.param)
    found.keep()
    yield found
    found.release()


@pytest.fixture(scope="module")
def world(tree: Path) -> plainly.World:
    nodes = [plain.node(path.parent) for path in sorted(tree.glob("*/*/identity"))]
    times = [frame.wall_ms for node in nodes for frame in node.frames]
    events = [event for cluster in ("c", "d", "f") for event in plain.traces(tree / cluster / "traces", cluster)]
    return plainly.World(nodes, events, 50, (min(times), SPLIT_MS, max(times) + 1))


@pytest.fixture(scope="module")
def expected(world: plainly.World) -> dict[str, list[plainly.Row]]:
    return plainly.answers(world, [("c", 1), ("d", 1)])


def comparable(rows: list[dict[str, Any]], columns: list[str]) -> list[str]:
    """Of these columns, in an order of their own; figures to nine digits."""
    def told(value: Any) -> Any:
        if isinstance(value, datetime):  # Spark gives it in the machine's own zone, and does not say so
            return value.astimezone(UTC).isoformat()
        return float(f"{value:.9g}") if isinstance(value, (int, float)) and not isinstance(value, bool) else value

    return sorted(repr([(name, told(row.get(name))) for name in columns]) for row in rows)


def test_every_question_has_a_plain_answer(expected: dict[str, list[plainly.Row]]) -> None:
    assert set(expected) == set(QUESTIONS)
    assert all(expected.values()), "and one with rows"


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_the_answer_is_the_plain_one(logs: Logs, expected: dict[str, list[plainly.Row]], name: str) -> None:
    rows = [row.asDict() for row in logs.ask(name).collect()]
    moments = [column for column in MOMENTS if column in expected[name][0]]
    told = [{**row, **{time_of(moment): None if row[moment] is None else datetime.fromtimestamp(
        row[moment] / 1_000, UTC) for moment in moments}} for row in expected[name]]
    ours = set(told[0])
    columns = [column for column in QUESTIONS[name].columns if column in ours]
    assert set(QUESTIONS[name].columns) - ours <= {*UNSAID, "detail"}
    assert comparable(rows, columns) == comparable(told, columns)


@pytest.mark.parametrize("name", ["master_changes", "outages", "broker_ids"])
def test_what_controllers_decided_is_shown_where_it_lies(logs: Logs, world: plainly.World, name: str) -> None:
    places = {(frame.cluster, frame.file, frame.offset): frame for frame in world.frames()}
    for row in logs.ask(name).collect():
        frame = places[row["cluster"], row["file"], row["offset"]]
        assert frame.first <= row["index"] <= frame.last


def test_the_width_of_buckets_is_the_one_taken_here(logs: Logs, world: plainly.World) -> None:
    assert logs.bucket_ms == world.bucket_ms
