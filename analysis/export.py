"""``raftlog export``: logs to Parquet, partitioned by group and day, for tools that read no Raft segments.

The same as ``raft-export``. ``raftlog`` finds it by its entry point: ``raft`` needs neither Spark nor Java.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analysis.errors import AnalysisError, sentence
from analysis.files.finding import find_logs
from analysis.schemas import FORMATS, Format
from analysis.session import QUIET, session
from analysis.shipping import ship
from analysis.source.options import PAYLOADS, parted
from remoting.daemon.process import piped
from remoting.daemon.version import add_version

SOUND = 0
DAMAGED = 1
DAY = "day"


@attrs.frozen
class Exported:
    """Summary of what an export has written."""

    rows: int
    damage: tuple[tuple[str, int, str], ...]
    """File, offset and reason of each damage, the first hundred."""


def with_day(rows: DataFrame) -> DataFrame:
    """Rows and their ``day``: the UTC date of the leader's clock; null where no time is recorded."""
    return rows.withColumn(DAY, F.date_add(F.lit("1970-01-01").cast("date"), F.floor(
        F.col("wall_ms") / F.lit(86_400_000)).cast("int")))


def export(
    spark: SparkSession, paths: Sequence[str], out: str, *, form: Format = "entries", payload: str = "full",
    overwrite: bool = False, **options: str,
) -> Exported:
    """Write all rows under ``paths`` to ``out/group=.../day=.../*.parquet``; damage rows have neither group nor day.

    ``options``: of the data source, such as ``nodes`` or ``since_ms``. Every node's copy of an entry is a row.

    Raises:
        NothingToRead: a path without a log.
        pyspark.errors.AnalysisException: ``out`` is there already and ``overwrite`` is not set.
    """
    find_logs(paths)
    reader = spark.read.format("raftlog").option("format", form).option("payload", payload)
    for name, value in options.items():
        reader = reader.option(name, value)
    writer = with_day(reader.load(list(paths))).write.partitionBy("group", DAY).option("compression", "zstd")
    writer.mode("overwrite" if overwrite else "error").parquet(out)
    written = spark.read.parquet(out)
    damage = written.where(F.col("group").isNull() & F.col("damage").isNotNull()).orderBy("file", "offset")
    found = damage.select("file", "offset", "reason").take(100)
    return Exported(written.count(), tuple((row[0], row[1], row[2]) for row in found))


def called() -> str:
    """The command as it was given: ``raftlog`` runs this, too."""
    return "raft-export" if Path(sys.argv[0]).stem == "raft-export" else "raftlog export"


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code: 0 sound, 1 damage or nothing to read."""
    parser = argparse.ArgumentParser(called(), description="Logs to Parquet, partitioned by group and day.")
    add_version(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="directories of nodes, or above them; URIs too")
    parser.add_argument("--out", required=True, metavar="DIR", help="where to write; must not be there yet")
    parser.add_argument("--format", choices=FORMATS, default="entries", help="what a row is (entries)")
    parser.add_argument("--payload", choices=PAYLOADS, default="full", help="how much of the payloads to write (full)")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        help="an option of the data source, such as since_ms=1700000000000; may be repeated")
    parser.add_argument("--master", default="", metavar="URL", help="Spark's master (local[*])")
    parser.add_argument("--overwrite", action="store_true", help="replace what is at --out")
    given = parser.parse_args(arguments)
    try:
        options = dict(map(parted, given.option))
        find_logs(given.paths)  # report a missing log before Spark starts
        spark = session(given.master, name="raft-export", **QUIET)
        ship(spark)
        done = export(spark, given.paths, given.out, form=given.format,
                      payload=given.payload, overwrite=given.overwrite, **options)
    except AnalysisError as error:
        print(f"{called()}: {error}", file=sys.stderr)
        return DAMAGED
    except (PySparkException, Py4JError) as error:
        words = f"{given.out} is there already; choose another --out, or --overwrite it" if (
            "PATH_ALREADY_EXISTS" in str(error)) else sentence(str(error))
        print(f"{called()}: {words}", file=sys.stderr)
        return DAMAGED
    print(f"{done.rows} rows in {given.out}")
    for file, offset, reason in done.damage:
        print(f"DAMAGED {file} at byte {offset}: {reason}", file=sys.stderr)
    return DAMAGED if done.damage else SOUND

