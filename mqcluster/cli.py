"""``mqcluster``: a cluster of real processes on this machine: up, status, kill, start, down; and a view of any other.

Exit codes: 0 done, 1 it could not be done, 2 wrong usage. ``watch --once``: 1 unless the master of each group answers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from controller.admin.asking import split_addresses
from controller.admin.cli import NAMESRV_VARIABLE
from mqcluster.gaps import Gaps
from mqcluster.looking import ClusterView, look, until_settled
from mqcluster.picture import lines
from mqcluster.plan import DEFAULT_MODE, Durability, Kind, Size, cluster, to_json
from mqcluster.processes import FILE, Cluster, ClusterError, Server
from mqcluster.watching import see
from remoting.client import open_client
from remoting.daemon.completion import add_completion
from remoting.daemon.process import piped
from remoting.daemon.version import add_version

DONE: Final = 0
FAILED: Final = 1
SETTLED_S: Final = 60.0
SIGNALS: Final = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM, "STOP": signal.SIGSTOP, "CONT": signal.SIGCONT}
ACTIVE: Final = "active"
FIRST_PORT: Final = 19_876

_EXAMPLES: Final = """\
examples:
  mqcluster up                           3 controllers, a name server, 2 broker groups of 3
  mqcluster status
  mqcluster kill broker-a                the master of that group, with -9
  mqcluster kill active                  the active controller
  mqcluster kill broker-a-1 --signal STOP
  mqcluster start                        everything that does not run
  mqcluster down
  mqcluster watch -n 10.0.0.1:9876       any cluster, ours or Java's, until Ctrl-C
"""


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(
        prog="mqcluster", description="A cluster of real processes on this machine, to play with.", epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(made)
    add_completion(made)
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    up = commands.add_parser("up", help="make a cluster, or start again the one that is there")
    up.add_argument("--controllers", type=int, default=3, help="default: %(default)s")
    up.add_argument("--groups", type=int, default=2, help="broker groups; default: %(default)s")
    up.add_argument("--replicas", type=int, default=3, help="brokers in each; default: %(default)s")
    up.add_argument("--port", type=int, default=FIRST_PORT,
                    help="of the name server; others lie above; default: %(default)s")
    up.add_argument("--fast", action="store_true",
                    help="RocketMQ's default mode, in which the master alone acknowledges, and its loss may lose "
                         "messages; with --quick")
    up.add_argument("--quick", action="store_true",
                    help="detectionProfile=quick: a master that falls silent is replaced within seconds")
    commands.add_parser("status", help="which servers run, lead and are in sync")
    kill = commands.add_parser("kill", help="send a signal to servers")
    kill.add_argument("names", nargs="+", metavar="NAME",
                      help=f"a server, a broker group (its master), or `{ACTIVE}` (the active controller)")
    kill.add_argument("--signal", choices=SIGNALS, default="KILL", help="default: %(default)s")
    start = commands.add_parser("start", help="start servers that do not run")
    start.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    watch = commands.add_parser(
        "watch", help="groups, masters, epochs, who is in sync, lag, controllers and gaps, of any cluster")
    watch.add_argument("-n", "--namesrv", type=split_addresses, metavar="HOST:PORT;...",
                       default=split_addresses(os.environ.get(NAMESRV_VARIABLE, "")),
                       help=f"default: ${NAMESRV_VARIABLE}, else the cluster in --dir")
    watch.add_argument("--controllers", type=split_addresses, default=[], metavar="HOST:PORT;...",
                       help="default: those that the brokers' configuration names")
    watch.add_argument("--interval-ms", type=int, default=500, help="between two looks; default: %(default)s")
    watch.add_argument("--once", action="store_true", help="one look, without gaps")
    watch.add_argument("--json", action="store_true", help="a line of JSON for each look")
    commands.add_parser("down", help="stop everything; the data stay")
    for each in commands.choices.values():
        each.add_argument("--dir", type=Path, default=Path("mqcluster-data"), help="default: ./%(default)s")
    return made


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = parser().parse_args(arguments)
    options.dir = options.dir.absolute()
    try:
        return trio.run(_RUN[options.command], options)
    except BrokenPipeError:
        raise  # the reader is gone: ``piped`` ends without a message
    except (ClusterError, ValueError, OSError) as error:
        print(f"mqcluster {options.command}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return DONE if options.command == "watch" else FAILED
    return FAILED


async def _up(options: argparse.Namespace) -> int:
    size = Size(options.controllers, options.groups, options.replicas)
    mode = DEFAULT_MODE if options.fast else Durability(min_in_sync=min(2, options.replicas))
    planned = cluster(options.dir, size, options.port, mode, quick=options.fast or options.quick)
    if (options.dir / FILE).exists():
        there = Cluster.load(options.dir)
        asked = (size, options.port, options.fast, options.quick) != (Size(), FIRST_PORT, False, False)
        if asked and to_json(planned) != to_json(there.plan):
            raise ClusterError(f"{options.dir} holds another cluster already: `mqcluster up` without other options "
                               "starts that one again, another --dir makes another one")
    else:
        there = Cluster.create(options.dir, planned)
    first, brokers = there.of_kind(Kind.NAMESRV) + there.of_kind(Kind.CONTROLLER), there.of_kind(Kind.BROKER)
    print(f"starting a name server and {len(first) - 1} controllers", flush=True)
    there.start(first)
    print(f"starting {len(brokers)} brokers", flush=True)
    there.start(brokers)
    groups = _groups(there)
    print(f"waiting until each of {len(groups)} groups has a master and all replicas in sync", flush=True)
    try:
        async with open_client() as client:
            view = await until_settled(client, _controllers(there), list(groups), min(map(len, groups.values())),
                                       SETTLED_S)
    except trio.TooSlowError:
        raise ClusterError(f"not every group has its master and all replicas in sync after {SETTLED_S:g} s; "
                           f"`mqcluster status` shows what is missing, {options.dir}/*/out.log why") from None
    _show(there, view)
    [namesrv] = there.of_kind(Kind.NAMESRV)
    print(f"\ndata and logs: {options.dir}\nput into a client: namesrvAddr = {namesrv.plan.address}\n"
          f"  Java      producer.setNamesrvAddr(\"{namesrv.plan.address}\");\n"
          f"  Python    broker.client.connect([\"{namesrv.plan.address}\"])\n"
          f"  tools     export NAMESRV_ADDR={namesrv.plan.address}")
    return DONE


async def _status(options: argparse.Namespace) -> int:
    there = Cluster.load(options.dir)
    _show(there, await _look(there))
    return DONE


async def _kill(options: argparse.Namespace) -> int:
    there = Cluster.load(options.dir)
    view = await _look(there) if any(name not in there.servers for name in options.names) else ClusterView()
    for name in options.names:
        server = _named(there, view, name)
        server.signal(SIGNALS[options.signal])
        print(f"{server.plan.name} (process {server.pid}): SIG{options.signal}")
    return DONE


async def _start(options: argparse.Namespace) -> int:
    there = Cluster.load(options.dir)
    missing = [name for name in options.names if name not in there.servers]
    if missing:
        raise ClusterError(f"there is no server {missing[0]}; there are {', '.join(there.servers)}")
    there.start([there.servers[name] for name in options.names] or list(there.servers.values()))
    return DONE


async def _down(options: argparse.Namespace) -> int:
    there = Cluster.load(options.dir)
    for kind in (Kind.BROKER, Kind.CONTROLLER, Kind.NAMESRV):
        there.stop(there.of_kind(kind))
    there.save()
    return DONE


async def _watch(options: argparse.Namespace) -> int:
    namesrv = options.namesrv or [each.plan.address for each in Cluster.load(options.dir).of_kind(Kind.NAMESRV)]
    if options.interval_ms < 1:
        raise ValueError(f"--interval-ms {options.interval_ms}: must be above 0")
    live, gaps = sys.stdout.isatty() and not options.json and not options.once, dict[str, Gaps]()
    async with open_client() as client:
        while True:
            began = trio.current_time()
            sight = await see(client, namesrv, options.controllers)
            for group in sight.groups:
                gaps.setdefault(group.name, Gaps()).note(trio.current_time(), group.master if group.answers else None)
            if options.json:
                print(json.dumps({**sight.to_plain(), "gapsMs": {
                    name: {"open": each.open_ms, "latest": each.latest_ms} for name, each in gaps.items()}}),
                    flush=True)
            else:
                shown = lines(sight, {} if options.once else gaps, colour=sys.stdout.isatty())
                clear = "\x1b[H\x1b[J" if live else ""
                print(clear + "\n".join(shown) + ("" if live or options.once else "\n"), flush=True)
            if options.once:
                return DONE if sight.well else FAILED
            await trio.sleep_until(began + options.interval_ms / 1e3)


_RUN: Final = {"watch": _watch, "up": _up, "status": _status, "kill": _kill, "start": _start, "down": _down}


def _named(there: Cluster, view: ClusterView, name: str) -> Server:
    """A server by its name or by its role."""
    if name in there.servers:
        return there.servers[name]
    if name != ACTIVE and name not in _groups(there):
        raise ClusterError(f"there is no server and no group {name}; there are {', '.join(there.servers)}, "
                           f"{', '.join(_groups(there))}, {ACTIVE}")
    wanted = view.active if name == ACTIVE else view.groups[name].master if name in view.groups else None
    found = [each for each in there.servers.values() if each.plan.address == wanted]
    if not found:
        raise ClusterError(f"{name}: it has no leader at the moment; `mqcluster status` shows which servers run")
    return found[0]


async def _look(there: Cluster) -> ClusterView:
    """As its own controllers see it: at the ports of those that do not run another cluster's may be."""
    running = [each.plan.address for each in there.of_kind(Kind.CONTROLLER) if each.running]
    if not running:
        return ClusterView()
    async with open_client() as client:
        return await look(client, running, list(_groups(there)))


def _controllers(there: Cluster) -> list[str]:
    return [each.plan.address for each in there.of_kind(Kind.CONTROLLER)]


def _groups(there: Cluster) -> dict[str, list[Server]]:
    groups: dict[str, list[Server]] = {}
    for each in there.of_kind(Kind.BROKER):
        groups.setdefault(each.plan.group, []).append(each)
    return groups


def _show(there: Cluster, view: ClusterView) -> None:
    print(f"{'server':<14}{'address':<20}{'process':<10}role")
    for name, server in there.servers.items():
        print(f"{name:<14}{server.plan.address:<20}{str(server.pid) if server.running else 'down':<10}"
              f"{_role(server, view)}")


def _role(server: Server, view: ClusterView) -> str:
    address = server.plan.address
    if server.plan.kind is Kind.CONTROLLER:
        return ACTIVE if address == view.active else ""
    group = view.groups.get(server.plan.group)
    if group is None or address not in group.ids:
        return ""
    if address == group.master:
        return f"master, epoch {group.epoch}"
    if address not in group.alive:
        return "not alive"
    return "slave, in sync" if address in group.in_sync else "slave"


if __name__ == "__main__":
    sys.exit(main())
