"""What scenarios with clients read off their reports."""

from __future__ import annotations

from harness.scenarios.interop.clients import longest_pause_ms


def test_the_longest_pause_is_between_two_that_succeeded() -> None:
    sent = [{"ok": good, "ended_us": at * 1000} for at, good in
            [(0, True), (10, True), (20, False), (150, False), (400, True), (420, True)]]
    assert longest_pause_ms(sent) == 390


def test_one_send_has_no_pause() -> None:
    assert longest_pause_ms([{"ok": True, "ended_us": 5}]) == 0
