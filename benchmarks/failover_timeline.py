"""A failover of our cluster moment by moment: kill -9 of a master, and when each of its peers has done its part.

    python -m benchmarks.failover_timeline                              # 20 kills, about two minutes
    python -m benchmarks.failover_timeline --kills 50 --json benchmarks/results/failover_timeline.json
    python -m benchmarks.failover_timeline --together --kills 200       # the active controller with it, each time
    python -m benchmarks.failover_timeline --together --stop            # as a host that is lost: no connection closes

Three controllers, a name server and three brokers as processes, acknowledged by all in the SyncStateSet, with a client
that sends to one queue all the time. Moments are what the servers' own logs say, which count whole milliseconds, and
what the client sees; all from the kill on. The tables of ``docs`` are made from the file.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import trio

from benchmarks.broker import GROUP, PATIENCE_S, REPLICAS, System, cluster, send_all_the_time
from benchmarks.measure import quantile
from broker.client import connect
from harness.processes.handle import Handle
from mqcluster.looking import GroupView, look

MOMENTS: Final[Mapping[str, str]] = {
    "left": "the name server takes the dead master out of its routes",
    "elected": "the election is committed and applied on a controller: the new epoch has begun",
    "role": "the new master has been told, and begins to change its role",
    "routes": "the name server has the new master",
    "open": "the new master takes writes",
    "acknowledged": "the client is acknowledged to again: the end of its longest wait",
    "after the election": "from the election to the client's acknowledgement",
    "in sync": "the other living replica is in the SyncStateSet again",
}
"""Moments by their names, about in the order in which they come."""
_LINE: Final = re.compile(r"^(\S+Z) [A-Z]+ \S+ (.*)$", re.MULTILINE)


def said(log: str, words: str, since: float) -> float | None:
    """When this was first logged, in seconds since the epoch, from ``since`` on; None if it never was."""
    for found in _LINE.finditer(log):
        at = dt.datetime.fromisoformat(found[1]).timestamp()
        if at >= since - 0.001 and re.search(words, found[2]):  # lines have whole milliseconds
            return at
    return None


def moments(since: float, epoch: int, controllers: Sequence[str], brokers: Sequence[str], namesrv: str,
            master: str) -> dict[str, float]:
    """Milliseconds from the kill to what the logs tell; what they do not tell is left out."""
    where: list[tuple[str, Sequence[str], str]] = [
        ("left", [namesrv], "^broker left the routes"),
        ("elected", controllers, rf"^master elected .*epoch={epoch}\b"),
        ("role", brokers, rf"^taking a role role=master epoch={epoch}\b"),
        ("routes", [namesrv], rf"^broker registered .*broker_id=0 address={re.escape(master)}$"),
        ("open", brokers, rf"^writes are open epoch={epoch}\b"),
    ]
    found = {}
    for name, logs, words in where:
        times = [at for log in logs if (at := said(log, words, since)) is not None]
        if times:
            found[name] = round(max(min(times) - since, 0.0) * 1e3, 1)
    return found


async def _one(system: System, acks: list[float], *, together: bool, stop: bool) -> dict[str, float]:
    master = await system.settled()
    await trio.sleep(1)
    killed: list[Handle] = [master]
    if together:
        active = (await look(system.remoting, system.addresses, [GROUP])).active
        killed += [each for each in system.controllers if each.address == active]
    since = time.time()
    for process in killed:
        os.kill(process.pid, signal.SIGSTOP if stop else signal.SIGKILL)
    with trio.fail_after(PATIENCE_S):
        view = await _another(system, master.announced)
        in_sync = time.time()
        await trio.sleep(0.5)  # all have written what they have to say
        while acks[-1] < in_sync:  # noqa: ASYNC110  those that the dead master had sent come first
            await trio.sleep(0.005)
    assert view.master is not None
    found = moments(since, view.epoch, [each.printed() for each in system.controllers],
                    [each.printed() for each in system.brokers if each is not master], system.namesrv.printed(),
                    view.master)
    lately = [at for at in acks if at > since - 1]
    _, acknowledged = max((later - sooner, later) for sooner, later in pairwise(lately) if later > since)
    for process in killed:
        await process.kill()  # takes note of its end
        await process.start()
    if "elected" in found:
        found["after the election"] = round((acknowledged - since) * 1e3 - found["elected"], 1)
    return {**found, "acknowledged": round((acknowledged - since) * 1e3, 1),
            "in sync": round((in_sync - since) * 1e3, 1)}


async def _another(system: System, former: str) -> GroupView:
    """Once another master leads, and all that live are in sync."""
    while True:
        view = (await look(system.remoting, system.addresses, [GROUP])).groups.get(GROUP, GroupView())
        if view.master not in (None, former) and len(view.in_sync) == REPLICAS - 1:
            return view
        await trio.sleep(0.005)


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """What ``page`` makes a table of."""
    results: dict[str, Any] = {
        "day": dt.datetime.now(dt.UTC).date().isoformat(), "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1), "together": options.together, "kills": []}
    with tempfile.TemporaryDirectory(prefix="failover-timeline-") as folder:
        async with cluster("ours", Path(folder), "all", None) as system, connect([system.namesrv.address]) as client:
            await system.create("timeline")
            queue = (await client.queues("timeline"))[0]
            acks: list[float] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_all_the_time, client, queue, acks, time.time)
                for _ in range(options.kills):
                    results["kills"].append(await _one(system, acks, together=options.together, stop=options.stop))
                    print(json.dumps(results["kills"][-1]), flush=True)
                nursery.cancel_scope.cancel()
    return results


def page(results: Mapping[str, Any]) -> Iterator[str]:
    """The table of a recorded run."""
    kills = results["kills"]
    with_it = " of the master and the active controller together" if results.get("together") else ""
    yield (f"{len(kills)} kills{with_it} on {results['day']}, {results['cpus']} cores for all processes, whose load "
           f"average was {results['load']} before; milliseconds from kill -9.")
    yield ""
    yield "| moment | p50 | p99 | most | seen in |"
    yield "|---|---|---|---|---|"
    for name, about in MOMENTS.items():
        times = sorted(each[name] for each in kills if name in each)
        if times:
            cells = " | ".join(f"{quantile(times, share):,.0f}" for share in (0.5, 0.99)) + f" | {times[-1]:,.0f}"
            yield f"| {about} | {cells} | {len(times)} of {len(kills)} |"


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        "python -m benchmarks.failover_timeline", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--together", action="store_true", help="kill the active controller in the same moment")
    parser.add_argument("--stop", action="store_true", help="stop them instead, so that nobody sees their ends")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = trio.run(run, options)
    print("\n".join(page(results)))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
