"""A broker's store in a process of its own, to be killed: it says each put that it acknowledges.

    python -m tests.broker.store.killed DIRECTORY ASYNC_FLUSH|SYNC_FLUSH
"""

from __future__ import annotations

import os
import sys

import trio

from benchmarks.alone import Alone
from broker.ha.acks import PutStatus, QuorumConfig
from broker.journal import FlushDiskType, Journal, JournalConfig
from broker.puts import PutResult, Puts
from broker.store.directory import DirectoryFiles
from broker.store.errors import StoreFailed
from broker.store.retention import RetentionConfig
from broker.store.store import MessageStore, StoreConfig
from remoting.record import Message, encode_properties
from remoting.wakeup import Bell

CONFIG = StoreConfig(log_file_bytes=1 << 18, queue_file_bytes=20 * 512, index_slots=1_009, index_entries=4_096)
IN_FLIGHT = 16


async def end(error: StoreFailed) -> None:
    raise error


async def main(directory: str, flush: str) -> None:
    journal = Journal(MessageStore(DirectoryFiles(directory), CONFIG),
                      JournalConfig(FlushDiskType(flush), checkpoint_interval_ms=20, tick_interval_ms=5,
                                    retention=RetentionConfig(disk_space_warning_level_ratio=100)))
    journal.open()
    puts = Puts(journal, QuorumConfig())
    answered = Bell()
    waiting = 0

    def put(number: int) -> None:
        def done(result: PutResult) -> None:
            nonlocal waiting
            assert result.status is PutStatus.PUT_OK, result
            os.write(1, b"%d %d %d\n" % (number, result.puts[0].offset, result.puts[0].queue_offset))
            waiting -= 1
            answered.ring()

        puts.put([Message(b"t", b"m%d" % number, number % 3, encode_properties({"KEYS": f"k{number}"}))], done)

    async with trio.open_nursery() as nursery:
        journal.on_failure.join("server", lambda error: nursery.start_soon(end, error))
        await nursery.start(journal.run)
        puts.serve(Alone(journal))
        number = journal.end  # grows from life to life
        while True:
            while waiting < IN_FLIGHT:
                waiting += 1
                put(number)
                number += 1
            await answered.wait()

if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
