"""Three real controllers and a name server, sixty simulated brokers in twenty groups, and a hand that kills.

    python -m harness.demo.controllers       25 s; a live view in a terminal, lines elsewhere
    python -m harness.demo.controllers --seconds 120 --groups 100 --seed 7

Kills a master; kills the masters of half of the groups at once, as when a machine dies; kills the active controller
with -9; kills both at once; and starts again what it killed. For each it shows how long it took until the new master
knew of its epoch, or until a controller accepted a command again. All that controllers answer is checked on the way.

Exit code 0; 1 when a controller answered what it must not, or something did not come back.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import attrs
import trio

from harness.demo import tables
from harness.demo.chronicle import CONTROLLERS, FILE, KILLED, Chronicle
from harness.demo.command import PATIENCE_S, parser, play
from harness.demo.display import Display
from harness.demo.reporting import Reporter
from harness.fleet import BrokerGroup, Fleet, FleetConfig, SimulatedBroker, open_fleet
from harness.processes import ours
from harness.processes.handle import Handle
from remoting.bodies.namesrv import ClusterInfo
from remoting.client import checked, open_client
from remoting.codes import RequestCode
from remoting.command import request
from remoting.errors import RemotingError
from remoting.headers.controller import ApplyBrokerIdRequest, GetNextBrokerIdRequest

FOUND_S = 0.6
"""A controller is found by brokers within a heartbeat and this."""
PROBE = "probe"
"""A broker group in which ids are applied for, one after the other, to see whether commands are accepted."""
PROBE_PAUSE_S = 0.005


@attrs.define
class Tally:
    """Times in which masters and controllers were away, in milliseconds."""

    masters_ms: list[float] = attrs.field(factory=list)
    with_controller_ms: list[float] = attrs.field(factory=list)
    controllers_ms: list[float] = attrs.field(factory=list)
    latest_ms: dict[str, float] = attrs.field(factory=dict)
    probe_ids: list[int] = attrs.field(factory=list)
    deposed: int = 0
    """Masters that were replaced although nothing but the active controller was killed."""


@attrs.define(eq=False)
class FleetStory:
    """The servers, the fleet, and what is done to them."""

    controllers: Sequence[Handle]
    namesrv: Handle
    fleet: Fleet
    display: Display
    rng: Random
    tally: Tally = attrs.field(factory=Tally)
    chronicle: Chronicle = attrs.field(factory=Chronicle)

    # --- what is done ----------------------------------------------------------------------------------------

    async def kill_a_master(self) -> None:
        await self._masters_fail([self.rng.choice(self.fleet.groups)])

    async def kill_a_host(self) -> None:
        """Kill half of all masters at once."""
        await self._masters_fail(self.rng.sample(self.fleet.groups, max(len(self.fleet.groups) // 2, 1)))

    async def kill_the_active_controller(self) -> None:
        active, epochs = await self._active(), [group.newest.master_epoch for group in self.fleet.groups]
        began = trio.current_time()
        fault = self.chronicle.begins(KILLED, [_id(active)], [CONTROLLERS])
        await active.kill()
        took = await self._until_accepted(began)
        self.tally.controllers_ms.append(took)
        self.display.say(f"active controller {_id(active)} killed with -9; {_id(await self._active())} accepted the "
                         f"next command after {took:.0f} ms")
        await self._start_again(active)
        self.chronicle.undone(fault)
        with trio.fail_after(PATIENCE_S):
            await self.fleet.settled()
        self.tally.deposed += sum(group.newest.master_epoch != epoch
                                  for group, epoch in zip(self.fleet.groups, epochs, strict=True))

    async def kill_both(self) -> None:
        """Kill a master and the active controller at once."""
        active = await self._active()
        fault = self.chronicle.begins(KILLED, [_id(active)], [CONTROLLERS])
        await self._masters_fail([self.rng.choice(self.fleet.groups)], active)
        await self._start_again(active)
        self.chronicle.undone(fault)

    async def _start_again(self, controller: Handle) -> None:
        """Start a controller, and wait until brokers find it: else it must wait out timeouts of masters never heard."""
        await controller.start()
        await trio.sleep(self.fleet.config.heartbeat_ms / 1e3 + FOUND_S)

    async def _masters_fail(self, groups: Sequence[BrokerGroup], controller: Handle | None = None) -> None:
        masters = [group.master for group in groups]
        lost = [master for master in masters if master is not None]
        assert len(lost) == len(groups), "everything was settled"
        epochs = [master.view.master_epoch for master in lost]
        began = trio.current_time()
        fault = self.chronicle.begins(KILLED, [f"{broker.broker_id} of {group.name}"
                                               for broker, group in zip(lost, groups, strict=True)],
                                      [group.name for group in groups])
        if controller is not None:
            await controller.kill()
        self.fleet.kill(*lost)
        took = [0.0] * len(groups)
        new: list[SimulatedBroker] = list(lost)

        async def watch(place: int) -> None:
            new[place] = await self.fleet.wait_master(groups[place], epochs[place])
            took[place] = (trio.current_time() - began) * 1e3
            self.tally.latest_ms[groups[place].name] = took[place]

        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for place in range(len(groups)):
                    nursery.start_soon(watch, place)
        (self.tally.masters_ms if controller is None else self.tally.with_controller_ms).extend(took)
        what, who = f"{len(lost)} masters at once", "all replaced"
        if len(lost) == 1:
            what = f"master {lost[0].broker_id} of {groups[0].name}"
            who = f"broker {new[0].broker_id} leads in epoch {new[0].view.master_epoch}"
        also = f" and active controller {_id(controller)}" if controller is not None else ""
        self.display.say(f"{what}{also} killed; {who} after {max(took):.0f} ms")
        for broker in lost:
            self.fleet.restart(broker)
        self.chronicle.undone(fault)
        with trio.fail_after(PATIENCE_S):
            await self.fleet.settled(groups)

    # --- what is seen ----------------------------------------------------------------------------------------

    async def _active(self) -> Handle:
        with trio.fail_after(PATIENCE_S):
            address = await self.fleet.wait_active()
        return next(process for process in self.controllers if process.address == address)

    async def _until_accepted(self, began: float) -> float:
        """Return the milliseconds until a controller has logged a command and answered it."""
        cluster = self.fleet.config.cluster
        with trio.fail_after(PATIENCE_S):
            while True:
                try:
                    answer = await self.fleet.ask_active(
                        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequest(cluster, PROBE))
                    broker_id = int(answer.ext["nextBrokerId"])
                    await self.fleet.ask_active(RequestCode.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequest(
                        cluster, PROBE, broker_id, f"demo;{time.time_ns()}"))
                except RemotingError:
                    await trio.sleep(PROBE_PAUSE_S)
                else:
                    self.tally.probe_ids.append(broker_id)
                    return (trio.current_time() - began) * 1e3

    async def show(self) -> None:
        """Keep the live view fresh."""
        while self.display.live:
            tally, rows = self.tally, []
            for process in self.controllers:
                role = "active" if process.address == self.fleet.active else "follower"
                rows.append((_id(process), process.address, role if process.running else "down"))
            both = len(tally.with_controller_ms)
            self.display.show(
                tables.servers("controllers", rows), tables.fleet(self.fleet.groups, tally.latest_ms),
                f"replaced: masters {len(tally.masters_ms) + both}, "
                f"active controllers {len(tally.controllers_ms) + both}; "
                f"checks passed: {sum(self.fleet.witness.checks.values())}")
            await trio.sleep(0.1)

    async def routes_agree(self) -> int:
        """Return in how many groups the name server has the present master as id 0."""
        async with open_client() as client:
            answer = checked(await client.call(
                self.namesrv.address, request(RequestCode.GET_BROKER_CLUSTER_INFO)), self.namesrv.address)
        table = ClusterInfo.from_json(answer.body).broker_addr_table
        return sum(
            group.master is not None and group.name in table
            and table[group.name].broker_addrs.get(0) == group.master.address for group in self.fleet.groups)


@asynccontextmanager
async def staged(arguments: argparse.Namespace, data: Path, display: Display) -> AsyncIterator[FleetStory]:
    """A running cluster with all brokers in sync."""
    async with ours.controllers(data / "controllers") as controllers, ours.namesrv(data / "namesrv") as namesrv:
        config = FleetConfig(groups=arguments.groups, catch_up_ms=100)
        async with open_fleet([each.address for each in controllers], [namesrv.address], config) as fleet:
            began = trio.current_time()
            with trio.fail_after(PATIENCE_S + arguments.groups / 20):
                await fleet.start()
            display.say(f"3 controllers, 1 name server; {len(fleet.brokers)} brokers in {len(fleet.groups)} groups "
                        f"registered and in sync after {trio.current_time() - began:.1f} s")
            yield FleetStory(controllers, namesrv, fleet, display, Random(arguments.seed))


async def run(arguments: argparse.Namespace, data: Path, reporter: Reporter) -> int:
    """Play the whole demo; return the exit code."""
    display = Display()
    display.say(f"data and logs: {data}")
    with display.running():
        async with staged(arguments, data, display) as story, trio.open_nursery() as nursery:
            nursery.start_soon(story.show)
            reporter.prepare()
            ends = trio.current_time() + arguments.seconds
            acts = (story.kill_a_master, story.kill_a_master, story.kill_the_active_controller, story.kill_a_host,
                    story.kill_both)
            for number, act in enumerate(itertools.cycle(acts)):
                if trio.current_time() >= ends and number >= len(acts):
                    break
                await act()
                await trio.sleep(0.2)
            with trio.fail_after(PATIENCE_S):
                await story.fleet.settled()
                while (agreeing := await story.routes_agree()) < len(story.fleet.groups):
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    story.chronicle.write(data / FILE, {})
    return report(story, agreeing)


def report(story: FleetStory, agreeing: int) -> int:
    """Say the last lines, in either kind of display; return the exit code."""
    say, tally, witness = Display().say, story.tally, story.fleet.witness
    say("")
    say(_line("masters replaced", tally.masters_ms, "kill to the new master knowing its epoch"))
    say(_line("active controllers replaced", tally.controllers_ms, "kill -9 to the next accepted command"))
    say(_line("both at once", tally.with_controller_ms, "kill -9 to the new master knowing its epoch"))
    say(f"name server: {agreeing} of {len(story.fleet.groups)} groups have the present master as id 0")
    violations = list(witness.violations)
    if len(set(tally.probe_ids)) != len(tally.probe_ids):
        violations.append(f"{PROBE}: an id was given twice: {tally.probe_ids}")
    if tally.deposed:
        violations.append(f"{tally.deposed} masters were deposed by the loss of a controller alone")
    checked_ = ", ".join(f"{name} ({count})" for name, count in sorted(witness.checks.items()))
    say(f"checked on every answer: {checked_}")
    for violation in violations:
        say(f"BROKEN: {violation}")
    say("NO INVARIANT WAS BROKEN" if not violations else f"{len(violations)} INVARIANTS WERE BROKEN: this is a bug")
    return 1 if violations else 0


def _line(what: str, took_ms: Sequence[float], from_to: str) -> str:
    if not took_ms:
        return f"{what}: 0"
    return (f"{what}: {len(took_ms)}; {from_to}: median {statistics.median(took_ms):.0f} ms, "
            f"most {max(took_ms):.0f} ms")


def _id(process: Handle | None) -> str:
    return process.name.rsplit(" ", 1)[-1] if process is not None else "nobody"


def main() -> int:
    """Parse the command line and run."""
    assert __doc__ is not None
    options = parser("python -m harness.demo.controllers", __doc__, seconds=25.0)
    options.add_argument("--groups", type=int, default=20, help="broker groups of three; default: %(default)s")
    return play(run, options.parse_args())


if __name__ == "__main__":
    sys.exit(main())
