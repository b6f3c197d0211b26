"""Members that a killed master asked for count in its next run: controllers may take them in later.

Ours let no other process go on with an epoch. Controllers that know no lives, as Java's, do.
"""

from __future__ import annotations

import errno

import pytest
import trio
from trio.testing import MockClock

from broker.ha.acks import PutStatus
from broker.ha.insync import InSync
from broker.ha.mark import PATH
from tests.broker.ha.group import Broker, group


def asks(broker: Broker, members: set[int], request: int = 1) -> InSync:
    held = broker.switch.in_sync
    assert held is not None and held.may_ask(frozenset(members))
    held.ask(request, frozenset(members), broker.journal.now_ns())
    return held


async def again(broker: Broker, epoch: int, members: set[int], set_epoch: int) -> InSync:
    await broker.stop()
    await broker.start()
    return await broker.lead(epoch, members, set_epoch)


async def test_a_member_that_was_asked_for_counts_after_a_kill(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        held = await a.lead(1, {1})
        await b.follow(a, 1)
        a.put(b"held by both")
        await trio.sleep(0.5)
        assert held.wanted(a.journal.now_ns()) == frozenset({1, 2})
        asks(a, {1, 2})
        await b.stop()
        await again(a, 1, {1}, 1)
        held = await again(a, 1, {1}, 1)
        results, confirmed = a.put(b"held by a"), held.confirm
        await trio.sleep(1)
        assert not results and a.journal.confirm_offset == confirmed < a.journal.end, "b may be elected"
        assert held.wanted(a.journal.now_ns()) == frozenset({1, 2}), "until a controller says"
        await b.start()
        await b.follow(a, 1)
        await trio.sleep(1)
        assert [result.status for result in results] == [PutStatus.PUT_OK]
        assert a.log == b.log


async def test_a_member_that_was_asked_for_counts_until_a_controller_says(autojump_clock: MockClock) -> None:
    async with group(1) as (_, (a,)):
        await a.lead(1, {1}, 1)
        asks(a, {1, 2})
        asks(a, {1, 3}, 2)
        assert (await again(a, 1, {1}, 1)).members == {1, 2, 3}
        assert (await again(a, 1, {1, 3}, 2)).members == {1, 3}, "a newer set: no request for it was carried out after"
        assert (await again(a, 2, {1}, 3)).members == {1}, "a newer epoch"
        held = asks(a, {1, 2})
        assert held.accept({1}, 4)
        assert (await again(a, 2, {1}, 4)).members == {1}
        held = asks(a, {1, 2})
        held.refused(1, a.journal.now_ns(), epoch_stands=True)
        assert (await again(a, 2, {1}, 4)).members == {1}, "refused for certain"
        asks(a, {1, 2})
        held = await again(a, 2, {1}, 4)
        asks(a, {1, 2}, 5)
        held.refused(5, a.journal.now_ns(), epoch_stands=True)
        assert held.members == {1, 2}, "the request of the run before may still be carried out"
        now_ns = a.journal.now_ns() + a.config.asked_void_ms * 1_000_000
        held.ask(6, frozenset({1, 2}), now_ns)
        held.refused(6, now_ns, epoch_stands=True)
        assert held.members == {1}


@pytest.mark.parametrize("damage", [b"", b"\0" * 60, bytes(range(40))])
async def test_what_is_damaged_says_nothing(autojump_clock: MockClock, damage: bytes) -> None:
    async with group(1) as (_, (a,)):
        await a.lead(1)
        asks(a, {1, 2})
        file = a.files.open(PATH)
        file.resize(12)
        file.pwrite(damage, 12)
        assert (await again(a, 1, {1}, 1)).members == {1}


async def test_a_member_that_cannot_be_written_down_is_not_asked_for(autojump_clock: MockClock) -> None:
    async with group(1) as (_, (a,)):
        held = await a.lead(1)
        file = a.files.open(PATH)
        file.fault = OSError(errno.ENOSPC, "full")
        assert not held.may_ask(frozenset({1, 2}))
        file.fault = None
        asks(a, {1, 2})
        file.fault = OSError(errno.ENOSPC, "full")
        assert held.may_ask(frozenset({1, 2})), "it is written down"
        assert not held.may_ask(frozenset({1, 3}))
        file.fault = None
