"""What the operator's guide says of backups, done with real processes; its metrics, which must exist."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import attrs
import pytest
import trio

from harness.fleet import FleetConfig, open_fleet
from harness.processes import ours
from remoting.endpoint import Counters

ROOT = Path(__file__).parents[2]


def test_every_metric_to_alarm_on_exists() -> None:
    guide = (ROOT / "docs" / "how-to" / "run-a-controller-cluster.md").read_text()
    named = set(re.findall(r"^\| `(?:sum\()?([a-z_]+)", guide.partition("## What to alarm on")[2], re.MULTILINE))
    words = {word for path in (ROOT / "controller").glob("*.py") for word in re.findall(r'"(\w+)"', path.read_text())}
    known = words | {f"{word}_total" for word in words} | {"raft_situation"}
    known |= {f"remoting_{field.name}_total" for field in attrs.fields(Counters)}
    assert len(named) == 7
    assert named <= known


@pytest.mark.slow
def test_copies_of_two_directories_bring_a_group_back(tmp_path: Path) -> None:
    trio.run(_restore, tmp_path)


async def _give_up(address: str, other: trio.CancelScope) -> None:
    """What the guide does on the one that waits; the copy that was made later knows of nothing that it forgot."""
    while True:
        done = await trio.run_process([
            sys.executable, "-m", "raft.cli", "--cluster", "ours", "--group", "ours", "--addresses", address,
            "accept-loss", address], capture_stdout=True, capture_stderr=True, check=False)
        if done.returncode == 0 and b"nothing" not in done.stdout:
            other.cancel()
        await trio.sleep(0.1)


async def _restore(here: Path) -> None:
    async with ours.controllers(here / "c") as controllers:
        addresses = [each.address for each in controllers]
        async with open_fleet(addresses, config=FleetConfig(groups=3, catch_up_ms=50)) as fleet:
            with trio.fail_after(90):
                await fleet.start()
                for number in (0, 1):
                    await controllers[number].stop()
                    shutil.copytree(controllers[number].directory / "store", here / f"backup{number}")
                    await controllers[number].start()
                for each in controllers:
                    await each.stop()
                    shutil.rmtree(each.directory / "store")
                for number in (0, 1):
                    shutil.copytree(here / f"backup{number}", controllers[number].directory / "store")
                async with trio.open_nursery() as nursery:
                    for each in controllers:
                        nursery.start_soon(each.start)
                async with trio.open_nursery() as giving_up:
                    for number in (0, 1):
                        giving_up.start_soon(_give_up, controllers[number].address, giving_up.cancel_scope)
                group = fleet.groups[0]
                before, master = group.newest.master_epoch, group.master
                assert master is not None
                fleet.kill(master)
                await fleet.wait_master(group, before)
                fleet.restart(master)
                await fleet.settled()
            assert fleet.witness.violations == []
            ids = [sorted(broker.broker_id or 0 for broker in each.brokers) for each in fleet.groups]
            assert ids == [[1, 2, 3]] * 3
