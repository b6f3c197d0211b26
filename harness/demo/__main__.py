"""Three controllers, a name server, two broker groups of three as real processes, and a hand that does them harm.

    python -m harness.demo                 30 s of it; a live view in a terminal, lines elsewhere
    python -m harness.demo --seconds 120 --groups 3 --seed 7
    python -m harness.demo --deployment two-masters         one of RocketMQ's deployments, from its sample files

Producers send all the time, consumers read all the time, and meanwhile masters and the active controller are killed
with -9 and started again, a master is stopped with SIGSTOP, and the disk of a master stalls: each broker has a disk of
its own where the demo runs as root. For each master it shows how long its group acknowledged nothing, as its producers
saw it. At the end every message that was acknowledged is looked for among those that were consumed. Then the same once
more for a group in RocketMQ's default mode, in which the master alone acknowledges: what a kill can lose there.

Exit code 0; 1 when an acknowledged message was lost, or something did not come back.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

import attrs
import trio

from broker.client import MessageQueue, connect
from harness.demo import chronicle, deployments, tables
from harness.demo.chronicle import CONTROLLERS, FILE, Chronicle
from harness.demo.command import PATIENCE_S, parser, play
from harness.demo.deployments import DEPLOYMENTS
from harness.demo.display import Display
from harness.demo.reporting import Reporter
from harness.nemesis import disks, sandbox
from harness.nemesis.disks import Disk
from harness.processes import ours
from harness.processes.broker import Broker
from harness.processes.handle import Handle, start_all
from harness.scenarios import traffic
from harness.scenarios.traffic import Ledger, described
from mqcluster.looking import ClusterView, GroupView, look, until_settled
from mqcluster.plan import DEFAULT_MODE, Durability
from remoting.client import Client, open_client

TOPIC = "demo"
FAST_TOPIC = "demo-default"
REPLICAS = 3
SAFE = Durability(all_ack=True, min_in_sync=2)
DEFAULT_GROUP = "broker-z"
DISK_BYTES: Final = 1 << 30
"""Size of a file that takes only as much of the disk as is in it."""
KILLED, STOPPED = "masters killed", "masters stopped with SIGSTOP"
STALLED, TOGETHER = "masters' disks stalled", "masters killed with the active controller"
DONE: Final = (KILLED, STOPPED, STALLED, TOGETHER)
QUICK: Final[Mapping[str, object]] = {"detectionProfile": "quick"}
"""A demo is short: who hangs is to be replaced within seconds."""


@attrs.define(eq=False)
class Story:
    """The servers, what is done to them, and what came of it."""

    controllers: Sequence[Handle]
    namesrv: Handle
    groups: dict[str, list[Broker]]
    default: Sequence[Broker]
    """The group in RocketMQ's default mode, started with the others; empty where that part is left out."""
    client: Client
    display: Display
    rng: Random
    ledger: Ledger = attrs.field(factory=Ledger)
    disks: Mapping[str, Disk] = attrs.field(factory=dict)
    """Broker -> its disk; empty where disks cannot stall."""
    gaps_s: dict[str, list[float]] = attrs.field(factory=lambda: {what: [] for what in DONE})
    """What was done to a master -> times for which its group acknowledged nothing."""
    controllers_s: list[float] = attrs.field(factory=list)
    latest_ms: dict[str, float] = attrs.field(factory=dict)
    view: ClusterView = ClusterView()
    chronicle: Chronicle = attrs.field(factory=Chronicle)

    # --- what is done ----------------------------------------------------------------------------------------

    @property
    def acts(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Faults in the order in which they are repeated."""
        made = (self.kill_a_master, self.kill_the_active_controller, self.stop_a_master, self.stall_a_disk,
                self.kill_both)
        return [each for each in made if self.disks or each != self.stall_a_disk]

    async def kill_a_master(self) -> None:
        name, master = await self._master()
        await self._without(name, master, KILLED, "killed with -9", master.kill, master.start)

    async def stop_a_master(self) -> None:
        name, master = await self._master()

        async def pause() -> None:
            await trio.lowlevel.checkpoint()
            master.pause()

        async def resume() -> None:
            await trio.lowlevel.checkpoint()
            master.resume()

        await self._without(name, master, STOPPED, "stopped with SIGSTOP", pause, resume)

    async def stall_a_disk(self) -> None:
        name, master = await self._master()
        disk = self.disks[_id(master)]
        try:
            await self._without(name, master, STALLED, "has a disk that stalls", disk.stall, disk.resume)
        finally:
            with trio.CancelScope(shield=True):
                await disk.resume()  # a broker whose disk stalls cannot be ended

    async def kill_the_active_controller(self) -> None:
        active, began = await self._active(), time.monotonic()
        fault = self.chronicle.begins(chronicle.KILLED, [_id(active)], [CONTROLLERS])
        await active.kill()
        now = await self._active(other_than=active)
        took = time.monotonic() - began
        self.controllers_s.append(took)
        self.display.say(f"active controller {_id(active)} killed with -9; {_id(now)} is active after {took * 1e3:.0f} "
                         "ms; no group lost its master")
        await active.start()
        self.chronicle.undone(fault)

    async def kill_both(self) -> None:
        active = await self._active()
        name, master = await self._master()

        async def kill() -> None:
            await active.kill()
            await master.kill()

        async def start() -> None:
            await master.start()
            await active.start()

        await self._without(name, master, TOGETHER, f"and active controller {_id(active)} killed with -9", kill, start,
                            active)

    async def _master(self) -> tuple[str, Broker]:
        """Return a group all of whose members are in sync, and its master."""
        name = self.rng.choice(list(self.groups))
        address = (await self.settled([name])).groups[name].master
        return name, next(broker for broker in self.groups[name] if broker.address == address)

    async def _without(self, name: str, master: Broker, what: str, words: str, begin: Callable[[], Awaitable[None]],
                       undo: Callable[[], Awaitable[None]], controller: Handle | None = None) -> None:
        """Do it, until another master leads and acknowledges; then undo it."""
        before = len(self.ledger.gaps_s.get(name, []))
        who, groups = [_id(master)], [name]
        if controller is not None:
            who, groups = [*who, _id(controller)], [*groups, CONTROLLERS]
        fault = self.chronicle.begins(chronicle.KILLED if controller else words, who, groups)
        await begin()
        with trio.fail_after(PATIENCE_S):
            new = await self._another(name, master)
            leads = time.monotonic()
            while self.ledger.last_ack[name] <= leads:
                await trio.sleep(0.005)
        gap = max(self.ledger.gaps_s[name][before:])
        self.gaps_s[what].append(gap)
        self.chronicle.gap(name, fault, gap)
        self.latest_ms[name] = gap * 1e3
        self.display.say(f"master {_id(master)} {words}; {self._name(name, new.master)} leads {name} in "
                         f"epoch {new.epoch}; {gap * 1e3:.0f} ms without an acknowledgement")
        await undo()
        self.chronicle.undone(fault)

    async def _another(self, name: str, former: Broker) -> GroupView:
        """Wait until another broker leads, with a second one in sync."""
        while True:
            view = (await look(self.client, ours.addresses(self.controllers), [name])).groups.get(name, GroupView())
            if view.master not in (None, former.address) and len(view.in_sync) >= SAFE.min_in_sync:
                return view
            await trio.sleep(0.02)

    # --- what is seen ----------------------------------------------------------------------------------------

    async def _active(self, other_than: Handle | None = None) -> Handle:
        with trio.fail_after(PATIENCE_S):
            while True:
                address = (await look(self.client, ours.addresses(self.controllers), [])).active
                for each in self.controllers:
                    if each.address == address and each is not other_than and each.running:
                        return each
                await trio.sleep(0.01)

    async def settled(self, groups: Sequence[str], in_sync: int = REPLICAS) -> ClusterView:
        return await until_settled(self.client, ours.addresses(self.controllers), groups, in_sync, PATIENCE_S)

    def _name(self, group: str, address: str | None) -> str:
        return next((_id(broker) for broker in self.groups[group] if broker.address == address), "nobody")

    async def show(self) -> None:
        """Keep the live view fresh."""
        while self.display.live:
            self.view = await look(self.client, ours.addresses(self.controllers), list(self.groups))
            ledger = self.ledger
            self.display.show(
                tables.servers("controllers", ((
                    _id(each), each.address,
                    "down" if not each.running else "active" if each.address == self.view.active else "follower")
                    for each in self.controllers)),
                tables.brokers(
                    {name: [(_id(each), each.address, each.running) for each in group]
                     for name, group in self.groups.items()},
                    self.view.groups, ledger.rates(), self.latest_ms),
                f"sent {ledger.sent:,}, acknowledged {len(ledger.acknowledged):,}, consumed {len(ledger.got):,}, "
                f"not yet consumed {len(ledger.lost):,}")
            await trio.sleep(0.2)

    # --- traffic ---------------------------------------------------------------------------------------------

    async def create_topic(self, topic: str, groups: Sequence[str]) -> list[MessageQueue]:
        async with connect([self.namesrv.address]) as client:
            with trio.fail_after(PATIENCE_S):
                await client.create_topic(topic, queues=4)
                return await traffic.queues_of(client, topic, groups)

    @asynccontextmanager
    async def running(self, queues: Sequence[MessageQueue], producers: int) -> AsyncIterator[None]:
        """Producers and consumers; at the end it waits until what was acknowledged is consumed, or is not coming."""
        stop = trio.Event()
        async with trio.open_nursery() as consumers:
            for _ in range(2):
                consumers.start_soon(traffic.consume, self.namesrv.address, TOPIC, "demo-consumers", self.ledger)
            async with trio.open_nursery() as senders:
                for queue, number in itertools.product(queues, range(producers)):
                    senders.start_soon(traffic.produce, self.namesrv.address, queue,
                                       f"{queue.broker_name}-{number}", self.ledger, stop)
                with trio.fail_after(PATIENCE_S):
                    while self.ledger.last_ack.keys() < set(self.groups):
                        await trio.sleep(0.01)
                yield
                stop.set()
            with trio.move_on_after(PATIENCE_S):
                while self.ledger.lost:
                    await trio.sleep(0.05)
            consumers.cancel_scope.cancel()


@asynccontextmanager
async def staged(arguments: argparse.Namespace, data: Path, display: Display) -> AsyncIterator[Story]:
    """A running cluster with all replicas in sync."""
    async with AsyncExitStack() as stack:
        began = trio.current_time()
        display.say(f"starting 3 controllers, a name server and {arguments.groups} broker groups of {REPLICAS}, until "
                    "all are in sync")
        controllers = await stack.enter_async_context(ours.controllers(data / "controllers"))
        namesrv = await stack.enter_async_context(ours.namesrv(data / "namesrv"))
        groups: dict[str, list[Broker]] = {}
        names = [f"broker-{letter}" for letter in "abcdefghij"[:arguments.groups]]
        mounted = disks.make(data, [f"{name}-{number}" for name in names for number in range(REPLICAS)], DISK_BYTES,
                             sandbox.inside())
        for name in names:
            groups[name] = await _group(stack, data, name, controllers, namesrv, {**SAFE.settings, **QUICK})
        default = [] if arguments.without_default_mode else await _group(
            stack, data, DEFAULT_GROUP, controllers, namesrv, DEFAULT_MODE.settings)
        await start_all([*itertools.chain(*groups.values()), *default])
        client = await stack.enter_async_context(open_client())
        await until_settled(client, ours.addresses(controllers), list(groups), REPLICAS, PATIENCE_S)
        display.say(f"3 controllers, 1 name server, {arguments.groups} broker groups of {REPLICAS}: all in sync after "
                    f"{trio.current_time() - began:.1f} s")
        story = Story(controllers, namesrv, groups, default, client, display, Random(arguments.seed))
        if all(disk.kind.stalls for disk in mounted.values()):
            story.disks = mounted
        else:
            display.say("no disk stalls in this run: only root can mount disks that do")
        yield story


async def _group(stack: AsyncExitStack, data: Path, name: str, controllers: Sequence[Handle],
                 namesrv: Handle, settings: Mapping[str, object]) -> list[Broker]:
    return [await stack.enter_async_context(ours.broker(
        data / f"{name}-{number}", name, namesrv=[namesrv.address], controllers=ours.addresses(controllers),
        extra={"totalReplicas": REPLICAS, **settings}, start=False)) for number in range(REPLICAS)]


async def default_mode(story: Story) -> str:
    """One kill in RocketMQ's default mode: what was acknowledged and is gone."""
    settled = await story.settled([DEFAULT_GROUP])
    queues = await story.create_topic(FAST_TOPIC, [DEFAULT_GROUP])
    ledger, stop = Ledger(), trio.Event()
    async with trio.open_nursery() as senders:
        for number in range(16):
            senders.start_soon(traffic.produce, story.namesrv.address, queues[0], f"z-{number}", ledger, stop, 0.0)
        await trio.sleep(2)
        killed = next(broker for broker in story.default if broker.address == settled.groups[DEFAULT_GROUP].master)
        await killed.kill()
        at = time.monotonic()
        with trio.fail_after(PATIENCE_S):
            while ledger.last_ack.get(DEFAULT_GROUP, 0.0) <= at:
                await trio.sleep(0.005)
        stop.set()
    found = await traffic.read_all(story.namesrv.address, queues)
    lost = ledger.acknowledged.keys() - found
    window = max((at - ledger.acknowledged[body] for body in lost), default=0.0)
    return (f"in RocketMQ's default mode ({DEFAULT_MODE}) one kill -9 of a master lost {len(lost)} of "
            f"{len(ledger.acknowledged):,} acknowledged messages"
            + (f", the last {window * 1e3:.1f} ms before it" if lost else ": here the slaves had them in time"))


async def run(arguments: argparse.Namespace, data: Path, reporter: Reporter) -> int:
    """Play the whole demo; return the exit code."""
    display = Display()
    display.say(f"data and logs: {data}")
    with display.running():
        async with staged(arguments, data, display) as story, trio.open_nursery() as nursery:
            nursery.start_soon(story.show)
            reporter.prepare()
            queues = await story.create_topic(TOPIC, list(story.groups))
            async with story.running(queues, arguments.producers):
                ends = trio.current_time() + arguments.seconds
                for number, act in enumerate(itertools.cycle(story.acts)):
                    if trio.current_time() >= ends and number >= len(story.acts):
                        break
                    await act()
                    await trio.sleep(0.5)
            second = await default_mode(story) if story.default else ""
            nursery.cancel_scope.cancel()
    ledger = story.ledger
    story.chronicle.write(data / FILE, {
        "sent": ledger.sent, "acknowledged": len(ledger.acknowledged), "consumed": len(ledger.got),
        "lost": len(ledger.lost), "duplicated": ledger.duplicated})
    return report(story, second, data)


def report(story: Story, second: str, data: Path) -> int:
    """Say the last lines, in either kind of display; return the exit code."""
    say, ledger = Display().say, story.ledger
    say("")
    for what, gaps_s in story.gaps_s.items():
        say(f"{what}: {len(gaps_s)}; without an acknowledgement: {described(gaps_s)}")
    say(f"active controllers killed: {len(story.controllers_s)}; until another is active: "
        f"{described(story.controllers_s)}")
    say(f"durability: {SAFE}")
    say(f"sent {ledger.sent:,}, acknowledged {len(ledger.acknowledged):,}, outcome unknown {len(ledger.unknown)}, "
        f"refused {len(ledger.failed)}; consumed {len(ledger.got):,}, lost {len(ledger.lost)}, "
        f"duplicated {ledger.duplicated}")
    if second:
        say(second)
    if ledger.false_failures:
        say(f"BROKEN: {len(ledger.false_failures)} messages were consumed that their producers were told are stored "
            "nowhere")
    say(f"data and logs: {data}")
    say("NOTHING ACKNOWLEDGED WAS LOST" if not ledger.lost
        else f"{len(ledger.lost)} ACKNOWLEDGED MESSAGES WERE LOST: this is a bug; one is {min(ledger.lost)!r}")
    return 1 if ledger.lost or ledger.false_failures else 0


def _id(process: Handle) -> str:
    return process.directory.name


def main() -> int:
    """Parse the command line and run."""
    assert __doc__ is not None
    options = parser("python -m harness.demo", __doc__, seconds=30.0)
    options.add_argument("--groups", type=int, default=2, choices=range(1, 11), metavar="1-10",
                         help=f"broker groups of {REPLICAS}; default: %(default)s")
    options.add_argument("--producers", type=int, default=2, help="for each group; default: %(default)s")
    options.add_argument("--without-default-mode", action="store_true", help="leave out the last part")
    options.add_argument("--deployment", choices=DEPLOYMENTS, help="one of these instead, without controllers or with "
                         "them: a master is killed, and comes back")
    options.add_argument("--without-controllers", action="store_const", const="acting-masters", dest="deployment",
                         help="that of acting masters: delayed messages come while the master is away")
    arguments = options.parse_args()
    if arguments.deployment:
        arguments.without_report = True
        return play(lambda given, data, _: deployments.run(given, data), arguments)  # deployments have no report
    if not sandbox.inside() and sandbox.mounts():
        sandbox.enter("harness.demo", sys.argv[1:], sandbox.DISKS)
    return play(run, arguments)


if __name__ == "__main__":
    sys.exit(main())
