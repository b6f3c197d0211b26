"""How fast and how large the controller's replicated metadata is: elections per second, groups in memory, a restore.

    python -m benchmarks.controller_metadata [--groups 10000] [--rounds 5]

Bytes in, outcomes out, as raft's apply loop calls it; no log, disk or network is in it. Rates are per second of this
process's own processor time, so what else the machine does counts little. Each figure is the median of the rounds and
their spread. Knows ``controller.metadata``.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import tracemalloc
from collections.abc import Callable

import attrs

from benchmarks.measure import Summary
from controller.metadata.codec import FORMAT, encode
from controller.metadata.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    Command,
    ElectMaster,
    LiveReplica,
    Observation,
    RaiseFormat,
    RegisterBroker,
    Trigger,
)
from controller.metadata.groups import GroupKey
from controller.metadata.machine import MetadataMachine
from raft.statemachine import Entries

REPLICAS = (1, 2, 3)
BATCH = 64
"""Commands in one call, as frames of a busy log hold them."""


class Pieces:
    """A sink in memory."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)


def keys(groups: int) -> list[GroupKey]:
    return [GroupKey("DefaultCluster", f"broker-{number:05}") for number in range(groups)]


def address(number: int, broker_id: int) -> str:
    return f"10.{number >> 8 & 255}.{number & 255}.{broker_id}:10911"


def live(*ids: int) -> Observation:
    return Observation({i: LiveReplica(1, 1 << 33, 1 << 33, min_in_sync_replicas=2) for i in ids})


def births(groups: int) -> list[Command]:
    """Ids, a first master and a full SyncStateSet for each group."""
    found: list[Command] = []
    for number, key in enumerate(keys(groups)):
        for i in REPLICAS:
            found.append(ApplyBrokerId(
                term=1, key=key, broker_id=i, check_code=f"{address(number, i)};1700000000000"))
        found.append(ElectMaster(term=1, key=key, trigger=Trigger.BROKER, broker_id=1, observation=live(1, 2, 3)))
        found.append(alter(key, 1, 1, 1))
    return found


def alter(key: GroupKey, master: int, master_epoch: int, epoch: int) -> AlterSyncStateSet:
    return AlterSyncStateSet(
        term=1, key=key, broker_id=master, master_epoch=master_epoch, sync_state_set=frozenset(REPLICAS),
        sync_state_set_epoch=epoch, observation=live(1, 2, 3))


def lost(key: GroupKey) -> ElectMaster:
    return ElectMaster(term=1, key=key, trigger=Trigger.CONTROLLER, broker_id=None, observation=live(2, 3))


def again(number: int, key: GroupKey) -> RegisterBroker:
    """Another process, in place of one that is judged dead."""
    return RegisterBroker(term=1, key=key, broker_id=3, address=address(number, 9),
                          instead_of=(address(number, 3), None), observation=live(1, 2, 3))


def apply(machine: MetadataMachine, commands: list[bytes]) -> float:
    """Seconds; all of them must change something, or the figure means nothing."""
    results: list[object] = []
    start = time.process_time()
    for first in range(0, len(commands), BATCH):
        results += machine.apply_entries(Entries(commands[first : first + BATCH], 1, first, 0))
    elapsed = time.process_time() - start
    assert all(getattr(result, "changed", False) for result in results)
    return elapsed


def restored(pieces: list[bytes]) -> MetadataMachine:
    machine = MetadataMachine()
    machine.restore_from(iter(pieces))
    return machine


def timed(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def one_round(groups: int, figures: dict[str, list[float]]) -> list[bytes]:
    """Adds its figures; returns the snapshot."""
    def note(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    commands = births(groups)
    machine = MetadataMachine()
    for following in range(2, FORMAT + 1):
        machine.apply_at(encode(RaiseFormat(term=1, format=following), machine.format), 1)
    start = time.process_time()
    data = [encode(command, FORMAT) for command in commands]
    note("encode_per_second", len(data) / (time.process_time() - start))
    note("births_per_second", len(data) / apply(machine, data))
    elections = [encode(lost(key), FORMAT) for key in keys(groups)]
    note("elections_per_second", groups / apply(machine, elections))
    alters = [encode(alter(key, 2, 2, 3), FORMAT) for key in keys(groups)]
    note("alters_per_second", groups / apply(machine, alters))
    moves = [encode(again(number, key), FORMAT) for number, key in enumerate(keys(groups))]
    note("registrations_per_second", groups / apply(machine, moves))
    note("capture_ms", timed(machine.capture) * 1e3)
    view, sink = machine.capture(), Pieces()
    note("write_ms", timed(lambda: machine.write(view, sink)) * 1e3)
    note("snapshot_bytes_per_group", sum(map(len, sink.pieces)) / groups)
    note("restore_ms", timed(lambda: restored(sink.pieces)) * 1e3)
    note("state_hash_ms", timed(machine.state_hash) * 1e3)
    assert restored(sink.pieces).state_hash() == machine.state_hash()
    return sink.pieces


def memory(pieces: list[bytes], groups: int) -> dict[str, float]:
    """Bytes of Python objects per group: held after a restore, and at most while it ran."""
    gc.collect()
    tracemalloc.start()
    machine = restored(pieces)
    gc.collect()
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(machine.groups) == groups
    return {"memory_bytes_per_group": held / groups, "restore_peak_bytes_per_group": peak / groups}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    figures: dict[str, list[float]] = {}
    pieces: list[bytes] = []
    for number in range(args.rounds):
        pieces = one_round(args.groups, figures)
        print(f"  round {number + 1}: {figures['elections_per_second'][-1]:,.0f} elections/s, "
              f"restored in {figures['restore_ms'][-1]:,.0f} ms", flush=True)
    print(json.dumps({"groups": args.groups, "replicas": len(REPLICAS)} | memory(pieces, args.groups) | {
        name: attrs.asdict(Summary.of(values)) for name, values in figures.items()}))


if __name__ == "__main__":
    main()
