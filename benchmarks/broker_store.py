"""Appends of 128-byte messages: the bytes of a record alone, the log in memory, and the store on disk.

    python -m benchmarks.broker_store [--count 200000]

Each line is one part, with what was counted. It measures; it judges nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from broker.store import record as codec
from broker.store.commitlog import CommitLog
from broker.store.directory import DirectoryFiles
from broker.store.files import Files, MemoryFiles
from broker.store.record import Message
from broker.store.store import MessageStore, StoreConfig

GATHERED = 64
"""Messages between two writes, as a busy broker would gather them."""


def message() -> Message:
    properties = codec.encode_properties({"UNIQ_KEY": "0" * 32, "TAGS": "TagA", "WAIT": "true", "CLUSTER": "c"})
    return Message(b"Orders", b"." * 128, 1, properties)


def rate(name: str, count: int, work: Callable[[], None]) -> None:
    began = time.perf_counter()
    work()
    took = time.perf_counter() - began
    print(f"{name:<64} {count / took:>12,.0f}/s  {took / count * 1e6:6.2f} µs each")


def encode_only(count: int) -> None:
    one = message()
    for number in range(count):
        codec.encode(one, number, number, number)


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
        store.put(one, number)
        if number % GATHERED == GATHERED - 1:
            store.write()
            store.dispatch()
    store.dispatch()
    store.flush()
    return store


def got(store: MessageStore) -> None:
    at = 0
    while records := store.get(b"Orders", 1, at):
        at += len(records)


def again(root: str) -> None:
    MessageStore(DirectoryFiles(root), StoreConfig(log_file_bytes=256 << 20, index=False)).open()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=200_000)
    count = options.parse_args().count
    with tempfile.TemporaryDirectory() as root:
        rate("record bytes", count, lambda: encode_only(count))
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
        for store in stores:
            store.log.close()
        rate("store on disk: open again, as after a crash", count, lambda: again(f"{root}/store"))


if __name__ == "__main__":
    main()
