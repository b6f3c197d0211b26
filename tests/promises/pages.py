"""A page as units: its sentences, and the rows of its tables. What is a heading, a fence or a reference is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).parents[2]
SHOWN_BY: Final = "Shown by"
_TEST: Final = re.compile(r"`(tests/[\w/]+\.py::[\w.:]+)`")
_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_GENERATED: Final = re.compile(r"<!-- (?:generated|drawn): .*?<!-- end -->", re.DOTALL)
_END: Final = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z`*\[])")


@attrs.frozen
class Unit:
    """One sentence or one row of a table."""

    section: str
    text: str
    shown_by: tuple[str, ...] = ()
    """Tests that the page itself names, in a column of that name."""


def units(page: str) -> Iterator[Unit]:
    """Of a page's text, in its order."""
    section, header = "", [""]
    for block in re.split(r"\n\s*\n", _GENERATED.sub("", _FENCE.sub("", page))):
        lines = block.strip("\n").splitlines()
        while lines and lines[0].startswith("#"):
            section = lines.pop(0).strip("# ")
        if not lines:
            continue
        if lines[0].startswith("|"):
            header = _cells(lines[0])
            yield from (_row(section, header, line) for line in lines[2:])
        else:
            for item in re.split(r"^(?:[-*]|\d+\.) ", "\n".join(lines), flags=re.MULTILINE):
                yield from (Unit(section, text) for text in _END.split(" ".join(item.split())) if text)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _row(section: str, header: list[str], line: str) -> Unit:
    cells = _cells(line)
    if header[-1] == SHOWN_BY:
        return Unit(section, " | ".join(filter(None, cells[:-1])), tuple(_TEST.findall(cells[-1])))
    return Unit(section, " | ".join(filter(None, cells)))
