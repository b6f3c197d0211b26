"""``python -m harness.processes.java``: bring RocketMQ's jars, run a Java cluster to play with.

Knows the command line and words; the work is done by the other modules.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from harness.processes.java import servers
from harness.processes.java.admin import mqadmin
from harness.processes.java.commands import carried_out, say
from harness.processes.java.errors import JavaPeerError
from harness.processes.java.jars import CACHE_VARIABLE, CURRENT, OLDER, cache_folder, fetch


async def _fetch(arguments: argparse.Namespace) -> None:
    for version in arguments.version or [CURRENT, OLDER]:
        release = await fetch(version, say=say)
        say(f"RocketMQ {release.version} is in {release.jars.parent}")
        if arguments.link:
            arguments.link.mkdir(parents=True, exist_ok=True)
            for name, place in (("jars", release.jars), ("classes", release.classes), ("java", Path(release.java))):
                (arguments.link / name).symlink_to(place)


async def _run(arguments: argparse.Namespace) -> None:
    release = await fetch(arguments.version, say=say)
    async with AsyncExitStack() as stack:
        place = arguments.dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketmq-")))
        namesrv = [arguments.namesrv] if arguments.namesrv else []
        controllers: list[str] = arguments.controllers.split(",") if arguments.controllers else []
        if not namesrv:
            namesrv = [(await stack.enter_async_context(servers.namesrv(release, place / "namesrv"))).address]
            say(f"name server    {namesrv[0]}")
        if not controllers and arguments.controller_count:
            group = await stack.enter_async_context(servers.controllers(
                release, place, arguments.controller_count, type=arguments.controller_type))
            controllers = [one.address for one in group]
            say(f"controllers    {','.join(controllers)}")
        for number in range(1, arguments.brokers + 1):
            group_name = "broker-a" if controllers else f"broker-{number}"
            broker = await stack.enter_async_context(servers.broker(
                release, place / f"broker{number}", group=group_name, namesrv=namesrv, controllers=controllers))
            say(f"{group_name:14} {broker.announced}  (pid {broker.pid}, in {broker.directory})")
        say("running until interrupted; for example, in another shell:")
        say(f"  python -m harness.processes.java mqadmin --version {release.version} clusterList -n {namesrv[0]}")
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            await anext(aiter(signals))
        say("ending")


async def _mqadmin(arguments: argparse.Namespace) -> None:
    said = await mqadmin(await fetch(arguments.version, say=lambda _: None), *arguments.arguments)
    print(said.stdout, end="")
    print(said.stderr, end="", file=sys.stderr)
    if not said.ok:
        raise JavaPeerError(f"mqadmin did not do it (its exit code: {said.exit_code})")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness.processes.java",
        description="Bring RocketMQ's jars, or run a Java cluster to play with.",
        epilog=f"Jars are kept in {cache_folder()}; ${CACHE_VARIABLE} names another cache folder. "
               "Needs a JDK of version 11 or later and Maven on PATH.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: object, summary: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=summary, description=summary)
        command.set_defaults(run=run)
        return command

    command = add("fetch", _fetch, "Bring the jars into the cache and compile our programs against them.")
    command.add_argument("version", nargs="*", help=f"RocketMQ versions (default: {CURRENT} {OLDER})")

    command.add_argument("--link", type=Path, metavar="DIR",
                         help="of one version: make links to `jars`, `classes` of our programs and `java` there")

    command = add("run", _run, "Run a name server, controllers and brokers until interrupted.")
    command.add_argument("--version", default=CURRENT)
    command.add_argument("--brokers", type=int, default=2, metavar="N",
                         help="how many; with controllers they are one group, else N masters (default: 2)")
    command.add_argument("--controller-count", type=int, default=3, metavar="N",
                         help="Java controllers to start; 0 for none (default: 3)")
    command.add_argument("--controller-type", choices=["DLedger", "jRaft"], default="DLedger")
    command.add_argument("--controllers", metavar="HOST:PORT,...", help="use these instead, of whatever make")
    command.add_argument("--namesrv", metavar="HOST:PORT", help="use this name server instead of a Java one")
    command.add_argument("--dir", type=Path, help="keep data and logs there (default: a temporary folder)")

    command = add("mqadmin", _mqadmin, "Run RocketMQ's own mqadmin, for example: mqadmin clusterList -n HOST:PORT")
    command.add_argument("--version", default=CURRENT)
    command.add_argument("arguments", nargs=argparse.REMAINDER)

    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    return carried_out(arguments.run, arguments)


if __name__ == "__main__":
    sys.exit(main())
