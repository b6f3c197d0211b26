"""``mqadmin``: the command line, one subcommand each, and what goes wrong in words.

Exit codes: 0 done, 1 refused, not reached or interrupted, 2 wrong usage. Interrupting is how ``-i`` is ended.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from difflib import get_close_matches
from typing import Final

import trio

from controller.admin import (  # noqa: F401  each module registers its commands
    brokers,
    clients,
    colddata,
    consumers,
    containers,
    controllers,
    exports,
    groups,
    lookups,
    messages,
    monitoring,
    nameservers,
    probing,
    reading,
    subscriptions,
    topiclists,
    topics,
    upkeep,
)
from controller.admin.absent import ABSENT
from controller.admin.asking import Admin, split_addresses
from controller.admin.command import COMMANDS, AdminCommand, AdminError
from remoting.client import open_client
from remoting.daemon.completion import add_completion
from remoting.daemon.process import tell_of_readable_keys
from remoting.daemon.version import add_version
from remoting.errors import RemotingError
from remoting.streams import Connector, TLSContext, connect_tcp
from remoting.tls import client_context

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"

_EXAMPLES: Final = """\
examples:
  mqadmin getControllerMetaData -a 10.0.0.1:9877              who leads the controllers
  mqadmin getSyncStateSet -a 10.0.0.1:9877 -b broker-a        who is master, who is in sync
  mqadmin electMaster -a 10.0.0.1:9877 -c DefaultCluster -bn broker-a -b 2
  mqadmin clusterList -n 10.0.0.1:9876 --json | jq .          everything as JSON

-n defaults to $NAMESRV_ADDR. `mqadmin COMMAND -h` tells more; `mqadmin --print-completion bash` prints a completion
script for the shell.
"""


def parser(names: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The command line, with these commands."""
    made = argparse.ArgumentParser(
        prog="mqadmin", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EXAMPLES,
        description="Ask and order RocketMQ controllers, name servers and brokers, the original's or ours.")
    add_version(made)
    add_completion(made)
    subparsers = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for each in map(COMMANDS.__getitem__, names):
        _add(subparsers.add_parser(
            each.name, help=each.about, description=f"{each.about}.", epilog=each.more,
            formatter_class=argparse.RawDescriptionHelpFormatter), each)
    return made


def _add(sub: argparse.ArgumentParser, each: AdminCommand) -> None:
    each.arguments(sub)
    sub.add_argument("-n", "--namesrvAddr", metavar="HOST:PORT[;HOST:PORT...]",
                     default=os.environ.get(NAMESRV_VARIABLE, ""), help="name servers; default $NAMESRV_ADDR")
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub.add_argument("--tls", action="store_true", help="every connection is under TLS; any of the next says so too")
    sub.add_argument("--tls-ca", metavar="FILE", help="what the servers' certificates must be signed by; default: all")
    sub.add_argument("--tls-cert", metavar="FILE", help="this tool's certificate, where servers ask for one")
    sub.add_argument("--tls-key", metavar="FILE", help="its key")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["help"]:  # the original has `mqadmin help COMMAND`
        given = [*given[1:], "-h"]
    if not given:
        given = ["-h"]
    if not given[0].startswith("-"):
        given[0] = _NAMES.get(given[0].lower(), given[0])
        if given[0] not in COMMANDS:
            return _unknown(given[0])
    options: argparse.Namespace | None = None
    try:
        options = parser([given[0]] if given[0] in COMMANDS else COMMANDS).parse_args(given)
        code = trio.run(run, options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return FAILED if getattr(options, "interval", None) is None else DONE
    except BrokenPipeError:  # the reader is gone, as in `mqadmin … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter still flushes stdout at exit
        return FAILED


_NAMES: Final = {name.lower(): name for name in (*COMMANDS, *ABSENT)}
"""The original looks at no case."""


def _unknown(name: str) -> int:
    """Say that there is no such command here. Returns the exit code."""
    if name in ABSENT:
        print(f"mqadmin {name}: not offered here: {ABSENT[name]}", file=sys.stderr)
        return FAILED
    near = get_close_matches(name, COMMANDS, 3)
    print(f"mqadmin: there is no command {name}; "
          f"{'did you mean ' + ' or '.join(near) if near else '`mqadmin help` lists them'}", file=sys.stderr)
    return USAGE


async def run(options: argparse.Namespace, connector: Connector = connect_tcp) -> int:
    """One command, again and again with ``-i``."""
    every = getattr(options, "interval", None)
    try:
        tls = _tls(options)
    except ValueError as error:
        print(f"mqadmin {options.command}: {error}", file=sys.stderr)
        return USAGE
    if tls is not None and not options.tls_ca:
        print("mqadmin: without --tls-ca no certificate is checked: anybody may answer", file=sys.stderr)
    if options.tls_key:
        tell_of_readable_keys(options.tls_key)
    async with open_client(connector=connector, tls=tls) as client:
        while True:
            code = await _once(Admin(client, split_addresses(options.namesrvAddr)), options)
            if every is None:
                return code
            await trio.sleep(every)


def _tls(options: argparse.Namespace) -> TLSContext | None:
    """Raises ``ValueError`` that says what is wrong."""
    if not (options.tls or options.tls_ca or options.tls_cert or options.tls_key):
        return None
    return client_context(ca=options.tls_ca, cert=options.tls_cert, key=options.tls_key)


async def _once(admin: Admin, options: argparse.Namespace) -> int:
    try:
        if not admin.namesrv and _needs_namesrv(options):
            raise AdminError("-n is needed: the address of a name server, or $NAMESRV_ADDR")
        each = COMMANDS[options.command]
        async with aclosing(each.run(admin, options)) as found:
            async for said in found:
                if options.json:
                    print(json.dumps(said.data, indent=None if each.streams else 2, sort_keys=True), flush=each.streams)
                elif said.lines or not each.streams:
                    print("\n".join(said.lines), flush=each.streams)
    except (AdminError, RemotingError) as error:
        print(f"mqadmin {options.command}: {error}", file=sys.stderr)
        return FAILED
    return DONE


def _needs_namesrv(options: argparse.Namespace) -> bool:
    if COMMANDS[options.command].by_route:
        return True
    return any(name in options and getattr(options, name) is None for name in ("brokerName", "brokerAddr"))
