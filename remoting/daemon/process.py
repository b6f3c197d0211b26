"""Parts that all servers' commands share: flags, configuration from file and flags, listening, signals, exit codes.

Exit codes: 0 stopped in order, 1 it could not run, 2 wrong usage or configuration.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib.util
import logging
import os
import resource
import signal
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import attrs
import trio

from remoting import properties
from remoting.address import join_address
from remoting.daemon.completion import add_completion
from remoting.daemon.exporter import NEEDS, MetricsKeys
from remoting.daemon.files import Files
from remoting.daemon.keys import ConfigError, Missing, Unknown, names, unknown, written
from remoting.daemon.logs import LEVELS, set_up
from remoting.daemon.notify import READY, STOPPING, notify
from remoting.daemon.version import add_version

STOPPED: Final = 0
FAILED: Final = 1
USAGE: Final = 2
LOG_FOLDER: Final = "~/logs/rocketmqlogs"

logger = logging.getLogger("daemon")


class Stoppable(Protocol):
    """A server that can stop in order."""

    async def stop(self) -> None: ...


def server_parser(
    prog: str, description: str, examples: str, config: type[attrs.AttrsInstance], *,
    namesrv: str = "taken because RocketMQ's command takes it; it has no meaning here",
) -> argparse.ArgumentParser:
    """The command line of a server, with a line for each key of its configuration; ``namesrv`` says what -n is for."""
    made = argparse.ArgumentParser(
        prog=prog, formatter_class=argparse.RawDescriptionHelpFormatter, description=description,
        epilog=f"{examples}\nkeys of the configuration:\n{key_lines(config)}")
    made.add_argument("-c", "--configFile", metavar="FILE", help="configuration file with RocketMQ's keys")
    made.add_argument("-p", "--printConfigItem", action="store_true", help="print the configuration and exit")
    made.add_argument("-n", "--namesrvAddr", metavar="ADDRESSES", help=namesrv)
    made.add_argument(
        "-D", "--set", metavar="KEY=VALUE", action="append", default=[], dest="settings",
        help="set one key, on top of the file; may be repeated")
    made.add_argument("--log-level", choices=LEVELS, default="info", help="default: info")
    made.add_argument("--log-json", action="store_true", help="log lines are JSON objects")
    made.add_argument("--log-dir", metavar="DIRECTORY", nargs="?", const=LOG_FOLDER, default="",
                      help=f"log to a file there that rotates, not to standard error; alone: {LOG_FOLDER}, as Java")
    add_version(made)
    add_completion(made)
    return made


def start_logs(options: argparse.Namespace, program: str, limit: logging.Filter) -> None:
    """As the command line says, to the file that Java has for ``program``. Raises ``OSError`` in words."""
    file = Path(options.log_dir).expanduser() / f"{program.removeprefix('mq')}.log" if options.log_dir else None
    try:
        set_up(options.log_level, as_json=options.log_json, limit=limit, file=file)
    except OSError as error:
        raise OSError(f"cannot log to {file}: {error.strerror or error}; choose another --log-dir") from error


def say(line: str) -> None:
    """Print what scripts and people wait for, as Java does; where the log is a file, it is there too, as in Java."""
    print(line, flush=True)
    if any(isinstance(handler, logging.FileHandler) for handler in logging.getLogger().handlers):
        logger.info("%s", line)


def key_lines(config: type[attrs.AttrsInstance]) -> str:
    """A line per key that has a meaning: name, default, what it does."""
    return "\n".join(
        f"  {name} = {written(field.default)}\n      {field.metadata['about']}"
        for name, field in names(config).items())


def is_printed(options: argparse.Namespace, values: Mapping[str, str], important: Container[str] = ()) -> bool:
    """Print the configuration, or what is important of it, if that is asked for; whether it is."""
    if options.printConfigItem or getattr(options, "printImportantConfig", False):
        for name, value in values.items():
            if options.printConfigItem or name in important:
                print(f"{name}={value}")
        return True
    return False


def given_properties(options: argparse.Namespace, files: Files) -> dict[str, str]:
    """Keys of the file with those of ``-D`` on top. Raises ``ConfigError``, and ``OSError`` for an unreadable file."""
    given: dict[str, str] = {}
    if options.configFile is not None:
        try:
            content = files.read(options.configFile)
        except IsADirectoryError:
            raise ConfigError("-c", options.configFile, "is a folder; name a file") from None
        if content is None:
            raise ConfigError("-c", options.configFile, "there is no such file")
        try:
            given = {**properties.parse(content.decode()), "configStorePath": options.configFile}
        except UnicodeDecodeError as error:
            raise ConfigError("-c", options.configFile, f"is no text in UTF-8: byte {error.start} is wrong") from None
        except ValueError as error:
            raise ConfigError("-c", options.configFile, str(error)) from None
    for setting in options.settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise ConfigError("-D", setting, "must be KEY=VALUE")
        given[name.strip()] = value.strip()
    return given


def given_and_unknown(
    options: argparse.Namespace, files: Files, known: Iterable[str],
) -> tuple[dict[str, str], list[Unknown]]:
    """Return ``given_properties``, and the unknown keys, which mean nothing, as in Java.

    With -p unknown keys are printed at once.
    """
    given = given_properties(options, files)
    strange = unknown(given, known)
    for each in strange:
        del given[each.name]
        if options.printConfigItem:
            logger.warning("%s = %s: is no known key%s", each.name, each.text, f"; {each.near} is" if each.near else "")
    return given, strange


def tell_of_idle_keys(
    kept: Mapping[str, str], strange: Iterable[Unknown], features: Mapping[str, Missing], metrics: MetricsKeys,
    namesrv_address: str | None,
) -> None:
    """Log what was given and has no meaning here: a warning for all but the number of a thread pool and the like."""
    for each in strange:
        nearest = {"perhaps_meant": each.near} if each.near else {}
        logger.warning("no known key; it means nothing", extra={"key": each.name, "value": each.text, **nearest})
    for name, value in kept.items():
        missing = features.get(name)
        if missing is None:
            logger.info("key without a meaning here", extra={"key": name, "value": value})
        elif value.strip().lower() != missing.without.lower():
            logger.warning("a key asks for what is not here", extra={
                "key": name, "value": value, "missing": missing.feature})
    if metrics.exports_in_vain:
        logger.warning("a key asks for what is not here", extra={
            "key": "metricsExporterType", "value": metrics.metrics_exporter_type,
            "missing": "metricsGrpcExporterTarget, whom metrics go to: none are exported"})
    if namesrv_address:
        logger.info("-n has no meaning here", extra={"value": namesrv_address})


def tell_of_readable_keys(*paths: str) -> None:
    """Warn of private keys that every user of this machine can read."""
    for path in filter(None, paths):
        with contextlib.suppress(OSError):
            if os.stat(path).st_mode & stat.S_IROTH:
                logger.warning("everybody on this machine can read a private key", extra={
                    "path": path, "advice": "chmod o-r"})


def check_exporter(metrics: MetricsKeys) -> None:
    """Raises ``ConfigError`` where what shows metrics is not installed."""
    extra, packages = NEEDS.get(metrics.metrics_way, ("", ()))
    lacking = [name for name in packages if not _is_installed(name)]
    if lacking:
        raise ConfigError("metricsExporterType", metrics.metrics_exporter_type,
                          f"needs {' and '.join(lacking)}: pip install 'quorate[{extra}]'")


def _is_installed(package: str) -> bool:
    """Return whether a package is there. Of ``a.b``, ``a`` may be missing, or be there alone."""
    outer = package.rpartition(".")[0]
    return (not outer or _is_installed(outer)) and importlib.util.find_spec(package) is not None


def piped(main: Callable[[Sequence[str] | None], int]) -> Callable[..., int]:
    """A command whose output somebody may stop to read, as `| head` does: that is no failure, and not told."""
    @functools.wraps(main)
    def command(arguments: Sequence[str] | None = None) -> int:
        try:
            try:
                return main(arguments)
            finally:
                sys.stdout.flush()  # a closed pipe must fail here, not at the interpreter's end
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return STOPPED

    return command


def run_server(
    program: str, prepare: Callable[[], Callable[[], int | None] | None], failures: tuple[type[Exception], ...],
) -> int:
    """Run what ``prepare`` returns, if anything; returns the exit code: that of the run, if it has one.

    What hinders it is printed in words: ``ConfigError`` and ``OSError`` of ``prepare``, and ``failures`` of the run.
    """
    try:
        run = prepare()
    except BrokenPipeError:
        raise
    except (ConfigError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return USAGE
    code: int | None = STOPPED
    try:
        if run is not None:
            code = run()
    except* failures as found:
        code = FAILED
        for failure in leaves(found):
            print(f"{program}: {words(failure)}", file=sys.stderr)
    return code or STOPPED


async def listen(host: str, port: int, backlog: int | None = None) -> list[trio.SocketListener]:
    """Listeners at the address; raises ``OSError`` with words for an operator."""
    try:
        return await trio.open_tcp_listeners(port, host=host, backlog=backlog)
    except (OSError, UnicodeError) as error:  # UnicodeError: no host can have the name
        why = getattr(error, "strerror", None) or error
        raise OSError(f"cannot listen at {join_address(host, port)}: {why}; "
                      "choose another listenPort or bindAddress") from error


def leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """The errors in a group of groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def words(failure: BaseException) -> str:
    """Return the text of an error and of the error behind it."""
    cause = failure.__cause__
    return str(failure) if cause is None or str(cause) in str(failure) else f"{failure}: {cause}"


def raise_file_limit() -> None:
    """As many open files, and so connections, as the system allows: the usual 1,024 are too few; Java does the same."""
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def run_until_stopped(
    serve: Callable[[trio.TaskStatus[Stoppable]], Awaitable[None]], started: Callable[[], None],
) -> None:
    """Run a server; the first SIGTERM or SIGINT asks it to stop in order, the second stops it.

    While it has not started the first stops it: that may take as long as a disk or another machine likes.
    """
    raise_file_limit()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[Stoppable]) -> None:
                await serve(task_status)
                nursery.cancel_scope.cancel()

            async with trio.open_nursery() as meanwhile:
                meanwhile.start_soon(_give_up_at, signals, nursery)
                running: Stoppable = await nursery.start(run)
                meanwhile.cancel_scope.cancel()
            gc.freeze()  # the program itself is no garbage: searching it would stop the loop
            nursery.start_soon(_obey, signals, running, nursery)
            started()
            notify(READY)


async def _give_up_at(signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
    number = await anext(signals)
    logger.info("stopping before it started", extra={"signal": signal.Signals(number).name})
    nursery.cancel_scope.cancel()


async def _obey(signals: AsyncIterator[int], running: Stoppable, nursery: trio.Nursery) -> None:
    stopping = False
    async for number in signals:
        logger.info("stopping", extra={"signal": signal.Signals(number).name})
        notify(STOPPING)
        if stopping:
            nursery.cancel_scope.cancel()
        stopping = True
        nursery.start_soon(running.stop)
