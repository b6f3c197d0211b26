"""The same over real sockets: writes that the kernel takes in parts, reads of whatever came, ports that refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from broker.ha.acks import BrokerRole, Mode, QuorumConfig
from broker.ha.autoswitch import AutoSwitch
from broker.ha.config import HaConfig
from broker.ha.epochfile import EpochFile
from broker.ha.taking import BecomeMaster, BecomeSlave
from broker.journal import Journal, JournalConfig
from broker.moments import WATCH
from broker.plain.roles import PlainMaster, PlainSlave
from broker.store.directory import DirectoryFiles
from broker.store.retention import RetentionConfig
from broker.store.store import MessageStore, StoreConfig
from remoting.record import Message
from tests.broker.ha.group import log_of

STORE = StoreConfig(log_file_bytes=3 << 20, index=False)
ROOM = RetentionConfig(disk_space_warning_level_ratio=100)
CONFIG = HaConfig(all_ack_in_sync_state_set=True)
MEGABYTES = 8


def opened(root: Path) -> tuple[Journal, DirectoryFiles]:
    files = DirectoryFiles(root)
    journal = Journal(MessageStore(files, STORE), JournalConfig(retention=ROOM))
    journal.open()
    return journal, files


def filled(journal: Journal) -> None:
    """Before its task runs."""
    while journal.log.max_offset < MEGABYTES << 20:
        journal.append([Message(b"T", b"x" * 1_000)] * 64)
    journal.log.write()


async def reached(journal: Journal, holds: Callable[[], bool]) -> None:
    """Each time that the journal has had a turn it is looked at."""
    turned = trio.Event()

    def look() -> None:
        if holds():
            turned.set()

    journal.settled.join(WATCH, look)
    with trio.fail_after(60):
        await turned.wait()
    journal.settled.leave(WATCH, look)


async def test_a_log_is_copied_under_a_controller(tmp_path: Path) -> None:
    (a, a_files), (b, b_files) = opened(tmp_path / "a"), opened(tmp_path / "b")
    filled(a)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    master, slave = (AutoSwitch(journal, EpochFile(files), CONFIG) for journal, files in ((a, a_files), (b, b_files)))
    master.broker_id, slave.broker_id = 1, 2
    async with trio.open_nursery() as nursery:
        for journal, switch, ports in ((a, master, listeners), (b, slave, [])):
            await nursery.start(journal.run)
            await nursery.start(switch.run, ports)
        held = await master.become_master(BecomeMaster(1, frozenset({1}), 1))
        await slave.become_slave(BecomeSlave(1, 1, "m"), f"127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        await reached(b, lambda: b.end == a.end and b.confirm_offset == a.end)
        assert log_of(a) == log_of(b)
        await reached(a, lambda: held.acks[2] == a.end)
        told = master.runtime_info()
        assert (told.ha_connection_info[0].addr or "").startswith("127.0.0.1:")
        assert told.ha_connection_info[0].transfer_from_where == a.end
        a.append([Message(b"T", b"one more")])
        await reached(a, lambda: held.acks[2] == a.end > told.master_commit_log_max_offset)
        nursery.cancel_scope.cancel()
    for journal in (a, b):
        await journal.close()


async def test_a_log_is_copied_without_one(tmp_path: Path) -> None:
    (a, _), (b, _) = opened(tmp_path / "a"), opened(tmp_path / "b")
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    master = PlainMaster(a, CONFIG, QuorumConfig(), Mode(BrokerRole.SYNC_MASTER))
    slave = PlainSlave(b, CONFIG)
    slave.follow(f"127.0.0.1:{listeners[0].socket.getsockname()[1]}")
    async with trio.open_nursery() as nursery:
        for journal in (a, b):
            await nursery.start(journal.run)
        await nursery.start(master.run, listeners)
        nursery.start_soon(slave.run)
        await reached(a, lambda: master.in_sync == 2)
        while a.end < MEGABYTES << 20:
            a.append([Message(b"T", b"x" * 1_000) for _ in range(64)])
            await trio.lowlevel.checkpoint()
        await reached(b, lambda: b.end == a.end)
        assert log_of(a) == log_of(b)
        nursery.cancel_scope.cancel()
    for journal in (a, b):
        await journal.close()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no such host.invalid:1", "nonsense", "127.0.0.1:99999", ":"])
async def test_an_address_where_nobody_is(address: str, tmp_path: Path) -> None:
    """It is tried, and the next one that is told is tried at once."""
    (a, _), (b, _) = opened(tmp_path / "a"), opened(tmp_path / "b")
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    master = PlainMaster(a, CONFIG, QuorumConfig(), Mode(BrokerRole.SYNC_MASTER))
    slave = PlainSlave(b, CONFIG)
    slave.follow(address)
    async with trio.open_nursery() as nursery:
        for journal in (a, b):
            await nursery.start(journal.run)
        await nursery.start(master.run, listeners)
        nursery.start_soon(slave.run)
        await reached(b, lambda: not slave.connected)
        slave.follow(f"127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        await reached(b, lambda: slave.connected)
        a.append([Message(b"T", b"one")])
        await reached(b, lambda: b.end == a.end > 0)
        nursery.cancel_scope.cancel()
    for journal in (a, b):
        await journal.close()
