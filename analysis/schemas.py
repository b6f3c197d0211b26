"""The columns of what the data source gives: one table for each format, from which Spark's and Arrow's schemas come.

Three formats of one log:

``frames``   one row per frame: ``count`` entries of one term, as the leader wrote them at once.
``entries``  one row per entry.
``events``   one row per thing that happened to the log beside commands: elections (no-op frames), memberships, terms
             and votes, truncations, installed snapshots, openings by a new process.

All three hold what lies in the files, in the order of writing: also what was truncated later (``truncated`` is true),
so two rows may have one index. Where bytes are damaged, each format has one row of kind ``damage`` with ``file``,
``offset``, ``damage`` (a code of ``DAMAGE``) and ``reason`` (a sentence), and every other column of it that needs the
bytes is null; ``count(*)`` counts such rows, ``where damage is null`` leaves them out.

Indices and terms are those of the log: from 1 in raft, from 0 in a Java DLedger directory. Columns that a Java DLedger
directory does not record (times, CRCs, write sequences) are null. All numbers are signed 64 bits unless said otherwise.

A moment is there twice, here and in every answer: as a TIMESTAMP ``..._time``, which people read, and behind it as a
number ``..._ms``, ms since 1970 UTC, with which one calculates. A duration is ``..._ms`` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import attrs
import pyarrow as pa

Format = Literal["frames", "entries", "events"]
FORMATS: Final[tuple[Format, ...]] = ("frames", "entries", "events")

KINDS: Final = ("commands", "noop", "membership", "session")
"""Kinds of frames and entries: names of ``raft.frame.Kind`` in lower case."""
DAMAGE_KIND: Final = "damage"

DAMAGE: Final[dict[str, str]] = {
    "crc": "bytes fail their checksum: a flipped bit, a block written over",
    "cut": "the file ends inside its data",
    "chain": "a good block or frame does not continue the one before it",
    "missing": "a segment between others is not there; `file` is where it should be",
    "empty": "a segment that is not the newest has no good first block",
    "foreign": "the file is not of this log, or of no known format",
    "version": "a format version that this build does not read",
    "unreadable": "the file cannot be read; `reason` has the system's words",
}
"""Codes of the column ``damage``."""


@attrs.frozen
class Column:
    """One column: its name, Spark's name of its type, and what it holds (with the unit)."""

    name: str
    type: str
    meaning: str


def _columns(*rows: tuple[str, str, str]) -> tuple[Column, ...]:
    return tuple(Column(*row) for row in rows)


_WHERE: Final = _columns(
    ("cluster", "string", "of the node's identity; empty for a Java DLedger directory, which has none"),
    ("node", "string", "node id, from the directory's identity (Java: the selfId of its name)"),
    ("group", "string", "the group's name where the directory knows it, else its number in decimal"),
    ("group_id", "bigint", "the number that frames carry; null for a Java DLedger directory"),
)

_DAMAGE: Final = _columns(
    ("damage", "string", "null, or what is damaged: a code of DAMAGE"),
    ("reason", "string", "null, or the damage in words"),
)

FRAMES: Final = (
    *_WHERE,
    *_columns(
        ("kind", "string", "commands, noop, membership, session, or damage"),
        ("term", "bigint", "term of the entries"),
        ("index", "bigint", "index of the first entry"),
        ("last_index", "bigint", "index of the last entry"),
        ("count", "int", "entries"),
        ("wall_time", "timestamp", "leader's wall clock when it built the frame; null beyond the year 9999"),
        ("wall_ms", "bigint", "the same, ms since 1970 UTC"),
        ("frame_bytes", "int", "bytes of the whole frame: header, table of lengths, payloads"),
        ("payload_bytes", "int", "bytes of the payloads alone"),
        ("body_crc", "bigint", "CRC-32C of table and payloads, unsigned 32 bits"),
        ("chain", "bigint", "mark of the group's frame before, unsigned 32 bits; 0: not known to its writer"),
        ("mark", "bigint", "CRC-32C of the frame's header: equal marks at one index mean equal logs up to it"),
        ("segment", "bigint", "segment sequence (Java: base offset of the data file)"),
        ("file", "string", "path of the file"),
        ("offset", "bigint", "byte of the file where the frame begins"),
        ("write", "bigint", "write sequence of the frame's block: the order of this node's group commits"),
        ("synced", "bigint", "last write sequence known to be synced when the frame's block was written"),
        ("truncated", "boolean", "a later record of this node cut it off the log, a snapshot replaced it, or it was "
                                 "carried forward: then its copy is not truncated"),
        ("payload", "binary", "table of lengths and payloads, whole or its first bytes; null with payload=none"),
    ),
    *_DAMAGE,
)
"""Columns of ``format=frames``."""

ENTRIES: Final = (
    *_WHERE,
    *_columns(
        ("kind", "string", "commands, noop, membership, session, or damage"),
        ("term", "bigint", "term of the entry"),
        ("index", "bigint", "index of the entry"),
        ("wall_time", "timestamp", "leader's wall clock when it built the entry's frame; null beyond the year 9999"),
        ("wall_ms", "bigint", "the same, ms since 1970 UTC"),
        ("payload_bytes", "int", "bytes of the payload"),
        ("segment", "bigint", "segment sequence (Java: base offset of the data file)"),
        ("offset", "bigint", "byte of the file where the entry's frame begins; entries of one frame share it"),
        ("write", "bigint", "write sequence of the entry's block: the order of this node's group commits"),
        ("truncated", "boolean", "a later record of this node cut it off the log, a snapshot replaced it, or it was "
                                 "carried forward: then its copy is not truncated"),
        ("payload", "binary", "the payload, whole or its first bytes; null with payload=none"),
        ("file", "string", "of damage rows only: path of the file; else null (see segment)"),
    ),
    *_DAMAGE,
)
"""Columns of ``format=entries``. Few and narrow: Spark copies every column of every row."""

EVENTS: Final = (
    *_WHERE,
    *_columns(
        ("kind", "string", "noop, membership, state, hard_state, truncate, install, carried (the node wrote what is "
                           "left of a log once more, so that old segments may go), removed (the group left this node), "
                           "opened, or damage"),
        ("term", "bigint", "noop, membership: of the entry. state, hard_state: the node's own. "
                           "truncate, install, carried: of the last entry kept. opened: null"),
        ("index", "bigint", "noop, membership: of the entry. state: last entry of the log where the segment begins. "
                            "truncate, install: last entry kept (0: none); carried: the entry before those that "
                            "follow once more; else null"),
        ("mark", "bigint", "mark of the frame that ends at `index`; null for hard_state and opened"),
        ("voted_for", "string", "state, hard_state: the vote cast in `term`; null: none"),
        ("wall_time", "timestamp", "noop, membership: leader's wall clock; else null"),
        ("wall_ms", "bigint", "the same, ms since 1970 UTC"),
        ("after_time", "timestamp", "wall clock of the latest frame before it in its segment, of any group; null: "
                                    "none"),
        ("after_ms", "bigint", "the same, ms since 1970 UTC"),
        ("detail", "string", "JSON. noop: how the election was won (cause, rounds, votes, ...), null if it tells "
                             "nothing. membership: voters, outgoing, learners opened: its life number"),
        ("segment", "bigint", "segment sequence (Java: base offset of the data file)"),
        ("file", "string", "path of the file"),
        ("offset", "bigint", "byte of the file where the record begins"),
        ("write", "bigint", "write sequence of its block: the order of this node's group commits"),
        ("truncated", "boolean", "noop, membership: cut off the log later; else false"),
    ),
    *_DAMAGE,
)
"""Columns of ``format=events``. ``opened`` has no group. Java: from ``currterm`` one hard_state, and its no-ops."""

COLUMNS: Final[dict[Format, tuple[Column, ...]]] = {"frames": FRAMES, "entries": ENTRIES, "events": EVENTS}

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
"""Type that Spark calls ``timestamp`` and shows in its session's zone."""
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, which is the last one of Python and of SQL."""


def time_of(column: str) -> str:
    """The name of the timestamp beside a column of milliseconds."""
    return f"{column.removesuffix('_ms')}_time"


def moment(wall_ms: int | None) -> pa.Scalar:
    return pa.scalar(wall_ms * 1_000 if wall_ms is not None and 0 <= wall_ms <= LAST_MS else None, TIMESTAMP)


_ARROW: Final[dict[str, pa.DataType]] = {
    "string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_(), "binary": pa.binary(),
    "timestamp": TIMESTAMP,
}


def arrow_schema(form: Format) -> pa.Schema:
    """The Arrow schema of a format; every column may be null."""
    return pa.schema([pa.field(column.name, _ARROW[column.type]) for column in COLUMNS[form]])


def spark_schema(form: Format, columns: Sequence[str] = ()) -> str:
    """The same as Spark's DDL, the form in which a Python data source tells its schema; ``columns``: only these."""
    types = {column.name: column.type for column in COLUMNS[form]}
    return ", ".join(f"`{name}` {types[name]}" for name in columns or types)
