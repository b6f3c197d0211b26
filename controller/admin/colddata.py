"""Commands about cold data: how much of it consumer groups may read, and how the files of the log are read.

Source: the commands of that name in ``broker`` of RocketMQ.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from controller.admin.asking import Admin
from controller.admin.command import Said, broker_address_or_cluster, command, number, text
from controller.admin.finding import asked_brokers, local_time, titled
from remoting import properties
from remoting.codes import RequestCode
from remoting.errors import BodyError
from remoting.fastjson import loads
from remoting.headers.broker import SetReadAheadRequest


def _cold_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser)
    text(parser, "-g --consumerGroup", "which consumer group", required=True)


def _threshold_arguments(parser: argparse.ArgumentParser) -> None:
    _cold_arguments(parser)
    number(parser, "-v --threshold", "bytes of cold data a second that it may read", required=True, metavar="BYTES")


@command("updateColdDataFlowCtrGroupConfig", _threshold_arguments)
async def set_cold(admin: Admin, options: argparse.Namespace) -> Said:
    """set how much cold data a consumer group may read"""
    body = properties.encode({options.consumerGroup: str(options.threshold)}).encode()
    brokers = await asked_brokers(admin, options)
    for broker in brokers:
        await admin.ask(broker.address, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, body)
    return Said([f"updateColdDataFlowCtrGroupConfig success, {broker.address}" for broker in brokers],
                {"group": options.consumerGroup, "threshold": options.threshold,
                 "brokers": [each.address for each in brokers]})


@command("removeColdDataFlowCtrGroupConfig", _cold_arguments)
async def remove_cold(admin: Admin, options: argparse.Namespace) -> Said:
    """forget what was set for a consumer group"""
    brokers = await asked_brokers(admin, options)
    for broker in brokers:
        await admin.ask(broker.address, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, None,
                        options.consumerGroup.encode())
    return Said([f"remove broker cold read threshold success, {broker.address}" for broker in brokers],
                {"group": options.consumerGroup, "brokers": [each.address for each in brokers]})


def _everyone_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser, "all brokers")


@command("getColdDataFlowCtrInfo", _everyone_arguments)
async def cold_info(admin: Admin, options: argparse.Namespace) -> Said:
    """how much cold data consumer groups may read, and have read"""
    lines: list[str] = []
    data: dict[str, Any] = {}
    for title, address in await titled(admin, options):
        found = loads((await admin.ask(address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)).body or b"{}")
        if not isinstance(found, dict):
            raise BodyError(f"{address} answered with no object")
        runtime = found.get("runtimeTable")
        for each in runtime.values() if isinstance(runtime, dict) else ():
            for key in ("lastColdReadTime", "createTime"):
                try:
                    each[f"{key}Format"] = local_time(int(each.pop(f"{key}Mills", None) or 0), millis=False)
                except (AttributeError, OSError, OverflowError, TypeError, ValueError):
                    raise BodyError(f"{address} answered with a {key}Mills that is no time") from None
        lines += [f" {title}", *json.dumps(found, indent="\t", separators=(",", ":"), sort_keys=True).splitlines()]
        data[address] = found
    return Said(lines, data)


def _ahead_arguments(parser: argparse.ArgumentParser) -> None:
    _everyone_arguments(parser)
    parser.add_argument("-m", "--commitLogReadAheadMode", required=True, choices=("0", "1"),
                        help="0: the system reads ahead; 1: it does not, for reads here and there")


@command("setCommitLogReadAheadMode", _ahead_arguments)
async def set_read_ahead(admin: Admin, options: argparse.Namespace) -> Said:
    """say how the files of the log are read"""
    lines: list[str] = []
    data: dict[str, str | None] = {}
    for title, address in await titled(admin, options):
        answer = await admin.ask(address, RequestCode.SET_COMMITLOG_READ_MODE,
                                 SetReadAheadRequest(int(options.commitLogReadAheadMode)))
        lines += [f" {title}", f"commitLog set readAhead mode rstStr{answer.remark}"]
        data[address] = answer.remark
    return Said(lines, data)
