"""Cuts the power of a real cluster many times and looks for what it had acknowledged.

One run: three voters in one process under the recorder, killed with -9; every point of its recording is a moment at
which the power could have failed. A cut writes what the disks may then hold and asks, for every majority, whether the
member that would win its election holds all that was acknowledged before. The last cut of a run is also started again
for real. Knows the victim's commands and the storage's public face.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import attrs
import trio

import raft
from harness.nemesis.compiling import library
from harness.nemesis.errors import NotHere
from raft.config import Sync
from raft.frame import Kind
from raft.groups import DEFAULT_GROUP, group_number
from raft.messages import Recovered
from raft.storage.directory import DirectoryFiles
from raft.storage.segment import SegmentStorage
from tests.powercut.replay import OPENED, WRITTEN, Disk, records
from tests.powercut.victim import NUMBER, Numbers, config

HERE = Path(__file__).parent
VOTERS = ("n0", "n1", "n2")


@attrs.define
class Tally:
    """What a campaign saw."""

    runs: int = 0
    cuts: int = 0
    revived: int = 0
    acknowledged: int = 0
    syncs: int = 0
    lost: int = 0
    damaged: int = 0
    losses: list[str] = attrs.Factory(list)


def record(recorder: Path, directory: Path, sync: Sync, seconds: float) -> tuple[Path, bytes]:
    """Run the victim for a while, kill it with -9, return its root and the recording."""
    root, log = directory / "disks", directory / "recording"
    root.mkdir()
    victim = subprocess.Popen(
        [sys.executable, "-m", "tests.powercut.victim", str(root), sync.value], stdin=subprocess.DEVNULL,
        env={**os.environ, "LD_PRELOAD": str(recorder), "RECORDER_ROOT": str(root), "RECORDER_LOG": str(log)})
    try:
        limit = time.monotonic() + 30
        acks = root / "acks"
        while not (acks.exists() and acks.stat().st_size) and time.monotonic() < limit and victim.poll() is None:
            time.sleep(0.02)
        if not (acks.exists() and acks.stat().st_size):
            raise RuntimeError("the victim acknowledged nothing within 30 s")
        time.sleep(seconds)
        if victim.poll() is not None:
            raise RuntimeError(f"the victim ended by itself, with {victim.returncode}")
    finally:
        victim.kill()
        victim.wait()
    return root, log.read_bytes()


def held_by(directory: Path, node_id: str) -> tuple[tuple[int, int], set[bytes]]:
    """((last term, last index), every number in snapshot and log) of one voter's directory after a cut."""
    segment_bytes = config(Sync.ALWAYS).segment_bytes
    storage = SegmentStorage(DirectoryFiles(directory), "default", node_id, segment_bytes=segment_bytes, rng=Random(1),
                             background=False)
    try:
        group = group_number(DEFAULT_GROUP)
        recovered = storage.open().get(group, Recovered())  # unknown: it had no part in anything yet
        numbers: set[bytes] = set()
        if recovered.snapshot:
            meta, state = recovered.snapshot, b""
            while piece := storage.read_snapshot(group, meta.index, len(state), 1 << 20):
                state += piece
            numbers.update(state[at : at + NUMBER.size] for at in range(0, len(state), NUMBER.size))
        index = recovered.purged_index + 1
        while index <= recovered.last_index:
            for frame in storage.read(group, index, 1 << 20):
                if frame.kind == Kind.COMMANDS:
                    numbers.update(payload[: NUMBER.size] for payload in frame.payloads())
                index = frame.last + 1
        return (recovered.last_term, recovered.last_index), numbers
    finally:
        storage.close()


def missing(disks: Path, formatted: set[str], acknowledged: set[bytes], tally: Tally) -> int:
    """How many acknowledged numbers some majority could lose. A directory may be empty only until it is formatted."""
    held = {}
    for node_id in VOTERS:
        if node_id not in formatted:
            held[node_id] = (0, 0), set[bytes]()
            continue
        try:
            held[node_id] = held_by(disks / node_id, node_id)
        except raft.StorageError as error:
            tally.damaged += 1
            tally.losses.append(f"{node_id}: {error!r}")
            return max(1, len(acknowledged))
    worst = 0
    for pair in itertools.combinations(VOTERS, 2):
        winner = max(pair, key=lambda name: held[name][0])
        worst = max(worst, len(acknowledged - held[winner][1]))
    return worst


async def revive(disks: Path, acknowledged: set[bytes], sync: Sync) -> int:
    """Start the voters again for real; how many acknowledged numbers the new leader does not serve."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in VOTERS]
    peers = {name: f"127.0.0.1:{s.getsockname()[1]}" for name, s in zip(VOTERS, sockets, strict=True)}
    for held in sockets:
        held.close()
    async with AsyncExitStack() as stack:
        machines = {name: Numbers() for name in VOTERS}
        nodes = {name: await stack.enter_async_context(raft.open_node(
            name, peers=peers, data_dir=disks / name, state_machine=machines[name], config=config(sync)))
            for name in VOTERS}
        with trio.fail_after(30):
            while True:
                leading = next((name for name, node in nodes.items() if node.is_leader), None)
                if leading is not None:
                    try:
                        await nodes[leading].read_barrier()
                        return len(acknowledged - set(machines[leading].seen))
                    except raft.Outcome:
                        pass
                await trio.sleep(0.02)


def campaign(
    *, cuts: int, sync: Sync = Sync.ALWAYS, seed: int = 1, cuts_per_run: int = 50, seconds: float = 1.5,
) -> Tally | None:
    """``cuts`` power cuts over as many runs as needed; None where the recorder cannot be built."""
    try:
        recorder = library(HERE / "recorder.c")
    except NotHere:
        return None
    tally, rng = Tally(), Random(f"power cut {seed}")
    with tempfile.TemporaryDirectory() as name:
        while tally.cuts < cuts:
            with tempfile.TemporaryDirectory(dir=name) as directory:
                root, recording = record(recorder, Path(directory), sync, seconds)
                _cut_one_run(root, recording, min(cuts_per_run, cuts - tally.cuts), sync, rng, tally)
            tally.runs += 1
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{tally.cuts}/{cuts} cuts, {tally.lost} lost")
                sys.stderr.flush()
    return tally


def _cut_one_run(root: Path, recording: bytes, cuts: int, sync: Sync, rng: Random, tally: Tally) -> None:
    played = list(records(recording))
    disk, acknowledged, ack_fd = Disk(str(root)), set[bytes](), -1
    points = [*sorted(rng.randrange(1, len(played) + 1) for _ in range(cuts - 1)), len(played)]
    for position, entry in enumerate(played, 1):
        if entry.op == OPENED and entry.data.endswith(b"/acks"):
            ack_fd = entry.fd
        elif entry.op == WRITTEN and entry.fd == ack_fd:
            acknowledged.add(entry.data)
            tally.acknowledged += 1
        else:
            disk.play(entry)
        while points and points[0] == position:
            points.pop(0)
            with tempfile.TemporaryDirectory(dir=root.parent) as name:
                target = Path(name)
                disk.cut(target, rng)
                for node_id in VOTERS:
                    (target / node_id).mkdir(exist_ok=True)
                formatted = {name for name in VOTERS if f"{root}/{name}/identity" in disk.durable}
                lost = missing(target, formatted, acknowledged, tally)
                tally.cuts += 1
                if lost:
                    tally.lost += 1
                    tally.losses.append(f"{lost} of {len(acknowledged)} acknowledged, at record {position}")
                elif not points:
                    lost = trio.run(revive, target, set(acknowledged), sync)
                    tally.revived += 1
                    if lost:
                        tally.lost += 1
                        tally.losses.append(f"{lost} of {len(acknowledged)} not served after a restart")
    tally.syncs += disk.syncs
