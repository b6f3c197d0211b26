"""Whatever implements ``Log`` carries a store, and a replica of it: RocketMQ's commit log, and one in memory alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from broker.store.batch import Batch
from broker.store.commitlog import CommitLog
from broker.store.errors import OffsetGone, WrongStore
from broker.store.files import MemoryFiles
from broker.store.log import Log
from broker.store.store import MessageStore
from remoting.errors import DamagedRecord, MessageIllegal
from remoting.record import Message, decode, encode_properties
from tests.broker.ha.group import SMALL, group
from tests.broker.store.memorylog import MemoryLog

FILE = 2_048
KINDS: dict[str, Callable[[], Log]] = {
    "files": lambda: CommitLog(MemoryFiles(), file_bytes=FILE), "memory": lambda: MemoryLog(FILE)}


def opened(kind: str) -> Log:
    log = KINDS[kind]()
    log.open()
    return log


def message(rng: Random) -> Message:
    return Message(b"t", b"x" * rng.choice((0, 9, 90, 700, FILE)), 0, encode_properties({"KEYS": f"{rng.random()}"}))


def told(call: Callable[[], object]) -> object:
    """What it returns, or what kind of error it raises."""
    try:
        return call()
    except (OffsetGone, DamagedRecord, MessageIllegal, WrongStore) as error:
        return type(error)


def step(log: Log, rng: Random) -> object:
    """One operation, and what it says."""
    at = rng.randrange(log.min_offset, log.max_offset + 1)
    ends = [log.min_offset, *(found[0] + found[1] for found in log.scan(log.min_offset))]
    end = max(each for each in ends if each <= max(at, ends[0]))
    match rng.randrange(12):
        case 0:
            log.write()
            return log.written_offset
        case 1:
            return log.flush()
        case 2:
            log.truncate(end)
        case 3:
            for _ in log.release_before(at):
                pass
        case 4:
            parts = [(0, b"y" * rng.choice((1, 80, 300)), b"") for _ in range(rng.randrange(1, 4))]
            return log.append_batch(Batch(Message(b"t", b"", 0), parts), 0, 5)
        case 5:
            ask = rng.choice((50, 1 << 20))
            found = log.run(end, at, rng.randrange(1, 5), ask=ask)[0]
            return found[:1] if ask == 50 else found
        case 6:
            return log.boundary(at), log.next_offset(end), log.newest_ms()
        case 7:
            return log.record(end) if end < log.next_offset(end) or end < ends[-1] else None
        case 8:
            log.append_raw([b"", b"z"], log.max_offset + 1)
        case 9 if rng.randrange(5) == 0:
            log.clear()
        case _:
            return log.append(message(rng), 0, rng.randrange(9))
    return None


@given(st.randoms(use_true_random=True))
@settings(max_examples=150, deadline=None)
def test_both_logs_say_the_same(rng: Random) -> None:
    seed = rng.randrange(1 << 40)
    logs = [(opened(kind), Random(seed)) for kind in KINDS]
    for _ in range(60):
        found = [(told(partial(step, log, of)), log.min_offset, log.max_offset, log.flushed_offset,
                  list(log.scan(log.min_offset))) for log, of in logs]
        assert found[0] == found[1]
        for log, _ in logs:
            assert log.flushed_offset <= log.written_offset <= log.max_offset


@pytest.mark.parametrize("kind", KINDS)
def test_the_part_of_a_message_is_waited_for_read_over_and_cut_off(kind: str) -> None:
    source, log = opened("files"), opened(kind)
    offset, size = source.append(Message(b"t", b"x" * 900), 0, 0)
    source.append(Message(b"t", b"x" * 900), 1, 0)
    raw = source.read(offset, 1 << 20)
    log.append_raw(raw[: size + 100], 0)
    assert [found[0] for found in log.run(0, 1 << 20)[0]] == [0] and log.run(size, 1 << 20) == ([], size)
    with pytest.raises(DamagedRecord):
        list(log.scan(0))
    log.append_raw([raw[size + 100 : -1], raw[-1:]], size + 100)
    assert [found[0] for found in log.scan(0)] == [0, size]
    with pytest.raises(WrongStore):
        opened(kind).append_raw(b"x", 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_lives_on_the_log_that_it_is_handed(kind: str) -> None:
    files, log, rng = MemoryFiles(), KINDS[kind](), Random(3)
    store = MessageStore(files, SMALL, log=log)
    store.open()
    for number in range(60):
        store.writer.put(Message(b"t", b"%d" % number + b"x" * rng.randrange(200), number % 2), number)
    store.log.write()
    store.visible.advance()
    store.flush()
    store.writer.put(Message(b"t", b"last", 0), 60)
    store.log.write()
    store.abandon()
    if isinstance(log, CommitLog):
        return  # it has released its files
    again = MessageStore(files, SMALL, log=log)
    again.open()
    again.visible.advance()
    bodies = [[decode(each).message.body.rstrip(b"x") for each in again.messages.get(b"t", queue, 0, count=99)]
              for queue in (0, 1)]
    assert bodies == [[*(b"%d" % number for number in range(0, 60, 2)), b"last"],
                      [b"%d" % number for number in range(1, 60, 2)]]


@pytest.mark.parametrize("kinds", [("memory", "files"), ("files", "memory")])
async def test_one_log_is_copied_to_the_other(kinds: tuple[str, str], autojump_clock: MockClock) -> None:
    logs = [MemoryLog(SMALL.log_file_bytes) if kind == "memory" else None for kind in kinds]
    async with group(2, logs=logs) as (_, (a, b)):
        await a.lead(1)
        for number in range(100):
            a.journal.append([Message(b"T", b"x" * 500, number % 2)])
        await b.follow(a, 1)
        await trio.sleep(2)
        a.journal.append([Message(b"T", b"later", 0)])
        await trio.sleep(2)
        assert [isinstance(broker.journal.log, MemoryLog) for broker in (a, b)] == [kind == "memory" for kind in kinds]
        assert a.log == b.log and len(a.log) > 3 * SMALL.log_file_bytes
        assert b.visible(0) == 51 and b.visible(1) == 50
