"""How long a client is not acknowledged to when something breaks: ours and Java's clusters under the same faults.

    python -m benchmarks.rto                                       # everything, about two hours; says how far it is
    python -m benchmarks.rto --faults stop,disk-stalled --sides ours --profiles quick --rounds 5
    python -m benchmarks.rto --faults slave-silent --clients ours --rounds 50 --add

Three controllers, a name server and three brokers, each on a host and a disk of its own (a sandbox of the kernel, as
in `harness.scenarios.failovers`), acknowledged by all in the SyncStateSet, at least two. Our client and an unmodified
Java producer with RocketMQ's defaults send all the time. A fault is held until both were acknowledged to for two
seconds again, and then undone: the figure is the longest time between two acknowledgements meanwhile. `guarded`:
ours under guardians. Java's have no `quick` profile. Needs Linux and root; Java and Maven for Java's.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import trio

from benchmarks import rto_figures as figures
from benchmarks.rto_sides import GROUP, NAMES, PATIENCE_S, Side, Stand, stand
from broker.client import ClientError, Message, connect
from harness.nemesis import sandbox
from harness.nemesis.network import Network, namespaces
from harness.processes import java
from harness.processes.java import FetchFailed, JavaMissing, Release
from harness.processes.program import Program
from harness.scenarios.failovers import faults
from harness.scenarios.failovers.faults import FILLS, STALLS, ClusterScene, Fault
from harness.scenarios.traffic import queues_of
from mqcluster.processes import ClusterError
from remoting.client import open_client

TOPIC: Final = "rto"
RESULTS: Final = Path(__file__).parent / "results" / "rto.json"
INTERVAL_MS: Final = 20
HELD_MOST_S: Final = 45.0
TOPICS_S: Final = 15.0
"""Java's slaves fetch topics every 10 s."""


@attrs.frozen
class Act:
    """A fault, and how long it is held at least: some stop writes only when a timeout is over."""

    begin: Fault
    at_least_s: float = figures.STEADY_S


ACTS: Final[Mapping[str, Act]] = {
    "kill": Act(faults.kill_master), "stop": Act(faults.stop_master), "host-killed": Act(faults.lose_masters_host),
    "host-silent": Act(faults.cut_master), "from-controllers": Act(faults.cut_master_from_controllers, 15.0),
    "from-slaves": Act(faults.cut_master_from_slaves, 5.0), "from-clients": Act(faults.cut_master_from_clients),
    "slave-silent": Act(faults.cut_slave, 5.0), "disk-stalled": Act(faults.stall_masters_disk, 5.0),
    "disk-full": Act(faults.fill_masters_disk, 15.0), "both": Act(faults.kill_both),
}


@attrs.define
class Traffic:
    """What both clients were told; times of the wall clock, in seconds."""

    ours: list[float] = attrs.field(factory=list)
    producer: Program | None = None

    @property
    def acks(self) -> dict[str, Sequence[float]]:
        found: dict[str, Sequence[float]] = {"ours": self.ours}
        if self.producer is not None:
            found["java"] = [each["ended_us"] / 1e6 for each in self.producer.reports("sent") if each["ok"]]
        return found

    async def steady(self, at_least: float, timeout_s: float) -> None:
        """Until all are well and that time is over; or not, which their acknowledgements tell."""
        with trio.move_on_after(timeout_s):
            while time.time() < at_least or not all(  # noqa: ASYNC110  # that nothing came is no event
                    figures.steady(acks, time.time()) for acks in self.acks.values()):
                await trio.sleep(0.1)


@asynccontextmanager
async def traffic(there: Stand, producer: bool, release: Release | None) -> AsyncIterator[Traffic]:
    """Clients that send all the time."""
    made = Traffic()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect([there.namesrv]))
        await client.create_topic(TOPIC, queues=4)
        with trio.fail_after(PATIENCE_S):
            await queues_of(client, TOPIC, [GROUP])
        if there.side.maker == "java":
            await trio.sleep(TOPICS_S)
        if producer and release is not None:
            made.producer = await stack.enter_async_context(java.sender(
                release, there.cluster.root / "producer", namesrv=[there.namesrv], topic=TOPIC,
                interval_ms=INTERVAL_MS))
        nursery = await stack.enter_async_context(trio.open_nursery())

        async def send() -> None:
            while True:
                try:
                    await client.send(Message(TOPIC, b"." * 64))
                except ClientError:
                    pass
                else:
                    made.ours.append(time.time())
                await trio.sleep(INTERVAL_MS / 1e3)

        nursery.start_soon(send)
        yield made
        nursery.cancel_scope.cancel()


async def one(there: Stand, sending: Traffic, fault: str, chance: Random) -> dict[str, Any]:
    """One round. Raises ``trio.TooSlowError`` or ``ClusterError`` when not all is well again after it."""
    await sending.steady(0.0, PATIENCE_S)
    view = await there.without_backoff(await there.settled())
    await trio.sleep(chance.uniform(0.5, 2.5))  # no fixed phase between a fault and anybody's timers
    act, struck = ACTS[fault], time.time()
    begun = await act.begin(ClusterScene(there.cluster, there.network, there.disks, view, GROUP, chance))
    await sending.steady(struck + act.at_least_s, HELD_MOST_S)
    undone = time.time()
    found = {"gaps_s": {client: _rounded(figures.longest(acks, struck, undone))
                        for client, acks in sending.acks.items()}, "held_s": round(undone - struck, 1)}
    await begun.undo()
    await there.raise_the_dead()
    await there.settled()
    return found


def _rounded(gap: float | None) -> float | None:
    return None if gap is None else round(gap, 3)


def impossible(there: Stand, fault: str) -> str:
    """Why this machine cannot do it, in words."""
    kind = next(iter(there.disks.values())).kind
    begin = ACTS[fault].begin
    if (begin in STALLS and not kind.stalls) or (begin in FILLS and not kind.fills):
        return f"here a disk is {kind.value}"
    return ""


@attrs.define
class Run:
    """What was asked for, and what was found."""

    options: argparse.Namespace
    say: Callable[[str], None]
    rounds: list[dict[str, Any]] = attrs.field(factory=list)
    before: Mapping[str, Any] = attrs.field(factory=dict)
    began: float = attrs.field(factory=time.monotonic)

    def note(self, side: str, fault: str, found: Mapping[str, Any]) -> None:
        """After each round the file has it: a run that is cut off keeps what it found."""
        self.rounds.append({
            "side": self.options.label or side, "fault": fault, "day": dt.datetime.now(dt.UTC).date().isoformat(),
            "load": round(os.getloadavg()[0], 1), **found})
        self.say(json.dumps(self.rounds[-1]))
        together = figures.merged(self.before.get("rounds", []), self.rounds, add=self.options.add)
        self.options.json.write_text(
            json.dumps({"cpus": os.cpu_count(), "rounds": together}, indent=1) + "\n")

    def progress(self, done: int, total: int, what: str) -> None:
        self.say(bar(done, total, time.monotonic() - self.began, what))


def bar(done: int, total: int, seconds: float, what: str) -> str:
    """How far it is, and how long the rest will take."""
    full = round(20 * done / total)
    left = f", {(total - done) * seconds / done / 60:.0f} min left" if done else ""
    return f"[{'#' * full}{'.' * (20 - full)}] {done} of {total} rounds{left}; now {what}"


def sides(options: argparse.Namespace) -> list[Side]:
    """Java's have one profile."""
    return [Side("ours" if kind == "guarded" else kind, profile, kind == "guarded")
            for kind in options.sides for profile in options.profiles if (kind, profile) != ("java", "quick")]


async def run(options: argparse.Namespace) -> int:
    """All rounds of all sides; the exit code."""
    made = Run(options, lambda line: print(line, flush=True),
               before=json.loads(options.json.read_text()) if options.json.exists() else {})
    wanted = sides(options)
    release = None
    if "java" in options.clients or any(each.maker == "java" for each in wanted):
        try:
            release = await java.fetch(java.CURRENT)
        except (JavaMissing, FetchFailed) as missing:
            made.say(f"nothing of Java is measured: {missing}")
            for side in [each for each in wanted if each.maker == "java"]:
                wanted.remove(side)
                for fault in options.faults:
                    made.note(side.name, fault, {"not_run": str(missing)})
    total = len(wanted) * len(options.faults) * options.rounds
    async with namespaces(NAMES) as network:
        for number, side in enumerate(wanted):
            await _side(made, side, network, release, number * len(options.faults) * options.rounds, total)
    return 0


async def _side(made: Run, side: Side, network: Network, release: Release | None, done: int, total: int) -> None:
    """The rounds of a cluster; one that does not come back is made anew."""
    left = [fault for _ in range(made.options.rounds) for fault in made.options.faults]
    while left:
        try:
            with tempfile.TemporaryDirectory(prefix="rto-", ignore_cleanup_errors=True) as folder:
                async with (
                    open_client() as remoting,
                    stand(side, Path(folder) / "cluster", network, remoting, release) as there,
                    traffic(there, "java" in made.options.clients, release) as sending,
                ):
                    while left:
                        made.progress(done, total, f"{side.name}: {left[0]}")
                        fault = left.pop(0)
                        done += 1
                        why = impossible(there, fault)
                        made.note(side.name, fault,
                                  {"not_run": why} if why else await one(there, sending, fault, made.options.chance))
        except* (trio.TooSlowError, ClusterError, ClientError) as failures:
            made.say(f"{side.name}: the cluster did not come back and is made anew: {failures.exceptions[0]!r}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    assert __doc__ is not None
    made = argparse.ArgumentParser(
        "python -m benchmarks.rto", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
        def chosen(text: str) -> list[str]:
            found = text.split(",")
            if unknown := set(found) - set(known):
                raise argparse.ArgumentTypeError(f"there is no {', '.join(sorted(unknown))}; there are "
                                                 f"{', '.join(known)}")
            return found
        return chosen

    for name, known in (("faults", tuple(ACTS)), ("sides", ("ours", "guarded", "java")),
                        ("profiles", ("default", "quick")), ("clients", tuple(figures.CLIENTS))):
        made.add_argument(f"--{name}", type=some_of(known), default=list(known), help=",".join(known))
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--seed", type=int, default=1, help="of the moments at which faults begin")
    made.add_argument("--add", action="store_true", help="to the rounds in the file, instead of in their place")
    made.add_argument("--label", default="", help="write the rounds down under this name")
    made.add_argument("--json", type=Path, default=RESULTS, help="default: %(default)s")
    return made


def main() -> int:
    """Enter the sandbox, run."""
    options = parser().parse_args()
    options.chance, options.json = Random(options.seed), options.json.absolute()
    if not sandbox.inside():
        if why := sandbox.impossible():
            print(f"nothing is measured: every server needs a host and a disk of its own, and {why}")
            return 1
        sandbox.enter("benchmarks.rto", sys.argv[1:])
    for name in ("remoting", "broker"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # connections that break are what this is about
    code = trio.run(run, options)
    results = json.loads(options.json.read_text())
    print("\n".join(["", *figures.page(results)]))
    return code


if __name__ == "__main__":
    sys.exit(main())
