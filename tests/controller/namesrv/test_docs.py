"""The reference page of the name server names every code and key, with the defaults of the code."""

from __future__ import annotations

import re
from pathlib import Path

from controller.namesrv.config import WITHOUT_MEANING, NamesrvConfig
from remoting.daemon.keys import names, written
from tests.controller.namesrv.fleet import Fleet

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "namesrv.md").read_text(encoding="utf-8")


def rows(section: str) -> list[list[str]]:
    body = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines() if line[:2] == "| "]
    return found[1:]


def test_every_code_is_on_the_page() -> None:
    listed = {int(number) for row in rows("Codes") for number in re.findall(r"\d+", row[0])}
    assert listed == set(Fleet().core.codes)


def test_every_key_is_on_the_page_with_its_default_and_range() -> None:
    expected = []
    for name, field in names(NamesrvConfig).items():
        default, meta = written(field.default), field.metadata
        bounds = f"{meta['least']}..{meta['most']}" if meta["least"] is not None else ", ".join(meta["choices"])
        live = "yes" if meta["live"] else ""
        expected.append([f"`{name}`", f"`{default}`" if default else "", bounds, live, meta["about"]])
    assert rows("Keys") == expected


def test_every_key_without_a_meaning_is_on_the_page() -> None:
    listed = re.findall(r"`(\w+)`", PAGE.rpartition("mean nothing:")[2])
    assert listed == sorted(WITHOUT_MEANING)
