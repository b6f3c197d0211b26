"""Whole replicas over a network in memory: copies, roles, restarts, and who may not do what."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.ha.acks import PutStatus
from broker.ha.autoswitch import RoleRefused
from broker.ha.config import HaConfig
from broker.ha.epochs import EpochList
from broker.journal import FlushDiskType
from broker.puts import PutResult
from broker.store.files import MemoryFile
from broker.store.log import Raw
from tests.broker.ha.group import group
from tests.broker.store.small import delete_before
from tests.broker.test_journal import SlowDisk


def statuses(results: list[PutResult]) -> list[PutStatus]:
    return [result.status for result in results]


async def test_two_slaves_copy_a_master(autojump_clock: MockClock) -> None:
    async with group(3) as (_, (a, b, c)):
        await a.lead(1)
        for number in range(100):
            a.put(b"%d" % number * 20, number % 4)
        await b.follow(a, 1)
        await c.follow(a, 1)
        await trio.sleep(1)
        assert a.log == b.log == c.log
        assert len(a.log) > 2 * (1 << 12)
        assert b.switch.epochs == a.switch.epochs
        assert [b.visible(queue) for queue in range(4)] == [25] * 4
        assert a.switch.in_sync is not None
        assert a.switch.in_sync.wanted(a.journal.now_ns()) == frozenset({1, 2, 3})


async def test_a_put_waits_for_all_members(autojump_clock: MockClock) -> None:
    async with group(2) as (net, (a, b)):
        await a.lead(1, {1, 2})
        results = a.put(b"waits")
        await trio.sleep(1)
        assert results == []
        await b.follow(a, 1)
        await trio.sleep(1)
        assert statuses(results) == [PutStatus.PUT_OK]
        assert b.journal.end == a.journal.end
        for link in net.links:
            link.hangs = True
        late = a.put(b"nobody answers")
        await trio.sleep(4)
        assert statuses(late) == [PutStatus.FLUSH_SLAVE_TIMEOUT]


async def test_a_slave_hears_what_is_confirmed_though_nothing_more_is_written(autojump_clock: MockClock) -> None:
    """With Java it hears with the next bytes, or after 5 s."""
    async with group(2) as (_, (a, b)):
        await a.lead(1, {1, 2})
        await b.follow(a, 1)
        await trio.sleep(1)
        a.put(b"one")
        await trio.sleep(0.3)
        assert (a.visible(), b.visible()) == (1, 1)


async def test_the_first_acknowledgement_leaves_at_once(autojump_clock: MockClock) -> None:
    """A Java slave waits up to 5 s with it."""
    async with group(2) as (_, (a, b)):
        await a.lead(1)
        a.put(b"one")
        began = trio.current_time()
        await b.follow(a, 1)
        while b.journal.end != a.journal.end:
            await trio.sleep(0.001)
        assert trio.current_time() - began < 0.1


async def test_a_slave_may_come_before_its_master_knows(autojump_clock: MockClock) -> None:
    async with group(2) as (net, (a, b)):
        await b.follow(a, 1)
        await trio.sleep(3)
        assert net.dialled == [a.address]
        await a.lead(1, {1, 2})
        results = a.put(b"one")
        await trio.sleep(0.01)
        assert statuses(results) == [PutStatus.PUT_OK]


async def test_who_is_no_master_lets_nobody_wait_for_ever(autojump_clock: MockClock) -> None:
    async with group(2) as (net, (a, b)):
        await b.follow(a, 1)
        await trio.sleep(13)
        assert len(net.dialled) == 2
        assert not a.switch.runtime_info().master


async def test_a_switch_of_roles_cuts_what_nobody_confirmed(autojump_clock: MockClock) -> None:
    async with group(3) as (net, (a, b, c)):
        held = await a.lead(1, {1, 2})
        await b.follow(a, 1)
        await trio.sleep(0.5)
        kept = a.put(b"kept")
        await trio.sleep(0.5)
        assert statuses(kept) == [PutStatus.PUT_OK]
        for link in net.links:
            link.hangs = True
        lost = a.put(b"lost")
        await trio.sleep(0.1)
        assert a.visible() == 1, "not confirmed, so not seen"
        await b.lead(2)
        b.put(b"new")
        await a.follow(b, 2)
        await c.follow(b, 2)
        await trio.sleep(2)
        assert statuses(lost) == [PutStatus.FLUSH_SLAVE_TIMEOUT]
        assert a.log == b.log == c.log
        assert [broker.visible() for broker in (a, b, c)] == [2, 2, 2]
        assert list(a.switch.epochs) == list(b.switch.epochs) == list(c.switch.epochs)
        assert [entry.epoch for entry in a.switch.epochs] == [1, 2]
        assert held is not a.switch.in_sync
        assert a.switch.in_sync is None


async def test_queue_offsets_go_on_behind_those_of_the_last_master(autojump_clock: MockClock) -> None:
    """apache/rocketmq#7689: none is given twice, also where consumers of the slave did not see all yet."""
    async with group(2) as (_, (a, b)):
        await a.lead(1, {1, 2})
        await b.follow(a, 1)
        await trio.sleep(0.2)
        for _ in range(5):
            a.put(b"old")
        await trio.sleep(0.02)
        await b.lead(2)
        results = b.put(b"new")
        await trio.sleep(0.1)
        assert results[0].puts[0].queue_offset == 5
        assert b.visible() == 6


async def test_a_new_master_cuts_the_part_of_a_message(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        await a.lead(1)
        a.put(b"whole")
        await trio.sleep(0.1)
        whole = a.journal.end
        a.put(b"half" * 20)
        await trio.sleep(0.1)
        b.journal.append_raw(a.log[: whole + 50], 0)
        held = await b.lead(2)
        assert (b.journal.end, held.epoch_start) == (whole, whole)
        results = b.put(b"more")
        await trio.sleep(0.1)
        assert results[0].puts[0].queue_offset == 1


async def test_a_new_master_cuts_the_part_of_a_blank(autojump_clock: MockClock) -> None:
    """What it wrote into the rest of one would be passed over by all who read."""
    async with group(2) as (_, (a, b)):
        await a.lead(1)
        a.put(b"b" * 10_000)
        await trio.sleep(0.1)
        whole = a.journal.end
        a.put(b"has no room in the first file" * 300)
        await trio.sleep(0.1)
        b.journal.append_raw(a.log[: whole + 50], 0)
        held = await b.lead(2)
        assert (b.journal.end, held.epoch_start) == (whole, whole)
        results = b.put(b"more")
        await trio.sleep(0.1)
        assert statuses(results) == [PutStatus.PUT_OK]
        assert b.visible() == 2


async def test_an_older_role_is_refused(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        await a.lead(5)
        with pytest.raises(RoleRefused, match="epoch 4 is over"):
            await a.lead(4)
        with pytest.raises(RoleRefused, match="epoch 4 is over"):
            await a.follow(b, 4)
        a.switch.broker_id = None
        with pytest.raises(RoleRefused, match="no controller"):
            await a.lead(6)


async def test_a_disk_that_refuses_the_epoch_refuses_the_role(autojump_clock: MockClock) -> None:
    async with group(1) as (_, (a,)):
        await a.lead(1)
        a.files.open("epochFileCheckpoint.tmp", create=True).fault = OSError(5, "Input/output error")
        with pytest.raises(RoleRefused, match="epoch 2 cannot be recorded"):
            await a.lead(2)
        assert (a.switch.in_sync, a.switch.role) == (None, None), "the role before is over"


async def test_the_same_master_again_keeps_its_slaves(autojump_clock: MockClock) -> None:
    """apache/rocketmq#9689."""
    async with group(2) as (net, (a, b)):
        await a.lead(1, {1, 2})
        await b.follow(a, 1)
        a.put(b"one")
        await trio.sleep(0.5)
        await a.lead(2, {1, 2})
        await b.follow(a, 2, known=False)
        results = a.put(b"two")
        await trio.sleep(0.5)
        assert statuses(results) == [PutStatus.PUT_OK]
        assert net.dialled == [a.address]
        assert list(b.switch.epochs) == list(a.switch.epochs)
        assert len(a.switch.epochs) == 2


async def test_a_master_that_restarts_within_its_epoch_keeps_the_entry(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        await a.lead(1, {1, 2})
        await b.follow(a, 1)
        a.put(b"one")
        await trio.sleep(0.5)
        before = a.switch.epochs
        await a.stop()
        await a.start()
        await a.lead(1, {1, 2}, 2)
        assert a.switch.epochs == before
        results = a.put(b"two")
        await trio.sleep(2)
        assert statuses(results) == [PutStatus.PUT_OK]
        assert a.log == b.log


async def test_a_master_whose_machine_went_down_does_not_go_on_with_its_epoch(autojump_clock: MockClock) -> None:
    """Its slaves hold what it lost, and would take what it wrote there since for the same."""
    async with group(3) as (_, (a, b, c)):
        await a.lead(1, {1, 2})
        await b.follow(a, 1)
        a.put(b"synced")
        await trio.sleep(1)
        a.files.content["commitlog/00000000000000000000"].sync()
        a.put(b"lost by power, and held by b")
        await trio.sleep(0.1)
        assert a.log == b.log
        await b.stop()
        await a.stop()
        a.files.crash()
        a.boot = "second"
        await a.start()
        assert a.switch.doubtful_epoch == 1
        with pytest.raises(RoleRefused, match="epoch 1 was led by this broker before its machine went down"):
            await a.lead(1, {1, 2}, 2)
        await a.lead(2, {1}, 2)
        a.put(b"in its place, of the same length")
        await c.follow(a, 2)
        await trio.sleep(1)
        await a.stop()
        await c.lead(3, {3})
        await b.start()
        await b.follow(c, 3)
        await trio.sleep(2)
        assert b.log == c.log
        assert b"lost by power" not in b.log


async def test_a_second_restart_does_not_clear_the_doubt(autojump_clock: MockClock) -> None:
    async with group(1) as (_, (a,)):
        await a.lead(1)
        await a.stop()
        a.boot = "second"
        for _ in range(2):
            await a.start()
            assert a.switch.doubtful_epoch == 1
            await a.stop()
        await a.start()
        await a.lead(2)
        await a.stop()
        await a.start()
        assert a.switch.doubtful_epoch == -1


async def test_after_a_failure_of_the_disk_the_last_epoch_is_in_doubt(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The system may have dropped what it could not write, though the machine runs on."""
    async with group(1) as (_, (a,)):
        await a.lead(1)
        a.put(b"one")
        await trio.sleep(0.1)
        file = a.files.content["commitlog/00000000000000000000"]
        file.fault = OSError(5, "Input/output error")
        a.put(b"two")
        await trio.sleep(1)
        assert a.journal.failure is not None
        file.fault = None
        await a.stop()
        await a.start()
        assert a.switch.doubtful_epoch == 1


async def test_after_a_failure_of_the_last_flush_the_last_epoch_is_in_doubt(autojump_clock: MockClock) -> None:
    async with group(1) as (_, (a,)):
        await a.lead(1)
        a.put(b"one")
        await trio.sleep(0.1)
        await a.stop()
        file = a.files.content["commitlog/00000000000000000000"]
        file.fault = OSError(5, "Input/output error")
        await a.journal.close()
        file.fault = None
        await a.start()
        assert a.switch.doubtful_epoch == 1


async def test_under_sync_flush_a_slave_acknowledges_what_is_on_its_disk(autojump_clock: MockClock) -> None:
    async with group(2, flush=FlushDiskType.SYNC_FLUSH) as (_, (a, b)):
        await a.lead(1, {1, 2})
        await b.follow(a, 1)
        results = [a.put(b"%d" % number) for number in range(20)]
        await trio.sleep(1)
        assert all(statuses(result) == [PutStatus.PUT_OK] for result in results)
        assert b.journal.log.flushed_offset == a.journal.end
        b.files.crash()
        await b.stop()
        await b.start()
        assert b.log == a.log


async def test_what_is_flushed_as_a_connection_closes_is_not_acknowledged_on_the_next_before_its_handshake(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with group(2, flush=FlushDiskType.SYNC_FLUSH) as (net, (a, b)):
        await a.lead(1)
        await b.follow(a, 1)
        await trio.sleep(1)
        flushed = SlowDisk()
        b.journal._disk = flushed
        a.put(b"one")
        await trio.sleep(1)
        close = trio.aclose_forcefully

        async def closed(stream: trio.abc.AsyncResource) -> None:
            following = b.switch._following
            if flushed.jobs and following is not None and not following.connected:
                flushed.sync()
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
            await close(stream)

        monkeypatch.setattr("broker.ha.following.trio.aclose_forcefully", closed)
        net.cut()
        await trio.sleep(1.5)
        assert "before the handshake" not in caplog.text
        assert a.switch.in_sync is not None and a.switch.in_sync.acks == {2: a.journal.end}


async def test_a_replica_whose_store_was_lost_is_copied_anew(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        await a.lead(1)
        a.put(b"one")
        await b.follow(a, 1)
        await trio.sleep(1)
        await b.stop()
        b.files.content.clear()
        await b.start()
        await b.follow(a, 1)
        await trio.sleep(2)
        assert b.log == a.log
        assert b.visible() == 1


async def test_h8_an_epoch_file_that_cannot_be_read_has_the_log_copied_anew(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        await a.lead(1)
        a.put(b"one" * 100)
        await b.follow(a, 1)
        await trio.sleep(1)
        await b.stop()
        for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
            b.files.open(name, create=True).data[:] = b"nonsense"
        await b.start()
        assert b.log == a.log
        await b.follow(a, 1)
        await trio.sleep(2)
        assert b.log == a.log
        assert b.switch.epochs == a.switch.epochs
        assert b.visible() == 1


async def test_what_the_epoch_file_tells_beyond_the_log_does_not_come_back(autojump_clock: MockClock) -> None:
    async with group(1) as (_, (a,)):
        a.files.open("epochFileCheckpoint", create=True).pwrite(b"2\n0\n1-0\n3-5000\n", 0)
        await a.stop()
        await a.start()
        assert [entry.epoch for entry in a.switch.epochs] == [1]
        assert b"3-" not in a.files.content["epochFileCheckpoint"].data


async def test_a_full_disk_stops_a_slave_until_there_is_room(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: MemoryFile, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    async with group(2) as (_, (a, b)):
        await a.lead(1)
        for number in range(100):
            a.put(b"%d" % number * 400)
        await trio.sleep(0.1)
        with monkeypatch.context() as patch:
            patch.setattr(MemoryFile, "reserve", refused)
            await b.follow(a, 1)
            await trio.sleep(5)
            assert b.journal.end < a.journal.end
        await trio.sleep(5)
        assert b.log == a.log


@pytest.mark.parametrize("elected", [False, True])
async def test_epochs_that_the_disk_refused_are_written_before_their_bytes(
    autojump_clock: MockClock, elected: bool,
) -> None:
    """Else the slave waits for ever for bytes that it never stored, and a crash would leave some that pass for those
    of the epoch before."""
    async with group(3) as (_, (a, b, c)):
        await a.lead(1)
        a.put(b"held by all")
        await b.follow(a, 1)
        await c.follow(a, 1)
        await trio.sleep(1)
        file = b.files.open("epochFileCheckpoint.tmp", create=True)
        file.fault = OSError(28, "No space left on device")
        await c.lead(2)
        c.put(b"of the second epoch")
        await b.follow(c, 2)
        await trio.sleep(5)
        assert b.journal.end < c.journal.end
        if elected:
            with pytest.raises(RoleRefused):
                await b.lead(3)
        file.fault = None
        if elected:
            await b.follow(c, 2)
        await trio.sleep(2)
        assert b.log == c.log
        assert b.written_epochs == c.switch.epochs


async def test_an_epoch_that_could_not_be_begun_is_not_on_disk_when_bytes_of_another_come(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They would pass for its own after a crash."""
    async with group(2) as (_, (a, b)):
        await a.lead(1)
        a.put(b"held by both")
        await b.follow(a, 1)
        await trio.sleep(1)
        boot = b.files.open("epochFileCheckpoint.boot.tmp", create=True)
        boot.fault = OSError(28, "No space left on device")
        with pytest.raises(RoleRefused):
            await b.lead(2)
        assert b.written_epochs.entries[-1].epoch == 2
        a.put(b"of the first epoch")
        await trio.sleep(1)
        await a.lead(3)
        a.put(b"of the third")
        append, on_disk = b.journal.append_raw, list[EpochList]()

        def seen(data: Raw, offset: int) -> None:
            on_disk.append(b.written_epochs)
            append(data, offset)

        monkeypatch.setattr(b.journal, "append_raw", seen)
        await b.follow(a, 3)
        await trio.sleep(1)
        assert b.log == a.log
        assert [[entry.epoch for entry in epochs] for epochs in on_disk] == [[1], [1, 3]]


async def test_a_log_behind_the_masters_first_byte_is_told_so(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        await a.lead(1)
        await b.follow(a, 1)
        a.put(b"x")
        await trio.sleep(1)
        await b.follow(a, 1, known=False)
        b.switch.follow(None)
        for number in range(200):
            a.put(b"%d" % number * 300)
        await trio.sleep(1)
        a.store.flush()
        delete_before(a.store, a.journal.end)
        assert a.journal.begin > b.journal.end
        b.switch.follow(a.address)
        await trio.sleep(3)
        assert b.journal.end < a.journal.begin, "nothing is copied over a gap"
        assert a.switch.in_sync is not None
        assert a.switch.in_sync.confirm == a.journal.end


async def test_the_former_connection_of_a_slave_neither_counts_nor_evicts_it(autojump_clock: MockClock) -> None:
    """H7 and apache/rocketmq#9897: half open, it lives until the slave comes again, and its end is nobody's."""
    async with group(3) as (net, (a, b, c)):
        held = await a.lead(1, {1, 2, 3})
        await b.follow(a, 1)
        await c.follow(a, 1)
        await trio.sleep(0.5)
        for link in net.links:
            link.hangs = True
        b.switch.follow(None)
        b.switch.follow(a.address)
        await trio.sleep(0.5)
        results = a.put(b"two of three")
        await trio.sleep(1)
        assert b.journal.end == a.journal.end
        assert results == [], "three members are needed, and one of them is silent"
        assert len(a.switch.runtime_info().ha_connection_info) == 2
        assert held.wanted(a.journal.now_ns()) is None, "nobody left"


async def test_a_role_that_ends_as_the_rest_of_a_frame_was_written_ends_the_connection_in_words(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with group(2) as (_, (a, b)):
        await a.lead(1)
        await b.follow(a, 1)
        await trio.sleep(1)
        (link,) = a.switch._port.links.values()
        assert isinstance(link.stream, trio.StapledStream)
        send_all = link.stream.send_stream.send_all

        async def sent(data: bytes) -> None:
            await send_all(data)
            a.switch._port.drop("another broker becomes master")

        link.stream.send_stream.send_all = sent
        link.rest = b"what the socket did not take"
        link.bell.ring()
        await trio.sleep(0.1)
        assert "another broker becomes master" in caplog.text
        assert "Traceback" not in caplog.text


async def test_a_slave_that_went_leaves_the_set(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        held = await a.lead(1, {1, 2})
        await b.follow(a, 1)
        await trio.sleep(0.5)
        changes = a.changes
        await b.stop()
        await trio.sleep(0.1)
        assert a.changes > changes, "the replicas manager hears of it"
        assert held.wanted(a.journal.now_ns()) == frozenset({1})


async def test_masters_that_wrote_nothing_leave_no_epochs(autojump_clock: MockClock) -> None:
    """apache/rocketmq#9942: an epoch that begins where the last one did takes its place."""
    async with group(2) as (_, (a, b)):
        await a.lead(1)
        a.put(b"one")
        await b.follow(a, 1)
        await trio.sleep(0.5)
        await b.lead(2)
        await a.follow(b, 2)
        await a.lead(3)
        await b.follow(a, 3)
        await trio.sleep(2)
        assert [entry.epoch for entry in a.switch.epochs] == [1, 3]
        assert b.switch.epochs == a.switch.epochs
        assert [(entry.epoch, entry.start_offset) for entry in b.switch.epoch_entries()] == [(1, 0), (3, a.journal.end)]


async def test_a_new_master_does_not_wait_for_ever_for_its_queues(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(2, config=HaConfig()) as (_, (a, b)):
        await a.lead(1, {1, 2})
        await b.follow(a, 1)
        monkeypatch.setattr(b.store.visible, "advance_some", lambda upto, most, aside: False)
        a.put(b"one")
        await trio.sleep(0.05)
        began = trio.current_time()
        held = await b.lead(2, {1, 2})
        assert trio.current_time() - began == pytest.approx(30, abs=1)
        assert held.wanted(b.journal.now_ns()) is None, "nobody could reach it meanwhile"


async def test_epochs_of_which_nothing_is_left_are_forgotten(autojump_clock: MockClock) -> None:
    async with group(1) as (_, (a,)):
        for epoch in range(1, 6):
            await a.lead(epoch)
            for number in range(60):
                a.put(b"%d" % number * 200)
            await trio.sleep(0.1)
        a.store.flush()
        delete_before(a.store, a.journal.end)
        await trio.sleep(0.2)
        first, *_ = a.switch.epochs
        assert first.epoch > 1
        assert a.switch.epochs.find(a.journal.begin) == first
        assert a.files.content["epochFileCheckpoint"].data.split(b"\n")[2].startswith(b"%d-" % first.epoch)
