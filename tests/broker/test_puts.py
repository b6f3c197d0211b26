"""One put from request to status: gates, the order of answers, timeouts, a fence, and a disk that fails."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import cast

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from benchmarks.alone import Alone
from broker.ha.acks import BrokerRole, Holders, Mode, PutStatus, QuorumConfig, Replicas
from broker.journal import FlushDiskType, Journal, JournalConfig
from broker.puts import PutResult, Puts, Stored
from broker.store.disk import InlineDisk
from broker.store.files import MemoryFile, MemoryFiles
from broker.store.store import MessageStore, StoreConfig
from broker.store.writing import Put
from remoting.record import Message
from tests.broker.test_journal import SlowDisk

SMALL = StoreConfig(log_file_bytes=1 << 16, queue_file_bytes=20 * 64, index_slots=11, index_entries=64)
ASYNC = JournalConfig()
SYNC = JournalConfig(FlushDiskType.SYNC_FLUSH)
TWO = QuorumConfig(total_replicas=3, in_sync_replicas=2)
OK = PutStatus.PUT_OK


@attrs.define
class Group:
    """A master with slaves whose acknowledgements the test gives."""

    journal: Journal
    mode: Mode = Mode(BrokerRole.SYNC_MASTER)
    known: Replicas = Replicas(3, 3, 3)
    acks: list[int] = attrs.field(factory=lambda: [0, 0])

    @property
    def holders(self) -> Holders:
        return _Held(self)

    def replicas(self) -> Replicas:
        return self.known


@attrs.frozen
class _Held:
    group: Group

    def holds_all(self, end: int) -> bool:
        return min(self.group.journal.durable_end, *self.group.acks) >= end

    def holders(self, end: int) -> int:
        return sum(ack >= end for ack in (self.group.journal.durable_end, *self.group.acks))

    def enough(self, least: int) -> bool:
        return self.group.known.accepted >= least


@attrs.define
class Sent:
    """What a test has put and heard."""

    puts: Puts
    heard: list[tuple[int, PutResult]] = attrs.field(factory=list)
    count: int = 0
    waiting: set[int] = attrs.field(factory=set)
    """Those that wait for their storing."""

    def put(self, body: bytes = b"x", *, wait_store_ok: bool = True, topic: bytes = b"t",
            properties: bytes = b"") -> None:
        number = self.count
        self.count += 1
        if wait_store_ok:
            self.waiting.add(number)
        self.puts.put([Message(topic, body, properties=properties)], lambda result: self.heard.append((number, result)),
                      wait_store_ok=wait_store_ok)

    @property
    def statuses(self) -> list[tuple[int, PutStatus]]:
        return [(number, result.status) for number, result in self.heard]


@asynccontextmanager
async def master(
    config: JournalConfig = ASYNC, quorum: QuorumConfig = TWO, *, disk: SlowDisk | None = None,
    files: MemoryFiles | None = None,
) -> AsyncIterator[tuple[Sent, Group, Journal]]:
    journal = Journal(MessageStore(files or MemoryFiles(), SMALL), config, disk=disk or InlineDisk(),
                      wall_ms=lambda: 1_000)
    journal.open()
    puts, group = Puts(journal, quorum), Group(journal)
    puts.serve(group)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run)
        yield Sent(puts), group, journal
        nursery.cancel_scope.cancel()


async def test_a_single_master_answers_in_the_turn_in_which_the_system_has_it(autojump_clock: MockClock) -> None:
    async with master() as (sent, _, journal):
        sent.puts.serve(Alone(journal))
        for _ in range(3):
            sent.put()
        assert sent.heard == [], "a killed process would lose it"
        await wait_all_tasks_blocked()
        assert sent.statuses == [(0, OK), (1, OK), (2, OK)]
        assert [result.puts[0].queue_offset for _, result in sent.heard] == [0, 1, 2]
        assert journal.messages.max_offset(b"t", 0) == 3


async def test_a_process_that_was_stopped_writes_nothing_before_it_sees_that_its_lease_is_over(
    autojump_clock: MockClock,
) -> None:
    async with master() as (sent, _, journal):
        until_ns = journal.now_ns() + 1_000
        sent.puts.serve(Alone(journal), lambda now_ns: now_ns < until_ns)
        sent.put()
        await wait_all_tasks_blocked()
        autojump_clock.jump(1)
        sent.put()  # before anybody has closed the writes
        await wait_all_tasks_blocked()
        assert sent.statuses == [(0, OK), (1, PutStatus.SERVICE_NOT_AVAILABLE)]
        assert "lease" in sent.heard[1][1].remark and journal.messages.max_offset(b"t", 0) == 1


async def test_a_process_that_was_stopped_within_a_turn_asks_for_its_lease_again(autojump_clock: MockClock) -> None:
    async with master() as (sent, _, journal):
        until_ns = journal.now_ns() + 1_000
        sent.puts.serve(Alone(journal), lambda now_ns: now_ns < until_ns)
        sent.put()
        autojump_clock.jump(1)
        sent.put()  # it came while the process stood still, and the turn goes on with it
        await wait_all_tasks_blocked()
        assert dict(sent.statuses) == {0: PutStatus.FLUSH_SLAVE_TIMEOUT, 1: PutStatus.SERVICE_NOT_AVAILABLE}
        assert journal.messages.max_offset(b"t", 0) == 1


@pytest.mark.parametrize("wait_store_ok", [True, False])
async def test_what_was_put_under_a_lease_is_not_acknowledged_when_that_is_over(
    wait_store_ok: bool, autojump_clock: MockClock,
) -> None:
    """The process stands still between a put and its write, and goes on before anybody has fenced it."""
    async with master() as (sent, _, journal):
        until_ns = journal.now_ns() + 1_000
        sent.puts.serve(Alone(journal), lambda now_ns: now_ns < until_ns)
        sent.put(wait_store_ok=wait_store_ok)
        autojump_clock.jump(1)
        await wait_all_tasks_blocked()
        assert sent.statuses == [(0, PutStatus.FLUSH_SLAVE_TIMEOUT)], "it is stored, and nobody knows who will hold it"
        assert "lease" in sent.heard[0][1].remark and journal.end == sent.heard[0][1].puts[0].size


async def test_a_sync_that_outlives_the_lease_acknowledges_nothing(autojump_clock: MockClock) -> None:
    disk = SlowDisk()
    async with master(SYNC, disk=disk) as (sent, _, journal):
        until_ns = journal.now_ns() + 1_000
        sent.puts.serve(Alone(journal), lambda now_ns: now_ns < until_ns)
        sent.put()
        await wait_all_tasks_blocked()
        autojump_clock.jump(1)
        disk.sync()
        await wait_all_tasks_blocked()
        assert sent.statuses == [(0, PutStatus.FLUSH_SLAVE_TIMEOUT)]


async def test_slaves_that_acknowledge_when_the_lease_is_over_release_nothing(autojump_clock: MockClock) -> None:
    async with master() as (sent, group, journal):
        until_ns = journal.now_ns() + 1_000
        sent.puts.serve(group, lambda now_ns: now_ns < until_ns)
        sent.put()
        await wait_all_tasks_blocked()
        autojump_clock.jump(1)
        group.acks = [journal.end, journal.end]
        sent.puts.advanced()
        assert sent.statuses == [(0, PutStatus.FLUSH_SLAVE_TIMEOUT)]


async def test_the_lease_is_asked_for_with_each_answer(autojump_clock: MockClock) -> None:
    """It may stand still between two answers of one turn."""
    async with master() as (sent, _, journal):
        until_ns = journal.now_ns() + 1_000
        sent.puts.serve(Alone(journal), lambda now_ns: now_ns < until_ns)

        def told(result: PutResult) -> None:
            sent.heard.append((-1, result))
            autojump_clock.jump(1)

        sent.puts.put([Message(b"t", b"x")], told)
        sent.put()
        await wait_all_tasks_blocked()
        assert sent.statuses == [(-1, OK), (0, PutStatus.FLUSH_SLAVE_TIMEOUT)]


async def test_acknowledgements_release_in_order_and_once(autojump_clock: MockClock) -> None:
    async with master() as (sent, group, journal):
        ends = []
        for _ in range(4):
            sent.put()
            ends.append(journal.log.max_offset)
        sent.put(wait_store_ok=False)
        await wait_all_tasks_blocked()
        assert sent.statuses == [(4, OK)], "who does not wait for its storing waits for nobody"
        group.acks[1] = ends[1]
        for _ in range(2):
            sent.puts.advanced()
        assert sent.statuses[1:] == [(0, OK), (1, OK)]
        group.acks[0] = ends[3]
        sent.puts.advanced()
        assert sent.statuses[3:] == [(2, OK), (3, OK)]
        await trio.sleep(10)
        assert len(sent.heard) == 5


async def test_who_holds_too_little_when_the_time_is_over(autojump_clock: MockClock) -> None:
    async with master() as (sent, group, journal):
        sent.put()
        await trio.sleep(2.9)
        assert sent.heard == []
        await trio.sleep(0.3)
        assert sent.statuses == [(0, PutStatus.FLUSH_SLAVE_TIMEOUT)]
        assert sent.heard[0][1].puts[0].size == journal.end, "it is stored, and says where"
        group.acks[0] = journal.end
        sent.puts.advanced()
        assert len(sent.heard) == 1


async def test_sync_flush_waits_for_the_disk_and_then_for_the_slaves(autojump_clock: MockClock) -> None:
    disk = SlowDisk()
    async with master(SYNC, disk=disk) as (sent, group, journal):
        sent.put()
        sent.put(wait_store_ok=False)
        await wait_all_tasks_blocked()
        assert sent.statuses == [(1, OK)]
        group.acks = [journal.end, journal.end]
        sent.puts.advanced()
        assert len(sent.heard) == 1, "two slaves hold it, the disk does not"
        disk.sync()
        await wait_all_tasks_blocked()
        assert sent.statuses[1:] == [(0, OK)]
        sent.put()
        await wait_all_tasks_blocked()
        disk.sync()
        await wait_all_tasks_blocked()
        assert len(sent.heard) == 2
        group.acks[0] = journal.end
        sent.puts.advanced()
        assert sent.statuses[2:] == [(2, OK)]


@pytest.mark.parametrize(("acked", "status"), [(True, PutStatus.FLUSH_DISK_TIMEOUT),
                                               (False, PutStatus.FLUSH_SLAVE_TIMEOUT)])
async def test_a_disk_that_does_not_answer(acked: bool, status: PutStatus, autojump_clock: MockClock) -> None:
    async with master(SYNC, disk=SlowDisk()) as (sent, group, journal):
        sent.put()
        await trio.sleep(4.9)
        group.acks = [journal.end, journal.end] if acked else [0, 0]
        assert sent.heard == []
        await trio.sleep(0.5)
        assert sent.statuses == [(0, status)], "what became of its slaves weighs more"


async def test_gates_write_nothing(autojump_clock: MockClock) -> None:
    quorum = QuorumConfig(total_replicas=3, in_sync_replicas=2, min_in_sync_replicas=2)
    async with master(quorum=quorum) as (sent, group, journal):
        group.mode, group.known = Mode(controller=True), Replicas(accepted=1)
        sent.put()
        assert sent.statuses == [(0, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)]
        assert sent.heard[0][1].remark == "1 replicas are in sync, 2 are needed: nothing was written"
        sent.put(wait_store_ok=False)
        group.known = Replicas(accepted=2)
        sent.put()
        await wait_all_tasks_blocked()
        assert sent.statuses[1:] == [(1, OK)] and len(journal.messages.get(b"t", 0, 0)) == 0
        assert journal.end == 2 * sent.heard[1][1].puts[0].size


async def test_a_young_master_holds_what_replicas_that_are_about_to_join_will_let_in(autojump_clock: MockClock) -> None:
    quorum = QuorumConfig(total_replicas=3, in_sync_replicas=2, min_in_sync_replicas=2, young_master_hold_ms=2_000)
    async with master(quorum=quorum) as (sent, group, journal):
        group.mode, group.known = Mode(controller=True), Replicas(accepted=1)
        group.acks = [1 << 40, 1 << 40]
        for _ in range(3):
            sent.put()
        sent.puts.advanced()
        await trio.sleep(1.5)
        assert sent.statuses == [] and journal.end == 0, "nothing is written meanwhile"
        group.known = Replicas(accepted=2)
        sent.puts.advanced()
        await wait_all_tasks_blocked()
        assert sent.statuses == [(0, OK), (1, OK), (2, OK)], "in their order"
        group.known = Replicas(accepted=1)
        sent.put()
        await trio.sleep(0.7)
        assert sent.statuses[3:] == [(3, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)], "when its youth is over"
        sent.put()
        assert sent.statuses[4:] == [(4, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)], "and from then on at once"


@pytest.mark.parametrize("topic_goes", [False, True])
async def test_a_refusal_of_what_was_held_stirs(autojump_clock: MockClock, topic_goes: bool) -> None:
    """Who put it may have said that it is due no more until it is answered: delayed messages waited for ever."""
    quorum = QuorumConfig(total_replicas=3, min_in_sync_replicas=2, young_master_hold_ms=2_000)
    async with master(quorum=quorum) as (sent, group, journal):
        group.mode, group.known = Mode(controller=True), Replicas(accepted=1)
        sent.put()
        await trio.sleep(1.5)
        before = journal.stirs
        if topic_goes:
            sent.puts.topic_gone("t")
        await trio.sleep(0.7)
        assert len(sent.heard) == 1 and journal.stirs > before


async def test_what_a_young_master_holds_is_answered_when_it_is_none_any_more(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.puts.HELD_MAX", 2)
    monkeypatch.setattr("broker.puts.HELD_BYTES_MAX", 1_000)
    quorum = QuorumConfig(total_replicas=3, min_in_sync_replicas=2, young_master_hold_ms=2_000)
    async with master(quorum=quorum) as (sent, group, journal):
        group.mode, group.known = Mode(controller=True), Replicas(accepted=1)
        sent.put(bytes(500), properties=bytes(400))
        sent.put(bytes(200))
        sent.put(bytes(50))
        sent.put(bytes(1))
        few = PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert sent.statuses == [(1, few), (3, few)], "so many bytes, so many of them, and no more"
        sent.puts.fence("another one is master")
        assert sent.statuses[2:] == [(0, PutStatus.SERVICE_NOT_AVAILABLE), (2, PutStatus.SERVICE_NOT_AVAILABLE)]
        assert sent.heard[2][1].remark == "another one is master" and journal.end == 0


async def test_what_cannot_be_stored_is_refused_at_once_and_in_words(autojump_clock: MockClock) -> None:
    async with master() as (sent, _, journal):
        sent.put(topic=b"a/b")
        sent.put(bytes((64 << 20) + 1))
        sent.puts.put([Message(b"t", b"x", properties=b"k\x01" + b"v" * 40_000 + b"\x02")],
                      lambda result: sent.heard.append((2, result)))
        sent.puts.put([], lambda result: sent.heard.append((3, result)))
        assert [status.name for _, status in sent.statuses] == [
            "MESSAGE_ILLEGAL", "MESSAGE_ILLEGAL", "PROPERTIES_SIZE_EXCEEDED", "MESSAGE_ILLEGAL"]
        assert [result.remark.split(";")[0].split(":")[0] for _, result in sent.heard] == [
            "topic b'a/b' queue 0 cannot be the name of a folder", "body of 67108865 bytes",
            "properties of 40003 bytes", "a batch without a message"]
        assert journal.log.max_offset == 0


async def test_a_fence_ends_all_that_waits_and_serving_begins_anew(autojump_clock: MockClock) -> None:
    disk = SlowDisk()
    async with master(SYNC, disk=disk) as (sent, group, journal):
        sent.put()
        await wait_all_tasks_blocked()
        disk.sync()
        await wait_all_tasks_blocked()  # 0 waits for slaves
        sent.put()
        await wait_all_tasks_blocked()  # 1 waits for the disk
        sent.put(wait_store_ok=False)  # 2 waits for the system
        sent.puts.fence("no controller has renewed its lease")
        assert not sent.puts.serving
        assert sorted(sent.statuses) == [(number, PutStatus.FLUSH_SLAVE_TIMEOUT) for number in range(3)]
        sent.put()
        assert sent.heard[-1] == (3, PutResult(
            PutStatus.SERVICE_NOT_AVAILABLE, remark="no controller has renewed its lease"))
        sent.puts.serve(group)
        sent.put(wait_store_ok=False)
        group.acks = [1 << 40, 1 << 40]
        await wait_all_tasks_blocked()
        sent.puts.advanced()
        assert sent.statuses[4:] == [(4, OK)] and journal.failure is None


async def test_a_caller_that_fails_costs_nobody_else_an_answer(autojump_clock: MockClock) -> None:
    async with master() as (sent, _, journal):
        sent.puts.serve(Alone(journal))

        def fails(result: PutResult) -> None:
            raise ValueError("a defect")

        sent.puts.put([Message(b"t", b"x")], fails)
        sent.put()
        await wait_all_tasks_blocked()
        assert sent.statuses == [(0, OK)]


async def test_a_master_that_cuts_a_part_of_a_message_counts_nothing_as_durable(autojump_clock: MockClock) -> None:
    disk = SlowDisk()
    async with master(SYNC, QuorumConfig(), disk=disk) as (sent, _, journal):
        journal.append_raw((400).to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + bytes(300), 0)
        await wait_all_tasks_blocked()
        disk.sync()
        await wait_all_tasks_blocked()
        assert journal.durable_end == journal.end == 308
        sent.put()
        await wait_all_tasks_blocked()
        assert (journal.end, journal.durable_end) == (93, 0) and sent.heard == []
        disk.sync()
        await wait_all_tasks_blocked()
        assert sent.statuses == [(0, OK)]


async def test_a_failed_write_answers_at_once(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    async with master(SYNC, files=files) as (sent, group, _):
        group.acks = [1 << 40, 1 << 40]
        sent.put()
        await wait_all_tasks_blocked()
        files.content["commitlog/" + "0" * 20].fault = OSError(errno.EIO, "Input/output error")
        sent.put()
        await wait_all_tasks_blocked()
        sent.put()
        assert [status.name for _, status in sent.statuses] == ["PUT_OK", "UNKNOWN_ERROR", "SERVICE_NOT_AVAILABLE"]
        assert "Input/output error" in sent.heard[2][1].remark


async def test_a_sync_that_fails_after_the_write(autojump_clock: MockClock) -> None:
    files, disk = MemoryFiles(), SlowDisk()
    async with master(SYNC, files=files, disk=disk) as (sent, _, _):
        sent.put()
        await wait_all_tasks_blocked()
        files.content["commitlog/" + "0" * 20].fault = OSError(errno.EIO, "Input/output error")
        disk.sync()
        await wait_all_tasks_blocked()
        assert sent.statuses == [(0, PutStatus.FLUSH_DISK_TIMEOUT)]


async def test_a_full_disk(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with master() as (sent, _, journal):
        sent.puts.serve(Alone(journal))

        def full(self: MemoryFile, offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(MemoryFile, "reserve", full)
            sent.put()
            assert sent.statuses == [(0, PutStatus.SERVICE_NOT_AVAILABLE)]
            assert "No space left on device" in sent.heard[0][1].remark
        sent.put()
        await wait_all_tasks_blocked()
        assert sent.statuses[1:] == [(1, OK)]


@pytest.mark.parametrize("seed", range(30))
async def test_any_course_of_events_answers_each_put_once_and_keeps_every_promise(
    seed: int, autojump_clock: MockClock,
) -> None:
    """SYNC_FLUSH, then the machine stops: what was answered PUT_OK is there, on so many replicas as it needed."""
    rng = Random(seed)
    files, disk = MemoryFiles(), SlowDisk()
    async with master(SYNC, files=files, disk=disk) as (sent, group, journal):
        for _ in range(rng.randrange(20, 120)):
            what = rng.random()
            if what < 0.4:
                sent.put(b"m%d" % sent.count, wait_store_ok=rng.random() < 0.9)
            elif what < 0.55 and disk.jobs:
                disk.sync()
            elif what < 0.75:
                slave = rng.randrange(2)
                group.acks[slave] = rng.randrange(group.acks[slave], journal.end + 1)
                sent.puts.advanced()
            elif what < 0.8:
                sent.puts.fence("deposed")
            elif what < 0.88:
                sent.puts.serve(group)
            elif what < 0.93:
                await trio.sleep(rng.random() * 4)
            else:
                await wait_all_tasks_blocked()
        if rng.random() < 0.5:
            await trio.sleep(20)
            assert len(sent.heard) == sent.count
        acks = list(group.acks)
    assert len({number for number, _ in sent.heard}) == len(sent.heard)
    files.crash(lambda size: rng.choice((0, size)))
    again = MessageStore(files, SMALL)
    again.open()
    for number, result in sent.heard:
        if result.status is OK and number in sent.waiting:
            (put,) = result.puts
            assert again.log.record(put.offset).message.body == b"m%d" % number
            assert max(acks) >= put.offset + put.size


async def test_what_waits_for_a_disk_that_stands_still_is_bounded(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More is refused before it is stored, however long that lasts; what does not wait is let in."""
    monkeypatch.setattr("broker.puts.UNFLUSHED_MAX", 5)
    disk = SlowDisk()
    async with master(SYNC, disk=disk) as (sent, _, journal):
        sent.puts.serve(Alone(journal))
        for _ in range(3):
            before, ends = len(sent.heard), set[int]()
            for _ in range(40):
                sent.put()
                await wait_all_tasks_blocked()
                ends.add(journal.end)
                assert sent.puts.waiting <= 5 and len(disk.jobs) <= 1
            refused = [result for _, result in sent.heard[before:]]
            assert [result.status for result in refused] == [PutStatus.OS_PAGE_CACHE_BUSY] * 35
            assert "5 messages or batches" in refused[0].remark and len(ends) == 5
            await trio.sleep(6)
            assert [result.status for _, result in sent.heard[-5:]] == [PutStatus.FLUSH_DISK_TIMEOUT] * 5
        sent.put(wait_store_ok=False)
        sent.put()
        await wait_all_tasks_blocked()
        assert sent.statuses[-1] == (120, OK)
        while disk.jobs:
            disk.sync()
            await wait_all_tasks_blocked()
        assert sent.statuses[-1] == (121, OK)


async def test_so_many_bytes_of_the_log_wait_for_a_disk_and_no_more(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.puts.UNFLUSHED_BYTES_MAX", 20_000)
    async with master(SYNC, disk=(disk := SlowDisk())) as (sent, _, journal):
        sent.puts.serve(Alone(journal))
        for _ in range(5):
            sent.put(b"." * 9_000)
        await wait_all_tasks_blocked()
        assert sent.statuses == [(3, PutStatus.OS_PAGE_CACHE_BUSY), (4, PutStatus.OS_PAGE_CACHE_BUSY)]
        disk.sync()
        await wait_all_tasks_blocked()
        sent.put(b"." * 9_000)
        await wait_all_tasks_blocked()
        disk.sync()
        await wait_all_tasks_blocked()
        assert [number for number, status in sent.statuses if status is OK] == [0, 1, 2, 5]


@attrs.define
class Ends:
    """Of a journal's log."""

    confirm_offset: int = 0
    durable_end: int = 0


def test_what_was_stored_is_done_once_it_is_confirmed_and_as_durable_as_puts_are() -> None:
    ends = Ends()
    stored: Stored[str] = Stored(cast("Journal", ends))
    for name, end in (("a", 100), ("b", 200), ("c", 300)):
        stored.add(PutResult(PutStatus.FLUSH_SLAVE_TIMEOUT, (Put(0, 50, 0), Put(end - 50, 50, 0))), name)
    ends.confirm_offset, ends.durable_end = 300, 99
    assert [*stored.confirmed()] == []
    ends.durable_end = 200
    done = stored.confirmed()
    assert (next(done), len(stored)) == ("a", 2), "one by one"
    assert [*done] == ["b"]
    ends.confirm_offset = ends.durable_end = 300
    stored.clear()
    assert [*stored.confirmed()] == [] and not stored


def test_a_result_knows_where_it_ends_in_the_log() -> None:
    assert PutResult(OK).end == 0
    assert PutResult(OK, (Put(100, 50, 3), Put(150, 70, 4))).end == 220
