"""Answers are found from the first page by following links: three clicks each, at most."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_reference import DOCS
from tests.test_tidy import LINK, slug

ROOT = DOCS.parent
CLICKS_MAX = 3
FIRST_PAGES = ("README.md", "docs/README.md")
ANSWERS = {
    "where does a send wait": ("docs/reference/sending.md", "where-a-send-waits", "youngMasterHoldMs"),
    "who decides a role": ("docs/explanation/way-of-a-failover.md", "who-decides-a-role", "active controller"),
    "what keeps a decided transaction": (
        "docs/reference/transactions.md", "what-keeps-a-decided-transaction", "log of every replica"),
    "what would another log change": (
        "docs/explanation/map-of-the-broker.md", "what-another-log-would-change", "implements `Log`"),
}
"""Page, heading, and a word of the answer that stands below it."""


def linked(page: str) -> Iterator[str]:
    """Pages that a page leads to, as paths from the root."""
    for target in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        path = target.partition("#")[0]
        if path.endswith(".md") and "://" not in path:
            yield str((ROOT / page).parent.joinpath(path).resolve().relative_to(ROOT.resolve()))


def clicks(start: str, without: str = "") -> dict[str, int]:
    """How many it takes from there to each page, for who does not open ``without``."""
    found, waiting = {start: 0}, deque([start])
    while waiting:
        page = waiting.popleft()
        for target in linked(page):
            if target not in found and target != without:
                found[target] = found[page] + 1
                waiting.append(target)
    return found


def section(page: str, anchor: str) -> str:
    """What stands below the heading of that anchor; "" if there is none."""
    for part in (ROOT / page).read_text(encoding="utf-8").split("\n#")[1:]:
        head, _, body = part.partition("\n")
        if slug(head.lstrip("#")) == anchor:
            return body
    return ""


@pytest.mark.parametrize("start", FIRST_PAGES)
@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_is_three_clicks_away(question: str, start: str) -> None:
    page, anchor, word = ANSWERS[question]
    assert word in section(page, anchor), f"{page}#{anchor} does not answer"
    assert clicks(start).get(page, 99) <= CLICKS_MAX


@pytest.mark.parametrize("question", ANSWERS)
def test_who_follows_the_subject_needs_no_index(question: str) -> None:
    page = ANSWERS[question][0]
    assert clicks("README.md", without="docs/README.md").get(page, 99) <= CLICKS_MAX
    assert clicks("docs/explanation/architecture.md", without="docs/README.md").get(page, 99) == 1


def test_every_page_of_the_manual_is_three_clicks_away() -> None:
    found = clicks("README.md")
    far = {str(page.relative_to(ROOT)) for page in DOCS.rglob("*.md")}
    assert {page for page in far if found.get(page, 99) > CLICKS_MAX} == set()


def test_a_page_that_nothing_leads_to_is_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.test_three_clicks.ROOT", tmp_path)
    for name, text in {"a.md": "[b](b.md#x) [web](https://x.org/d.md)", "b.md": "[c](c.md)", "c.md": "[a](a.md)",
                       "d.md": ""}.items():
        (tmp_path / name).write_text(text)
    assert clicks("a.md") == {"a.md": 0, "b.md": 1, "c.md": 2}
    assert clicks("a.md", without="b.md") == {"a.md": 0}
    assert section("a.md", "x") == ""
