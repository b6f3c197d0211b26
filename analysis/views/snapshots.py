"""Snapshot files beside the logs: group, index and term are in their names, so that no file is opened for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

import attrs
from pyspark.sql import DataFrame, SparkSession

from analysis.files.filesystem import Tree
from analysis.files.finding import Home
from analysis.schemas import moment
from analysis.small import nothing

SCHEMA: Final = ("cluster string, directory string, group_id bigint, `index` bigint, term bigint, bytes bigint, "
                 "taken_time timestamp, taken_ms bigint, file string")
"""Columns of ``snapshots``, in Spark's DDL."""
CONTENTS: Final = "cluster string, group_id bigint, contents array<binary>"
"""Columns of ``contents``, in Spark's DDL."""
_NAME: Final = re.compile(r"([0-9]+)-([0-9]{20})-([0-9]+)[.]snap")


@attrs.frozen
class Snapshot:
    """Name and header of one finished file."""

    cluster: str
    directory: str
    group_id: int
    index: int
    term: int
    bytes: int
    taken_time: datetime | None
    taken_ms: int
    file: str


def _found(known: Iterable[Home]) -> Iterator[Snapshot]:
    for home in known:
        tree = Tree.of(home.root)
        for entry in tree.entries("snapshots") or ():
            named = _NAME.fullmatch(entry.name)
            if named is not None:
                group, index, term = map(int, named.groups())
                taken = entry.modified_ms
                yield Snapshot(home.cluster, home.root, group, index, term, entry.size, moment(taken).as_py(), taken,
                               tree.path_of(f"snapshots/{entry.name}"))


def snapshots(spark: SparkSession, known: Sequence[Home]) -> DataFrame:
    """One row per finished snapshot beside the logs of ``known``.

    Columns: cluster and ``directory`` of its node, group_id, index, term, bytes, taken_time, taken_ms, file.
    """
    rows = [attrs.astuple(each) for each in _found(known)]
    return spark.createDataFrame(rows, SCHEMA) if rows else nothing(spark, SCHEMA)


def contents(spark: SparkSession, known: Sequence[Home], groups: Collection[tuple[str, int]]) -> DataFrame:
    """The bytes of the snapshots of each of these (cluster, group_id) where there are some, the oldest first."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for each in sorted(_found(known), key=lambda each: each.index):
        if (each.cluster, each.group_id) in groups:
            directory, name = Tree.holding(each.file)
            try:
                found.setdefault((each.cluster, each.group_id), []).append(directory.read(name))
            except FileNotFoundError:
                continue  # a newer snapshot replaced it meanwhile
    rows = [(*key, files) for key, files in found.items()]
    return spark.createDataFrame(rows, CONTENTS) if rows else nothing(spark, CONTENTS)
