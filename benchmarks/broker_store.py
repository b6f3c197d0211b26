"""Appends of 128-byte messages: the bytes of a record alone, the log in memory, the store on disk, whole puts.

    python -m benchmarks.broker_store [--count 200000]

Each line is one part, with what was counted, by the clock and by the processor's time of this process, which other
load on the machine does not change much. It measures; it judges nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import trio

from benchmarks.alone import Alone
from broker.ha.acks import PutStatus, QuorumConfig
from broker.journal import FlushDiskType, Journal, JournalConfig
from broker.puts import PutResult, Puts
from broker.store.batch import Batch
from broker.store.commitlog import CommitLog
from broker.store.consumequeue import FILE_BYTES as QUEUE_FILE_BYTES
from broker.store.directory import DirectoryFiles
from broker.store.dispatch import TagCodes
from broker.store.files import Files, MemoryFiles
from broker.store.indexfile import KeyIndex
from broker.store.log import Log, Run
from broker.store.queues import Queues
from broker.store.store import MessageStore, StoreConfig
from remoting import record as codec
from remoting.record import Message
from remoting.wakeup import Bell

BATCHED = 32
GATHERED = 64
"""Messages between two writes, as a busy broker would gather them."""


def message() -> Message:
    properties = codec.encode_properties({"UNIQ_KEY": "0" * 32, "TAGS": "TagA", "WAIT": "true", "CLUSTER": "c"})
    return Message(b"Orders", b"." * 128, 1, properties)


ONE = message()


def rate(name: str, count: int, work: Callable[[], None]) -> None:
    began, used = time.perf_counter(), time.process_time()
    work()
    took, used = time.perf_counter() - began, time.process_time() - used
    print(f"{name:<64} {count / took:>12,.0f}/s  {took / count * 1e6:6.2f} µs each, {used / count * 1e6:6.2f} of CPU")


def encode_only(count: int) -> None:
    one = message()
    for number in range(count):
        codec.encode(one, number, number, number)


def batches_only(count: int) -> None:
    """As the store does it with a batch of a client's."""
    raw = codec.encode_batch([(0, ONE.body, ONE.properties)] * BATCHED)
    for number in range(count // BATCHED):
        batch = Batch(ONE, codec.decode_batch(raw))
        codec.encode_parts(batch.common, batch.parts, batch.sizes(), number, number, number)


def runs(count: int) -> list[Run]:
    """Of messages of one producer to eight queues, as dispatch reads them from the log."""
    log = CommitLog(MemoryFiles(), file_bytes=1 << 30)
    log.open()
    for number in range(count):
        unique = b"%020X%08X%04X" % (7, number // 16, number & 0xFFFF)
        log.append(attrs.evolve(ONE, queue_id=number % 8, properties=b"UNIQ_KEY\1" + unique + b"\2WAIT\1true\2"),
                   number // 8, number // 16)
    found, at = [], 0
    while at < log.max_offset:
        run, at = log.run(at, log.max_offset, ask=256 << 10)
        found.append(run)
    return found


def queues_only(found: list[Run]) -> None:
    queues = Queues(MemoryFiles(), TagCodes(), file_bytes=QUEUE_FILE_BYTES)
    for run in found:
        queues.take(run)


def index_only(found: list[Run]) -> None:
    index = KeyIndex(MemoryFiles(), entries=1 << 20)
    for run in found:
        index.take(run)
    index.enter()


def log_only(files: Files, count: int, gathered: int, flushed: int = 0) -> None:
    log = CommitLog(files, file_bytes=32 << 20)
    log.open()
    one = message()
    for number in range(count):
        log.append(one, number, number)
        if number % gathered == gathered - 1:
            log.write()
        if flushed and number % flushed == flushed - 1:
            log.flush()
    log.flush()


def whole_store(root: str, count: int, *, index: bool) -> MessageStore:
    store = MessageStore(DirectoryFiles(root), StoreConfig(log_file_bytes=256 << 20, index=index))
    store.open()
    one = message()
    for number in range(count):
        store.writer.put(one, number)
        if number % GATHERED == GATHERED - 1:
            store.log.write()
            store.visible.advance()
    store.visible.advance()
    store.flush()
    return store


def got(store: MessageStore) -> None:
    at = 0
    while records := store.messages.get(b"Orders", 1, at):
        at += len(records)


def copied(log: Log, root: str) -> None:
    """As a slave does: bytes of the log in, and what consumers see built from them."""
    store = MessageStore(DirectoryFiles(root), StoreConfig(log_file_bytes=256 << 20, index=False))
    store.open()
    at = 0
    while data := log.read(at, 256 << 10):
        store.writer.append_raw(data, at)
        at += len(data)
        while store.visible.advance_some(at, 2_000):
            pass
    store.abandon()


def put_by_put(root: str, count: int, window: int, flush: FlushDiskType, *, index: bool) -> None:
    """``window`` puts in one turn of the loop, the next ones when all are answered."""

    async def main() -> None:
        store = MessageStore(DirectoryFiles(root), StoreConfig(log_file_bytes=256 << 20, index=index))
        journal = Journal(store, JournalConfig(flush))
        journal.open()
        puts = Puts(journal, QuorumConfig())
        puts.serve(Alone(journal))
        answered = Bell()
        left = 0

        def done(result: PutResult) -> None:
            nonlocal left
            assert result.status is PutStatus.PUT_OK
            left -= 1
            if not left:
                answered.ring()

        async with trio.open_nursery() as nursery:
            await nursery.start(journal.run)
            for _ in range(count // window):
                left = window
                for _ in range(window):
                    puts.put([ONE], done)
                await answered.wait()
            while store.visible.indexed_offset < journal.end:  # noqa: ASYNC110  nobody is told of that
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        store.abandon()

    trio.run(main)


def again(root: str) -> None:
    MessageStore(DirectoryFiles(root), StoreConfig(log_file_bytes=256 << 20, index=False)).open()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=200_000)
    count = options.parse_args().count
    with tempfile.TemporaryDirectory() as root:
        rate("record bytes", count, lambda: encode_only(count))
        rate(f"the same of batches of {BATCHED}, from the client's bytes", count, lambda: batches_only(count))
        found = runs(count)
        rate("consume queues in memory, of runs", count, lambda: queues_only(found))
        rate("key index in memory, of runs with one key for each", count, lambda: index_only(found))
        found.clear()
        rate("log in memory, written by 64", count, lambda: log_only(MemoryFiles(), count, GATHERED))
        rate("log on disk, written one by one", count, lambda: log_only(DirectoryFiles(Path(root, "one")), count, 1))
        rate("log on disk, written by 64", count, lambda: log_only(DirectoryFiles(Path(root, "many")), count, GATHERED))
        rate("log on disk, synced by 64", count // 10,
             lambda: log_only(DirectoryFiles(Path(root, "sync")), count // 10, GATHERED, GATHERED))
        stores: list[MessageStore] = []
        rate("store on disk: put, write by 64, dispatch, with the key index", count,
             lambda: stores.append(whole_store(f"{root}/index", count, index=True)))
        rate("store on disk: put, write by 64, dispatch, without it", count,
             lambda: stores.append(whole_store(f"{root}/store", count, index=False)))
        rate("store on disk: get by 32", count, lambda: got(stores[1]))
        rate("store on disk: a slave's, without the index", count, lambda: copied(stores[1].log, f"{root}/copy"))
        for store in stores:
            store.abandon()
        for flush in FlushDiskType:
            for window in (1, 64):
                number = count if window > 1 else count // 10
                rate(f"puts with {flush.value} until they are indexed, {window} in flight", number,
                     lambda window=window, flush=flush, number=number: put_by_put(  # type: ignore[misc]
                         f"{root}/puts-{flush.value}-{window}", number, window, flush, index=True))
        rate("store on disk: open again, as after a crash", count, lambda: again(f"{root}/store"))


if __name__ == "__main__":
    main()
