"""Pulls in process: from a request to its answer, and to the bytes of the answer's frame; without a network.

    python -m benchmarks.broker_pull [--count 20000]

Messages of 128 bytes in a store on disk, 32 to a pull. Each line is one kind of pull. It measures; it judges nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import cast

import attrs
import trio

from broker.consumers import ClientsConfig, Consumers
from broker.filters.table import FilterKeys, Filters
from broker.groups import GroupsConfig, GroupTable
from broker.journal import Journal
from broker.offsets import OffsetsConfig, OffsetTable
from broker.pulling.checks import PullConfig
from broker.pulling.reading import ReadConfig
from broker.pulling.requests import Pulling
from broker.standing import Standing
from broker.store.directory import DirectoryFiles
from broker.store.store import MessageStore, StoreConfig
from broker.topics import TopicsConfig, TopicTable
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.frame import FrameReader, encode
from remoting.headers.pulling import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, PullMessageRequest
from remoting.record import Message, encode_properties

QUEUES = 8
A_PULL = 32


@attrs.define(eq=False)
class Peer:
    """As much of a connection as a pull that is held needs."""

    peer: str = "bench"
    closed: bool = False
    answers: int = 0

    def reply(self, to: Command, answer: Command) -> None:
        encode(answer)
        self.answers += 1


def message(number: int, topic: bytes, queue_id: int) -> Message:
    properties = encode_properties({
        "UNIQ_KEY": f"{number:032X}", "TAGS": "TagA" if number % 4 else "TagB", "WAIT": "true", "CLUSTER": "c"})
    return Message(topic, b"." * 128, queue_id, properties)


def filled(root: str, count: int) -> Journal:
    """``count`` messages in one queue of topic ``one``, and as many over the queues of topic ``many``."""
    store = opened(root)
    for number in range(count):
        store.writer.put(message(number, b"one", 0), number)
    for number in range(count):
        store.writer.put(message(number, b"many", number % QUEUES), number)
    return shown(store)


def opened(root: str) -> MessageStore:
    store = MessageStore(DirectoryFiles(root), StoreConfig(log_file_bytes=1 << 28, index=False))
    store.open()
    return store


def shown(store: MessageStore) -> Journal:
    """The journal of a store whose messages all are visible."""
    store.log.write()
    store.visible.advance()
    journal = Journal(store)
    journal.end = journal.confirm_offset = store.log.max_offset
    return journal


def parts(journal: Journal) -> Pulling:
    topics = TopicTable(TopicsConfig(broker_cluster_name="c", broker_name="b"), lambda: 0)
    topics.update([TopicConfig("one", QUEUES, QUEUES), TopicConfig("many", QUEUES, QUEUES)])
    return Pulling(
        PullConfig(), ReadConfig(), journal=journal, topics=topics, groups=GroupTable(GroupsConfig(), lambda: 0),
        offsets=OffsetTable(OffsetsConfig(), lambda: 0),
        filters=Filters(FilterKeys(enable_property_filter=True), lambda: 0), consumers=Consumers(ClientsConfig()),
        standing=Standing("c", "b", "127.0.0.1:10911"), now_ns=time.monotonic_ns)


def requests(topic: str, count: int, subscription: str = "*", pulls: int = 1 << 62) -> Iterator[Command]:
    """As a frame's reader gives them: each pull goes on where the one before it ended."""
    offset, queues = 0, QUEUES if topic == "many" else 1
    for number in range(pulls):
        header = PullMessageRequest(
            "group", topic, number % queues, offset, A_PULL, SUBSCRIPTION | SUSPEND | COMMIT_OFFSET, offset, 15_000,
            subscription, 1_700_000_000_000, "TAG")
        yield Command(RequestCode.PULL_MESSAGE, number, 0, header.to_ext())
        if number % queues == queues - 1:
            offset = (offset + A_PULL) % (count // queues - A_PULL)


def timed(name: str, asked: list[Command], work: Callable[[Command], int]) -> None:
    found, began = 0, time.perf_counter()
    for request in asked:
        found += work(request)
    took = time.perf_counter() - began
    print(f"{name:<62} {took / len(asked) * 1e6:8.1f} µs a pull  {found / took / 1e3:8,.0f} k messages/s")


async def held(journal: Journal, pulling: Pulling, rounds: int) -> None:
    """A consumer that waits at the end, a message, its answer, the next wait."""
    peer = Peer()
    connection = cast("Connection", peer)
    async with trio.open_nursery() as nursery:
        await nursery.start(pulling.run)
        began = time.perf_counter()
        for number in range(rounds):
            offset = journal.messages.max_offset(b"one", 0)
            (request,) = requests("one", 1, pulls=1)
            request.ext["queueOffset"] = request.ext["commitOffset"] = str(offset)
            assert pulling.pull(connection, request) is None
            journal.append([message(number, b"one", 0)])
            journal.visible.advance()
            while peer.answers <= number:
                await trio.lowlevel.checkpoint()
        took = time.perf_counter() - began
        nursery.cancel_scope.cancel()
    print(f"{'held, woken by one message (with its put), answered':<62} {took / rounds * 1e6:8.1f} µs a pull")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="pulls of each kind")
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as root:
        journal = filled(root, 100_000)
        pulling = parts(journal)
        peer = cast("Connection", Peer())

        def pull(request: Command) -> int:
            answer = pulling.pull(peer, request)
            assert answer is not None and not answer.code, answer
            return A_PULL

        def with_frames(request: Command) -> int:
            (decoded,) = FrameReader().feed(encode(request))
            answer = pulling.pull(peer, decoded)
            assert answer is not None
            return len(encode(answer)) and A_PULL

        for name, topic, subscription, work in (
            ("one queue, records one behind the other", "one", "*", pull),
            ("the same, with both frames", "one", "*", with_frames),
            (f"one of {QUEUES} queues that grew together", "many", "*", pull),
            ("one queue, a quarter of the messages by tag", "one", "TagB", pull),
        ):
            timed(name, list(requests(topic, 100_000, subscription, count)), work)
        trio.run(held, journal, pulling, count)
        trio.run(journal.close)


if __name__ == "__main__":
    main()
