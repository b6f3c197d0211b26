"""Values out of a TOML file, each asked for by name and type. Errors name the place.

A key that nothing asks for is an error too, with the nearest known name: a misspelt key must not be passed over.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

_NAMES: Final = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", dict: "a table",
                 list: "a list"}


class FormatError(ValueError):
    """A file that is no target or no scenario; says which key, what stands there and what is wanted."""


@attrs.define
class Fields:
    """One table. ``place`` tells people where it stands, as ``[nodes.kv]``; empty for the whole file."""

    place: str
    values: Mapping[str, Any]
    _asked: set[str] = attrs.field(factory=set, init=False)

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._get(name, str, default))

    def flag(self, name: str, default: bool | None = None) -> bool:
        return bool(self._get(name, bool, default))

    def whole(self, name: str, default: int | None = None, least: int = 0) -> int:
        found = int(self._get(name, int, default))
        if found < least:
            raise FormatError(f"{self.at(name)} is {found}; it is at least {least}")
        return found

    def number(self, name: str, default: float | None = None, least: float = 0.0) -> float:
        assert least >= 0
        found = float(self._get(name, float, default))
        if not least <= found < float("inf"):
            raise FormatError(f"{self.at(name)} is {found:g}; it is at least {least:g}")
        return found

    def texts(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        found = self._get(name, list, default)
        if not all(isinstance(each, str) for each in found):
            raise FormatError(f"{self.at(name)} is {found!r}; it is a list of texts")
        return tuple(found)

    def span(self, name: str) -> tuple[int, int]:
        """Two whole numbers, the least and the most."""
        found = self._get(name, list, None)
        if len(found) != 2 or not all(type(each) is int for each in found) or not 0 <= found[0] <= found[1]:
            raise FormatError(f"{self.at(name)} is {found!r}; [least, most] is wanted, whole numbers from 0")
        return found[0], found[1]

    def table(self, name: str) -> Fields | None:
        """A table within this one; None where there is none."""
        found = self._get(name, dict, {}) if name in self.values else None
        return None if found is None else Fields(f"{self.place}.{name}" if self.place else name, found)

    def tables(self, name: str) -> list[Fields]:
        """A list of tables, as ``[[faults]]`` makes it; empty if it is left out."""
        found = self._get(name, list, [])
        if not all(isinstance(each, dict) for each in found):
            raise FormatError(f"{self.at(name)} is a list of tables: write [[{name}]] above each")
        return [Fields(f"{name} {number}", each) for number, each in enumerate(found, 1)]

    def any(self, name: str, default: Any = None) -> Any:
        """A value of any type; the caller looks at it."""
        self._asked.add(name)
        return self.values.get(name, default)

    def rest(self) -> dict[str, Any]:
        """All values that were not asked for yet; they count as asked for now."""
        found = {name: value for name, value in self.values.items() if name not in self._asked}
        self._asked.update(found)
        return found

    def done(self) -> None:
        """Raises ``FormatError`` where a key is left that was not asked for."""
        for name in self.values:
            if name not in self._asked:
                raise FormatError(f"{self.at(name)} is unknown{nearest(name, self._asked)}")

    def at(self, name: str) -> str:
        """The place of a key, for people."""
        return f"[{self.place}] {name}" if self.place else name

    def _get(self, name: str, kind: type, default: Any) -> Any:
        self._asked.add(name)
        if name not in self.values:
            if default is None:
                raise FormatError(f"{self.at(name)} is missing: {_NAMES[kind]} is wanted")
            return default
        found = self.values[name]
        numeric = kind is float and isinstance(found, int)
        if not (isinstance(found, kind) or numeric) or (kind is not bool and isinstance(found, bool)):
            raise FormatError(f"{self.at(name)} is {found!r}; {_NAMES[kind]} is wanted")
        return found


def nearest(name: str, known: Iterable[str]) -> str:
    """Names what was probably meant, or all that there is."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(names)}"
