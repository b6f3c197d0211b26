"""What a broker makes of a disk that stalls or fills up: it is seen in time, told, and over when it works again."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.ha.epochfile import EpochFile
from broker.ha.epochs import EpochList
from broker.journal import FlushDiskType, Journal, JournalConfig
from broker.moments import WATCH
from broker.roles import ControlledRole
from broker.server import Spared
from broker.store.checkpoint import PATH as CHECKPOINT
from broker.store.directory import DirectoryFiles
from broker.store.disk import InlineDisk
from broker.store.errors import StoreFull
from broker.store.files import (
    SPARE,
    SPARE_BYTES,
    MemoryFile,
    MemoryFiles,
    Space,
    keep_spare,
    no_room,
    read_whole,
    with_spare,
    write_whole,
)
from broker.store.health import DiskHealth
from broker.store.store import MessageStore, StoreConfig
from broker.store.trial import PATH, try_disk
from harness.simulation.worlds.brokers import Cluster, Node, cluster, controlled, in_sync, new_master, until
from harness.simulation.worlds.disks import StallingDisk
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from remoting.record import Message

SMALL: Final = StoreConfig(log_file_bytes=1 << 16, queue_file_bytes=20 * 64, index_slots=11, index_entries=64)
SYNC: Final = JournalConfig(FlushDiskType.SYNC_FLUSH)
WELL, FULL, STALLED = DiskHealth.WELL, DiskHealth.FULL, DiskHealth.STALLED


@asynccontextmanager
async def running(disk: StallingDisk, config: JournalConfig = SYNC, files: MemoryFiles | None = None,
                  ) -> AsyncGenerator[tuple[Journal, list[DiskHealth]]]:
    """And what it told of its disk."""
    journal = Journal(MessageStore(files or MemoryFiles(), SMALL), config, disk=disk)
    told: list[DiskHealth] = []
    journal.disk_changed.join(WATCH, lambda: told.append(journal.health))
    journal.open()
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run)
        await trio.sleep(1)
        yield journal, told
        nursery.cancel_scope.cancel()


def put(journal: Journal, size: int = 100) -> None:
    journal.append([Message(b"t", b"x" * size, 0)])


@attrs.define
class SteppingDisk(StallingDisk):
    """Each step of a flush takes its time."""

    sync_s: float = 0
    steps_done: int = 0

    def _go_on(self) -> None:
        while self._jobs:
            InlineDisk().submit(*self._jobs.pop(0))

    async def run(self) -> None:
        while True:
            await trio.sleep(0.01)
            while self._steps:
                await trio.sleep(self.sync_s)
                steps, told = self._steps[0]
                self.steps_done += 1
                if next(steps, True):
                    self._steps.pop(0)
                    told(None)


async def until_told(told: list[DiskHealth], *wanted: DiskHealth) -> float:
    began = trio.current_time()
    with trio.fail_after(100):
        while told != list(wanted):
            await trio.sleep(0.01)
    return trio.current_time() - began


async def test_a_sync_that_hangs_is_told_in_time_and_over_after_a_calm_while(autojump_clock: MockClock) -> None:
    disk = StallingDisk()
    async with running(disk) as (journal, told):
        disk.stall()
        put(journal)
        await trio.sleep(2.9)
        assert told == []
        assert await until_told(told, STALLED) < 0.4, "a tick or two after diskStallMs"
        await trio.sleep(60)
        disk.resume()
        assert 2 <= await until_told(told, STALLED, WELL) <= 4
        assert journal.durable_end == journal.end


async def test_checkpoints_see_a_stalled_disk_though_nobody_sends(autojump_clock: MockClock) -> None:
    disk = StallingDisk()
    async with running(disk) as (_, told):
        disk.stall()
        assert await until_told(told, STALLED) < 14, "a checkpoint is written each 10 s"


async def test_a_disk_that_stalls_each_time_that_it_is_used_is_not_well(autojump_clock: MockClock) -> None:
    disk = StallingDisk()
    async with running(disk) as (journal, told):
        disk.stall()
        put(journal)
        await until_told(told, STALLED)
        for _ in range(20):
            disk.resume()
            disk.stall()
            await trio.sleep(3)
        assert told == [STALLED], "tries take their time as well"
        disk.resume()
        await until_told(told, STALLED, WELL)


async def test_a_disk_without_room_is_told_at_once_and_over_when_there_is_some(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFiles()
    async with running(StallingDisk(), JournalConfig(), files) as (journal, told):
        put(journal, 1_000)

        def full(self: MemoryFile, offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(MemoryFile, "reserve", full)
            with pytest.raises(StoreFull):
                put(journal, 65_000)
            assert await until_told(told, FULL) < 0.2
            await trio.sleep(60)
            assert told == [FULL]
        assert await until_told(told, FULL, WELL) <= 4
        assert not files.exists(PATH), "tries leave nothing behind"


async def test_a_disk_that_others_fill_is_told_within_a_second(autojump_clock: MockClock) -> None:
    """By its share in use, as sends are refused: whether anybody sends or not."""
    files = MemoryFiles()
    async with running(StallingDisk(), JournalConfig(), files) as (journal, told):
        files.disk = Space(100, 9)
        assert await until_told(told, FULL) <= 1.2
        with pytest.raises(StoreFull, match="91% full"):
            put(journal)
        files.disk = Space(100, 10)
        await trio.sleep(60)
        assert told == [FULL], "a percent more is to be free"
        files.disk = Space(100, 11)
        await until_told(told, FULL, WELL)
        put(journal)


async def test_queues_without_room_say_it_too(autojump_clock: MockClock) -> None:
    files, broken = MemoryFiles(), [False]

    def hook(what: str) -> None:
        if what in ("write", "resize") and broken[0]:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    files.hook = hook
    async with running(StallingDisk(), JournalConfig(), files) as (journal, told):
        put(journal)
        await trio.sleep(0.2)
        broken[0] = True
        journal.confirm(journal.end)
        assert await until_told(told, FULL) < 12
        broken[0] = False
        await until_told(told, FULL, WELL)


async def test_a_flush_of_many_short_syncs_is_no_stall(autojump_clock: MockClock) -> None:
    disk = SteppingDisk(sync_s=2)
    async with running(disk, JournalConfig()) as (journal, told):
        for number in range(12):
            journal.append([Message(b"t", b"x", number)])
        await trio.sleep(0.2)
        journal.confirm(journal.end)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(disk.run)
            await trio.sleep(60)
            assert disk.steps_done > 12 and told == []
            disk.sync_s = 4
            await until_told(told, STALLED)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_what_a_try_finds(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    files = DirectoryFiles(tmp_path)
    try_disk(files, 1 << 16)
    assert files.list("") == [SPARE]

    def refused(fd: int, offset: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refused)
    with pytest.raises(OSError, match=os.strerror(number)) as raised:
        try_disk(files, 1 << 16)
    assert no_room(raised.value) == (number != errno.EIO)
    assert files.list("") == [SPARE]


def full_at(step: str) -> Callable[[str], None]:
    def hook(what: str) -> None:
        if what == step:
            raise OSError(errno.ENOSPC, "No space left on device")

    return hook


@pytest.mark.parametrize("step", ["reserve", "write", "sync"])
def test_a_try_asks_for_room_a_write_and_a_sync(step: str) -> None:
    files = MemoryFiles(hook=full_at(step))
    with pytest.raises(OSError, match="No space left"):
        try_disk(files, 1 << 16)
    assert not files.exists(PATH)


@attrs.define
class Full:
    """No room but what somebody gives up."""

    room: bool = False

    def __call__(self, what: str) -> None:
        if what in ("write", "reserve") and not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        if what in ("remove", "reserve"):
            self.room = what == "remove"


@attrs.define
class Small:
    """Another directory of that disk."""

    hook: Full
    identity: bytes = b""

    def read(self, path: str) -> bytes | None:
        return self.identity

    def replace(self, path: str, content: bytes) -> None:
        self.hook("write")
        self.identity = content

    def remove(self, path: str) -> None:
        self.identity = b""


def test_a_full_disk_has_room_for_what_says_who_a_replica_is_and_what_its_log_is_worth() -> None:
    files = MemoryFiles()
    store = MessageStore(files, SMALL, boot="first")
    store.open()
    hook = files.hook = Full()
    for file in files.content.values():
        file.hook = hook
    epochs, small = EpochList().append(1, 0), Small(hook)
    EpochFile(files, boot="first").lead(epochs)
    for write in (partial(write_whole, files, CHECKPOINT, b"checkpoint"),
                  partial(Spared(small, files).replace, "brokerIdentity", b"c#a#1")):
        with pytest.raises(OSError, match="No space left"):
            hook("write")
        write()
        assert files.exists(SPARE), "it is kept again for the next one"
    assert EpochFile(files, boot="first").read().epochs == epochs and small.identity == b"c#a#1"
    assert read_whole(files, CHECKPOINT) == b"checkpoint"


def test_what_a_spare_cannot_help_is_raised_and_costs_no_spare() -> None:
    files = MemoryFiles()
    keep_spare(files)

    def broken() -> None:
        raise OSError(errno.EIO, "Input/output error")

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for write, words in ((broken, "Input/output"), (full, "No space left")):
        with pytest.raises(OSError, match=words):
            with_spare(files, write)
        assert files.exists(SPARE)


def test_the_spare_is_kept_again_as_far_as_there_is_room_and_whole_after_a_good_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, reserve, least = DirectoryFiles(tmp_path), os.posix_fallocate, SPARE_BYTES[-1]

    def small(fd: int, offset: int, size: int) -> None:
        if size > least:
            raise OSError(errno.ENOSPC, "No space left on device")
        reserve(fd, offset, size)

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", small)
        keep_spare(files)
        assert (tmp_path / SPARE).stat().st_size == least
        patch.setattr(os, "posix_fallocate", lambda *_: small(0, 0, 1 << 40))
        files.remove(SPARE)
        keep_spare(files)
        assert not files.exists(SPARE)
    try_disk(files, 1 << 16)
    assert (tmp_path / SPARE).stat().st_size == SPARE_BYTES[0]


ALL_ACK: Final = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}


@attrs.define
class Sends:
    """One after the other, to whoever serves."""

    made: Cluster
    acknowledged: list[tuple[float, str]] = attrs.field(factory=list)
    """When, and by whom."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        with self._scope:
            while True:
                for node in self.made.nodes:
                    if node.serves:
                        with trio.move_on_after(4), suppress(RemotingError):
                            answer = await self.made.send(node.address, b"x" * 100)
                            if answer.code == ResponseCode.SUCCESS:
                                self.acknowledged.append((trio.current_time(), node.address))
                await trio.sleep(0.1)

    def stop(self) -> None:
        self._scope.cancel()


def copying(made: Cluster, slave: Node, master: Node) -> int:
    """How often that slave has connected to that master."""
    return sum(link[:2] == (slave.address, f"{master.host}:10912") for link in made.network.links)


@pytest.mark.parametrize("kind", [FULL, STALLED], ids=["full", "stalled"])
async def test_a_slave_in_trouble_leaves_its_master_in_words_and_comes_back_by_itself(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, kind: DiskHealth,
) -> None:
    """It leaves the SyncStateSet at once, so that nobody waits for it; ``haMaxTimeSlaveNotCatchup`` is 15 s."""
    disks = [StallingDisk() for _ in range(3)]
    async with cluster(controllers=3) as made:
        nodes = [await made.node(disk, **controlled(), **ALL_ACK, flushDiskType="SYNC_FLUSH") for disk in disks]
        master = await new_master(*nodes)
        await in_sync(master, 2)
        slave = next(node for node in nodes if node is not master)
        disk = disks[nodes.index(slave)]
        if kind is FULL:
            slave.store.disk = Space(100, 5)
        else:
            disk.stall()
        sends = Sends(made)
        await made.nursery.start(sends.run)
        await until(lambda: slave.broker.journal.health is kind)
        began = trio.current_time()
        await in_sync(master, 1)
        assert trio.current_time() - began < 0.5
        assert f"ended: this replica's disk is {kind.value}" in caplog.text
        sent, copies = len(sends.acknowledged), copying(made, slave, master)
        await trio.sleep(30)
        assert len(sends.acknowledged) - sent > 100, "the others go on without it"
        assert copying(made, slave, master) == copies, "it stays away"
        assert isinstance(slave.broker.roles, ControlledRole)
        assert slave.broker.roles.log_state().disk is kind, "which heartbeats say"
        slave.store.disk = Space(100, 50)
        disk.resume()
        await in_sync(master, 2)
        sends.stop()
        await until(lambda: slave.broker.journal.end == master.broker.journal.end)
