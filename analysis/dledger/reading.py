"""Tasks over a Java DLedger directory: windows of data files with the places of their entries, and rows out of them.

The places come from the store's own index files, checked against every header, so no entry costs a step of Python;
where there is no index, or a wrong one, sizes are followed instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.dledger.layout import (
    ENTRY_BYTES,
    FILLER,
    INDEX,
    INDEX_BYTES,
    chase,
    gather,
    good,
    header,
    parse_properties,
)
from analysis.files.filesystem import ReadFile, Tree
from analysis.files.finding import JAVA_PREFIX, NO_CLUSTER
from analysis.parsing.rows import Place, Wanted, build, constant, damage_batch
from analysis.parsing.selection import Selection, frame_mask
from analysis.parsing.walk import Damage
from analysis.schemas import DAMAGE_KIND, KINDS, arrow_schema

WINDOW_BYTES: Final = 16 << 20
WINDOW_ENTRIES: Final = 32_768
_NAME: Final = re.compile(r"\d{20}")
_KIND_NAMES: Final = pa.array(("", *KINDS))


@attrs.frozen
class DLedgerLog:
    """Data files that a task reads. ``segments``: (offset in the log, bytes) of each; ``last``: of the newest file."""

    root: str
    node: str
    group: str
    segments: tuple[tuple[int, int], ...]
    last: int
    indexes: tuple[tuple[int, int], ...]
    lost: tuple[tuple[str, Damage], ...] = ()
    with_vote: bool = False

    @classmethod
    def plan(cls, tree: Tree, group: str, wanted: Wanted, partition_bytes: int) -> list[DLedgerLog]:
        """The parts of one directory that hold what is wanted, by the first entry of each file."""
        node = tree.name().removeprefix(JAVA_PREFIX)
        group = group or tree.root.rstrip("/").rpartition("/")[0].rpartition("/")[2] or "dledger"
        selection = wanted.selection
        if not selection.wants_node(node) or not selection.wants_group(group, None):
            return []
        files, lost = _files(tree)
        indexes = tuple((int(entry.name), entry.size) for entry in tree.entries("index") or ()
                        if _NAME.fullmatch(entry.name))
        last = files[-1][0] if files else 0
        kept = [files[at] for at in _kept(tree, files, selection)] if wanted.form != "events" else files
        parts: list[DLedgerLog] = []
        run: list[tuple[int, int]] = []
        for each in kept:
            if run and (each[0] != run[-1][0] + run[-1][1] or sum(size for _, size in run) + each[1] > partition_bytes):
                parts.append(cls(tree.root, node, group, tuple(run), last, indexes))
                run = []
            run.append(each)
        if run or lost or not files:
            parts.append(cls(tree.root, node, group, tuple(run), last, indexes))
        if parts:
            parts[0] = attrs.evolve(parts[0], lost=tuple(lost), with_vote=True)
        return parts

    def place(self, tree: Tree, file: str, segment: int) -> Place:
        return Place(NO_CLUSTER, self.node, tree.path_of(file), segment)


def _files(tree: Tree) -> tuple[list[tuple[int, int]], list[tuple[str, Damage]]]:
    found = [(int(entry.name), entry.size) for entry in tree.entries("data") or () if _NAME.fullmatch(entry.name)]
    lost: list[tuple[str, Damage]] = []
    if not found:
        return [], lost
    usual = max(size for _, size in found)
    lost += [(_path(base), Damage(size, "cut", f"the file has {size} bytes where every data file has {usual}"))
             for base, size in found if size != usual]
    for (before, _), (base, _) in pairwise(found):
        if usual and base != before + usual:
            lost.append((_path(before + usual), Damage(0, "missing", "this data file is missing")))
    return found, lost


def _path(base: int) -> str:
    return f"data/{base:020d}"


def _first(tree: Tree, base: int) -> tuple[int, int] | None:
    """(index, term) of the first entry of a file; a filler may hide deleted ones before it."""
    file = tree.open(_path(base))
    try:
        at = 0
        for _ in range(2):
            record = header(file.pread(ENTRY_BYTES, at), 0)
            if record is None:
                return None
            if record[0] != FILLER:
                return record[2], record[3]
            at += record[1]
    finally:
        file.close()
    return None


def _kept(tree: Tree, files: list[tuple[int, int]], selection: Selection) -> Iterator[int]:
    if selection.index.open and selection.term.open:
        yield from range(len(files))
        return
    firsts = [_first(tree, base) for base, _ in files]
    for at, first in enumerate(firsts):
        after = next((each for each in firsts[at + 1 :] if each is not None), None)
        if first is None or (
                selection.index.meets(first[0], after[0] - 1 if after is not None else 1 << 62)
                and selection.term.meets(first[1], after[1] if after is not None else 1 << 62)):
            yield at


@attrs.frozen
class _Window:
    """Entries that lie at ``at`` in ``data``, which begins at byte ``start`` of its file."""

    data: bytes
    start: int
    at: np.ndarray
    heads: np.ndarray


def read_dledger(tree: Tree, work: DLedgerLog, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """All rows of a part, file by file, its damage behind each file."""
    damaged = wanted.selection.wants_kind(DAMAGE_KIND)
    if damaged:
        for file, damage in work.lost:
            yield damage_batch(wanted.form, work.place(tree, file, 0), [damage])
    if wanted.form == "events" and work.with_vote:
        yield from _vote(tree, work, wanted)
    state = _State()
    for base, size in work.segments:
        place = work.place(tree, _path(base), base)
        damages: list[Damage] = []
        state.fresh = state.fresh or state.behind != base
        for window in _windows(tree, work, base, size, damages, state):
            yield from _rows(window, place, work.group, wanted)
        state.behind = base + size
        if damages and damaged:
            yield damage_batch(wanted.form, place, damages)


@attrs.define
class _State:
    """The entry before. ``fresh``: not known, so nothing can be said about the next one."""

    index: int = -1
    term: int = -1
    fresh: bool = True
    behind: int = -1


def _windows(
    tree: Tree, work: DLedgerLog, base: int, size: int, damages: list[Damage], state: _State,
) -> Iterator[_Window]:
    try:
        file = tree.open(_path(base))
    except OSError as error:
        damages.append(Damage(0, "unreadable", str(error)))
        return
    try:
        yield from _file_windows(tree, work, file, base, size, damages, state)
    finally:
        file.close()


def _file_windows(
    tree: Tree, work: DLedgerLog, file: ReadFile, base: int, size: int, damages: list[Damage], state: _State,
) -> Iterator[_Window]:
    index = _Index(tree, work)
    at = 0
    try:
        while at < size:
            record = header(file.pread(ENTRY_BYTES, at), 0)
            if record is not None and record[0] == FILLER:
                at += record[1]
                continue
            if record is None:
                resumed = _resume(file, index, base, size, at, state, newest=base == work.last, damages=damages)
                if resumed is None:
                    return
                at, state.fresh = resumed, True
                continue
            if at + record[1] > size:
                damages.append(Damage(at, "cut", f"entry {record[2]} reaches behind the end of its file"))
                return
            places, sizes = index.places(record[2], base + at, base + size)
            ends = places + sizes - base - at
            keep = max(1, int(np.searchsorted(ends, WINDOW_BYTES, side="right"))) if len(ends) else 0
            length = int(ends[keep - 1]) if keep else min(WINDOW_BYTES, size - at)
            data = file.pread(max(length, record[1]), at)
            if keep:
                offsets = places[:keep] - base - at
                heads = gather(data, offsets)
                fine = good(heads) & (heads["size"] == sizes[:keep])
                taken = keep if fine.all() else int(np.argmin(fine))
                offsets, heads = offsets[:taken], heads[:taken]
            else:
                offsets, _ = chase(data, 0, len(data))
                heads = gather(data, offsets)
            if not len(offsets):
                offsets, heads = np.zeros(1, np.int64), gather(data, np.zeros(1, np.int64))
            _follow(heads, offsets + at, damages, state)
            yield _Window(data, at, offsets, heads)
            at += int(offsets[-1]) + int(heads["size"][-1])
    except OSError as error:
        damages.append(Damage(at, "unreadable", str(error)))


def _follow(heads: np.ndarray, offsets: np.ndarray, damages: list[Damage], state: _State) -> None:
    """Indices rise by one and terms never fall."""
    index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
    before = np.concatenate([[state.index], index[:-1]])
    term_before = np.concatenate([[state.term], term[:-1]])
    wrong = (index != before + 1) | (term < term_before)
    if state.fresh:
        wrong[0] = False
    for at in np.flatnonzero(wrong).tolist():
        damages.append(Damage(int(offsets[at]), "chain", (
            f"entry {index[at]} of term {term[at]} does not continue entry {before[at]} of term {term_before[at]}")))
    state.index, state.term, state.fresh = int(index[-1]), int(term[-1]), False


def _resume(
    file: ReadFile, index: _Index, base: int, size: int, at: int, state: _State, *, newest: bool, damages: list[Damage],
) -> int | None:
    """No good record begins at ``at``: the end of the log, or damage. Where the index knows the next good entry."""
    if not state.fresh or state.index < 0:
        places, sizes = index.places(state.index + 1, base, base + size)
        later = places - base > at
        for place, length in zip(places[later].tolist(), sizes[later].tolist(), strict=True):
            record = header(file.pread(ENTRY_BYTES, place - base), 0)
            if record is not None and record[1] == length:
                damages.append(Damage(at, "crc", "no good entry begins here, but later ones do"))
                return int(place - base)
    if not newest:
        damages.append(Damage(at, "empty" if at == 0 else "crc",
                              "no good entry begins here, and this is not the newest data file"))
    return None


class _Index:
    """The store's index files, as far as they are of use."""

    def __init__(self, tree: Tree, work: DLedgerLog) -> None:
        self._tree, self._files = tree, work.indexes

    def places(self, first: int, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and sizes of consecutive entries from ``first`` on that lie within ``low``..``high``.

        There are none if the index does not tell.
        """
        nothing = np.zeros(0, np.int64), np.zeros(0, np.int64)
        at = first * INDEX_BYTES
        for base, size in self._files:
            if base <= at < base + size:
                break
        else:
            return nothing
        try:
            file = self._tree.open(f"index/{base:020d}")
            try:
                data = file.pread(min(WINDOW_ENTRIES * INDEX_BYTES, base + size - at), at - base)
            finally:
                file.close()
        except OSError:
            return nothing
        records = np.frombuffer(data, INDEX, len(data) // INDEX_BYTES)
        place, length = records["position"].astype(np.int64), records["size"].astype(np.int64)
        due = np.arange(first, first + len(records))
        fine = (records["index"] == due) & (length >= ENTRY_BYTES) & (place >= low) & (place + length <= high)
        fine[1:] &= place[1:] == place[:-1] + length[:-1]
        count = len(fine) if fine.all() else int(np.argmin(fine))
        return place[:count], length[:count]


# --- rows ----------------------------------------------------------------------------------------------------


def _rows(window: _Window, place: Place, group: str, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    heads, at = window.heads, window.at
    index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
    mask = frame_mask(wanted.selection, index, index, term, None)
    if wanted.selection.kinds is not None:
        codes = [code for code, name in enumerate(KINDS, 1) if name in wanted.selection.kinds]
        part = np.isin(heads["magic"], codes)
        mask = part if mask is None else mask & part
    if wanted.form == "events":
        part = np.isin(heads["magic"], (2, 3))
        mask = part if mask is None else mask & part
    if mask is not None:
        heads, at, index, term = heads[mask], at[mask], index[mask], term[mask]
    rows = len(heads)
    if not rows:
        return
    body = heads["body"].astype(np.int64)
    columns: dict[str, pa.Array] = {
        "cluster": constant(place.cluster, rows, pa.string()), "node": constant(place.node, rows, pa.string()),
        "group": constant(group, rows, pa.string()),
        "kind": _KIND_NAMES.take(pa.array(heads["magic"].astype(np.int32))), "term": pa.array(term),
        "index": pa.array(index), "segment": constant(place.segment, rows, pa.int64()),
        "offset": pa.array(at + window.start), "truncated": constant(False, rows, pa.bool_()),
    }
    if wanted.form == "frames":
        columns |= {
            "last_index": columns["index"], "count": constant(1, rows, pa.int32()),
            "frame_bytes": pa.array(heads["size"].astype(np.int32)),
        }
    if wanted.form != "events":
        columns["payload_bytes"] = pa.array(body.astype(np.int32))
        if wanted.payload != "none":
            columns["payload"] = _bodies(window.data, at, body, wanted)
    if wanted.form != "entries":
        columns["file"] = constant(place.file, rows, pa.string())
    yield build(wanted.form, rows, columns)


def _bodies(data: bytes, at: np.ndarray, body: np.ndarray, wanted: Wanted) -> pa.Array:
    """Return every body, by one copy of the window.

    Bodies alternate with the bytes between them (a header, and entries that are not wanted): take every second piece.
    """
    rows = len(at)
    bounds = np.empty(2 * rows, np.int32)
    bounds[::2] = at + ENTRY_BYTES
    bounds[1::2] = bounds[::2] + body
    pieces = pa.BinaryArray.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    bodies = pieces.take(pa.array(np.arange(0, 2 * rows, 2)))
    return pc.binary_slice(bodies, 0, wanted.prefix_bytes) if wanted.payload == "prefix" else bodies


def _vote(tree: Tree, work: DLedgerLog, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Term and vote as ``currterm`` has them."""
    if not wanted.selection.wants_kind("hard_state") or wanted.selection.by_frame:
        return
    try:
        values = parse_properties(tree.read("currterm"))
        term = int(values["currTerm"])
    except (OSError, LookupError, ValueError):
        return
    row: dict[str, Any] = {
        "cluster": NO_CLUSTER, "node": work.node, "group": work.group, "kind": "hard_state", "term": term,
        "truncated": False, "voted_for": values.get("voteLeader") or None, "file": tree.path_of("currterm"),
        "offset": 0, "detail": json.dumps(values, sort_keys=True),
    }
    yield pa.RecordBatch.from_pylist([row], schema=arrow_schema("events"))
