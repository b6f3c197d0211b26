"""Whole masters and slaves without a controller, over a network in memory."""

from __future__ import annotations

import random

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.ha.acks import BrokerRole, Mode, PutStatus, QuorumConfig
from broker.ha.autoswitch import AutoSwitch
from broker.ha.config import HaConfig
from broker.ha.epochfile import EpochFile
from broker.ha.taking import BecomeMaster, BecomeSlave
from broker.journal import FlushDiskType, Journal, JournalConfig
from broker.plain.roles import PlainMaster, PlainSlave
from broker.puts import PutResult, Puts
from broker.store.disk import InlineDisk
from broker.store.files import SECTOR_BYTES, MemoryFiles
from broker.store.store import MessageStore
from remoting.record import Message, encode_properties
from tests.broker.ha.group import SMALL, Net, log_of
from tests.broker.store.small import delete_before

CONFIG = HaConfig(transfer_batch_bytes=700, catch_up_batch_bytes=3_000)
INDEXED = attrs.evolve(SMALL, index=True, index_slots=64, index_entries=256)
SYNC = Mode(BrokerRole.SYNC_MASTER)


@attrs.define(eq=False)
class Process:
    """A broker's disk, and its journal while it runs."""

    nursery: trio.Nursery
    net: Net
    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    boot: str = "first"
    files: MemoryFiles = attrs.field(factory=MemoryFiles)
    store: MessageStore = attrs.field(init=False)
    journal: Journal = attrs.field(init=False)
    puts: Puts = attrs.field(init=False)
    role: PlainMaster | PlainSlave = attrs.field(init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _ended: trio.Event = attrs.field(factory=trio.Event)

    def open(self) -> None:
        self.store = MessageStore(self.files, INDEXED, boot=self.boot)
        self.journal = Journal(self.store, JournalConfig(flush_disk_type=self.flush), disk=InlineDisk())
        self.journal.open()

    async def master(self, quorum: QuorumConfig, mode: Mode = SYNC) -> PlainMaster:
        self.open()
        self.puts = Puts(self.journal, quorum)
        made = PlainMaster(self.journal, CONFIG, quorum, mode, ha_address="m:1")
        made.advanced = self.puts.advanced
        self.puts.serve(made)
        self.role = made
        await self._start()
        return made

    async def slave(self, address: str | None = "m:1") -> PlainSlave:
        self.open()
        made = PlainSlave(self.journal, CONFIG, connector=self.net.connect)
        made.follow(address)
        self.role = made
        await self._start()
        return made

    async def _start(self) -> None:
        self._scope, self._ended, started = trio.CancelScope(), trio.Event(), trio.Event()
        self.nursery.start_soon(self._run, self._scope, self._ended, started)
        await started.wait()

    async def _run(self, scope: trio.CancelScope, ended: trio.Event, started: trio.Event) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.journal.run)
                if isinstance(self.role, PlainMaster):
                    await nursery.start(self.role.run, [self.net.listen("m:1")])
                else:
                    nursery.start_soon(self.role.run)
                started.set()
        ended.set()

    async def stop(self) -> None:
        if isinstance(self.role, PlainMaster):
            del self.net.ports["m:1"]
        self._scope.cancel()
        await self._ended.wait()

    def put(self, body: bytes) -> list[PutResult]:
        results: list[PutResult] = []
        self.puts.put([Message(b"T", body)], results.append)
        return results


async def test_a_slave_finds_by_key_what_it_has(autojump_clock: MockClock) -> None:
    """Its index waits while there is much to copy, not for ever."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        a, b = Process(nursery, net), Process(nursery, net)
        await a.master(QuorumConfig())
        await b.slave()
        for number in range(50):
            a.puts.put([Message(b"T", b"m", properties=encode_properties({"KEYS": f"k{number}"}))], lambda _: None)
            await trio.sleep(0.01)
        await trio.sleep(1)
        assert [len(b.journal.messages.get_by_key(b"T", f"k{number}")) for number in range(50)] == [1] * 50
        nursery.cancel_scope.cancel()


async def test_a_slave_copies_what_comes_and_puts_wait_for_it(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        a, b = Process(nursery, net), Process(nursery, net)
        master = await a.master(QuorumConfig(total_replicas=2, in_sync_replicas=2))
        alone = a.put(b"alone")
        await trio.sleep(4)
        assert alone[0].status is PutStatus.FLUSH_SLAVE_TIMEOUT, "a plain group never refuses, it waits in vain"
        slave = await b.slave()
        await trio.sleep(1)
        results = [a.put(b"%d" % number * 30) for number in range(300)]
        await trio.sleep(1)
        assert {result[0].status for result in results} == {PutStatus.PUT_OK}
        assert log_of(a.journal) == log_of(b.journal)
        assert b.journal.messages.max_offset(b"T", 0) == 301
        assert (master.in_sync, slave.connected) == (2, True)
        told = master.runtime_info()
        assert told.master
        assert told.ha_connection_info[0].slave_ack_offset == a.journal.end
        assert slave.runtime_info().ha_client_runtime_info.max_offset == a.journal.end
        nursery.cancel_scope.cancel()


async def test_a_slave_whose_machine_went_down_copies_again_what_it_had_not_synced(autojump_clock: MockClock) -> None:
    """A sector in the midst of long properties is lost, which no checksum covers. Nothing is cut before a master is
    there to copy from."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        a, b = Process(nursery, net), Process(nursery, net)
        await a.master(QuorumConfig())
        await b.slave()
        a.put(b"one")
        await trio.sleep(1)
        b.journal.visible.advance()
        b.store.flush()
        synced, begin = b.journal.log.flushed_offset, a.journal.end
        a.puts.put([Message(b"T", b"two", 0, encode_properties({"KEYS": "k" * 3 * SECTOR_BYTES}))], lambda _: None)
        await trio.sleep(0.3)
        assert log_of(b.journal) == log_of(a.journal) and synced == begin < b.journal.end
        await b.stop()
        b.files.crash(lambda size: size)
        lost = (begin // SECTOR_BYTES + 2) * SECTOR_BYTES
        b.files.content["commitlog/00000000000000000000"].data[lost:lost + SECTOR_BYTES] = bytes(SECTOR_BYTES)
        b.boot = "second"
        slave = await b.slave(None)
        await trio.sleep(5)
        assert b.journal.end == a.journal.end and log_of(b.journal) != log_of(a.journal), "nobody to copy from"
        slave.follow("m:1")
        await trio.sleep(3)
        assert log_of(b.journal) == log_of(a.journal) and not b.journal.trust.in_doubt
        nursery.cancel_scope.cancel()


async def test_an_async_master_waits_for_nobody(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        a = Process(nursery, Net(nursery))
        await a.master(QuorumConfig(total_replicas=2, in_sync_replicas=2), Mode(BrokerRole.ASYNC_MASTER))
        results = a.put(b"x")
        await trio.sleep(0.01)
        assert results[0].status is PutStatus.PUT_OK
        nursery.cancel_scope.cancel()


async def test_automatic_degradation_and_recovery(autojump_clock: MockClock) -> None:
    """RIP-34: as many acknowledgements as there are replicas, ``minInSyncReplicas`` at least."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        a, b = Process(nursery, net), Process(nursery, net)
        master = await a.master(QuorumConfig(
            total_replicas=2, in_sync_replicas=2, min_in_sync_replicas=1, enable_auto_in_sync_replicas=True))
        assert master.replicas().in_sync == 1
        results = a.put(b"x")
        await trio.sleep(0.1)
        assert results[0].status is PutStatus.PUT_OK, "degraded to one"
        await b.slave()
        await trio.sleep(0.5)
        assert master.replicas().in_sync == 2
        for link in net.links:
            link.hangs = True
        results = a.put(b"y")
        await trio.sleep(4)
        assert results[0].status is PutStatus.FLUSH_SLAVE_TIMEOUT, "two are there, so two are needed"
        nursery.cancel_scope.cancel()


async def test_fewer_than_the_least_are_refused(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        a = Process(nursery, Net(nursery))
        await a.master(QuorumConfig(
            total_replicas=2, in_sync_replicas=2, min_in_sync_replicas=2, enable_auto_in_sync_replicas=True))
        (result,) = a.put(b"x")
        assert result.status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert a.journal.end == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("seed", range(6))
async def test_copies_are_the_same_after_any_faults(
    seed: int, flush: FlushDiskType, autojump_clock: MockClock
) -> None:
    rng = random.Random(f"{seed} {flush}")
    async with trio.open_nursery() as nursery:
        net = Net(nursery, rng)
        a, b, c = (Process(nursery, net, flush) for _ in range(3))
        quorum = QuorumConfig(total_replicas=3, in_sync_replicas=2)
        await a.master(quorum)
        a.put(b"the first")
        for slave in (b, c):
            await slave.slave()
        sent = []
        for _ in range(60):
            match rng.choices(("put", "cut", "hang", "master", "slave"), (30, 3, 2, 2, 3))[0]:
                case "put":
                    sent += [(body, a.put(body)) for body in (rng.randbytes(rng.randrange(400)) for _ in range(5))]
                case "cut":
                    net.cut()
                case "hang" if net.links:
                    rng.choice(net.links).hangs = True
                case "master":
                    await a.stop()
                    await a.master(quorum)
                case "slave":
                    slave = rng.choice((b, c))
                    await slave.stop()
                    if flush is FlushDiskType.SYNC_FLUSH:
                        slave.files.crash(lambda size: rng.randrange(size + 1))
                    await slave.slave()
            await trio.sleep(rng.choice((0, 0.01, 0.1, 1)))
            acknowledged = [result[0].puts[0] for _, result in sent
                            if result and result[0].status is PutStatus.PUT_OK]
            if acknowledged:
                end = max(put.offset + put.size for put in acknowledged)
                assert max(b.journal.end, c.journal.end) >= end or flush is FlushDiskType.SYNC_FLUSH
        net.rng = None
        net.cut()
        await trio.sleep(5)
        for process in (b, c):  # an empty one began with the last file
            assert log_of(a.journal).endswith(log_of(process.journal))
            assert process.journal.end == a.journal.end
        assert len({process.journal.messages.max_offset(b"T", 0) for process in (a, b, c)}) == 1
        nursery.cancel_scope.cancel()


async def test_a_slave_that_is_ahead_of_its_master_is_told_so(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        a, b = Process(nursery, net), Process(nursery, net)
        await a.master(QuorumConfig())
        for _ in range(5):
            a.put(b"x" * 500)
        await b.slave()
        await trio.sleep(1)
        await a.stop()
        a.files.crash()  # nothing was flushed
        await a.master(QuorumConfig(total_replicas=2, in_sync_replicas=2))
        assert a.journal.end < b.journal.end
        results = a.put(b"y")
        await trio.sleep(4)
        assert results[0].status is PutStatus.FLUSH_SLAVE_TIMEOUT, "what the slave has there is something else"
        nursery.cancel_scope.cancel()


async def test_a_slave_that_is_behind_the_begin_of_its_masters_log_says_so_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture,
) -> None:
    """The master deleted the next file that the slave needs. With an empty store the slave copies the log again."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        a, b = Process(nursery, net), Process(nursery, net)
        await a.master(QuorumConfig())
        await b.slave()
        a.put(b"x" * 500)
        await trio.sleep(1)
        await b.stop()
        for _ in range(4 * INDEXED.log_file_bytes // 500):
            a.put(b"x" * 500)
        await trio.sleep(1)
        delete_before(a.store, 2 * INDEXED.log_file_bytes)
        assert a.journal.begin > b.journal.end
        await b.slave()
        await trio.sleep(10)
        said = [each.getMessage() for each in caplog.records if "this log ends at" in each.getMessage()]
        assert len(said) == 1 and f"the master sent offset {a.journal.begin}" in said[0]
        assert "move its store's directory away" in said[0]
        await b.stop()
        b.files = MemoryFiles()
        await b.slave()
        await trio.sleep(1)
        assert b.journal.end == a.journal.end
        nursery.cancel_scope.cancel()


async def test_a_group_moves_in_place_to_the_rule_of_a_controller(autojump_clock: MockClock) -> None:
    """Its logs have no epoch file: what is there is taken for the same, what comes is not."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        a, b = Process(nursery, net), Process(nursery, net)
        await a.master(QuorumConfig())
        await b.slave()
        await trio.sleep(1)
        for number in range(100):
            a.put(b"%d" % number * 50)
        await trio.sleep(1)
        for process in (a, b):
            await process.stop()
        old = log_of(a.journal)
        switches = []
        for number, process in enumerate((a, b), 1):
            process.open()
            switch = AutoSwitch(process.journal, EpochFile(process.files), CONFIG, connector=net.connect)
            switch.broker_id = number
            await nursery.start(process.journal.run)
            await nursery.start(switch.run, [net.listen(f"b{number}:1")])
            switches.append(switch)
        await switches[0].become_master(BecomeMaster(1, frozenset({1}), 1))
        net.dialled.clear()
        await switches[1].become_slave(BecomeSlave(1, 1, "b1:2"), "b1:1")
        a.puts = Puts(a.journal, QuorumConfig())
        a.puts.serve(switches[0])
        a.put(b"new")
        await trio.sleep(1)
        assert log_of(b.journal) == log_of(a.journal)
        assert log_of(a.journal).startswith(old)
        assert len(log_of(a.journal)) > len(old)
        assert switches[0].epochs == switches[1].epochs
        assert list(switches[0].epochs) == [(1, len(old))]
        assert net.dialled == ["b1:1"], "nothing had to be copied anew"
        nursery.cancel_scope.cancel()
