"""The reference of the data source says what the code does: every column, option and code, in the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.schemas import COLUMNS, DAMAGE, FORMATS, Format
from analysis.source.options import OPTIONS, parse_options

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "raftlog-source.md").read_text()


@pytest.mark.parametrize("form", FORMATS)
def test_columns(form: Format) -> None:
    part = PAGE.partition(f"\n### {form}\n")[2].partition("\n#")[0]
    rows = [line for line in part.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in COLUMNS[form]]


def test_options_and_codes() -> None:
    for name, (default, meaning) in OPTIONS.items():
        shown = f"`{default}`" if default else ""
        assert f"| `{name}` | {shown} | {meaning} |" in PAGE
    for code, meaning in DAMAGE.items():
        assert f"| `{code}` | {meaning} |" in PAGE


def test_the_defaults_are_those_that_count() -> None:
    shown = {name: default for name, (default, _) in OPTIONS.items() if default}
    assert parse_options({"path": "/x", **shown}) == parse_options({"path": "/x"})
