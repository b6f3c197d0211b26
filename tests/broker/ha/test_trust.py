"""A replica whose machine went down: what it copies again, when, and until when its log is in doubt."""

from __future__ import annotations

import random

import attrs
import trio
from trio.testing import MockClock

from broker.ha.config import HaConfig
from broker.ha.epochs import Epoch, EpochList
from broker.ha.slave import AppendLog, Connect, HaSlave, LogTrusted, Send, SetConfirm, TruncateLog, WriteEpochs
from broker.ha.wire import Ack, MasterHandshake, Transfer
from broker.journal import FlushDiskType
from broker.store.files import SECTOR_BYTES
from remoting.record import Message, encode_properties
from tests.broker.ha.group import ALL_ACK, Broker, group

ONE = EpochList([(1, 0)])


def in_doubt(trusted_end: int | None, log_end: int = 80) -> HaSlave:
    slave = HaSlave(HaConfig(), 2, ONE, log_end, 0, in_doubt=True, trusted_end=trusted_end)
    assert slave.follow("m:1", 0) == [Connect("m:1")]
    slave.connected(0)
    return slave


def test_what_is_not_trusted_is_copied_again_and_then_the_log_is_level() -> None:
    slave = in_doubt(30)
    assert slave.received(MasterHandshake(90, ONE), 0) == [TruncateLog(30)]
    assert slave.truncated(30, 0) == [WriteEpochs(ONE), SetConfirm(0), Send(Ack(30).to_bytes())], "none behind 30"
    assert slave.received(Transfer(30, Epoch(1, 0), 0, b"x" * 59), 0) == [AppendLog(30, b"x" * 59)]
    assert slave.stored(89, 0) == [Send(Ack(89).to_bytes())]
    slave.received(Transfer(89, Epoch(1, 0), 0, b"x" * 9), 0)
    assert slave.stored(98, 0) == [Send(Ack(98).to_bytes()), LogTrusted()]
    slave.received(Transfer(98, Epoch(1, 0), 0, b"x"), 0)
    assert slave.stored(99, 0) == [Send(Ack(99).to_bytes())], "once"


def test_a_log_that_came_back_shorter_is_level_when_it_is_as_long() -> None:
    slave = in_doubt(None)
    assert LogTrusted() not in slave.received(MasterHandshake(90, ONE), 0)
    slave.received(Transfer(80, Epoch(1, 0), 0, b"x" * 10), 0)
    assert LogTrusted() in slave.stored(90, 0)


def test_a_log_that_lacks_nothing_is_level_at_once() -> None:
    assert LogTrusted() in in_doubt(None).received(MasterHandshake(80, ONE), 0)


def test_what_was_copied_again_is_not_copied_a_third_time() -> None:
    slave = in_doubt(30)
    slave.received(MasterHandshake(90, ONE), 0)
    slave.truncated(30, 0)
    slave.received(Transfer(30, Epoch(1, 0), 0, b"x" * 20), 0)
    slave.stored(50, 0)
    slave.closed(0)
    slave.connected(1)
    assert slave.received(MasterHandshake(95, ONE), 1)[-1] == Send(Ack(50).to_bytes())
    slave.received(Transfer(50, Epoch(1, 0), 0, b"x" * 40), 1)
    assert LogTrusted() not in slave.stored(90, 1), "level is where this master's log ended when it was compared"


async def power_cut(broker: Broker, kept: int = 0, boot: str = "second") -> None:
    """Its machine goes down and comes back with so much of the unsynced changes of each sector."""
    await broker.stop()
    broker.files.crash(lambda size: min(size, kept))
    broker.boot = boot
    await broker.start()


async def pair(a: Broker, b: Broker) -> None:
    """``a`` leads ``b``, which has flushed the first of two messages, and says so."""
    await a.lead(1)
    await b.follow(a, 1)
    a.put(b"one")
    await trio.sleep(1)
    b.journal.visible.advance()
    b.store.flush()
    a.put(b"two")
    await trio.sleep(0.3)
    assert b.log == a.log and b.journal.log.flushed_offset < b.journal.end


async def test_the_tail_is_kept_until_there_is_a_master_and_copied_again_then(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        await pair(a, b)
        one = b.journal.log.flushed_offset
        await power_cut(b, kept=9)
        await trio.sleep(5)
        assert b.log == a.log and b.journal.trust.trusted_end == one, "nobody to copy from"
        await b.follow(a, 1)
        heard: list[bool] = []
        b.switch.changed = lambda: heard.append(b.journal.trust.in_doubt)
        await trio.sleep(3)
        assert b.log == a.log and not b.journal.trust.in_doubt
        assert heard == [False], "that it is level: the controllers are to hear of it"
        await b.stop()
        await b.start()
        assert not b.journal.trust.in_doubt, "it is noted"


async def test_no_damage_behind_what_was_synced_is_acknowledged(autojump_clock: MockClock) -> None:
    """A sector in the midst of long properties is lost, which no checksum covers."""
    async with group(2) as (_, (a, b)):
        await pair(a, b)
        properties = encode_properties({"KEYS": "k" * 3 * SECTOR_BYTES})
        begin = a.journal.end
        a.puts.put([Message(b"T", b"three", 0, properties)], lambda _: None)
        await trio.sleep(0.3)
        assert b.log == a.log
        lost = (begin // SECTOR_BYTES + 2) * SECTOR_BYTES
        await b.stop()
        file = b.files.content["commitlog/00000000000000000000"]
        b.files.crash(lambda size: size)
        file.data[lost:lost + SECTOR_BYTES] = bytes(SECTOR_BYTES)
        b.boot = "second"
        await b.start()
        assert b.log != a.log and len(b.log) == len(a.log), "nobody can see it"
        await b.follow(a, 1)
        await trio.sleep(3)
        assert b.log == a.log


async def test_a_master_of_a_log_in_doubt_doubts_it_no_longer(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        await pair(a, b)
        await power_cut(b, kept=9)
        assert b.journal.trust.in_doubt
        tail = b.log
        await b.lead(2)
        assert b.log == tail == a.log and not b.journal.trust.in_doubt


async def test_a_synced_log_is_not_cut(autojump_clock: MockClock) -> None:
    async with group(2, flush=FlushDiskType.SYNC_FLUSH) as (_, (a, b)):
        await a.lead(1)
        await b.follow(a, 1)
        a.put(b"one")
        await trio.sleep(1)
        await power_cut(b)
        assert b.log == a.log and not b.journal.trust.in_doubt


async def test_power_cuts_at_random_leave_the_masters_log(autojump_clock: MockClock) -> None:
    rng = random.Random(3)
    async with group(2, rng=rng, config=attrs.evolve(ALL_ACK)) as (_, (a, b)):
        await a.lead(1)
        await b.follow(a, 1)
        for boot in range(12):
            for number in range(rng.randrange(20)):
                a.put(b"%d" % number * rng.randrange(1, 100))
                await trio.sleep(rng.random() * 0.05)
            await power_cut(b, rng.randrange(3), str(boot))
            await b.follow(a, 1)
            await trio.sleep(rng.random())
        await trio.sleep(5)
        assert b.log == a.log and not b.journal.trust.in_doubt
