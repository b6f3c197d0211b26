"""One of the deployments of RocketMQ's pages, started from its sample files; a master is killed, and comes back.

    python -m harness.demo --deployment two-masters-two-slaves-async

It shows what goes on meanwhile: which groups acknowledge, for how long one does not, and that at the end all that was
acknowledged was consumed. The samples are those of ``docs/examples/conf``; ports and directories are others.
"""

from __future__ import annotations

import argparse
import datetime as dt
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from shutil import copy
from typing import Final

import attrs
import trio

from broker.client import Message, MessageQueue, connect
from harness.demo.command import PATIENCE_S
from harness.demo.display import Display
from harness.processes.broker import FAST_PORT, HA_PORT
from harness.processes.handle import Handle, running, start_all
from harness.processes.ours import HOST
from harness.processes.ports import reserved
from harness.scenarios import traffic
from harness.scenarios.traffic import Ledger
from mqcluster.looking import look
from mqcluster.plan import ROOM
from remoting import properties
from remoting.bodies.namesrv import ClusterInfo
from remoting.client import Client, open_client
from remoting.codes import RequestCode
from remoting.command import request
from remoting.daemon.child import child

SAMPLES: Final = Path(__file__).parents[2] / "docs" / "examples" / "conf"
TOPIC: Final = "deployment"
DOWN_S: Final = 1.0
"""For so long a master is left dead where nobody takes its place."""
DELAYED: Final = 20
DELAY: Final = dt.timedelta(seconds=4)
"""Messages that come due while it is dead, where a slave acts."""
CONTROLLERS: Final = 3
_TWO: Final = ("broker-a.properties", "broker-b.properties")
_FOUR: Final = (*_TWO, "broker-a-s.properties", "broker-b-s.properties")


@attrs.frozen
class Deployment:
    """The servers of a deployment, by their sample files."""

    about: str
    brokers: tuple[str, ...]
    controllers: str = ""
    """Beginning of the names of the files of its controllers; "": it has none."""
    namesrv: str = "namesrv.conf"
    acts: bool = False
    """A slave acts for its master."""

    @property
    def files(self) -> tuple[str, ...]:
        """Configuration files of all its servers."""
        own = tuple(f"{self.controllers}{number}.conf" for number in range(CONTROLLERS)) if self.controllers else ()
        return (*(() if self.embedded else (self.namesrv,)), *own, *self.brokers)

    @property
    def embedded(self) -> bool:
        """The controllers are in name servers."""
        return "namesrv" in self.controllers


_REPLICAS: Final = tuple(f"controller/broker-n{number}.conf" for number in range(3))
DEPLOYMENTS: Final[Mapping[str, Deployment]] = {
    "one-master": Deployment("a single master", ("broker.conf",)),
    "two-masters": Deployment("two masters", tuple(f"2m-noslave/{name}" for name in _TWO)),
    "two-masters-two-slaves-async": Deployment(
        "two masters, each with a slave that copies what was acknowledged",
        tuple(f"2m-2s-async/{name}" for name in _FOUR)),
    "two-masters-two-slaves-sync": Deployment(
        "two masters, each with a slave that has a message before it is acknowledged",
        tuple(f"2m-2s-sync/{name}" for name in _FOUR)),
    "acting-masters": Deployment(
        "two masters, each with a slave that acts for it while it is away", tuple(f"acting/{name}" for name in _FOUR),
        namesrv="acting/namesrv.conf", acts=True),
    "controllers": Deployment(
        "three replicas of one group, whose master three controllers choose", _REPLICAS, "controller/controller-n"),
    "controllers-in-name-servers": Deployment(
        "the same, with the controllers in name servers", _REPLICAS, "controller/namesrv-n"),
}
"""Name that ``--deployment`` takes -> the deployment."""


@attrs.define(eq=False)
class Deployed:
    """The servers of one, running."""

    namesrv: str
    acts: bool
    brokers: list[Handle]
    names: list[str]
    """Names of the brokers' groups, in the same order."""
    controllers: list[str]
    client: Client

    @property
    def groups(self) -> list[str]:
        return sorted(set(self.names))

    async def master(self, group: str) -> Handle:
        """The broker that leads a group."""
        with trio.fail_after(PATIENCE_S):
            while True:
                table = await self.registered()
                address = table.get(group, {}).get(0)
                for each in self.brokers:
                    if each.address == address:
                        return each
                await trio.sleep(0.05)

    async def registered(self) -> dict[str, dict[int, str]]:
        """Addresses by group and id, as the name server has them."""
        answer = await self.client.call(self.namesrv, request(RequestCode.GET_BROKER_CLUSTER_INFO))
        return {name: dict(group.broker_addrs)
                for name, group in ClusterInfo.from_json(answer.body).broker_addr_table.items()}

    async def until_all_are_known(self) -> None:
        """Wait until all brokers are registered and, under controllers, in sync."""
        with trio.fail_after(PATIENCE_S):
            while sum(map(len, (await self.registered()).values())) < len(self.brokers):
                await trio.sleep(0.05)
            while self.controllers and not (await look(self.client, self.controllers, self.groups)).settled(
                    self.groups, len(self.brokers)):
                await trio.sleep(0.05)


@asynccontextmanager
async def deployed(here: Path, kind: Deployment) -> AsyncIterator[Deployed]:
    """All servers, once all brokers are known to the name server."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client())
        port, addresses = stack.enter_context(reserved()), list[str]()
        if kind.controllers:
            ports = [stack.enter_context(reserved()) for _ in range(CONTROLLERS)]
            addresses = [f"{HOST}:{each}" for each in ports]
            await _controllers(stack, here, kind, ports, port)
        if not kind.embedded:
            await start_all([await _planned(stack, here, "controller.namesrv.cli", kind.namesrv, port,
                                            listenPort=port, kvConfigPath=here / "kv.json")])
        made = Deployed(f"{HOST}:{port}", kind.acts, [], [], addresses, client)
        for sample in kind.brokers:
            own = stack.enter_context(reserved(FAST_PORT, HA_PORT))
            keys = {"controllerAddr": ";".join(addresses)} if addresses else {}
            made.brokers.append(await _planned(
                stack, here, "broker.cli", sample, own, listenPort=own, haListenPort=own + HA_PORT, brokerIP1=HOST,
                namesrvAddr=made.namesrv, storePathRootDir=here / "store" / sample, maxHashSlotNum=1000,
                maxIndexNum=4000, **ROOM, **keys))
            made.names.append(properties.parse((SAMPLES / sample).read_text())["brokerName"])
        await start_all(made.brokers)
        await made.until_all_are_known()
        yield made


async def _controllers(
    stack: AsyncExitStack, here: Path, kind: Deployment, ports: Sequence[int], namesrv: int,
) -> None:
    peers = ";".join(f"n{number}-{HOST}:{port}" for number, port in enumerate(ports))
    made = []
    for number, port in enumerate(ports):
        more: dict[str, object] = {}
        if kind.embedded:
            port = namesrv if number == 0 else stack.enter_context(reserved())
            more = {"listenPort": port, "kvConfigPath": here / f"kv{number}.json"}
        made.append(await _planned(
            stack, here, "controller.namesrv.cli" if kind.embedded else "controller.cli",
            f"{kind.controllers}{number}.conf", port, controllerDLegerPeers=peers,
            controllerStorePath=here / f"raft{number}", **more))
    await start_all(made)


async def _planned(
    stack: AsyncExitStack, here: Path, module: str, sample: str, port: int, **keys: object,
) -> Handle:
    file = here / sample.replace("/", "-")
    copy(SAMPLES / sample, file)
    given: Mapping[str, object] = {"bindAddress": HOST, **keys}
    command = [*child(module), "-c", str(file), *(part for name, value in given.items() for part in (
        "-D", f"{name}={value}"))]
    return await stack.enter_async_context(
        running(Handle(sample, here / file.stem, command, f"{HOST}:{port}", "boot success"), start=False))


async def run(arguments: argparse.Namespace, data: Path) -> int:
    """Play the whole demo; return the exit code."""
    say, kind = Display().say, DEPLOYMENTS[arguments.deployment]
    say(f"{arguments.deployment}: {kind.about}")
    for file in kind.files:
        say(f"  docs/examples/conf/{file}")
    async with deployed(data, kind) as made:
        say(f"all {len(made.brokers)} brokers are known to the name server: {', '.join(made.groups)}")
        async with connect([made.namesrv]) as client:
            await client.create_topic(TOPIC, queues=4)
            with trio.fail_after(PATIENCE_S):
                queues = await traffic.queues_of(client, TOPIC, made.groups)
        ledger = await _story(made, queues)
    say(f"sent {ledger.sent:,}, acknowledged {len(ledger.acknowledged):,}, consumed {len(ledger.got):,}, "
        f"lost {len(ledger.lost)}")
    say("NOTHING ACKNOWLEDGED WAS LOST" if not ledger.lost
        else f"{len(ledger.lost)} ACKNOWLEDGED MESSAGES WERE LOST: this is a bug; one is {min(ledger.lost)!r}")
    return 1 if ledger.lost else 0


async def _story(made: Deployed, queues: Sequence[MessageQueue]) -> Ledger:
    say, ledger, stop, group = Display().say, Ledger(), trio.Event(), made.groups[0]
    async with trio.open_nursery() as consumers:
        consumers.start_soon(traffic.consume, made.namesrv, TOPIC, "demo-consumers", ledger)
        async with trio.open_nursery() as senders:
            for queue in queues:
                senders.start_soon(traffic.produce, made.namesrv, queue, queue.broker_name, ledger, stop)
            await _until_acknowledged(ledger, made.groups, 0.0)
            await trio.sleep(0.5)
            master = await made.master(group)
            before = {name: len(gaps) for name, gaps in ledger.gaps_s.items()}
            delayed = await _delayed(made, queues[made.groups.index(group)], ledger) if made.acts else set[bytes]()
            await master.kill()
            at = time.monotonic()
            say(f"the master of {group} ({master.name}) was killed with -9")
            if made.controllers:
                await _until_acknowledged(ledger, [group], at + 0.2)
                new = await made.master(group)
                say(f"{new.name} is master of {group} now")
            else:
                await trio.sleep(DOWN_S)
                taken = [name for name in made.groups if ledger.last_ack[name] > at + DOWN_S / 2]
                say(f"sends meanwhile: {', '.join(taken) or 'no group'} acknowledged, {group} did not")
            if delayed:
                await _until_delivered(delayed, ledger)
                say(f"{len(delayed)} delayed messages of {group}, due {DELAY.total_seconds():g} s after their sending: "
                    f"its slave acts, and delivered them at another group, the last {time.monotonic() - at:.1f} s "
                    "after the kill")
            await master.start()
            await _until_acknowledged(ledger, made.groups, time.monotonic())
            for name in made.groups:
                gap = max(ledger.gaps_s[name][before.get(name, 0):])
                say(f"{name}: {gap * 1e3:.0f} ms at most without an acknowledgement")
            stop.set()
        with trio.move_on_after(PATIENCE_S):
            while ledger.lost:
                await trio.sleep(0.05)
        consumers.cancel_scope.cancel()
    return ledger


async def _delayed(made: Deployed, queue: MessageQueue, ledger: Ledger) -> set[bytes]:
    """Messages of one group that are due when its master is gone; their gaps are not counted."""
    sent = {f"delayed/{number}".encode() for number in range(DELAYED)}
    async with connect([made.namesrv], producer_group="demo-delayed") as client:
        for body in sorted(sent):
            await client.send(Message(queue.topic, body, delay=DELAY), queue=queue)
            ledger.sent += 1
            ledger.acknowledged[body] = time.monotonic()
    return sent


async def _until_delivered(bodies: set[bytes], ledger: Ledger) -> None:
    with trio.fail_after(PATIENCE_S):
        while not bodies <= ledger.got.keys():
            await trio.sleep(0.05)


async def _until_acknowledged(ledger: Ledger, groups: Sequence[str], since: float) -> None:
    with trio.fail_after(PATIENCE_S):
        while any(ledger.last_ack.get(name, 0.0) <= since for name in groups):
            await trio.sleep(0.01)
