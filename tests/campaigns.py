"""Cases of a test that are left to ``make campaigns``: ``make test`` has others of their kind."""

from __future__ import annotations

from typing import Any

import pytest


def campaign(*cases: Any) -> list[Any]:
    """Returns the cases, marked; one of several parameters is a tuple."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.campaign) for case in cases]
