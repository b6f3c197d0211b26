"""What filters over properties cost: expressions by themselves, and pulls of a queue through them. No broker runs.

    python -m benchmarks.filters                 # evaluations a second, on bytes as they stand in the log
    python -m benchmarks.filters --pulls         # pulls in process, from a request's frame to its answer's

Each gives one line of JSON for each expression, in processor time of this process. Pulls go over 100,000 messages of
128 bytes with the properties that a Java producer gives them, in eight queues that grew together, one after the other,
from a store on disk. Their last line is the floor: one search of bytes for each message, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, cast

import trio

from benchmarks.broker_pull import QUEUES, Peer, opened, parts, shown
from broker.filters.expressions import Expression
from broker.store.consumequeue import ENTRY
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.frame import FrameReader, encode
from remoting.headers.pulling import COMMIT_OFFSET, SUBSCRIPTION, PullMessageRequest
from remoting.record import Message, encode_properties

if TYPE_CHECKING:
    from broker.journal import Journal
    from broker.pulling.requests import Pulling
    from remoting.connection import Connection

EXPRESSIONS = {
    "one number": "price > 500",
    "one text": "colour = 'red'",
    "range and text": "price BETWEEN 100 AND 200 AND colour = 'red'",
    "list": "region IN ('eu', 'us', 'cn') AND NOT (colour = 'blue')",
    "eight terms": " OR ".join(f"price = {number}" for number in range(8)),
    "five names": "a = 1 OR b = 2 OR c = 3 OR price > 900 OR colour CONTAINS 'x'",
}
PULLED = {
    "1 %": "p<1", "50 %": "p<50", "none": "p<0", "1 % of all ids": "id = 7 OR id > 99000",
    "1 %, of two": "p < 2 AND colour = 'red'"}
ROUNDS, SECONDS, PULL_ROUNDS = 5, 0.3, 7
MESSAGES = 100_000
COLOURS = ("red", "blue")


def messages() -> list[bytes]:
    """A thousand, with what a Java client puts beside a user's properties."""
    return [encode_properties({
        "KEYS": f"order-{number}", "UNIQ_KEY": f"7F000001{number:024X}", "CLUSTER": "DefaultCluster", "WAIT": "true",
        "TAGS": "TagA", "price": str(number), "colour": ("red", "blue", "green")[number % 3],
        "region": ("eu", "us", "ap", "sa")[number % 4], "TRACE_ON": "true"}) for number in range(1_000)]


def evaluations() -> None:
    every = messages()
    for name, text in EXPRESSIONS.items():
        began = time.process_time()
        matches = Expression(text).matches
        compile_us = (time.process_time() - began) * 1e6
        rates, wanted = [], sum(map(matches, every))
        for _ in range(ROUNDS):
            count, began = 0, time.process_time()
            while (spent := time.process_time() - began) < SECONDS:
                for raw in every:
                    matches(raw)
                count += len(every)
            rates.append(count / spent)
        told({"expression": name, "text": text, "wanted of 1000": wanted, "compile_us": round(compile_us),
              "per_second": round(statistics.median(rates))})


def told(line: dict[str, Any]) -> None:
    print(json.dumps(line, ensure_ascii=False), flush=True)


def filled(root: str) -> Journal:
    store = opened(root)
    for number in range(MESSAGES):
        queue_id, turn = number % QUEUES, number // QUEUES
        properties = encode_properties({
            "p": str(turn * 37 % 100), "id": str(number), "colour": COLOURS[turn // 100 % 2],
            "UNIQ_KEY": f"{number:032X}", "WAIT": "true", "CLUSTER": "DefaultCluster"})
        store.writer.put(Message(b"many", b"." * 128, queue_id, properties), number)
    return shown(store)


def pulled(pulling: Pulling, text: str) -> tuple[int, int, float]:
    """Pull all queues in turn through a filter to their ends: pulls, messages found, seconds of processor time."""
    peer, reader = cast("Connection", Peer()), FrameReader()
    offsets, end, pulls = dict.fromkeys(range(QUEUES), 0), MESSAGES // QUEUES, 0
    found, began = pulling.given.messages, time.process_time()
    while offsets:
        for queue_id, offset in list(offsets.items()):
            header = PullMessageRequest("group", "many", queue_id, offset, 32, SUBSCRIPTION | COMMIT_OFFSET, offset,
                                        15_000, text, 1_700_000_000_000, "SQL92")
            (request,) = reader.feed(encode(Command(RequestCode.PULL_MESSAGE, pulls, 0, header.to_ext())))
            answer = pulling.pull(peer, request)
            assert answer is not None and answer.code in (0, ResponseCode.PULL_RETRY_IMMEDIATELY), answer
            encode(answer)
            offsets[queue_id], pulls = int(answer.ext["nextBeginOffset"]), pulls + 1
            if offsets[queue_id] == end:
                del offsets[queue_id]
    return pulls, pulling.given.messages - found, time.process_time() - began


def floor(journal: Journal) -> float:
    """Seconds of processor time for one search in the bytes of each message, by its queue, all in memory."""
    queues = [journal.messages.queue(b"many", queue_id) for queue_id in range(QUEUES)]
    entries, count = [queue.read(0, MESSAGES) for queue in queues if queue is not None], 0
    data = journal.messages.log.read(0, journal.messages.log.max_offset)
    began = time.process_time()
    for each in entries:
        for where, size, _ in ENTRY.iter_unpack(each):
            if data.find(b"\x02p\x010\x02", where, where + size) >= 0:
                count += 1
    return time.process_time() - began


def pulls() -> None:
    with tempfile.TemporaryDirectory() as root:
        journal = filled(root)
        pulling = parts(journal)
        for name, text in PULLED.items():
            rounds = [pulled(pulling, text) for _ in range(PULL_ROUNDS)]
            count, found, _ = rounds[0]
            told({"pulls": name, "text": text, "pulls for all": count, "found": found,
                  **measured([took for _, _, took in rounds])})
        told({"pulls": "floor", **measured([floor(journal) for _ in range(PULL_ROUNDS)])})
        trio.run(journal.close)


def measured(seconds: list[float]) -> dict[str, float]:
    """Of rounds over all queues: each message's microseconds, the least and the middle one."""
    each = [1e6 * took / MESSAGES for took in seconds]
    return {"us_a_message": round(min(each), 2), "middle": round(statistics.median(each), 2)}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.filters", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pulls", action="store_true", help="pull a queue through filters")
    if parser.parse_args().pulls:
        pulls()
    else:
        evaluations()
    return 0


if __name__ == "__main__":
    sys.exit(main())
