"""Commands that measure how long sends take. Each broker group has a topic of its own name, which takes them.

Source: ``SendMsgStatusCommand``, ``CheckMsgSendRTCommand`` and ``CLusterSendMsgRTCommand`` of RocketMQ.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import attrs
import trio

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, number, streaming, text
from controller.admin.finding import yes
from controller.admin.messages import Sent, send
from controller.admin.showing import queue_words
from remoting.bodies.consumers import MessageQueue
from remoting.errors import RemotingError


@attrs.frozen
class Probe:
    """One send, with the time that it took."""

    sent: Sent | None
    took_ms: float
    failure: str | None = None
    message_id: str = ""


async def probe(admin: Admin, topic: str, size: int, broker: str | None = None, queue_id: int | None = None) -> Probe:
    """Send a message of so many bytes and take the time."""
    message_id = secrets.token_hex(16).upper()
    began = trio.current_time()
    try:
        sent = await send(admin, topic, b"a" * size, {"UNIQ_KEY": message_id, "WAIT": "true"}, broker, queue_id)
    except (AdminError, RemotingError) as error:
        return Probe(None, (trio.current_time() - began) * 1e3, str(error))
    return Probe(sent, (trio.current_time() - began) * 1e3, message_id=message_id)


def _average(probes: list[Probe]) -> float:
    """Without the first, which finds the way."""
    return sum(each.took_ms for each in probes[1:]) / max(1, len(probes) - 1)


# --- one broker group, one topic -----------------------------------------------------------------------------


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-b --brokerName", "which broker group: its topic of that name is sent to", required=True)
    number(parser, "-s --messageSize", "bytes of each message", default=128, least=1, metavar="BYTES")
    number(parser, "-c --count", "how many", default=50)


@streaming("sendMsgStatus", _status_arguments, by_route=True)
async def send_status(admin: Admin, options: argparse.Namespace) -> AsyncGenerator[Said, None]:
    """send messages to a broker group, and show what came of each"""
    topic = options.brokerName
    await send(admin, topic, b"a" * 16, {"WAIT": "true"})  # the first send only connects: do not time it
    for _ in range(options.count):
        found = await probe(admin, topic, options.messageSize)
        if found.sent is None:
            raise AdminError(found.failure or "")
        sent = found.sent
        queue = queue_words(MessageQueue(topic, sent.broker, sent.queue_id))
        yield Said([f"rt={found.took_ms:.0f}ms, SendResult=SendResult [sendStatus={sent.status}, "
                    f"msgId={found.message_id}, offsetMsgId={sent.offset_id}, messageQueue={queue}, "
                    f"queueOffset={sent.queue_offset}, recallHandle=null]"],
                   {"rtMs": found.took_ms, "msgId": found.message_id, **attrs.asdict(sent)})


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-t --topic", "which topic", required=True)
    number(parser, "-a --amount", "how many messages", default=100, least=1)
    number(parser, "-s --size", "bytes of each", default=128, least=1, metavar="BYTES")


_CHECKED: Final = "{:<32}  {:<4}  {:<20}    {}"


@streaming("checkMsgSendRT", _check_arguments, by_route=True)
async def check_sends(admin: Admin, options: argparse.Namespace) -> AsyncGenerator[Said, None]:
    """send messages to the queues of a topic in turn, and show how long each took"""
    yield Said([_CHECKED.format("#Broker Name", "#QID", "#Send Result", "#RT")], None)
    queues = [(data.broker_name, queue_id) for data in (await admin.route(options.topic)).queue_datas
              for queue_id in range(data.write_queue_nums)]
    if not queues:
        raise AdminError(f"nobody takes messages of topic {options.topic}")
    probes: list[Probe] = []
    for turn in range(options.amount):
        broker, queue_id = queues[turn % len(queues)]
        found = await probe(admin, options.topic, options.size, broker, queue_id)
        probes.append(found)
        done = found.sent is not None
        yield Said([_CHECKED.format(broker, queue_id, str(done).lower(), f"{found.took_ms:.0f}")],
                   {"brokerName": broker, "queueId": queue_id, "ok": done, "rtMs": found.took_ms,
                    "error": found.failure})
    yield Said([f"Avg RT: {_average(probes):.2f}"], {"averageMs": _average(probes)})


# --- clusters, again and again -------------------------------------------------------------------------------


def _cluster_arguments(parser: argparse.ArgumentParser) -> None:
    number(parser, "-a --amount", "how many messages", default=100, least=1)
    number(parser, "-s --size", "bytes of each", default=128, least=1, metavar="BYTES")
    text(parser, "-c --cluster", "which cluster; default all")
    parser.add_argument("-p", "--print log", dest="log", type=yes, default=False, metavar="true",
                        help="lines for a log, with the time in China; default false")
    parser.add_argument("-m", "--machine room", dest="room", default="noname", metavar="NAME",
                        help="with -p: a name on each line; default noname")
    number(parser, "-i --interval", "ask again after so long, until interrupted", default=10, least=1,
           metavar="SECONDS", dest="pause")


_CLUSTER: Final = "{:<24}  {:<24}  {:<8}  {:<16}  {:<16}"
CHINA: Final = timezone(timedelta(hours=8))


@streaming("clusterRT", _cluster_arguments, by_route=True)
async def cluster_rt(admin: Admin, options: argparse.Namespace) -> AsyncGenerator[Said, None]:
    """how long sends to each broker group take, again and again"""
    if not options.log:
        yield Said([f"{'#Cluster Name':<24}  {'#Broker Name':<24}  {'#RT':<4}  {'#successCount':<8}  "
                    f"{'#failCount':<8}"], None)
    while True:
        clusters = (await admin.clusters()).cluster_addr_table
        if options.cluster not in (None, *clusters):
            raise AdminError(f"cluster [{options.cluster}] not exist")
        for cluster in [options.cluster] if options.cluster else sorted(clusters):
            for group in sorted(clusters[cluster]):
                probes = [await probe(admin, group, options.size) for _ in range(options.amount)]
                yield _told(cluster, group, probes, options)
        await trio.sleep(options.pause)


def _told(cluster: str, group: str, probes: list[Probe], options: argparse.Namespace) -> Said:
    average, failed = _average(probes), sum(each.sent is None for each in probes)
    data: dict[str, Any] = {"cluster": cluster, "brokerName": group, "averageMs": average,
                            "successCount": len(probes) - failed, "failCount": failed}
    if options.log:
        now = datetime.now(UTC).astimezone(CHINA).strftime("%Y-%m-%d %H:%M:%S")
        return Said([f"{now}|{options.room}|{cluster}|{group}|{int(average + 0.5)}"], data)
    return Said([_CLUSTER.format(cluster, group, f"{average:.2f}", len(probes) - failed, failed)], data)
