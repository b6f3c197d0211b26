"""The ledger's file: nothing is said to be kept that a crash takes, and what it tore off is cut."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import trio
from trio.testing import MockClock

from broker.ledger.entries import Entry, Ledger, Mark, Subject, Thing
from broker.ledger.file import PATH, LedgerFile
from broker.store.files import MemoryFile, MemoryFiles
from harness.simulation.worlds.brokers import inline


def thing(number: int) -> Thing:
    return Thing(Subject.OFFSET, f"T@G{number}", 0)


def opened(files: MemoryFiles, run_sync: Callable[..., object] = inline) -> tuple[Ledger, LedgerFile]:
    ledger = Ledger()
    file = LedgerFile(files, run_sync, ledger.whole, slack_bytes=500)  # type: ignore[arg-type]
    for entry in file.load():
        ledger.take(entry)
    return ledger, file


def note(ledger: Ledger, file: LedgerFile, number: int, value: int) -> None:
    entry = ledger.note(thing(number), value)
    if entry is not None:
        file.append(entry)


@pytest.mark.parametrize("seed", range(8))
async def test_what_is_kept_outlives_any_crash(seed: int, autojump_clock: MockClock) -> None:
    rng, files = Random(seed), MemoryFiles()
    sure: dict[int, int] = {}
    marks = [Mark()]
    for _ in range(5):
        ledger, file = opened(files)
        for number, value in sure.items():
            found = ledger.get(thing(number))
            assert found is not None and found >= value
        assert ledger.end >= marks[-1], "terms never go back"
        async with trio.open_nursery() as nursery:
            await nursery.start(file.run)
            for _ in range(rng.randrange(30)):
                number, value = rng.randrange(6), 1 + max(sure.values(), default=0)
                note(ledger, file, number, value)
                if rng.random() < 0.4:
                    await file.kept()
                    sure[number] = value
                    marks.append(ledger.end)
                if rng.random() < 0.05:
                    ledger.forget(ledger.end)
                    sure.clear()
                    file.anew()
                    await file.kept()
            files.crash(lambda size: rng.randrange(size + 1))
            frozen = MemoryFiles()  # what a process that is killed would write at its end is not for this disk
            frozen.content |= files.content
            frozen._durable |= files._durable
            nursery.cancel_scope.cancel()
        files = frozen


async def killed(files: MemoryFiles, at: str, change: Callable[[Ledger, LedgerFile], None]) -> MemoryFiles:
    """Return what a process leaves that is killed before its first operation of this kind for a change."""
    class Killed(Exception):
        pass

    async def ends(work: Callable[[], None]) -> None:
        try:
            work()
        except Killed:
            await trio.sleep_forever()

    ledger, file = opened(files, ends)
    due = [at]

    def hook(what: str) -> None:
        if what in due:
            due.clear()
            raise Killed

    left = MemoryFiles()
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        await file.kept()
        files.hook = hook
        for each in files.content.values():
            each.hook = hook
        change(ledger, file)
        await trio.sleep(1)
        assert not due, "it was killed"
        left.content |= files.content  # a process that is killed writes nothing at its end
        left._durable |= files._durable
        nursery.cancel_scope.cancel()
    for each in left.content.values():
        each.hook = left.hook
    return left


async def said(files: MemoryFiles, number: int) -> MemoryFiles:
    """Return what a process leaves, in any crash, that says this is kept."""
    ledger, file = opened(files)
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        note(ledger, file, number, 7)
        await file.kept()
        nursery.cancel_scope.cancel()
    files.crash()
    return files


@pytest.mark.parametrize(("before", "at"), [(False, "sync_dir"), (True, "write"), (True, "sync")])
@pytest.mark.parametrize("clean", [False, True])
async def test_what_a_killed_process_left_in_memory_is_written_before_it_counts_as_kept(
        before: bool, at: str, clean: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """``clean``: the sync failed, and the next one finds nothing to do."""
    files = await said(MemoryFiles(), 1) if before else MemoryFiles()
    files = await killed(files, at, lambda ledger, file: note(ledger, file, 0, 7))
    sync, left = MemoryFile.sync, files.content[PATH]
    monkeypatch.setattr(MemoryFile, "sync", lambda file: None if file is left and clean else sync(file))
    files.sync_dir("")  # as the store does at each start
    ledger, _ = opened(files)
    assert ledger.get(thing(0)) == (None if at == "write" else 7)
    files = await said(files, 0)  # the client that was not answered says it again
    assert opened(files)[0].get(thing(0)) == 7


async def test_what_a_killed_process_forgot_does_not_come_back_after_it_counts_as_gone(
        autojump_clock: MockClock) -> None:
    def forget(ledger: Ledger, file: LedgerFile) -> None:
        ledger.forget(ledger.end)
        file.anew()

    files = await killed(await said(MemoryFiles(), 0), "sync_dir", forget)
    ledger, file = opened(files)
    assert ledger.get(thing(0)) is None
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        await file.kept()
        nursery.cancel_scope.cancel()
    files.crash()
    assert opened(files)[0].get(thing(0)) is None


async def test_it_is_written_anew_when_most_counts_no_more(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    ledger, file = opened(files)
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        for value in range(1_000):
            note(ledger, file, 0, value)
            await file.kept()
        assert len(files.content[PATH].data) < 700
        nursery.cancel_scope.cancel()
    again, _ = opened(files)
    assert again.get(thing(0)) == 999 and again.end == ledger.end


async def test_it_is_written_anew_off_the_loop_and_not_for_each_that_goes(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    off = anew = 0
    here: list[Entry] = []

    async def elsewhere(work: Callable[[], None]) -> None:
        nonlocal off
        await trio.lowlevel.checkpoint()
        off += 1
        work()
        off -= 1

    to_bytes = Entry.to_bytes

    def written(entry: Entry) -> bytes:
        nonlocal anew
        anew += entry.thing.kind == Subject.END
        if not off:
            here.append(entry)
        return to_bytes(entry)

    monkeypatch.setattr(Entry, "to_bytes", written)
    ledger, file = opened(MemoryFiles(), elsewhere)
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        for number in range(512):
            note(ledger, file, number, 7)
        await file.kept()
        for number in range(512):
            ledger.drop(thing(number))
            file.dropped(len(ledger))
            await trio.sleep(1)
        await file.kept()
        nursery.cancel_scope.cancel()
    assert 8 <= anew <= 12, "each time that half of it went"
    assert len(here) == 512, "each when it was noted"


async def test_what_goes_while_it_is_written_anew_is_not_there_again(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    disk = trio.Event()

    async def slow(work: Callable[[], None]) -> None:
        await disk.wait()
        work()

    ledger, file = opened(files, slow)
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        for number in range(3):
            note(ledger, file, number, 7)
        for number in range(3):
            ledger.drop(thing(number))
            file.anew()
            await trio.sleep(1)
        disk.set()
        await file.kept()
        files.crash(lambda size: 0)
        nursery.cancel_scope.cancel()
    assert [opened(files)[0].get(thing(number)) for number in range(3)] == [None] * 3


async def test_what_is_damaged_is_said_and_cut(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    ledger, file = opened(files)
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        for number in range(3):
            note(ledger, file, number, 7)
            await file.kept()
        nursery.cancel_scope.cancel()
    files.content[PATH].data[-1] ^= 1
    ledger, file = opened(files)
    assert [ledger.get(thing(number)) for number in range(3)] == [7, 7, None]
    assert f"{PATH} is damaged from byte" in caplog.text
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        note(ledger, file, 3, 8)
        await file.kept()
        nursery.cancel_scope.cancel()
    again, _ = opened(files)
    assert [again.get(thing(number)) for number in range(4)] == [7, 7, None, 8]


async def test_a_disk_that_refuses_is_tried_again(autojump_clock: MockClock) -> None:
    failures = [OSError(28, "No space left on device")] * 2

    async def failing(work: Callable[[], None]) -> None:
        await trio.lowlevel.checkpoint()
        if failures:
            raise failures.pop()
        work()

    files = MemoryFiles()
    ledger, file = opened(files, failing)
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        note(ledger, file, 0, 7)
        await file.kept()
        assert not failures and trio.current_time() >= 2
        nursery.cancel_scope.cancel()
    assert opened(files)[0].get(thing(0)) == 7
