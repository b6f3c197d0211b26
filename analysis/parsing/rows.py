"""Columns to Arrow batches, as ``analysis.schemas`` says: frames, entries, events, and damage in each of them.

Batches are bounded in rows and bytes, so a reader's memory is one segment and one batch. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import attrs
import cbor2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.parsing.selection import Selection, frame_mask
from analysis.parsing.tables import Frames, table_of_lengths
from analysis.parsing.walk import Damage, LocalRecord, Walk
from analysis.schemas import DAMAGE_KIND, KINDS, LAST_MS, TIMESTAMP, Format, arrow_schema, moment
from raft.errors import MalformedMessage
from raft.frame import HEADER_BYTES, Kind
from raft.membership import Membership
from raft.storage.blocks import LocalKind, decode_hard_state, decode_position, decode_state

Payload = Literal["none", "prefix", "full"]
ROWS_MAX: Final = 65_536
"""Rows of one batch."""
BATCH_BYTES: Final = 8 << 20
"""Bytes of payload of one batch, unless one frame has more."""

_SCHEMAS: Final = {form: arrow_schema(form) for form in ("frames", "entries", "events")}
_KIND_NAMES: Final = pa.array(("", *KINDS))


@attrs.frozen
class Place:
    """Origin of rows. ``names``: group names by id, where the directory knows them.

    ``shift``: byte of the file at which the part that was read begins.
    """

    cluster: str | None
    node: str | None
    file: str
    segment: int | None
    names: Mapping[int, str] = attrs.field(factory=dict)
    shift: int = 0

    def name_of(self, group: int) -> str:
        return self.names.get(group) or str(group)


@attrs.frozen
class Wanted:
    """Rows and columns that a reader is asked for. ``prefix_bytes`` counts only with ``payload="prefix"``."""

    form: Format = "entries"
    payload: Payload = "none"
    prefix_bytes: int = 64
    selection: Selection = attrs.field(factory=Selection)


def build(form: Format, rows: int, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """A batch of a format; columns that are not given are null, but for ``wall_time``, which ``wall_ms`` gives."""
    schema = _SCHEMAS[form]
    if "wall_ms" in columns:
        columns = {**columns, "wall_time": _times(columns["wall_ms"])}
    made = [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _times(wall_ms: pa.Array) -> pa.Array:
    told = pc.and_(pc.greater_equal(wall_ms, 0), pc.less_equal(wall_ms, LAST_MS))
    return pc.multiply(pc.if_else(told, wall_ms, None), 1_000).cast(TIMESTAMP)


def constant(value: str | int | bool | None, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def batches(
    frames: Frames, found: Walk, damages: Sequence[Damage], place: Place, wanted: Wanted,
) -> Iterator[pa.RecordBatch]:
    """All rows of one segment in one format: the good ones in file order, then the damaged."""
    selection = wanted.selection
    if wanted.form == "events":
        yield from _events(frames, found, place, selection)
    else:
        frames = _selected(frames, place, selection)
        make = _entry_batches if wanted.form == "entries" else _frame_batches
        yield from make(frames, place, wanted)
    if damages and selection.wants_kind(DAMAGE_KIND):
        yield damage_batch(wanted.form, place, damages)


def damage_batch(form: Format, place: Place, damages: Sequence[Damage]) -> pa.RecordBatch:
    """One row for each damage."""
    rows = len(damages)
    have = {field.name for field in _SCHEMAS[form]}
    columns = {
        "cluster": constant(place.cluster, rows, pa.string()),
        "node": constant(place.node, rows, pa.string()),
        "kind": constant(DAMAGE_KIND, rows, pa.string()),
        "segment": constant(place.segment, rows, pa.int64()),
        "file": constant(place.file, rows, pa.string()),
        "offset": pa.array([damage.offset + place.shift for damage in damages], pa.int64()),
        "damage": pa.array([damage.code for damage in damages], pa.string()),
        "reason": pa.array([damage.reason for damage in damages], pa.string()),
    }
    return build(form, rows, {name: column for name, column in columns.items() if name in have})


def _selected(frames: Frames, place: Place, selection: Selection) -> Frames:
    mask = frame_mask(selection, frames.first, frames.last, frames.head["term"], frames.head["wall_ms"])
    if selection.groups is not None or selection.group_ids is not None:
        numbers = np.unique(frames.head["group"])
        kept = [number for number in numbers.tolist() if selection.wants_group(place.name_of(number), number)]
        if len(kept) < len(numbers):
            part = np.isin(frames.head["group"], kept)
            mask = part if mask is None else mask & part
    if selection.kinds is not None:
        codes = [code for code, name in enumerate(KINDS, 1) if name in selection.kinds]
        part = np.isin(frames.head["kind"], codes)
        mask = part if mask is None else mask & part
    return frames if mask is None or mask.all() else frames.take(mask)


def _parts(frames: Frames, rows: np.ndarray, size: np.ndarray) -> Iterator[Frames]:
    """Runs of frames that fit a batch: ``rows`` and ``size`` (bytes) that each of them takes."""
    rows_before, bytes_before = np.concatenate([[0], np.cumsum(rows)]), np.concatenate([[0], np.cumsum(size)])
    start, count = 0, len(frames)
    while start < count:
        stop = min(int(np.searchsorted(rows_before, rows_before[start] + ROWS_MAX, side="right")),
                   int(np.searchsorted(bytes_before, bytes_before[start] + BATCH_BYTES, side="right"))) - 1
        stop = min(max(stop, start + 1), count)
        yield frames.take(slice(start, stop))  # type: ignore[arg-type]
        start = stop


def _strings(frames: Frames, place: Place) -> tuple[pa.Array, pa.Array]:
    """The columns ``group`` and ``kind`` of these frames."""
    numbers, which = np.unique(frames.head["group"], return_inverse=True)
    if len(numbers) == 1:
        groups = constant(place.name_of(int(numbers[0])), len(frames), pa.string())
    else:
        names = pa.array([place.name_of(number) for number in numbers.tolist()], pa.string())
        groups = names.take(pa.array(which))
    kinds = frames.head["kind"]
    if len(kinds) and (kinds == kinds[0]).all():
        return groups, constant(KINDS[int(kinds[0]) - 1], len(frames), pa.string())
    return groups, _KIND_NAMES.take(pa.array(kinds))


def _frame_batches(frames: Frames, place: Place, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    length = frames.head["length"].astype(np.int64)
    taken = {"none": np.zeros_like(length), "prefix": np.minimum(length, wanted.prefix_bytes), "full": length}
    for part in _parts(frames, np.ones(len(frames), np.int64), taken[wanted.payload]):
        head, rows = part.head, len(part)
        group, kind = _strings(part, place)
        body = head["length"].astype(np.int64)
        columns = {
            "cluster": constant(place.cluster, rows, pa.string()), "node": constant(place.node, rows, pa.string()),
            "group": group, "group_id": pa.array(head["group"]), "kind": kind, "term": pa.array(head["term"]),
            "index": pa.array(head["first"]), "last_index": pa.array(part.last),
            "count": pa.array(head["count"].astype(np.int32)), "wall_ms": pa.array(head["wall_ms"]),
            "frame_bytes": pa.array((body + HEADER_BYTES).astype(np.int32)),
            "payload_bytes": pa.array((body - 4 * head["count"].astype(np.int64)).astype(np.int32)),
            "body_crc": pa.array(head["body_crc"].astype(np.int64)), "chain": pa.array(head["chain"].astype(np.int64)),
            "mark": pa.array(head["mark"].astype(np.int64)), "segment": constant(place.segment, rows, pa.int64()),
            "file": constant(place.file, rows, pa.string()), "offset": pa.array(part.offset + place.shift),
            "write": pa.array(part.write), "synced": pa.array(part.synced), "truncated": pa.array(part.truncated),
        }
        if wanted.payload != "none":
            taking = body if wanted.payload == "full" else np.minimum(body, wanted.prefix_bytes)
            columns["payload"] = _sliced(part.data, part.offset + HEADER_BYTES, taking)
        yield build("frames", rows, columns)


def _sliced(data: bytes, start: np.ndarray, length: np.ndarray) -> pa.Array:
    """One piece of ``data`` in each row."""
    pieces = b"".join([data[at : at + size] for at, size in zip(start.tolist(), length.tolist(), strict=True)])
    offsets = np.zeros(len(start) + 1, np.int32)
    np.cumsum(length, out=offsets[1:])
    return pa.BinaryArray.from_buffers(pa.binary(), len(start), [None, pa.py_buffer(offsets), pa.py_buffer(pieces)])


def _entry_batches(frames: Frames, place: Place, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    count = frames.head["count"].astype(np.int64)
    size = frames.head["length"].astype(np.int64) if wanted.payload != "none" else np.zeros(len(frames), np.int64)
    index = wanted.selection.index
    for part in _parts(frames, count, size):
        each = part.head["count"].astype(np.int64)
        rows = int(each.sum())
        lengths = table_of_lengths(part.data, part.offset, each)
        starts = np.cumsum(each) - each
        indices = np.repeat(part.head["first"] - starts, each)
        indices += np.arange(rows, dtype=np.int64)
        group, kind = _strings(part, place)
        which = np.repeat(np.arange(len(part), dtype=np.int32), each)
        spread = _spreader(which, len(part), rows)
        columns = {
            "cluster": constant(place.cluster, rows, pa.string()),
            "node": constant(place.node, rows, pa.string()), "group": _spread_names(group, which, len(part), rows),
            "group_id": spread(part.head["group"]), "kind": _spread_names(kind, which, len(part), rows),
            "term": spread(part.head["term"]), "index": pa.array(indices), "wall_ms": spread(part.head["wall_ms"]),
            "payload_bytes": pa.array(lengths.astype(np.int32)), "segment": constant(place.segment, rows, pa.int64()),
            "offset": spread(part.offset + place.shift), "write": spread(part.write),
            "truncated": spread(part.truncated),
        }
        if wanted.payload != "none":
            columns["payload"] = _payloads(part, each, lengths, wanted)
        batch = build("entries", rows, columns)
        if not index.open:
            batch = batch.filter(pa.array((indices >= index.low) & (indices <= index.high)))
        yield batch


def _spreader(which: np.ndarray, frames: int, rows: int) -> Callable[[np.ndarray], pa.Array]:
    """From a value for each frame to one for each entry."""
    if frames == rows:
        return lambda values: pa.array(np.ascontiguousarray(values))
    return lambda values: pa.array(values[which])


def _spread_names(names: pa.Array, which: np.ndarray, frames: int, rows: int) -> pa.Array:
    if frames == rows:
        return names
    if pc.count_distinct(names).as_py() == 1:
        return pa.repeat(names[0], rows)
    return names.take(pa.array(which))


def _payloads(part: Frames, each: np.ndarray, lengths: np.ndarray, wanted: Wanted) -> pa.Array:
    """The entries' payloads: those of a frame lie together, so this copies once for each frame."""
    data = part.data
    begins = (part.offset + HEADER_BYTES + 4 * each).tolist()
    ends = (part.offset + HEADER_BYTES + part.head["length"].astype(np.int64)).tolist()
    joined = b"".join([data[begin:end] for begin, end in zip(begins, ends, strict=True)])
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    whole = pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(joined)])
    return pc.binary_slice(whole, 0, wanted.prefix_bytes) if wanted.payload == "prefix" else whole


# --- events --------------------------------------------------------------------------------------------------


def _events(frames: Frames, found: Walk, place: Place, selection: Selection) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    wall = frames.head["wall_ms"]
    offsets = frames.offset

    def after_ms(offset: int) -> int | None:
        at = int(np.searchsorted(offsets, offset)) - 1
        return int(wall[at]) if at >= 0 else None

    for kind in (Kind.NOOP, Kind.MEMBERSHIP):
        for at in np.flatnonzero(frames.head["kind"] == kind).tolist():
            head, offset = frames.head[at], int(offsets[at])
            body = frames.data[offset + HEADER_BYTES + 4 : offset + HEADER_BYTES + int(head["length"])]
            rows.append({
                "group_id": int(head["group"]), "kind": kind.name.lower(), "term": int(head["term"]),
                "index": int(head["first"]), "mark": int(head["mark"]), "wall_ms": int(head["wall_ms"]),
                "detail": _noop_detail(body) if kind is Kind.NOOP else _membership_detail(body), "offset": offset,
                "write": int(frames.write[at]), "truncated": bool(frames.truncated[at]),
            })
    for record in found.locals:
        rows.append({
            "group_id": record.group, "kind": record.name, "offset": record.offset, "write": record.write,
            "truncated": False, **_local_values(record)})
    for opening in found.openings:
        rows.append({"kind": "opened", "offset": opening.offset, "write": opening.write, "truncated": False,
                     "detail": json.dumps({"life": opening.life})})
    kept = [row for row in rows if _event_wanted(row, place, selection)]
    kept.sort(key=lambda row: (row["offset"], row["kind"] != "opened"))
    for row in kept:
        number = row.get("group_id")
        row.update(cluster=place.cluster, node=place.node, segment=place.segment, file=place.file,
                   group=None if number is None else place.name_of(number), after_ms=after_ms(row["offset"]))
        row.update(wall_time=moment(row.get("wall_ms")), after_time=moment(row["after_ms"]))
        row["offset"] += place.shift
    for start in range(0, len(kept), ROWS_MAX):
        yield pa.RecordBatch.from_pylist(kept[start : start + ROWS_MAX], schema=_SCHEMAS["events"])


def _event_wanted(row: Mapping[str, Any], place: Place, selection: Selection) -> bool:
    if not selection.wants_kind(row["kind"]):
        return False
    number = row.get("group_id")
    if number is None:
        if selection.groups is not None or selection.group_ids is not None:
            return False
    elif not selection.wants_group(place.name_of(number), number):
        return False
    for bounds, name in ((selection.index, "index"), (selection.term, "term"), (selection.wall_ms, "wall_ms")):
        value = row.get(name)
        if not bounds.open and (value is None or not bounds.meets(value, value)):
            return False
    return True


def _local_values(record: LocalRecord) -> dict[str, Any]:
    try:
        if record.kind is LocalKind.STATE:
            state = decode_state(record.body)
            return {"term": state.hard_state.term, "voted_for": state.hard_state.voted_for, "index": state.last.index,
                    "mark": state.last.mark}
        if record.kind is LocalKind.HARD_STATE:
            hard = decode_hard_state(record.body)
            return {"term": hard.term, "voted_for": hard.voted_for}
        position = decode_position(record.body)
    except MalformedMessage as error:
        return {"kind": DAMAGE_KIND, "damage": "crc",
                "reason": f"a {record.kind.name} record with a good CRC says nothing: {error}"}
    return {"term": position.term, "index": position.index, "mark": position.mark}


def _noop_detail(body: bytes) -> str | None:
    if not body:
        return None
    try:
        return json.dumps(cbor2.loads(body), default=_plain)
    except (ValueError, TypeError, cbor2.CBORError, RecursionError, OverflowError, MemoryError):
        return None


def _membership_detail(body: bytes) -> str | None:
    try:
        found = Membership.decode(body)
    except MalformedMessage:
        return None
    return json.dumps({
        "voters": list(found.voters), "outgoing": list(found.outgoing), "learners": list(found.learners),
        "members": {name: {"address": member.address, "incarnation": member.incarnation.hex(),
                           "priority": member.priority} for name, member in sorted(found.members.items())},
    })


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
