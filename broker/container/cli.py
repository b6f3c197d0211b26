"""``mqbrokercontainer``: run many brokers on one machine, with RocketMQ's configuration files and flags.

Knows the command line and this machine's sockets. Exit codes are those of ``remoting.daemon.process``.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from broker.container.config import FEATURES, KNOWN, ContainerConfig, from_properties, listing
from broker.container.supervisor import LOGS, Supervisor, absolute
from broker.store.directory import DirectoryFiles
from broker.store.errors import WrongStore
from raft.loglimit import RepeatLimit
from remoting.address import join_address
from remoting.config import ServerConfig, TLSMode
from remoting.daemon.exporter import MetricsKeys
from remoting.daemon.files import DiskFiles
from remoting.daemon.keys import ConfigError
from remoting.daemon.process import (
    Stoppable,
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
from remoting.server import Server
from remoting.streams import TLSContext

PROGRAM: Final = "mqbrokercontainer"
EXAMPLES: Final = """\
examples:
  mqbrokercontainer -c container.conf              the brokers of its brokerConfigPaths
  mqbrokercontainer -n 10.0.0.9:9876 -b /etc/rocketmq/a.conf:/etc/rocketmq/b.conf
  mqadmin addBroker -c 10.0.0.5:10811 -b /etc/rocketmq/c.conf
  mqadmin removeBroker -c 10.0.0.5:10811 -b DefaultCluster:broker-c:0
  mqadmin brokerStatus -b 10.0.0.5:10811           its brokers

Each broker is a process of its own, with a file of its own, and with its own listenPort and storePathRootDir;
haListenPort is always one above listenPort. What is added and removed is kept, and holds at the next start.
"""
IMPORTANT: Final = frozenset({"namesrvAddr", "brokerConfigPaths", "brokerContainerIP", "listenPort"})
STOP_GRACE_MS: Final = 1_000

logger = logging.getLogger("broker.container")


def parser() -> argparse.ArgumentParser:
    """The command line, and a line for each key."""
    made = server_parser(
        PROGRAM, "Run RocketMQ brokers, each as a process, under one supervisor.", EXAMPLES, ContainerConfig,
        namesrv="name servers of brokers whose files name none; wins over namesrvAddr of the file")
    made.add_argument("-b", "--brokerConfigPaths", metavar="FILE:FILE...",
                      help="configuration files of its brokers; wins over brokerConfigPaths of the file")
    made.add_argument("-m", "--printImportantConfig", action="store_true", help="as -p, those that matter most")
    return made


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return run_server(
        PROGRAM, partial(_prepare, parser().parse_args(arguments)), (OSError, ConfigError, WrongStore))


def _prepare(options: argparse.Namespace) -> Callable[[], None] | None:
    given, strange = given_and_unknown(options, DiskFiles(), KNOWN)
    for name in ("namesrvAddr", "brokerConfigPaths"):
        if getattr(options, name):
            given[name] = getattr(options, name)
    config = from_properties(given)
    if is_printed(options, listing(config), IMPORTANT):
        return None
    tls = tls_of(config)
    start_logs(options, PROGRAM, RepeatLimit())
    tell_of_idle_keys(config.kept, strange, FEATURES, MetricsKeys(), None)
    tell_of_readable_keys(config.tls_server_key_path)
    return partial(trio.run, run, config, tls, options)


@attrs.frozen
class _Running:
    """The running container, which SIGTERM stops. Implements ``Stoppable``."""

    supervisor: Supervisor
    server: Server

    async def stop(self) -> None:
        """Stop the brokers, then the server: the container tells their state until they have ended."""
        await self.supervisor.stop()
        await self.server.stop(STOP_GRACE_MS)


async def run(config: ContainerConfig, tls: TLSContext | None, options: argparse.Namespace) -> None:
    """Serve on the sockets and files of this machine, until told to stop."""
    directory = Path(absolute(config.store_path))
    store = DirectoryFiles(directory)
    try:
        store.lock()
    except WrongStore:
        raise WrongStore(f"{directory} is in use: another container runs with it; choose another containerStorePath") \
            from None
    listeners = await listen(config.bind_address, config.listen_port, config.server_socket_backlog)
    port = int(listeners[0].socket.getsockname()[1])
    ports = {port: "listenPort"}
    if config.fast_listen and port > 2:
        listeners += await listen(config.bind_address, port - 2, config.server_socket_backlog)
        ports[port - 2] = "listenPort - 2"
    logs = Path(absolute(options.log_dir)) if options.log_dir else directory / LOGS
    log_arguments = ("--log-level", options.log_level, *(("--log-json",) if options.log_json else ()))
    supervisor = Supervisor(config, DiskFiles(), directory, ports, logs, log_arguments, say)
    server = Server(supervisor.handlers(), tls=tls, config=ServerConfig(
        idle_timeout_ms=config.server_channel_max_idle_time_seconds * 1_000,
        tls_mode=TLSMode(config.tls_server_mode)))

    async def serve(task_status: trio.TaskStatus[Stoppable]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run, listeners)
            nursery.start_soon(supervisor.run)
            task_status.started(_Running(supervisor, server))

    def started() -> None:
        servers = f" and name server is {config.namesrv_addr}" if config.namesrv_addr else ""
        say(f"The broker container boot success. serializeType=JSON{servers}")
        logger.info("the container serves", extra={
            "address": join_address(config.broker_container_ip or config.bind_address, port)})

    try:
        await run_until_stopped(serve, started)
    finally:
        store.unlock()
