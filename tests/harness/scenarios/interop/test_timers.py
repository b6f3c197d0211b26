"""A batch of timers is sent whole, or the scenario says which ones no broker took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from harness.processes.program import Program, Report
from harness.scenarios.interop.scenario import Unexpected
from harness.scenarios.interop.timers import _send


class Sender:
    """Reports each timer as sent, as Java's program does; those in ``refused`` as not stored."""

    def __init__(self, *refused: str) -> None:
        self.refused, self.sent = refused, list[dict[str, Any]]()

    async def tell(self, line: str) -> None:
        name, delay_ms = line.split()
        self.sent.append({"name": name, "due_ms": int(delay_ms), "ok": name not in self.refused})

    async def wait_for(
        self, event: str, enough: Callable[[Sequence[Report]], bool], *, timeout_s: float,
    ) -> Sequence[Report]:
        assert event == "sent" and timeout_s > 0 and enough(self.sent)
        return self.sent


async def test_each_timer_has_its_delay_and_others_are_left_out() -> None:
    sender = Sender("a-1")
    with pytest.raises(Unexpected, match="a-1"):
        await _send(cast("Program", sender), "a", [10, 20])
    assert [one["due_ms"] for one in await _send(cast("Program", sender), "b", [30, 40])] == [30, 40]
