"""Decodes a controller group's log to columns: each command, its outcome, and what it changed.

A command's outcome is not in the log: every controller works it out alike while applying. So is it here, by the same
state machine, from the group's one log, which is followed back from the best tip of all replicas by the chain of marks.
A log that no longer begins at its first entry is carried on from the oldest snapshot of any replica that reaches it;
what was before has ``outcome`` null.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from analysis.files.filesystem import Tree
from analysis.schemas import TIMESTAMP, moment
from controller.metadata.codec import FORMAT, FormatTooNew, MalformedCommand, decode
from controller.metadata.commands import AnyCommand, Command, ImportGroups
from controller.metadata.events import Applied, Change, changes
from controller.metadata.groups import GroupKey
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Outcome
from controller.metadata.snapshot import UnreadableSnapshot
from raft.errors import DamagedLog, MalformedMessage
from raft.frame import HEADER_BYTES
from raft.storage.interface import File
from raft.storage.snapshots import read_chunk, read_stored

_ROW: Final = {
    "cluster": "string", "group": "string", "index": "bigint", "term": "bigint", "wall_time": "timestamp",
    "wall_ms": "bigint", "node": "string", "file": "string", "offset": "bigint",
    "what": "string", "is_change": "boolean",
    "broker_cluster": "string", "broker_name": "string", "broker_id": "bigint",
    "outcome": "string", "code": "bigint", "changed": "boolean", "remark": "string",
    "address": "string", "check_code": "string", "trigger": "string", "policy": "string",
    "live": "array<bigint>", "master_lost": "boolean",
    "master": "bigint", "previous": "bigint", "master_epoch": "bigint", "clean": "boolean",
    "sync_state_set": "array<bigint>", "previous_set": "array<bigint>", "sync_state_set_epoch": "bigint",
}
SCHEMA: Final = ", ".join(f"`{name}` {kind}" for name, kind in _ROW.items())
_ARROW: Final = {
    "string": pa.string(), "bigint": pa.int64(), "boolean": pa.bool_(), "array<bigint>": pa.list_(pa.int64()),
    "timestamp": TIMESTAMP}
_ARROW_SCHEMA: Final = pa.schema([(name, _ARROW[kind]) for name, kind in _ROW.items()])
SAMPLES: Final = 8
"""Early frames of a group, and as many from anywhere, that are read to tell whose commands they are."""
SAMPLE_BYTES: Final = 16 << 10
"""Bytes read of each of them, unless its first command is longer."""
_LENGTH: Final = struct.Struct("<I")
_OF_FRAME: Final = ("cluster", "group", "term", "wall_ms", "node", "file", "offset")


def controller_groups(frames: DataFrame) -> list[tuple[str, str, int]]:
    """(cluster, group, group_id) of every group in whose log a controller's command is found.

    One is proof: its bytes hold a known format and kind, a term not above the frame's, and every field of that kind in
    its type. What else was proposed to the group counts for nothing, however much it is, since a controller refuses
    it. Where all is of a later format, most of what is looked at must begin as such commands would. ``frames`` need no
    payloads: this reads a few where they lie.
    """
    place, bucket = F.struct("file", "offset", "count", "term"), F.pmod(F.xxhash64("mark"), F.lit(SAMPLES))
    some = frames.where("kind = 'commands' and damage is null and group_id is not null").groupBy(
        "cluster", "group", "group_id", bucket).agg(
        F.min_by(place, "index").alias("early"), F.min_by(place, F.xxhash64("mark", "index")).alias("any")).groupBy(
        "cluster", "group", "group_id").agg(F.array_distinct(
            F.concat(F.collect_list("early"), F.collect_list("any"))).alias("samples"))
    return sorted((row["cluster"], row["group"], row["group_id"]) for row in some.collect()
                  if _is_controllers(row["samples"]))


def _is_controllers(samples: Iterable[Row]) -> bool:
    later = looked_at = 0
    for file, offset, count, term in samples:
        for payload in _some_of(file, offset, count):
            command = _decoded(payload)
            if command is not None and command.term <= term:
                return True
            looked_at += 1
            later += _is_of_later_format(payload)
    return 2 * later > looked_at


def _some_of(file: str, offset: int, count: int) -> list[bytes]:
    """The first payloads of a frame, one at least; none if the file was purged."""
    directory, name = Tree.holding(file)
    try:
        segment = directory.open(name)
    except OSError:
        return []
    try:
        table = segment.pread(4 * count, offset + HEADER_BYTES)
        ends = list(itertools.accumulate(length for (length,) in _LENGTH.iter_unpack(table)))
        whole = [end for end in ends if end <= SAMPLE_BYTES] or ends[:1]
        data = segment.pread(whole[-1], offset + HEADER_BYTES + 4 * count) if whole else b""
    finally:
        segment.close()
    return [data[begin:end] for begin, end in itertools.pairwise((0, *whole))]


def _is_of_later_format(payload: bytes) -> bool:
    """Return whether it begins as a CBOR list [format, kind, ...] of small numbers, with an unknown format."""
    return len(payload) > 3 and 0x83 <= payload[0] <= 0x97 and FORMAT < payload[1] <= 9 and 1 <= payload[2] <= 23


def history(frames: DataFrame, contents: DataFrame) -> DataFrame:
    """Commands (``is_change`` false) and the changes they made (true) of every controller group, in rows.

    ``frames`` of controller groups, with whole payloads; ``contents``: of their snapshots.
    """
    ordered = _ordered(frames, contents)
    return ordered.sparkSession.createDataFrame(  # by RDD: Spark's way for DataFrames needs pandas
        ordered.rdd.mapPartitions(_replay_groups), SCHEMA, verifySchema=False)


def history_here(frames: DataFrame, contents: DataFrame) -> pa.Table:
    """The same, replayed by this process."""
    rows = _replay_groups(_ordered(frames, contents).collect())
    return pa.Table.from_pylist([dict(zip(_ROW, row, strict=True)) for row in rows], _ARROW_SCHEMA)


def _ordered(frames: DataFrame, contents: DataFrame) -> DataFrame:
    """Each frame once, all of a group together, the first with the contents of its snapshots."""
    wanted = frames.where("damage is null and not truncated").select(
        *_OF_FRAME, "group_id", "kind", "index", "last_index", "count", "chain", "mark", "payload").dropDuplicates(
        ["cluster", "group", "index", "mark"])
    joined = wanted.join(contents.hint("broadcast"), ["cluster", "group_id"], "left")
    first = F.expr("row_number() over (partition by cluster, `group` order by `index`) = 1")
    slim = joined.withColumn("contents", F.when(first, F.col("contents")))  # once per group, not once per frame
    return slim.repartition("cluster", "group").sortWithinPartitions("cluster", "group")


def _replay_groups(rows: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
    """Turn frames into histories, one group after the other."""
    for _, members in itertools.groupby(rows, lambda row: (row["cluster"], row["group"])):
        frames = [row.asDict() for row in members]
        contents = next((frame["contents"] for frame in frames if frame["contents"] is not None), ())
        for found in replay(one_log(frames), contents):
            yield tuple(found.get(name) for name in _ROW)


def one_log(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The group's log out of the frames of all its replicas: back from the tip of the highest term by the chain.

    Where a frame does not know its predecessor (chain 0 or null), the one of highest term that ends there is taken.
    """
    ends: dict[int, list[dict[str, Any]]] = {}
    for frame in frames:
        ends.setdefault(frame["last_index"], []).append(frame)
    if not frames:
        return []
    at = max(frames, key=lambda frame: (frame["term"], frame["last_index"]))
    log = [at]
    while before := ends.get(at["index"] - 1):
        linked = [frame for frame in before if not at["chain"] or frame["mark"] == at["chain"]]
        if not linked:
            break
        at = max(linked, key=lambda frame: frame["term"])
        log.append(at)
    log.reverse()
    return log


def replay(log: list[dict[str, Any]], contents: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """A row per command and per change; a command that was not carried out has ``outcome`` null.

    ``contents``: of the group's snapshots, the oldest first.
    """
    applied: list[Applied] = []
    machine = MetadataMachine(applied.append)
    known = _begin(machine, log, contents)
    for frame in log:
        if frame["kind"] != "commands":
            continue
        of_frame = {**{name: frame[name] for name in _OF_FRAME}, "wall_time": moment(frame["wall_ms"]).as_py()}
        for index, payload in enumerate(_payloads(frame), frame["index"]):
            where = {"index": index, **of_frame}
            if known is None or index <= known:
                yield _command_row(where, _decoded(payload), None)
                continue
            try:
                machine.apply_at(payload, frame["term"])
            except FormatTooNew as error:
                yield {**where, "what": "Unreadable", "is_change": False, "remark": str(error)}
                return
            done = applied.pop()
            yield _command_row(where, done.command, done)
            for change in changes(done):
                yield _change_row(where, change, done)


def _begin(machine: MetadataMachine, log: list[dict[str, Any]], contents: Iterable[bytes]) -> int | None:
    """Up to which entry the machine knows the state now: 0, or what a snapshot covers; None: it cannot know it."""
    if not log:
        return None
    if log[0]["index"] <= 1:
        return 0
    for content in contents:
        file = cast(File, _Bytes(content))  # the file is only read
        try:
            stored = read_stored(file, "snapshot")
            if stored.meta.index + 1 < log[0]["index"]:
                continue
            size, step = stored.meta.size, stored.chunk_bytes
            machine.restore_from(
                read_chunk(file, stored, at // step, min(step, size - at)) for at in range(0, size, step))
        except (DamagedLog, MalformedMessage, UnreadableSnapshot, FormatTooNew):
            continue
        return stored.meta.index
    return None


@attrs.frozen
class _Bytes:
    """A snapshot in memory, for those who read files."""

    content: bytes

    def pread(self, size: int, offset: int) -> bytes:
        return self.content[offset : offset + size]

    def size(self) -> int:
        return len(self.content)


def _payloads(frame: Mapping[str, Any]) -> list[bytes]:
    body, count = frame["payload"], frame["count"]
    out, at = [], 4 * count
    for number in range(count):
        length = int.from_bytes(body[4 * number : 4 * number + 4], "little")
        out.append(body[at : at + length])
        at += length
    return out


def _decoded(payload: bytes) -> AnyCommand | None:
    try:
        return decode(payload)
    except MalformedCommand:
        return None


def _command_row(where: dict[str, Any], command: Command | None, done: Applied | None) -> dict[str, Any]:
    told = {} if command is None else {
        field.name: getattr(command, field.name) for field in attrs.fields(type(command)) if field.name != "term"}
    key = told.get("key")
    live = told["observation"].live if "observation" in told else None
    row = {
        **where, "what": "Unreadable" if command is None else type(command).__name__, "is_change": False,
        "broker_id": told.get("broker_id"), "address": told.get("address"), "check_code": told.get("check_code"),
        "trigger": told["trigger"].name if "trigger" in told else None, "policy": told.get("policy"),
        "master_epoch": told.get("master_epoch"), "sync_state_set_epoch": told.get("sync_state_set_epoch"),
        "sync_state_set": _sorted(told.get("sync_state_set")), "live": None if live is None else sorted(live),
    }
    if isinstance(key, GroupKey):
        row |= {"broker_cluster": key.cluster, "broker_name": key.name}
    if done is not None:
        row |= {"outcome": type(done.outcome).__name__, "code": int(done.outcome.code),
                "changed": done.outcome.changed, "remark": done.outcome.remark or None,
                "clean": getattr(done.outcome, "clean", None), "master": getattr(done.outcome, "master", None),
                "previous": getattr(done.outcome, "previous", None), "master_lost": _lost(done, live)}
    return row


def _lost(done: Applied, live: Mapping[int, object] | None) -> bool | None:
    """Return whether the master was not among the living at the proposal; None: the command does not say."""
    if live is None or len(done.groups) != 1:
        return None
    ((_, before, _),) = done.groups
    return bool(before.sync_state_set) and (before.master is None or before.master not in live)


def _change_row(where: dict[str, Any], change: Change, done: Applied) -> dict[str, Any]:
    told = {field.name: getattr(change, field.name) for field in attrs.fields(type(change))}
    row = {
        **where, "what": type(change).__name__, "is_change": True,
        "broker_cluster": change.key.cluster, "broker_name": change.key.name,
        "broker_id": told.get("broker_id"), "address": told.get("address"), "check_code": _check_code(told, done),
        "master": told.get("master"), "master_epoch": told.get("master_epoch"),
        "sync_state_set": _sorted(told.get("sync_state_set")),
        "sync_state_set_epoch": told.get("sync_state_set_epoch"), "outcome": type(done.outcome).__name__,
    }
    if isinstance(told.get("previous"), frozenset):
        row["previous_set"] = sorted(told["previous"])
    elif isinstance(told.get("previous"), int):
        row["previous"] = told["previous"]
    outcome: Outcome = done.outcome
    if row["what"] == "MasterChanged":
        row["clean"] = getattr(outcome, "clean", None)
    return row


def _check_code(told: Mapping[str, Any], done: Applied) -> str | None:
    """With what a broker that came claimed its id."""
    if isinstance(done.command, ImportGroups) or "address" in told:
        for key, _, after in done.groups:
            if key == told["key"] and told.get("broker_id") in after.replicas:
                return after.replicas[told["broker_id"]].check_code
    return None


def _sorted(ids: frozenset[int] | None) -> list[int] | None:
    return None if ids is None else sorted(ids)
