"""Does a cluster that nothing is done to keep its master and its SyncStateSet while the machine is overloaded?

    python -m benchmarks.alarms                                    # an hour of the quick profile at a load of 20
    python -m benchmarks.alarms --minutes 5 --load 12 --profile default
    python -m benchmarks.alarms --nice 15                          # on a machine that has other work to do

The cluster of `benchmarks.rto`: three controllers, a name server and three brokers, each on a host of its own. Our
client sends all the time, and busy processes take the machine's cores: as many as are missing to the load, with what
the machine does besides. Nothing is broken, so each change of the master's epoch or of the SyncStateSet is a false
alarm. It ends with code 1 if there was one. Needs Linux and root.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import mean
from typing import Final

import trio

from benchmarks import rto_figures as figures
from benchmarks.rto import traffic
from benchmarks.rto_sides import GROUP, NAMES, Side, Stand, stand
from harness.nemesis import sandbox
from harness.nemesis.network import namespaces
from mqcluster.looking import GroupView
from remoting.client import open_client

POLL_S: Final = 1.0
SAID_EVERY_S: Final = 60.0
ADJUSTED_EVERY: Final = 15
"""Looks between two changes of the number of busy processes."""


class Busy:
    """Processes that are never done, each in a session of its own: a kernel may share the cores among sessions."""

    def __init__(self, nice: int = 0) -> None:
        self._nice = nice
        self._processes: list[subprocess.Popen[bytes]] = []

    def more(self, count: int) -> None:
        """So many more, or fewer."""
        for _ in range(count):
            process = subprocess.Popen(["nice", "-n", str(self._nice), sys.executable, "-P", "-S", "-c",
                                        "while True: pass"], start_new_session=True)
            self._processes.append(process)
            with suppress(OSError):  # not every kernel groups sessions
                Path(f"/proc/{process.pid}/autogroup").write_text(str(self._nice))
        for process in self._processes[count:] if count < 0 else []:
            process.kill()
            process.wait()
            self._processes.remove(process)

    def __len__(self) -> int:
        return len(self._processes)


@contextmanager
def busy(nice: int = 0) -> Iterator[Busy]:
    """None yet; those that are made end here."""
    made = Busy(nice)
    try:
        yield made
    finally:
        made.more(-len(made))


def running() -> int:
    """How many processes of the whole machine want a core now, without this one."""
    return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 1


def changes(before: GroupView | None, now: GroupView | None) -> str:
    """What happened between two looks, in words; "" if nothing did, or if nobody could be asked."""
    if before is None or now is None or (before.epoch, before.set_epoch) == (now.epoch, now.set_epoch):
        return ""
    return (f"master epoch {before.epoch} to {now.epoch}, SyncStateSet epoch {before.set_epoch} to {now.set_epoch}, "
            f"now {len(now.in_sync)} in sync")


async def watch(there: Stand, seconds: float, load: int, load_of: Busy) -> list[str]:
    """What changed in that time."""
    found: list[str] = []
    wanted: list[int] = []
    last = (await there.settled()).groups.get(GROUP)
    began = said = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        await trio.sleep(POLL_S)
        wanted.append(load - running())
        if len(wanted) >= ADJUSTED_EVERY:
            load_of.more(max(round(mean(wanted)), -len(load_of)))
            wanted.clear()
        group = (await there.look()).groups.get(GROUP)
        if happened := changes(last, group):
            found.append(happened)
            print(f"{now - began:.0f} s: {happened}", flush=True)
        last = group or last
        if now >= said + SAID_EVERY_S:
            said = now
            print(f"{(now - began) / 60:.0f} of {seconds / 60:.0f} min, load {os.getloadavg()[0]:.1f} with "
                  f"{len(load_of)} busy processes, {len(found)} false alarms", flush=True)
    return found


async def run(options: argparse.Namespace) -> int:
    """The exit code: 1 if something changed."""
    side = Side("ours", options.profile)
    async with namespaces(NAMES) as network:
        with tempfile.TemporaryDirectory(prefix="alarms-", ignore_cleanup_errors=True) as folder:
            async with (
                open_client() as remoting,
                stand(side, Path(folder) / "cluster", network, remoting, None) as there,
                traffic(there, False, None) as sending,
            ):
                with busy(options.nice) as load_of:
                    load_of.more(max(options.load - running(), 0))
                    began = time.time()
                    found = await watch(there, options.minutes * 60, options.load, load_of)
                    gap = figures.longest(sending.ours, began, time.time())
                    load = os.getloadavg()
    print(f"{options.minutes} min of {side.name}, load {load[0]:.1f} ({load[2]:.1f} over 15 min) on {os.cpu_count()} "
          f"cores: {len(found)} false alarms; the client's longest wait was {gap or 0:.1f} s")
    return 1 if found else 0


def main(arguments: Sequence[str]) -> int:
    """Enter the sandbox, run."""
    assert __doc__ is not None
    made = argparse.ArgumentParser(
        "python -m benchmarks.alarms", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--minutes", type=float, default=60.0)
    made.add_argument("--load", type=int, default=20, help="how many processes want a core at a time")
    made.add_argument("--nice", type=int, default=0, help="of the busy processes: 15 leaves other work its cores")
    made.add_argument("--profile", choices=("default", "quick"), default="quick")
    options = made.parse_args(arguments)
    if not sandbox.inside():
        if why := sandbox.impossible():
            print(f"nothing is measured: every server needs a host and a disk of its own, and {why}")
            return 1
        sandbox.enter("benchmarks.alarms", arguments)
    for name in ("remoting", "broker"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return trio.run(run, options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
