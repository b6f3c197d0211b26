"""In which order things reach the disk, where only a stop at one moment tells: each test stops there."""

from __future__ import annotations

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.store.files import MemoryFiles
from broker.timer.checkpoint import PATH
from broker.timer.log import FOLDER
from broker.timer.part import TimersPart
from broker.timer.store import TimerStore
from broker.timer.units import Unit
from harness.simulation.worlds.brokers import cluster, until
from tests.broker.timer.small import LOG_FILE_BYTES, SLOTS, T0, at, everything, offsets, opened, place_of, put
from tests.broker.timer.test_timers import good


class Stopped(Exception):
    """The process dies."""


class Stop:
    """A ``Hook`` that ends the process at the ``number``-th operation of one kind."""

    def __init__(self, what: str, number: int = 1) -> None:
        self._what, self._left = what, number

    def __call__(self, what: str) -> None:
        self._left -= what == self._what
        if not self._left:
            raise Stopped(what)


def nothing(what: str) -> None:
    """No stop."""


def test_a_start_makes_sure_of_what_the_last_process_deleted() -> None:
    """Killed as it had cut away the second file, and had not synced that. The next one puts another unit where that
    file began; then the machine stops."""
    files = MemoryFiles()
    store = opened(files)
    for number in range(8):
        put(store, 7, 100 * number)
    store.flush()
    files.hook = Stop("sync_dir")
    with pytest.raises(Stopped):
        store.cut(500, place_of)
    files.hook = nothing
    again = opened(files, 500)
    put(again, 7, 550, place=5)
    again._log.write()
    files.crash()
    assert offsets(opened(files, 10_000), 7) == [0, 100, 200, 300, 400], "units of messages that were cut came back"


def test_a_start_makes_sure_of_the_checkpoint_that_it_goes_by() -> None:
    """Killed as it had written the checkpoint, and had not synced it. The next process deletes the file of what is done
    by that checkpoint; then the machine stops."""
    files = MemoryFiles()
    store = opened(files)
    for number in range(8):
        put(store, 2 if number < 5 else 7, 100 * number)
    store.flush()
    store.done_before(at(5))
    assert store.oldest_offset() == 500
    files.content[PATH].hook = Stop("sync")
    with pytest.raises(Stopped):
        store.flush()
    files.content[PATH].hook = nothing
    again = opened(files, begin=at(5))
    again.drop_before(500)
    assert files.list(FOLDER) == [f"{LOG_FILE_BYTES:020d}"]
    files.crash()
    assert everything(opened(files, begin=at(5))) == {7: [500, 600, 700]}


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_what_a_stop_leaves_of_a_deleted_timer_log_lacks_nothing_in_front(stop: int) -> None:
    """A Java broker reads from the first file on."""
    files = MemoryFiles()
    store = opened(files)
    for number in range(14):
        put(store, 7, 100 * number)
    store.flush()
    names = files.list(FOLDER)
    files.hook = Stop("remove", stop + 1)  # the wheel goes first
    with pytest.raises(Stopped):
        store.anew("")
    assert files.list(FOLDER) == names[: len(names) - stop + 1]
    files.hook = nothing
    again = TimerStore(files, slots=SLOTS, log_file_bytes=LOG_FILE_BYTES)
    assert again.recover(1 << 40) == ""
    assert again.queue_offset == 0


def test_a_page_is_kept_while_it_is_written() -> None:
    """Its slots are done, and markers of theirs are looked for."""
    store = opened(MemoryFiles())
    put(store, 3, 100)
    flush = store.begin_flush()
    store.done_before(at(130))
    put(store, 131, 200)
    assert offsets(store, 3) == [100]
    for _ in flush.steps():
        assert offsets(store, 3) == [100]
    store.end_flush(flush)
    assert offsets(store, 3) == [100]
    store.flush()
    assert T0 < store.read_time_ms


def test_messages_that_will_stand_where_the_queue_ended_sooner_are_not_done() -> None:
    """What was done when all was enqueued anew has no unit by which a cut would know."""
    store = opened(MemoryFiles())
    for number in range(3):
        put(store, 7, 100 * number)
    store.done_before(at(9))
    store.anew("")
    while store.queue_offset < 3:
        assert store.is_done(store.queue_offset, at(7))
        store.queue_offset += 1
    store.cut(100, place_of)
    store.queue_ends(1)
    assert (store.queue_offset, store.is_done(0, at(7)), store.is_done(1, at(7))) == (1, True, False)
    assert store.insert(at(7), Unit(100, 100), T0)


async def test_a_log_is_cut_when_its_timers_are_forgotten_and_not_before(
        autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """Else others could come to stand where their messages stood, before the disk lets them be forgotten."""
    async with cluster() as made:
        node = await made.node()
        for number in range(3):
            await good(made, node, uniq=f"U{number}", TIMER_DELAY_SEC=100)
        part, journal = node.broker.parts[TimersPart], node.broker.journal
        await until(lambda: part._store.pending == 3 and not part._store.is_unflushed)
        records = list(journal.log.scan(0))
        file = node.store.content[PATH]
        file.fault = OSError(28, "No space left on device")
        with pytest.raises(OSError, match="No space"):
            journal.truncate(records[1][0])
        assert journal.end == records[2][0] + records[2][1], "it is as it was"
        left = part._store.queue_offset
        part._delivery._enqueueing.ask()
        await wait_all_tasks_blocked()
        assert part._store.queue_offset == left < 3, "nothing comes into a wheel that could not be cut"
        await until(lambda: "cannot be removed yet" in caplog.text)
        file.fault = None
        await until(lambda: part._store.pending == 3 and part._store.queue_offset == 3)
        journal.truncate(records[1][0])
        assert (part._store.pending, part._store.queue_offset, journal.end) == (1, 1, records[1][0])
