"""Three controllers, a name server, two broker groups of three as real processes, and a hand that kills with -9.

    python -m harness.demo                 30 s of it; a live view in a terminal, lines elsewhere
    python -m harness.demo --seconds 120 --groups 3 --seed 7

Producers send all the time, consumers read all the time, and meanwhile masters and the active controller are killed
with -9 and started again. For each master it shows how long its group acknowledged nothing, as its producers saw it. At
the end every message that was acknowledged is looked for among those that were consumed. Then the same once more for a
group in RocketMQ's default mode, in which the master alone acknowledges: what a kill can lose there.

Exit code 0; 1 when an acknowledged message was lost, or something did not come back.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import attrs
import trio

from broker.client import MessageQueue, connect
from harness.demo import tables
from harness.demo.command import PATIENCE_S, parser, play
from harness.demo.display import Display
from harness.processes import ours
from harness.processes.broker import Broker
from harness.processes.handle import Handle, start_all
from harness.scenarios import traffic
from harness.scenarios.traffic import Ledger, described
from mqcluster.looking import ClusterView, look, until_settled
from mqcluster.plan import DEFAULT_MODE, Durability
from remoting.client import Client, open_client

TOPIC = "demo"
FAST_TOPIC = "demo-default"
REPLICAS = 3
SAFE = Durability(all_ack=True, min_in_sync=2)
DEFAULT_GROUP = "broker-z"


@attrs.define(eq=False)
class Story:
    """The servers, what is done to them, and what came of it."""

    controllers: Sequence[Handle]
    namesrv: Handle
    groups: dict[str, list[Broker]]
    client: Client
    display: Display
    rng: Random
    ledger: Ledger = attrs.field(factory=Ledger)
    gaps_s: list[float] = attrs.field(factory=list)
    with_controller_s: list[float] = attrs.field(factory=list)
    controllers_s: list[float] = attrs.field(factory=list)
    latest_ms: dict[str, float] = attrs.field(factory=dict)
    view: ClusterView = ClusterView()

    # --- what is done ----------------------------------------------------------------------------------------

    async def kill_a_master(self) -> None:
        self.gaps_s.append(await self._kill(None))

    async def kill_the_active_controller(self) -> None:
        active, began = await self._active(), time.monotonic()
        await active.kill()
        now = await self._active(other_than=active)
        took = time.monotonic() - began
        self.controllers_s.append(took)
        self.display.say(f"active controller {_id(active)} killed with -9; {_id(now)} is active after {took * 1e3:.0f} "
                         "ms; no group lost its master")
        await active.start()

    async def kill_both(self) -> None:
        active = await self._active()
        self.with_controller_s.append(await self._kill(active))
        await active.start()

    async def _kill(self, controller: Handle | None) -> float:
        """Kill the master of a group, and with it the active controller; seconds without an acknowledgement there."""
        name = self.rng.choice(list(self.groups))
        view = await self.settled([name])
        master = next(broker for broker in self.groups[name] if broker.address == view.groups[name].master)
        before = self.ledger.last_ack.get(name, 0.0)
        if controller is not None:
            await controller.kill()
        await master.kill()
        killed = time.monotonic()
        with trio.fail_after(PATIENCE_S):
            while self.ledger.last_ack.get(name, 0.0) <= killed:
                await trio.sleep(0.005)
        gap = max(self.ledger.gaps_s[name][-1], self.ledger.last_ack[name] - max(before, killed))
        self.latest_ms[name] = gap * 1e3
        new = (await self.settled([name], in_sync=2)).groups[name]
        also = f" and active controller {_id(controller)}" if controller is not None else ""
        self.display.say(f"master {_id(master)}{also} killed with -9; {self._name(name, new.master)} leads {name} in "
                         f"epoch {new.epoch}; {gap * 1e3:.0f} ms without an acknowledgement")
        await master.start()
        return gap

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
    """Everything up, all replicas in sync."""
    async with AsyncExitStack() as stack:
        began = trio.current_time()
        controllers = await stack.enter_async_context(ours.controllers(data / "controllers"))
        namesrv = await stack.enter_async_context(ours.namesrv(data / "namesrv"))
        groups: dict[str, list[Broker]] = {}
        for name in (f"broker-{letter}" for letter in "abcdefghij"[:arguments.groups]):
            groups[name] = await _group(stack, data, name, controllers, namesrv, SAFE)
        await start_all([broker for group in groups.values() for broker in group])
        client = await stack.enter_async_context(open_client())
        await until_settled(client, ours.addresses(controllers), list(groups), REPLICAS, PATIENCE_S)
        display.say(f"3 controllers, 1 name server, {arguments.groups} broker groups of {REPLICAS}: all in sync after "
                    f"{trio.current_time() - began:.1f} s")
        yield Story(controllers, namesrv, groups, client, display, Random(arguments.seed))


async def _group(stack: AsyncExitStack, data: Path, name: str, controllers: Sequence[Handle],
                 namesrv: Handle, mode: Durability) -> list[Broker]:
    return [await stack.enter_async_context(ours.broker(
        data / f"{name}-{number}", name, namesrv=[namesrv.address], controllers=ours.addresses(controllers),
        extra={"totalReplicas": REPLICAS, **mode.settings}, start=False)) for number in range(REPLICAS)]


async def default_mode(story: Story, data: Path) -> str:
    """One kill in RocketMQ's default mode: what was acknowledged and is gone."""
    async with AsyncExitStack() as stack:
        group = await _group(stack, data, DEFAULT_GROUP, story.controllers, story.namesrv, DEFAULT_MODE)
        await start_all(group)
        settled = await story.settled([DEFAULT_GROUP])
        queues = await story.create_topic(FAST_TOPIC, [DEFAULT_GROUP])
        ledger, stop = Ledger(), trio.Event()
        async with trio.open_nursery() as senders:
            for number in range(16):
                senders.start_soon(traffic.produce, story.namesrv.address, queues[0], f"z-{number}", ledger, stop, 0.0)
            await trio.sleep(2)
            killed = next(broker for broker in group if broker.address == settled.groups[DEFAULT_GROUP].master)
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


async def run(arguments: argparse.Namespace, data: Path) -> int:
    """The whole story; the exit code."""
    display = Display()
    display.say(f"data and logs: {data}")
    with display.running():
        async with staged(arguments, data, display) as story, trio.open_nursery() as nursery:
            nursery.start_soon(story.show)
            queues = await story.create_topic(TOPIC, list(story.groups))
            async with story.running(queues, arguments.producers):
                ends = trio.current_time() + arguments.seconds
                acts = (story.kill_a_master, story.kill_the_active_controller, story.kill_a_master, story.kill_both)
                for number, act in enumerate(itertools.cycle(acts)):
                    if trio.current_time() >= ends and number >= len(acts):
                        break
                    await act()
                    await trio.sleep(0.5)
            second = await default_mode(story, data) if not arguments.without_default_mode else ""
            nursery.cancel_scope.cancel()
    return report(story, second, data)


def report(story: Story, second: str, data: Path) -> int:
    """The last lines, in either kind of display; the exit code."""
    say, ledger = Display().say, story.ledger
    say("")
    say(f"masters killed: {len(story.gaps_s)}; without an acknowledgement: {described(story.gaps_s)}")
    say(f"masters killed with the active controller: {len(story.with_controller_s)}; without an acknowledgement: "
        f"{described(story.with_controller_s)}")
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
    return play(run, options.parse_args())


if __name__ == "__main__":
    sys.exit(main())
