"""The maps of the packages: every module and folder is on one, once, with the kind that ``pyproject.toml`` gives it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.structure import PACKAGES, ROOT, Tree
from tests.docs.test_reference import DOCS

PAGES = sorted((DOCS / "explanation").glob("map-of-*.md"))
TOPS = (*(package for package in PACKAGES if package != "raft"), "benchmarks", "fuzz")
"""Of ``raft/`` itself the page on architecture has the map, and a test of its own."""
HEAD = re.compile(r"\| kind \| modules of `([\w/]+)/` \|")
ROW = re.compile(r"\| (\w+) \| \[`(\w+)`\]\(([^)]+)\) \| (.+) \|")
LINES_MAX = 250


def rows(text: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Folder, kind, name, link and words of each row of the maps of a page."""
    folder = None
    for line in text.splitlines():
        if not line.startswith("|"):
            folder = None
        elif head := HEAD.match(line):
            folder = head[1]
        elif folder and not line.startswith("|---"):
            row = ROW.fullmatch(line)
            assert row, f"no row of a map: {line}"
            yield folder, row[1], row[2], row[3], row[4]


def there(folder: str) -> dict[str, str]:
    """What a folder has, as links from the page of a map lead there."""
    found = {path.stem: f"../../{folder}/{path.name}" for path in (ROOT / folder).glob("*.py")}
    found |= {path.parent.name: f"../../{folder}/{path.parent.name}" for path in (ROOT / folder).glob("*/__init__.py")}
    return {name: link for name, link in found.items() if name not in ("__init__", "__main__")}


def problems(texts: Sequence[str]) -> list[str]:
    """What is wrong with maps, in words."""
    kinds = {module.name: module.kinds for module in Tree(ROOT).modules}
    found, listed = [], defaultdict(list)
    for folder, kind, name, link, words in (row for text in texts for row in rows(text)):
        listed[folder].append(name)
        if there(folder).get(name) != link:
            found.append(f"{folder}/{name} leads to {link}")
        wanted = kinds.get(f"{folder}/{name}".replace("/", "."), ({"benchmarks": "program"}.get(folder, "test"),))
        if kind not in (wanted if link.endswith(".py") else ("folder",)):
            found.append(f"{folder}/{name} is no {kind}")
        if len(words.split()) < 3:
            found.append(f"{folder}/{name} is not explained: {words}")
    for folder in {*TOPS, *listed}:
        names = listed[folder]
        found += [f"{folder}/{name} is on no map" for name in there(folder).keys() - names]
        found += [f"{folder}/{name} is on the maps twice" for name in set(names) if names.count(name) > 1]
    return found


def test_every_module_and_folder_is_on_a_map_once() -> None:
    assert problems([page.read_text(encoding="utf-8") for page in PAGES]) == []


def test_every_folder_of_a_package_is_on_a_map_or_has_one() -> None:
    """A folder two levels down is in its parent's map, or its parent's row stands for it."""
    mapped = [name.removesuffix(".*") for name in Tree(ROOT).mapped]
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*/__init__.py"):
            parts = path.parent.relative_to(ROOT).parts
            assert any(".".join(parts[:number]) in mapped for number in range(2, len(parts) + 1)), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_map_is_no_longer_than_a_few_screens(page: Path) -> None:
    assert page.read_text(encoding="utf-8").count("\n") <= LINES_MAX


@pytest.mark.parametrize(("changed", "to", "problem"), [
    ("| program | [`alone`]", "| core | [`alone`]", "benchmarks/alone is no core"),
    ("[`held`](../../fuzz/held.py)", "[`held`](../../fuzz/sealing.py)", "fuzz/held leads to ../../fuzz/sealing.py"),
])
def test_a_wrong_row_is_noticed(changed: str, to: str, problem: str) -> None:
    texts = [page.read_text(encoding="utf-8").replace(changed, to) for page in PAGES]
    assert problems(texts) == [problem]


def test_a_module_that_is_missing_twice_or_unexplained_is_noticed() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    (line,) = (line for text in texts for line in text.splitlines() if "[`boot`]" in line)
    assert problems([text.replace(line + "\n", "") for text in texts]) == ["broker/boot is on no map"]
    assert problems([text.replace(line, f"{line}\n{line}") for text in texts]) == ["broker/boot is on the maps twice"]
    bare = re.sub(r"\| [^|]+ \|$", "| Boots |", line)
    assert problems([text.replace(line, bare) for text in texts]) == ["broker/boot is not explained: Boots"]
