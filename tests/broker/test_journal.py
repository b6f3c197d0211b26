"""The store on the loop: what a turn appends is written once, flushed, confirmed and seen."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from broker.ha.acks import PutStatus, QuorumConfig
from broker.journal import FlushDiskType, Journal, JournalConfig
from broker.puts import PutResult, Puts
from broker.replication import Alone
from broker.store.disk import InlineDisk
from broker.store.files import MemoryFiles
from broker.store.record import Message, decode
from broker.store.store import MessageStore, StoreConfig

SMALL = StoreConfig(log_file_bytes=1 << 16, queue_file_bytes=20 * 64, index_slots=11, index_entries=64)


async def test_a_put_is_answered_and_seen(autojump_clock: MockClock) -> None:
    for flush in FlushDiskType:
        journal = Journal(MessageStore(MemoryFiles(), SMALL), JournalConfig(flush_disk_type=flush), disk=InlineDisk())
        journal.open()
        puts = Puts(journal, QuorumConfig())
        puts.serve(Alone(journal))
        results: list[PutResult] = []
        async with trio.open_nursery() as running:
            await running.start(journal.run)
            for number in range(10):
                puts.put([Message(b"t", b"%d" % number)], results.append)
            await trio.sleep(1)
            running.cancel_scope.cancel()
        assert [result.status for result in results] == [PutStatus.PUT_OK] * 10
        found = journal.store.get(b"t", 0, 0)
        assert [decode(raw).message.body for raw in found] == [b"%d" % number for number in range(10)]
        await journal.close()
