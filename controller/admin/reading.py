"""Commands that read queues: messages one by one, entries of consume queues, and what traces say of a message.

They pull as a consumer that is in no group's table does, and move no group's offset. Source:
``PrintMessageSubCommand``, ``PrintMessageByQueueCommand``, ``ConsumeMessageCommand``, ``QueryMsgByOffsetSubCommand``,
``QueryConsumeQueueCommand`` and ``QueryMsgTraceByIdSubCommand`` of RocketMQ.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

import attrs

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, command, number, streaming, text
from controller.admin.consumers import parse_time
from controller.admin.finding import in_java, local_time, whom, yes
from controller.admin.lookups import by_key, data_of, shown
from controller.admin.messages import TRACE_TOPIC
from controller.admin.showing import message_words, queue_words
from controller.admin.stored import Stored, stored_of
from remoting.address import join_address
from remoting.bodies.consumers import MessageQueue
from remoting.bodies.namesrv import TopicRouteData
from remoting.bodies.queries import QueryConsumeQueueResponseBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import BodyError, ResponseError
from remoting.headers.pulling import (
    SUBSCRIPTION,
    OffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueueRequest,
    SearchOffsetRequest,
)
from remoting.headers.queries import QueryConsumeQueueRequest, QueryMessageRequest
from remoting.record import decode_all, unpacked_host

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
ALL: Final = "*"
BATCH: Final = 32
READ: Final = 4
FOREVER: Final = 2**63 - 1


# --- pulling -------------------------------------------------------------------------------------------------


@attrs.frozen
class Queue:
    """One queue and who has it."""

    name: MessageQueue
    address: str


STATUSES: Final[dict[int, str]] = {
    ResponseCode.SUCCESS: "FOUND", ResponseCode.PULL_NOT_FOUND: "NO_NEW_MSG",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "NO_MATCHED_MSG", ResponseCode.PULL_OFFSET_MOVED: "OFFSET_ILLEGAL"}
"""Names of Java's ``PullStatus`` by response code."""


@attrs.frozen
class Pulled:
    """The result of one pull. ``following`` is the offset to go on from."""

    status: str
    following: int
    messages: Sequence[Stored] = ()


async def queues_of(admin: Admin, topic: str, routed: str | None = None) -> list[Queue]:
    """Return the queues that can be read at the brokers with topic ``routed`` (a lite topic is where its parent is)."""
    route = await admin.route(routed or topic)
    addresses = _addresses(route)
    return [Queue(MessageQueue(topic, data.broker_name, queue_id), addresses[data.broker_name])
            for data in sorted(route.queue_datas, key=lambda each: each.broker_name)
            if data.perm & READ and data.broker_name in addresses for queue_id in range(data.read_queue_nums)]


async def queue_at(admin: Admin, topic: str, group: str, queue_id: int, routed: str | None = None) -> Queue:
    """One queue of one broker group. Raises ``AdminError``."""
    addresses = _addresses(await admin.route(routed or topic))
    if group not in addresses:
        raise AdminError(f"no broker group {group} has topic {topic}; {', '.join(sorted(addresses)) or 'none'} has")
    return Queue(MessageQueue(topic, group, queue_id), addresses[group])


def _addresses(route: TopicRouteData) -> dict[str, str]:
    return {group.broker_name: whom(group) for group in route.broker_datas if group.broker_addrs}


async def bounds(admin: Admin, queue: Queue, begin: str | None, end: str | None) -> tuple[int, int]:
    """The first offset and the one behind the last: of the queue, or of two times."""
    async def asked(code: int, since: str | None) -> int:
        where = queue.name
        header = (QueueRequest(where.topic, where.queue_id) if since is None else
                  SearchOffsetRequest(where.topic, where.queue_id, parse_time(since)))
        code = code if since is None else RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return OffsetResponse.from_ext((await admin.ask(queue.address, code, header)).ext).offset

    return await asked(RequestCode.GET_MIN_OFFSET, begin), await asked(RequestCode.GET_MAX_OFFSET, end)


async def pull(
    admin: Admin, queue: Queue, offset: int, most: int = BATCH, tags: str = ALL, group: str = TOOLS_GROUP,
) -> Pulled:
    """Pull at most ``most`` messages from an offset on. Raises ``RemotingError``."""
    header = PullMessageRequest(
        group, queue.name.topic, queue.name.queue_id, offset, most, SUBSCRIPTION, subscription=tags,
        expression_type="TAG")
    answer = await admin.client.call(queue.address, request(RequestCode.PULL_MESSAGE, header))
    status = STATUSES.get(answer.code)
    if status is None:
        raise ResponseError(answer.code, answer.remark, queue.address)
    found = PullMessageResponse.from_ext(answer.ext)
    wanted = {tag.strip() for tag in tags.split("||")} - {""}
    more = {"MIN_OFFSET": str(found.min_offset), "MAX_OFFSET": str(found.max_offset)}  # Java's client adds these
    messages = []
    for record in decode_all(answer.body) if status == "FOUND" else ():
        stored = stored_of(record)
        if not wanted or wanted == {ALL} or stored.properties.get("TAGS") in wanted:  # brokers compare hashes
            messages.append(attrs.evolve(stored, properties=stored.properties | more))
    if status == "FOUND" and not messages:
        status = "NO_MATCHED_MSG"
    return Pulled(status, found.next_begin_offset, messages)


async def batches(
    admin: Admin, queue: Queue, begin: int, end: int, tags: str = ALL, group: str = TOOLS_GROUP,
) -> AsyncGenerator[Pulled, None]:
    """All from ``begin`` until before ``end``, or until there is no more."""
    offset = begin
    while offset < end:
        pulled = await pull(admin, queue, offset, min(BATCH, end - offset), tags, group)
        inside = [stored for stored in pulled.messages if stored.record.queue_offset < end]
        yield attrs.evolve(pulled, messages=inside)  # a broker with a filter reads beyond what was asked for
        if pulled.status not in ("FOUND", "NO_MATCHED_MSG") or pulled.following <= offset:
            return
        offset = pulled.following


def _line(stored: Stored, broker: str, body: str) -> str:
    return f"MSGID: {stored.message_id} {message_words(stored, broker)} BODY: {body}"


def _ended(where: str, pulled: Pulled) -> str:
    ended = "no matched msg" if pulled.status == "NO_MATCHED_MSG" else "print msg finished"
    return f"{where} {ended}. status={pulled.status}, offset={pulled.following}"


def _plain(stored: Stored, broker: str, body: str | None) -> dict[str, Any]:
    data = data_of(stored) | {"brokerName": broker, "body": body}
    return {key: value for key, value in data.items() if value is not None}


# --- printing ------------------------------------------------------------------------------------------------


def _span_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-t --topic", "which topic", required=True)
    text(parser, "-c --charsetName", "the encoding of bodies; default UTF-8", metavar="CHARSET", default="UTF-8")
    text(parser, "-s --subExpression", "tags, with || between; default all", metavar="TAGS", default=ALL)
    for flags, about in (("-b --beginTimestamp", "stored at this time or later"),
                         ("-e --endTimestamp", "stored before this time")):
        text(parser, flags, f"{about}: milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS", metavar="TIME")


def _print_arguments(parser: argparse.ArgumentParser) -> None:
    _span_arguments(parser)
    parser.add_argument("-d", "--printBody", type=yes, default=True, metavar="true", help="with bodies; default true")
    text(parser, "-l --lmqParentTopic", "where the topic is, if the name server does not know it")


@streaming("printMsg", _print_arguments, by_route=True)
async def print_messages(admin: Admin, options: argparse.Namespace) -> AsyncGenerator[Said, None]:
    """the messages of a topic, queue by queue"""
    for queue in await queues_of(admin, options.topic, options.lmqParentTopic):
        begin, end = await bounds(admin, queue, options.beginTimestamp, options.endTimestamp)
        where = queue_words(queue.name)
        yield Said([f"minOffset={begin}, maxOffset={end}, {where}"], {
            "queue": queue.name.to_plain(), "minOffset": begin, "maxOffset": end})
        async with aclosing(batches(admin, queue, begin, end, options.subExpression)) as found:
            async for pulled in found:
                for stored in pulled.messages:
                    body = stored.text(options.charsetName) if options.printBody else None
                    yield Said([_line(stored, queue.name.broker_name, "NOT PRINT BODY" if body is None else body)],
                               _plain(stored, queue.name.broker_name, body))
                if pulled.status != "FOUND":
                    yield Said([_ended(where, pulled)],
                               {"queue": queue.name.to_plain(), "status": pulled.status, "offset": pulled.following})
        yield Said(["-" * 56], None)


def _queue_arguments(parser: argparse.ArgumentParser) -> None:
    _span_arguments(parser)
    text(parser, "-a --brokerName", "of which broker group", required=True)
    number(parser, "-i --queueId", "which queue", required=True)
    for flags, about in ((("-p", "--print msg"), "print messages"), (("-d", "--printBody"), "with bodies"),
                         (("-f", "--calculate"), "count by tag")):
        parser.add_argument(*flags, dest=flags[1].removeprefix("--").replace(" ", "_"), type=yes, default=False,
                            metavar="true", help=f"{about}; default false")


@streaming("printMsgByQueue", _queue_arguments, by_route=True)
async def print_queue(admin: Admin, options: argparse.Namespace) -> AsyncGenerator[Said, None]:
    """the messages of one queue, or how many there are of each tag"""
    queue = await queue_at(admin, options.topic, options.brokerName, options.queueId)
    begin, end = await bounds(admin, queue, options.beginTimestamp, options.endTimestamp)
    counts: Counter[str] = Counter()
    async with aclosing(batches(admin, queue, begin, end, options.subExpression)) as found:
        async for pulled in found:
            for stored in pulled.messages:
                counts.update(tag for tag in (stored.properties.get("TAGS", "").strip(),) if tag)
                if options.print_msg:
                    body = stored.text(options.charsetName) if options.printBody else None
                    yield Said([_line(stored, options.brokerName, "NOT PRINT BODY" if body is None else body)],
                               _plain(stored, options.brokerName, body))
    if options.calculate:
        yield Said([f"Tag: {tag:<30} Count: {count}" for tag, count in counts.most_common()], {"tags": dict(counts)})


# --- consuming -----------------------------------------------------------------------------------------------


def _consume_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-t --topic", "which topic", required=True)
    text(parser, "-b --brokerName", "at this broker group")
    number(parser, "-i --queueId", "this queue; with -b")
    number(parser, "-o --offset", "from this offset on; with -i")
    text(parser, "-g --consumerGroup", f"as this group; its offsets stay; default {TOOLS_GROUP}", default=TOOLS_GROUP)
    for flags, about in (("-s --beginTimestamp", "stored at this time or later"),
                         ("-e --endTimestamp", "stored before this time")):
        text(parser, flags, f"{about}: milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS", metavar="TIME")
    number(parser, "-c --MessageNumber", "so many at most", default=128, least=1)


@streaming("consumeMessage", _consume_arguments, by_route=True)
async def consume(admin: Admin, options: argparse.Namespace) -> AsyncGenerator[Said, None]:
    """the oldest messages of a topic, or of one queue"""
    _check_span(options)
    queues = await queues_of(admin, options.topic) if options.queueId is None else [
        await queue_at(admin, options.topic, options.brokerName, options.queueId)]
    left = options.MessageNumber
    for queue in queues:
        if options.brokerName not in (None, queue.name.broker_name) or not left:
            continue
        begin, end = await bounds(admin, queue, options.beginTimestamp, options.endTimestamp)
        begin = max(begin, options.offset or 0)
        where = queue_words(queue.name)
        if options.offset is not None and options.offset > end:
            yield Said([f"{where} no matched msg, offset={options.offset}"], None)
            return
        if end - begin > left:
            yield Said([f"The older {left} message of the {queue.name.queue_id} queue will be provided"], None)
            end = begin + left
        elif options.endTimestamp is None and end - begin < left:
            end += 1  # the original's last answer says where the queue ends
        async with aclosing(batches(admin, queue, begin, end, group=options.consumerGroup)) as found:
            async for pulled in found:
                left -= len(pulled.messages)
                yield Said(["Consume ok" if pulled.messages else _ended(where, pulled)], None)
                for stored in pulled.messages:
                    body = stored.text("UTF-8")
                    yield Said([_line(stored, queue.name.broker_name, body)],
                               _plain(stored, queue.name.broker_name, body))


def _check_span(options: argparse.Namespace) -> None:
    """Raises ``AdminError``, in the original's words."""
    if options.queueId is not None and options.brokerName is None:
        raise AdminError("Please set the brokerName before queueId!")
    if options.offset is not None and options.queueId is None:
        raise AdminError("Please set queueId before offset!")
    now_ms = time.time_ns() // 1_000_000
    begin, end = (None if each is None else parse_time(each)
                  for each in (options.beginTimestamp, options.endTimestamp))
    for name, each in (("beginTimestamp", begin), ("endTimestamp", end)):
        if each is not None and each > now_ms:
            raise AdminError(f"Please set the {name} before now!")
    if begin is not None and end is not None and begin > end:
        raise AdminError("Please make sure that the beginTimestamp is less than or equal to the endTimestamp")


# --- one place -----------------------------------------------------------------------------------------------


def _offset_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-t --topic", "which topic", required=True)
    text(parser, "-b --brokerName", "of which broker group", required=True)
    number(parser, "-i --queueId", "which queue", required=True)
    number(parser, "-o --offset", "which place in it", required=True)
    text(parser, "-f --bodyFormat", "show the body too, as text of this encoding", metavar="CHARSET")
    text(parser, "-r --routeTopic", "where the topic is, if the name server does not know it")


@command("queryMsgByOffset", _offset_arguments, by_route=True)
async def by_offset(admin: Admin, options: argparse.Namespace) -> Said:
    """the message at a place of a queue, and which consumer groups have had it"""
    queue = await queue_at(admin, options.topic, options.brokerName, options.queueId, options.routeTopic)
    pulled = await pull(admin, queue, options.offset, 1)
    for stored in pulled.messages:
        if stored.record.queue_offset == options.offset:
            return await shown(admin, stored, options.bodyFormat)
    raise AdminError(f"{queue_words(queue.name)} has no message at {options.offset}: {pulled.status}")


def _entries_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-t --topic", "which topic", required=True)
    number(parser, "-q --queue", "which queue", required=True)
    number(parser, "-i --index", "from this offset on", required=True)
    number(parser, "-c --count", "so many", default=10, least=1)
    text(parser, "-b --broker", "at this broker; default a master that has the topic", metavar="HOST:PORT")
    text(parser, "-g --consumer", "with what this group subscribes to")


_RULE: Final = "=" * 38


@command("queryCq", _entries_arguments)
async def entries(admin: Admin, options: argparse.Namespace) -> Said:
    """the entries of a consume queue"""
    address = options.broker
    if not address:
        if not admin.namesrv:
            raise AdminError("-n is needed: the address of a name server, or $NAMESRV_ADDR")
        addresses = _addresses(await admin.route(options.topic))
        if not addresses:
            raise AdminError("No topic route data!")
        address = addresses[min(addresses)]
    answer = await admin.ask(address, RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequest(
        options.topic, options.queue, options.index, options.count, options.consumer))
    found = QueryConsumeQueueResponseBody.from_json(answer.body)
    lines: list[str] = []
    if found.subscription_data is not None:
        lines += ["Subscription data: ", *json.dumps(
            found.subscription_data.to_plain(), indent="\t", separators=(",", ":")).splitlines(), _RULE]
    if found.filter_data is not None:
        lines += ["Filter data: ", found.filter_data, _RULE]
    lines += ["Queue data: ", f"max: {found.max_queue_index}, min: {found.min_queue_index}", _RULE]
    for index, each in enumerate(found.queue_data, options.index):
        lines += [f"idx: {index}",
                  f"ConsumeQueueData{{physicOffset={each.physic_offset}, physicSize={each.physic_size}, "
                  f"tagsCode={each.tags_code}, extendDataJson='null', bitMap='null', eval={in_java(each.eval_)}, "
                  f"msg='{in_java(each.msg)}'}}", _RULE]
    return Said(lines, found.to_plain())


# --- traces --------------------------------------------------------------------------------------------------


def _trace_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-i --msgId", "the id that its sender gave it", required=True, metavar="ID")
    text(parser, "-t --traceTopic", f"where traces are; default {TRACE_TOPIC}", default=TRACE_TOPIC)
    number(parser, "-b --beginTimestamp", "stored at this time or later", default=0, metavar="MS")
    number(parser, "-e --endTimestamp", "stored at this time or before", default=FOREVER, metavar="MS")
    number(parser, "-c --maxNum", "so many traces at most", default=64, least=1)


@attrs.frozen
class Traced:
    """One event in the life of a message. ``time_ms`` is None where the event has none of its own."""

    kind: str
    group: str
    host: str
    time_ms: int
    cost_ms: int
    ok: bool


_PARTS: Final = {"Pub": 12, "SubAfter": 6}
"""So many fields has each kind at least."""


def traces_in(stored: Stored, message_id: str) -> list[Traced]:
    """Return what a trace message tells of one message; its fields are as ``TraceDataEncoder`` writes them."""
    host = join_address(*unpacked_host(stored.record.message.born_host)).rpartition(":")[0]
    found: list[Traced] = []
    for line in stored.text("UTF-8").split("\x02"):
        fields = line.split("\x01")
        kind = fields[0]
        if len(fields) < _PARTS.get(kind, len(fields) + 1):
            continue
        if kind == "Pub" and fields[5] == message_id:
            ok = fields[13] if len(fields) > 13 else fields[12] if len(fields) == 13 else "true"
            found.append(Traced(kind, fields[3], host, int(fields[1]), int(fields[10]), ok == "true"))
        elif kind == "SubAfter" and fields[2] == message_id:
            # Events of clients before 4.4.1 have neither time nor group.
            at_ms, group = (int(fields[7]), fields[8]) if len(fields) >= 9 else (0, "")
            found.append(Traced(kind, group, host, at_ms, int(fields[3]), fields[4] == "true"))
    return found


_TRACE: Final = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}"


@command("queryMsgTraceById", _trace_arguments, by_route=True)
async def traces(admin: Admin, options: argparse.Namespace) -> Said:
    """who sent a message and who consumed it, when and how long it took, as clients traced it"""
    header = QueryMessageRequest(
        options.traceTopic, options.msgId, options.maxNum, options.beginTimestamp, options.endTimestamp)
    try:
        found = [each for stored in await by_key(admin, header) for each in traces_in(stored, options.msgId)]
    except ValueError as error:
        raise BodyError(f"a trace of {options.traceTopic} is damaged: {error}") from None
    lines: list[str] = []
    for kind, heading in (("Pub", ("#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status")),
                          ("SubAfter", ("#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes",
                                        "#Status"))):
        events = [each for each in found if each.kind == kind]
        for group in sorted({each.group for each in events}):
            rows = [_TRACE.format(
                kind[:3], each.group, each.host, local_time(each.time_ms, millis=False), f"{each.cost_ms}ms",
                "success" if each.ok else "failed") for each in events if each.group == group]
            lines += [_TRACE.format(*heading), *rows, ""]
    return Said(lines, [attrs.asdict(each) for each in found])
