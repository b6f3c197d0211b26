"""Commands that look for stored messages: by id, by key, by unique id; with who has consumed them.

Any broker is asked for records, which are the same bytes wherever they come from. Source: ``QueryMsgByIdSubCommand``,
``QueryMsgByKeySubCommand``, ``QueryMsgByUniqueKeySubCommand`` and ``DefaultMQAdminExtImpl`` of RocketMQ.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from pathlib import Path
from typing import Any, Final

import attrs

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, command
from controller.admin.consumers import RETRY_PREFIX, consume_stats
from controller.admin.finding import Found, in_java, local_time, of_topic
from controller.admin.messages import Sent, send
from controller.admin.stored import Stored, stored_of
from remoting.address import join_address
from remoting.bodies.consumers import ConsumeMessageDirectlyResult, ConsumerConnection, ConsumerRunningInfo, GroupList
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError, ResponseError
from remoting.headers.consumers import ConsumerClientRequest, ConsumerGroupRequest
from remoting.headers.queries import QueryMessageRequest, TopicRequest, ViewMessageRequest
from remoting.record import decode, decode_all, parse_message_id, unpacked_host

MASTER_ID: Final = 0
BODIES: Final = Path("/tmp/rocketmq/msgbodys")
"""Folder where the original leaves the bodies of messages that it shows."""
UNIQUE_MOST: Final = 32
UNIQUE_AGE_MS: Final = 3 * 24 * 3_600_000
"""Greatest age of a message that is looked for by another unique id than its own."""
_FILE_NAME: Final = re.compile(r"\w[\w.-]{0,120}")
FOREVER: Final = 2**63 - 1


# --- finding -------------------------------------------------------------------------------------------------


async def by_key(admin: Admin, header: QueryMessageRequest, cluster: str | None = None) -> list[Stored]:
    """Return the messages with a key at all brokers of the topic, the newest first at each.

    Raises ``AdminError`` if there are none.
    """
    found: list[Stored] = []
    failure: RemotingError | None = None
    for broker in await of_topic(admin, header.topic, cluster=cluster):
        try:
            answer = await admin.ask(broker.address, RequestCode.QUERY_MESSAGE, header)
        except ResponseError as error:
            failure = failure if error.code == ResponseCode.QUERY_NOT_FOUND else error
            continue
        except RemotingError as error:
            failure = error
            continue
        found += map(stored_of, decode_all(answer.body))
    # The index stores hashes, and two keys may share one.
    found = [each for each in found if (
        each.message_id == header.key if header.unique
        else header.key in each.properties.get("TAGS" if header.index_type == "T" else "KEYS", "").split(" "))]
    if found:
        return found
    raise failure or AdminError(f"no message of topic {header.topic} with {'id' if header.unique else 'key'} "
                                f"{header.key} was found")


async def by_id(admin: Admin, options: argparse.Namespace, message_id: str) -> Stored:
    """Return a message by its place in the log, which the broker's id names, else by its sender's id."""
    try:
        host, offset = parse_message_id(message_id)
        name, port = unpacked_host(host)
        if 0 < port < 1 << 16:  # a sender's id looks the same, but rarely holds a valid port
            answer = await admin.ask(join_address(name, port), RequestCode.VIEW_MESSAGE_BY_ID,
                                     ViewMessageRequest(offset))
            return stored_of(decode(answer.body))
    except RemotingError:
        pass
    since_ms = time.time_ns() // 1_000_000 - UNIQUE_AGE_MS
    return (await by_key(admin, QueryMessageRequest(
        options.topic, message_id, UNIQUE_MOST, since_ms, FOREVER, unique=True), options.cluster))[0]


# --- showing -------------------------------------------------------------------------------------------------


def _lines(stored: Stored, path: str) -> list[str]:
    record, message, properties = stored.record, stored.record.message, stored.properties
    rows = {
        "Topic": stored.topic, "Tags": f"[{properties.get('TAGS', 'null')}]",
        "Keys": f"[{properties.get('KEYS', 'null')}]", "Queue ID": message.queue_id,
        "Queue Offset": record.queue_offset, "CommitLog Offset": record.offset,
        "Reconsume Times": message.reconsume_times, "Born Timestamp": local_time(message.born_time_ms),
        "Store Timestamp": local_time(record.store_time_ms),
        "Born Host": join_address(*unpacked_host(message.born_host)), "Store Host": stored.store_host,
        "System Flag": message.sys_flag,
        "Properties": "{" + ", ".join(f"{key}={value}" for key, value in properties.items()) + "}",
        "Message Body Path": path}
    return [f"{name + ':':<20} {value}" for name, value in rows.items()]


def data_of(stored: Stored) -> dict[str, Any]:
    """A message as plain values for ``--json``."""
    record, message = stored.record, stored.record.message
    return {
        "offsetMsgId": record.message_id, "msgId": stored.message_id, "topic": stored.topic,
        "queueId": message.queue_id, "queueOffset": record.queue_offset, "commitLogOffset": record.offset,
        "reconsumeTimes": message.reconsume_times, "bornTimestamp": message.born_time_ms,
        "storeTimestamp": record.store_time_ms, "bornHost": join_address(*unpacked_host(message.born_host)),
        "storeHost": stored.store_host, "sysFlag": message.sys_flag, "properties": stored.properties,
        "body": stored.body.decode(errors="replace")}


def _data(stored: Stored, path: str, tracks: list[Track]) -> dict[str, Any]:
    return data_of(stored) | {"bodyPath": path, "tracks": [attrs.asdict(track) for track in tracks]}


def _leave_body(stored: Stored, suffix: str = "") -> str:
    """The file that holds it now. Raises ``AdminError``."""
    name = stored.message_id
    if not _FILE_NAME.fullmatch(name):  # an id from a sender may hold any character
        name = stored.record.message_id
    path = BODIES / f"{name}{suffix}"
    try:
        BODIES.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(stored.body)
    except OSError as error:
        raise AdminError(f"the body cannot be written to {path}: {error.strerror}") from None
    return str(path)


# --- who has consumed it -------------------------------------------------------------------------------------


KINDS: Final[dict[int, str]] = {
    ResponseCode.CONSUMER_NOT_ONLINE: "NOT_ONLINE", ResponseCode.BROADCAST_CONSUMPTION: "CONSUME_BROADCASTING"}
"""Kinds of track by the code that a broker answers instead of members or offsets."""


@attrs.frozen
class Track:
    """The state of a message in one group, as far as the group's offsets tell."""

    group: str
    kind: str = "UNKNOWN"
    why: str | None = None

    def __str__(self) -> str:
        return (f"MessageTrack [consumerGroup={self.group}, trackType={self.kind}, "
                f"exceptionDesc={'null' if self.why is None else self.why}]")


async def _tracks(admin: Admin, stored: Stored) -> list[Track]:
    for broker in await of_topic(admin, stored.topic):
        answer = await admin.ask(broker.address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequest(stored.topic))
        return [await _track(admin, stored, group) for group in GroupList.from_json(answer.body).group_list]
    return []


async def _track(admin: Admin, stored: Stored, group: str) -> Track:
    try:
        answer = await admin.ask((await _any_of(admin, group)).address, RequestCode.GET_CONSUMER_CONNECTION_LIST,
                                 ConsumerGroupRequest(group))
        members = ConsumerConnection.from_json(answer.body)
        if members.consume_type == "CONSUME_ACTIVELY":
            return Track(group, "PULL")
        if members.consume_type != "CONSUME_PASSIVELY":
            return Track(group)
        if not await _consumed(admin, stored, group):
            return Track(group, "NOT_CONSUME_YET")
    except ResponseError as error:
        kind = KINDS.get(error.code, "UNKNOWN")
        return Track(group, kind, None if kind == "CONSUME_BROADCASTING" else f"CODE:{error.code} DESC:{error.remark}")
    except (AdminError, RemotingError) as error:
        return Track(group, why=str(error))
    wanted = members.subscription_table.get(stored.topic)
    tags = wanted.tags_set if wanted is not None else frozenset()
    filtered = tags and "*" not in tags and stored.properties.get("TAGS") not in tags
    return Track(group, "CONSUMED_BUT_FILTERED" if filtered else "CONSUMED")


async def _consumed(admin: Admin, stored: Stored, group: str) -> bool:
    """Return whether the group has passed the message in its queue, at the broker that stored it."""
    table, _ = await consume_stats(admin, group)
    groups = (await admin.clusters()).broker_addr_table
    return any(
        queue.topic == stored.topic and queue.queue_id == stored.record.message.queue_id
        and queue.broker_name in groups and groups[queue.broker_name].broker_addrs.get(MASTER_ID) == stored.store_host
        and offset.consumer_offset > stored.record.queue_offset for queue, offset in table.items())


async def _any_of(admin: Admin, group: str) -> Found:
    """A broker that knows the members of a consumer group."""
    found = await of_topic(admin, RETRY_PREFIX + group)
    if not found:
        raise AdminError(f"no broker has the retry topic of group {group}")
    return found[0]


# --- what a client makes of it -------------------------------------------------------------------------------


async def _push(admin: Admin, options: argparse.Namespace, stored: Stored) -> Said:
    """Have one client consume it, at once."""
    group, client = options.consumerGroup, options.clientId
    header = ConsumerClientRequest(group, client)
    answer = await admin.ask((await _any_of(admin, group)).address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    if ConsumerRunningInfo.from_json(answer.body).properties.get("PROP_CONSUME_TYPE") != "CONSUME_PASSIVELY":
        raise AdminError(f"this {client} client is not push consumer ,not support direct push")
    header = ConsumerClientRequest(group, client, stored.topic, stored.record.message_id)
    answer = await admin.ask(stored.store_host, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    found = ConsumeMessageDirectlyResult.from_json(answer.body)
    words = ", ".join(f"{key}={in_java(value)}" for key, value in {
        "order": found.order, "autoCommit": found.auto_commit, "consumeResult": found.consume_result,
        "remark": found.remark, "spentTimeMills": found.spent_time_mills}.items())
    return Said([f"ConsumeMessageDirectlyResult [{words}]"], found.to_plain())


async def _resend(admin: Admin, stored: Stored, asked: str) -> Said:
    sent: Sent = await send(admin, stored.topic, stored.body, stored.properties)
    return Said(
        [f"prepare resend msg. originalMsgId={asked}"
         f"SendResult [sendStatus={sent.status}, msgId={stored.message_id}, offsetMsgId={sent.offset_id}, "
         f"messageQueue=MessageQueue [topic={stored.topic}, brokerName={sent.broker}, queueId={sent.queue_id}], "
         f"queueOffset={sent.queue_offset}, recallHandle=null]"], {**attrs.asdict(sent), "originalMsgId": asked})


# --- the commands --------------------------------------------------------------------------------------------


def _cluster_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--cluster", metavar="NAME", help="ask the brokers of this cluster alone")


def _client_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-g", "--consumerGroup", metavar="NAME", help="with -d: have a member of this group consume it")
    parser.add_argument("-d", "--clientId", metavar="ID", help="which member; with -g")


def _id_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="of which topic")
    parser.add_argument("-i", "--msgId", required=True, metavar="ID[,ID...]",
                        help="its id, the broker's or the sender's; several are parted by commas")
    _client_arguments(parser)
    parser.add_argument("-s", "--sendMessage", metavar="true", help="send it once more")
    parser.add_argument("-u", "--unitName", metavar="NAME", help="taken and not used: of the sender's unit, with -s")
    parser.add_argument("-f", "--bodyFormat", metavar="CHARSET", help="show the body too, as text of this encoding")
    _cluster_argument(parser)


@command("queryMsgById", _id_arguments, by_route=True)
async def query_by_id(admin: Admin, options: argparse.Namespace) -> Said:
    """show messages by id, and which consumer groups have had them

    The body is left in a file of /tmp/rocketmq/msgbodys. With -g and -d one client is made to consume the message, with
    -s true it is sent once more.
    """
    said: list[Said] = []
    for message_id in filter(None, map(str.strip, options.msgId.split(","))):
        if options.consumerGroup and options.clientId:
            said.append(await _push(admin, options, await by_id(admin, options, message_id)))
        elif options.sendMessage is not None:
            if options.sendMessage.strip().lower() == "true":
                said.append(await _resend(admin, await by_id(admin, options, message_id), message_id))
        else:
            said.append(await shown(admin, await by_id(admin, options, message_id), options.bodyFormat))
    return Said([line for each in said for line in each.lines], [each.data for each in said])


async def shown(admin: Admin, stored: Stored, encoding: str | None) -> Said:
    """A message with who has had it; its body is left in a file, and shown too where an encoding is given."""
    path, tracks = _leave_body(stored), await _tracks(admin, stored)
    lines = [f"{'OffsetID:':<20} {stored.record.message_id}", *_lines(stored, path)]
    if encoding:
        lines.append(f"{'Message Body:':<20} {stored.text(encoding)}")
    lines += ["", "", *map(str, tracks)] if tracks else ["", "", "WARN: No Consumer"]
    return Said(lines, _data(stored, path, tracks))


def _key_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="of which topic")
    parser.add_argument("-k", "--msgKey", required=True, metavar="KEY", help="one of its keys")
    parser.add_argument("-b", "--beginTimestamp", type=int, default=0, metavar="MS",
                        help="stored at this time or later; default 0")
    parser.add_argument("-e", "--endTimestamp", type=int, default=FOREVER, metavar="MS",
                        help="stored at this time or before; default the latest")
    parser.add_argument("-m", "--maxNum", type=int, default=64, metavar="N", help="at most so many; default 64")
    parser.add_argument("-p", "--keyType", choices=("K", "T"), default="K",
                        help="T: the key is a tag, which some Java brokers have an index of; default K")
    parser.add_argument("-l", "--lastKey", metavar="INDEXKEY",
                        help="go on behind this one, of an earlier answer; for the same Java brokers")
    _cluster_argument(parser)


_KEY_ROW: Final = "{:<50} {:>4} {:>40} {:<200}"
HOUR_MS: Final = 3_600_000


@command("queryMsgByKey", _key_arguments, by_route=True)
async def query_by_key(admin: Admin, options: argparse.Namespace) -> Said:
    """where messages with a key are"""
    found = await by_key(admin, QueryMessageRequest(
        options.topic, options.msgKey, options.maxNum, options.beginTimestamp, options.endTimestamp, options.keyType,
        options.lastKey), options.cluster)
    rows = [(each.message_id, each.record.message.queue_id, each.record.queue_offset, "@".join(map(str, (
        each.record.store_time_ms // HOUR_MS * HOUR_MS, options.topic, options.keyType, options.msgKey,
        each.message_id, each.record.offset)))) for each in found]
    return Said(
        [_KEY_ROW.format("#Message ID", "#QID", "#Offset", "#IndexKey"), *(_KEY_ROW.format(*row) for row in rows)],
        [{"msgId": message_id, "queueId": queue_id, "queueOffset": offset, "indexKey": index_key}
         for message_id, queue_id, offset, index_key in rows])


def _unique_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="of which topic")
    parser.add_argument("-i", "--msgId", required=True, metavar="ID", help="the id that its sender gave it")
    _client_arguments(parser)
    parser.add_argument("-a", "--showAll", action="store_true", help="all copies, 32 at most; default the first")
    parser.add_argument("-s", "--startTime", type=int, default=0, metavar="MS", help="stored then or later")
    parser.add_argument("-e", "--endTime", type=int, default=FOREVER, metavar="MS", help="stored then or before")
    _cluster_argument(parser)


@command("queryMsgByUniqueKey", _unique_arguments, by_route=True)
async def query_by_unique_key(admin: Admin, options: argparse.Namespace) -> Said:
    """show a message by the id that its sender gave it, and which consumer groups have had it"""
    found = await by_key(admin, QueryMessageRequest(
        options.topic, options.msgId, UNIQUE_MOST, options.startTime, options.endTime, unique=True), options.cluster)
    found.sort(key=lambda each: each.record.store_time_ms)
    if options.consumerGroup and options.clientId:
        return await _push(admin, options, found[0])
    lines: list[str] = []
    data = []
    for number, stored in enumerate(found if options.showAll else found[:1]):
        path, tracks = _leave_body(stored, f"_{number}" if number else ""), await _tracks(admin, stored)
        lines += [*_lines(stored, path), "", "", "".join(map(str, tracks)) or "WARN: No Consumer"]
        data.append(_data(stored, path, tracks))
    return Said(lines, data)
