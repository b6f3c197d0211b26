"""Callers of proposals, without a node: who waits where, and until when."""

from __future__ import annotations

import pytest
import trio.testing

from raft.config import MS, Config
from raft.errors import Rejected, RejectReason
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
