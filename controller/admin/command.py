"""What a command of ``mqadmin`` is: its arguments, what it asks of a running system, what it prints.

A command returns one value with two faces, lines as the original prints them and data for ``--json``. Commands register
themselves by decorator. Knows argparse and nothing of RocketMQ.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs

from controller.admin.asking import Admin, split_addresses


@attrs.frozen
class Said:
    """What a command found out."""

    lines: Sequence[str]
    data: Any
    """Plain values for ``--json``."""


def or_null(value: object) -> object:
    """As the original prints what is not there."""
    return "null" if value is None else value


class AdminError(Exception):
    """The command could not do what was asked; the message says why and what to do."""


Arguments = Callable[[argparse.ArgumentParser], None]
Run = Callable[[Admin, argparse.Namespace], Awaitable[Said]]


@attrs.frozen
class AdminCommand:
    """One line of ``mqadmin --help``. ``repeats``: it has ``-i`` and goes on until it is interrupted."""

    name: str
    about: str
    more: str
    arguments: Arguments
    run: Run


COMMANDS: dict[str, AdminCommand] = {}


def command(name: str, arguments: Arguments) -> Callable[[Run], Run]:
    """Register a command; its docstring's first line is its help, the rest stands below its options."""

    def register(run: Run) -> Run:
        about, _, more = (run.__doc__ or "").strip().partition("\n")
        COMMANDS[name] = AdminCommand(name, about, more.strip("\n"), arguments, run)
        return run

    return register


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
