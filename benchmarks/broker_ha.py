"""Auto-switch replication between two processes: copying a log to an empty replica, and puts that wait for the copy.

    python -m benchmarks.broker_ha [--megabytes 1024] [--body-bytes 1024] [--puts 5000]

Copying is counted in bytes of the log that the slave has acknowledged; then comes the time until its consume queues are
level. Puts are one at a time, 128-byte bodies, answered when both replicas hold them. Processor time of both processes
is told, which other load on the machine does not change much. It measures; it judges nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles

import trio

from broker.ha.acks import PutStatus, QuorumConfig
from broker.ha.autoswitch import AutoSwitch
from broker.ha.config import HaConfig
from broker.ha.epochfile import EpochFile
from broker.ha.taking import BecomeMaster, BecomeSlave
from broker.journal import Journal
from broker.puts import PutResult, Puts
from broker.store.directory import DirectoryFiles
from broker.store.store import MessageStore, StoreConfig
from remoting.record import Message, encode_properties
from remoting.wakeup import Bell

CONFIG = HaConfig(all_ack_in_sync_state_set=True)
STORE = StoreConfig(log_file_bytes=256 << 20)
LEVEL = "level"
"""A file of the slave's: its queues are level."""
PROPERTIES = encode_properties({"UNIQ_KEY": "0" * 32, "TAGS": "TagA", "WAIT": "true", "CLUSTER": "c"})


@asynccontextmanager
async def replica(root: Path, broker_id: int, listeners: list[trio.SocketListener]) -> AsyncIterator[
        tuple[Journal, AutoSwitch]]:
    files = DirectoryFiles(root)
    journal = Journal(MessageStore(files, STORE))
    journal.open()
    switch = AutoSwitch(journal, EpochFile(files), CONFIG)
    switch.broker_id = broker_id
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run)
        await nursery.start(switch.run, listeners)
        yield journal, switch
        nursery.cancel_scope.cancel()
    await journal.close()


async def slave(root: Path, address: str, megabytes: int) -> None:
    async with replica(root, 2, []) as (journal, switch):
        began = time.process_time()
        await switch.become_slave(BecomeSlave(1, 1, "master"), address)
        await until(lambda: journal.end >= megabytes << 20)
        at, used = time.monotonic(), time.process_time() - began
        await until(lambda: journal.visible.offset >= megabytes << 20)
        print(f"slave: {used:.2f} s of CPU to copy, {time.process_time() - began:.2f} s until its queues were level, "
              f"{time.monotonic() - at:.2f} s after the copy", flush=True)
        (root / LEVEL).touch()
        await trio.to_thread.run_sync(sys.stdin.read)


async def until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await trio.sleep(0.01)


def fill(journal: Journal, megabytes: int, body_bytes: int) -> None:
    queues = [Message(b"Orders", b"." * body_bytes, number, PROPERTIES) for number in range(8)]
    while journal.log.max_offset < megabytes << 20:
        journal.append(queues * 8)
        journal.log.write()


async def master(root: Path, megabytes: int, body_bytes: int, puts: int) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    level = root / "slave" / LEVEL
    async with replica(root / "master", 1, listeners) as (journal, switch):
        fill(journal, megabytes, body_bytes)
        held = await switch.become_master(BecomeMaster(1, frozenset({1}), 1))
        await until(lambda: journal.visible.indexed_offset == journal.end)
        await trio.to_thread.run_sync(os.sync)
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "benchmarks.broker_ha", "--slave", address, "--root", str(root / "slave"),
             "--megabytes", str(megabytes)], stdin=subprocess.PIPE)
        await until(lambda: 2 in held.acks)
        end, began, used = journal.end, time.perf_counter(), time.process_time()
        await until(lambda: (held.acks.get(2) or 0) >= end)
        took = time.perf_counter() - began
        print(f"copy: {end >> 20} MiB acknowledged in {took:.2f} s: {end / took / 1e6:,.0f} MB/s; master "
              f"{time.process_time() - used:.2f} s of CPU", flush=True)
        await until(level.is_file)
        held.accept({1, 2}, 2)
        switch.advance()
        await one_at_a_time(journal, switch, puts)
        await process.stdin.aclose()  # type: ignore[union-attr]
        await process.wait()


async def one_at_a_time(journal: Journal, switch: AutoSwitch, count: int) -> None:
    puts = Puts(journal, QuorumConfig(all_ack_in_sync_state_set=True))
    puts.serve(switch)
    switch.advanced = puts.advanced
    took, bell = [], Bell()
    message = [Message(b"Orders", b"." * 128, 1, PROPERTIES)]

    def done(result: PutResult) -> None:
        assert result.status is PutStatus.PUT_OK, result
        bell.ring()

    used = time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        puts.put(message, done)
        await bell.wait()
        took.append((time.perf_counter() - began) * 1e3)
    used = (time.process_time() - used) / count * 1e6
    cuts = quantiles(took, n=100)
    print(f"puts, one at a time: p50 {cuts[49]:.3f} ms, p99 {cuts[98]:.3f} ms; master {used:.0f} µs of CPU each")


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--puts", type=int, default=5000)
    parser.add_argument("--slave", help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help="directory to work in; default: a temporary one")
    options = parser.parse_args()
    if options.slave:
        trio.run(slave, options.root, options.slave, options.megabytes)
        return
    with tempfile.TemporaryDirectory(dir=options.root) as root:
        trio.run(partial(master, Path(root), options.megabytes, options.body_bytes, options.puts))


if __name__ == "__main__":
    main()
