"""``mqcontroller``: run a controller, with RocketMQ's configuration file and flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from controller.config import KNOWN, ControllerConfig, check, from_properties, listing
from controller.server import serve_controller
from raft.errors import RaftError
from raft.loglimit import RepeatLimit
from raft.tls import ALPN
from remoting.address import split_address
from remoting.daemon.files import DiskFiles
from remoting.daemon.keys import NETTY_FEATURES, ConfigError
from remoting.daemon.process import (
    Stoppable,
    check_exporter,
    given_and_unknown,
    is_printed,
    listen,
    piped,
    run_server,
    run_until_stopped,
    say,
    server_parser,
    start_logs,
    tell_of_idle_keys,
    tell_of_readable_keys,
)
from remoting.daemon.tls import tls_of
from remoting.streams import TLSContext

EXAMPLES: Final = """\
examples:
  mqcontroller -c controller.conf            a RocketMQ file: lines of key=value
  mqcontroller -D controllerDLegerGroup=group1 -D controllerDLegerSelfId=n0 \\
               -D 'controllerDLegerPeers=n0-10.0.0.1:9877;n1-10.0.0.2:9877;n2-10.0.0.3:9877'
  mqcontroller -c controller.conf -p         print what would be used, and exit

Run three, each with its own controllerDLegerSelfId; raft and brokers use the one port of its peer entry. Brokers find
them by controllerAddr=10.0.0.1:9877;10.0.0.2:9877;10.0.0.3:9877 and enableControllerMode=true. Whatever -D says wins
over the file, the file over defaults.
"""

parser = partial(
    server_parser, "mqcontroller",
    "Run a RocketMQ controller: it elects the masters of broker groups, and elects again when one is lost.",
    EXAMPLES, ControllerConfig)
"""The command line."""


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return run_server("mqcontroller", partial(_prepare, parser().parse_args(arguments)),
                      (OSError, ConfigError, RaftError, ModuleNotFoundError))


def _prepare(options: argparse.Namespace) -> Callable[[], None] | None:
    given, strange = given_and_unknown(options, DiskFiles(), KNOWN)
    config = from_properties(given)
    if is_printed(options, listing(config)):
        return None
    check(config)
    check_exporter(config)
    tls = tls_of(config, raft_alpn=ALPN)
    start_logs(options, "mqcontroller", RepeatLimit())
    tell_of_idle_keys(config.without_meaning, strange, NETTY_FEATURES, config, options.namesrvAddr)
    tell_of_readable_keys(config.tls_server_key_path)
    return partial(trio.run, run, config, tls)


async def run(config: ControllerConfig, tls: TLSContext | None) -> None:
    """Serve on the sockets and disks of this machine, until told to stop."""
    listeners = await listen(*split_address(config.listen))

    async def serve(task_status: trio.TaskStatus[Stoppable]) -> None:
        await serve_controller(config, files=DiskFiles(), listeners=listeners, tls=tls, task_status=task_status)

    await run_until_stopped(
        serve, lambda: say(f"The Controller boot success. address {config.address}"))
