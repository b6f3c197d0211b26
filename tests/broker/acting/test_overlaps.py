"""The table of overlaps in ``docs/reference/acting.md``: none is longer than its row says, and each is measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.broker.acting.overlaps import ROWS, longest_ms
from tests.broker.acting.test_right import RIGHT_MS, TIMEOUT_MS

PAGE: Final = Path(__file__).parents[3] / "docs/reference/acting.md"
BOUNDS: Final[Mapping[str, float]] = {
    "0": 0, "`actingRightMs`": RIGHT_MS, "`brokerNotActiveTimeoutMillis`": TIMEOUT_MS}
"""The words of the table, in ms. A row without one of these has no bound."""


def of_the_page() -> dict[str, tuple[str, str]]:
    """By row: the longest time that it allows, and the longest that was measured."""
    table = PAGE.read_text(encoding="utf-8").partition("| what happens | longest time in which two deliver |")[2]
    return {row: (bound, measured) for row, bound, measured in re.findall(
        r"^\| (.+?) \| (.+?) \| (.+?) \|$", table.partition("\n\n")[0], re.MULTILINE) if "---" not in row}


def test_each_row_of_the_page_is_measured() -> None:
    assert of_the_page().keys() == ROWS.keys()


@pytest.mark.parametrize("row", ROWS)
def test_no_overlap_is_longer_than_its_row_says(row: str) -> None:
    bound, measured = of_the_page()[row]
    longest = longest_ms(row)
    if "unbounded" in bound:
        assert longest > 4 * TIMEOUT_MS, "as long as the trouble lasts"
        assert measured == "as long as it was cut off"
    else:
        assert longest <= BOUNDS[bound], "longer than the row"
        assert measured == f"{longest / 1e3:.2f} s"
