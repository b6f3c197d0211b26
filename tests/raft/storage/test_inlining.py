"""The bet on the disk: when it is taken, how a stall ends it, and that it is forgiven."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.frame import Kind, build, frame_bytes
from raft.messages import HardState, Lapse, Write
from raft.storage.inlining import (
    BACKOFF_WRITES,
    BACKOFF_WRITES_MAX,
    BYTES_MAX,
    USUAL_S,
    USUAL_WRITES,
    InlinePolicy,
)

QUICK, STALL = USUAL_S / 10, 1.0


def write(entries: int = 1, size: int = 10, **changes: Any) -> Write:
    frame = build(kind=Kind.COMMANDS, group=1, term=1, first=1, payloads=[b"x" * size] * entries, wall_ms=0, chain=0)
    return Write(1, 1, frames=[frame], **changes)


LONE = write()
LARGEST = BYTES_MAX - frame_bytes(1, 0)


@pytest.mark.parametrize(("other", "allowed"), [
    (LONE, True), (write(lapse=Lapse(1, 1)), True), (write(2), False), (write(size=LARGEST), True),
    (write(size=LARGEST + 1), False),
    (Write(1, 1), False), (write(hard_state=HardState(1)), False), (write(truncate_from=1), False),
    (write(purge_to=1), False), (Write(1, 1, frames=[*LONE.frames, *LONE.frames]), False),
])
def test_one_small_entry_and_nothing_else(other: Write, allowed: bool) -> None:
    assert InlinePolicy(0.05).allows(other) is allowed
    assert not InlinePolicy(0.0).allows(other), "0: never"


def test_a_disk_that_is_usually_slow_is_not_bet_on_until_it_is_quick_again() -> None:
    policy, slow = InlinePolicy(0.05), 5 * USUAL_S
    for _ in range(USUAL_WRITES):
        policy.took(slow)
    assert not policy.allows(LONE) and not policy.backoff
    for _ in range(4 * USUAL_WRITES):
        policy.took(QUICK)
    assert policy.allows(LONE)


def test_a_disk_as_slow_as_is_allowed_is_bet_on() -> None:
    policy = InlinePolicy(0.05)
    policy.took(USUAL_WRITES * USUAL_S)
    assert policy.allows(LONE), "usual: exactly as long as is allowed"
    policy = InlinePolicy(USUAL_S)
    policy.took(USUAL_S)
    assert policy.allows(LONE), "no stall"


def stalled(policy: InlinePolicy) -> int:
    """Writes without a stall until it is bet on again."""
    policy.took(STALL)
    calm = 0
    while policy.backoff:
        assert not policy.allows(LONE)
        policy.took(QUICK)
        calm += 1
    return calm


def test_each_stall_asks_for_twice_as_many_calm_writes() -> None:
    policy = InlinePolicy(0.05)
    asked = [stalled(policy) for _ in range(10)]
    assert asked[:4] == [BACKOFF_WRITES, 2 * BACKOFF_WRITES, 4 * BACKOFF_WRITES, 8 * BACKOFF_WRITES]
    assert asked[-2:] == [BACKOFF_WRITES_MAX] * 2


def test_calm_writes_forgive() -> None:
    policy = InlinePolicy(0.05)
    for _ in range(3):
        stalled(policy)
    for _ in range(10):
        policy.took(QUICK)
    assert stalled(policy) == 8 * BACKOFF_WRITES - 10, "one fewer after each"
    for _ in range(16 * BACKOFF_WRITES):
        policy.took(QUICK)
    assert stalled(policy) == BACKOFF_WRITES


@given(st.lists(st.sampled_from([QUICK, USUAL_S, STALL]), max_size=300))
def test_whatever_the_disk_does_the_backoff_is_bounded(times: list[float]) -> None:
    policy, stalls = InlinePolicy(0.05), 0
    for took in times:
        policy.took(took)
        stalls += took == STALL
        assert policy.backoff <= min(BACKOFF_WRITES << max(0, stalls - 1), BACKOFF_WRITES_MAX)
        assert policy.allows(LONE) <= (not policy.backoff)
