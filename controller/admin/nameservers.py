"""Commands about name servers: their configuration, their tables of keys, and who may be written to.

Source: the commands in ``namesrv`` and ``UpdateOrderConfCommand`` of RocketMQ.
"""

from __future__ import annotations

import argparse

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, command, no_arguments, text
from controller.admin.showing import listed, settings
from controller.admin.topics import ORDER_NAMESPACE
from remoting import properties
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.header import Header
from remoting.headers.namesrv import (
    AddWritePermResponse,
    BrokerNameRequest,
    KVKeyRequest,
    KVValueResponse,
    PutKVConfigRequest,
    WipeWritePermResponse,
)

# --- configuration -------------------------------------------------------------------------------------------


@command("getNamesrvConfig", no_arguments, by_route=True)
async def get_config(admin: Admin, _: argparse.Namespace) -> Said:
    """the configuration of each name server of -n"""
    lines, data = [], {}
    for address in admin.namesrv:
        values = await admin.settings(address, RequestCode.GET_NAMESRV_CONFIG)
        lines += [f"============{address}============", *settings(values)]
        data[address] = values
    return Said(lines, data)


def _update_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-k --key", "which key", required=True, metavar="KEY")
    text(parser, "-v --value", "its new value", required=True, metavar="VALUE")


@command("updateNamesrvConfig", _update_arguments, by_route=True)
async def update_config(admin: Admin, options: argparse.Namespace) -> Said:
    """change one key on each name server of -n"""
    body = properties.encode({options.key: options.value}).encode()
    for address in admin.namesrv:
        await admin.ask(address, RequestCode.UPDATE_NAMESRV_CONFIG, None, body)
    return Said([f"update name server config success!{listed(admin.namesrv)}", f"{options.key} : {options.value}"],
                {"nameServers": [*admin.namesrv], options.key: options.value})


# --- keys and values -----------------------------------------------------------------------------------------


def _key_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-s --namespace", "which table of keys", required=True)
    text(parser, "-k --key", "which key", required=True, metavar="KEY")


def _value_arguments(parser: argparse.ArgumentParser) -> None:
    _key_arguments(parser)
    text(parser, "-v --value", "its value", required=True, metavar="VALUE")


async def _everywhere(admin: Admin, code: int, header: Header) -> None:
    for address in admin.namesrv:
        await admin.ask(address, code, header)


@command("updateKvConfig", _value_arguments, by_route=True)
async def update_key(admin: Admin, options: argparse.Namespace) -> Said:
    """set one key in a table of all name servers"""
    await _everywhere(admin, RequestCode.PUT_KV_CONFIG,
                      PutKVConfigRequest(options.namespace, options.key, options.value))
    return Said(["create or update kv config to namespace success."],
                {"namespace": options.namespace, options.key: options.value})


@command("deleteKvConfig", _key_arguments, by_route=True)
async def delete_key(admin: Admin, options: argparse.Namespace) -> Said:
    """remove one key from a table of all name servers"""
    await _everywhere(admin, RequestCode.DELETE_KV_CONFIG, KVKeyRequest(options.namespace, options.key))
    return Said(["delete kv config from namespace success."], {"namespace": options.namespace, "key": options.key})


def _order_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-t --topic", "which topic", required=True)
    text(parser, "-v --orderConf", "with -m put: how many queues each broker group has", metavar="GROUP:N[;GROUP:N...]")
    parser.add_argument("-m", "--method", required=True, choices=("put", "get", "delete"), help="what to do")


@command("updateOrderConf", _order_arguments, by_route=True)
async def update_order(admin: Admin, options: argparse.Namespace) -> Said:
    """set, show or remove where the queues of an ordered topic are"""
    topic, key = options.topic, KVKeyRequest(ORDER_NAMESPACE, options.topic)
    order: str | None = None
    if options.method == "put":
        order = (options.orderConf or "").strip()
        if not order:
            raise AdminError("please set orderConf with option -v.")
        await _everywhere(admin, RequestCode.PUT_KV_CONFIG, PutKVConfigRequest(ORDER_NAMESPACE, topic, order))
        line = f"update orderConf success. topic=[{topic}], orderConf=[{order}]"
    elif options.method == "get":
        order = KVValueResponse.from_ext((await admin.ask(admin.namesrv[0], RequestCode.GET_KV_CONFIG, key)).ext).value
        line = f"get orderConf success. topic=[{topic}], orderConf=[{order}] "
    else:
        await _everywhere(admin, RequestCode.DELETE_KV_CONFIG, key)
        line = f"delete orderConf success. topic=[{topic}]"
    return Said([line], {"topic": topic, "orderConf": order})


# --- who may be written to -----------------------------------------------------------------------------------


def _group_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-b --brokerName", "which broker group", required=True)


@command("wipeWritePerm", _group_arguments, by_route=True)
async def wipe_write(admin: Admin, options: argparse.Namespace) -> Said:
    """have the name servers of -n tell nobody to write to a broker group"""
    return await _permit(admin, options.brokerName, "wipe")


@command("addWritePerm", _group_arguments, by_route=True)
async def add_write(admin: Admin, options: argparse.Namespace) -> Said:
    """have the name servers of -n tell clients again to write to a broker group"""
    return await _permit(admin, options.brokerName, "add")


async def _permit(admin: Admin, group: str, verb: str) -> Said:
    """Each name server for itself. Raises ``RemotingError`` where none did it."""
    code = RequestCode.WIPE_WRITE_PERM_OF_BROKER if verb == "wipe" else RequestCode.ADD_WRITE_PERM_OF_BROKER
    lines, data = [], {}
    failure: RemotingError | None = None
    for address in admin.namesrv:
        begun = f"{verb} write perm of broker[{group}] in name server[{address}]"
        try:
            answer = await admin.ask(address, code, BrokerNameRequest(group))
        except RemotingError as error:
            failure = error
            lines.append(f"{begun} Failed: {error}")
            continue
        data[address] = (WipeWritePermResponse.from_ext(answer.ext).wipe_topic_count if verb == "wipe"
                         else AddWritePermResponse.from_ext(answer.ext).add_topic_count)
        lines.append(f"{begun} OK, {data[address]}")
    if failure is not None and not data:
        raise failure
    return Said(lines, data)
