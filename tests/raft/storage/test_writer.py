"""The writer thread and its inline twin: order, grouping, policies, full and failing disks."""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

import attrs
import pytest

from raft.config import Sync
from raft.errors import DamagedLog, DiskFull, StorageError, UsageError, WriteFailed
from raft.messages import HardState, Recovered, Write
from raft.sim.disk import Chance, VirtualDisk
from raft.storage import inlining
from raft.storage import writer as writer_module
from raft.storage.identity import format_directory
from raft.storage.memory import MemoryStorage
from raft.storage.segment import SegmentStorage
from raft.storage.writer import InlineWriter, LogWriter, Worker, WriterEvents
from tests.raft.script import frame

T = TypeVar("T")
Call = tuple[Callable[..., object], tuple[Any, ...]]


class Loop:
    """An event loop by hand: ``call_soon`` from any thread, ``run`` here."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self.said: list[object] = []
        self.events = WriterEvents(
            durable=lambda tokens: self.said.append(dict(tokens)),
            disk_full=lambda: self.said.append("full"),
            failed=self.said.append,
        )

    def call_soon(self, function: Callable[..., object], /, *args: Any) -> None:
        self.calls.put((function, args))

    def run_one(self) -> None:
        function, args = self.calls.get(timeout=30)
        function(*args)

    def run_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.run_one()

    def tokens(self, group: int = 1) -> list[int]:
        return [said[group] for said in self.said if isinstance(said, Mapping) and group in said]


class Watched(MemoryStorage):
    """Notes its calls; ``gate`` holds the next write back; ``trouble`` is raised by it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[object] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.trouble: Exception | None = None

    def write(self, writes: Sequence[Write]) -> None:
        self.entered.release()
        assert self.gate.wait(30)
        self.calls.append([write.token for write in writes])
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble
        super().write(writes)

    def sync(self) -> None:
        self.calls.append("sync")
        super().sync()


def vote(token: int, group: int = 1) -> Write:
    return Write(token, group, hard_state=HardState(token))


def test_tokens_come_back_in_order_and_everything_is_synced() -> None:
    loop, storage = Loop(), Watched()
    writer = LogWriter(storage, loop.call_soon, loop.events)
    for token in range(1, 200):
        writer.submit(vote(token))
    loop.run_until(lambda: loop.tokens()[-1:] == [199])
    writer.close()
    assert loop.tokens() == sorted(loop.tokens())
    assert storage.unsynced == 0
    assert storage.open()[1].hard_state == HardState(199)
    writes = [call for call in storage.calls if isinstance(call, list)]
    assert [token for call in writes for token in call] == list(range(1, 200))
    assert storage.calls[1::2] == ["sync"] * len(writes), "one sync behind each call"


def test_what_waits_shares_one_write_and_one_sync() -> None:
    loop, storage = Loop(), Watched()
    storage.gate.clear()
    writer = LogWriter(storage, loop.call_soon, loop.events)
    writer.submit(vote(1))
    assert storage.entered.acquire(timeout=30)
    for token in range(2, 50):
        writer.submit(vote(token, group=token % 2 + 1))
    storage.gate.set()
    loop.run_until(lambda: loop.tokens(2)[-1:] == [49])
    writer.close()
    assert storage.calls == [[1], "sync", list(range(2, 50)), "sync"]
    assert loop.said == [{1: 1}, {1: 48, 2: 49}]


def test_closing_writes_what_was_submitted() -> None:
    loop, storage = Loop(), Watched()
    storage.gate.clear()
    writer = LogWriter(storage, loop.call_soon, loop.events)
    for token in range(1, 9):
        writer.submit(vote(token))
    storage.gate.set()
    writer.close()
    writer.close()
    assert storage.open()[1].hard_state == HardState(8)
    assert storage.unsynced == 0


def test_a_full_disk_drops_what_the_loop_sent_before_it_knew() -> None:
    loop, storage = Loop(), Watched()
    storage.gate.clear()
    storage.trouble = DiskFull("no room")
    writer = LogWriter(storage, loop.call_soon, loop.events)
    writer.submit(vote(1))
    assert storage.entered.acquire(timeout=30)
    writer.submit(vote(2))
    writer.submit(vote(3))
    storage.gate.set()
    loop.run_until(lambda: "full" in loop.said)
    writer.submit(vote(4))
    loop.run_until(lambda: loop.tokens()[-1:] == [4])
    writer.close()
    assert loop.said == ["full", {1: 4}]
    assert storage.open()[1].hard_state == HardState(4)
    assert storage.calls == [[1], [4], "sync"], "2 and 3 were never tried"


# --- promises ----------------------------------------------------------------------------------------------------


class Vow:
    """Notes when it is said, and by whom."""

    def __init__(self, storage: Watched, name: str, left: bool = True) -> None:
        self.storage, self.name, self.left, self.sent = storage, name, left, False

    def send(self) -> bool:
        assert self.storage.unsynced == 0, "said before the sync"
        self.storage.calls.append((self.name, threading.current_thread().name))
        self.sent = self.left
        return self.sent


def said(storage: Watched) -> list[str]:
    return [call[0] for call in storage.calls if isinstance(call, tuple)]


def held_back(storage: Watched, loop: Loop) -> LogWriter:
    """A writer in the middle of a write, so that what is submitted next goes together."""
    storage.gate.clear()
    writer = LogWriter(storage, loop.call_soon, loop.events)
    writer.submit(vote(1))
    assert storage.entered.acquire(timeout=30)
    return writer


def test_a_promise_is_said_by_the_thread_behind_the_sync_and_the_loop_hears_later() -> None:
    loop, storage = Loop(), Watched()
    writer = LogWriter(storage, loop.call_soon, loop.events)
    writer.submit_with_ack(vote(1), Vow(storage, "one"))
    function, _ = loop.calls.get(timeout=30)
    assert function == writer.report and loop.said == []
    assert storage.calls == [[1], "sync", ("one", "raft-log-writer")]
    assert list(writer.reports) == [{1: 1}]
    writer.report()
    writer.report()
    assert loop.said == [{1: 1}]
    writer.close()
    assert loop.calls.empty()


def test_of_what_goes_together_a_group_says_only_its_last() -> None:
    loop, storage = Loop(), Watched()
    writer = held_back(storage, loop)
    for token in (2, 3, 4):
        writer.submit_with_ack(vote(token, group=token % 2 + 1), Vow(storage, f"of {token}"))
    writer.submit_with_ack(vote(5, group=2), None)
    storage.gate.set()
    loop.run_until(lambda: len(loop.said) == 2)
    writer.close()
    assert said(storage) == ["of 4", "of 3"]
    assert loop.said == [{1: 1}, {1: 4, 2: 5}]


@pytest.mark.parametrize("left", [True, False])
def test_the_loop_is_woken_at_once_where_somebody_waits_for_word(left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Because a promise was not kept, or because a write came without one."""
    monkeypatch.setattr(writer_module, "REPORT_LATE_S", 600.0)
    loop, storage = Loop(), Watched()
    writer = held_back(storage, loop)
    writer.submit_with_ack(vote(2), Vow(storage, "2", left))
    if left:
        writer.submit(vote(3))
    storage.gate.set()
    loop.run_one()
    loop.run_one()
    assert said(storage) == ["2"]
    assert loop.said == [{1: 1}, {1: 3 if left else 2}]
    writer.close()


def test_the_loop_is_woken_for_quiet_writes_only_while_it_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "REPORT_LATE_S", 600.0)
    loop, storage = Loop(), Watched()
    writer = LogWriter(storage, loop.call_soon, loop.events)
    writer.submit_with_ack(vote(1), None)
    while not writer.reports:
        threading.Event().wait(0.001)
    writer.report_now = True
    writer.submit_with_ack(vote(2), None)
    loop.run_one()
    assert loop.said == [{1: 1}, {1: 2}]
    writer.close()
    assert loop.calls.empty()


BROKEN = WriteFailed("broken")


@pytest.mark.parametrize(("trouble", "last"), [(None, {1: 2}), (DiskFull("no room"), "full"), (BROKEN, BROKEN)])
def test_what_was_kept_quiet_is_told_before_anything_else(
    trouble: Exception | None, last: object, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loop that is told of a full or broken disk must know what is durable: the rest it takes for lost."""
    monkeypatch.setattr(writer_module, "REPORT_LATE_S", 600.0)
    loop, storage = Loop(), Watched()
    writer = LogWriter(storage, loop.call_soon, loop.events)
    writer.submit_with_ack(vote(1), Vow(storage, "1"))
    assert storage.entered.acquire(timeout=30)
    while not writer.reports:
        threading.Event().wait(0.001)
    storage.trouble = trouble
    writer.submit(vote(2))
    loop.run_one()
    writer.close()
    assert loop.said == [{1: 1}, last]


def test_nothing_is_said_of_a_write_that_failed() -> None:
    for trouble in (DiskFull("no room"), WriteFailed("broken")):
        loop, storage = Loop(), Watched()
        storage.trouble = trouble
        writer = LogWriter(storage, loop.call_soon, loop.events)
        writer.submit_with_ack(vote(1), Vow(storage, "1"))
        loop.run_one()
        writer.close()
        assert said(storage) == [] and not writer.reports


@pytest.mark.parametrize(("trouble", "kind"), [
    (WriteFailed("broken"), WriteFailed), (UsageError("a bug"), WriteFailed), (OSError(5, "EIO"), WriteFailed),
])
def test_a_failure_is_told_once_and_nothing_is_tried_again(trouble: Exception, kind: type[StorageError]) -> None:
    loop, storage = Loop(), Watched()
    storage.trouble = trouble
    writer = LogWriter(storage, loop.call_soon, loop.events)
    writer.submit(vote(1))
    loop.run_one()
    for token in (2, 3):
        writer.submit(vote(token))
    writer.close()
    assert [type(said) for said in loop.said] == [kind]
    assert loop.calls.empty()
    assert storage.calls == [[1]]


# --- on the loop -------------------------------------------------------------------------------------------------


class Roomy(Watched):
    """Has a segment with room; every write takes as long as ``seconds`` says, on a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.seconds, self.room = 0.0, 0.0001, True

    def only_appends(self, size: int) -> bool:
        return self.room

    def write(self, writes: Sequence[Write]) -> None:
        super().write(writes)
        self.now += self.seconds


def on_the_loop(storage: Roomy, loop: Loop, **changes: Any) -> LogWriter:
    options = {"loop_max_ms": 5, "clock": lambda: storage.now, **changes}
    return LogWriter(storage, loop.call_soon, loop.events, **options)


def lone(token: int, count: int = 1, size: int = 1) -> Write:
    return Write(token, 1, frames=[frame(token, 1, *[bytes(size)] * count)])


def settle(writer: LogWriter, loop: Loop, write: Write) -> None:
    """Through the thread, to its end."""
    writer.submit(write)
    loop.run_until(lambda: loop.tokens()[-1:] == [write.token])
    while writer._handed != writer._done:
        threading.Event().wait(0.001)


def test_a_lone_entry_is_written_and_synced_by_the_loop_itself() -> None:
    loop, storage = Loop(), Roomy()
    writer = on_the_loop(storage, loop)
    for token in (1, 2, 3):
        assert writer.takes_inline(lone(token))
        assert writer.write_inline(lone(token))
        assert storage.unsynced == 0
    assert storage.calls == [[1], "sync", [2], "sync", [3], "sync"]
    writer.close()
    assert loop.said == [] and loop.calls.empty(), "who called knows"


@pytest.mark.parametrize("write", [
    lone(1, count=2), lone(1, size=inlining.BYTES_MAX), vote(1), Write(1, 1), Write(1, 1, purge_to=1),
    Write(1, 1, frames=[frame(1, 1, b"a"), frame(2, 1, b"b")]),
    Write(1, 1, hard_state=HardState(1), frames=[frame(1, 1, b"a")]),
    Write(1, 1, truncate_from=1, frames=[frame(1, 1, b"a")]),
])
def test_anything_but_one_small_entry_is_left_to_the_thread(write: Write) -> None:
    writer = on_the_loop(Roomy(), Loop())
    assert not writer.takes_inline(write)
    writer.close()


@pytest.mark.parametrize("changes", [{"loop_max_ms": 0}, {"sync": Sync.NEVER}, {"sync": Sync.INTERVAL}])
def test_the_loop_syncs_only_where_it_was_told_to_and_every_write_is_synced(changes: dict[str, Any]) -> None:
    writer = on_the_loop(Roomy(), Loop(), **changes)
    assert not writer.takes_inline(lone(1))
    writer.close()


def test_the_loop_does_not_write_beside_the_thread_or_where_a_segment_ends() -> None:
    loop, storage = Loop(), Roomy()
    storage.gate.clear()
    writer = on_the_loop(storage, loop)
    writer.submit(vote(1))
    assert storage.entered.acquire(timeout=30)
    assert not writer.takes_inline(lone(2)), "the thread is at it"
    storage.gate.set()
    settle(writer, loop, vote(2))
    assert writer.takes_inline(lone(3))
    storage.room = False
    assert not writer.takes_inline(lone(3))
    writer.close()
    storage = Watched()  # type: ignore[assignment]
    writer = LogWriter(storage, loop.call_soon, loop.events, loop_max_ms=5)
    assert not writer.takes_inline(lone(1)), "a storage that does not know how long it takes"
    writer.close()


def test_after_a_stall_the_thread_proves_the_disk_quick_first_and_longer_each_time() -> None:
    loop, storage = Loop(), Roomy()
    writer = on_the_loop(storage, loop)
    token = 0
    for asked in (inlining.BACKOFF_WRITES, 2 * inlining.BACKOFF_WRITES):
        storage.seconds = 3.0
        token += 1
        assert writer.takes_inline(lone(token)) and writer.write_inline(lone(token)), "slow, but durable"
        storage.seconds = 0.0001
        for _ in range(asked):
            token += 1
            assert not writer.takes_inline(lone(token))
            settle(writer, loop, lone(token))
    for _ in range(4 * inlining.BACKOFF_WRITES):
        token += 1
        assert writer.takes_inline(lone(token)) and writer.write_inline(lone(token))
    assert writer.inlining._next_backoff == inlining.BACKOFF_WRITES, "forgiven"
    writer.close()


def test_a_disk_that_is_usually_slow_is_the_threads() -> None:
    loop, storage = Loop(), Roomy()
    writer = on_the_loop(storage, loop)
    storage.seconds = 0.004
    here = 0
    for token in range(1, 100):
        if writer.takes_inline(lone(token)):
            assert writer.write_inline(lone(token))
            here += 1
        else:
            settle(writer, loop, lone(token))
    assert here < inlining.USUAL_WRITES
    writer.close()


def test_a_full_disk_and_a_broken_one_are_told_as_ever() -> None:
    loop, storage = Loop(), Roomy()
    writer = on_the_loop(storage, loop)
    storage.trouble = DiskFull("no room")
    assert not writer.write_inline(lone(1))
    assert loop.said == [], "not from inside the call"
    assert not writer.takes_inline(lone(1))
    writer.submit(lone(1))  # by a loop that does not know yet
    loop.run_until(lambda: "full" in loop.said)
    settle(writer, loop, lone(1))
    assert loop.said == ["full", {1: 1}] and storage.calls == [[1], [1], "sync"]
    storage.trouble = OSError(5, "dead")
    assert not writer.write_inline(lone(2))
    loop.run_one()
    assert isinstance(loop.said[-1], WriteFailed)
    assert not writer.takes_inline(lone(2))
    writer.close()


# --- policies ----------------------------------------------------------------------------------------------------


def test_policy_never_syncs_only_to_purge() -> None:
    loop, storage = Loop(), Watched()
    writer = LogWriter(storage, loop.call_soon, loop.events, sync=Sync.NEVER)
    writer.submit(vote(1))
    loop.run_until(lambda: loop.tokens() == [1])
    assert storage.calls == [[1]]
    writer.submit(Write(2, 1, purge_to=5))
    loop.run_until(lambda: loop.tokens()[-1] == 2)
    writer.close()
    assert storage.calls == [[1], [2], "sync"]


def test_policy_interval_syncs_later() -> None:
    loop, storage = Loop(), Watched()
    writer = LogWriter(storage, loop.call_soon, loop.events, sync=Sync.INTERVAL, interval_ms=600_000)
    for token in (1, 2, 3):
        writer.submit(vote(token))
        loop.run_until(lambda token=token: loop.tokens()[-1:] == [token])  # type: ignore[misc]
    assert storage.calls == [[1], [2], [3]], "durable by word only"
    writer.close()
    assert storage.calls[-1] == "sync", "closing does not wait for the interval"


def test_policy_interval_syncs_without_further_writes() -> None:
    loop, storage = Loop(), Watched()
    synced = threading.Event()
    plain = storage.sync

    def sync() -> None:
        plain()
        synced.set()

    storage.sync = sync  # type: ignore[method-assign]
    writer = LogWriter(storage, loop.call_soon, loop.events, sync=Sync.INTERVAL, interval_ms=1)
    writer.submit(vote(1))
    assert synced.wait(30)
    writer.close()
    assert storage.calls == [[1], "sync"]


def lose_all(stream: str, default: T, generator: Callable[[Chance], T], /) -> T:
    """The fate of what was not synced: none of it survives."""
    return default


@pytest.mark.parametrize(("sync", "kept"), [(Sync.ALWAYS, 5), (Sync.INTERVAL, 4), (Sync.NEVER, 0)])
def test_a_power_cut_takes_what_was_acknowledged_since_the_last_sync(
    sync: Sync, kept: int, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under ``interval`` that is what came within the interval, under ``never`` all of it, under ``always`` nothing."""
    now = [100.0]
    monkeypatch.setattr(writer_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    loop, files = Loop(), VirtualDisk(lose_all)
    format_directory(files, "c", "n0", bytes(16))
    storage = SegmentStorage(files, "c", "n0", segment_bytes=32 << 10, rng=Random(1), background=True)
    storage.open()
    writer = LogWriter(storage, loop.call_soon, loop.events, sync=sync, interval_ms=60_000, scrub=False)
    chain = 0

    def write(index: int) -> None:
        """One entry, and the vote of a term; returns when both count as durable."""
        nonlocal chain
        entry = frame(index, 1, chain=chain)
        chain = entry.mark
        writer.submit(Write(index, 1, hard_state=HardState(index, "n0"), frames=[entry]))
        loop.run_until(lambda: loop.tokens()[-1:] == [index])

    for index in (1, 2, 3):
        write(index)
    now[0] += 60.0
    write(4)  # the sync is due, and covers this one too
    write(5)
    writer.worker.submit(lambda: None, lambda result: loop.said.append("the worker is idle"))
    loop.run_until(lambda: "the worker is idle" in loop.said)
    cut = deepcopy(files)
    writer.close()
    cut.crash()
    cut.restart()
    found = SegmentStorage(cut, "c", "n0", segment_bytes=32 << 10, rng=Random(2)).open().get(1, Recovered())
    assert loop.tokens() == [1, 2, 3, 4, 5]
    assert (found.last_index, found.hard_state.term) == (kept, kept)
    storage.close()
    files.kill()
    found = SegmentStorage(files, "c", "n0", segment_bytes=32 << 10, rng=Random(3)).open()[1]
    assert found.last_index == 5, "a process that ends takes nothing"


class Kept(Watched):
    """Asks for maintenance once."""

    needs_maintenance = True

    def maintain(self) -> bool:
        self.needs_maintenance = False
        self.calls.append("maintain")
        return True


def test_maintenance_runs_beside_the_writer_at_the_start_and_on_demand() -> None:
    loop, storage = Loop(), Kept()
    writer = LogWriter(storage, loop.call_soon, loop.events)
    writer.worker.close()
    assert storage.calls == ["maintain"]
    writer.close()


class Scrubbed(Watched):
    """Its scrub finds damage in the third step."""

    def scrub(self, *, step_bytes: int = 1) -> Iterator[str]:
        yield "one"
        yield "two"
        raise DamagedLog("three", step_bytes, "rot")


def test_damage_that_the_scrub_finds_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SCRUB_PAUSE_S", 0.0)
    loop, storage = Loop(), Scrubbed()
    writer = LogWriter(storage, loop.call_soon, loop.events)
    loop.run_until(lambda: bool(loop.said))
    writer.close()
    assert [str(said) for said in loop.said] == [f"three at byte {128 << 10}: rot"]


class Rotten(Watched):
    """Upkeep, or the write of one token, finds a group's entries damaged."""

    needs_maintenance = False
    rotten: Mapping[int, DamagedLog] = {}
    found_by = 0

    @property
    def damaged(self) -> Mapping[int, DamagedLog]:
        return self.rotten

    def write(self, writes: Sequence[Write]) -> None:
        if any(write.token == self.found_by for write in writes):
            self.find(1)
        super().write([write for write in writes if write.group not in self.rotten])

    def find(self, group: int) -> None:
        self.rotten = {**self.rotten, group: DamagedLog("a segment", 7, f"rot in group {group}")}

    def maintain(self) -> bool:
        self.needs_maintenance = False
        self.find(2)
        return True


def rotting(loop: Loop) -> WriterEvents:
    return attrs.evolve(loop.events, damaged=lambda groups: loop.said.append(sorted(groups)))


def test_BUG_G6_what_a_damaged_group_writes_counts_for_nothing_and_others_go_on() -> None:
    """Neither its token nor its acknowledgement leaves, nor those of what was on its way; the loop is told once."""
    loop, storage = Loop(), Rotten()
    storage.found_by = 2
    writer = LogWriter(storage, loop.call_soon, rotting(loop))
    writer.submit(vote(1))
    loop.run_until(lambda: loop.tokens() == [1])
    storage.gate.clear()
    writer.submit_with_ack(vote(2), Vow(storage, "2"))
    writer.submit(vote(3, group=2))
    storage.gate.set()
    loop.run_until(lambda: loop.tokens(2) == [3])
    writer.submit_with_ack(vote(4), Vow(storage, "4"))
    writer.submit(vote(5, group=2))
    loop.run_until(lambda: loop.tokens(2)[-1] == 5)
    writer.close()
    assert loop.tokens(1) == [1] and said(storage) == []
    assert [each for each in loop.said if isinstance(each, list)] == [[1]]


def test_BUG_G6_damage_that_upkeep_finds_is_told() -> None:
    """The helper that looks at the log is asked by nobody: what it raised was lost."""
    loop, storage = Loop(), Rotten()
    storage.needs_maintenance = True
    writer = LogWriter(storage, loop.call_soon, rotting(loop))
    loop.run_until(lambda: [2] in loop.said)
    writer.close()


def test_BUG_G6_a_write_on_the_loop_that_meets_damage_is_not_durable() -> None:
    loop, storage = Loop(), Rotten()
    storage.found_by = 1
    writer = LogWriter(storage, loop.call_soon, rotting(loop))
    assert not writer.write_inline(vote(1)) and writer.write_inline(vote(2, group=2))
    writer.close()
    loop.run_until(lambda: [1] in loop.said)


def test_BUG_G6_inline_tells_damage_like_the_thread() -> None:
    loop, storage = Loop(), Rotten()
    storage.found_by = 1
    writer = InlineWriter(storage, loop.call_soon, rotting(loop))
    writer.submit(vote(1))
    writer.submit(vote(2, group=2))
    loop.run_one()
    assert loop.said == [{2: 2}, [1]]


class Unreadable(Watched):
    def scrub(self, *, step_bytes: int = 1) -> Iterator[str]:
        yield "one"
        raise OSError(errno.EIO, "Input/output error")


def test_a_sector_that_the_scrub_cannot_read_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SCRUB_PAUSE_S", 0.0)
    loop, storage = Loop(), Unreadable()
    writer = LogWriter(storage, loop.call_soon, loop.events)
    loop.run_until(lambda: bool(loop.said))
    writer.close()
    assert "cannot be read: [Errno 5]" in str(loop.said[0])


def test_closing_does_not_wait_for_the_scrub() -> None:
    loop, storage = Loop(), Scrubbed()
    writer = LogWriter(storage, loop.call_soon, loop.events)
    writer.close()
    assert loop.calls.empty()


def test_worker_gives_results_and_errors_to_the_loop() -> None:
    loop = Loop()
    worker = Worker(loop.call_soon, "worker")
    worker.submit(lambda: threading.current_thread().name, loop.said.append)
    worker.submit(lambda: 1 // 0, loop.said.append)
    worker.submit(lambda: None)
    worker.close()
    worker.close()
    loop.run_one()
    loop.run_one()
    assert loop.said[0] == "worker"
    assert isinstance(loop.said[1], ZeroDivisionError)


# --- inline --------------------------------------------------------------------------------------------------


def test_inline_gathers_one_pass_of_the_loop() -> None:
    loop, storage = Loop(), Watched()
    writer = InlineWriter(storage, loop.call_soon, loop.events)
    for token in (1, 2, 3):
        writer.submit(vote(token))
    assert storage.calls == []
    loop.run_one()
    assert loop.calls.empty()
    assert storage.calls == [[1, 2, 3], "sync"]
    assert loop.said == [{1: 3}]
    writer.submit(vote(4))
    writer.close()
    assert loop.said == [{1: 3}, {1: 4}]


def test_inline_tells_trouble_like_the_thread() -> None:
    loop, storage = Loop(), Watched()
    writer = InlineWriter(storage, loop.call_soon, loop.events)
    for trouble in (DiskFull("no room"), WriteFailed("broken")):
        storage.trouble = trouble
        writer.submit(vote(1))
        loop.run_one()
    writer.submit(vote(2))
    loop.run_one()
    assert loop.said[0] == "full"
    assert isinstance(loop.said[1], WriteFailed)
    assert len(loop.said) == 2
