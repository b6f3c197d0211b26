"""Pages that list what the code has: nothing missing, nothing made up; programs are Python, links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from pathlib import Path

import attrs
import pytest

from raft import trace
from raft.cli import make_parser
from raft.trace import Event

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_trace_page_lists_every_event_with_its_fields() -> None:
    kinds = {name: kind for name, kind in vars(trace).items()
             if inspect.isclass(kind) and issubclass(kind, Event) and kind is not Event}
    text = (DOCS / "reference" / "trace-events.md").read_text().split("## The trace file")[0]
    listed = {name: re.findall(r"`(\w+)`", fields)
              for name, fields in re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE)}
    common = len(attrs.fields(Event))
    assert listed == {name: [field.name for field in attrs.fields(kind)][common:] for name, kind in kinds.items()}


def parsers() -> dict[str, argparse.ArgumentParser]:
    parser = make_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {"": parser, **commands.choices}


def test_the_command_page_lists_every_command_and_option() -> None:
    text = (DOCS / "reference" / "cli.md").read_text()
    found = parsers()
    assert set(re.findall(r"^\| `([a-z][a-z-]*) ", text, re.MULTILINE)) == set(found) - {""}
    known = {option for parser in found.values() for option in parser._option_string_actions} - {"-h", "--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - {"--help"} == known


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name in ("tutorial", "how-to")],
                         ids=lambda page: str(page.relative_to(DOCS)))
def test_every_program_in_the_manual_is_python(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(textwrap.dedent(block), str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_link_in_the_manual_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


def test_the_index_links_every_page() -> None:
    text = (DOCS / "README.md").read_text()
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#\s]+\.md)\)", text)}
    assert linked >= set(PAGES) - {DOCS / "README.md"}
