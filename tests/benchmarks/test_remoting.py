"""The codec's benchmark does what its lines say. How fast it is, is printed, never asserted."""

from __future__ import annotations

import json

import pytest

from benchmarks.remoting import CHUNK_FRAMES, codec, measured


@pytest.mark.parametrize("case", codec(16))
def test_each_case_does_its_work(case: str) -> None:
    assert codec(16)[case]() == (CHUNK_FRAMES if "frame" in case else 1)


def test_a_line_tells_median_and_spread() -> None:
    line = json.loads(measured("x", lambda: 1_000, 0.01))
    assert line["case"] == "x"
    rates = line["per_second"]
    assert 0 < rates["low"] <= rates["median"] <= rates["high"] and rates["runs"] == 5
