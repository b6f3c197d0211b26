"""Sends of 128-byte messages within one process: the handler, the put, the store on disk, and what frames cost on top.

    python -m benchmarks.broker_send [--count 200000] [--window 64]

``window`` requests arrive in one turn of the loop, as from so many producers. One thread; the disk's only syncs.
Each line is one part, with what was counted; its CPU time says more on a machine that does other things too.
It measures; it judges nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from random import Random
from typing import cast

import attrs
import trio

from benchmarks.alone import Alone
from broker.ha.acks import QuorumConfig
from broker.journal import Journal
from broker.puts import Puts
from broker.schedule.levels import DelayLevels
from broker.sending.config import SendingConfig
from broker.sending.sending import Sending
from broker.store.directory import DirectoryFiles
from broker.store.store import MessageStore, StoreConfig
from broker.store.tables import SubscriptionGroup
from broker.tablefile import TableFile
from broker.topics import TopicsConfig, TopicTable
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import RequestCode
from remoting.command import RESPONSE, Command, request
from remoting.connection import Connection
from remoting.frame import FrameReader, encode
from remoting.headers.sending import SendMessageRequestV2
from remoting.record import encode_batch, encode_properties, packed_host

PROPERTIES = encode_properties({
    "KEYS": "order-1234", "UNIQ_KEY": "7F0000010B2C18B4AAC2355A1D8C0001", "WAIT": "true", "TAGS": "TagA"}).decode()


class Nobody:
    def find(self, name: str) -> SubscriptionGroup | None:
        return None

    def held_by_group(self, group: str) -> bool:
        return False


@attrs.define
class Peer:
    """What the handler needs of a connection."""

    framed: bool = False
    peer: str = "127.0.0.1:40000"
    answers: int = 0
    wrong: int = 0

    def reply(self, to: Command, answer: Command) -> None:
        self.answers += 1
        self.wrong += answer.code != 0
        answer.opaque, answer.flag, answer.encoding = to.opaque, answer.flag | RESPONSE, to.encoding
        if self.framed:
            encode(answer)


def send_request(batch: int = 0, level: int = 0) -> Command:
    header = SendMessageRequestV2(
        topic="Orders", queue_id=1, producer_group="p", default_topic="TBW102", born_timestamp=1_700_000_000_000,
        properties=PROPERTIES + f"DELAY\x01{level}\x02" * bool(level), batch=bool(batch),
        reconsume_times=0, unit_mode=False)
    if batch:
        return request(RequestCode.SEND_BATCH_MESSAGE, header,
                       encode_batch([(0, b"." * 128, PROPERTIES.encode())] * batch))
    return request(RequestCode.SEND_MESSAGE_V2, header, b"." * 128)


async def measured(root: str, name: str, count: int, window: int, *, index: bool = True, framed: bool = False,
                   batch: int = 0, level: int = 0) -> None:
    files = DirectoryFiles(root)
    journal = Journal(MessageStore(files, StoreConfig(log_file_bytes=256 << 20, index=index)))
    journal.open()
    puts = Puts(journal, QuorumConfig())
    topics = TopicTable(TopicsConfig(), lambda: 0)
    sending = Sending(SendingConfig(), topics, TableFile(files, topics.snapshot), Nobody(), Nobody(), puts,
                      packed_host("127.0.0.1", 10911), Random(1), lambda: True, of_parts=[DelayLevels().rule])
    topics.update([TopicConfig("Orders", 4, 4)])
    handler = sending.handlers()[RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2]
    handle = cast("Callable[[Connection, Command], Command | None]", handler)
    peer = Peer(framed)
    frame = encode(send_request(batch, level)) * window
    requests = [send_request(batch, level)] * window
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run)
        puts.serve(Alone(journal))
        began, began_cpu = time.perf_counter(), time.thread_time()
        while peer.answers < count:
            for one in FrameReader().feed(frame) if framed else requests:
                refused = handle(cast(Connection, peer), one)
                assert refused is None, refused
            wanted = peer.answers + window
            while peer.answers < wanted and peer.answers < count:
                await trio.lowlevel.checkpoint()
        took, took_cpu = time.perf_counter() - began, time.thread_time() - began_cpu
        nursery.cancel_scope.cancel()
    await journal.close()
    assert not peer.wrong and sending.counters.messages >= count * max(1, batch)
    done = peer.answers * max(1, batch)
    print(f"{name:<56} {done / took:>10,.0f}/s  {took / done * 1e6:6.2f} µs each, {took_cpu / done * 1e6:6.2f} of CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--window", type=int, default=64)
    asked = parser.parse_args()
    for name, options in (
        ("handler, put, store, dispatch; no key index", {"index": False}),
        ("handler, put, store, dispatch and key index", {}),
        ("the same, with frames decoded and encoded", {"framed": True}),
        ("with a delay level: by the rules, and no key index", {"index": False, "level": 3}),
        ("client batches of 32, each message", {"batch": 32}),
    ):
        count = asked.count // 32 if "batch" in options else asked.count
        with tempfile.TemporaryDirectory() as root:
            trio.run(lambda: measured(root, name, count, asked.window, **options))  # noqa: B023


if __name__ == "__main__":
    main()
