"""Keeps, beside a log, how far it reached: so a log whose end rotted is not taken for one that never was longer.

A small file, ``mark``: one sector per group, written after a sync and not synced itself. A killed process leaves it
exact; after a power cut it may trail the log, and is never ahead of it. What it says that is not there is a lapse,
which is kept, synced, until the group has given it again. Layout: ``docs/reference/storage-format.md``.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs
from google_crc32c import value as crc32c

from raft.messages import WHOLE, HardState, Lapse
from raft.storage.blocks import Position
from raft.storage.catalog import Catalog
from raft.storage.interface import File, Files
from raft.storage.trouble import FULL

NAME: Final = "mark"
SLOT_BYTES: Final = 512
"""A sector: written whole or not at all."""
AT_ONCE: Final = 8
"""Groups whose marks are written after one sync; those of others follow with the next."""
_MAGIC: Final = b"QRm1"
_CRC: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<4sI")
"""Magic, CRC of the body."""
_BODY: Final = struct.Struct("<QQQQQQQQIBBH")
"""The body of a slot; the vote follows it.

Owner, group, write sequence, index, term, term of the hard state, lapse's index and term, mark of the entry, whether
there is a vote, number of lives that the group was told of, bytes of the vote."""
_LIFE: Final = struct.Struct("<Q")
"""One life. Lives stand behind the vote with a CRC of their own: builds that know no lives read all the rest."""


@attrs.define
class Slot:
    """One group: where its log ended, synced, at this write; term and vote; what it is known to have lost."""

    offset: int
    sequence: int = 0
    last: Position = attrs.field(factory=Position)
    hard_state: HardState = attrs.field(factory=HardState)
    lapse: Lapse = WHOLE


class Mark:
    """The file. ``owner`` tells it from one of another directory."""

    def __init__(self, files: Files, owner: int) -> None:
        self._files, self._owner = files, owner
        self._file: File | None = None
        self._slots: dict[int, Slot] = {}
        self.touched: set[int] = set()
        """Groups whose logs changed since their marks were written."""
        self._due = False
        """Something in the file is to be synced."""
        self._nameless = False
        """Its name may not be on the disk yet."""

    def load(self) -> None:
        """Take up what an earlier life left. What cannot be read says nothing."""
        self._nameless = NAME not in self._files.list("")
        self._file = file = self._files.open(NAME, create=self._nameless)
        for offset in range(0, file.size(), SLOT_BYTES):
            data = file.pread(SLOT_BYTES, offset)
            if len(data) < _HEAD.size + _BODY.size:
                break
            magic, crc = _HEAD.unpack_from(data)
            owner, group, sequence, index, term, hard_term, lost, lost_term, mark, voted, lives, length = (
                _BODY.unpack_from(data, _HEAD.size))
            end = _HEAD.size + _BODY.size + length
            body = data[_HEAD.size : end]
            if magic != _MAGIC or crc32c(body) != crc or owner != self._owner:
                continue
            vote = body[_BODY.size :].decode("utf-8", "replace") if voted else None
            self._slots[group] = Slot(
                offset, sequence, Position(index, term, mark), HardState(hard_term, vote),
                Lapse(lost, lost_term, _told(data[end : end + _CRC.size + lives * _LIFE.size])))

    def judge(self, catalog: Catalog, sequence: int, snapshots: dict[int, int]) -> dict[int, HardState]:
        """Compare with what recovery found, whose last good block is ``sequence``; returns terms and votes it lost.

        ``snapshots``: index of the newest one of each group. Entries that one covers are not lost.
        """
        forgotten = {}
        for number, slot in self._slots.items():
            if slot.sequence <= sequence:
                continue
            group = catalog.group(number)
            if group.last != slot.last and snapshots.get(number, 0) < slot.last.index:
                slot.lapse = max(
                    slot.lapse, Lapse(max(1, slot.last.index), slot.last.term, slot.lapse.told), key=_reach)
            known, found = slot.hard_state, group.hard_state
            if (known.term, known.voted_for is not None) > (found.term, found.voted_for is not None):
                forgotten[number] = known
            slot.sequence = sequence  # other blocks get these numbers from here on
            self._put(number, slot)
            self._due = True
        if self._due:
            self.sync()
        return forgotten

    def lapse(self, number: int) -> Lapse | None:
        """Return what this group is known to have lost; None: nothing."""
        slot = self._slots.get(number)
        return slot.lapse if slot is not None and slot.lapse.index else None

    def told(self, number: int) -> tuple[int, ...]:
        """Lives that this group was told of."""
        slot = self._slots.get(number)
        return slot.lapse.told if slot is not None else ()

    def keep_lapse(self, number: int, lapse: Lapse) -> None:
        """Note a lapse, which the next ``keep`` writes."""
        self._slot(number).lapse = lapse
        self.touched.add(number)
        self._due = True

    def keep(self, catalog: Catalog, sequence: int) -> None:
        """The log is synced up to write ``sequence``."""
        touched = self.touched
        if self._file is None:
            return
        for number in tuple(touched) if len(touched) <= AT_ONCE or self._due else tuple(touched)[:AT_ONCE]:
            touched.discard(number)
            group, slot = catalog.group(number), self._slots.get(number) or self._slot(number)
            slot.sequence, slot.last, slot.hard_state = sequence, group.last, group.hard_state
            self._put(number, slot)
        if self._due:
            self.sync()

    def sync(self) -> None:
        """Make what was written so far durable. Needed only with a new segment, and when a lapse begins or ends."""
        assert self._file is not None
        self._file.sync()
        if self._nameless:
            self._files.sync_dir("")
        self._due = self._nameless = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _slot(self, number: int) -> Slot:
        slot = self._slots.get(number)
        if slot is None:
            taken = {each.offset for each in self._slots.values()}
            slot = self._slots[number] = Slot(next(at for at in range(0, len(taken) * SLOT_BYTES + 1, SLOT_BYTES)
                                                   if at not in taken))
        return slot

    def _put(self, number: int, slot: Slot) -> None:
        assert self._file is not None
        (index, term, mark), (lost, lost_term) = slot.last, (slot.lapse.index, slot.lapse.term)
        voted_for = slot.hard_state.voted_for
        vote = b"" if voted_for is None else voted_for.encode()
        told = slot.lapse.told
        body = _BODY.pack(self._owner, number, slot.sequence, index, term, slot.hard_state.term, lost, lost_term, mark,
                          voted_for is not None, len(told), len(vote)) + vote
        buffers = [_HEAD.pack(_MAGIC, crc32c(body)), body]
        if told:
            lives = b"".join(map(_LIFE.pack, told))
            buffers += [_CRC.pack(crc32c(lives)), lives]
        try:
            self._file.pwrite(buffers, slot.offset)
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.touched.add(number)  # there was no room: this mark is written later


def _told(data: bytes) -> tuple[int, ...]:
    """Return the lives that a slot's data tells; none if the data is damaged, as the group is then told of them
    again."""
    lives = data[_CRC.size :]
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != crc32c(lives):
        return ()
    return tuple(life for (life,) in _LIFE.iter_unpack(lives))


def _reach(lapse: Lapse) -> tuple[int, int]:
    return lapse.term, lapse.index
