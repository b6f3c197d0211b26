"""The controller beside the Java one, in one run: simulated broker groups on real connections to both.

    python -m benchmarks.controller                            # ours, and Java's where Java and Maven are found
    python -m benchmarks.controller --systems ours --parts election,host
    python -m benchmarks.controller --json benchmarks/results/controller.json

Each part runs against ours and against Java's in turn, with the same fleet. Times are milliseconds. Where a broker's
connections close, they are up to the moment at which another broker of its group is told of the new epoch (1008), so
nobody asks meanwhile; else up to what the active controller answers (1004, asked every 2 ms). Three controller
processes each, on the loopback interface, disks real. Parts: election (a master's connections close), silence,
controller (kill -9 the active one), both, host (the masters of many groups at once), steady (CPU of heartbeats),
register.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from harness.fleet import Fleet, FleetConfig, open_fleet
from harness.fleet.broker import SimulatedBroker
from harness.processes import java, ours
from harness.processes.handle import Handle
from harness.processes.java import JVM, FetchFailed, JavaMissing
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import RemotingError
from remoting.headers.controller import (
    ApplyBrokerIdRequest,
    GetNextBrokerIdRequest,
    GetReplicaInfoRequest,
    GetReplicaInfoResponse,
    RegisterBrokerToControllerRequest,
)

ASK_S = 0.002
TICKS = os.sysconf("SC_CLK_TCK")


@attrs.define(eq=False)
class System:
    """Three controllers of one kind, and the fleet on them."""

    name: str
    processes: list[Handle]
    fleet: Fleet
    told: dict[tuple[str, int], float]
    """When the first broker of a group knew of a master epoch."""

    async def replica_info(self, group: str) -> GetReplicaInfoResponse | None:
        try:
            answer = await self.fleet.ask_active(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(group))
        except RemotingError:
            return None
        return GetReplicaInfoResponse.from_ext(answer.ext)

    async def new_epoch(self, group: str, above: int) -> None:
        """Until the active controller answers with a master in a higher epoch."""
        while True:
            info = await self.replica_info(group)
            if info is not None and info.master_broker_id is not None and info.master_epoch > above:
                return
            await trio.sleep(ASK_S)

    def first_told(self, group: str, above: int) -> float:
        """When a broker of this group was first told of an epoch above this one."""
        return min(at for (name, epoch), at in self.told.items() if name == group and epoch > above)

    async def active(self) -> Handle:
        address = await self.fleet.wait_active()
        return next(process for process in self.processes if process.address == address)


Part = Callable[[System, argparse.Namespace], Awaitable[dict[str, Any]]]
PARTS: dict[str, tuple[FleetConfig, Part]] = {}


def part(config: FleetConfig) -> Callable[[Part], Part]:
    def register(run: Part) -> Part:
        PARTS[run.__name__] = config, run
        return run

    return register


def spread(values: list[float]) -> dict[str, Any]:
    """Of milliseconds."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 2)

    return {"runs": len(ordered), "min_ms": at(0), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)}


def master_of(fleet: Fleet, number: int) -> SimulatedBroker:
    master = fleet.groups[number].master
    assert master is not None
    return master


@part(FleetConfig(groups=10, replicas=3))
async def election(system: System, options: argparse.Namespace) -> dict[str, Any]:
    """A master's connections close: until a new epoch is committed."""
    fleet, took = system.fleet, []
    for number in range(options.rounds):
        group = fleet.groups[number % len(fleet.groups)]
        await fleet.settled([group])
        victim = master_of(fleet, number % len(fleet.groups))
        epoch = victim.view.master_epoch
        began = time.perf_counter()
        fleet.kill(victim)
        await fleet.wait_master(group, epoch)
        took.append((system.first_told(group.name, epoch) - began) * 1e3)
        fleet.restart(victim)
        await trio.sleep(0.05)
    return spread(took)


@part(FleetConfig(groups=4, replicas=2))
async def silence(system: System, options: argparse.Namespace) -> dict[str, Any]:
    """A master holds its connections and says nothing: from there until a new epoch; heartbeat timeout 10 s."""
    fleet = system.fleet
    took: list[float] = []

    async def one(number: int) -> None:
        victim = master_of(fleet, number)
        epoch = victim.view.master_epoch
        fleet.silence(victim)
        began = time.perf_counter()
        await system.new_epoch(fleet.groups[number].name, epoch)
        took.append((time.perf_counter() - began) * 1e3)

    async with trio.open_nursery() as nursery:
        for number in range(len(fleet.groups)):
            nursery.start_soon(one, number)
            await trio.sleep(0.7)
    return spread(took)


async def _accepted(system: System, number: int) -> None:
    """Until a write is accepted: one of the fleet's brokers registers at another address."""
    broker = system.fleet.brokers[0]
    assert broker.broker_id is not None
    while True:
        try:
            await system.fleet.ask_active(RequestCode.CONTROLLER_REGISTER_BROKER, RegisterBrokerToControllerRequest(
                broker.group.cluster, broker.group.name, broker.broker_id, f"127.0.0.9:{10_000 + number}", 0))
        except RemotingError:
            await trio.sleep(ASK_S)
        else:
            return


@part(FleetConfig(groups=5, replicas=2))
async def controller(system: System, options: argparse.Namespace) -> dict[str, Any]:
    """kill -9 the active controller: until the next write is accepted."""
    took = []
    for number in range(options.controller_rounds):
        active = await system.active()
        began = time.perf_counter()
        await active.kill()
        system.fleet._lose(active.address)
        await _accepted(system, number)
        took.append((time.perf_counter() - began) * 1e3)
        await active.start()
        await trio.sleep(2)
    return spread(took)


@part(FleetConfig(groups=5, replicas=3))
async def both(system: System, options: argparse.Namespace) -> dict[str, Any]:
    """A master and the active controller at once: until a new epoch."""
    fleet, took = system.fleet, []
    for number in range(options.controller_rounds):
        place = number % len(fleet.groups)
        await fleet.settled([fleet.groups[place]])
        victim, active = master_of(fleet, place), await system.active()
        epoch = victim.view.master_epoch
        began = time.perf_counter()
        fleet.kill(victim)
        await active.kill()
        fleet._lose(active.address)
        await system.new_epoch(fleet.groups[place].name, epoch)
        took.append((time.perf_counter() - began) * 1e3)
        fleet.restart(victim)
        await active.start()
        await trio.sleep(2)
    return spread(took)


@part(FleetConfig(groups=500, replicas=2, poll_ms=0))
async def host(system: System, options: argparse.Namespace) -> dict[str, Any]:
    """The host with the masters of 500 groups dies: until all new masters know, and so all epochs are committed."""
    fleet, took = system.fleet, []
    for _ in range(options.host_rounds):
        await fleet.settled()
        masters = [master_of(fleet, number) for number in range(len(fleet.groups))]
        epochs = {broker.group: broker.view.master_epoch for broker in masters}
        began = time.perf_counter()
        fleet.kill(*masters)
        for group, epoch in epochs.items():
            await fleet.wait_master(group, epoch)
        took.append((max(system.first_told(group.name, epoch) for group, epoch in epochs.items()) - began) * 1e3)
        for broker in masters:
            fleet.restart(broker)
    return spread(took)


@part(FleetConfig(groups=1_000, replicas=3))
async def steady(system: System, options: argparse.Namespace) -> dict[str, Any]:
    """1,000 groups x 3 beat once a second: share of one core that each controller takes."""
    await trio.sleep(5)
    before = {process.name: _cpu_s(process.pid) for process in system.processes}
    began = time.perf_counter()
    await trio.sleep(options.steady_s)
    took = time.perf_counter() - began
    return {"core_percent": {process.name: round(100 * (_cpu_s(process.pid) - before[process.name]) / took, 1)
                             for process in system.processes},
            "resident_mb": {process.name: _resident_mb(process.pid) for process in system.processes}}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _resident_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return round(int(line.split()[1]) / 1_024, 1)


@part(FleetConfig(groups=1, replicas=1))
async def register(system: System, options: argparse.Namespace) -> dict[str, Any]:
    """New brokers get ids and register (1012, 1013, 1003): calls per second of one caller, and of 64."""
    rates = {}
    for callers in (1, 64):
        done: list[int] = []
        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for mine in range(callers):
                nursery.start_soon(_register_until, system, f"r{callers}-{mine}", began + options.register_s, done)
        rates[f"{callers}_callers_per_s"] = round(sum(done) / (time.perf_counter() - began))
    return rates


async def _register_until(system: System, prefix: str, until: float, done: list[int]) -> None:
    """One caller: groups of one broker, one after the other."""
    calls = number = 0
    async with open_client() as client:
        while time.perf_counter() < until:
            address = await system.fleet.wait_active()
            name, number = f"{prefix}-{number}", number + 1
            for code, header in (
                (RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequest("c", name)),
                (RequestCode.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequest("c", name, 1, "127.0.0.1:1;1")),
                (RequestCode.CONTROLLER_REGISTER_BROKER,
                 RegisterBrokerToControllerRequest("c", name, 1, f"127.0.0.2:{number % 60_000 + 1}", 0)),
            ):
                answer = await client.call(address, request(code, header))
                assert answer.code == ResponseCode.SUCCESS, answer
                calls += 1
    done.append(calls)


# --- systems -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _ours(here: Path) -> AsyncIterator[list[Handle]]:
    async with ours.controllers(here) as processes:
        yield processes


@asynccontextmanager
async def _java(here: Path) -> AsyncIterator[list[Handle]]:
    release = await java.fetch(java.CURRENT)
    jvm = JVM(heap_mb=512, quick_start=False)
    async with java.controllers(release, here, jvm=jvm) as processes:
        yield processes


SYSTEMS = {"ours": _ours, "java": _java}


async def measure(name: str, part_name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One part on one fresh system."""
    config, run = PARTS[part_name]
    if options.groups and config.groups > options.groups:
        config = attrs.evolve(config, groups=options.groups)
    with tempfile.TemporaryDirectory(prefix="bench-controller-", dir=options.directory) as folder:
        async with SYSTEMS[name](Path(folder)) as processes:
            addresses = [process.address for process in processes]
            told: dict[tuple[str, int], float] = {}

            def switched(broker: SimulatedBroker) -> None:
                told.setdefault((broker.group.name, broker.view.master_epoch), time.perf_counter())

            async with open_fleet(addresses, config=config, on_role=switched) as fleet:
                await fleet.start()
                system = System(name, processes, fleet, told)
                if name == "java":
                    await _warm(system)
                result = await run(system, options)
                if fleet.witness.violations:
                    result["violations"] = fleet.witness.violations[:5]
                return result


async def _warm(system: System) -> None:
    """The compiler has seen elections before they count."""
    fleet = system.fleet
    for _ in range(3):
        for group in fleet.groups[:10]:
            await fleet.settled([group])
            victim = group.master
            assert victim is not None
            if len(group.brokers) < 2:
                return
            fleet.kill(victim)
            await system.new_epoch(group.name, victim.view.master_epoch)
            fleet.restart(victim)
    await fleet.settled()


async def run(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {
        "machine": {"python": platform.python_version(), "cpus": os.cpu_count(), "load": os.getloadavg()},
        "parts": {}}
    for part_name in options.parts:
        for name in options.systems:
            try:
                found: dict[str, Any] = await measure(name, part_name, options)
            except (JavaMissing, FetchFailed) as missing:
                found = {"not run": str(missing)}
            results["parts"].setdefault(part_name, {})[name] = found
            print(f"{part_name:<10} {name:<5} {json.dumps(found)}", flush=True)
    return results


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        "python -m benchmarks.controller", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=lambda text: text.split(","), default=list(SYSTEMS))
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=50, help="elections")
    parser.add_argument("--controller-rounds", type=int, default=8)
    parser.add_argument("--host-rounds", type=int, default=5)
    parser.add_argument("--steady-s", type=float, default=20)
    parser.add_argument("--register-s", type=float, default=5)
    parser.add_argument("--groups", type=int, default=0, help="at most so many, for a small machine")
    parser.add_argument("--directory", help="where the controllers' disks are")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    results = trio.run(run, options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
