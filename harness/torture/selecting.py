"""Selects nodes for a fault: ``one``, ``two of kind:broker``, ``role:master``, ``one of kind:broker not role:master``.

Kinds are known before a run, roles only in the moment. This module knows no process.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any, Final

import attrs

from harness.targets.fields import FormatError

_COUNTS: Final = {"one": 1, "two": 2, "three": 3}
_SHARES: Final = ("minority", "majority", "all")
_FILTER: Final = re.compile(r"(kind|role):([A-Za-z0-9_-]+)")


@attrs.frozen
class Filter:
    """One condition that a node meets."""

    of: str
    """``kind`` or ``role``."""
    name: str
    wanted: bool = True


@attrs.frozen
class Selector:
    """Names, or a number of nodes that meet all conditions."""

    words: str
    count: str = "all"
    filters: tuple[Filter, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def needs_roles(self) -> bool:
        return any(each.of == "role" for each in self.filters)


def selector(value: Any, place: str) -> Selector:
    """Reads a selector from a file. Raises ``FormatError``."""
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return Selector(", ".join(value), names=tuple(value))
    if not isinstance(value, str) or not value.strip():
        raise FormatError(f"{place} is {value!r}; as \"one\", \"minority\", \"all\", \"one of kind:NAME\", "
                          "\"role:NAME\", \"one of kind:NAME not role:NAME\", or a list of names")
    words = value.split()
    count = "all"
    if words[0] in _COUNTS or words[0] in _SHARES or words[0].isdigit():
        count = words.pop(0)
        if count.isdigit() and not int(count):
            raise FormatError(f"{place} is {value!r}: no node at all")
        if words and words[0] == "of":
            words.pop(0)
    filters, wanted = [], True
    for word in words:
        found = _FILTER.fullmatch(word)
        if word == "not" and wanted:
            wanted = False
        elif found is not None:
            filters.append(Filter(found[1], found[2], wanted))
            wanted = True
        else:
            raise FormatError(f"{place} is {value!r}: {word!r} is no kind:NAME and no role:NAME")
    if not wanted:
        raise FormatError(f"{place} is {value!r}: nothing follows `not`")
    return Selector(value, count, tuple(filters))


def choose(
    which: Selector, kinds: Mapping[str, str], roles: Mapping[str, Collection[str]], taken: Collection[str],
    chance: Random,
) -> tuple[str, ...]:
    """Names of nodes in the order of ``kinds`` (node -> kind); none where no free node fits."""
    if which.names:
        return tuple(name for name in which.names if name not in taken)
    fit = [name for name, kind in kinds.items() if all(_meets(name, kind, each, roles) for each in which.filters)]
    free = [name for name in fit if name not in taken]
    drawn = set(chance.sample(free, min(_number(which.count, len(fit)), len(free))))
    assert drawn.isdisjoint(taken)
    return tuple(name for name in free if name in drawn)


def _meets(name: str, kind: str, condition: Filter, roles: Mapping[str, Collection[str]]) -> bool:
    has = kind == condition.name if condition.of == "kind" else name in roles.get(condition.name, ())
    return has is condition.wanted


def _number(count: str, among: int) -> int:
    assert among >= 0
    if count == "minority":
        return max((among - 1) // 2, min(among, 1))
    if count == "majority":
        return among // 2 + 1
    return among if count == "all" else _COUNTS.get(count) or int(count)


def unknown(which: Selector, kinds: Mapping[str, str], has_roles: bool) -> str:
    """A sentence on what is wrong with it for these nodes; empty: nothing."""
    missing = [name for name in which.names if name not in kinds]
    if missing:
        return f"there is no node {', '.join(missing)}; there are {', '.join(kinds)}"
    known = set(kinds.values())
    for each in which.filters:
        if each.of == "kind" and each.name not in known:
            return f"there is no kind {each.name}; there are {', '.join(sorted(known))}"
        if each.of == "role" and not has_roles:
            return f"role:{each.name} needs [roles] in the target"
    return ""


def as_json(which: Selector) -> str | list[str]:
    """The selector as a file says it."""
    return list(which.names) if which.names else which.words


def named(names: Sequence[str]) -> Selector:
    """Makes a selector of exactly these nodes."""
    return Selector(", ".join(names), names=tuple(names))
