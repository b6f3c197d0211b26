"""What the scenarios of POP make of reports: how often, in which order, and what did not come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from trio.testing import MockClock

from harness.processes.program import Program
from harness.scenarios.interop.popping import again_once, all_received, counted, in_order
from harness.scenarios.interop.scenario import Lost, Unexpected


def program(*received: tuple[int, str]) -> Program:
    reports: list[dict[str, Any]] = [{"event": "received", "sequence": sequence, "group": group}
                                     for sequence, group in received]
    return cast(Program, SimpleNamespace(reports=lambda event: [each for each in reports if each["event"] == event]))


async def test_what_did_not_come_is_lost(autojump_clock: MockClock) -> None:
    both = program((1, ""), (2, "")), program((2, ""), (3, ""))
    assert counted(both) == {1: 1, 2: 2, 3: 1}
    await all_received(both, {1, 2, 3}, "two")
    with pytest.raises(Lost, match=r"two: 1 of 4 did not come, such as \[4\]"):
        await all_received(both, {1, 2, 3, 4}, "two")


def test_first_deliveries_are_in_the_order_of_their_group() -> None:
    in_order(program((1, "a"), (2, "b"), (3, "a"), (1, "a"), (4, "b")))
    with pytest.raises(Unexpected, match="in order"):
        in_order(program((3, "a"), (2, "b"), (1, "a")))


async def test_what_was_refused_comes_again_and_nothing_else(autojump_clock: MockClock) -> None:
    await again_once(program((1, ""), (2, ""), (1, "")), {1}, "one")
    for refused in (set[int](), {2}, {1, 2}):
        with pytest.raises(Unexpected, match="one: refused"):
            await again_once(program((1, ""), (2, ""), (1, "")), refused, "one")
