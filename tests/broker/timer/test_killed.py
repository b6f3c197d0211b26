"""Real processes, killed with -9 while timers wait in them: each comes, none too early, none more than once again.

Real time passes here, so nothing is asserted about how late they are.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

from broker.client import connect
from remoting.client import open_client
from tests.broker.test_processes import cluster
from tests.broker.waiting import alone, create, early, read, runtime, timers

pytestmark = pytest.mark.slow


async def test_a_thousand_timers_outlive_their_only_broker_twice(tmp_path: Path) -> None:
    """Killed before the first one is due, and when a third of them came."""
    async with alone(tmp_path) as (broker, client):
        due_ms = await timers(client, 1_000, ahead_ms=8_000, over_ms=6_000)
        await broker.kill()
        await broker.start()
        some = await read(client, lambda reader: len(reader.came) > 300)
        await broker.kill()
        await broker.start()
        came = await read(client, lambda reader: reader.bodies >= due_ms.keys())
    counts = Counter(message.body for message in came)
    assert 300 < len({message.body for message in some}) < 1_000, "the second kill meets the delivery"
    assert counts.keys() == due_ms.keys()
    assert max(counts.values()) <= 2
    assert early(came, due_ms) == []


async def test_timers_due_right_behind_a_kill_come_from_the_next_master(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, connect([made.namesrv]) as client:
        master = await made.master(in_sync=3)
        await create(client)
        due_ms = await timers(client, 100, ahead_ms=3_000, over_ms=1_000)
        await master.kill()
        assert await made.master(in_sync=2) is not master
        came = await read(client, lambda reader: reader.bodies >= due_ms.keys())
    counts = Counter(message.body for message in came)
    assert counts.keys() == due_ms.keys()
    assert max(counts.values()) <= 2
    assert early(came, due_ms) == []


async def test_timers_due_while_too_few_are_in_sync_come_when_enough_are(tmp_path: Path) -> None:
    """Five seconds of that; a Java broker gives up after one and a half."""
    async with cluster(tmp_path) as made, connect([made.namesrv]) as client, open_client() as remoting:
        master = await made.master(in_sync=3)
        await create(client)
        due_ms = await timers(client, 100, ahead_ms=3_000, over_ms=1_000)
        slaves = [broker for broker in made.brokers if broker is not master]
        for slave in slaves:
            await slave.kill()
        said: dict[str, str] = {}
        with trio.fail_after(60):
            while int(said.get("timerReadBehind", 0)) < 5:
                await trio.sleep(0.2)
                said = await runtime(remoting, master)
        assert "2 are needed" in said["timerWaitsFor"], said["timerWaitsFor"]
        await slaves[0].start()
        came = await read(client, lambda reader: reader.bodies >= due_ms.keys())
    counts = Counter(message.body for message in came)
    assert counts == dict.fromkeys(due_ms, 1)
    last_ms = max(due_ms.values())
    assert all(message.store_time_ms > last_ms + 2_500 for message in came), "none was stored meanwhile"
