"""A slave stores and acknowledges whole records, however its master cuts them, and keeps no part of one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import repeat

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from broker.ha.epochfile import EpochFile
from broker.ha.epochs import Epoch, EpochList
from broker.ha.following import Following
from broker.ha.slave import HaSlave
from broker.ha.whole import WholeRecords
from broker.ha.wire import (
    Ack,
    Block,
    Blocks,
    HaFrameError,
    MasterHandshake,
    MasterMessages,
    Reports,
    SlaveMessages,
    Transfer,
)
from broker.journal import Journal, JournalConfig
from broker.moments import WATCH
from broker.plain.slave import SlaveCore
from broker.store.commitlog import CommitLog
from broker.store.disk import InlineDisk
from broker.store.files import SECTOR_BYTES, MemoryFiles
from broker.store.store import MessageStore
from remoting.record import Message, blank
from tests.broker.ha.group import ALL_ACK, SMALL, MemoryListener, Net, log_of

FILE = 4_096
EPOCH = Epoch(1, 0)


def log_of_sizes(bodies: list[int], topic: bytes = b"T", file_bytes: int = FILE) -> CommitLog:
    log = CommitLog(MemoryFiles(), file_bytes=file_bytes)
    log.open()
    for number, size in enumerate(bodies):
        log.append(Message(topic, b"b" * size), number, 1)
    log.write()
    return log


def content(log: CommitLog) -> bytes:
    at, parts = log.min_offset, []
    while part := log.read(at, 1 << 20):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def ends(log: CommitLog) -> set[int]:
    """Where it may end: behind each message and each blank."""
    found = {log.min_offset, log.max_offset}
    for offset, size, *_ in log.scan(log.min_offset):
        found |= {offset, offset + size}
    return found


def cuts(raw: bytes, sizes: Iterator[int]) -> Iterator[tuple[bytes, int]]:
    at = 0
    while at < len(raw):
        size = next(sizes)
        yield raw[at : at + size], at
        at += size


BODIES = st.lists(st.one_of(st.integers(0, 300), st.integers(1_000, 3_700)), max_size=30) | st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 90)), max_size=5).map(  # many of one size in a row
        lambda runs: [size for size, count in runs for _ in range(count)])


@given(BODIES, st.integers(0, 1 << 32), st.sampled_from([b"T", b"T" * 200]))
def test_of_any_pieces_whole_records_come_out(bodies: list[int], seed: int, topic: bytes) -> None:
    log, rng = log_of_sizes(bodies, topic), random.Random(seed)
    raw, allowed = content(log), ends(log)
    whole, out = WholeRecords(FILE), b""
    for data, offset in cuts(raw, iter(lambda: rng.choice((1, 3, 7, 8, 90, 700, 5_000)), 0)):
        came = offset + len(data)
        for part in whole.take(memoryview(data) if rng.random() < 0.5 else data, offset):
            out += part
            assert len(out) in allowed
        assert len(out) + whole.bytes_held == came
        assert len(out) == max(end for end in allowed if end <= came), "nothing that is whole waits"
    assert out == raw


def test_a_blank_of_eight_bytes_is_whole() -> None:
    first = log_of_sizes([FILE - 8 - log_of_sizes([0]).max_offset])
    raw = content(first) + blank(8)
    for cut in (len(raw) - 8, len(raw) - 3):
        whole = WholeRecords(FILE)
        parts = [*whole.take(raw[:cut], 0), *whole.take(raw[cut:], cut)]
        assert b"".join(map(bytes, parts)) == raw and whole.bytes_held == 0


@pytest.mark.parametrize("raw", [
    bytes(100), b"\xff" * 100, b"GET / HTTP/1.1\r\n\r\n",
    blank(FILE - 1), blank(FILE + 1),
    (3).to_bytes(4, "big") + content(log_of_sizes([50]))[4:],
    (FILE + 1).to_bytes(4, "big") + content(log_of_sizes([50]))[4:],
])
@pytest.mark.parametrize("cut", [0, 3, 8])
def test_what_is_no_record_is_refused(raw: bytes, cut: int) -> None:
    def take_both() -> None:
        whole = WholeRecords(FILE)
        assert whole.take(raw[:cut], 0) == []
        whole.take(raw[cut:], cut)

    with pytest.raises(HaFrameError, match="the master sent no message at offset 0"):
        take_both()
    good = content(log_of_sizes([50]))
    whole = WholeRecords(FILE)
    with pytest.raises(HaFrameError, match=f"at offset {len(good)}: .*Is mappedFileSizeCommitLog the master's"):
        whole.take(good + bytes(8), 0)


def outcome(raw: bytes, piece: int) -> str | bytes:
    whole, out = WholeRecords(1 << 20), b""
    try:
        for data, offset in cuts(raw, repeat(piece)):
            out += b"".join(whole.take(memoryview(data), offset))
    except HaFrameError as error:
        return str(error)
    return out


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("bad", [1, 2, 17, 18, 50, 199])
def test_among_many_of_one_size_the_one_that_is_no_record_is_found(bad: int, place: int) -> None:
    made = bytearray(content(log_of_sizes([50] * 200, file_bytes=1 << 20)))
    size = len(made) // 200
    made[bad * size + place] ^= 0x40
    raw = bytes(made)
    found = outcome(raw, len(raw))
    assert found == outcome(raw, size), "as where each comes by itself"
    if place not in (2, 3):
        assert isinstance(found, str) and f"the master sent no message at offset {bad * size}:" in found


class Master:
    """Plays one of either protocol, whose frames cut records anywhere, as a Java master's do."""

    def __init__(self, log: CommitLog, plain: bool, frames: Iterator[int]) -> None:
        self.log, self.plain, self.frames = log, plain, frames
        self.acks: list[int] = []
        self.asked: list[int] = []
        """Where each connection began."""
        self.hang_up_at: int | None = None
        self.hung_up_at = 0
        """Behind the last byte that was sent before it hung up."""

    async def run(self, listener: MemoryListener) -> None:
        while True:
            await self._serve(await listener.accept())

    async def _serve(self, stream: trio.abc.Stream) -> None:
        slave, reports, first = SlaveMessages(), Reports(), True
        try:
            while data := await stream.receive_some(1 << 16):
                for offset in self._heard(bytes(data), slave, reports):
                    if offset is None:
                        end = self.log.max_offset
                        await stream.send_all(MasterHandshake(end, EpochList([EPOCH])).to_bytes())
                        continue
                    self.acks.append(offset)
                    if first:
                        first = False
                        self.asked.append(offset)
                        await self._send(stream, offset)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        await stream.aclose()

    def _heard(self, data: bytes, slave: SlaveMessages, reports: Reports) -> list[int | None]:
        if self.plain:
            offset = reports.feed(data)
            return [] if offset is None else [offset]
        return [message.offset if isinstance(message, Ack) else None for message in slave.feed(data)]

    async def _send(self, stream: trio.abc.Stream, at: int) -> None:
        while body := self.log.read(at, next(self.frames)):
            frame = Block(at, body).to_bytes() if self.plain else Transfer(at, EPOCH, 0, body).to_bytes()
            await stream.send_all(frame)
            at += len(body)
            if self.hang_up_at is not None and at >= self.hang_up_at:
                self.hang_up_at, self.hung_up_at = None, at
                await stream.aclose()
                return


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("seed", range(6))
async def test_a_slave_holds_and_acknowledges_whole_records(plain: bool, seed: int, autojump_clock: MockClock) -> None:
    rng = random.Random(seed)
    log = log_of_sizes([rng.choice((5, 90, 700, 9_000)) for _ in range(80)], file_bytes=SMALL.log_file_bytes)
    master, allowed = Master(log, plain, iter(lambda: rng.choice((11, 600, 1_999, 6_000)), 0)), ends(log)
    master.hang_up_at = log.max_offset // 2
    journal = Journal(MessageStore(MemoryFiles(), SMALL), JournalConfig(), disk=InlineDisk())
    journal.open()
    stored: list[int] = []
    journal.grown.join(WATCH, lambda: stored.append(journal.end))
    async with trio.open_nursery() as nursery:
        net = Net(nursery, rng)
        nursery.start_soon(master.run, net.listen("m:1"))
        following: Following[Block] | Following[MasterHandshake | Transfer]
        if plain:
            following = Following(journal, SlaveCore(ALL_ACK, 0), Blocks, ALL_ACK, net.connect)
        else:
            following = Following(journal, HaSlave(ALL_ACK, 2, EpochList(), 0, 0), MasterMessages, ALL_ACK, net.connect,
                                  EpochFile(MemoryFiles()))
        await nursery.start(journal.run)
        nursery.start_soon(following.run)
        following.follow("m:1")
        with trio.fail_after(60):
            while journal.end < log.max_offset:
                await trio.sleep(0.1)
            await trio.sleep(6)
        nursery.cancel_scope.cancel()
    assert log_of(journal) == content(log)
    assert {*stored, *master.acks} <= allowed, "no part of a record counts, or is stored"
    assert master.acks[-1] == log.max_offset
    assert len(master.asked) == 2 and 0 < master.asked[1] <= master.hung_up_at, "what was held is sent again"


def test_no_power_cut_takes_a_part_of_a_record_that_no_checksum_covers() -> None:
    """Its front ends one sector, and the bytes between its sizes and its body came with the second frame."""
    filler = SECTOR_BYTES - 60 - log_of_sizes([0]).max_offset
    log = log_of_sizes([filler, 300])
    raw, begin = content(log), SECTOR_BYTES - 60
    damaged = 0
    for kept in (0, 1, 2):
        for other in (0, 1, 2):
            files, whole = MemoryFiles(), WholeRecords(FILE)
            store = MessageStore(files, SMALL)
            store.open()
            pieces = [(raw[:begin], 0), (raw[begin : begin + 40], begin), (raw[begin + 40 :], begin + 40)]
            for number, (data, offset) in enumerate(pieces):
                at = offset - whole.bytes_held
                for part in whole.take(data, offset):
                    store.writer.append_raw(part, at)
                if not number:
                    store.log.flush()
            left = iter((kept, other))
            files.crash(lambda size, left=left: min(size, next(left, size)))  # type: ignore[misc]
            after = CommitLog(files, file_bytes=SMALL.log_file_bytes)
            after.open()
            found = content(after)
            damaged += raw[: len(found)] != found
    assert not damaged
