"""Commands about the controller group itself: who leads, configuration, members.

Knows nothing of broker groups.
"""

from __future__ import annotations

import argparse
from typing import Final

from controller.admin.asking import Admin, split_addresses
from controller.admin.command import AdminError, Said, command, controller_argument, or_null
from controller.own_codes import ChangeControllerGroupRequest, OwnCode
from raft.config import Config as RaftConfig
from remoting import properties
from remoting.codes import RequestCode
from remoting.errors import RemotingError

CHANGE_TIMEOUT_MS: Final = RaftConfig().reconfigure_timeout_ms + 5_000
"""Time for a change: controllers that are added catch up first, for ``reconfigure_timeout_ms`` at most."""


@command("getControllerMetaData", controller_argument)
async def metadata(admin: Admin, options: argparse.Namespace) -> Said:
    """who the active controller is, and who the others are"""
    found = await admin.controller(split_addresses(options.controllerAddress))
    peers = split_addresses(found.peers or "")
    return Said(
        ["", f"#ControllerGroup\t{found.group}", f"#ControllerLeaderId\t{or_null(found.controller_leader_id)}",
         f"#ControllerLeaderAddress\t{or_null(found.controller_leader_address)}",
         *(f"#Peer:\t{peer}" for peer in peers)],
        {"group": found.group, "leaderId": found.controller_leader_id,
         "leaderAddress": found.controller_leader_address, "peers": peers})


def _config_arguments(parser: argparse.ArgumentParser) -> None:
    controller_argument(parser, "addresses of controllers: each is asked")


@command("getControllerConfig", _config_arguments)
async def get_config(admin: Admin, options: argparse.Namespace) -> Said:
    """the configuration of each controller named"""
    lines, data = [], {}
    for address in split_addresses(options.controllerAddress):
        values = await admin.settings(address, RequestCode.GET_CONTROLLER_CONFIG)
        lines.append(f"============{address}============")
        lines += [f"{key:<50}=  {value}" for key, value in values.items()]
        data[address] = values
    return Said(lines, data)


def _update_arguments(parser: argparse.ArgumentParser) -> None:
    _config_arguments(parser)
    parser.add_argument("-k", "--key", required=True, help="which key")
    parser.add_argument("-v", "--value", required=True, help="its new value")


@command("updateControllerConfig", _update_arguments)
async def update_config(admin: Admin, options: argparse.Namespace) -> Said:
    """change one key on each controller named

    Each controller has a configuration of its own: name them all. What a running controller cannot follow it keeps for
    its next start, and says so in its log.
    """
    addresses = split_addresses(options.controllerAddress)
    body = properties.encode({options.key: options.value}).encode()
    for address in addresses:
        await admin.ask(address, RequestCode.UPDATE_CONTROLLER_CONFIG, None, body)
    return Said(
        [f"update controller config success![{', '.join(addresses)}]", f"{options.key} : {options.value}"],
        {"controllers": addresses, options.key: options.value})


def _change_arguments(parser: argparse.ArgumentParser) -> None:
    controller_argument(parser)
    parser.add_argument("--add", action="append", default=[], metavar="ID-HOST:PORT",
                        help="one that runs already, with the members in its controllerDLegerPeers; may be repeated")
    parser.add_argument("--remove", action="append", default=[], metavar="ID", help="one to leave; may be repeated")


@command("changeControllerGroup", _change_arguments)
async def change_group(admin: Admin, options: argparse.Namespace) -> Said:
    """add controllers to the running group, or remove some; ours only

    Start a new controller with its own id and address among controllerDLegerPeers, beside the present ones; it waits to
    be added. New controllers are caught up before they count. Without --add and --remove, those that came back with
    empty disks are taken in again.
    """
    active = await admin.active(split_addresses(options.controllerAddress))
    answer = await admin.ask(active, OwnCode.CHANGE_CONTROLLER_GROUP, ChangeControllerGroupRequest(
        ";".join(options.add), ";".join(options.remove)), timeout_ms=CHANGE_TIMEOUT_MS)
    peers = split_addresses(answer.remark or "")
    if not peers:
        raise AdminError(f"{active} did not say what the group is now; ask getControllerMetaData")
    return Said([f"#Peer:\t{peer}" for peer in peers], {"peers": peers})


@command("explainController", _config_arguments)
async def explain(admin: Admin, options: argparse.Namespace) -> Said:
    """what each controller named has to say of its state, in sentences; ours only

    One that does not answer is said to be so; it fails if none does.
    """
    lines: list[str] = []
    data: dict[str, list[str]] = {}
    silent: list[RemotingError] = []
    for address in split_addresses(options.controllerAddress):
        try:
            sentences = (await admin.told(address, OwnCode.EXPLAIN)).splitlines()
        except RemotingError as error:
            silent.append(error)
            sentences = [f"no answer: {error}"]
        lines += [f"============{address}============", *(sentences or ["nothing to report"])]
        data[address] = sentences
    if len(silent) == len(data):
        raise silent[0]
    return Said(lines, data)
