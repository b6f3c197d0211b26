"""Make the data source ``raftlog`` known to a Spark session, whose workers then run this very interpreter.

Knows Spark's settings for that; starts no session.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from analysis.source.batch import RaftLogSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """``spark.read.format("raftlog")`` works after this. Turns filter pushdown for Python sources on.

    Workers take ``PYSPARK_PYTHON`` where it is set; else, on a session that runs on this machine, the running
    interpreter.
    """
    spark.conf.set(PUSHDOWN, "true")
    context = getattr(spark, "_sc", None)  # a Spark Connect session has none
    if context is not None and "PYSPARK_PYTHON" not in os.environ and context.master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        context.pythonExec = sys.executable
        context.environment["PYSPARK_PYTHON"] = sys.executable
    spark.dataSource.register(RaftLogSource)
