"""Options of the data source: names, defaults, what they mean, and the errors for wrong ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import attrs
import pyarrow as pa

from analysis.errors import BadOption, NothingToRead
from analysis.parsing.rows import Payload, Wanted
from analysis.parsing.selection import Selection
from analysis.schemas import COLUMNS, FORMATS, Format

PAYLOADS: Final = ("none", "prefix", "full")
OPTIONS: Final[dict[str, tuple[str, str]]] = {
    "path": ("", "a directory to search for logs; `load(path)` and `load([path, ...])` set it"),
    "format": ("entries", "frames, entries or events"),
    "columns": ("", "only these columns, separated by commas: every one costs Spark time for every row"),
    "payload": ("none", "none, prefix or full: how much of the column `payload` to read"),
    "prefix_bytes": ("64", "bytes of each payload with payload=prefix"),
    "nodes": ("", "only these node ids, separated by commas"),
    "groups": ("", "only these groups (names, or numbers where no name is known), separated by commas"),
    "min_index": ("", "only frames and entries with this index or a later one"),
    "max_index": ("", "only frames and entries with this index or an earlier one"),
    "min_term": ("", "only of this term or a later one"),
    "max_term": ("", "only of this term or an earlier one"),
    "since_ms": ("", "only frames and entries whose leader's clock said this or later, ms since 1970 UTC"),
    "until_ms": ("", "only frames and entries whose leader's clock said this or earlier, ms since 1970 UTC"),
    "clock_slack_ms": ("60000", "how far leaders' clocks may be apart: segments are left out by time with this margin"),
    "prune": ("footers", "footers: leave out segments whose footer says that the log had nothing wanted there, with "
                         "which rows that were truncated before the segment was sealed may be left out too; never"),
    "partition_mb": ("64", "megabytes of segments for each partition; one segment at least"),
    "dledger_group": ("", "the group of Java DLedger directories, which do not record it; default: the name of the "
                          "directory above"),
    "metrics": ("", "a directory: every task leaves a small JSON file there with what it read"),
    "max_mb_per_batch": ("256", "streaming: megabytes of new log in one micro-batch, over all nodes"),
    "start": ("earliest", "streaming: earliest, or latest for what is written from now on"),
}
"""Default and meaning of each option by its name. Names ignore case."""


@attrs.frozen
class Options:
    """Options of a reader that were found valid."""

    paths: tuple[str, ...]
    wanted: Wanted
    columns: tuple[str, ...]
    clock_slack_ms: int
    prune: bool
    partition_bytes: int
    dledger_group: str
    metrics: str
    max_bytes_per_batch: int
    latest: bool

    def cut(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``rows`` with the columns that are wanted."""
        return (batch.select(self.columns) for batch in rows) if self.columns else iter(rows)


def parted(text: str) -> tuple[str, str]:
    """``NAME=VALUE``, as a command takes it. Raises ``BadOption``."""
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise BadOption(f"{text!r}: NAME=VALUE is due")
    return name, value


def parse_options(given: Mapping[str, str]) -> Options:
    """Raises ``BadOption``, and ``NothingToRead`` if no path is given."""
    values = {name.lower(): value for name, value in given.items()}
    paths = _paths(values.pop("path", ""), values.pop("paths", ""))
    if unknown := sorted(values.keys() - OPTIONS.keys()):
        raise BadOption(f"unknown option {unknown[0]!r} of the data source raftlog; it knows {', '.join(OPTIONS)}")

    def text(name: str) -> str:
        return values.get(name, "") or OPTIONS[name][0]

    def number(name: str, least: int = 0) -> int | None:
        value = text(name)
        if not value:
            return None
        try:
            found = int(value)
        except ValueError:
            raise BadOption(f"option {name}={value!r}: a whole number is due") from None
        if found < least:
            raise BadOption(f"option {name}={found}: {least} or more is due")
        return found

    def sure(name: str, least: int) -> int:
        return cast(int, number(name, least))

    def choice(name: str, known: tuple[str, ...]) -> str:
        value = text(name)
        if value not in known:
            raise BadOption(f"option {name}={value!r}: one of {', '.join(known)} is due")
        return value

    def names(name: str) -> frozenset[str] | None:
        return frozenset(each.strip() for each in text(name).split(",") if each.strip()) or None

    selection = Selection(nodes=names("nodes"), groups=names("groups"))
    selection.index.narrow(number("min_index"), number("max_index"))
    selection.term.narrow(number("min_term"), number("max_term"))
    selection.wall_ms.narrow(number("since_ms"), number("until_ms"))
    wanted = Wanted(cast(Format, choice("format", FORMATS)), cast(Payload, choice("payload", PAYLOADS)),
                    sure("prefix_bytes", 1), selection)
    known = [column.name for column in COLUMNS[wanted.form]]
    columns = tuple(dict.fromkeys(each.strip() for each in text("columns").split(",") if each.strip()))
    if strange := [name for name in columns if name not in known]:
        raise BadOption(f"option columns: format={wanted.form} has no column {strange[0]!r}; it has {', '.join(known)}")
    return Options(
        paths, wanted, columns, sure("clock_slack_ms", 0), choice("prune", ("footers", "never")) == "footers",
        sure("partition_mb", 1) << 20, text("dledger_group"), text("metrics"), sure("max_mb_per_batch", 1) << 20,
        choice("start", ("earliest", "latest")) == "latest")


def _paths(one: str, many: str) -> tuple[str, ...]:
    found: list[Any] = [one] if one else []
    if many:
        try:
            found += json.loads(many)
        except ValueError:
            found.append(many)
    if not found:
        raise NothingToRead('no path: spark.read.format("raftlog").load("/data/raft")')
    return tuple(map(str, found))
