"""``mqcluster watch`` at a cluster of Java's servers alone: name server, controllers and brokers.

It starts them, and runs the command's code.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from harness.processes import java
from harness.scenarios.interop.scenario import Stage, expect, scenario
from mqcluster.watching import Sight, see
from remoting.client import open_client

PATIENCE_S = 90.0


@scenario("5.5.0")
async def our_watch_sees_a_java_cluster(stage: Stage) -> None:
    """`mqcluster watch` at Java's servers alone: set, epoch, lag; kill -9 the master, then the active controller."""
    release, here = stage.release, stage.here
    async with (
        java.namesrv(release, here / "namesrv") as namesrv,
        java.controllers(release, here / "controllers") as controllers,
        java.broker(release, here / "b0", namesrv=[namesrv.address],
                    controllers=[each.address for each in controllers]) as first,
        java.broker(release, here / "b1", namesrv=[namesrv.address],
                    controllers=[each.address for each in controllers]) as second,
        open_client() as client,
    ):
        async def until(wanted: Callable[[Sight], bool], what: str) -> Sight:
            sight = None
            with trio.move_on_after(PATIENCE_S):
                while sight is None or not wanted(sight):
                    sight = await see(client, [namesrv.address])
                    await trio.sleep(0.2)
                stage.say(f"{what}: {sight.to_plain()}")
                return sight
            expect(False, f"{what}: not within {PATIENCE_S:g} s; last seen: {sight}")
            raise AssertionError

        sight = await until(lambda it: it.well and len(it.groups[0].brokers) == 2 and all(
            each.in_sync and it.groups[0].lag_bytes(each) == 0 for each in it.groups[0].brokers), "both in sync")
        expect(sight.groups[0].epoch == 1, f"the first master's epoch is {sight.groups[0].epoch}")
        expect({*sight.controllers} == {each.address for each in controllers}, "a broker named other controllers")
        dead, lives = (first, second) if sight.groups[0].master == first.address else (second, first)
        await dead.kill()
        sight = await until(lambda it: it.well and it.groups[0].master == lives.address, "the other leads")
        expect(sight.groups[0].epoch == 2, f"the second master's epoch is {sight.groups[0].epoch}")
        active = next(each for each in controllers if each.address == sight.active)
        await active.kill()
        sight = await until(lambda it: it.active not in (None, active.address), "another controller is active")
        expect(sight.controllers[active.address] is None, "the dead controller answers")
        await until(lambda it: it.well and it.groups[0].epoch == 2, "it says who leads the group, as before")
