"""Commands about clients: which producers and consumers are connected, and what consumers say of themselves.

Source: the commands in ``connection`` and ``producer``, ``ConsumerStatusSubCommand`` and ``ConsumerRunningInfo`` of
RocketMQ.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, command, streaming, text
from controller.admin.consumers import RETRY_PREFIX
from controller.admin.finding import Found, in_java, of_topic, stamp
from controller.admin.showing import queue_words
from remoting.bodies.consumers import (
    ClientConnection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    ProducerTableInfo,
)
from remoting.codes import RequestCode, version_name
from remoting.errors import RemotingError
from remoting.headers.consumers import ConsumerClientRequest, ConsumerGroupRequest, ProducerGroupRequest

# --- who is connected ----------------------------------------------------------------------------------------


def _group_argument(parser: argparse.ArgumentParser) -> None:
    text(parser, "-g --consumerGroup", "which consumer group", required=True)


def _connection_arguments(parser: argparse.ArgumentParser) -> None:
    _group_argument(parser)
    text(parser, "-b --brokerAddr", "ask this broker", metavar="HOST:PORT")


async def members_of(admin: Admin, group: str, broker: str | None = None) -> ConsumerConnection:
    """The members of a group, as one broker knows them. Raises ``AdminError`` where nobody is online."""
    for found in [Found("", broker)] if broker else await of_topic(admin, RETRY_PREFIX + group):
        answer = await admin.ask(
            found.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequest(group))
        members = ConsumerConnection.from_json(answer.body)
        members.connection_set.sort(key=lambda each: each.client_id)
        return members
    raise AdminError(f"no broker has the retry topic of group {group}")


def _plain(connections: list[ClientConnection]) -> list[dict[str, Any]]:
    return [{"clientId": each.client_id, "clientAddr": each.client_addr, "language": each.language,
             "version": version_name(each.version)} for each in connections]


_MEMBER: Final = "{:<36} {:<22} {:<10} {}"


@command("consumerConnection", _connection_arguments)
async def consumer_connection(admin: Admin, options: argparse.Namespace) -> Said:
    """the members of a consumer group, and what they subscribe to"""
    members = await members_of(admin, options.consumerGroup, options.brokerAddr)
    subscriptions = sorted(members.subscription_table.values(), key=lambda each: each.topic)
    return Said(
        [_MEMBER.format("#ClientId", "#ClientAddr", "#Language", "#Version"),
         *(_MEMBER.format(each.client_id, each.client_addr, each.language, version_name(each.version))
           for each in members.connection_set),
         "", "Below is subscription:", f"{'#Topic':<20} #SubExpression",
         *(f"{each.topic:<20} {each.sub_string}" for each in subscriptions),
         "", f"ConsumeType: {in_java(members.consume_type)}", f"MessageModel: {in_java(members.message_model)}",
         f"ConsumeFromWhere: {in_java(members.consume_from_where)}"],
        {"members": _plain(members.connection_set), "consumeType": members.consume_type,
         "subscriptions": {each.topic: each.sub_string for each in subscriptions},
         "messageModel": members.message_model, "consumeFromWhere": members.consume_from_where})


def _producer_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-g --producerGroup", "which producer group", required=True)
    text(parser, "-t --topic", "a topic that they send to: its brokers are asked", required=True)


@command("producerConnection", _producer_arguments, by_route=True)
async def producer_connection(admin: Admin, options: argparse.Namespace) -> Said:
    """the members of a producer group"""
    found: list[ClientConnection] = []
    for broker in await of_topic(admin, options.topic):
        answer = await admin.ask(
            broker.address, RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequest(options.producerGroup))
        found = sorted(ProducerConnection.from_json(answer.body).connection_set, key=lambda each: each.client_id)
        break
    if not found:
        raise AdminError(f"no producer of group {options.producerGroup} is connected")
    return Said([f"{number:04}  {each.client_id:<32} {each.client_addr:<22} {each.language:<8} "
                 f"{version_name(each.version)}" for number, each in enumerate(found, 1)], _plain(found))


def _all_producers_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-b --broker", "which broker", required=True, metavar="HOST:PORT")


@command("producer", _all_producers_arguments)
async def producers(admin: Admin, options: argparse.Namespace) -> Said:
    """all producers that are connected to a broker"""
    answer = await admin.ask(options.broker, RequestCode.GET_ALL_PRODUCER_INFO)
    table = ProducerTableInfo.from_json(answer.body).data
    lines: list[str] = []
    for group, members in sorted(table.items()):
        lines += [f"producer group ({group}) instance : clientId={each.client_id},remoteIP={each.remote_ip}, "
                  f"language={each.language}, version={each.version}, "
                  f"lastUpdateTimestamp={each.last_update_timestamp}" for each in members]
        if not members:
            lines.append(f"producer group ({group}) instances are empty")
    return Said(lines, {group: [each.to_plain() for each in members] for group, members in sorted(table.items())})


# --- what consumers say of themselves ------------------------------------------------------------------------


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    _connection_arguments(parser)
    text(parser, "-i --clientId", "show one member; default all, each in a file of a folder made here", metavar="ID")
    parser.add_argument("-s", "--jstack", action="store_true", help="with its stacks, where it is one of Java")


_STATUS: Final = "{:<10} {:<40} {:<20} {}"
SETTLED_MS: Final = 120_000
"""Consumers may want different topics for so long after a start."""
STUCK_MS: Final = 60_000
_NAME: Final = re.compile(r"[^\w.@#-]")


@streaming("consumerStatus", _status_arguments)
async def consumer_status(admin: Admin, options: argparse.Namespace) -> AsyncGenerator[Said, None]:
    """what the members of a consumer group say of themselves, and whether they agree"""
    if not options.brokerAddr and not admin.namesrv:
        raise AdminError("-n is needed: the address of a name server, or $NAMESRV_ADDR")
    members = await members_of(admin, options.consumerGroup, options.brokerAddr)
    if options.clientId:
        info = await running_info(admin, options.consumerGroup, options.clientId, options.brokerAddr, options.jstack)
        yield Said(info_lines(info).splitlines(), info.to_plain())
        return
    found: dict[str, ConsumerRunningInfo] = {}
    folder = Path(str(time.time_ns() // 1_000_000))
    yield Said([_STATUS.format("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile")], None)
    for each in members.connection_set:
        try:
            info = await running_info(admin, options.consumerGroup, each.client_id, options.brokerAddr, options.jstack)
        except RemotingError as error:
            yield Said([f"{each.client_id}: {error}"], {"clientId": each.client_id, "error": str(error)})
            continue
        found[each.client_id] = info
        path = _left(folder, each.client_id, info)
        yield Said([_STATUS.format(len(found), each.client_id, version_name(each.version), path)],
                   {"clientId": each.client_id, "version": version_name(each.version), "file": str(path),
                    "info": info.to_plain()})
    if found:
        now_ms = time.time_ns() // 1_000_000
        same, stuck = agree(found, now_ms), complaints(found, now_ms)
        yield Said(["", "", "Same subscription in the same group of consumer", "", "", "Rebalance OK", *stuck]
                   if same else ["", "", "WARN: Different subscription in the same group of consumer!!!"],
                   {"sameSubscription": same, "complaints": stuck})


def _left(folder: Path, client: str, info: ConsumerRunningInfo) -> Path:
    """The file that has it. Raises ``AdminError``."""
    path = folder / _NAME.sub("_", client)  # a client id may hold any character
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        path.write_text(info_lines(info))
    except OSError as error:
        raise AdminError(f"{path} cannot be written: {error.strerror}") from None
    return path


async def running_info(
    admin: Admin, group: str, client: str, broker: str | None = None, stacks: bool = False,
) -> ConsumerRunningInfo:
    """Return the state of one member, asked by way of the broker that it is connected to."""
    failure: RemotingError | None = None
    for found in [Found("", broker)] if broker else await of_topic(admin, RETRY_PREFIX + group):
        try:
            answer = await admin.ask(found.address, RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerClientRequest(
                group, client, jstack_enable=stacks))
            return ConsumerRunningInfo.from_json(answer.body)
        except RemotingError as error:
            failure = error
    raise failure or AdminError(f"no broker has the retry topic of group {group}")


def agree(found: Mapping[str, ConsumerRunningInfo], now_ms: int) -> bool:
    """They want the same. As the original, not asked of pulling consumers, nor within two minutes of a start."""
    first = found[min(found)]
    started = str(first.properties.get("PROP_CONSUMER_START_TIMESTAMP", ""))
    settled = started.isdecimal() and now_ms - int(started) > SETTLED_MS
    if first.properties.get("PROP_CONSUME_TYPE") != "CONSUME_PASSIVELY" or not settled:
        return True
    wanted = [sorted((each.topic, each.sub_string, each.expression_type) for each in info.subscription_set)
              for info in found.values()]
    return all(each == wanted[0] for each in wanted)


def complaints(found: Mapping[str, ConsumerRunningInfo], now_ms: int) -> list[str]:
    """Queues that are not locked where order needs it, and queues that stand still."""
    lines: list[str] = []
    for client, info in sorted(found.items()):
        if info.properties.get("PROP_CONSUME_TYPE") != "CONSUME_PASSIVELY":
            continue
        ordered = info.properties.get("PROP_CONSUMEORDERLY", "").lower() == "true"
        for queue, state in info.mq_table.items():
            where = f"{client} {queue_words(queue)}"
            idle_ms = now_ms - int(state.get("lastConsumeTimestamp") or 0)
            if not ordered:
                if idle_ms > STUCK_MS and int(state.get("cachedMsgCount") or 0) > 0:
                    lines.append(f"{where} can't consume for a while, maybe blocked, {idle_ms}ms")
            elif not state.get("locked"):
                lines.append(
                    f"{where} can't lock for a while, {now_ms - int(state.get('lastLockTimestamp') or 0)}ms")
            elif state.get("droped") and int(state.get("tryUnlockTimes") or 0) > 0:
                lines.append(f"{where} unlock {state['tryUnlockTimes']} times, still failed")
    return lines


_OFFSETS: Final = "{:<64}  {:<32}  {:<4}  {:<20}"
_POPPED: Final = "{:<32}  {:<32}  {:<4}  {:<20}"
_RATES: Final = "{:<{width}}  {:>14} {:>14} {:>14} {:>14} {:>18} {:>25}"
_STATE: Final = (
    "commitOffset", "cachedMsgMinOffset", "cachedMsgMaxOffset", "cachedMsgCount", "cachedMsgSizeInMiB",
    "transactionMsgMinOffset", "transactionMsgMaxOffset", "transactionMsgCount", "locked", "tryUnlockTimes",
    "lastLockTimestamp", "droped", "lastPullTimestamp", "lastConsumeTimestamp")


def info_lines(info: ConsumerRunningInfo) -> str:
    """A member's own words as a text, as the original has it."""
    queues = sorted(info.mq_table.items(), key=lambda each: attrs.astuple(each[0]))
    lines = ["#Consumer Properties#", *(f"{key:<40}: {value}" for key, value in sorted(info.properties.items())),
             "", "", "#Consumer Subscription#"]
    lines += [f"{number:03} Topic: {each.topic:<40} ClassFilter: {in_java(each.class_filter_mode):<8} "
              f"SubExpression: {each.sub_string}"
              for number, each in enumerate(sorted(info.subscription_set, key=lambda each: each.topic), 1)]
    lines += ["", "", "#Consumer Offset#", _OFFSETS.format("#Topic", "#Broker Name", "#QID", "#Consumer Offset")]
    lines += [_POPPED.format(queue.topic, queue.broker_name, queue.queue_id, state.get("commitOffset", 0))
              for queue, state in queues]
    lines += ["", "", "#Consumer MQ Detail#", _OFFSETS.format("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")]
    lines += [_OFFSETS.format(queue.topic, queue.broker_name, queue.queue_id, _state(state)) for queue, state in queues]
    lines += ["", "", "#Consumer Pop Detail#", _POPPED.format("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")]
    lines += [_POPPED.format(
        queue.topic, queue.broker_name, queue.queue_id, "PopProcessQueueInfo ["
        + ", ".join(f"{key}:{in_java(state.get(key))}" for key in ("waitAckCount", "droped", "lastPopTimestamp")) + "]")
        for queue, state in info.mq_pop_table.items()]
    lines += ["", "", "#Consumer RT&TPS#", _RATES.format(
        "#Topic", "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS",
        "#ConsumeFailedMsgsInHour", width=64)]
    lines += [_RATES.format(topic, *(f"{float(rates.get(key) or 0):.2f}" for key in (
        "pullRT", "pullTPS", "consumeRT", "consumeOKTPS", "consumeFailedTPS")), rates.get("consumeFailedMsgs", 0),
        width=32) for topic, rates in sorted(info.status_table.items())]
    lines += ["", "", "#User Consume Info#",
              *(f"{key:<40}: {value}" for key, value in sorted(info.user_consumer_info.items()))]
    if info.jstack:
        lines += ["", "", "#Consumer jstack#", info.jstack]
    return "\n".join(lines) + "\n"


def _state(state: Mapping[str, Any]) -> str:
    def shown(key: str) -> object:
        value = state.get(key, False if key in ("locked", "droped") else 0)
        return stamp(int(value)) if key.endswith("Timestamp") else in_java(value)

    return f"ProcessQueueInfo [{', '.join(f'{key}={shown(key)}' for key in _STATE)}]"
