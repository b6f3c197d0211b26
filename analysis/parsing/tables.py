"""Arrays of what a walk has found: headers as columns, order of frames within groups, lengths of entries.

Only numpy over whole segments; a Python step at most for each group and each cut of a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import numpy as np

from analysis.parsing.walk import Damage, Walk
from raft.errors import MalformedMessage
from raft.frame import HEADER_BYTES, Kind
from raft.storage.blocks import LocalKind, Position, decode_position, decode_state

HEADER: Final = np.dtype([
    ("magic", "S4"), ("kind", "u1"), ("flags", "u1"), ("version", "<u2"), ("group", "<i8"), ("term", "<i8"),
    ("first", "<i8"), ("count", "<u4"), ("length", "<u4"), ("wall_ms", "<i8"), ("body_crc", "<u4"), ("chain", "<u4"),
    ("reserved", "<u4"), ("mark", "<u4"),
])
assert HEADER.itemsize == HEADER_BYTES
_KIND_MAX: Final = max(Kind)


@attrs.define
class Cut:
    """A group's log was cut: behind ``index``, or (``whole``) all of it, when a snapshot took its place."""

    index: int
    whole: bool = False

    def join(self, other: Cut) -> None:
        self.index, self.whole = min(self.index, other.index), self.whole or other.whole


Cuts = dict[int, Cut]
"""Cuts that later segments make in the log, by group id."""


@attrs.define(eq=False)
class Frames:
    """Columns of the good frames of a walk, in file order. ``data``: the segment they lie in."""

    data: bytes
    head: np.ndarray
    offset: np.ndarray
    write: np.ndarray
    synced: np.ndarray
    truncated: np.ndarray

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def first(self) -> np.ndarray:
        return self.head["first"]

    @property
    def last(self) -> np.ndarray:
        return self.head["first"] + self.head["count"].astype(np.int64) - 1

    def take(self, which: np.ndarray) -> Frames:
        """Those of a mask or slice or array of positions."""
        return Frames(self.data, self.head[which], self.offset[which], self.write[which], self.synced[which],
                      self.truncated[which])


def cuts_of(found: Walk) -> Cuts:
    """Return the cuts that the records of a walk make in the log before them."""
    cuts: Cuts = {}
    for record in found.locals:
        if record.kind in (LocalKind.TRUNCATE, LocalKind.INSTALL):
            position = _position(record.body)
            if position is not None:
                cut = Cut(position.index, record.kind is LocalKind.INSTALL)
                if record.group in cuts:
                    cuts[record.group].join(cut)
                else:
                    cuts[record.group] = cut
    return cuts


def _position(body: bytes) -> Position | None:
    try:
        return decode_position(body)
    except MalformedMessage:
        return None


def tabulate(data: bytes, found: Walk, later: Mapping[int, Cut]) -> tuple[Frames, list[Damage]]:
    """The frames of a walk as columns, and all damage: the walk's, and what only the frames together show.

    ``later``: what the segments behind this one cut off.
    """
    count = len(found.offsets)
    head = np.frombuffer(b"".join(found.heads), HEADER, count)
    frames = Frames(data, head, np.fromiter(found.offsets, np.int64, count), np.fromiter(found.writes, np.int64, count),
                    np.fromiter(found.synced, np.int64, count), np.zeros(count, bool))
    damages = list(found.damages)
    if not count:
        return frames, damages
    broken = _broken_rules(head)
    if broken.any():
        damages += [Damage(int(frames.offset[at]), "crc", f"the header of frame {int(head['first'][at])} breaks a rule",
                           int(at)) for at in np.flatnonzero(broken)]
    wrong = _wrong_lengths(frames) & ~broken
    if wrong.any():
        damages += [Damage(int(frames.offset[at]), "crc",
                           f"the lengths of frame {int(head['first'][at])} do not add up to its body", int(at))
                    for at in np.flatnonzero(wrong)]
    breaks = _breaks(frames, found, damages)
    damages += breaks
    _mark_truncated(frames, found, later)
    bad = broken | wrong
    if bad.any():
        frames = frames.take(~bad)
    damages.sort(key=lambda damage: damage.offset)
    return frames, damages


def _broken_rules(head: np.ndarray) -> np.ndarray:
    """Mark headers with a good CRC that no writer of this version writes."""
    count, length = head["count"].astype(np.int64), head["length"].astype(np.int64)
    mask: np.ndarray = (
        (head["kind"] < 1) | (head["kind"] > _KIND_MAX) | (head["flags"] != 0) | (head["reserved"] != 0)
        | (head["term"] < 1) | (head["first"] < 1) | (count < 1) | (4 * count > length)
        | ((head["kind"] != Kind.COMMANDS) & (count != 1))
    )
    return mask


def _wrong_lengths(frames: Frames) -> np.ndarray:
    """Frames whose table of lengths does not add up to the body. Single entries at once, others by their sums."""
    count, length = frames.head["count"].astype(np.int64), frames.head["length"].astype(np.int64)
    count = np.where(4 * count > length, 0, count)  # ``_broken_rules`` has reported these already
    lengths = table_of_lengths(frames.data, frames.offset, count)
    starts = np.cumsum(count) - count
    sums = np.zeros(len(count), np.int64)
    held = count > 0
    if held.any():
        sums[held] = np.add.reduceat(lengths, starts[held])
    wrong: np.ndarray = held & (sums + 4 * count != length)
    return wrong


def table_of_lengths(data: bytes, offset: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The lengths of all entries of these frames in one array, in order."""
    starts = np.cumsum(count) - count
    at = np.repeat(offset + HEADER_BYTES - 4 * starts, count)
    at += 4 * np.arange(len(at), dtype=np.int64)
    out = np.empty(len(at), np.int64)
    shift = at & 3
    for each in range(4):  # u32 at any byte: four shifted views, one for each alignment
        here = shift == each
        words = (len(data) - each) // 4
        if words > 0 and here.any():
            out[here] = np.frombuffer(data, "<u4", words, each)[at[here] >> 2]
    return out


def _breaks(frames: Frames, found: Walk, damages: list[Damage]) -> list[Damage]:
    """Good frames that do not continue their group's log. One that follows damage may well not: that is no news."""
    head = frames.head
    count = len(frames)
    order: list[int] = []
    group: list[int] = []
    index: list[int] = []
    mark: list[int] = []
    offset: list[int] = []
    for record in found.locals:
        position = None
        if record.kind is LocalKind.STATE:
            try:
                position = decode_state(record.body).last
            except MalformedMessage:
                continue
        elif record.kind is not LocalKind.HARD_STATE:
            position = _position(record.body)
        if position is not None:
            order.append(record.after_frames)
            group.append(record.group)
            index.append(position.index)
            mark.append(position.mark)
            offset.append(record.offset)
    records = len(order)
    # One sequence of ends of a log over time: a record stands before the frame that it precedes.
    place = np.concatenate([np.array(order, np.int64) * 2, np.arange(count, dtype=np.int64) * 2 + 1])
    groups = np.concatenate([np.array(group, np.int64), head["group"]])
    ends = np.concatenate([np.array(index, np.int64), frames.last])
    marks = np.concatenate([np.array(mark, np.uint32), head["mark"]])
    sort = np.lexsort((place, groups))
    at, before = sort[1:], sort[:-1]
    compare = (groups[at] == groups[before]) & (at >= records)
    at, before = at[compare], before[compare]
    frame = at - records
    chain = head["chain"][frame]
    known = (chain != 0) & (marks[before] != 0)
    wrong = (head["first"][frame] != ends[before] + 1) | (known & (chain != marks[before]))
    if damages and wrong.any():
        holes = np.sort(np.array([damage.offset for damage in damages], np.int64))
        offsets = np.concatenate([np.array(offset, np.int64), frames.offset])
        wrong &= np.searchsorted(holes, offsets[at]) == np.searchsorted(holes, offsets[before])
    return [
        Damage(int(frames.offset[frame[each]]), "chain",
               f"frame {int(head['first'][frame[each]])} does not continue entry {int(ends[before[each]])} of its log",
               int(frame[each]))
        for each in np.flatnonzero(wrong)
    ]


def _mark_truncated(frames: Frames, found: Walk, later: Mapping[int, Cut]) -> None:
    groups, last = frames.head["group"], frames.last
    for number, cut in later.items():
        mask = groups == number
        if not cut.whole:
            mask &= last > cut.index
        frames.truncated |= mask
    for record in found.locals:
        position = _position(record.body) if record.kind in (LocalKind.TRUNCATE, LocalKind.INSTALL) else None
        if position is not None:
            here = slice(0, record.after_frames)
            mask = groups[here] == record.group
            if record.kind is LocalKind.TRUNCATE:
                mask &= last[here] > position.index
            frames.truncated[here] |= mask


