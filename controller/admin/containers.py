"""Commands to a container of brokers: one more, one less.

Source: the commands in ``container`` of RocketMQ.
"""

from __future__ import annotations

import argparse

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, command, text
from remoting.codes import RequestCode
from remoting.fields import decimal
from remoting.headers.broker import AddBrokerRequest, RemoveBrokerRequest

PATIENCE_MS = 60_000
"""A container answers when the broker serves, and it may have a large store to look through, or when it has ended."""


def _container(parser: argparse.ArgumentParser) -> None:
    text(parser, "-c --brokerContainerAddr", "which container", required=True, metavar="HOST:PORT")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    _container(parser)
    text(parser, "-b --brokerConfigPath", "the broker's configuration file, as the container finds it", required=True,
         metavar="FILE")


@command("addBroker", _add_arguments)
async def add_broker(admin: Admin, options: argparse.Namespace) -> Said:
    """start one more broker in a container

    A container of this project has it at its next start, too; Java's forgets it."""
    await admin.ask(options.brokerContainerAddr, RequestCode.ADD_BROKER,
                    AddBrokerRequest(options.brokerConfigPath.strip()), timeout_ms=PATIENCE_MS)
    return Said([f"add broker to {options.brokerContainerAddr} success"],
                {"container": options.brokerContainerAddr, "file": options.brokerConfigPath.strip()})


def _remove_arguments(parser: argparse.ArgumentParser) -> None:
    _container(parser)
    text(parser, "-b --brokerIdentity", "which broker; its id is that of its file, 0 for a master", required=True,
         metavar="CLUSTER:NAME:ID")


@command("removeBroker", _remove_arguments)
async def remove_broker(admin: Admin, options: argparse.Namespace) -> Said:
    """stop a broker of a container, which no longer has it"""
    cluster, name, broker_id = _identity(options.brokerIdentity)
    await admin.ask(options.brokerContainerAddr, RequestCode.REMOVE_BROKER,
                    RemoveBrokerRequest(cluster, name, broker_id), timeout_ms=PATIENCE_MS)
    return Said([f"remove broker from {options.brokerContainerAddr} success"],
                {"container": options.brokerContainerAddr, "cluster": cluster, "brokerName": name,
                 "brokerId": broker_id})


def _identity(given: str) -> tuple[str, str, int]:
    parts = [part.strip() for part in given.split(":")]
    number = decimal(parts[2]) if len(parts) == 3 else None
    if number is None or number < 0 or not all(parts):
        raise AdminError(f"-b {given}: must be cluster:name:id, such as DefaultCluster:broker-a:0")
    return parts[0], parts[1], number
