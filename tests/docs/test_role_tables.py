"""The role of a broker in the reference is drawn from its table."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
DRAWING = runpy.run_path(str(DOCS / "role_tables.py"))
PAGE = (DOCS / "reference" / "replication.md").read_text(encoding="utf-8")


def test_the_page_shows_the_tables_as_they_are() -> None:
    assert runpy.run_path(str(DOCS / "generate.py"))["renewed"](PAGE) == PAGE, "run docs/generate.py"


def test_every_part_has_its_place() -> None:
    assert sorted(re.findall(r"<!-- generated: (\S+) -->", PAGE)) == sorted(DRAWING["PARTS"])


def test_the_diagram_shows_every_change_of_state() -> None:
    diagram = "\n".join(DRAWING["PARTS"]["role-diagram"]())
    role = DRAWING["role"]
    for state, row in role.MOVES.items():
        for event, (after, _) in row.items():
            if after is not state:
                begin = "REGISTERED" if event is role.Event.DISPLACED else state.name
                assert re.search(rf"{begin} --> {after.name}: .*\b{event.name}\b", diagram), (state, event)
