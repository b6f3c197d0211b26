"""Files that are gone, cut, of another size or precision, or not each other's: named in words, and made anew."""

from __future__ import annotations

import pytest

from broker.store.files import MemoryFiles
from broker.timer.checkpoint import PATH, OwnFacts, TimerCheckpoint
from broker.timer.store import TimersDamaged, TimerStore
from broker.timer.units import UNIT, Unit
from tests.broker.timer.small import LOG_FILE_BYTES, SLOTS, T0, at, everything, opened, place_of, put

DUE = [number % 7 * 20 + 3 for number in range(60)]
"""Seconds, by place in the queue."""
LATER = {second: [100 * place for place, due in enumerate(DUE) if due == second] for second in sorted({*DUE} - {3})}
"""What waits when the slot of second 3 is done."""
FIRST = f"timerlog/{0:020d}"
SECOND = f"timerlog/{LOG_FILE_BYTES:020d}"


def closed() -> MemoryFiles:
    files = MemoryFiles()
    store = opened(files)
    for place, second in enumerate(DUE):
        put(store, second, 100 * place)
    store.done_before(at(10))
    store.flush()
    return files


def taken_up(files: MemoryFiles, *, precision_ms: int = 1_000, now_ms: int = T0 + 20_000) -> tuple[str, TimerStore]:
    """With the words, and all that the queue has enqueued."""
    store = TimerStore(files, precision_ms=precision_ms, slots=SLOTS * 1_000 // precision_ms,
                       log_file_bytes=LOG_FILE_BYTES)
    words = store.recover(6_000, queue_end=60, place_of=place_of, now_ms=now_ms)
    if not store.read_time_ms:
        store.done_before(T0)
    enqueue(store)
    return words, store


def enqueue(store: TimerStore) -> None:
    while store.queue_offset < 60:
        place = store.queue_offset
        if not store.is_done(place, at(DUE[place])):
            store.insert(at(DUE[place]), Unit(100 * place, 100), T0)
        store.queue_offset += 1


def resized(files: MemoryFiles, path: str, size: int) -> None:
    files.content[path].resize(size)


def test_nothing_is_said_of_files_that_are_whole() -> None:
    words, store = taken_up(closed())
    assert words == ""
    assert everything(store) == LATER


@pytest.mark.parametrize(("path", "words"), [
    ("timerwheel", "timerwheel is not there"),
    (FIRST, "timerlog begins at 280, but config/timercheck says that only units below 0 are done"),
    (SECOND, f"{SECOND} is not there"),
])
def test_a_file_that_is_gone(path: str, words: str) -> None:
    files = closed()
    files.remove(path)
    found, store = taken_up(files)
    assert found == words
    assert everything(store) == LATER
    assert everything(taken_up(files)[1]) == LATER, "and the next process finds it so"


@pytest.mark.parametrize(("path", "size", "words"), [
    ("timerwheel", 100, "timerwheel has 100 bytes, not 5120"),
    ("timerwheel", 5_152, "timerwheel has 5152 bytes, not 5120"),
    (SECOND, 100, f"{SECOND} has 100 bytes, not mappedFileSizeTimerLog, 280"),
    (SECOND, 281, f"{SECOND} has 281 bytes, not mappedFileSizeTimerLog, 280"),
])
def test_a_file_of_another_size(path: str, size: int, words: str) -> None:
    files = closed()
    resized(files, path, size)
    found, store = taken_up(files)
    assert found == words
    assert everything(store) == LATER


def test_without_its_checkpoint_nobody_knows_what_is_done() -> None:
    files = closed()
    files.remove(PATH)
    words, store = taken_up(files)
    assert words == "config/timercheck is not there"
    assert everything(store) == {3: [100 * place for place, due in enumerate(DUE) if due == 3]} | LATER


@pytest.mark.parametrize("damage", [bytes([255]), b"\xff" * 56])
def test_a_damaged_checkpoint(damage: bytes) -> None:
    files = closed()
    files.content[PATH].pwrite(damage, 0)
    words, store = taken_up(files)
    assert words == "config/timercheck is damaged"
    assert len(everything(store)) == 7


def test_a_checkpoint_of_the_future_is_not_believed() -> None:
    files = closed()
    files.content[PATH].pwrite(TimerCheckpoint(T0 + 90_000_000, 52, 1, 1).body(), 0)
    words, store = taken_up(files)
    assert words == (f"config/timercheck is damaged: it says that all is done up to {T0 + 90_000_000} ms, but now "
                     f"is {T0 + 20_000} ms")
    assert len(everything(store)) == 7


def test_a_checkpoint_that_names_no_place() -> None:
    files = closed()
    files.content[PATH].pwrite(TimerCheckpoint(at(10), 53, 60, 60).body(), 0)
    words, store = taken_up(files)
    assert words == "config/timercheck says that timerlog is flushed up to 53, but no unit ends there"
    assert everything(store) == LATER


def test_units_that_were_flushed_and_are_none() -> None:
    files = closed()
    last = max(path for path in files.content if path.startswith("timerlog/"))
    files.content[last].pwrite(bytes(LOG_FILE_BYTES), 0)
    words, store = taken_up(files)
    assert "do not belong together" in words or "is damaged at" in words
    assert everything(store) == LATER


@pytest.mark.parametrize("precision_ms", [100, 500, 2_000])
def test_another_precision_is_said_and_begun_anew(precision_ms: int) -> None:
    files = closed()
    words, store = taken_up(files, precision_ms=precision_ms)
    assert words == f"the files have slots of 1000 ms, but timerPrecisionMs is now {precision_ms}"
    assert sorted(offset for offsets in everything(store).values() for offset in offsets) == sorted(
        offset for offsets in LATER.values() for offset in offsets)


@pytest.mark.parametrize("precision_ms", [100, 2_000])
def test_a_java_wheel_of_another_precision_shows_by_what_is_in_it(precision_ms: int) -> None:
    files = closed()
    files.content[PATH].resize(56)
    words, store = taken_up(files, precision_ms=precision_ms)
    assert words
    assert sum(map(len, everything(store).values())) == sum(map(len, LATER.values()))


def test_a_wheel_of_another_store() -> None:
    files, other = closed(), MemoryFiles()
    store = opened(other)
    for place in range(5):
        put(store, 40, 100 * place)
    store.flush()
    files.content["timerwheel"] = other.content["timerwheel"]
    words, store = taken_up(files)
    assert "do not belong together" in words
    assert everything(store) == LATER


def test_a_chain_that_is_broken_is_found_when_it_is_read() -> None:
    files = closed()
    store = taken_up(files)[1]
    third = [unit.at for unit in store.slot(at(23))][2]
    name = f"timerlog/{third - third % LOG_FILE_BYTES:020d}"
    fields = list(UNIT.unpack(files.content[name].pread(52, third % LOG_FILE_BYTES)))
    fields[4] += 1_000
    files.content[name].pwrite(UNIT.pack(*fields), third % LOG_FILE_BYTES)
    with pytest.raises(TimersDamaged, match=f"leads to {third}, where no unit of it stands"):
        list(store.slot(at(23)))
    store.anew("")
    enqueue(store)
    assert everything(store) == LATER


def test_what_was_late_is_not_taken_for_done_when_all_is_made_anew() -> None:
    files = MemoryFiles()
    store = opened(files)
    store.done_before(at(10))
    put(store, 3, 0)
    store.done_before(at(10))
    assert not store.is_done(0, at(3)), "nothing is done by saying again what is"
    store.flush()
    files.remove("timerwheel")
    again = TimerStore(files, slots=SLOTS, log_file_bytes=LOG_FILE_BYTES)
    assert again.recover(6_000) == "timerwheel is not there"
    assert not again.is_done(0, at(3))
    again.done_before(at(12))
    assert not again.is_done(0, at(3)), "it is not enqueued again yet"
    assert (again.done_below, again.done_ms) == (0, at(12)), "nothing was enqueued before"


def test_until_all_is_enqueued_again_no_more_counts_as_done() -> None:
    store = opened(MemoryFiles())
    for place, second in enumerate(DUE):
        put(store, second, 100 * place)
    store.done_before(at(10))
    store.anew("")
    store.done_before(at(100))
    assert [place for place in range(60) if store.is_done(place, at(DUE[place]))] == [
        place for place in range(60) if DUE[place] == 3]


def test_a_java_store_whose_log_ends_before_what_its_checkpoint_says() -> None:
    """It says how far it enqueued before that is on disk, and a power cut takes the end."""
    files = closed()
    files.content[PATH].pwrite(TimerCheckpoint(at(10), 0, 60, 60).body(), 0)
    for path in sorted(files.content):
        if path.startswith("timerlog/") and path > SECOND:
            files.remove(path)
    resized(files, "timerwheel", 0)
    resized(files, "timerwheel", 5_120)
    store = TimerStore(files, slots=SLOTS, log_file_bytes=LOG_FILE_BYTES)
    assert store.recover(6_000, queue_end=60, place_of=place_of) == ""
    assert store.queue_offset == 0, "it does not know the units that are there"
    enqueue(store)
    assert everything(store) == LATER


def test_after_a_sync_that_failed_nothing_is_claimed_any_more() -> None:
    files = closed()
    store = taken_up(files)[1]
    claimed = bytes(files.content[PATH].data)
    assert store.insert(at(99), Unit(6_100, 100), T0)
    store._log.write()
    log = files.content[max(path for path in files.content if path.startswith("timerlog/"))]
    log.fault = OSError(5, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        store.flush()
    log.fault = None
    doubts = [store.in_doubt]
    store.flush()
    assert bytes(files.content[PATH].data) == claimed
    store.cut(6_050)
    doubts.append(store.in_doubt)
    assert doubts == [True, False], "it is made anew"
    enqueue(store)
    assert everything(store) == LATER


def test_own_facts_of_nobody_are_none() -> None:
    good = TimerCheckpoint(1, 2, 3, 4, own=OwnFacts(1_000, 5, 6)).encode()
    for at_byte in range(92):
        raw = bytearray(good)
        raw[at_byte] ^= 1
        found = TimerCheckpoint.decode(bytes(raw))
        assert found is None or found.own is None, at_byte
