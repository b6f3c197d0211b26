"""What a container of idle brokers takes of a machine: all their memory and processor time, and when they are ready.

    python -m benchmarks.container --brokers 64 --seconds 30

A name server and one container run; nobody sends. Memory is the proportional share (PSS) of each process, so what they
share by forking counts once. The name server is measured apart. Linux only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import trio

from benchmarks.processes import cpu_s, descendants
from harness.processes import ours
from harness.processes.broker import FAST_PORT, HA_PORT
from harness.processes.handle import Handle, running
from harness.processes.ours import HOST
from harness.processes.ports import reserved
from remoting import properties
from remoting.bodies.namesrv import ClusterInfo
from remoting.client import open_client
from remoting.codes import RequestCode
from remoting.command import request
from remoting.daemon.child import child

PORTS_APART: Final = 4
FIRST_PORT: Final = 21_000
CONTAINER: Final = "container"


def pss_mb(pid: int) -> float:
    """Proportional share of memory, of a process and of those below it."""
    total_kb = 0
    for each in descendants(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kb / 1_024


def files(here: Path, count: int) -> list[Path]:
    """A configuration for each broker, with stores that begin small."""
    made = []
    for number in range(count):
        path = here / f"broker-{number}.conf"
        path.write_text(properties.encode({
            "brokerName": f"b{number}", "listenPort": str(FIRST_PORT + number * PORTS_APART), "brokerIP1": HOST,
            "bindAddress": HOST, "storePathRootDir": str(here / "stores" / str(number)), "maxHashSlotNum": "1000",
            "maxIndexNum": "4000"}))
        made.append(path)
    return made


async def measure(here: Path, count: int, seconds: float) -> dict[str, Any]:
    """Start, wait until each has registered, let it settle, and look on for so long."""
    async with ours.namesrv(here / "namesrv") as namesrv, open_client() as client:
        with reserved(FAST_PORT, HA_PORT) as port:
            file = here / "container.conf"
            paths = ":".join(map(str, files(here, count)))
            file.write_text(f"bindAddress={HOST}\nlistenPort={port}\nnamesrvAddr={namesrv.address}\n"
                            f"containerStorePath={here / 'kept'}\nbrokerConfigPaths={paths}\n")
            process = Handle(CONTAINER, here, [*child("broker.container.cli"), "-c", str(file)], f"{HOST}:{port}",
                             "container boot success")
            began = time.perf_counter()
            async with running(process):
                try:
                    while True:
                        answer = await client.call(namesrv.address, request(RequestCode.GET_BROKER_CLUSTER_INFO))
                        if len(ClusterInfo.from_json(answer.body).broker_addr_table) == count:
                            break
                        await trio.sleep(0.05)
                    ready_s = time.perf_counter() - began
                    start_cpu_s = cpu_s(process.pid)
                    await trio.sleep(5)
                    before, before_namesrv, at = cpu_s(process.pid), cpu_s(namesrv.pid), time.perf_counter()
                    await trio.sleep(seconds)
                    took = time.perf_counter() - at
                    return {
                        "brokers": count, "ready_s": round(ready_s, 1), "start_cpu_s": round(start_cpu_s, 1),
                        "core_percent": round(100 * (cpu_s(process.pid) - before) / took, 1),
                        "namesrv_core_percent": round(100 * (cpu_s(namesrv.pid) - before_namesrv) / took, 1),
                        "pss_mb": round(pss_mb(process.pid)), "seconds": seconds, "processes":
                            len(list(descendants(process.pid)))}
                finally:
                    with trio.CancelScope(shield=True):
                        await process.stop(timeout_s=60)


def main() -> int:
    """The command; returns its exit code."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to look on; default: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorate-container-") as here:
        print(json.dumps(trio.run(measure, Path(here), options.brokers, options.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
