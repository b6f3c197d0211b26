"""Spark over Raft logs: a data source, analyses and a report.

    spark = analysis.session()
    spark.read.format("raftlog").load("/data/raft").groupBy("node", "term").count().show()
"""

from analysis.register import register
from analysis.session import session

__all__ = ["register", "session"]
