"""Commands about messages: to send one. Knows routes and one message, and nothing of how clients share out their work.

Source: ``SendMessageCommand`` of RocketMQ.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Mapping
from typing import Final

import attrs

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, command
from controller.admin.finding import yes
from controller.admin.topics import AUTO_CREATE_TOPIC
from remoting.bodies.namesrv import TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import RemotingError, ResponseError
from remoting.headers.sending import SendMessageRequestV2, SendMessageResponse
from remoting.record import encode_properties

WRITE: Final = 2
MASTER_ID: Final = 0
NEW_TOPIC_QUEUES: Final = 4
"""``defaultTopicQueueNums`` of a producer."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
NORMAL_MESSAGE: Final = 0
"""The place of ``Normal_Msg`` among Java's kinds of messages."""
STATUSES: Final = {
    ResponseCode.SUCCESS: "SEND_OK", ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE"}
"""Codes of answers to sends that stored the message, with their ``SendStatus``."""


def _send_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="to which topic")
    parser.add_argument("-p", "--body", required=True, metavar="TEXT", help="the message, sent as UTF-8")
    parser.add_argument("-k", "--key", metavar="KEYS", help="keys to find it by, with blanks between")
    parser.add_argument("-c", "--tags", metavar="TAG", help="its tag")
    parser.add_argument("-b", "--broker", metavar="NAME", help="to this broker group")
    parser.add_argument("-i", "--qid", type=int, metavar="N", help="to this queue; with -b")
    parser.add_argument("-m", "--msgTraceEnable", type=yes, default=False, metavar="true",
                        help="tell the trace topic RMQ_SYS_TRACE_TOPIC of it")


_ROW = "{:<32}  {:<4}  {:<20}    {}"


@command("sendMessage", _send_arguments, by_route=True)
async def send_message(admin: Admin, options: argparse.Namespace) -> Said:
    """send one message to a topic"""
    if options.qid is not None and options.broker is None:
        raise AdminError("Broker name must be set if the queue is chosen!")
    uniq_key = secrets.token_hex(16).upper()
    properties = {"KEYS": options.key, "UNIQ_KEY": uniq_key, "WAIT": "true", "TAGS": options.tags}
    body = options.body.encode()
    began_ms = _now_ms()
    sent = await send(admin, options.topic, body, properties, options.broker, options.qid)
    data = {"brokerName": sent.broker, "queueId": sent.queue_id, "status": sent.status, "msgId": uniq_key,
            "offsetMsgId": sent.offset_id, "queueOffset": sent.queue_offset}
    if options.msgTraceEnable and sent.traced:
        data["trace"] = await _trace(admin, options, sent, uniq_key, len(body), began_ms)
    return Said(
        [_ROW.format("#Broker Name", "#QID", "#Send Result", "#MsgId"),
         _ROW.format(sent.broker, sent.queue_id, sent.status, uniq_key)], data)


@attrs.frozen
class Sent:
    """Place of a message that was just stored."""

    broker: str
    address: str
    queue_id: int
    queue_offset: int
    offset_id: str
    status: str
    region: str
    traced: bool
    """The broker's traffic may be traced."""


async def send(
    admin: Admin, topic: str, body: bytes, properties: Mapping[str, str | None], broker: str | None = None,
    queue_id: int | None = None,
) -> Sent:
    """Send a message to a queue of any group, or to the one given. Raises ``AdminError``, ``RemotingError``."""
    queues_max = sys.maxsize
    try:
        route = await admin.route(topic)
    except ResponseError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        route = await admin.route(AUTO_CREATE_TOPIC)  # brokers may create the topic on the first send
        queues_max = NEW_TOPIC_QUEUES
    name, address, queues = _choose(route, broker, topic)
    header = SendMessageRequestV2(
        topic=topic, queue_id=secrets.randbelow(min(queues, queues_max)) if queue_id is None else queue_id,
        producer_group="TOOLS_PRODUCER", default_topic=AUTO_CREATE_TOPIC, default_topic_queue_nums=NEW_TOPIC_QUEUES,
        born_timestamp=_now_ms(), broker_name=name,
        properties=encode_properties({key: value for key, value in properties.items() if value}).decode())
    answer = await admin.client.call(address, request(RequestCode.SEND_MESSAGE_V2, header, body))
    if answer.code not in STATUSES:
        raise ResponseError(answer.code, answer.remark, address)
    stored = SendMessageResponse.from_ext(answer.ext)
    return Sent(name, address, stored.queue_id, stored.queue_offset, stored.msg_id, STATUSES[ResponseCode(answer.code)],
                answer.ext.get("MSG_REGION") or "DefaultRegion", answer.ext.get("TRACE_ON") != "false")


async def _trace(
    admin: Admin, options: argparse.Namespace, sent: Sent, uniq_key: str, body_bytes: int, began_ms: int,
) -> str:
    """Tell the trace topic of it, as a producer does; what came of that is told and fails nothing.

    Source: ``TraceDataEncoder`` and ``AsyncTraceDispatcher`` of RocketMQ.
    """
    now_ms = _now_ms()
    fields = ("Pub", now_ms, sent.region, "TOOLS_PRODUCER", options.topic, uniq_key, options.tags or "",
              options.key or "", sent.address, body_bytes, now_ms - began_ms, NORMAL_MESSAGE, sent.offset_id,
              str(sent.status == "SEND_OK").lower())
    keys = " ".join(filter(None, (uniq_key, options.key)))
    properties = {"KEYS": keys, "UNIQ_KEY": secrets.token_hex(16).upper(), "WAIT": "true"}
    try:
        return (await send(admin, TRACE_TOPIC, ("\x01".join(map(str, fields)) + "\x02").encode(), properties)).status
    except (AdminError, RemotingError) as error:
        return str(error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _choose(route: TopicRouteData, wanted: str | None, topic: str) -> tuple[str, str, int]:
    """Name, master's address and number of queues of a group that takes messages."""
    masters = {group.broker_name: group.broker_addrs[MASTER_ID] for group in route.broker_datas
               if MASTER_ID in group.broker_addrs}
    found = [(queue.broker_name, masters[queue.broker_name], queue.write_queue_nums) for queue in route.queue_datas
             if queue.perm & WRITE and queue.write_queue_nums > 0 and queue.broker_name in masters
             and wanted in (None, queue.broker_name)]
    if not found:
        raise AdminError(f"no master{f' of group {wanted}' if wanted else ''} takes messages of topic {topic}")
    return secrets.choice(found)
