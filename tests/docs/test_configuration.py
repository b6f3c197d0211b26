"""The page of configuration against the code: fields, defaults, units, ranges, and every rule broken once."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import traceback
from pathlib import Path
from typing import Any

import attrs
import pytest

from raft import Config, ConfigError, DLedgerTimers, Rules, Sync, TransportLimits

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text()
NAMES: dict[str, Any] = {kind.__name__: kind for kind in (Config, DLedgerTimers, TransportLimits, Rules, Sync)}
UNITS = {"ms": "ms", "percent": "%", "bytes": "bytes"}
LARGEST = 1 << 62


def rows(title: str) -> list[list[str]]:
    """Cells of the table under a heading."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def make(kind: type[Any], field: str, value: object) -> object:
    made = kind(**{field: value})
    return Config(dledger=made) if kind is DLedgerTimers else made


@pytest.mark.parametrize("kind", [Config, DLedgerTimers, TransportLimits], ids=lambda kind: kind.__name__)
def test_the_page_lists_every_field_with_default_unit_and_range(kind: type[Any]) -> None:
    table = rows(kind.__name__)
    assert [row[0].strip("`") for row in table] == [field.name for field in attrs.fields(kind)]
    for (name, default, unit, accepted, _), field in zip(table, attrs.fields(kind), strict=True):
        assert eval(default.strip("`"), NAMES) == field.default, name  # noqa: S307  # our own page
        if type(field.default) is not int:
            assert not accepted
            continue
        suffix = next((word for word in reversed(field.name.split("_")) if word in UNITS), None)
        assert (unit == UNITS[suffix]) if suffix else (unit and unit not in UNITS.values()), name
        least, most = accepted.split("..")
        for good in (least, most or LARGEST):
            make(kind, field.name, int(good))
        for bad in [int(least) - 1, *([int(most) + 1] if most else [])]:
            with pytest.raises(ConfigError):
                make(kind, field.name, bad)


def test_every_rule_is_shown_as_it_is_said() -> None:
    lines: set[tuple[str, int]] = set()
    for made, says in rows("Rules and what they say"):
        with pytest.raises(ConfigError) as caught:
            eval(made.strip("`"), NAMES)  # noqa: S307  # our own page
        assert str(caught.value) == says
        assert f"{caught.value.field}={caught.value.value!r}: {caught.value.rule}" == says
        lines.update((frame.name, frame.lineno or 0) for frame in traceback.extract_tb(caught.value.__traceback__))
    for kind in (Config, TransportLimits):
        for first, last in checks(kind):
            assert any(name == "__attrs_post_init__" and first <= line <= last for name, line in lines), (kind, first)


def checks(kind: type[Any]) -> list[tuple[int, int]]:
    """Lines of each statement of ``__attrs_post_init__`` that raises or requires."""
    source, start = inspect.getsourcelines(kind.__attrs_post_init__)
    found = [
        (node.lineno + start - 1, (node.end_lineno or node.lineno) + start - 1)
        for node in ast.walk(ast.parse(textwrap.dedent("".join(source))))
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and "_require(" in ast.unparse(node))]
    assert len(found) >= 2
    return found


@pytest.mark.parametrize("value", [True, 1.5, "1", None])
def test_a_number_is_a_whole_number(value: object) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"election_timeout_ms={value!r}")):
        make(Config, "election_timeout_ms", value)
