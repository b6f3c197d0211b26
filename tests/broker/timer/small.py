"""A small timer store: its files end soon, and its wheel has one page and a bit."""

from __future__ import annotations

from broker.store.files import Files
from broker.timer.store import TimerStore
from broker.timer.units import MESSAGE, Unit

SLOTS = 160
LOG_FILE_BYTES = 52 * 5 + 20
T0 = 1_700_000_000_000


def opened(files: Files, log_end: int = 1 << 40, *, precision_ms: int = 1_000, begin: int = T0) -> TimerStore:
    store = TimerStore(files, precision_ms=precision_ms, slots=SLOTS, log_file_bytes=LOG_FILE_BYTES)
    assert store.recover(log_end, place_of=place_of) == ""
    store.done_before(begin)
    return store


def at(second: float) -> int:
    """A slot so many seconds behind the first."""
    return T0 + int(second * 1_000)


def put(store: TimerStore, second: float, offset: int, *, kind: int = MESSAGE, place: int | None = None) -> None:
    """What an enqueuer does with the message at ``offset``."""
    assert store.insert(at(second), Unit(offset, 100, 7, kind), T0)
    store.queue_offset = offset // 100 + 1 if place is None else place + 1


def offsets(store: TimerStore, second: float) -> list[int]:
    return [unit.offset for unit in store.slot(at(second))]


def place_of(offset: int) -> int:
    """The messages of these tests stand 100 bytes apart."""
    return offset // 100


def everything(store: TimerStore) -> dict[int, list[int]]:
    """Offsets by second; the store is not asked again."""
    found = {}
    while (slot := store.next_slot()) is not None:
        found[(slot - T0) // 1_000] = [unit.offset for unit in store.slot(slot)]
        store.done_before(slot + store.precision_ms)
    return found
