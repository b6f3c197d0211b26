"""``spark.read.format("raftlog")``: the seam between Spark's Python data source API and what plans and reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from analysis.dledger.reading import DLedgerLog, read_dledger
from analysis.files.filesystem import Tree
from analysis.files.finding import find_logs
from analysis.schemas import spark_schema
from analysis.source import metrics
from analysis.source.options import Options, parse_options
from analysis.source.planning import Range, open_log, plan
from analysis.source.pushdown import push
from analysis.source.reading import Reader

NAME = "raftlog"
Work = Range | DLedgerLog


class Part(InputPartition):
    """Work of one task. ``value`` is a tuple of pieces of work."""

    def __init__(self, value: tuple[Work, ...]) -> None:
        super().__init__(value)


class RaftLogSource(DataSource):
    """Raft logs, and those of Java's DLedger, as tables. See ``analysis.schemas`` and ``analysis.source.options``."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        options = parse_options(dict(self.options))
        return spark_schema(options.wanted.form, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return RaftLogReader(parse_options(dict(self.options)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from analysis.source.stream import RaftLogStream

        return RaftLogStream(parse_options(dict(self.options)))


@attrs.define(eq=False)
class RaftLogReader(DataSourceReader):
    """Plans in Spark's planner process, reads in its workers."""

    options: Options

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows what is read; Spark still checks every filter, since segments hold more than what matches."""
        push(self.options.wanted.selection, filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        work: list[Work] = []
        planned = 0
        for found in find_logs(options.paths):
            if found.java:
                work += DLedgerLog.plan(found.tree, options.dledger_group, options.wanted, options.partition_bytes)
            else:
                log = open_log(found)
                work += plan(log, found.tree, options.wanted, clock_slack_ms=options.clock_slack_ms,
                             prune=options.prune, partition_bytes=options.partition_bytes)
            planned += found.tree.read_bytes
        if options.metrics:
            metrics.leave(options.metrics, planned_bytes=planned)
        return [Part(tuple(each)) for each in _packed(work, options.partition_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        work: tuple[Work, ...] = partition.value or ()
        read_bytes = segments = 0
        for each in work:
            tree = Tree.of(each.log.root if isinstance(each, Range) else each.root)
            if isinstance(each, Range):
                yield from self.options.cut(Reader(tree, self.options.wanted).read(each))
            else:
                yield from self.options.cut(read_dledger(tree, each, self.options.wanted))
            read_bytes += tree.read_bytes
            segments += len(each.segments)
        if self.options.metrics and work:
            metrics.leave(self.options.metrics, bytes_read=read_bytes, segments=segments)


def _packed(work: Sequence[Work], partition_bytes: int) -> Iterator[list[Work]]:
    """Small logs together, up to ``partition_bytes`` in one partition."""
    part: list[Work] = []
    size = 0
    for each in work:
        its = sum(size for _, size in each.segments)
        if part and size + its > partition_bytes:
            yield part
            part, size = [], 0
        part.append(each)
        size += its
    if part:
        yield part
