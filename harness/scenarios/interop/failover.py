"""Java brokers under our controllers and our name server: they register, elect, lose masters and controllers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

from harness.processes import java, ours
from harness.processes.broker import Broker
from harness.processes.handle import Handle, start_all
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.watch import SyncState, sync_state, tool, until

GROUP = "broker-a"


@attrs.frozen
class JavaGroup:
    """Our three controllers and name server, and one group of Java brokers."""

    stage: Stage
    controllers: list[Handle]
    namesrv: Handle
    brokers: list[Broker]

    @property
    def addresses(self) -> list[str]:
        return [process.address for process in self.controllers if process.running]

    def by_address(self, address: str) -> Broker:
        return next(broker for broker in self.brokers if broker.announced == address)

    async def active(self) -> Handle:
        """The active controller, by Java's tool."""
        run = await tool(self.stage, "getControllerMetaData", "-a", self.addresses[0])
        leader = next(line.split("\t")[1] for line in run.stdout.splitlines()
                      if line.startswith("#ControllerLeaderAddress"))
        return next(process for process in self.controllers if process.address == leader)

    async def all_in_sync(self, what: str) -> SyncState:
        count = len(self.brokers)
        return await until(self.stage, self.addresses, GROUP,
                           lambda seen: seen.master is not None and len(seen.in_sync) == count, what)

    async def another_master(self, former: SyncState, what: str) -> SyncState:
        seen = await until(self.stage, self.addresses, GROUP,
                           lambda seen: seen.master not in (None, former.master), what)
        expect(seen.master in former.in_sync, f"broker {seen.master} was not in sync: {former}")
        expect(seen.master_epoch > former.master_epoch, f"the master epoch did not rise: {former}, then {seen}")
        return seen


@asynccontextmanager
async def cluster(stage: Stage, size: int) -> AsyncIterator[JavaGroup]:
    """A running group with all brokers in sync."""
    async with AsyncExitStack() as stack:
        controllers = await stack.enter_async_context(ours.controllers(stage.here / "controllers"))
        namesrv = await stack.enter_async_context(ours.namesrv(stage.here / "namesrv"))
        addresses = [process.address for process in controllers]
        brokers = [
            await stack.enter_async_context(java.broker(
                stage.release, stage.here / f"b{number}", group=GROUP, namesrv=[namesrv.address],
                controllers=addresses, start=False))
            for number in range(1, size + 1)
        ]
        await start_all(brokers)
        made = JavaGroup(stage, controllers, namesrv, brokers)
        await made.all_in_sync("all brokers in sync")
        yield made


async def _master_killed(stage: Stage, size: int) -> None:
    async with cluster(stage, size) as made:
        before = await made.all_in_sync("before")
        ids = {broker.announced: broker.broker_id() for broker in made.brokers}
        expect(sorted(filter(None, ids.values())) == list(range(1, size + 1)), f"broker ids {ids}")
        victim = made.by_address(before.master_address)
        await victim.kill()
        after = await made.another_master(before, "master killed")
        await victim.start()
        again = await made.all_in_sync("the former master is back")
        expect(again.master == after.master, f"the returning broker took mastership: {again}")
        expect(victim.broker_id() == ids[victim.announced], "the returning broker has another id")


@scenario("5.5.0", smoke=True)
async def two_java_brokers_lose_their_master(stage: Stage) -> None:
    """Two Java brokers register with our controllers; kill -9 the master: the other leads, the old one is its slave."""
    await _master_killed(stage, 2)


@scenario("5.3.3")
async def two_java_brokers_of_the_older_release(stage: Stage) -> None:
    """Two older brokers register with our controllers; kill -9 the master: the other leads, the old one follows it."""
    await _master_killed(stage, 2)


@scenario("5.5.0")
async def three_java_brokers_lose_their_master(stage: Stage) -> None:
    """Three Java brokers; kill -9 the master: a member of the SyncStateSet takes over, the old one comes back."""
    await _master_killed(stage, 3)


@scenario("5.5.0")
async def master_and_active_controller_killed_together(stage: Stage) -> None:
    """kill -9 the master and the active controller at once: a new active controller elects a new master."""
    async with cluster(stage, 2) as made:
        before = await made.all_in_sync("before")
        active, victim = await made.active(), made.by_address(before.master_address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(victim.kill)
            nursery.start_soon(active.kill)
        await made.another_master(before, "both killed")
        await active.start()
        await victim.start()
        await made.all_in_sync("both are back")


@scenario("5.5.0")
async def a_master_falls_silent(stage: Stage) -> None:
    """SIGSTOP the master: another leads after the heartbeat timeout; SIGCONT: it follows."""
    async with cluster(stage, 2) as made:
        before = await made.all_in_sync("before")
        victim = made.by_address(before.master_address)
        victim.pause()
        after = await made.another_master(before, "master silent")
        victim.resume()
        again = await made.all_in_sync("the former master is heard again")
        expect(again.master == after.master, f"it took mastership back: {again}")


@scenario("5.5.0")
async def a_new_active_controller_deposes_nobody(stage: Stage) -> None:
    """kill -9 the active controller alone: the master stays, for longer than a heartbeat timeout."""
    async with cluster(stage, 2) as made:
        before = await made.all_in_sync("before")
        active = await made.active()
        await active.kill()
        await until(stage, made.addresses, GROUP, lambda seen: True, "a new active controller")
        with trio.move_on_after(15):
            while True:
                seen = await sync_state(stage, made.addresses, GROUP)
                expect(seen is not None and (seen.master, seen.master_epoch) == (before.master, before.master_epoch),
                       f"{before}, then {seen}")


@scenario("5.5.0")
async def everything_from_disk_again(stage: Stage) -> None:
    """kill -9 all controllers and brokers, start them again: the same ids, one master, a higher or equal epoch."""
    async with cluster(stage, 2) as made:
        before = await made.all_in_sync("before")
        ids = {broker.announced: broker.broker_id() for broker in made.brokers}
        async with trio.open_nursery() as nursery:
            for process in (*made.controllers, *made.brokers):
                nursery.start_soon(process.kill)
        await start_all(made.controllers)
        await start_all(made.brokers)
        after = await made.all_in_sync("all started again")
        expect(after.master_epoch >= before.master_epoch, f"the epoch fell: {before}, then {after}")
        expect(after.replicas == before.replicas, f"other replicas: {before}, then {after}")
        expect({broker.announced: broker.broker_id() for broker in made.brokers} == ids, "other broker ids")
