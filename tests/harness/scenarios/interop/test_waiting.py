"""What counts as lost, early and doubled among timers."""

from __future__ import annotations

from typing import Any

import pytest

from harness.scenarios.interop.scenario import Lost, Unexpected
from harness.scenarios.interop.waiting import judged


def sent(name: str, due_ms: int, *, ok: bool = True) -> dict[str, Any]:
    return {"name": name, "due_ms": due_ms, "ok": ok}


def came(name: str, at_ms: int) -> dict[str, Any]:
    return {"name": name, "at_ms": at_ms}


SENT = [sent("a", 1_000), sent("b", 2_000), sent("taken", 3_000), sent("refused", 1_000, ok=False)]


def test_what_came_is_told() -> None:
    said = judged("x", SENT, [came("a", 1_000), came("b", 4_500), came("b", 2_100), came("refused", 1_001)])
    assert said == "2 timers came, 1 of them again; the latest 2.5 s behind its time"


@pytest.mark.parametrize(("received", "error", "words"), [
    ([came("a", 1_000)], Lost, r"never delivered: \['b'\]"),
    ([came("a", 999), came("b", 2_000)], Unexpected, "before they were due"),
    ([came("a", 1_000), came("b", 2_000), came("taken", 3_000)], Unexpected, "taken back"),
    ([came("a", 1_000), *[came("b", 2_000)] * 3], Unexpected, "once at most"),
])
def test_what_must_not_be_is_noticed(received: list[dict[str, Any]], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        judged("x", SENT, received)
