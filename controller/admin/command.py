"""The commands of ``mqadmin``: each has arguments, asks a running system, and prints what it found.

A command returns one value with two faces, lines as the original prints them and data for ``--json``; one that goes
through much, or goes on until it is interrupted, yields several. Commands register themselves by decorator. Knows
argparse and nothing of RocketMQ.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import attrs

from controller.admin.asking import Admin, split_addresses


@attrs.frozen
class Said:
    """The findings of a command."""

    lines: Sequence[str]
    data: Any
    """Plain values for ``--json``."""


def or_null(value: object) -> object:
    """Return the value, or for None the text that the original prints."""
    return "null" if value is None else value


class AdminError(Exception):
    """The command could not do what was asked; the message says why and what to do."""


Arguments = Callable[[argparse.ArgumentParser], None]
Run = Callable[[Admin, argparse.Namespace], Awaitable[Said]]
Stream = Callable[[Admin, argparse.Namespace], AsyncGenerator[Said, None]]


@attrs.frozen
class AdminCommand:
    """One line of ``mqadmin --help``."""

    name: str
    about: str
    more: str
    arguments: Arguments
    run: Stream
    streams: bool
    """It says several things, each as soon as it is known; as JSON, one on each line."""
    by_route: bool
    """The name servers are always asked."""


COMMANDS: dict[str, AdminCommand] = {}
"""All commands by name."""


def command(name: str, arguments: Arguments, *, by_route: bool = False) -> Callable[[Run], Run]:
    """Register a command; its docstring's first line is its help, the rest stands below its options."""

    def register(run: Run) -> Run:
        async def once(admin: Admin, options: argparse.Namespace) -> AsyncGenerator[Said, None]:
            yield await run(admin, options)

        _register(name, arguments, once, run.__doc__, streams=False, by_route=by_route)
        return run

    return register


def streaming(name: str, arguments: Arguments, *, by_route: bool = False) -> Callable[[Stream], Stream]:
    """Register a command that yields several results."""

    def register(run: Stream) -> Stream:
        _register(name, arguments, run, run.__doc__, streams=True, by_route=by_route)
        return run

    return register


def _register(
    name: str, arguments: Arguments, run: Stream, documented: str | None, *, streams: bool, by_route: bool,
) -> None:
    about, _, more = (documented or "").strip().partition("\n")
    COMMANDS[name] = AdminCommand(name, about, more.strip("\n"), arguments, run, streams, by_route)


def no_arguments(_: argparse.ArgumentParser) -> None:
    """Add nothing: the command has only the arguments that all have."""


def controller_argument(
    parser: argparse.ArgumentParser,
    about: str = "addresses of controllers; they are asked in turn for the active one", *,
    flags: Sequence[str] = ("-a", "--controllerAddress"), dest: str = "controllerAddress",
) -> None:
    parser.add_argument(*flags, required=True, dest=dest, type=_addresses, metavar="HOST:PORT[;HOST:PORT...]",
                        help=about)


def _addresses(text: str) -> str:
    """At least one: a variable of the shell that is empty must not look like a command that was carried out."""
    if not split_addresses(text):
        raise argparse.ArgumentTypeError(f"{text!r} names no address; host:port does")
    return text


def broker_or_cluster(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("-b", "--brokerName", metavar="NAME", help="one broker group")
    which.add_argument("-c", "--clusterName", metavar="NAME", help="all groups of a cluster, found by the name server")


def text(parser: argparse.ArgumentParser, flags: str, about: str, *, required: bool = False, metavar: str = "NAME",
         default: str | None = None) -> None:
    """One option with a text; ``flags`` as ``-t --topic``."""
    parser.add_argument(*flags.split(), required=required, metavar=metavar, default=default, help=about)


def number(parser: argparse.ArgumentParser, flags: str, about: str, *, required: bool = False,
           default: int | None = None, least: int = 0, metavar: str = "N", dest: str | None = None) -> None:
    """One option with a whole number, ``least`` or more."""
    told = "" if default is None else f"; default {default}"

    def parsed(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{text} is too small; it must be at least {least}")
        return value

    parsed.__name__ = "number"  # argparse names the type by it in errors
    parser.add_argument(*flags.split(), required=required, type=parsed, metavar=metavar, default=default,
                        help=about + told, dest=dest or flags.rpartition("--")[2])


def broker_address_or_cluster(parser: argparse.ArgumentParser, brokers: str = "all masters") -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("-b", "--brokerAddr", metavar="HOST:PORT", help="one broker")
    which.add_argument("-c", "--clusterName", metavar="NAME", help=f"{brokers} of a cluster, found by the name server")


def interval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-i", "--interval", type=_seconds, metavar="SECONDS", help="ask again and again")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time to wait; it must be above 0")
    return seconds
