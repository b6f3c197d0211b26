"""Fuzz targets of timers: wheel, units and checkpoint, damaged in any way; messages, handles, what was heard.

The promises are those of ``fuzz.targets``. Of files: the store takes them up, or says in words why it begins anew; what
it gives stands below the end of the log and once in its slot; it takes new timers, and gives all of it back to the next
process.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

from broker.store.files import MemoryFile, MemoryFiles
from broker.timer import units
from broker.timer.checkpoint import TimerCheckpoint
from broker.timer.delivered import Delivered
from broker.timer.handles import Handle
from broker.timer.letters import TOPIC, Letter
from broker.timer.part import HeardUpTo
from broker.timer.store import TimersDamaged, TimerStore
from broker.timer.units import UNIT, UNIT_BYTES, Unit
from fuzz.target import Target
from remoting.errors import BodyError
from remoting.record import Message, encode_properties

_T0: Final = 1_700_000_000_000
_SLOTS: Final = 160
_FILE_BYTES: Final = 4 * UNIT_BYTES + 20
_COUNT: Final = 18
_LOG_END: Final = _COUNT * 100
_HOST: Final = b"\x0a\x00\x00\x01\x00\x00\x2a\x9f"
_Content = dict[str, bytes]


def _made(files: MemoryFiles) -> TimerStore:
    return TimerStore(files, slots=_SLOTS, log_file_bytes=_FILE_BYTES)


@cache
def _directory(java: bool) -> _Content:
    """The last units not flushed; a Java broker's checkpoint says less."""
    files = MemoryFiles()
    store = _made(files)
    store.recover(0)
    store.done_before(_T0)
    for number in range(_COUNT):
        store.insert(_T0 + number % 5 * 1_000, Unit(number * 100, 100, 7), _T0)
        store.queue_offset = number + 1
        if number == _COUNT // 2:
            store.flush()
    store._log.write()
    content = {name: bytes(file.data) for name, file in files.content.items()}
    if java:
        content["config/timercheck"] = content["config/timercheck"][:56].ljust(4096, b"\0")
    return content


def _place_of(offset: int) -> int | None:
    return offset // 100 if 0 <= offset < _LOG_END else None


def _taken_up(files: MemoryFiles) -> TimerStore:
    store = _made(files)
    words = store.recover(_LOG_END, queue_end=_COUNT, place_of=_place_of, now_ms=_T0)
    assert len(words) < 300
    assert store.queue_offset <= _COUNT
    if not store.read_time_ms:
        store.done_before(_T0)
    return store


def _waiting(store: TimerStore) -> dict[int, list[int]]:
    found = {}
    for moment in list(store._wheel.all_pending()):
        of_slot = list(store.slot(moment * 1_000))
        assert all(unit.offset < _LOG_END + 100 for unit in of_slot)
        assert len({unit.at for unit in of_slot}) == len(of_slot) <= 40
        if of_slot:  # of others all have moved
            found[moment] = [unit.offset for unit in of_slot]
    return found


def check_timer_files(data: bytes) -> None:
    """Five bytes each: which file, what to do, where, and with what."""
    content = dict(_directory(bool(data[:1] >= b"\x80")))
    names = sorted(content)
    for at in range(1, min(len(data), 1 + 5 * 12) - 4, 5):
        which, what, high, low, value = data[at : at + 5]
        name = names[which % len(names)]
        raw = bytearray(content.get(name, b""))
        where = min(high << 8 | low, len(raw))
        match what % 8:
            case 0 | 1 | 2:
                if where < len(raw):
                    raw[where] ^= value or 1
            case 3 | 4:
                number = struct.pack(">q", (1 << (value % 62)) - (value >> 6 & 1))
                raw[where : where + 8] = number[: len(raw) - where]
            case 5:
                del raw[where:]
            case 6:
                raw[where : where + value] = bytes(min(value, len(raw) - where))
            case _:
                if value & 1:
                    content.pop(name, None)
                    continue
                content[f"{name[:-1]}{value % 10}"] = bytes(raw)
        content[name] = bytes(raw)
    files = MemoryFiles({name: MemoryFile(bytearray(raw), bytes(raw)) for name, raw in content.items()})
    store = _taken_up(files)
    try:
        _waiting(store)
    except TimersDamaged as damage:
        said = str(damage)
        assert "slot" in said
        store.anew(said)
        assert not _waiting(store)
    slot_ms = store.read_time_ms + 2_000
    if store.insert(slot_ms, Unit(_LOG_END, 100), slot_ms):
        assert [unit.offset for unit in store.slot(slot_ms)][-1] == _LOG_END
    store.oldest_offset()
    before = _waiting(store)
    store.flush()
    store.close()
    again = _made(files)
    assert not again.recover(_LOG_END + 100, now_ms=_T0 + (1 << 40)), "what it wrote is whole"
    assert _waiting(again) == before


def check_timer_units(data: bytes) -> None:
    """What is taken for a unit encodes to the same bytes; a checkpoint to the same values."""
    for at in range(0, len(data) - UNIT_BYTES + 1, UNIT_BYTES):
        fields = UNIT.unpack_from(data, at)
        if units.is_whole(fields, at):
            unit = units.unit_of(fields, at)
            again = UNIT.unpack(units.pack(fields[1], unit, unit.slot_ms, unit.write_time_ms)) \
                if fields[4] > -(1 << 31) else fields
            assert again[:8] == fields[:8]
    found = TimerCheckpoint.decode(data)
    if found is not None:
        assert TimerCheckpoint.decode(found.encode()) == found
        assert found.body() == data[:56]


def _file_seeds() -> list[bytes]:
    return [bytes([mode, which, what, high, 30, 7]) for mode in (0, 0x80) for which in range(len(_directory(False)))
            for what in (0, 3, 5, 6) for high in (0, 1)]


def _unit_seeds() -> list[bytes]:
    content = _directory(False)
    return [content[name] for name in sorted(content) if name.startswith("timerlog")] + [
        content["config/timercheck"][:100]]


def check_letters(data: bytes) -> None:
    """A message of the timers' topic, with any properties: what is delivered of it, or why it can go nowhere; and who
    heard of its delivery."""
    message = Message(TOPIC, b"x", 0, data, born_host=_HOST, store_host=_HOST)
    letter, unit = Letter.of(message), Unit(300, 100)
    assert 0 <= letter.out_ms < 1 << 63
    delivered = Delivered()
    if letter.deletes:
        assert len(letter.key_deleted) == 3
    if not letter.lost:
        made = letter.delivered(unit, _T0)
        assert made.topic == letter.topic.encode() and 0 <= made.queue_id < 1 << 31
        delivered.hear((1_000, 200, 0, 0, made.sys_flag, _T0, made.topic, made.properties))
        assert delivered.has(300, letter.topic, letter.key[1])
        assert delivered.begins(5) == 1_000
    rolled = Letter.of(letter.rolled(unit, _T0))
    assert rolled.topic == letter.topic and rolled.came_again
    assert Letter.of(letter.rolled(unit, _T0, moved=True)).moved_from == 300
    heard = Delivered()
    heard.hear((1_000, 200, 0, 0, 0, _T0, TOPIC, data))
    assert len(heard) in (0, 1)
    heard.pass_to(1 << 62, 1 << 62)
    heard.cut(0)
    assert len(heard) == 0 or heard.begins(5) == 1_000


def check_handles(data: bytes) -> None:
    """The handle of a recall, and ``config/timerHeard.json``."""
    handle = Handle.decode(data.decode("latin-1"))
    if handle is not None:
        assert handle.uniq_key
        assert Handle.decode(handle.encode()) in (handle, None)
    try:
        heard = HeardUpTo.from_json(data)
    except BodyError:
        return
    assert HeardUpTo.from_json(heard.to_json()) == heard


def _letter_seeds() -> list[bytes]:
    values = {"REAL_TOPIC": "T", "REAL_QID": "1", "TIMER_OUT_MS": str(_T0), "UNIQ_KEY": "U", "TIMER_ROLL_TIMES": "2"}
    return [encode_properties(values), encode_properties({**values, "TIMER_DEL_UNIQKEY": "T+U"}),
            encode_properties({**values, "__QUORATE_TIMER": "300", "TIMER_DEQUEUE_MS": str(_T0)})]


TIMER_TARGETS: Final = {
    "timer-letters": Target("broker.timer.letters", check_letters, _letter_seeds),
    "timer-handles": Target("broker.timer.handles", check_handles, lambda: [
        Handle("T", "b", _T0, "U").encode().encode(), HeardUpTo(77).to_json()]),
    "timer-files": Target("broker.timer.store", check_timer_files, _file_seeds),
    "timer-units": Target("broker.timer.units", check_timer_units, _unit_seeds),
}
