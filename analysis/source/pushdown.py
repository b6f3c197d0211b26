"""Spark's filters to bounds of a selection; those that have no place there are left out, for Spark checks all again.

Knows filters and columns; nothing of segments.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from analysis.parsing.selection import Selection
from analysis.schemas import TIMESTAMP

_NAMES = {"node": "nodes", "group": "groups", "group_id": "group_ids", "kind": "kinds"}
_NUMBERS = {"index": "index", "last_index": "index", "term": "term", "wall_ms": "wall_ms", "wall_time": "wall_ms"}


def push(selection: Selection, filters: Iterable[Filter]) -> None:
    """Narrow ``selection`` to what every filter lets through."""
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        if len(path) != 1:
            continue
        column = path[0].lower()
        if isinstance(each, (EqualTo, EqualNullSafe)):
            values = [each.value]
        elif isinstance(each, In):
            values = list(each.value)
        else:
            values = []
        if column in _NAMES:
            if values and None not in values:
                selection.of_names(_NAMES[column], frozenset(values))
            continue
        if column not in _NUMBERS:
            continue
        bounds = getattr(selection, _NUMBERS[column])
        if values:
            numbers = [number for value in values if (number := _number(value)) is not None]
            if len(numbers) == len(values):
                bounds.narrow(min(low for low, _ in numbers), max(high for _, high in numbers))
        elif isinstance(each, (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)) and (
                number := _number(each.value)) is not None:
            upto, since = number
            if isinstance(each, GreaterThanOrEqual):
                bounds.narrow(low=since)
            elif isinstance(each, GreaterThan):
                bounds.narrow(low=upto + 1)
            elif isinstance(each, LessThanOrEqual):
                bounds.narrow(high=upto)
            else:
                bounds.narrow(high=since - 1)


def _number(value: object) -> tuple[int, int] | None:
    """Return the last number up to the value and the first from it on; None: neither a number nor a timestamp.

    They differ where a timestamp is between two milliseconds.
    """
    if type(value) is int:
        return value, value
    if getattr(value, "tzinfo", None) is not None:
        us = pa.scalar(value, TIMESTAMP).value
        return us // 1_000, -(-us // 1_000)
    return None
