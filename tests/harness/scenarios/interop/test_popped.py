"""Each point of the scenario, on our broker in virtual time."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from harness.scenarios.interop import popped
from harness.scenarios.interop.popped import LAST, POINTS, Point, RawPopper, make
from harness.simulation.worlds.brokers import cluster, wall_ms


@pytest.mark.parametrize(("point", "wanted"), POINTS)
async def test_our_broker_says_what_both_must(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, point: Point, wanted: object) -> None:
    monkeypatch.setattr(popped, "time_ns", lambda: wall_ms() * 1_000_000)
    async with cluster() as made:
        node = await made.node(**{key: str(value).lower() for key, value in LAST.items()})
        popper = RawPopper(made.client, node.address, "a", "Raw")
        await make(popper)
        assert await point(popper) == wanted
