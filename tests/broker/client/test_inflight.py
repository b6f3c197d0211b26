"""What may be committed, against a model that keeps everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.client.inflight import FlowLimits, InFlight


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(1, 9))), st.integers(0, 5))
def test_nothing_unsettled_is_ever_below_the_committable_offset(steps: list[tuple[int, int, int]], start: int) -> None:
    queue: InFlight[str] = InFlight(start)
    open_: dict[int, tuple[int, str]] = {}
    for number, (kind, at, size) in enumerate(steps):
        if kind == 0:  # a pull that found something, a hole before it
            offset, item = queue.next_offset + at, f"item {number}"
            assert queue.add(offset, size, item)
            open_[offset] = size, item
            queue.next_offset = offset + 1
        elif kind == 1:  # a pull whose messages were all sorted out
            queue.next_offset += at
        elif kind == 2:
            offset = sorted(open_)[at % len(open_)] if open_ else at
            queue.settle(offset, open_.pop(offset, (0, "nothing"))[1])
        elif kind == 4:  # the broker has lost what is there and behind it, or its administrator wants that again
            there = max(0, queue.next_offset - at)
            queue.go_back(there)
            open_ = {offset: found for offset, found in open_.items() if offset < there}
            assert queue.next_offset == there
        elif open_:
            offset = sorted(open_)[at % len(open_)]
            size, item = open_[offset]
            open_[offset] = size, f"again {number}"
            assert queue.replace(offset, item, open_[offset][1])
        assert queue.committable == min(open_, default=queue.next_offset)
        assert (len(queue), queue.size_bytes) == (len(open_), sum(size for size, _ in open_.values()))
        assert all(queue.holds(offset, item) for offset, (_, item) in open_.items())
        assert queue.oldest == (open_[min(open_)][1] if open_ else None)


def test_what_was_pulled_is_not_taken_twice() -> None:
    queue: InFlight[str] = InFlight(5)
    assert queue.add(5, 1, "a") and not queue.add(5, 1, "b") and not queue.add(4, 1, "c") and queue.add(9, 1, "d")


def test_a_stranger_settles_nothing() -> None:
    queue: InFlight[str] = InFlight(0)
    queue.add(0, 1, "first")
    queue.settle(0, "not the one")
    queue.settle(7, "first")
    assert len(queue) == 1 and queue.committable == 0
    assert not queue.replace(0, "not the one", "x") and not queue.replace(3, "first", "x")


def test_pulling_pauses_above_each_limit() -> None:
    def held(*offsets: int, size: int = 1) -> InFlight[int]:
        queue: InFlight[int] = InFlight(0)
        for offset in offsets:
            queue.add(offset, size, offset)
        return queue

    limits = FlowLimits(messages=3, size_bytes=100, span=50)
    assert not held().full(limits)
    assert not held(0, 1, 2).full(limits) and held(0, 1, 2, 3).full(limits)
    assert not held(0, size=100).full(limits) and held(0, size=101).full(limits)
    assert not held(0, 50).full(limits) and held(0, 51).full(limits)
    assert not held(0, 51).full(limits, ordered=True), "in order the span says nothing"
