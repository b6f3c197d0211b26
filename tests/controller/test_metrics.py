"""The page of metrics: the original's names, filled by what happened."""

from __future__ import annotations

from pathlib import Path

import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from controller.metrics import ControllerMetrics
from harness.simulation.worlds.controllers import World, group_of, world
from remoting.codes import RequestCode

COMMON = {"address", "group", "peer_id", "zone"}


async def test_the_page_has_the_originals_names(autojump_clock: MockClock, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 10)
    async with world(metricsLabel="zone:z1") as made:
        first, *_ = await group_of(made, "a", 2)
        await first.kill()
        await made.wait_master("a", 2)
        running = made.running[await made.active()]
        page = ControllerMetrics(running.core, running.core.recorder, running.server.counters, tmp_path)
        text = page.exposition().decode()
    samples = {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name not in COMMON)): sample
        for family in text_string_to_metric_families(text) for sample in family.samples}
    assert samples["role",].labels == {
        "address": running.address, "group": "g", "peer_id": running.core.config.self_id, "zone": "z1"}
    for key, value in (
        (("role",), 3), (("dledger_disk_usage",), 10), (("active_broker_num", "a", "c"), 1),
        (("request_total", "success", "CONTROLLER_APPLY_BROKER_ID"), 2),
        (("election_total", "a", "c", "new_master_elected"), 2),
    ):
        assert samples[key].value == value, key
    for name in ("dledger_op_total", "request_latency_bucket", "dledger_op_latency_bucket", "raft_term"):
        assert name in text


async def test_controllers_are_ready_while_one_is_active(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with world() as made:
        def page(name: str) -> ControllerMetrics:
            running = made.running[name]
            return ControllerMetrics(running.core, running.core.recorder, running.server.counters, tmp_path)

        active = await made.active()
        followers = [name for name in made.running if name != active]
        with trio.fail_after(60):
            while any(page(name).unready() for name in made.running):
                await trio.sleep(0.1)
        made.running[active].core.active.active = False
        assert "has not applied all that others committed" in page(active).unready()
        made.running[active].core.active.active = True
        for name in (active, followers[0]):
            await made.kill(name)
        with trio.fail_after(60):
            while not page(followers[1]).unready():
                await trio.sleep(0.1)
        assert page(followers[1]).unready().startswith(f"{followers[1]}: ")
        assert page(followers[1]).unhealthy() == ""


async def test_a_controller_that_stops_is_not_ready(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with world() as made:
        running = made.running[await made.active()]
        stopping = False
        page = ControllerMetrics(
            running.core, running.core.recorder, running.server.counters, tmp_path, lambda: stopping)
        assert page.unready() == ""
        stopping = True
        assert (page.unhealthy(), page.unready()) == ("", "the controller stops")


async def test_owed_is_only_what_the_active_controller_cannot_tell_a_living_broker(
    autojump_clock: MockClock, tmp_path: Path,
) -> None:
    """Not what a dead one will ask for by itself, and nothing at all on followers or where nobody is to be told."""
    def owed(made: World) -> dict[str, float]:
        found = {}
        for name, running in made.running.items():
            page = ControllerMetrics(running.core, running.core.recorder, running.server.counters, tmp_path)
            (found[name],) = [
                sample.value for family in text_string_to_metric_families(page.exposition().decode())
                for sample in family.samples if sample.name == "owed_notifications"]
        return found

    async with world() as made:
        first, second, third = await group_of(made, "a", 3)
        third.deaf = True
        await first.kill()
        await made.wait_master("a", 2)
        await trio.sleep(60)
        assert second.told and owed(made) == {name: float(name == await made.active()) for name in made.running}
        third.deaf = False
        await trio.sleep(60)
        assert third.told and set(owed(made).values()) == {0}
    async with world(notifyBrokerRoleChanged="false") as made:
        await group_of(made, "a", 2)
        await trio.sleep(60)
        assert set(owed(made).values()) == {0}


async def test_BUG_S5_elections_are_counted_under_their_cluster(autojump_clock: MockClock, tmp_path: Path) -> None:
    """Elections are counted under their group's cluster, whoever asked for them; requests under their code's name."""
    async with world(count=1) as made:
        first, *_ = await group_of(made, "a", 2)
        await first.kill()
        await made.wait_master("a", 2)
        core, server = made.running["n0"].core, made.running["n0"].server
        text = ControllerMetrics(core, core.recorder, server.counters, tmp_path).exposition().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    elections = [sample.labels for sample in samples if sample.name == "election_total"]
    assert elections and {(labels["cluster"], labels["broker_set"]) for labels in elections} == {("c", "a")}
    asked = {sample.labels["request_type"] for sample in samples if sample.name == "request_total"}
    assert asked <= {code.name for code in RequestCode} and "CONTROLLER_ELECT_MASTER" in asked
