"""Callers of proposals, without a node: who waits where, and until when."""

from __future__ import annotations

import pytest
import trio.testing

from raft.config import MS, Config
from raft.errors import Rejected, RejectReason, Unknown
from raft.frame import build
from raft.pending import Proposals
from raft.wakeup import Bell


def stopped() -> Rejected:
    return Rejected(RejectReason.STOPPED)


async def test_the_deadline_of_a_call_that_was_let_in_and_cancelled_is_not_that_of_the_next() -> None:
    """Room came free for its command, so the same task may wait in the same batch once more."""
    proposals = Proposals(
        Config(proposals_pending_max=2), lambda: 0, Bell(), lambda deadline: None, lambda: None)
    proposals.open()
    for command in (b"1", b"2"):
        proposals.propose_nowait(command)
    full = proposals.take()
    assert full is not None
    given_up = trio.CancelScope()

    async def let_in_and_cancel() -> None:
        await trio.testing.wait_all_tasks_blocked()
        proposals.refuse(full, stopped)
        given_up.cancel()
        await trio.testing.wait_all_tasks_blocked()
        proposals.expire(30 * MS)
        proposals.close(stopped)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_in_and_cancel)
        with given_up:
            await proposals.propose(b"3", 20)
        with pytest.raises(Rejected) as refused:
            await proposals.propose(b"4", None)
    assert refused.value.reason is RejectReason.STOPPED


async def test_a_ticket_of_a_batch_whose_deadline_passed_waits_no_longer_though_others_do() -> None:
    now = 0
    proposals = Proposals(
        Config(propose_timeout_ms=500), lambda: now, Bell(), lambda deadline: None, lambda: None)
    proposals.open()
    async with trio.open_nursery() as nursery:

        async def patient() -> None:
            assert await proposals.propose(b"1", 60_000) == "first"

        nursery.start_soon(patient)
        await trio.testing.wait_all_tasks_blocked()
        ticket, late = proposals.propose_nowait(b"2"), proposals.propose_nowait(b"3")
        batch = proposals.take()
        assert batch is not None
        proposals.handed_over(batch, 7, 9, 1)
        before, now = ticket.done, 500 * MS
        proposals.expire(now)
        assert (before, ticket.done) == (False, True)
        for _ in range(2):
            with trio.fail_after(1), pytest.raises(Unknown) as unknown:
                await ticket.wait()
            assert (unknown.value.first, unknown.value.last) == (7, 9)
        frame = build(kind=1, group=1, term=1, first=7, payloads=[b"1", b"2", b"3"], wall_ms=0, chain=0)
        proposals.settle(frame, ["first", "second", "third"])
        assert await late.wait() == "third"
