"""Paths as Spark gives them, as columns. Knows how a node's directory is laid out, and opens nothing."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def directory_of(file: Column) -> Column:
    """The node's directory, from the path of a segment in it."""
    parts = r"^(.*)/log/[^/?]+([?].*)?$"
    return bare(F.concat(F.regexp_extract(file, parts, 1), F.regexp_extract(file, parts, 2)))


def bare(path: Column) -> Column:
    """A path of the local file system without its scheme; others stay as they are."""
    return F.regexp_replace(path, "^file:/*", "/")
