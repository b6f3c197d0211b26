"""The queue of deadlines against a plain model: everything expires once, in order, at its time, unless it was met."""

from __future__ import annotations

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from remoting.deadlines import Deadlines


@attrs.define(eq=False)
class Timer:
    due: float
    again: float | None = None
    waiting: bool = True
    expired: list[float] = attrs.field(factory=list)
    queue: Deadlines | None = None

    def expire(self, now: float) -> None:
        self.expired.append(now)
        if self.again is None:
            self.waiting = False
        elif self.queue is not None:
            self.due, again, self.again = now + self.again, self.again, None
            assert again > 0
            self.queue.set(self.due, self)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 60), st.booleans()), max_size=40))
def test_everything_expires_once_at_its_time(plan: list[tuple[int, int, bool]]) -> None:
    """Each timer is set at some second, is due so many later, and some are met half a second before that."""

    async def main() -> None:
        queue, start = Deadlines(), trio.current_time()
        timers: list[tuple[Timer, bool]] = []

        async def live(at: int, after: int, met: bool) -> None:
            await trio.sleep(at)
            timer = Timer(start + at + after)
            timers.append((timer, met))
            queue.set(timer.due, timer)
            if met:
                await trio.sleep(after - 0.5)
                timer.waiting = False

        async with trio.open_nursery() as nursery:
            nursery.start_soon(queue.run)
            async with trio.open_nursery() as lives:
                for at, after, met in plan:
                    lives.start_soon(live, at, after, met)
            await trio.sleep(100)
            nursery.cancel_scope.cancel()
        for timer, met in timers:
            assert timer.expired == ([] if met else [pytest.approx(timer.due)])
        assert not len(queue)

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_one_that_expires_may_be_set_again(autojump_clock: MockClock) -> None:
    queue, start = Deadlines(), trio.current_time()
    timer = Timer(start + 1, again=2.5, queue=queue)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        queue.set(timer.due, timer)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert timer.expired == [pytest.approx(start + 1), pytest.approx(start + 3.5)]


async def test_an_earlier_deadline_wakes_it_earlier(mock_clock: MockClock) -> None:
    queue, start = Deadlines(), trio.current_time()
    late, early, past = Timer(start + 10), Timer(start + 1), Timer(start - 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        await wait_all_tasks_blocked()
        for timer in (late, early, past):
            queue.set(timer.due, timer)
        await wait_all_tasks_blocked()
        assert past.expired and not early.expired
        mock_clock.jump(1)
        await wait_all_tasks_blocked()
        assert early.expired and not late.expired
        nursery.cancel_scope.cancel()


async def test_what_came_in_a_pause_of_ours_is_read_before_anything_is_judged(autojump_clock: MockClock) -> None:
    """The process stands still: nothing of it runs, while the time goes on."""
    queue, start = Deadlines(), trio.current_time()
    answered, silent, later = Timer(start + 10), Timer(start + 10), Timer(start + 50)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        for timer in (answered, silent, later):
            queue.set(timer.due, timer)
        await trio.sleep(5)
        autojump_clock.jump(20)
        await trio.sleep(0.5)  # others read
        answered.waiting = False
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    assert not answered.expired
    assert silent.expired == [pytest.approx(start + 26)], "a second after the pause"
    assert later.expired == [pytest.approx(start + 50)]


async def test_a_deadline_that_is_over_when_it_is_set_is_no_pause(autojump_clock: MockClock) -> None:
    queue, start = Deadlines(), trio.current_time()
    past = Timer(start - 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        await wait_all_tasks_blocked()
        queue.set(past.due, past)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert past.expired == [pytest.approx(start)]


async def test_those_that_were_met_are_forgotten() -> None:
    queue = Deadlines()
    kept = [Timer(1e9) for _ in range(100)]
    for timer in kept:
        queue.set(timer.due, timer)
    for _ in range(10_000):
        met = Timer(1e6)
        queue.set(met.due, met)
        met.waiting = False
        assert len(queue) <= 1_025
