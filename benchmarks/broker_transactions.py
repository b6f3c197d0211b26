"""What committed transactions cost the three brokers of a group: processor time of each of the three processes.

    python -m benchmarks.broker_transactions [--threads 32] [--seconds 5] [--rounds 4] [--plain]

A group of ours, all on the loopback interface, replicas acknowledge all. One process has as many halves under way as a
producer with so many threads, on one connection, and commits each as soon as it is answered, as RocketMQ's Java
producer does. How many share a turn of a loop depends on the machine: compare runs that took turns. It measures; it
judges nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import trio

from benchmarks.broker import cluster
from benchmarks.broker_calls import Sender, ended, sent
from benchmarks.processes import cpu_s
from remoting.address import split_address
from remoting.command import Command
from remoting.frame import encode
from remoting.record import PREPARED

TOPIC: Final = "load"


def first_send(unique: int, *, plain: bool) -> Command:
    id_ = f"7F000001{unique:024X}"
    return sent(TOPIC, id_) if plain else sent(TOPIC, id_, PREPARED, TRAN_MSG="true", PGROUP="shop")


def load(address: str, threads: int, seconds: float, begin: int, plain: bool) -> tuple[int, float]:
    """Returns how many were stored, and committed, and the time that it took."""
    sender = Sender(split_address(address)[1])
    count, failed, began = begin, 0, time.perf_counter()

    def another() -> bytes:
        nonlocal count
        command = first_send(count, plain=plain)
        command.opaque, count = count, count + 1
        return encode(command)

    sender.send_oneway([another() for _ in range(threads)])
    unanswered = threads
    while unanswered:
        frames: list[bytes] = []
        for answer in sender.received():
            unanswered -= 1
            failed += answer.code != 0
            if not plain and not answer.code:
                frames.append(encode(ended(answer)))
            if time.perf_counter() - began < seconds:
                frames.append(another())
                unanswered += 1
        sender.send_oneway(frames)
    took_s = time.perf_counter() - began
    sender.close()
    return count - begin - failed, took_s


async def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-transactions-") as folder, get_context("spawn").Pool(1) as pool:
        async with cluster("ours", Path(folder), "waiting", None) as system:
            await system.create(TOPIC)
            sent_so_far = 0
            for number in range(options.rounds + 1):
                master = await system.settled()
                brokers = sorted(system.brokers, key=lambda each: each is not master)
                before = [cpu_s(each.pid) for each in brokers]
                count, took_s = await trio.to_thread.run_sync(pool.apply, load, (
                    master.address, options.threads, options.seconds, sent_so_far, options.plain))
                await trio.sleep(0.3)  # the last ones end
                sent_so_far += count
                used = [(cpu_s(each.pid) - was) / count * 1e6 for each, was in zip(brokers, before, strict=True)]
                if number:  # the first one warms up
                    print(f"{count / took_s:,.0f}/s; µs of CPU each: {sum(used):.0f}, of them the master "
                          f"{used[0]:.0f}, slaves {used[1]:.0f} and {used[2]:.0f}", flush=True)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5, help="of one round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--plain", action="store_true", help="messages without a transaction instead")
    trio.run(measure, parser.parse_args())


if __name__ == "__main__":
    main()
