"""What is open is known again after a start, a crash, a cut, and on every replica."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from broker.moments import Moment
from broker.store.consumequeue import ENTRY, NOWHERE_SIZE
from broker.store.log import Log
from broker.topics.names import HALF
from broker.transactions import records
from broker.transactions.feeding import KEPT_BYTES, NEAR_BYTES, Feed, KeptTransactions
from broker.transactions.records import HALF_TOPIC, Half
from harness.simulation.worlds.brokers import cluster
from remoting.record import COMMIT, Message, Record, encode, encode_properties, outlines
from tests.broker.transactions.world import FAST, bodies, producer


@pytest.mark.parametrize("decided", [True, False])
async def test_killed_and_started_again(decided: bool, autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH", **FAST)
        async with producer(made, node) as shop:
            half = await shop.half()
            await trio.sleep(3.9)
            if decided:
                await shop.commit(shop.checks[0].place)
        await node.kill()
        await node.start()
        async with producer(made, node) as shop:
            await trio.sleep(6)
            if not decided:
                await shop.commit(shop.checks[-1].place)
            await shop.commit(half)
            await trio.sleep(60)
            assert bodies(node) == [b"paid"]


def without_a_checkpoint(*, half: int, mark: int, first: int = 0, size: int = 100,
                         kept: KeptTransactions | None = None) -> Feed:
    """Of a log from 5,000 on, with places ``first`` to 136 of the half queue: 100 bytes each, at 100 times the place.
    Nothing is shown yet, and the check loop was at ``half`` and ``mark``."""
    queue = SimpleNamespace(min_offset=first, max_offset=136, entry=lambda place: (100 * place, size, 0))
    journal: Any = SimpleNamespace(
        log=SimpleNamespace(min_offset=5_000, max_offset=20_000, flushed_offset=20_000),
        visible=SimpleNamespace(offset=0), noted=Moment("Journal.noted"), was_cut=Moment("Journal.was_cut"))
    messages: Any = SimpleNamespace(queue=lambda topic, number: queue)
    return Feed(journal, messages, kept, lambda topic: half if topic == HALF else mark)


def test_without_a_checkpoint_nothing_is_known_of_what_stands_before_the_first_half_that_is_read() -> None:
    kept = without_a_checkpoint(half=100, mark=90).checkpoint()
    assert (kept.since, kept.log_offset, kept.half_offset, kept.mark_offset) == (10_000, 10_000, 100, 90)
    begin = without_a_checkpoint(half=0, mark=0).checkpoint()
    assert (begin.since, begin.half_offset) == (5_000, 0)
    gone = without_a_checkpoint(half=100, mark=90, size=NOWHERE_SIZE).checkpoint()
    assert (gone.since, gone.half_offset) == (5_000, 100), "what stood there is in no log any more"


def test_where_the_queue_of_halves_is_shorter_than_the_check_loop_was_marks_are_read_again() -> None:
    """A put-back half behind the end of the queue may belong to a transaction from before it, and be open."""
    kept = without_a_checkpoint(half=138, mark=137).checkpoint()
    assert (kept.since, kept.log_offset, kept.half_offset, kept.mark_offset) == (13_600, 13_600, 136, 0)


def test_where_the_log_has_less_than_the_checkpoint_says_all_halves_are_read() -> None:
    """The check loop's place is no better then: it may count decisions that are gone with the log's end."""
    def begins(end: int) -> tuple[int, int, int, int]:
        kept = without_a_checkpoint(half=100, mark=90, first=20, kept=KeptTransactions(end, 7, 8, 9, 10)).checkpoint()
        return kept.since, kept.log_offset, kept.half_offset, kept.mark_offset

    assert begins(20_000) == (7, 8, 9, 10)
    assert begins(20_001) == (5_000, 5_000, 20, 0)
    assert begins(-1) == (5_000, 5_000, 20, 0), "the process before found that, and did not get far"
    assert begins(0) == (10_000, 10_000, 100, 90), "there never was one"


def test_the_checkpoint_says_what_the_disk_has_of_the_log() -> None:
    journal = HalvesAlone(["A"])
    feed = journal.feed()
    changes: list[None] = []
    feed.on_change = lambda: changes.append(None)
    feed.feed_all()
    assert not feed.checkpoint().open
    journal.log.flushed_offset = journal.log.max_offset
    changes.clear()
    feed.feed()
    assert changes and [row[0] for row in feed.checkpoint().open] == [0]
    journal.store(["A", "B"], b"paid")
    feed.feed_all()
    assert len(feed.checkpoint().open) == 1


def test_what_a_disk_does_not_give_at_once_is_read_again() -> None:
    journal = HalvesAlone(["A", "B"])
    feed = journal.feed()
    feed.feed_all()
    journal.log.flushed_offset = journal.log.max_offset
    kept = feed.checkpoint()
    assert len(kept.open) == 2
    whole, failed = journal.log.record, list[int]()

    def record(offset: int, *where: Any) -> Any:
        if offset and not failed:
            failed.append(offset)
            raise OSError(errno.EIO, "Input/output error")
        return whole(offset, *where)

    journal.log.record = record
    again: Any = Feed(journal, journal, kept)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="Input/output"):
        again.feed_all()
    again.feed_all()
    assert [each.half.unique for each in again.halves] == ["A", "B"]


def test_only_what_was_shown_since_is_looked_for_and_after_a_cut_all_of_it() -> None:
    """A log that was cut may have grown to the same end again."""
    looked: list[bytes] = []
    log = SimpleNamespace(min_offset=0, max_offset=1_000, flushed_offset=1_000, run=lambda at, upto, ask: ([], at))
    journal: Any = SimpleNamespace(
        log=log, visible=SimpleNamespace(offset=1_000), noted=Moment("Journal.noted"),
        was_cut=Moment("Journal.was_cut"))
    messages: Any = SimpleNamespace(queue=lambda topic, number: looked.append(topic), max_offset=lambda *_: 0)
    feed = Feed(journal, messages, None)

    def looks() -> bool:
        looked.clear()
        feed.feed_all()
        return bool(looked)

    assert looks()
    assert not looks(), "nothing was shown"
    journal.visible.offset = 1_100
    assert looks()
    journal.was_cut(1_000)
    assert looks()
    assert not looks()


class HalvesAlone:
    """A journal whose log has nothing but halves, with these ids, one behind the other; it counts reads of the log."""

    def __init__(self, ids: list[str], body: bytes = b"paid") -> None:
        self.reads = 0
        self.visible, self.log = SimpleNamespace(offset=0), SimpleNamespace(
            min_offset=0, max_offset=0, flushed_offset=0, read=self._read, run=lambda at, upto, ask: ([], at))
        self.log.record = lambda *where: Log.record(self.log, *where)
        self.noted, self.was_cut = Moment[[Any]]("Journal.noted"), Moment[[int]]("Journal.was_cut")
        self.store(ids, body)

    def store(self, ids: list[str], body: bytes) -> None:
        self._raw, self._entries = b"", b""
        for number, unique in enumerate(ids):
            properties = encode_properties({"UNIQ_KEY": unique, "PGROUP": "p", "REAL_TOPIC": "Paid", "REAL_QID": "0"})
            one = encode(Message(HALF_TOPIC, body, 0, properties), number, len(self._raw), 0)
            self._entries += ENTRY.pack(len(self._raw), len(one), 0)
            self._raw += one
        self.visible.offset = self.log.max_offset = len(self._raw)
        self._half_queue = SimpleNamespace(
            min_offset=0, max_offset=len(ids),
            read=lambda at, most: self._entries[at * ENTRY.size : (at + most) * ENTRY.size],
            entry=lambda place: ENTRY.unpack_from(self._entries, place * ENTRY.size))

    def _read(self, offset: int, size: int) -> bytes:
        self.reads += 1
        return self._raw[offset : offset + size]

    def tell(self, feed: Feed, *, left_out: int = -1) -> None:
        """All halves but that one, as dispatch tells queues."""
        for found in outlines(self._raw, 0)[0]:
            if found[3] != left_out:
                feed.hear_half(found, (0, self._raw))

    def queue(self, topic: bytes, number: int) -> Any:
        return self._half_queue if topic == HALF_TOPIC else None

    def max_offset(self, topic: bytes, number: int) -> int:
        return self._half_queue.max_offset if topic == HALF_TOPIC else 0

    def feed(self) -> Feed:
        journal: Any = self
        return Feed(journal, journal, None)


def test_halves_that_stand_near_each_other_are_read_at_once() -> None:
    few = HalvesAlone([f"{number:032X}" for number in range(100)])
    feed = few.feed()
    feed.feed_all()
    assert (len(feed.halves), few.reads) == (100, 1)
    many = HalvesAlone([f"{number:032X}" for number in range(100)], bytes(10_000))
    feed = many.feed()
    feed.feed_all()
    assert len(feed.halves) == 100
    assert 100 * 10_000 // NEAR_BYTES <= many.reads <= 20
    assert len(feed.near(-1)[1]) <= NEAR_BYTES
    large = HalvesAlone(["A", "B"], bytes(2 * NEAR_BYTES))
    feed = large.feed()
    feed.feed_all()
    assert (len(feed.halves), large.reads) == (2, 2)
    assert not feed.near(-1)[1], "such a one is read by itself, and not kept"


def test_after_a_cut_other_halves_are_read_where_those_stood_that_are_gone() -> None:
    journal = HalvesAlone(["A", "B"])
    feed = journal.feed()
    feed.feed_all()
    assert [each.half.unique for each in feed.halves] == ["A", "B"]
    journal.was_cut(0)
    journal.store(["C", "D"], b"paid")
    feed.feed_all()
    assert [each.half.unique for each in feed.halves] == ["C", "D"]


@pytest.mark.parametrize(("first", "begin", "believed"), [
    (0, 0, True), (None, 0, False), (1, 0, False), (1, 2, True), (1 << 40, 0, False)])
@pytest.mark.parametrize("unique", ["A", "B"])
def test_the_first_half_that_one_names_must_be_there_and_of_its_id_or_deleted(
        first: int | None, begin: int, believed: bool, unique: str) -> None:
    journal = HalvesAlone(["A"])
    journal.log.min_offset = begin
    named = Half(500, 10, 7, unique, "g", "T", 0, 0, 0, 1, None, first, 0)
    assert journal.feed().verified(named).first == (first if believed and (unique == "A" or begin) else None)


@pytest.mark.parametrize("why", [records.COMMITTED, records.ROLLED_BACK])
def test_a_decision_ends_a_half_that_was_put_back_meanwhile_where_the_first_one_is_not_known(why: str) -> None:
    """Who decided did not know yet of the half that was put back, so the mark names the place of the one before."""
    feed = HalvesAlone([]).feed()
    feed.halves.since = 100
    back = Half(200, 10, 7, "u", "g", "T", 0, 0, 0, 1, None, 50, 0)
    assert feed.halves.half(back) is not None
    mark = records.mark([3], why, "m", 0, b"h", 1, firsts=[20, 50])
    feed._take_mark(300, 0, mark.properties, mark.body)
    assert not feed.halves and list(feed.halves.unmarked) == [7]
    ended = feed.halves.ended(200)
    assert ended is not None and ended.decision == why


def test_a_commit_without_a_key_ends_such_a_half_by_its_final_record() -> None:
    journal = HalvesAlone([])
    feed = journal.feed()
    feed.halves.since = 100
    assert feed.halves.half(Half(200, 10, 7, "u", "g", "T", 0, 0, 0, 1, None, 50, 0)) is not None
    mark = records.mark([3], records.COMMITTED, "m", 0, b"h", 1)
    feed._take_mark(300, 0, mark.properties, mark.body)
    assert feed.halves.of(200) is not None, "it knows no half at that place"
    properties = encode_properties({"UNIQ_KEY": "u", "__transactionId__": "u"})
    final = Message(b"T", b"paid", 0, properties, sys_flag=COMMIT, prepared_offset=50)
    journal.log.record = lambda *where: Record(final, 0, 290, 0, 10, 0)
    feed._heard((290, 10, 0, 0, COMMIT, 0, b"T", properties))
    feed._final(feed._finals.popleft())
    ended = feed.halves.ended(200)
    assert not feed.halves and ended is not None and ended.decision == records.COMMITTED


def test_what_is_heard_is_not_read() -> None:
    """Not by decisions either, which come soon after."""
    journal, ids = HalvesAlone([]), [f"{number:032X}" for number in range(50)]
    feed = journal.feed()
    feed.feed_all()
    for count in (20, 50):  # the second time some are told again
        journal.store(ids[:count], b"paid")
        journal.tell(feed)
        journal.tell(feed)
        assert feed.behind
        feed.feed_all()
        assert not feed.behind
    assert [each.half.unique for each in feed.halves] == ids
    for each in feed.halves:
        assert journal.log.record(each.first, each.half.size, feed.near(each.first)).offset == each.first
    assert journal.reads == 0


def test_what_was_not_heard_is_read() -> None:
    journal, ids = HalvesAlone(["first"]), [f"{number:032X}" for number in range(50)]
    feed = journal.feed()
    journal.tell(feed)
    feed.feed_all()
    assert journal.reads == 1, "it was there before"
    journal.store(["first", *ids], b"paid")
    journal.tell(feed, left_out=7)
    feed.feed_all()
    assert [each.half.unique for each in feed.halves] == ["first", *ids]
    assert journal.reads == 2


def test_no_more_is_heard_than_memory_is_for() -> None:
    journal = HalvesAlone([])
    feed = journal.feed()
    feed.feed_all()
    journal.store([f"{number:032X}" for number in range(50)], bytes(KEPT_BYTES // 8))
    journal.tell(feed)
    assert feed._heard_bytes <= KEPT_BYTES * 5 // 4
    feed.feed_all()
    assert len(feed.halves) == 50
    assert sum(map(len, feed._kept.values())) <= KEPT_BYTES


def test_what_was_heard_before_a_cut_is_gone() -> None:
    journal = HalvesAlone([])
    feed = journal.feed()
    feed.feed_all()
    journal.store(["A", "B"], b"paid")
    journal.tell(feed)
    feed.feed_all()
    journal.store(["A", "B", "C"], b"paid")
    journal.tell(feed)
    end = feed.halves.highest + 1
    journal.was_cut(end)
    journal.store(["A", "B", "D"], b"paid")
    feed.feed_all()
    assert [each.half.unique for each in feed.halves] == ["A", "B", "D"]
    assert not feed._kept
