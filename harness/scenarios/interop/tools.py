"""Compares Java's ``mqadmin`` and ours against one cluster: equal output after numbers are masked."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest

import attrs
import trio

from harness.processes import java, ours
from harness.processes.broker import Broker
from harness.processes.handle import Handle
from harness.processes.java.admin import AdminRun
from harness.scenarios.interop.failover import GROUP, cluster
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.watch import create_topic, tool
from remoting.daemon.child import child

_ID = re.compile(r"\b[0-9A-F]{32,}\b")
_NUMBER = re.compile(r"-?\d+(\.\d+)*(e-?\d+)?(:\d+)?", re.IGNORECASE)
_BLANKS = re.compile(r"[ \t]+")
_FOLDER = re.compile(r"\S*/(java|ours)/")


def masked(text: str) -> list[str]:
    """Output without numbers, addresses, widths and blank lines, which neither tool promises; ours is strict JSON."""
    text = _BLANKS.sub(" ", _NUMBER.sub("0", _ID.sub("0", text))).replace('"0"', "0")
    return [line.strip() for line in text.splitlines() if line.strip()]


@attrs.frozen
class Ours:
    """One run of our tool."""

    exit_code: int
    stdout: str
    stderr: str


async def our_mqadmin(*arguments: str) -> Ours:
    run = await trio.run_process(
        [*child("controller.admin.cli"), *arguments],
        capture_stdout=True, capture_stderr=True, check=False)
    return Ours(run.returncode, run.stdout.decode(), run.stderr.decode())


async def compare(stage: Stage, controllers: list[str], namesrv: str) -> None:
    """Run every command that changes nothing with both tools."""
    for arguments in (
        ("getControllerMetaData", "-a", controllers[0]),
        ("getSyncStateSet", "-a", controllers[0], "-b", GROUP),
        ("getSyncStateSet", "-a", controllers[0], "-n", namesrv, "-c", "DefaultCluster"),
        ("getBrokerEpoch", "-n", namesrv, "-b", GROUP),
        ("getBrokerEpoch", "-n", namesrv, "-c", "DefaultCluster"),
        ("updateControllerConfig", "-a", ";".join(controllers), "-k", "notifyBrokerRoleChanged", "-v", "true"),
        ("clusterList", "-n", namesrv),
        ("clusterList", "-n", namesrv, "-m"),
        ("topicRoute", "-n", namesrv, "-t", "TBW102"),
        ("topicRoute", "-n", namesrv, "-t", "TBW102", "-l"),
    ):
        _same(stage, arguments, await tool(stage, *arguments), await our_mqadmin(*arguments))
    original = await tool(stage, "getControllerConfig", "-a", controllers[0])
    own = await our_mqadmin("getControllerConfig", "-a", controllers[0])
    expect(sorted(masked(original.stdout)) == sorted(masked(own.stdout)), f"{original}\n{own}")


async def elect(stage: Stage, controller: str, brokers: Sequence[Broker]) -> None:
    """Elect a master by hand, one with each tool."""
    master, slave = await _master_first(controller, brokers)
    elected = ("electMaster", "-a", controller, "-bn", GROUP, "-c", "DefaultCluster", "-b")
    original = await tool(stage, *elected, str(slave.broker_id()))
    await _in_sync(controller, 2)
    _same(stage, elected, original, await our_mqadmin(*elected, str(master.broker_id())))


async def forget(stage: Stage, controller: str, brokers: Sequence[Broker]) -> None:
    """Clean a broker that is gone, with both tools: a second time is no error."""
    _, slave = await _master_first(controller, brokers)
    await slave.kill()
    await _in_sync(controller, 1)
    clean = ("cleanBrokerMetadata", "-a", controller, "-bn", GROUP, "-c", "DefaultCluster", "-b",
             str(slave.broker_id()))
    with trio.fail_after(60):
        while (own := await our_mqadmin(*clean)).exit_code:
            await trio.sleep(1)  # for some seconds the controller takes the broker as alive
    _same(stage, clean, await tool(stage, *clean), own)


async def _master_first(controller: str, brokers: Sequence[Broker]) -> list[Broker]:
    """Wait until all brokers are in sync; returns them, the master first."""
    said = await _in_sync(controller, len(brokers))
    return sorted(brokers, key=lambda each: f"MasterAddr\t{each.announced}" not in said)


def _same(stage: Stage, arguments: Sequence[str], original: AdminRun, own: Ours) -> None:
    """Run one command with each tool: both must succeed with the same output."""
    expect(original.ok, str(original))
    expect(own.exit_code == 0, f"ours: {own}")
    theirs, mine = masked(original.stdout), masked(own.stdout)
    expect(theirs == mine, f"mqadmin {' '.join(arguments)}\noriginal: {theirs}\nours:     {mine}")
    stage.say(f"{' '.join(arguments)}: the same {len(mine)} lines")


@scenario("5.5.0", timeout_s=400)
async def both_tools_say_the_same_of_our_controllers(stage: Stage) -> None:
    """Java's mqadmin and ours against our controllers and name server: equal output after masking numbers."""
    async with cluster(stage, 2) as made:
        await compare(stage, made.addresses, made.namesrv.address)
        await elect(stage, made.addresses[0], made.brokers)
        await forget(stage, made.addresses[0], made.brokers)


@scenario("5.5.0", timeout_s=500)
async def our_mqadmin_against_java_controllers(stage: Stage) -> None:
    """The same against Java controllers and a Java name server."""
    async with (
        java.controllers(stage.release, stage.here / "controllers") as controllers,
        java.namesrv(stage.release, stage.here / "namesrv") as namesrv,
        java.broker(stage.release, stage.here / "b1", group=GROUP, namesrv=[namesrv.address],
                    controllers=[each.address for each in controllers]) as first,
        java.broker(stage.release, stage.here / "b2", group=GROUP, namesrv=[namesrv.address],
                    controllers=[each.address for each in controllers]) as second,
    ):
        addresses = [each.address for each in controllers]
        await _in_sync(addresses[0], 2)
        await compare(stage, addresses, namesrv.address)
        brokers = (first, second)
        _, slave = await _master_first(addresses[0], brokers)
        # Java's tool fails here: Java's controller answers with a number as a name, which fastjson2 refuses.
        run = await our_mqadmin("electMaster", "-a", addresses[0], "-bn", GROUP, "-c", "DefaultCluster", "-b",
                                str(slave.broker_id()))
        expect(run.exit_code == 0 and f"#BrokerMasterAddr\t{slave.announced}" in run.stdout, f"{run}")
        await forget(stage, addresses[0], brokers)


@scenario("5.5.0", timeout_s=500)
async def a_running_fleet_moves_to_our_controllers(stage: Stage) -> None:
    """Two Java brokers move from Java controllers to ours by import, the master before its slave; no id is lost."""
    async with (
        java.controllers(stage.release, stage.here / "old") as old,
        ours.controllers(stage.here / "new") as new,
        ours.namesrv(stage.here / "namesrv") as namesrv,
    ):
        before: list[Handle] = []
        async with (
            java.broker(stage.release, stage.here / "b1", group=GROUP, namesrv=[namesrv.address],
                        controllers=[each.address for each in old]) as first,
            java.broker(stage.release, stage.here / "b2", group=GROUP, namesrv=[namesrv.address],
                        controllers=[each.address for each in old]) as second,
        ):
            before = [first, second]
            said = await _in_sync(old[0].address, 2)
            ids = [first.broker_id(), second.broker_id()]
            master, slave = (first, second) if f"MasterAddr\t{first.announced}" in said else (second, first)
            await slave.stop()
            await _in_sync(old[0].address, 1)
            run = await our_mqadmin("importControllerMetaData", "-f", old[0].address, "-a", new[0].address, "-b", GROUP,
                                    "--cluster-of", "DefaultCluster")
            expect(run.exit_code == 0, f"{run}")
            stage.say(run.stdout.strip())
            for broker in (master, slave):
                await broker.stop()
                conf = broker.directory / "broker.conf"
                moved = [line if not line.startswith("controllerAddr") else
                         f"controllerAddr={';'.join(each.address for each in new)}"
                         for line in conf.read_text().splitlines()]
                conf.write_text("\n".join(moved) + "\n")
                await broker.start()
            said = await _in_sync(new[0].address, 2)
            expect([first.broker_id(), second.broker_id()] == ids, f"ids changed: {ids}")
            expect(f"MasterAddr\t{master.announced}" in said, f"another master: {said}")
            stage.say(said.strip().replace("\n", " | "))
    expect(before, "nothing ran")


async def _in_sync(controller: str, count: int) -> str:
    """Wait until so many are in sync; returns the output of our mqadmin."""
    with trio.fail_after(120):
        while True:
            said = (await our_mqadmin("getSyncStateSet", "-a", controller, "-b", GROUP)).stdout
            if said.count("\nInSyncReplica") == count:
                return said
            await trio.sleep(1)


async def everyday(stage: Stage, namesrv: str, broker: str) -> None:
    """Run the everyday commands of a broker with both tools, changes with one after the other.
    """
    topic, readers = "Orders", "readers"
    await create_topic(stage, namesrv, topic)
    async with java.receiver(stage.release, stage.here / "receiver", namesrv=[namesrv], topic=topic,
                             group=readers) as receiver:
        line = ("sendMessage", "-n", namesrv, "-t", topic, "-p", "1 hello", "-k", "first second", "-c", "tag")
        while "SEND_OK" not in (said := await tool(stage, *line)).stdout:
            stage.say(f"sent again: {said}")
        await receiver.wait_for("received", timeout_s=120)
        sent = json.loads((await our_mqadmin(
            "sendMessage", "-n", namesrv, "-t", topic, "-p", "2 " + "x" * 5_000, "-k", "key", "--json")).stdout)
        await receiver.wait_for(
            "received", lambda found: {each["sequence"] for each in found} == {1, 2}, timeout_s=120)
        consumed = ("queryMsgById", "-n", namesrv, "-t", topic, "-i", sent["offsetMsgId"])
        with trio.fail_after(60):
            while "trackType=CONSUMED" not in (await our_mqadmin(*consumed)).stdout:
                await trio.sleep(0.5)  # consumers commit offsets every 5 s, or later
        named, at = ("-n", namesrv), ("-n", namesrv, "-b", broker)
        traced = json.loads((await our_mqadmin(
            "sendMessage", *named, "-t", topic, "-p", "traced", "-m", "true", "--json")).stdout)
        with trio.fail_after(60):
            while (await our_mqadmin("queryMsgTraceById", *named, "-i", traced["msgId"])).exit_code:
                await trio.sleep(0.5)
        everywhere = ("-n", namesrv, "-c", "DefaultCluster")
        commands: list[tuple[str, ...]] = [
            consumed,
            ("queryMsgById", *named, "-t", topic, "-i", sent["msgId"], "-f", "UTF-8"),
            ("queryMsgByUniqueKey", *named, "-t", topic, "-i", sent["msgId"]),
            ("queryMsgByKey", *named, "-t", topic, "-k", "second"),
            ("queryMsgByKey", *named, "-t", topic, "-k", "key", "-m", "5", "-b", "1"),
            ("sendMessage", *named, "-t", topic, "-p", "3 again", "-m", "true"),
            ("queryMsgTraceById", *named, "-i", traced["msgId"]),
            ("topicStatus", *named, "-t", topic),
            ("consumerProgress", *named), ("consumerProgress", *named, "-g", readers),
            ("consumerProgress", *named, "-g", readers, "-t", topic, "-s", "true"),
            ("resetOffsetByTime", *named, "-g", readers, "-t", topic, "-s", "now"),
            ("resetOffsetByTime", *at, "-g", readers, "-t", topic, "-s", "1", "-q", str(sent["queueId"]), "-o", "1"),
            ("brokerStatus", *at), ("brokerStatus", *everywhere),
            ("updateBrokerConfig", *at, "-k", "fileReservedTime", "-v", "48"),
            ("updateBrokerConfig", *everywhere, "-k", "fileReservedTime", "-v", "72"),
            ("haStatus", *at), ("haStatus", *everywhere),
            ("updateTopic", *at, "-t", "Made", "-r", "4", "-w", "4", "-p", "6"),
            ("updateTopic", *everywhere, "-t", "Made", "-o", "true"),
            ("deleteTopic", *everywhere, "-t", "Made"),
            ("updateSubGroup", *everywhere, "-g", "made", "-s", "true", "-m", "true", "-r", "3"),
        ]
        await both(stage, commands)


async def both(stage: Stage, commands: Iterable[Sequence[str]]) -> None:
    """Run each command with both tools, one after the other: equal output after masking numbers.

    ``{folder}`` is the tool's own folder, ``{tool}`` its name."""
    others: list[str] = []
    for arguments in commands:
        original, own = [[each.format(folder=stage.here / name, tool=name) for each in arguments]
                         for name in ("java", "ours")]
        theirs, mine = await tool(stage, *original), await our_mqadmin(*own)
        lines = [unordered(_FOLDER.sub("", each.stdout)) for each in (theirs, mine)]
        if theirs.ok and mine.exit_code == 0 and lines[0] == lines[1]:
            stage.say(f"{arguments[0]}: the same {len(lines[0])} lines")
        else:
            others.append(f"{theirs}\nours: {mine}\n" + "\n".join(
                f"original: {one}\nours:     {two}" for one, two in zip_longest(*lines) if one != two))
    expect(not others, "\n".join(others))


def unordered(text: str) -> list[str]:
    """Sort lines: Java prints tables and properties in the order of their hashes."""
    return sorted(" ".join(sorted(filter(None, re.split(r"[ ,{}]+", line)))) for line in masked(text))


@asynccontextmanager
async def our_servers(stage: Stage) -> AsyncIterator[tuple[str, str]]:
    """Start our name server and our single broker; yields their addresses."""
    async with (
        ours.namesrv(stage.here / "namesrv") as namesrv,
        ours.broker(stage.here / "broker", GROUP, namesrv=[namesrv.address]) as broker,
    ):
        yield namesrv.address, broker.address


@asynccontextmanager
async def java_servers(stage: Stage, extra: Mapping[str, bool] | None = None) -> AsyncIterator[tuple[str, str]]:
    """Start Java's name server and single broker, with more keys in its file; yields their addresses."""
    async with (
        java.namesrv(stage.release, stage.here / "namesrv") as namesrv,
        java.broker(stage.release, stage.here / "broker", group=GROUP, namesrv=[namesrv.address],
                    extra=extra) as broker,
    ):
        yield namesrv.address, broker.address


@scenario("5.5.0", timeout_s=600)
async def both_tools_say_the_same_of_our_broker(stage: Stage) -> None:
    """The everyday commands of Java's mqadmin and ours against our broker: equal output after masking numbers."""
    async with our_servers(stage) as (namesrv, broker):
        await everyday(stage, namesrv, broker)


@scenario("5.5.0", timeout_s=600)
async def both_tools_say_the_same_of_a_java_broker(stage: Stage) -> None:
    """The same against a Java broker and a Java name server."""
    # Without its timer wheel a Java broker fails to delete topics: it follows a null pointer.
    async with java_servers(stage, {"timerWheelEnable": True}) as (namesrv, broker):
        await everyday(stage, namesrv, broker)
