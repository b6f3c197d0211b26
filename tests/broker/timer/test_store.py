"""What waits is found in its slot, the oldest first, by this process and the next one."""

from __future__ import annotations

import pytest

from broker.store.files import Files, MemoryFile, MemoryFiles
from broker.timer.checkpoint import PATH, TimerCheckpoint
from broker.timer.store import TimerStore
from broker.timer.units import DELETE, MESSAGE, ROLL, Unit
from tests.broker.timer.small import LOG_FILE_BYTES, SLOTS, T0, at, everything, offsets, opened, place_of, put


def test_what_waits_is_found_in_its_slot_the_oldest_first(files: Files) -> None:
    store = opened(files)
    for number in range(40):
        put(store, number % 3 * 7 + 0.9, number * 100)
    assert store.pending == 40
    assert store.count(at(7)) == 13
    assert store.next_slot() == at(0)
    assert offsets(store, 7) == [number * 100 for number in range(40) if number % 3 == 1]
    (first, *_) = store.slot(at(7))
    assert first == Unit(100, 100, 7, MESSAGE, at(7.9), T0, 52)
    assert [unit.offset for unit in store.slot(at(7), after=first.at)] == offsets(store, 7)[1:]
    assert [len(batch) for batch in store.batches(at(7), most=5)] == [0, 5, 5, 3]
    assert offsets(store, 8) == []
    store.done_before(at(7.5))
    assert (store.read_time_ms, store.next_slot(), store.pending) == (at(7), at(7), 26)
    store.done_before(at(8))
    assert (store.next_slot(), store.pending, store.count(at(7))) == (at(14), 13, 0)
    store.done_before(at(2))
    assert store.read_time_ms == at(8), "it never goes back"


def test_the_next_process_finds_all_of_it(files: Files) -> None:
    store = opened(files)
    for number in range(40):
        put(store, number % 3 * 7, number * 100)
    store.done_before(at(3))
    store.flush()
    unflushed = [store.is_unflushed]
    for number in range(40, 50):
        put(store, number % 3 * 7, number * 100)
    unflushed.append(store.is_unflushed)
    store.flush()
    assert unflushed == [False, True]
    wanted = {3: [4_200, 4_500, 4_800],
              7: [number * 100 for number in range(50) if number % 3 == 1],
              14: [number * 100 for number in range(50) if number % 3 == 2]}
    store.close()
    again = TimerStore(files, slots=SLOTS, log_file_bytes=LOG_FILE_BYTES)
    assert again.recover(1 << 40) == ""
    assert (again.queue_offset, again.read_time_ms, again.pending) == (50, at(3), 36)
    assert everything(again) == wanted


@pytest.mark.parametrize("flushed", [0, 1, 12, 29])
def test_the_next_process_enqueues_again_what_was_handed_to_the_system_and_not_flushed(
    files: Files, flushed: int,
) -> None:
    store = opened(files)
    for number in range(30):
        if number == flushed:
            store.flush()
        put(store, number % 3 * 7, number * 100)
    store._log.write()
    store.close()
    again = opened(files)
    assert again.queue_offset == flushed
    for number in range(flushed, 31):
        assert again.insert(at(number % 3 * 7), Unit(number * 100, 100), T0)
    assert everything(again) == {second: [*range(100 * second // 7, 3_100, 300)] for second in (0, 7, 14)}


@pytest.mark.parametrize("flushed", [False, True])
def test_a_marker_that_was_late_for_its_slot_is_in_it_after_a_kill(files: Files, flushed: bool) -> None:
    """A slave heard that its master was further. By the checkpoint the timer's slot is not done."""
    store = opened(files)
    put(store, 2, 0)
    if flushed:
        store.flush()
    store.done_before(at(5))
    store.insert(at(2), Unit(100, 100, kind=MESSAGE | DELETE), T0)
    store.queue_offset += 1
    assert everything(store) == {5: [100]}
    store._log.write()
    store.close()
    again = opened(files)
    assert (again.read_time_ms, again.queue_offset) == (at(0), int(flushed))
    if not flushed:
        put(again, 2, 0)
    again.insert(at(2), Unit(100, 100, kind=MESSAGE | DELETE), T0)
    assert everything(again) == {2: [0, 100]}


def test_what_the_disk_knows_of_the_wheel_is_of_one_moment(files: Files) -> None:
    """Slots that are done wait for the commit log. So do the units that came since, some of them late by such slots."""
    store, flushed = opened(files), 0
    store.commit_log = lambda: (1_000, flushed)
    put(store, 2, 0)
    store.flush()
    store.done_before(at(5))
    store.insert(at(2), Unit(100, 100, kind=MESSAGE | DELETE), T0)
    store.queue_offset += 1
    store.flush()
    store.flush()
    store.close()
    again = opened(files)
    assert (again.read_time_ms, again.queue_offset, everything(again)) == (at(0), 0, {})
    again.close()
    flushed = 1_000
    store = opened(files)
    put(store, 2, 0)
    store.done_before(at(5))
    store.commit_log = lambda: (1_000, flushed)
    store.flush()
    store.close()
    assert (opened(files).read_time_ms, opened(files).queue_offset) == (at(5), 1)


def test_one_that_is_late_waits_in_the_first_slot_that_is_not_done() -> None:
    store = opened(MemoryFiles())
    store.done_before(at(5))
    put(store, 2, 100)
    put(store, 5, 200)
    assert [(unit.offset, unit.slot_ms) for unit in store.slot(at(5))] == [(100, at(5)), (200, at(5))]


def test_what_waits_between_two_slots_is_counted_around_the_end_of_the_wheel() -> None:
    store = opened(MemoryFiles(), begin=at(100))
    due = [100, 101, 101, 127, 128, 159, 160, 161, 200, 259]
    for number, second in enumerate(due):
        put(store, second, 100 * number)
    for first, end in ((0, 300), (100, 101), (101, 128), (128, 160), (159, 161), (160, 259), (201, 259), (259, 999)):
        assert store.count_between(at(first), at(end)) == len([each for each in due if first <= each < end]), first


def test_beyond_the_wheel_there_is_no_slot() -> None:
    store = opened(MemoryFiles())
    assert store.end_ms == at(SLOTS)
    with pytest.raises(ValueError, match="beyond the wheel"):
        store.insert(at(SLOTS), Unit(0, 1), T0)
    put(store, SLOTS - 1, 0)
    store.done_before(at(SLOTS - 1))
    put(store, SLOTS + 3, 100)
    assert everything(store) == {SLOTS - 1: [0], SLOTS + 3: [100]}


def test_deletions_are_taken_off_as_java_counts(files: Files) -> None:
    store = opened(files)
    put(store, 3, 0)
    put(store, 3, 100, kind=MESSAGE | DELETE)
    put(store, 3, 200, kind=MESSAGE | DELETE)
    put(store, 4, 300, kind=MESSAGE | ROLL)
    store.flush()
    for now in (store, opened(files)):
        assert (now.count(at(3)), now.count(at(4)), now.pending) == (-1, 1, 0)
        assert now.next_slot() == at(3)
        assert [unit.deletes for unit in now.slot(at(3))] == [False, True, True]
        assert [unit.rolls for unit in now.slot(at(4))] == [True]


def test_a_log_that_is_cut_takes_wheel_and_timer_log_back(files: Files) -> None:
    store = opened(files)
    for number in range(40):
        put(store, number % 3 * 7, number * 100)
    store.flush()
    store.cut(2_250, place_of)
    assert store.queue_offset == 23
    wanted = {second: [*range(100 * second // 7, 2_250, 300)] for second in (0, 7, 14)}
    again = opened(files, log_end=5_000)
    assert again.queue_offset == 23
    assert everything(again) == wanted
    assert store.insert(at(20), Unit(2_300, 100), T0)
    assert everything(store) == wanted | {20: [2_300]}


def test_a_log_that_lost_its_end_takes_it_back_at_the_start(files: Files) -> None:
    store = opened(files)
    for number in range(40):
        put(store, number % 3 * 7, number * 100)
    store.flush()
    again = TimerStore(files, slots=SLOTS, log_file_bytes=LOG_FILE_BYTES)
    again.recover(2_250, queue_end=23, place_of=lambda offset: None if offset >= 2_250 else place_of(offset))
    assert again.queue_offset == 23
    assert everything(again) == {second: [*range(100 * second // 7, 2_250, 300)] for second in (0, 7, 14)}


def test_a_log_that_begins_anew_leaves_nothing(files: Files) -> None:
    store = opened(files)
    for number in range(40):
        put(store, number % 3 * 7, number * 100)
    store.flush()
    store.cut(0)
    assert (store.pending, store.next_slot(), store.queue_offset, store.done_below) == (0, None, 0, 0)
    assert everything(opened(files)) == {}
    put(store, 3, 0)
    assert everything(store) == {3: [0]}


def test_the_log_is_needed_from_the_oldest_on_that_waits() -> None:
    store = opened(MemoryFiles())
    for number in range(40):
        put(store, number % 4 * 7, number * 100)
    assert store.oldest_offset() == 0
    store.done_before(at(10))
    assert store.pending_below(1_000, 0, 40)[1] is None
    first, following = store.pending_below(1_000, 0, 3)
    assert [unit.offset for unit in first] == [200] and following is not None
    assert [unit.offset for unit in store.pending_below(1_000, following, 40)[0]] == [300, 600, 700]
    assert store.oldest_offset() == 200
    for unit in store.pending_below(1_000, 0, 40)[0]:
        assert store.find(unit.offset) == unit
        store.moved(unit)
    assert store.find(150) is store.find(4_000) is None
    assert store.oldest_offset() == 1_000
    assert store.count(at(14)) == 10 - 2
    assert offsets(store, 14) == list(range(1_000, 4_000, 400))
    store.done_before(at(40))
    assert store.oldest_offset() is None


def test_it_looks_past_some_units_at_a_time() -> None:
    store = opened(MemoryFiles())
    for number in range(40):
        put(store, number % 40, number * 100)
    store.done_before(at(30))
    assert store.oldest_offset(10) == 1_000
    assert store.oldest_offset(10) == 2_000


def test_files_of_the_timer_log_go_when_nothing_in_them_waits(files: Files) -> None:
    store = opened(files)
    for number in range(40):
        put(store, number, number * 100)
    store.done_before(at(22))
    store.oldest_offset()
    store.drop_before(4_000)
    assert store._log.begin == 0, "after a crash all of it waits"
    store.flush()
    store.drop_before(1_250)
    assert files.list("timerlog")[0] == f"{2 * LOG_FILE_BYTES:020d}", "the third file knows a message behind"
    store.drop_before(4_000)
    assert files.list("timerlog")[0] == f"{4 * LOG_FILE_BYTES:020d}", "in the fifth something waits"
    store.flush()
    assert everything(opened(files)) == {second: [100 * second] for second in range(22, 40)}


def test_the_answer_to_code_60_is_what_java_keeps() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, 3, 0)
    store.master_queue_offset, store.state_version, store.timestamp, store.counter = 1, 2, T0, 4
    store.flush()
    body = store.checkpoint().body()
    assert body == b"".join(number.to_bytes(8, "big") for number in (T0, 52, 1, 1, 2, T0, 4))
    assert files.content[PATH].data[:56] == body
    assert TimerCheckpoint.decode(body) is not None


def test_a_flush_that_was_given_up_does_nothing_more() -> None:
    """It was between two steps in its thread when the log was cut."""
    files = MemoryFiles()
    store = opened(files)
    for number in range(20):
        put(store, number % 3, number * 100)
    flush = store.begin_flush()
    steps = flush.steps()
    for _ in range(3):
        next(steps)
    store.cut(500, place_of)
    before = {path: bytes(file.data) for path, file in files.content.items()}
    assert next(steps, "ended") == "ended"
    assert not flush.finished
    store.end_flush(flush)
    assert before == {path: bytes(file.data) for path, file in files.content.items()}
    assert everything(opened(files)) == {0: [0, 300], 1: [100, 400], 2: [200]}


def test_what_a_killed_process_wrote_and_did_not_sync_is_synced_before_anybody_counts_on_it() -> None:
    files = MemoryFiles()
    store = opened(files)
    for number in range(20):
        put(store, number % 3, number * 100)
    store.flush()
    for number in range(20, 40):
        put(store, number % 3, number * 100)
    steps = store.begin_flush().steps()
    while not files.content["timerwheel"].changes:
        next(steps)
    again = opened(files)
    for number in range(again.queue_offset, 40):
        put(again, number % 3, number * 100)
    again.flush()
    files.crash()
    assert everything(opened(files)) == {second: [*range(100 * second, 4_000, 300)] for second in range(3)}


def test_a_flush_that_would_say_only_that_time_passed_is_known() -> None:
    store = opened(MemoryFiles())
    put(store, 7, 100)
    store.done_before(at(2))
    found = {"a timer came": store.only_time_passed}
    store.flush()
    store.done_before(at(5))
    unflushed = [store.is_unflushed]
    found["empty slots are over"] = store.only_time_passed
    store.done_before(at(8))
    found["a slot that held something is over"] = store.only_time_passed
    store.flush()
    assert [*unflushed, store.is_unflushed] == [True, False]
    store.master_queue_offset += 1
    found["its master went on"] = store.only_time_passed
    assert [what for what, only in found.items() if only] == ["empty slots are over"]


def test_what_is_settled_is_in_slots_that_are_done_as_the_disk_says() -> None:
    store = opened(MemoryFiles())
    put(store, 2, 100)
    store.done_before(at(5))
    put(store, 5, 200)
    assert store.settled == (at(0), 0), "what is on disk"
    store.flush()
    assert store.settled == (at(5), 200), "the second one is late perhaps, and waits"
    put(store, 7, 300)
    store.done_before(at(6))
    flush = store.begin_flush()
    store.done_before(at(8))
    put(store, 8, 400)
    assert list(flush.steps()) and store.settled == (at(5), 200)
    store.end_flush(flush)
    assert store.settled == (at(6), 301)
    store.anew("")
    assert store.settled == (0, 0), "all of it comes again"


def test_what_came_late_is_not_done_before_its_slot_is_over() -> None:
    """So a slave that acts does not say it of a timer that its master sent as the last thing."""
    store = opened(MemoryFiles())
    put(store, 2, 100)
    assert (store.done, store.done_place) == ((at(0), 101), 2)
    store.done_before(at(5))
    put(store, 5, 200)
    put(store, 9, 300)
    assert (store.done, store.done_place) == ((at(5), 200), 2), "the one at 5 is late perhaps"
    store.done_before(at(6))
    assert (store.done, store.done_place) == ((at(6), 301), 4)


def test_of_what_a_start_finds_nobody_knows_what_was_late_until_its_time_is_over() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, 2, 100)
    store.flush()
    store.close()
    store = TimerStore(files, slots=SLOTS, log_file_bytes=LOG_FILE_BYTES)
    assert store.recover(1 << 40, now_ms=at(3)) == ""
    for second, below in ((3, 0), (4, 101)):
        store.done_before(at(second))
        store.flush()
        assert store.settled == (at(second), below)


@pytest.mark.parametrize("waits", ["few", "many"])
def test_a_start_reads_through_nothing_that_waits(waits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It samples wheel and timer log, and reads a bounded part of the end: ten million would cost it no more."""
    monkeypatch.setattr("broker.timer.store._AGAIN_MAX", 1_000)
    files, count = MemoryFiles(), 5_000 if waits == "few" else 40_000
    store = TimerStore(files, slots=SLOTS, log_file_bytes=1 << 16)
    store.recover(0)
    store.done_before(T0)
    put(store, 2, 0)
    for number in range(1, count):
        put(store, 10 + number % 140, 100 * number)
    store.flush()
    store.close()
    read, pread = list[int](), MemoryFile.pread

    def counted(file: MemoryFile, size: int, offset: int, *, cached: bool = True) -> bytes:
        found = pread(file, size, offset, cached=cached)
        read.append(len(found))
        return found

    monkeypatch.setattr(MemoryFile, "pread", counted)
    again = TimerStore(files, slots=SLOTS, log_file_bytes=1 << 16)
    assert again.recover(100 * count, place_of=place_of) == ""
    assert (again.pending, again.next_slot(), offsets(again, 2)) == (count, at(2), [0])
    assert again.oldest_offset() == 0
    assert sum(read) < 400_000, "of 260,000 bytes of units, or of two million"
