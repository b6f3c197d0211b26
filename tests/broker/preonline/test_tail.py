"""The end of a master's log, copied from a slave by the default HA protocol; from any state that a loss leaves."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock

from broker.ha.config import HaConfig
from broker.ha.following import Following
from broker.ha.slave import AppendLog, Connect, Disconnect, Send, SetConfirm
from broker.ha.wire import Block, Blocks, report
from broker.journal import Journal, JournalConfig
from broker.plain.roles import Lender
from broker.preonline.tail import TailCore
from broker.store.disk import InlineDisk
from broker.store.files import MemoryFiles
from broker.store.store import MessageStore
from remoting.record import Message
from tests.broker.ha.group import SMALL, Net, log_of

CONFIG = HaConfig(transfer_batch_bytes=700, catch_up_batch_bytes=3_000)


def opened() -> Journal:
    journal = Journal(MessageStore(MemoryFiles(), SMALL), JournalConfig(), disk=InlineDisk())
    journal.open()
    return journal


@pytest.mark.parametrize("kept", [0, 1, 40, 99])
@pytest.mark.parametrize("files", [False, True])
async def test_any_log_that_is_a_beginning_is_completed(kept: int, files: bool, autojump_clock: MockClock) -> None:
    rng = random.Random(kept)
    member, master = opened(), opened()
    async with trio.open_nursery() as nursery:
        net = Net(nursery, rng)
        for journal in (member, master):
            await nursery.start(journal.run)
        ends = [0]
        for _ in range(100):
            (put,) = member.append([Message(b"T", rng.randbytes(rng.randrange(600 if files else 60)))])
            ends.append(put.offset + put.size)
        await trio.sleep(1)
        if kept:
            master.append_raw(log_of(member)[:ends[kept]], 0)
        lender = Lender(member, CONFIG)
        await nursery.start(lender.run, [net.listen("m:1")])
        compared = min(100, master.end % SMALL.log_file_bytes)
        core = TailCore(CONFIG, master.end, master.read(master.end - compared, compared), begin=member.begin,
                        until=member.end)
        following: Following[Block] = Following(master, core, Blocks, CONFIG, net.connect)
        following.follow("m:1")
        nursery.start_soon(following.run)
        with trio.fail_after(60):
            while not core.done:
                await trio.sleep(0.1)
                if rng.random() < 0.1:
                    net.cut()
        assert not core.refused
        assert log_of(master) == log_of(member)
        nursery.cancel_scope.cancel()


def core(end: int = 10, known: bytes = b"wxyz", begin: int = 0, until: int = 20) -> TailCore:
    made = TailCore(CONFIG, end, known, begin=begin, until=until)
    assert made.follow("m:1", 0) == [Connect("m:1")]
    return made


def test_what_both_hold_is_compared_first() -> None:
    made = core()
    assert made.connected(1) == [Send(report(6))]
    assert made.received(Block(6, b"wx"), 2) == []
    assert made.received(Block(8, b"yzab"), 3) == [AppendLog(10, memoryview(b"ab"))]
    assert made.stored(12, 4) == [SetConfirm(12), Send(report(12))]
    assert made.received(Block(12, b"c" * 8), 5) == [AppendLog(12, memoryview(b"c" * 8))]
    assert made.stored(20, 6) == [SetConfirm(20), Send(report(20))]
    assert (made.done, made.refused) == (True, "")


def test_logs_that_differ_are_not_joined() -> None:
    made = core()
    made.connected(1)
    (left,) = made.received(Block(6, b"wxyZab"), 2)
    assert isinstance(left, Disconnect)
    assert made.refused == left.reason and "ends at 10" in made.refused
    assert made.tick(10**12) == [], "it is not tried again"


@pytest.mark.parametrize(("begin", "asked", "first"), [(0, 1, b"\0rest"), (64, 64, b"rest")])
def test_an_empty_log_is_copied_from_where_the_members_begins(begin: int, asked: int, first: bytes) -> None:
    """Who asks from 0 on is given the last file alone."""
    made = core(0, b"", begin)
    assert made.connected(1) == [Send(report(asked))]
    (taken,) = made.received(Block(asked, b"rest"), 2)
    assert isinstance(taken, AppendLog)
    assert (taken.offset, bytes(taken.body)) == (begin, first)


def test_a_member_that_sends_from_elsewhere_is_left() -> None:
    made = core()
    made.connected(1)
    assert made.received(Block(7, b"x"), 2) == [Disconnect("the member sent offset 7, expected 6")]
    assert made.received(Block(6, b"w"), 2) == [], "nothing counts behind that"
    assert made.tick(2 + 999_999_999) == []
    assert made.tick(2 + 1_000_000_000) == [Connect("m:1")]


def test_a_new_connection_goes_on_where_the_log_ends_by_then() -> None:
    made = core()
    made.connected(1)
    made.received(Block(6, b"wxyzabcd"), 2)
    made.closed(3)
    made.not_stored(12)
    assert made.connected(4) == [Send(report(12))]
    assert made.received(Block(12, b"cd"), 5) == [AppendLog(12, memoryview(b"cd"))]
