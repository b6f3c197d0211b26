"""The glossary: its words stand in the code, each stands for one thing, and they are in order."""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from benchmarks.structure import BROKER_WORDS
from tests.docs.test_reference import DOCS

ROOT = DOCS.parent
TEXT = (DOCS / "reference" / "glossary.md").read_text(encoding="utf-8")
WORD = re.compile(r"\| \*\*([^*|]+)\*\*(?: \(([^)|]+)\))? \| (.+) \|")
PACKAGES = {"Of the controller": ("controller", "broker"), "Of the broker": ("broker", "remoting")}
"""Where the words of a section stand; those of the others, the library's, in ``raft`` and ``controller``."""
SORTED = ("The rest", *PACKAGES)


def words(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Section, word, of what, meaning."""
    section = ""
    for line in text.splitlines():
        if line.startswith("#"):
            section = line.strip("# ")
        elif row := WORD.match(line):
            yield section, row[1], row[2] or "", row[3]


@functools.cache
def code(packages: tuple[str, ...]) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for package in packages
                     for path in sorted((ROOT / package).rglob("*.py"))).lower()


def is_used(word: str, section: str) -> bool:
    """In the code or its prose, however its parts are joined: ``confirm offset``, ``confirm_offset``."""
    joined = r"[\s_-]*".join(map(re.escape, re.split(r"[ -]", word.lower())))
    return re.search(joined, code(PACKAGES.get(section, ("raft", "controller")))) is not None


def problems(text: str) -> list[str]:
    """What is wrong with a glossary, in words."""
    found, in_order = [], defaultdict(list)
    times = Counter((word, of) for _, word, of, _ in words(text))
    plain = Counter(word for _, word, of, _ in words(text) if not of)
    for section, word, of, meaning in words(text):
        in_order[section].append(f"{word} ({of})".lower() if of else word.lower())
        if not is_used(word, section):
            found.append(f"no code has {word}")
        if times[word, of] > 1 or plain[word] > 1:
            found.append(f"{word} means two things: say of what")
        if len(meaning.split()) < 4:
            found.append(f"{word} is not explained: {meaning}")
    return found + [f"{section} is not in order: {later} before {each}" for section in SORTED
                    for each, later in zip(sorted(in_order[section]), in_order[section], strict=True) if each != later]


def test_every_word_stands_in_the_code_for_one_thing() -> None:
    assert problems(TEXT) == []
    assert len(list(words(TEXT))) > 120


def test_every_word_of_the_broker_is_explained() -> None:
    assert {word.lower() for _, word, _, _ in words(TEXT)} >= set(BROKER_WORDS)


def test_every_word_that_must_be_explained_is_one_of_the_code() -> None:
    assert [word for word in BROKER_WORDS if not is_used(word, "Of the broker")] == []


ORDINARY = {
    "client", "consumers", "filters", "locks", "offsets", "overload", "query", "replicas", "replies", "sending",
    "store", "topics", "transactions",
    # An abbreviation or a form of a word that the glossary, or the section on the package, explains.
    "ha", "plain", "pop", "preonline", "pulling", "queueends", "schedule", "standin",
}
"""Folders whose names say to anybody who knows brokers what is in them: a new one is explained instead."""


def test_the_name_of_each_folder_is_explained() -> None:
    folders = {path.parent.name for path in (ROOT / "broker").glob("*/__init__.py")}
    explained = {word.lower() for _, word, _, _ in words(TEXT)}
    known = {folder for folder in folders if folder in explained or folder.removesuffix("s") in explained}
    assert folders - known == ORDINARY


@pytest.mark.parametrize(("row", "problem"), [
    ("| **snorkel** | what no broker of ours has |", "no code has snorkel"),
    ("| **turn** | another meaning of the same word |", "turn means two things: say of what"),
    ("| **turn** (of a screw) | no use |", "turn is not explained: no use"),
    ("| **abandon** | a word that stands behind later ones |", "Of the broker is not in order: abroad before abandon"),
])
def test_a_wrong_row_is_noticed(row: str, problem: str) -> None:
    assert problem in problems(f"{TEXT}{row}\n")
