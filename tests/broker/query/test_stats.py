"""Counters over the last minute, hour and day."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.query import stats
from broker.query.stats import (
    BROKER_GET_NUMS,
    BROKER_GET_WITHOUT_SYSTEM,
    BROKER_PUT_NUMS,
    BROKER_PUT_WITHOUT_SYSTEM,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    SAMPLE_INTERVAL_MS,
    TOPIC_PUT_NUMS,
    Stats,
)


class Watched:
    """``seconds`` pass, with a sample at each interval."""

    def __init__(self, *, is_system: Callable[[str], bool] = lambda topic: False) -> None:
        self.now_ms = 0
        self.put: dict[str, int] = {}
        self.stats = Stats("c", lambda: self.put, lambda: self.now_ms * 1_000_000,
                           is_system=is_system)

    def wait(self, seconds: int) -> None:
        for _ in range(seconds * 1_000 // SAMPLE_INTERVAL_MS):
            self.now_ms += SAMPLE_INTERVAL_MS
            self.stats.sample()

    def sums(self, name: str, key: str) -> tuple[int, int, int]:
        found = self.stats.data(name, key)
        assert found is not None
        return found.stats_minute.sum_, found.stats_hour.sum_, found.stats_day.sum_


def test_what_is_old_leaves_one_span_after_the_other() -> None:
    watched = Watched()
    watched.stats.got("g", "t", 10, 1_000)
    watched.wait(50)
    assert watched.sums(GROUP_GET_NUMS, "t@g") == (10, 10, 10)
    watched.wait(20)
    assert watched.sums(GROUP_GET_NUMS, "t@g") == (0, 10, 10)
    watched.wait(2 * 3_600)
    assert watched.sums(GROUP_GET_SIZE, "t@g") == (0, 0, 1_000)
    watched.wait(26 * 3_600)
    assert watched.stats.data(GROUP_GET_SIZE, "t@g") is None, "forgotten"


def test_rates_and_means() -> None:
    watched = Watched()
    for _ in range(6):
        watched.stats.got("g", "t", 10, 500)
        watched.stats.got("h", "t", 5, 500)
        watched.wait(10)
    data = watched.stats.data(GROUP_GET_NUMS, "t@g")
    assert data is not None
    minute = data.stats_minute
    assert (minute.sum_, round(minute.tps, 9), round(minute.avgpt, 9)) == (60, 1.0, 10.0)
    assert watched.stats.tps(BROKER_GET_NUMS, "c") == pytest.approx(1.5)
    assert watched.stats.tps(BROKER_GET_NUMS, "x") == 0


def test_messages_put_are_those_that_queues_have_more_than_before() -> None:
    watched = Watched()
    watched.put = {"t": 1_000_000}
    watched.wait(10)
    assert watched.sums(TOPIC_PUT_NUMS, "t") == (0, 0, 0), "they were there before"
    watched.put["t"] += 500
    watched.put["new"] = 7
    watched.wait(10)
    assert watched.sums(TOPIC_PUT_NUMS, "new") == (7, 7, 7)
    assert watched.sums(TOPIC_PUT_NUMS, "t") == (500, 500, 500)
    assert watched.stats.tps(TOPIC_PUT_NUMS, "t") == pytest.approx(50)
    watched.put["t"] = 3
    watched.wait(10)
    assert watched.sums(TOPIC_PUT_NUMS, "t") == (0, 0, 0), "the topic was deleted and made again"


def test_topics_of_the_system_are_in_one_sum_of_two() -> None:
    watched = Watched(is_system=lambda topic: topic == "own")
    watched.wait(10)
    watched.put = {"t": 4, "own": 3}
    watched.stats.got("g", "t", 2, 10)
    watched.stats.got("g", "own", 1, 10)
    watched.wait(10)
    for name, sums in ((BROKER_PUT_NUMS, 7), (BROKER_PUT_WITHOUT_SYSTEM, 4), (BROKER_GET_NUMS, 3),
                       (BROKER_GET_WITHOUT_SYSTEM, 2)):
        assert watched.sums(name, "c") == (sums, sums, sums), name


def test_the_page_has_each_name_of_java_s_and_says_which_are_counted() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "consuming.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[A-Z0-9_]+`(?:, `[A-Z0-9_]+`)*) \| .* \| (.+) \|$", page, re.MULTILINE)
    said = {name: not what.startswith("not counted") for names, what in rows for name in re.findall(r"\w+", names)}
    counted = {text for name, text in vars(stats).items() if name == text or name.endswith("_WITHOUT_SYSTEM")}
    assert {name for name, is_counted in said.items() if is_counted} == counted
    assert len(said) == 35
