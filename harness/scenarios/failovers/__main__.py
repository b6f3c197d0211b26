"""Hundreds of failovers of real processes, with cut links, stalled and full disks, and everything killed at once.

    python -m harness.scenarios.failovers                              300 failovers, at most an hour
    python -m harness.scenarios.failovers --failovers 10 --seconds 60 --mode safe
    python -m harness.scenarios.failovers --check DIRECTORY/history.jsonl --mode safe --mode default

As root, or where the kernel gives namespaces to users, every server is a host of its own with a disk of its own; the
kernel ends all of it with this program. Elsewhere (or with --forwarders) links are cut by forwarders. Exit code 0: no
promise was broken; 1: one was, or something did not come back, and the lines before say which.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random, SystemRandom

import trio

from harness.histories.reading import open_history
from harness.nemesis import disks, sandbox
from harness.nemesis.forwarding import Forwarders, forwarders
from harness.nemesis.network import Network, namespaces
from harness.scenarios.failovers.campaign import MODES, Run, broken, differing, groups, names, planned
from harness.scenarios.failovers.faults import FAULTS
from harness.scenarios.failovers.recording import JudgedHistory, judged
from mqcluster.plan import Kind
from mqcluster.processes import Cluster, ClusterError
from remoting.address import split_address
from remoting.daemon.process import leaves


def parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    made = argparse.ArgumentParser("python -m harness.scenarios.failovers", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--failovers", type=int, default=300, help="how many to wait for; default: %(default)s")
    made.add_argument("--seconds", type=float, default=3_600.0, help="at most; default: %(default)s")
    made.add_argument("--mode", action="append", choices=MODES, help="a broker group in it; default: one in each")
    made.add_argument("--fault", action="append", choices=[fault.__name__ for fault in FAULTS],
                      help="that happens, each as often; default: all")
    made.add_argument("--producers", type=int, default=2, help="for each group; default: %(default)s")
    made.add_argument("--pause-ms", type=float, default=5.0, help="between a producer's sends; default: %(default)s")
    made.add_argument("--seed", type=int, help="of the schedule; default: another each time")
    made.add_argument("--data", type=Path, help="directory to use (default: a new temporary one)")
    made.add_argument("--disk-bytes", type=int, default=1 << 30, help="of each server; default: %(default)s")
    made.add_argument("--forwarders", action="store_true", help="no namespaces: forwarders cut the links")
    made.add_argument("--check", type=Path, metavar="HISTORY", help="only judge a history that was written before")
    return made


async def run(options: argparse.Namespace) -> int:
    """The campaign in its directory; the exit code."""
    seed = options.seed if options.seed is not None else SystemRandom().randrange(1 << 32)
    root: Path = options.data or Path(tempfile.mkdtemp(prefix="quorate-failovers-"))
    root.mkdir(parents=True, exist_ok=True)
    modes = groups(options.mode or list(MODES))
    made = disks.make(root, [name for name in names(modes) if name != "namesrv"], options.disk_bytes, sandbox.inside())
    _say(f"seed {seed}, data and logs: {root}")
    _say(f"disks: {next(iter(made.values())).kind.value}")
    async with _network(options, names(modes)) as network:
        there = Cluster.create(root, planned(root, modes, network))
        for server in there.servers.values():
            server.prefix = network.prefix(server.plan.name)
        if isinstance(network, Forwarders):
            await _forward(network, there)
        with (root / "history.jsonl").open("wb") as file:
            chosen = {fault: 1 for fault in FAULTS if fault.__name__ in (options.fault or ())} or FAULTS
            campaign = Run(there, network, made, modes, Random(seed), JudgedHistory(file), _say, chosen)
            came_back = await played(campaign, options)
        if not came_back:
            _say(f"SOMETHING DID NOT COME BACK: the logs are in {root}")
            return 1
        apart = [line for group in modes for line in differing(root, group)]
    result = {"seed": seed, "network": type(network).__name__, **campaign.result, "logs that differ": apart}
    (root / "result.json").write_text(json.dumps(result, indent=1))
    _say(json.dumps(result, indent=1))
    failed = bool(result["broken"] or apart)
    _say("A PROMISE WAS BROKEN" if failed else "NOTHING ACKNOWLEDGED WAS LOST WHERE THAT IS PROMISED")
    return 1 if failed else 0


async def played(campaign: Run, options: argparse.Namespace) -> bool:
    """Play the campaign; False: some server did not come back. The servers are stopped at the end."""
    there, came_back = campaign.cluster, False
    try:
        await trio.to_thread.run_sync(there.start, there.of_kind(Kind.NAMESRV) + there.of_kind(Kind.CONTROLLER))
        await trio.to_thread.run_sync(there.start, there.of_kind(Kind.BROKER))
        await campaign.play(options.failovers, options.seconds, options.producers, options.pause_ms / 1e3)
        came_back = True
    except* trio.TooSlowError:
        pass  # the campaign has said what did not come back
    except* ClusterError as errors:
        for error in leaves(errors):
            _say(str(error))
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(there.stop, list(there.servers.values()))
    return came_back


@asynccontextmanager
async def _network(options: argparse.Namespace, hosts: Sequence[str]) -> AsyncIterator[Network]:
    if sandbox.inside() and not options.forwarders:
        async with namespaces(hosts) as made:
            yield made
    else:
        async with forwarders(hosts) as cutting:
            yield cutting


async def _forward(network: Forwarders, there: Cluster) -> None:
    network.pid_of = lambda name: there.servers[name].pid
    for name, server in there.servers.items():
        port = split_address(server.plan.address)[1]
        await network.open(name, (port, port + 1, port - 2) if server.plan.kind is Kind.BROKER else (port,))


def check(path: Path, modes: Mapping[str, str]) -> int:
    """Judge a history; the exit code."""
    try:
        verdicts = judged(open_history(path).events)
    except (OSError, ValueError) as error:
        _say(f"{path} cannot be read: {error}")
        return 1
    if strange := verdicts.keys() - modes.keys():
        _say(f"{path} has the groups {', '.join(sorted(strange))}, for which no --mode is named")
        return 1
    found = broken(verdicts, modes)
    for each in found:
        _say(each)
    _say(f"{len(found)} broken promises")
    return 1 if found else 0


_BEGAN = time.monotonic()


def _say(line: str) -> None:
    sys.stdout.write(f"{time.monotonic() - _BEGAN:8.1f} s  {line}\n")
    sys.stdout.flush()


def main() -> int:
    """Parse the command line, enter the sandbox, run."""
    options = parser().parse_args()
    if options.check:
        return check(options.check, groups(options.mode or list(MODES)))
    if not sandbox.inside() and not options.forwarders:
        why = sandbox.impossible()
        if not why:
            sandbox.enter("harness.scenarios.failovers", sys.argv[1:])
        _say(f"no sandbox: {why}; links are cut by forwarders, and disks neither stall nor fill up")
    for name in ("remoting", "broker"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # broken connections are wanted here
    try:
        return trio.run(run, options)
    except subprocess.CalledProcessError as error:
        _say(f"{' '.join(map(str, error.cmd))}: {(error.stderr or b'').decode().strip()}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
