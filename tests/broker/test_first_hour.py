"""An operator's first hour with real processes of ours; the scenario asks with Java's tool, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.scenarios.interop.first_hour import DAILY, FILES, everyday, of_ours, starts

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", FILES)
async def test_a_file_of_a_tutorial_starts_a_broker(page: str, tmp_path: Path) -> None:
    await starts(page, tmp_path)


async def test_what_is_asked_every_day_is_answered(tmp_path: Path) -> None:
    assert len(DAILY) >= 20
    await everyday(tmp_path, of_ours)
