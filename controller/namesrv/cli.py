"""``mqnamesrv``: run a name server, with RocketMQ's configuration file and flags.

Knows the command line, the configuration and the process: signals, sockets, exit codes. Exit codes: 0 stopped in order,
1 it could not run, 2 wrong usage or configuration.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Final

import trio

from controller.files import DiskFiles, Files
from controller.keys import ConfigError, names, written
from controller.logs import LEVELS, set_up
from controller.namesrv.config import NamesrvConfig, from_properties, listing
from controller.namesrv.server import Controller, RunningNamesrv, serve_namesrv
from remoting import properties
from remoting.address import join_address
from remoting.errors import BodyError
from remoting.streams import TLSContext
from remoting.tls import ClientAuth, server_context

STOPPED: Final = 0
FAILED: Final = 1
USAGE: Final = 2

logger = logging.getLogger("controller.namesrv")

_EXAMPLES: Final = """\
examples:
  mqnamesrv                                  listen at 0.0.0.0:9876, nothing else to decide
  mqnamesrv -c namesrv.conf                  a RocketMQ file: lines of key=value
  mqnamesrv -c namesrv.conf -D listenPort=9877 -D supportActingMaster=true
  mqnamesrv -c namesrv.conf -p               print what would be used, and exit

Brokers find it by namesrvAddr=host:9876, clients by NAMESRV_ADDR or their own setting. Run two or three: they know
nothing of each other, brokers register with all of them. Whatever -D says wins over the file, the file over defaults.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqnamesrv", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run a RocketMQ name server: brokers register with it, clients ask it where topics are.",
        epilog=f"{_EXAMPLES}\nkeys of the configuration:\n{key_lines()}")
    made.add_argument("-c", "--configFile", metavar="FILE", help="configuration file with RocketMQ's keys")
    made.add_argument("-p", "--printConfigItem", action="store_true", help="print the configuration and exit")
    made.add_argument(
        "-n", "--namesrvAddr", metavar="ADDRESSES",
        help="taken because RocketMQ's command takes it; a name server asks no other")
    made.add_argument(
        "-D", "--set", metavar="KEY=VALUE", action="append", default=[], dest="settings",
        help="set one key, on top of the file; may be repeated")
    made.add_argument("--log-level", choices=LEVELS, default="info", help="default: info")
    made.add_argument("--log-json", action="store_true", help="log lines are JSON objects")
    return made


def key_lines() -> str:
    """A line per key that has a meaning: name, default, what it does."""
    fields = names(NamesrvConfig)
    return "\n".join(
        f"  {name} = {written(field.default)}\n      {field.metadata['about']}" for name, field in fields.items())


def configure(options: argparse.Namespace, files: Files) -> NamesrvConfig:
    """The configuration of a command line. Raises ``ConfigError``, and ``OSError`` for a file that cannot be read."""
    given: dict[str, str] = {}
    if options.configFile is not None:
        content = files.read(options.configFile)
        if content is None:
            raise ConfigError("-c", options.configFile, "there is no such file")
        try:
            given = {**properties.parse(content.decode()), "configStorePath": options.configFile}
        except ValueError as error:
            raise ConfigError("-c", options.configFile, str(error)) from None
    for setting in options.settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise ConfigError("-D", setting, "must be KEY=VALUE")
        given[name.strip()] = value.strip()
    return from_properties(given)


def tls_of(config: NamesrvConfig) -> TLSContext | None:
    """What ``tls.server.*`` say; None without a certificate. Raises ``ConfigError``."""
    cert, private_key = config.tls_server_cert_path, config.tls_server_key_path
    if not cert and not private_key:
        if config.tls_server_mode == "enforcing":
            raise ConfigError("tls.server.mode", "enforcing", "needs tls.server.certPath and tls.server.keyPath")
        return None
    if not cert or not private_key:
        missing = "tls.server.keyPath" if cert else "tls.server.certPath"
        raise ConfigError(missing, "", "certificate and key come together")
    try:
        return server_context(
            cert, private_key, key_password=config.tls_server_key_password or None,
            ca=config.tls_server_trust_cert_path or None, client_auth=ClientAuth(config.tls_server_need_client_auth))
    except ValueError as error:
        raise ConfigError("tls.server.certPath", cert, str(error)) from None


def main(arguments: Sequence[str] | None = None, *, controller: Controller | None = None) -> int:
    """The command; returns its exit code. ``controller`` runs beside the server where the configuration says so."""
    options = parser().parse_args(arguments)
    try:
        config = configure(options, DiskFiles())
        if options.printConfigItem:
            for name, value in listing(config).items():
                print(f"{name}={value}")
            return STOPPED
        tls = tls_of(config)
        if config.enable_controller_in_namesrv and controller is None:
            raise ConfigError(
                "enableControllerInNamesrv", "true", "this program has no controller in it; run mqcontroller beside it")
    except (ConfigError, OSError) as error:
        print(f"mqnamesrv: {error}", file=sys.stderr)
        return USAGE
    set_up(options.log_level, as_json=options.log_json)
    for name, value in config.kept.items():
        logger.info("key without a meaning here", extra={"key": name, "value": value})
    if options.namesrvAddr:
        logger.info("-n has no meaning here", extra={"value": options.namesrvAddr})
    code = STOPPED
    try:
        trio.run(partial(_run, config, tls, controller if config.enable_controller_in_namesrv else None))
    except* (OSError, BodyError) as failures:
        code = FAILED
        for failure in leaves(failures):
            print(f"mqnamesrv: {failure}", file=sys.stderr)
    return code


def leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """The errors in a group of groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


async def _run(config: NamesrvConfig, tls: TLSContext | None, controller: Controller | None) -> None:
    try:
        listeners = await trio.open_tcp_listeners(
            config.listen_port, host=config.bind_address, backlog=config.server_socket_backlog)
    except OSError as error:
        raise OSError(
            f"cannot listen at {join_address(config.bind_address, config.listen_port)}: {error.strerror or error}; "
            "choose another listenPort or bindAddress") from error
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await _serve(config, tls, controller, listeners, signals)


async def _serve(
    config: NamesrvConfig, tls: TLSContext | None, controller: Controller | None, listeners: list[trio.SocketListener],
    signals: AsyncIterator[int],
) -> None:
    async with trio.open_nursery() as nursery:

        async def serve(*, task_status: trio.TaskStatus[RunningNamesrv]) -> None:
            await serve_namesrv(
                config, clock=time.monotonic_ns, files=DiskFiles(), listeners=listeners, tls=tls, controller=controller,
                task_status=task_status)
            nursery.cancel_scope.cancel()

        running: RunningNamesrv = await nursery.start(serve)
        nursery.start_soon(_obey, signals, running, nursery)
        for listener in listeners:
            host, port = listener.socket.getsockname()[:2]
            print(f"The Name Server boot success. address {join_address(host, port)}", flush=True)


async def _obey(signals: AsyncIterator[int], running: RunningNamesrv, nursery: trio.Nursery) -> None:
    """The first asks it to stop in order, the second to stop."""
    stopping = False
    async for number in signals:
        logger.info("stopping", extra={"signal": signal.Signals(number).name})
        if stopping:
            nursery.cancel_scope.cancel()
        stopping = True
        nursery.start_soon(running.stop)
