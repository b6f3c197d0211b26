"""Runs Java's ``mqadmin``, parses its report of a broker group, and waits for a wanted report.

Knows the tool's output, and no cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import attrs
import trio

from harness.processes.java import AdminRun, mqadmin
from harness.scenarios.interop.scenario import Stage, Unexpected

_FIELD = re.compile(r"^#(?P<name>\w+)\t(?P<value>.*)$", re.MULTILINE)
_REPLICA = re.compile(
    r"^(?P<kind>In|NotIn)SyncReplica:\t.*"
    r"brokerId=(?P<id>\d+), brokerAddress='(?P<address>[^']+)', alive=(?P<alive>\w+)", re.MULTILINE)


@attrs.frozen
class SyncState:
    """One answer of Java's command ``getSyncStateSet``."""

    master: int | None
    master_address: str
    master_epoch: int
    epoch: int
    in_sync: frozenset[int]
    replicas: dict[int, str]
    alive: frozenset[int]


def parse(text: str) -> SyncState | None:
    """Parse an answer; None: the group does not exist (yet)."""
    fields = {found["name"]: found["value"] for found in _FIELD.finditer(text)}
    if "MasterEpoch" not in fields:
        return None
    replicas = list(_REPLICA.finditer(text))
    master = fields["MasterBrokerId"]
    return SyncState(
        master=int(master) if master.isdecimal() else None, master_address=fields["MasterAddr"],
        master_epoch=int(fields["MasterEpoch"]), epoch=int(fields["SyncStateSetEpoch"]),
        in_sync=frozenset(int(found["id"]) for found in replicas if found["kind"] == "In"),
        replicas={int(found["id"]): found["address"] for found in replicas},
        alive=frozenset(int(found["id"]) for found in replicas if found["alive"] == "true"))


async def tool(stage: Stage, *arguments: str) -> AdminRun:
    """Run the Java tool, again if it timed out: its limit of 3 s is short for a busy machine."""
    run = await mqadmin(stage.release, *arguments)
    for _ in range(3):
        if run.ok or not any(word in run.stdout + run.stderr for word in ("TimeoutException", "call timeout")):
            break
        stage.say(f"mqadmin {arguments[0]} timed out; again")
        run = await mqadmin(stage.release, *arguments)
    return run


async def create_topic(stage: Stage, namesrv: str, topic: str) -> None:
    """Create a topic on every master, once there is one: Java's tool succeeds even if it finds none."""
    line = ("updateTopic", "-n", namesrv, "-c", "DefaultCluster", "-t", topic)
    while " success." not in (await tool(stage, *line)).stdout:
        await trio.sleep(0.5)


async def sync_state(stage: Stage, controllers: list[str], group: str) -> SyncState | None:
    """Ask the Java tool, at the first of ``controllers`` with which it gets an answer."""
    for address in controllers:
        run = await tool(stage, "getSyncStateSet", "-a", address, "-b", group)
        found = parse(run.stdout) if run.ok else None
        if found is not None:
            return found
    return None


async def until(
    stage: Stage, controllers: list[str], group: str, wanted: Callable[[SyncState], bool], what: str,
    timeout_s: float = 90,
) -> SyncState:
    """Ask until ``wanted`` holds. Raises ``Unexpected`` with the last answer."""
    last = None
    with trio.move_on_after(timeout_s):
        while True:
            last = await sync_state(stage, controllers, group)
            if last is not None and wanted(last):
                stage.say(f"{what}: master {last.master} epoch {last.master_epoch}, in sync {sorted(last.in_sync)}")
                return last
            await trio.sleep(0.5)
    raise Unexpected(f"{what}: not within {timeout_s:g} s; last seen: {last}")
