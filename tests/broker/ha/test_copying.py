"""A replica that fills in what is old does that first, and shows it to consumers later; one that keeps up does not."""

from __future__ import annotations

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.journal import Journal
from broker.moments import WATCH
from remoting.record import Message
from tests.broker.ha.group import Broker, group


def fill(master: Broker, count: int) -> None:
    for number in range(count):
        master.journal.append([Message(b"T", b"x" * 500, number % 2)])


def noted(journal: Journal) -> list[bool]:
    """Whether it copied, at each growth."""
    found: list[bool] = []
    journal.grown.join(WATCH, lambda: found.append(journal.copying))
    return found


async def test_queues_wait_while_a_log_is_copied(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        await a.lead(1)
        fill(a, 200)
        await wait_all_tasks_blocked()
        copying = noted(b.journal)
        await b.follow(a, 1)
        await trio.sleep(1)
        assert copying[0] and not copying[-1], "until it has what is confirmed"
        assert b.log == a.log and b.visible(0) == b.visible(1) == 100
        copying.clear()
        fill(a, 1)
        await trio.sleep(1)
        assert copying == [False]


async def test_a_connection_that_ends_ends_the_copying(autojump_clock: MockClock) -> None:
    async with group(2) as (net, (a, b)):
        await a.lead(1)
        fill(a, 200)
        await wait_all_tasks_blocked()
        cut: list[int] = []

        def cut_once() -> None:
            if b.journal.copying and not cut:
                cut.append(b.journal.end)
                net.cut()

        b.journal.grown.join(WATCH, cut_once)
        await b.follow(a, 1)
        with trio.fail_after(10):
            while not cut or b.journal.copying:
                await trio.sleep(0.001)
        assert 0 < b.journal.end < a.journal.end, "it is yet to connect again"
        await trio.sleep(0.1)
        assert b.visible(0) + b.visible(1) > 0
        assert b.journal.end - b.journal.visible.offset < 600, "the part of a message"


async def test_a_replica_that_follows_before_it_hears_that_its_disk_is_well_again_stays_connected(
        autojump_clock: MockClock) -> None:
    async with group(2) as (net, (a, b)):
        await a.lead(1)
        fill(a, 20)
        net.delay_s = 0.1
        await b.follow(a, 1)
        await trio.sleep(0.05)
        b.journal.disk_changed()  # it was told where its master is when the disk was well, and nobody had said so yet
        await trio.sleep(5)
        assert b.log == a.log
