"""Unmodified Java consumers that pop from our brokers: by remoting, and by gRPC through Java's proxy.

It starts our servers and Java programs, and compares what was sent with what they got, and how often.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import trio

from harness.processes import java, ours
from harness.processes.java.grpc import Grpc, distant, fetch_grpc, proxy, remote
from harness.processes.program import Program, Report
from harness.scenarios.interop.clients import PATIENCE_S, group_of_three
from harness.scenarios.interop.proxied import done
from harness.scenarios.interop.scenario import Lost, NotRun, Stage, expect, scenario
from harness.scenarios.interop.watch import SyncState, tool
from remoting.bodies.consumers import MessageRequestModes
from remoting.bodies.namesrv import KVTable
from remoting.client import open_client
from remoting.codes import RequestCode
from remoting.command import request
from remoting.config import ClientConfig

COUNT = 1_000
MANY = 10_000
INVISIBLE_MS = 15_000
REFUSED_S = 20
REVIVED_S = 7
"""Longest time after its invisible time until a message comes again."""
SLACK_S = 5
"""Extra time on a busy machine."""


@attrs.frozen
class Poppers:
    """Java push consumers of one cluster: the group of a topic is named after it."""

    stage: Stage
    namesrv: str

    def __call__(self, name: str, topic: str, *, group: str = "", refuse: int = 0, hold_ms: int = 0,
                 invisible_ms: int = 60_000) -> AbstractAsyncContextManager[Program]:
        return java.popper(
            self.stage.release, self.stage.here / name, namesrv=[self.namesrv], topic=topic, group=group or f"G{topic}",
            refuse=refuse, hold_ms=hold_ms, invisible_ms=invisible_ms)


async def told(stage: Stage, *arguments: str) -> None:
    """Run Java's tool, which must succeed."""
    run = await tool(stage, *arguments)
    expect(run.ok and "success" in run.stdout, f"mqadmin {' '.join(arguments)}: {run.stdout} {run.stderr}")


async def to_pop(stage: Stage, namesrv: str, topic: str, group: str, *, queues: int = 4, neighbours: int = 0) -> None:
    """Create a topic, and a group that pops it."""
    for line in (
        ("updateTopic", "-t", topic, "-r", str(queues), "-w", str(queues)),
        ("updateSubGroup", "-g", group),
        ("setConsumeMode", "-t", topic, "-g", group, "-m", "POP", "-q", str(neighbours)),
    ):
        await told(stage, line[0], "-n", namesrv, "-c", "DefaultCluster", *line[1:])


def counted(programs: Iterable[Program]) -> Counter[int]:
    """Return how often each message was received, by all programs together."""
    return Counter(report["sequence"] for program in programs for report in program.reports("received"))


async def all_received(programs: Sequence[Program], wanted: set[int], what: str, *, timeout_s: float = 60) -> None:
    """Wait until all messages were received. Raises ``Lost`` if some did not come."""
    with trio.move_on_after(timeout_s):
        while not wanted <= counted(programs).keys():
            await trio.sleep(0.2)
        return
    missing = sorted(wanted - counted(programs).keys())
    raise Lost(f"{what}: {len(missing)} of {len(wanted)} did not come, such as {missing[:10]}")


async def acknowledged(sender: Program, count: int) -> set[int]:
    """Wait for acknowledgements; returns the sequences that were stored."""
    await sender.wait_for("sent", lambda found: len(found) >= count, timeout_s=120)
    return {report["sequence"] for report in sender.reports("sent") if report["ok"]}


@scenario("5.5.0", timeout_s=600)
async def java_push_consumers_pop_from_our_brokers(stage: Stage) -> None:
    """Three Java push consumers pop from two masters: each message once, refused and orphaned ones again in time."""
    async with (
        ours.namesrv(stage.here / "namesrv") as namesrv,
        ours.broker(stage.here / "a", "broker-a", namesrv=[namesrv.address]),
        ours.broker(stage.here / "b", "broker-b", namesrv=[namesrv.address]),
    ):
        where = namesrv.address

        popper = Poppers(stage, where)
        for topic in ("Plain", "Refused", "Orphans"):
            await to_pop(stage, where, topic, f"G{topic}")
        async with popper("p1", "Plain") as one, popper("p2", "Plain") as two, popper("p3", "Plain") as three:
            async with java.sender(
                    stage.release, stage.here / "send", namesrv=[where], topic="Plain", count=MANY,
                    interval_ms=1) as sender:
                wanted = await acknowledged(sender, MANY)
            await all_received((one, two, three), wanted, "three that pop")
            at = trio.current_time()
            shares = [len(each.reports("received")) for each in (one, two, three)]
            stage.say(f"{len(wanted)} messages popped by three: {shares}")
            await _refused(stage, popper("p4", "Refused", refuse=4), where)
            await _orphaned(stage, popper, where)
            await trio.sleep_until(at + 70)
            again = {key: times for key, times in counted((one, two, three)).items() if times > 1}
            expect(not again, f"acknowledged, and again: {again}")


async def _refused(stage: Stage, popper: AbstractAsyncContextManager[Program], namesrv: str) -> None:
    async with popper as program, java.sender(
            stage.release, stage.here / "send-refused", namesrv=[namesrv], topic="Refused", count=40,
            interval_ms=1) as sender:
        wanted = await acknowledged(sender, 40)
        refused = {sequence for sequence in wanted if sequence % 4 == 0}
        await program.wait_for("received", lambda found: len(found) >= len(wanted) + len(refused), timeout_s=60)
        came: dict[int, list[Report]] = defaultdict(list)
        for report in program.reports("received"):
            came[report["sequence"]].append(report)
        pauses = []
        for sequence in refused:
            first, second = came[sequence]
            pauses.append((second["at_us"] - first["at_us"]) / 1e6)
            expect((second["topic"], first["again"], second["again"]) == ("Refused", 0, 1), f"{first} {second}")
            expect(0 <= int(second["first_pop_ms"]) - int(first["first_pop_ms"]) < 2_000, f"{first} {second}")
        expect(10 <= min(pauses) <= max(pauses) <= 10 + REVIVED_S + SLACK_S, f"refused, and again after {pauses} s")
        expect(all(len(came[sequence]) == 1 for sequence in wanted - refused), "the others came once")
        stage.say(f"{len(refused)} refused ones came again after {min(pauses):.1f} to {max(pauses):.1f} s")


async def _orphaned(stage: Stage, popper: Poppers, namesrv: str) -> None:
    async with java.sender(stage.release, stage.here / "send-orphans", namesrv=[namesrv], topic="Orphans", count=32,
                           interval_ms=1) as sender:
        wanted = await acknowledged(sender, 32)
    async with popper("p5", "Orphans", invisible_ms=INVISIBLE_MS, hold_ms=600_000) as holder:
        await holder.wait_for("received", lambda found: len(found) >= 16)
        async with popper("p6", "Orphans", invisible_ms=INVISIBLE_MS) as other:
            await holder.kill()
            killed_at = trio.current_time()
            await all_received((other,), wanted, "held by one that was killed",
                               timeout_s=INVISIBLE_MS / 1e3 + REVIVED_S + SLACK_S)
            took_s = trio.current_time() - killed_at
            early = [each for each in other.reports("received")
                     if each["again"] and each["at_us"] / 1e3 - int(each["first_pop_ms"]) < INVISIBLE_MS]
            expect(not early, f"while another one had them: {early}")
            stage.say(f"{len(wanted)} messages of one that was killed came to another within {took_s:.1f} s")


@scenario("5.5.0", timeout_s=600)
async def java_push_consumers_pop_across_a_failover_of_our_brokers(stage: Stage) -> None:
    """Two Java push consumers pop; our master is killed -9 with messages that nobody acknowledged: all of them come."""
    async with group_of_three(stage) as group:
        await to_pop(stage, group.namesrv, "Shop", "G")
        await _modes_are_copied(stage, [broker.announced for broker in group.brokers])

        async with (
            java.popper(stage.release, stage.here / "p1", namesrv=[group.namesrv], topic="Shop", group="G",
                        invisible_ms=INVISIBLE_MS, hold_ms=300) as one,
            java.popper(stage.release, stage.here / "p2", namesrv=[group.namesrv], topic="Shop", group="G",
                        invisible_ms=INVISIBLE_MS, hold_ms=300) as two,
            java.sender(stage.release, stage.here / "send", namesrv=[group.namesrv], topic="Shop", count=COUNT,
                        interval_ms=10) as sender,
        ):
            await sender.wait_for("sent", lambda found: len([each for each in found if each["ok"]]) >= COUNT // 3)
            await group.kill_master()
            wanted = await acknowledged(sender, COUNT)
            await all_received((one, two), wanted, "master killed", timeout_s=INVISIBLE_MS / 1e3 + PATIENCE_S)
            await trio.sleep(INVISIBLE_MS / 1e3 + REVIVED_S + SLACK_S)  # late messages come by then
            got = counted((one, two))
            before = sum(got.values())
            await trio.sleep(INVISIBLE_MS / 1e3 + REVIVED_S + SLACK_S)
            expect(sum(counted((one, two)).values()) == before, "what is acknowledged comes no more")
            await _nothing_is_behind(stage, await group.in_sync(2, "the new master and a slave"))
            stage.say(f"{len(wanted)} stored, {len(got)} received, {before - len(got)} again")


@scenario("5.5.0", timeout_s=300)
async def popped_messages_outlive_a_store_that_refuses_writes(stage: Stage) -> None:
    """Too few replicas for 20 s, while messages of a killed Java consumer come due: all of them come to another one."""
    async with group_of_three(stage) as group:
        await to_pop(stage, group.namesrv, "Shop", "G")
        async with java.sender(stage.release, stage.here / "send", namesrv=[group.namesrv], topic="Shop", count=32,
                               interval_ms=1) as sender:
            wanted = await acknowledged(sender, 32)
        popper = Poppers(stage, group.namesrv)
        async with popper("p1", "Shop", group="G", invisible_ms=INVISIBLE_MS, hold_ms=600_000) as holder:
            await holder.wait_for("received", lambda found: len(found) >= 16)
            await holder.kill()
        state = await group.in_sync(3, "before the slaves go")
        slaves = [broker for broker in group.brokers if broker.announced != state.master_address]
        for slave in slaves:
            await slave.kill()
        await trio.sleep(INVISIBLE_MS / 1e3 + REFUSED_S)
        for slave in slaves:
            await slave.start()
        async with popper("p2", "Shop", group="G", invisible_ms=INVISIBLE_MS) as other:
            await all_received((other,), wanted, "due while nothing could be stored", timeout_s=PATIENCE_S)
            stage.say(f"{len(wanted)} messages came, {counted((other,)).total() - len(wanted)} of them again")


async def _nothing_is_behind(stage: Stage, state: SyncState) -> None:
    """Check that the master is done with all checkpoints within 60 s."""
    behind = ""
    async with open_client(ClientConfig()) as client:
        with trio.move_on_after(60):
            while behind != "0":
                answer = await client.call(state.master_address, request(
                    RequestCode.GET_BROKER_RUNTIME_INFO), 3_000)
                behind = KVTable.from_json(answer.body).table["popReviveBehind"]
                await trio.sleep(0.5)
    expect(behind == "0", f"the revive queues are {behind} records behind")
    stage.say("the revive queues are not behind")


async def _modes_are_copied(stage: Stage, addresses: Sequence[str]) -> None:
    """Check that slaves have the master's pop modes within 13 s."""
    async with open_client(ClientConfig()) as client:
        seen = None
        with trio.move_on_after(13):
            while True:
                seen = [MessageRequestModes.from_json((await client.call(address, request(
                    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE), 3_000)).body) for address in addresses]
                if all(each == seen[0] and "Shop" in each.message_request_mode_map for each in seen):
                    stage.say(f"402 is the same on {len(seen)} brokers")
                    return
                await trio.sleep(0.5)
    expect(False, f"modes of master and slaves: {seen}")


# --- through Java's proxy ------------------------------------------------------------------------------------


@asynccontextmanager
async def proxied(stage: Stage, namesrv: str) -> AsyncIterator[tuple[Grpc, str]]:
    """Start the proxy, with topics for each kind of consumer; yields its address."""
    try:
        grpc = await fetch_grpc(stage.release, say=stage.say)
    except java.FetchFailed as failed:
        raise NotRun(f"no proxy: {failed}") from None
    for topic, kind in (("Plain", "NORMAL"), ("Dead", "NORMAL"), ("Ordered", "FIFO")):
        await told(stage, "updateTopic", "-n", namesrv, "-c", "DefaultCluster", "-t", topic, "-r", "4", "-w", "4", "-a",
                   f"+message.type={kind}")
    for group, further in (("simple", ()), ("push", ()), ("dying", ("-r", "1")), ("fifo", ("-o", "true"))):
        await told(stage, "updateSubGroup", "-n", namesrv, "-c", "DefaultCluster", "-g", group, *further)
    async with proxy(grpc, stage.here / "proxy", namesrv=namesrv) as running:
        yield grpc, running.address


@scenario("5.5.0", timeout_s=600)
async def grpc_consumers_pop_through_javas_proxy(stage: Stage) -> None:
    """Proxy 5.5.0 above three of ours: simple, push and FIFO consumers of gRPC, dead letters, also after kill -9."""
    async with (
        group_of_three(stage) as group,
        proxied(stage, group.namesrv) as (grpc, endpoints),
        remote(grpc, stage.here / "remote", endpoints=endpoints, plain="Plain", ordered="Ordered") as producer,
        remote(grpc, stage.here / "dead", endpoints=endpoints, plain="Dead") as doomed,
        distant(grpc, stage.here / "simple", endpoints=endpoints, topic="Plain", group="simple", kind="simple",
                refuse=5) as simple,
        distant(grpc, stage.here / "push", endpoints=endpoints, topic="Plain", group="push", kind="push",
                refuse=7) as push,
        distant(grpc, stage.here / "fifo", endpoints=endpoints, topic="Ordered", group="fifo", kind="push") as fifo,
        distant(grpc, stage.here / "dying", endpoints=endpoints, topic="Dead", group="dying", kind="push", refuse=3,
                refusals=99) as dying,
        java.receiver(stage.release, stage.here / "letters", namesrv=[group.namesrv], topic="%DLQ%dying",
                      group="letters") as letters,
    ):
        for number in range(1, 31):
            await done(producer, f"send {number}", again=True)
            await done(producer, f"ordered {number} {'ab'[number % 2]}", again=True)
        for number in range(1, 7):
            await done(doomed, f"send {number}", again=True)
        first = set(range(1, 31))
        await all_received((simple,), first, "a simple consumer")
        await all_received((push,), first, "a push consumer")
        await all_received((fifo,), first, "a FIFO consumer")
        in_order(fifo)
        await letters.wait_for("received", lambda found: {each["sequence"] for each in found} >= {3, 6},
                               timeout_s=PATIENCE_S)
        tries = counted((dying,))
        expect(tries[3] == tries[6] == 2, f"each twice, then to the dead letters: {tries}")
        stage.say(f"dead letters after {tries[3]} attempts")
        await again_once(simple, {number for number in first if number % 5 == 0}, "a simple consumer")
        await again_once(push, {number for number in first if number % 7 == 0}, "a push consumer")
        await group.kill_master()
        for number in range(31, 61):
            await done(producer, f"send {number}", again=True)
            await done(producer, f"ordered {number} {'ab'[number % 2]}", again=True)
        later = set(range(31, 61))
        await all_received((simple,), later, "a simple consumer, master killed", timeout_s=PATIENCE_S)
        await all_received((push,), later, "a push consumer, master killed", timeout_s=PATIENCE_S)
        await all_received((fifo,), later, "a FIFO consumer, master killed", timeout_s=PATIENCE_S)
        in_order(fifo)
        stage.say(f"received: simple {counted((simple,)).total()}, push {counted((push,)).total()}, in order "
                  f"{counted((fifo,)).total()}")


def in_order(program: Program) -> None:
    """Check that the first deliveries of each message group are in order."""
    seen: dict[str, list[int]] = defaultdict(list)
    for report in program.reports("received"):
        if report["sequence"] not in seen[report["group"]]:
            seen[report["group"]].append(report["sequence"])
    expect(all(each == sorted(each) for each in seen.values()), f"in order: {dict(seen)}")


async def again_once(program: Program, refused: set[int], what: str) -> None:
    """Check that refused messages came a second time, and others did not."""
    with trio.move_on_after(60):
        while any(counted((program,))[number] < 2 for number in refused):
            await trio.sleep(0.2)
    got = counted((program,))
    expect({number for number, times in got.items() if times > 1} == refused, f"{what}: refused {refused}, got {got}")
