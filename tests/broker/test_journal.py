"""The store on the loop: what a turn appends is written once, flushed beside it, confirmed, and seen in slices."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.journal import FlushDiskType, Journal, JournalConfig
from broker.moments import WATCH
from broker.store.disk import DiskThread, InlineDisk, Job, Steps, Told
from broker.store.errors import OffsetGone, StoreFailed, StoreFull
from broker.store.files import MemoryFile, MemoryFiles, Space
from broker.store.needed import Needed
from broker.store.retention import RetentionConfig
from broker.store.store import MessageStore, StoreConfig
from remoting.record import Message, decode
from remoting.wakeup import Bell

SMALL = StoreConfig(log_file_bytes=1 << 16, queue_file_bytes=20 * 64, index_slots=11, index_entries=64)
ASYNC = JournalConfig()
SYNC = JournalConfig(FlushDiskType.SYNC_FLUSH)
HOUR_MS = 3_600_000


def message(body: str, topic: bytes = b"t", queue_id: int = 0) -> Message:
    return Message(topic, body.encode(), queue_id)


def bodies(journal: Journal, topic: bytes = b"t", queue_id: int = 0) -> list[str]:
    at, found = journal.messages.min_offset(topic, queue_id), list[str]()
    while records := journal.messages.get(topic, queue_id, at):
        found += [decode(raw).message.body.decode() for raw in records]
        at = decode(records[-1]).queue_offset + 1
    return found


@attrs.define
class SlowDisk:
    """Runs what it is given when the test says so."""

    inline: bool = False
    jobs: list[tuple[Job, Told]] = attrs.field(factory=list)
    steps: list[tuple[Steps, Told]] = attrs.field(factory=list)

    def submit(self, job: Job, told: Told) -> None:
        self.jobs.append((job, told))

    def submit_steps(self, steps: Steps, told: Told) -> None:
        self.steps.append((steps, told))

    def sync(self) -> None:
        InlineDisk().submit(*self.jobs.pop(0))

    def settle(self) -> None:
        while self.jobs:
            self.sync()
        while self.steps:
            InlineDisk().submit_steps(*self.steps.pop(0))

    def close(self) -> None:
        self.settle()


@asynccontextmanager
async def running(
    files: MemoryFiles | None = None, config: JournalConfig = ASYNC, *, disk: SlowDisk | None = None,
    wall_ms: Callable[[], int] = lambda: 1_000,
) -> AsyncIterator[Journal]:
    journal = Journal(MessageStore(files or MemoryFiles(), SMALL), config, disk=disk or InlineDisk(), wall_ms=wall_ms)
    journal.open()
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run)
        yield journal
        nursery.cancel_scope.cancel()


def counted(files: MemoryFiles, what: str) -> Callable[[], int]:
    """How often that happened since the last look."""
    seen = [0]

    def hook(happens: str) -> None:
        seen[0] += happens == what

    def look() -> int:
        count, seen[0] = seen[0], 0
        return count

    files.hook = hook
    return look


async def test_a_turn_is_written_once_and_told_once(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    writes = counted(files, "write")
    async with running(files) as journal:
        ends: list[int] = []
        journal.grown.join(WATCH, lambda: ends.append(journal.end))
        puts = [journal.append([message(f"m{number}")])[0] for number in range(50)]
        assert (journal.end, journal.log.max_offset) == (0, puts[-1].offset + puts[-1].size)
        writes()
        await wait_all_tasks_blocked()
        assert (writes(), ends) == (1, [journal.log.max_offset])
        assert journal.durable_end == journal.end, "nobody waits for the disk"
        assert bodies(journal) == []
        journal.confirm(puts[30].offset + puts[30].size + 1)
        await wait_all_tasks_blocked()
        assert bodies(journal) == [f"m{number}" for number in range(31)]


async def test_messages_of_one_call_stand_together_or_not_at_all(autojump_clock: MockClock) -> None:
    async with running() as journal:
        one = journal.append([message("a" * 40_000)])[0]
        puts = journal.append([message("b" * 10_000, queue_id=number % 2) for number in range(4)])
        assert puts[0].offset == 1 << 16, "in the next file, all of them"
        assert [put.queue_offset for put in puts] == [1, 0, 2, 1]
        end = journal.log.max_offset
        with pytest.raises(Exception, match="a file of the log has 65536"):
            journal.append([message("c" * 40_000), message("c" * 40_000)])
        with pytest.raises(Exception, match="cannot be the name of a folder"):
            journal.append([message("d"), message("d", b"../t")])
        assert journal.log.max_offset == end > one.size
        assert journal.append([message("e")])[0].queue_offset == 3


async def test_sync_flush_moves_the_durable_end_when_the_disk_has_it(autojump_clock: MockClock) -> None:
    disk = SlowDisk()
    async with running(config=SYNC, disk=disk) as journal:
        durable: list[int] = []
        journal.grown.join(WATCH, lambda: durable.append(journal.durable_end))
        first = journal.append([message("a")])[0]
        await wait_all_tasks_blocked()
        second = journal.append([message("b")])[0]
        await wait_all_tasks_blocked()
        assert (len(disk.jobs), journal.durable_end, journal.end) == (1, 0, second.offset + second.size)
        disk.sync()
        await wait_all_tasks_blocked()
        assert journal.durable_end == first.size
        disk.sync()
        await wait_all_tasks_blocked()
        assert journal.durable_end == second.offset + second.size and disk.jobs == []
        assert durable == [0, 0, first.size, journal.end]


async def test_async_flush_waits_for_pages_or_for_long(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    async with running(files) as journal:
        journal.append([message("a")])
        await trio.sleep(9)
        assert journal.log.flushed_offset == 0
        await trio.sleep(2)
        assert journal.log.flushed_offset == journal.end
        journal.append([message("b" * 20_000)])
        await trio.sleep(1)
        assert journal.log.flushed_offset == journal.end


async def test_who_stops_in_order_need_not_wait_until_a_sync_is_due(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    async with running(files) as journal:
        journal.append([message("a")])
        await wait_all_tasks_blocked()
        assert journal.log.flushed_offset < journal.end
        journal.append([message("b")])
        before_s = trio.current_time()
        await journal.sync()
        assert journal.log.flushed_offset == journal.log.max_offset
        assert trio.current_time() - before_s < 0.1
        journal.append([message("c")])
        files.content["commitlog/" + "0" * 20].fault = OSError(errno.EIO, "Input/output error")
        await journal.sync()
        assert journal.failure is not None


async def test_old_files_stay_while_nobody_can_read_whether_they_are_needed(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def fails(_: Needed, offset: int) -> int:
        asked.append(offset)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Needed, "spare", fails)
    async with running() as journal:
        await trio.sleep(25)
        assert len(asked) > 1 and journal.failure is None


async def test_a_failed_sync_is_final_and_told_once(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    async with running(files, SYNC) as journal:
        told: list[StoreFailed] = []
        journal.on_failure.join(WATCH, told.append)
        journal.append([message("a")])
        await wait_all_tasks_blocked()
        durable = journal.durable_end
        file = files.content["commitlog/" + "0" * 20]
        file.fault = OSError(errno.EIO, "Input/output error")
        journal.append([message("b")])
        await wait_all_tasks_blocked()
        file.fault = None
        assert len(told) == 1 and told[0] is journal.failure
        assert journal.durable_end == durable
        for _ in range(2):
            with pytest.raises(StoreFailed, match="Input/output error; restart the broker"):
                journal.append([message("c")])
        await trio.sleep(20)
        assert journal.durable_end == durable and len(told) == 1
    await journal.close()
    assert files.exists("abort"), "the next process recovers"


async def test_a_last_flush_that_fails_is_told_and_releases_the_store(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, unlocked = MemoryFiles(), list[bool]()
    monkeypatch.setattr(MemoryFiles, "unlock", lambda self: unlocked.append(True))
    async with running(files) as journal:
        told: list[StoreFailed] = []
        journal.on_failure.join(WATCH, told.append)
        journal.append([message("a")])
        await wait_all_tasks_blocked()
    files.content["commitlog/" + "0" * 20].fault = OSError(errno.EIO, "Input/output error")
    await journal.close()
    assert len(told) == 1 and told[0] is journal.failure
    assert files.exists("abort") and unlocked == [True]


async def test_a_full_disk_refuses_and_recovers(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as journal:
        journal.append([message("a" * 1_000)])

        def full(self: MemoryFile, offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(MemoryFile, "reserve", full)
            end = journal.log.max_offset
            for _ in range(3):
                with pytest.raises(StoreFull, match="No space left"):
                    journal.append([message("b" * 65_000)])
            assert journal.append([message("c")])[0].offset == end, "what has its room is taken"
        assert journal.append([message("d" * 65_000)])[0].offset == 1 << 16


async def test_a_slaves_log_that_began_without_room_is_durable_up_to_where_it_ends(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has nothing to sync. The slave never acknowledged where its log ends, and its master waited for that."""
    async with running(config=SYNC) as slave:
        def full(self: MemoryFile, offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(MemoryFile, "reserve", full)
            with pytest.raises(StoreFull, match="No space left"):
                slave.append_raw(b"x" * 100, 1 << 16)
        await wait_all_tasks_blocked()
        assert slave.durable_end == slave.end == 1 << 16


async def test_queues_that_cannot_be_written_are_told_later(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    async with running(files) as journal:
        for number in range(1_000):
            journal.append([message(f"m{number}")])
        await wait_all_tasks_blocked()
        broken = [True]

        def hook(what: str) -> None:
            if what in ("write", "resize") and broken[0]:
                raise OSError(errno.ENOSPC, "No space left on device")

        files.hook = hook
        journal.append([message("last")])
        await wait_all_tasks_blocked()
        journal.confirm(journal.end)
        await trio.sleep(12)  # the checkpoint fails as well
        broken[0] = False
        await trio.sleep(12)
        assert bodies(journal) == [*(f"m{number}" for number in range(1_000)), "last"]
        assert journal.failure is None
    await journal.close()
    async with running(files) as again:
        assert len(bodies(again)) == 1_001


async def test_dispatch_leaves_the_loop_to_others_and_tells_of_each_message(autojump_clock: MockClock) -> None:
    config = JournalConfig(dispatch_slice=10)
    async with running(config=config) as journal:
        arrived: list[tuple[bytes, int, int]] = []
        journal.arrived.call = lambda topic, queue_id, offset, code, found: arrived.append((topic, queue_id, offset))
        journal.append([message(f"m{number}", queue_id=number % 2) for number in range(100)])
        await wait_all_tasks_blocked()
        journal.confirm(journal.end)
        turns = 0
        while len(arrived) < 100:
            await trio.lowlevel.checkpoint()
            turns += 1
        assert turns >= 10
        assert arrived == [(b"t", number % 2, number // 2) for number in range(100)]


async def test_a_slaves_bytes_in_any_pieces_and_its_first_message_as_master(autojump_clock: MockClock) -> None:
    async with running() as journal:
        journal.append([message(f"m{number}", queue_id=number % 3) for number in range(600)])
        await wait_all_tasks_blocked()
        raw = b"".join(journal.read(at, 1 << 16) for at in range(0, journal.end, 1 << 16))
    files = MemoryFiles()
    async with running(files) as slave:
        for at in range(0, len(raw), 777):
            slave.append_raw(memoryview(raw)[at : at + 777], at)
            assert slave.end == at + len(raw[at : at + 777]), "at once, so that the next piece follows"
            slave.confirm(slave.end)
            await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()
        assert bodies(slave, queue_id=2) == [f"m{number}" for number in range(2, 600, 3)]
        with pytest.raises(OffsetGone):
            slave.append_raw(b"x", 5)
        assert slave.append([message("mine", queue_id=2)])[0].queue_offset == 200
        slave.truncate(0, everything=True)
        slave.append_raw(raw[:1 << 16], 0)
        cut = slave.end - 5
        slave.truncate(0)
        slave.append_raw(raw[:cut], 0)
        assert slave.durable_end == slave.end == cut
        whole = [found[0] + found[1] for found in journal.log.scan(0) if found[0] + found[1] <= cut][-1]
        assert slave.append([message("behind a part")])[0].offset == whole
        slave.confirm(slave.end)
        await wait_all_tasks_blocked()
        slave.confirm(slave.end)
        await wait_all_tasks_blocked()
        assert bodies(slave)[-1] == "behind a part"
    await slave.close()


async def test_truncation_while_the_disk_is_busy(autojump_clock: MockClock) -> None:
    files, disk = MemoryFiles(), SlowDisk()
    async with running(files, SYNC, disk=disk) as journal:
        puts = journal.append([message(f"m{number}") for number in range(100)])
        await wait_all_tasks_blocked()
        disk.sync()
        journal.confirm(journal.end)
        await trio.sleep(11)
        assert len(disk.steps) == 1, "a checkpoint is under way"
        journal.append([message("never flushed")])
        await wait_all_tasks_blocked()
        assert len(disk.jobs) == 1
        journal.truncate(puts[50].offset)
        journal.append([message("new")])
        await wait_all_tasks_blocked()
        assert journal.durable_end == puts[50].offset < journal.end, "the sync from before counts for nothing"
        disk.sync()
        await wait_all_tasks_blocked()
        journal.confirm(journal.durable_end)
        await wait_all_tasks_blocked()
        assert bodies(journal) == [*(f"m{number}" for number in range(50)), "new"]
    files.crash()
    async with running(files) as again:
        again.confirm(again.end)
        await wait_all_tasks_blocked()
        assert bodies(again) == [*(f"m{number}" for number in range(50)), "new"]


async def test_closing_in_order_and_a_crash_at_once(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    async with running(files) as journal:
        journal.append([message("a")])
        await wait_all_tasks_blocked()
        journal.confirm(journal.end)
        journal.append([message("b")])
    await journal.close()
    assert not files.exists("abort")
    files.crash()
    async with running(files) as again:
        assert again.confirm_offset <= again.end == journal.log.max_offset
        again.confirm(again.end)
        await wait_all_tasks_blocked()
        assert bodies(again) == ["a", "b"]


async def test_what_was_checkpointed_is_not_told_again(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    async with running(files) as journal:
        journal.append([message(f"m{number}") for number in range(10)])
        await wait_all_tasks_blocked()
        journal.confirm(journal.end)
        await trio.sleep(21)  # the log is flushed after 10 s, and checkpoints count on what is
    files.crash()
    async with running(files) as again:
        assert again.visible.offset == again.confirm_offset == again.end


async def test_old_files_go_by_time_and_when_the_disk_is_full(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    now_ms = [1_000_000 * HOUR_MS]
    retention = RetentionConfig(delete_when=";".join(map(str, range(24))), clean_file_forcibly_enable=True)
    async with running(files, JournalConfig(retention=retention), wall_ms=lambda: now_ms[0]) as journal:
        for hour in range(8):
            journal.append([message("x" * 40_000)])
            now_ms[0] += 10 * HOUR_MS
            await trio.sleep(0.2)
            journal.confirm(journal.end)
            assert journal.begin == 0, hour
        await trio.sleep(30)
        assert journal.begin == 0, "the message behind the first file was stored 70 hours ago"
        now_ms[0] += 10 * HOUR_MS
        await trio.sleep(10)
        assert journal.begin == 1 << 16
        assert journal.messages.min_offset(b"t", 0) == 1
        assert len(bodies(journal)) == 7
        files.disk = Space(100, 12)
        await trio.sleep(10)
        assert journal.begin == 2 << 16, "one file would be enough"
        await trio.sleep(60)
        assert journal.begin == 7 << 16, "the last file stays, however full the disk is"
        assert not journal.refusing
        files.disk = Space(100, 9)
        await trio.sleep(10)
        with pytest.raises(StoreFull, match=r"91% full, above diskSpaceWarningLevelRatio \(90%\)"):
            journal.append([message("y")])
        files.disk = Space(100, 30)
        await trio.sleep(10)
        journal.append([message("y")])


@pytest.mark.parametrize("forcibly", [False, True])
async def test_an_old_file_stays_for_what_waits_in_it_and_the_disk_rather_fills(
    forcibly: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture,
) -> None:
    files, waits, asked = MemoryFiles(), [70_000], list[int]()
    retention = RetentionConfig(delete_when=";".join(map(str, range(24))), clean_file_forcibly_enable=forcibly,
                                file_reserved_time=10_000 if forcibly else 0)
    async with running(files, JournalConfig(retention=retention), wall_ms=lambda: 1_000 * HOUR_MS) as journal:
        journal.needed.begin, journal.needed.make_way = lambda: min(waits, default=None), asked.append
        for _ in range(8):
            journal.append([message("x" * 40_000)])
            await trio.sleep(0.2)
            journal.confirm(journal.end)
        files.disk = Space(100 << 16, (1 if forcibly else 30) << 16)
        await trio.sleep(30)
        assert journal.begin == 1 << 16, "the file before it goes"
        assert (journal.needed.kept_back, asked[:2]) == (7 << 16, [7 << 16] * 2), "whoever waits is told"
        assert [record.message for record in caplog.records if "stay from" in record.message] == [
            "old files of the log stay from 70000 on, for timers or transactions that wait in them"], "said once"
        if forcibly:
            with pytest.raises(StoreFull, match=r"99% full.*; 393216 bytes of it are old messages among which timers"):
                journal.append([message("y")])
        waits[:] = [200_000]
        await trio.sleep(10)
        assert journal.begin == 3 << 16
        waits.clear()
        await trio.sleep(10)
        assert (journal.begin, journal.needed.kept_back) == (7 << 16, 0)


async def test_a_topic_that_is_deleted_begins_anew_also_after_a_crash(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    async with running(files) as journal:
        journal.append([message(f"m{number}", topic) for number in range(5) for topic in (b"t", b"u")])
        await wait_all_tasks_blocked()
        journal.confirm(journal.end)
        await wait_all_tasks_blocked()
        assert journal.delete_topics([b"t", b"never"]) == 1
        await trio.sleep(1)
        assert journal.messages.queues() == [(b"u", 0)]
        assert journal.append([message("anew")])[0].queue_offset == 0
        await wait_all_tasks_blocked()
        journal.confirm(journal.end)
        await trio.sleep(20)
    files.crash()
    async with running(files) as again:
        assert (bodies(again), len(bodies(again, b"u"))) == (["anew"], 5)
        for name in [name for name in files.content if name.startswith("consumequeue/")]:
            files.remove(name)
    files.crash()
    async with running(files) as rebuilt:
        rebuilt.confirm(rebuilt.end)
        await wait_all_tasks_blocked()
        assert bodies(rebuilt) == ["anew"], "the later one counts, though the log tells of both"


async def test_the_disk_thread_runs_jobs_between_steps_and_says_what_failed() -> None:
    disk = DiskThread(trio.lowlevel.current_trio_token().run_sync_soon)
    order: list[str] = []
    failed: list[OSError | None] = []
    done = trio.Event()

    def told(error: OSError | None) -> None:
        failed.append(error)
        if len(failed) == 2:
            done.set()

    def steps() -> Steps:
        for number in range(3):
            order.append(f"step {number}")
            if number == 0:
                disk.submit(lambda: order.append("job"), told)
            yield
        raise ValueError("a defect")

    disk.submit_steps(steps(), told)
    await done.wait()  # to settle would let the steps go first
    assert order == ["step 0", "job", "step 1", "step 2"]
    assert failed[0] is None and "ValueError: a defect" in str(failed[1])
    disk.close()
    disk.close()
    disk.settle()


async def test_what_is_much_is_shown_behind_the_answers(autojump_clock: MockClock) -> None:
    async with running() as journal:
        seen: list[tuple[str, int]] = []
        bell = Bell()
        journal.settled.join(WATCH, bell.ring)
        journal.grown.join(WATCH, lambda: journal.confirm(journal.end))

        async def answers() -> None:
            while True:
                await bell.wait()
                seen.append(("answers", len(bodies(journal))))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answers)
            await wait_all_tasks_blocked()
            for count, size, visible in ((3, 9, 3), (40, 900, 3), (40, 900, 43)):
                seen.clear()
                journal.append([message("x" * size) for _ in range(count)])
                await wait_all_tasks_blocked()
                assert seen[0] == ("answers", visible), "little is shown in the turn that writes it"
                assert len(bodies(journal)) == visible + (count if count > 3 else 0)
            nursery.cancel_scope.cancel()


async def test_a_stream_of_puts_does_not_put_off_what_consumers_see(autojump_clock: MockClock) -> None:
    async with running() as journal:
        journal.grown.join(WATCH, lambda: journal.confirm(journal.end))
        for turn in range(20):
            journal.append([message("x" * 900) for _ in range(40)])
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            assert len(bodies(journal)) >= (turn - 1) * 40


async def test_what_was_gathered_is_written_in_the_same_turn(autojump_clock: MockClock) -> None:
    async with running() as journal:
        turns: list[int] = []
        journal.settled.join(WATCH, lambda: turns.append(journal.end))
        for text in "ab":
            journal.before_write(partial(journal.append, [message(text)]))
        await wait_all_tasks_blocked()
        assert turns == [journal.log.max_offset], "one turn for all of it, and none behind it"
        journal.append([message("c")])
        await wait_all_tasks_blocked()
        assert journal.end == journal.log.max_offset > turns[0]


async def test_what_is_gathered_at_the_end_is_not_lost(autojump_clock: MockClock) -> None:
    said: list[str] = []
    async with running() as journal:
        await wait_all_tasks_blocked()
        journal.before_write(lambda: said.append("put"))
    assert said == ["put"]


def dealt(journal: Journal, said: list[str], count: int, took_ns: int = 0) -> list[int]:
    """Work in so many pieces, each of which takes so long; the clock that it goes by."""
    now_ns = [1]

    def piece() -> None:
        said.append("piece")
        now_ns[0] += took_ns
        if said.count("piece") < count:
            journal.soon(piece)

    journal.now_ns = lambda: now_ns[0]
    journal.soon(piece)
    return now_ns


async def test_others_have_a_turn_between_two_pieces_of_work(autojump_clock: MockClock) -> None:
    async with running() as journal:
        said: list[str] = []
        dealt(journal, said, 3)
        while said.count("piece") < 3:
            await trio.lowlevel.checkpoint()
            said.append("other")
        passes = "".join(each[0] for each in said).split("p")
        assert all(passes[1:3])
        assert len(said) < 20


async def test_work_in_pieces_leaves_half_of_the_time_to_who_appends(autojump_clock: MockClock) -> None:
    async with running() as journal:
        said: list[str] = []
        now_ns = dealt(journal, said, 4, took_ns=10)
        while said.count("piece") < 4:
            journal.append([message("m")])
            said.append("appended")
            now_ns[0] += 1
            await trio.lowlevel.checkpoint()
        between = [len(each) for each in "".join(each[0] for each in said).split("p")[1:4]]
        assert all(10 <= count <= 14 for count in between), between
