"""What a container of idle brokers takes of a machine: all their memory and processor time, and when they are ready.

    python -m benchmarks.container --brokers 64 --seconds 30 [--only ours]

A name server of ours and one container run, ours and then Java's 5.5.0; nobody sends, and all services of a broker are
on, as by default. Memory is the proportional share (PSS) of each process, so what they share by forking counts once;
``anonymous`` is what of it no file backs. The name server is measured apart. Linux only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from benchmarks.processes import cpu_s, descendants
from harness.processes import java, ours
from harness.processes.broker import FAST_PORT, HA_PORT
from harness.processes.handle import Handle, running
from harness.processes.java.jars import fetch_part
from harness.processes.java.jvm import JVM, command
from harness.processes.ours import HOST
from harness.processes.ports import reserved
from remoting import properties
from remoting.bodies.namesrv import ClusterInfo
from remoting.client import Client, open_client
from remoting.codes import RequestCode
from remoting.command import request
from remoting.daemon.child import child

PORTS_APART: Final = 4
FIRST_PORT: Final = 21_000
CONTAINER: Final = "container"
SYSTEMS: Final = ("ours", "java")
READY_S: Final = 300.0
SETTLING_S: Final = 20.0
"""A thread of each Java broker spins for the first 10 s."""
JAVA_ROOM: Final = {"diskMaxUsedSpaceRatio": "95"}
"""Java's brokers refuse to serve on a disk that others fill."""
HEAP_MB: Final = 96
"""Heap that a Java container may take for each broker, beside 512 MB."""


def pss_mb(pid: int, kind: str = "Pss") -> float:
    """Proportional share of memory, of a process and of those below it. ``kind``: as smaps_rollup calls it."""
    total_kb = 0
    for each in descendants(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total_kb += sum(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))
    return total_kb / 1_024


def files(here: Path, count: int, more: Mapping[str, str] | None = None) -> list[Path]:
    """A configuration for each broker, with stores that begin small."""
    made = []
    for number in range(count):
        path = here / f"broker-{number}.conf"
        path.write_text(properties.encode({
            "brokerName": f"b{number}", "listenPort": str(FIRST_PORT + number * PORTS_APART), "brokerIP1": HOST,
            "bindAddress": HOST, "storePathRootDir": str(here / "stores" / str(number)), "maxHashSlotNum": "1000",
            "maxIndexNum": "4000", **(more or {})}))
        made.append(path)
    return made


async def _container(system: str, here: Path, file: Path, address: str, count: int) -> Handle:
    if system == "ours":
        return Handle(CONTAINER, here, [*child("broker.container.cli"), "-c", str(file)], address,
                      "container boot success")
    release = await java.fetch(java.CURRENT)
    jars = attrs.evolve(await fetch_part(java.CURRENT, CONTAINER), classes=release.classes)
    heap = JVM(heap_mb=512 + HEAP_MB * count, heap_first_mb=256, quick_start=False)
    return Handle(CONTAINER, here, command(
        jars, "org.apache.rocketmq.container.BrokerContainerStartup", ["-c", str(file)], here, heap), address,
        "boot success")


async def _all_registered(client: Client, namesrv: str, count: int) -> None:
    with trio.fail_after(READY_S):
        while True:
            answer = await client.call(namesrv, request(RequestCode.GET_BROKER_CLUSTER_INFO))
            if len(ClusterInfo.from_json(answer.body).broker_addr_table) == count:
                return
            await trio.sleep(0.05)


async def measure(system: str, here: Path, count: int, seconds: float) -> dict[str, Any]:
    """Start, wait until each has registered, let it settle, and look on for so long."""
    async with ours.namesrv(here / "namesrv") as namesrv, open_client() as client:
        with reserved(FAST_PORT, HA_PORT) as port:
            file = here / "container.conf"
            paths = ":".join(map(str, files(here, count, JAVA_ROOM if system == "java" else None)))
            file.write_text(f"bindAddress={HOST}\nlistenPort={port}\nnamesrvAddr={namesrv.address}\n"
                            f"containerStorePath={here / 'kept'}\nbrokerContainerIP={HOST}\n"
                            f"brokerConfigPaths={paths}\n")
            process = await _container(system, here, file, f"{HOST}:{port}", count)
            began = time.perf_counter()
            async with running(process, start=False):
                try:
                    await process.start(timeout_s=READY_S)
                    await _all_registered(client, namesrv.address, count)
                    ready_s = time.perf_counter() - began
                    start_cpu_s = cpu_s(process.pid)
                    await trio.sleep(SETTLING_S)
                    before, before_namesrv, at = cpu_s(process.pid), cpu_s(namesrv.pid), time.perf_counter()
                    await trio.sleep(seconds)
                    took = time.perf_counter() - at
                    return {
                        "system": system, "brokers": count, "ready_s": round(ready_s, 1),
                        "start_cpu_s": round(start_cpu_s, 1),
                        "core_percent": round(100 * (cpu_s(process.pid) - before) / took, 1),
                        "namesrv_core_percent": round(100 * (cpu_s(namesrv.pid) - before_namesrv) / took, 1),
                        "pss_mb": round(pss_mb(process.pid)), "anonymous_mb": round(pss_mb(process.pid, "Pss_Anon")),
                        "seconds": seconds, "processes": len(list(descendants(process.pid)))}
                finally:
                    with trio.CancelScope(shield=True):
                        await process.stop(timeout_s=60)


def _run(systems: Sequence[str], count: int, seconds: float) -> None:
    for system in systems:
        with tempfile.TemporaryDirectory(prefix="quorate-container-") as here:
            print(json.dumps(trio.run(measure, system, Path(here), count, seconds)), flush=True)


def main() -> int:
    """The command; returns its exit code."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to look on; default: %(default)s")
    parser.add_argument("--only", choices=SYSTEMS, help="one of the two")
    options = parser.parse_args()
    _run([options.only] if options.only else SYSTEMS, options.brokers, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
