"""Each point of the scenario, on our broker in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from trio.testing import MockClock

from harness.scenarios.interop import popped
from harness.scenarios.interop.popped import LAST, POINTS, Point, RawPopper, make
from harness.simulation.worlds.brokers import cluster, wall_ms


@asynccontextmanager
async def raw(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RawPopper]:
    monkeypatch.setattr(popped, "time_ns", lambda: wall_ms() * 1_000_000)
    async with cluster() as made:
        node = await made.node(**{key: str(value).lower() for key, value in LAST.items()})
        popper = RawPopper(made.client, node.address, "a", "Raw")
        await make(popper)
        yield popper


@pytest.mark.parametrize(("point", "wanted"), POINTS)
async def test_our_broker_says_what_both_must(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, point: Point, wanted: object) -> None:
    async with raw(monkeypatch) as popper:
        assert await point(popper) == wanted


async def test_who_looked_for_what_comes_back_takes_nothing_later(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw(monkeypatch) as popper:
        await popper.send("first")
        assert await popper.back(1.5) == ["first"]
        await popper.send("later")
        assert [got.body for got in await popper.pop()] == ["later"]
