"""Read barriers of a node on a virtual clock: what a lease that ends, or a clock that stood still, costs."""

from __future__ import annotations

import pytest
import trio.testing

from harness.simulation.worlds.nodes import network, three
from raft.barriers import Barriers
from raft.config import MS, Config, Read
from raft.errors import Busy, Rejected, RejectReason
from raft.messages import ReadReady
from raft.replica import Replica
from raft.wakeup import Bell


async def test_a_lease_that_ends_before_the_answer_costs_a_round(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine is behind the granted index; by the time it is there, the lease is over."""
    async with network() as net:
        leader = await three(net)
        await leader.propose(b"1")
        asked: list[bool] = []
        valid = Replica.lease_valid

        def lease_valid(replica: Replica, now: int) -> bool:
            asked.append(valid(replica, now))
            return False

        monkeypatch.setattr(Replica, "lease_valid", lease_valid)
        before = leader._driver.counters["reads_asked"]
        await leader.read_barrier(Read.LEASE)
        assert asked == [True]
        assert leader._driver.counters["reads_asked"] == before + 2


async def test_a_machine_that_was_suspended_serves_no_lease(autojump_clock: trio.testing.MockClock) -> None:
    """Its own clock stood still, so the lease looks fresh; the boot clock knows better."""
    async with network() as net:
        leader = await three(net)
        await leader.propose(b"1")
        suspended = [0]
        leader._driver.system.suspended_ns = lambda: suspended[0]
        sent = leader._driver.counters["messages_sent"]
        await leader.read_barrier(Read.LEASE)
        assert leader._driver.counters["messages_sent"] == sent, "a lease costs no message"
        suspended[0] = 3_600 * 10**9
        await leader.read_barrier(Read.LEASE)
        assert leader._driver.counters["messages_sent"] > sent, "now it asks"


async def test_the_deadline_of_a_read_that_was_cancelled_is_not_that_of_the_next() -> None:
    """The same task may wait for the same question once more, before anybody was asked it."""
    barriers = Barriers(Config(), lambda: 0, Bell(), lambda deadline: None)
    with trio.CancelScope() as given_up:
        given_up.cancel()
        await barriers.wait(Read.INDEX, 20)

    async def look_later() -> None:
        await trio.testing.wait_all_tasks_blocked()
        barriers.expire(30 * MS)
        barriers.close(lambda: Rejected(RejectReason.STOPPED))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look_later)
        with pytest.raises(Rejected) as refused:
            await barriers.wait(Read.INDEX, None)
    assert refused.value.reason is RejectReason.STOPPED


@pytest.mark.parametrize("timeout_ms", [None, 60_000])
async def test_whoever_brings_a_deadline_counts_as_a_read_that_waits(timeout_ms: int | None) -> None:
    barriers = Barriers(Config(reads_pending_max=2), lambda: 0, Bell(), lambda deadline: None)
    outcomes: list[str] = []

    async def read() -> None:
        try:
            await barriers.wait(Read.INDEX, timeout_ms)
        except (Busy, Rejected) as error:
            outcomes.append(type(error).__name__)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert (outcomes, len(barriers)) == (["Busy", "Busy"], 2)
        barriers.close(lambda: Rejected(RejectReason.STOPPED))
    assert outcomes == ["Busy", "Busy", "Rejected", "Rejected"] and len(barriers) == 0


async def test_answers_that_nobody_waits_for_change_nothing() -> None:
    """A ticket that is not asked, one whose callers were told that they are late, and a machine that is far behind."""
    now = [0]
    barriers = Barriers(Config(propose_timeout_ms=100), lambda: now[0], Bell(), lambda deadline: None)
    outcomes: list[object] = []

    async def read(timeout_ms: int | None) -> None:
        try:
            await barriers.wait(Read.INDEX, timeout_ms)
        except Rejected as error:
            outcomes.append(error.reason)
        else:
            outcomes.append(timeout_ms)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, None)
        nursery.start_soon(read, 500)
        await trio.testing.wait_all_tasks_blocked()
        barrier = barriers.take()
        assert barrier is not None and barriers.take() is None and not barriers.waiting
        barriers.ready(ReadReady(barrier.ticket + 7, 9))
        barriers.release(9, lambda: True)
        assert outcomes == []
        now[0] = 100 * MS
        barriers.expire(now[0])
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == [RejectReason.TIMED_OUT] and barriers.next_deadline() == 500 * MS
        barriers.ready(ReadReady(barrier.ticket, 9))
        barriers.release(8, lambda: True)
        await trio.testing.wait_all_tasks_blocked()
        assert len(barriers) == 1, "entry 9 is not applied yet"
        barriers.release(9, lambda: True)
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == [RejectReason.TIMED_OUT, 500]
        barriers.ready(ReadReady(barrier.ticket, 9))
        barriers.refused(barrier, lambda: Rejected(RejectReason.STOPPED))
    assert len(barriers) == 0
    barriers.expire(500 * MS)
    assert barriers.next_deadline() is None
