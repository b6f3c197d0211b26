"""Spark's filters to bounds of a selection; those that have no place there are left out, for Spark checks all again.

Knows filters and columns; nothing of segments.
"""

from __future__ import annotations

from collections.abc import Iterable

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

_NAMES = {"node": "nodes", "group": "groups", "group_id": "group_ids", "kind": "kinds"}
_NUMBERS = {"index": "index", "last_index": "index", "term": "term", "wall_ms": "wall_ms"}


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
            if all(type(value) is int for value in values):
                bounds.narrow(min(values), max(values))
        elif isinstance(each, (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)) and type(each.value) is int:
            if isinstance(each, GreaterThanOrEqual):
                bounds.narrow(low=each.value)
            elif isinstance(each, GreaterThan):
                bounds.narrow(low=each.value + 1)
            elif isinstance(each, LessThanOrEqual):
                bounds.narrow(high=each.value)
            else:
                bounds.narrow(high=each.value - 1)
