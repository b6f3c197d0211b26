"""Commands about messages: to send one. Knows routes and one message, and nothing of how clients share out their work.

Source: ``SendMessageCommand`` of RocketMQ.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from typing import Final

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, command
from controller.admin.topics import AUTO_CREATE_TOPIC
from remoting.bodies.namesrv import TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import ResponseError
from remoting.headers.sending import SendMessageRequestV2, SendMessageResponse

WRITE: Final = 2
MASTER_ID: Final = 0
NEW_TOPIC_QUEUES: Final = 4
"""``defaultTopicQueueNums`` of a producer."""
STATUSES: Final = {
    ResponseCode.SUCCESS: "SEND_OK", ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE"}
"""What is stored; by ``SendStatus``."""


def _send_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="to which topic")
    parser.add_argument("-p", "--body", required=True, metavar="TEXT", help="the message, sent as UTF-8")
    parser.add_argument("-k", "--key", metavar="KEYS", help="keys to find it by, with blanks between")
    parser.add_argument("-c", "--tags", metavar="TAG", help="its tag")
    parser.add_argument("-b", "--broker", metavar="NAME", help="to this broker group")
    parser.add_argument("-i", "--qid", type=int, metavar="N", help="to this queue; with -b")


_ROW = "{:<32}  {:<4}  {:<20}    {}"


@command("sendMessage", _send_arguments)
async def send_message(admin: Admin, options: argparse.Namespace) -> Said:
    """send one message"""
    if options.qid is not None and options.broker is None:
        raise AdminError("Broker name must be set if the queue is chosen!")
    queues_max = sys.maxsize
    try:
        route = await admin.route(options.topic)
    except ResponseError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        route = await admin.route(AUTO_CREATE_TOPIC)  # a broker makes it, if that is allowed
        queues_max = NEW_TOPIC_QUEUES
    name, address, queues = _choose(route, options.broker, options.topic)
    queues = min(queues, queues_max)
    queue_id = secrets.randbelow(queues) if options.qid is None else options.qid
    uniq_key = secrets.token_hex(16).upper()
    properties = {"KEYS": options.key, "UNIQ_KEY": uniq_key, "WAIT": "true", "TAGS": options.tags}
    header = SendMessageRequestV2(
        topic=options.topic, queue_id=queue_id, producer_group="TOOLS_PRODUCER", default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=NEW_TOPIC_QUEUES, born_timestamp=time.time_ns() // 1_000_000, broker_name=name,
        properties="".join(f"{key}\x01{value}\x02" for key, value in properties.items() if value))
    answer = await admin.client.call(address, request(RequestCode.SEND_MESSAGE_V2, header, options.body.encode()))
    if answer.code not in STATUSES:
        raise ResponseError(answer.code, answer.remark, address)
    status, stored = STATUSES[ResponseCode(answer.code)], SendMessageResponse.from_ext(answer.ext)
    return Said(
        [_ROW.format("#Broker Name", "#QID", "#Send Result", "#MsgId"),
         _ROW.format(name, stored.queue_id, status, uniq_key)],
        {"brokerName": name, "queueId": stored.queue_id, "status": status, "msgId": uniq_key,
         "offsetMsgId": stored.msg_id, "queueOffset": stored.queue_offset})


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
