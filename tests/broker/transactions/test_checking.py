"""When a half is asked for, given up, or decided too late."""

from __future__ import annotations

import pytest

from broker.transactions.checking import CheckLimits, Verdict, is_late, verdict
from broker.transactions.records import Half

HOUR_MS = 3_600_000
LIMITS = CheckLimits(transaction_time_out=6_000, transaction_check_max=15, file_reserved_time=72)
NOW_MS = 1_000 * HOUR_MS


def half(age_ms: int, *, checks: int = 0, immunity_ms: int | None = None, since_ms: int | None = None) -> Half:
    born_ms = NOW_MS - age_ms
    return Half(0, 1, 0, "u", "g", "T", 0, born_ms, born_ms, checks, immunity_ms, None,
                born_ms if since_ms is None else since_ms)


@pytest.mark.parametrize(("given", "wanted"), [
    (half(0), Verdict.WAIT), (half(6_000), Verdict.WAIT), (half(6_001), Verdict.ASK), (half(-1), Verdict.ASK),
    (half(7_000, checks=14), Verdict.ASK), (half(7_000, checks=15), Verdict.GIVE_UP),
    (half(0, checks=15), Verdict.GIVE_UP),
    (half(72 * HOUR_MS), Verdict.ASK), (half(72 * HOUR_MS + 1), Verdict.GIVE_UP),
    (half(73 * HOUR_MS, since_ms=NOW_MS - 5), Verdict.ASK),
    (half(60_000, immunity_ms=60_000), Verdict.WAIT), (half(60_001, immunity_ms=60_000), Verdict.ASK),
    (half(-5, immunity_ms=60_000), Verdict.WAIT), (half(1, immunity_ms=0), Verdict.ASK),
    (half(6_000, immunity_ms=-1), Verdict.WAIT), (half(6_001, immunity_ms=-1), Verdict.ASK),
])
def test_verdicts(given: Half, wanted: Verdict) -> None:
    assert verdict(given, NOW_MS, LIMITS) is wanted


@pytest.mark.parametrize(("given", "late"), [
    (half(HOUR_MS), False), (half(60_000, immunity_ms=60_000), False), (half(60_001, immunity_ms=60_000), True),
    (half(5_000, immunity_ms=1_000), False), (half(6_001, immunity_ms=1_000), True),
    (half(6_001, immunity_ms=-1), True),
])
def test_late_decisions(given: Half, late: bool) -> None:
    assert is_late(given, NOW_MS, LIMITS) is late
