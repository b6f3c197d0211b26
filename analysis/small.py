"""Reads small logs in the driver itself.

For a few megabytes, starting Spark's Python workers would take longer than everything else.

The rows are those of the data source, by its own reader. Knows nothing of questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from analysis.files.finding import Found
from analysis.schemas import arrow_schema
from analysis.source.batch import RaftLogReader
from analysis.source.options import parse_options

SEGMENT_BYTES_MAX: Final = 256 << 20
"""Bytes of all segments together. Nodes allocate them ahead: most of a young log's are zeros."""
ROW_BYTES_MAX: Final = 32 << 20
"""Bytes of the rows of one table; Spark holds more than 48 MB of them another way."""


def are_small(found: Sequence[Found]) -> bool:
    """Return whether the driver should try to read these logs alone."""
    left = SEGMENT_BYTES_MAX
    for each in found:
        left -= sum(entry.size for entry in each.tree.entries("data" if each.java else "log") or ())
        if left < 0:
            return False
    return True


def read(options: Mapping[str, str]) -> pa.Table | None:
    """Return the source's rows for these options, with ``path``; None: too much for one process."""
    reader = RaftLogReader(parse_options(options))
    found, size = [], 0
    for part in reader.partitions():
        for batch in reader.read(part):
            found.append(batch)
            size += batch.nbytes
            if size > ROW_BYTES_MAX:
                return None
    return pa.Table.from_batches(found, arrow_schema(reader.options.wanted.form))


def nothing(spark: SparkSession, schema: str) -> DataFrame:
    """No row, and Spark knows it: joins with it cost nothing. ``schema`` in Spark's DDL."""
    return spark.createDataFrame([], schema).limit(0)


def table(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows of this process as a DataFrame, which Spark keeps in its plan: what narrows it runs no job."""
    return spark.createDataFrame(rows)
