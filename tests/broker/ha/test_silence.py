"""Who beats, who is silent, and who is never accused: both ends of an HA connection, a tick each 100 ms of time that is
told."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.epochs import Epoch, EpochList
from broker.ha.insync import InSync
from broker.ha.master import HaMaster, LogView, SendLog
from broker.ha.silence import Attention, Ear
from broker.ha.slave import HaSlave, Output, Send, SetConfirm
from broker.ha.wire import Ack, MasterHandshake, SlaveHandshake, SlaveMessages, Transfer
from tests.broker.ha.group import ALL_ACK, Broker, group, in_sync

MS = NS_PER_MS
TICK = 100
OLDER = attrs.evolve(ALL_ACK, beat_interval_ms=0)
"""What a version before beats says, and what a Java peer does: the same frames, each 5 s where nothing happens."""
END = 10


@attrs.define
class Pair:
    """A master, broker 1, and a slave, broker 2, level at offset ``END``. What one says arrives within a millisecond,
    unless its way is cut or held up."""

    ours: HaConfig = ALL_ACK
    theirs: HaConfig = ALL_ACK
    now: int = 0
    held: InSync = attrs.field(init=False)
    master: HaMaster = attrs.field(init=False)
    slave: HaSlave = attrs.field(init=False)
    to_master: list[Ack | SlaveHandshake] = attrs.field(factory=list)
    to_slave: list[Transfer | MasterHandshake] = attrs.field(factory=list)
    cut: bool = False
    """Nothing passes, and nobody is told."""
    held_up: bool = False
    """What passes comes later, all at once."""
    master_paused: bool = False
    slave_paused: bool = False
    acks: list[int] = attrs.field(factory=list)
    """What the slave acknowledged, as the master hears it."""
    heard: int = 0
    """When it heard from it last, ms."""
    empty: list[int] = attrs.field(factory=list)
    """When the master said nothing new."""
    body: int = 0
    """Bytes in each frame of a busy master, one each 10 ms."""

    def __attrs_post_init__(self) -> None:
        epochs = EpochList([(1, 0)])
        self.held = InSync(1, self.ours, frozenset({1, 2}), 1, 0, 0, END, END, 0)
        self.master = HaMaster(self.ours, self.held, epochs)
        self.slave = HaSlave(self.theirs, 2, epochs, END, 0)
        self.slave.follow("m:1", 0)
        self.connect()

    @property
    def now_ns(self) -> int:
        return self.now * MS

    def connect(self) -> None:
        self.master.opened(1, self.now_ns)
        self.do(self.slave.connected(self.now_ns))

    def do(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Send) and not self.cut:
                self.to_master += SlaveMessages().feed(output.data)

    def run(self, ms: int, at_tick: Callable[[], None] = lambda: None) -> None:
        for _ in range(ms):
            self.now += 1
            if self.body and self.now % 10 == 0 and not self.master_paused:
                self.held.advanced(self.held.log_end + self.body, self.held.log_end + self.body)
            if not self.held_up:
                self.pass_on()
            if self.now % TICK == 0:
                if not self.master_paused:
                    assert self.master.tick(self.now_ns) == []
                if not self.slave_paused:
                    self.do(self.slave.tick(self.now_ns))
                at_tick()

    def pass_on(self) -> None:
        if not self.master_paused:
            words, self.to_master = self.to_master, []
            for word in words:
                assert self.master.received(1, word, self.now_ns) == []
                self.heard = self.now
                self.acks += [word.offset] if isinstance(word, Ack) else []
            self.write()
        if not self.slave_paused:
            frames, self.to_slave = self.to_slave, []
            for frame in frames:
                self.do(self.slave.received(frame, self.now_ns))
                if isinstance(frame, Transfer) and frame.body:
                    self.do(self.slave.stored(frame.offset + len(frame.body), self.now_ns))

    def write(self) -> None:
        while True:
            todo = self.master.next_send(1, LogView(0, self.held.log_end), self.now_ns)
            if isinstance(todo, SendLog):
                self.empty += [self.now] * (not todo.size)
                frame: Transfer | MasterHandshake = Transfer(todo.offset, todo.epoch, todo.confirm, bytes(todo.size))
            elif isinstance(todo, MasterHandshake):
                frame = todo
            else:
                return
            if not self.cut:
                self.to_slave.append(frame)

    @property
    def accused(self) -> frozenset[int]:
        return self.held.silent(self.now_ns)

    @property
    def slave_accuses(self) -> bool:
        return self.slave.master_silent(self.now_ns)


def until(pair: Pair, holds: Callable[[], bool], at_most_ms: int = 60_000) -> int:
    """Milliseconds from now until it holds, as the ticks see it."""
    began = pair.now
    while not holds():
        assert pair.now < began + at_most_ms, "never"
        pair.run(1)
    return pair.now - began


def test_both_of_ours_repeat_themselves_each_half_second() -> None:
    pair = Pair()
    pair.run(1_000)
    said, told = len(pair.acks), len(pair.empty)
    pair.run(60_000)
    assert len(pair.acks) - said == 120
    assert 120 <= len(pair.empty) - told <= 132, "and Java's own, each 5 s"
    assert (pair.accused, pair.slave_accuses) == (frozenset(), False)


@pytest.mark.parametrize("body", [0, 100], ids=["idle", "busy"])
def test_a_silent_slave_of_ours_leaves_the_set_in_ha_silence_ms(body: int) -> None:
    pair = Pair(body=body)
    pair.run(3_000)
    pair.cut = True
    assert pair.held.wanted(pair.now_ns) is None
    took = until(pair, lambda: pair.held.wanted(pair.now_ns) == frozenset({1}))
    assert pair.now == pair.heard + 2_000
    assert took <= 2_001
    assert pair.accused == {2}


def test_time_alone_tells_the_master_when_to_look() -> None:
    pair = Pair()
    pair.run(3_000)
    assert pair.held.deadline_after(pair.now_ns) == (pair.heard + 2_000) * MS


def test_a_slave_that_is_never_idle_is_known_by_its_second_acknowledgement() -> None:
    pair = Pair(body=100)
    until(pair, lambda: len(pair.acks) > len(set(pair.acks)))
    assert pair.now <= TICK + 1
    pair.cut = True
    until(pair, lambda: pair.accused == {2})
    assert pair.now == pair.heard + 2_000


def test_a_slave_that_reports_each_five_seconds_is_never_silent() -> None:
    """An idle Java slave, and one of ours of before: only who has not caught up for 15 s leaves."""
    pair = Pair(theirs=OLDER)

    def nobody() -> None:
        assert pair.held.wanted(pair.now_ns) is None

    pair.run(60_000, nobody)
    pair.cut = True
    until(pair, lambda: pair.held.wanted(pair.now_ns) == frozenset({1}))
    assert pair.now == pair.heard + 15_000


@pytest.mark.parametrize("seconds", [6, 7.7, 9, 11, 14])
@pytest.mark.parametrize("began", [1, 7_000], ids=["from the first report on", "later"])
def test_a_network_that_holds_its_reports_up_makes_no_java_slave_one_that_beats(seconds: float, began: int) -> None:
    pair = Pair(theirs=OLDER)
    pair.run(began)
    pair.held_up = True
    pair.run(int(seconds * 1_000))
    pair.held_up = False

    def nobody() -> None:
        assert pair.accused == frozenset()

    pair.run(40_000, nobody)


@pytest.mark.parametrize("paused_ms", [700, 2_100, 4_690, 9_900])
@pytest.mark.parametrize("began", [1, 5_010], ids=["before the first report", "later"])
@pytest.mark.parametrize("theirs", [ALL_ACK, OLDER], ids=["ours", "java"])
def test_a_master_that_was_stopped_accuses_nobody(paused_ms: int, theirs: HaConfig, began: int) -> None:
    pair = Pair(theirs=theirs)
    pair.run(began)
    pair.master_paused = True
    pair.run(paused_ms)
    assert not pair.accused, "whoever asks before the ticks go on"
    pair.master.tick(pair.now_ns)
    assert not pair.accused, "and before anything is read"
    pair.master_paused = False

    def nobody() -> None:
        assert pair.held.wanted(pair.now_ns) is None

    pair.run(20_000, nobody)


def test_whose_silence_goes_on_behind_the_judges_pause_is_silent_all_the_same() -> None:
    pair = Pair()
    pair.run(5_000)
    pair.cut = pair.master_paused = True
    pair.run(1_500)
    pair.master_paused = False
    resumed = pair.now
    until(pair, lambda: pair.accused == {2})
    assert resumed + 2_000 <= pair.now <= resumed + 2_000 + TICK


@pytest.mark.parametrize("body", [0, 100], ids=["idle", "busy"])
def test_a_slave_that_speaks_again_is_not_silent_and_shows_anew_that_it_beats(body: int) -> None:
    pair = Pair(body=body)
    pair.run(3_000)
    pair.held_up = True
    pair.run(4_000)
    assert pair.accused == {2}
    pair.held.ask(1, frozenset({1}), pair.now_ns)
    pair.held.accept({1}, 2)
    pair.held_up = False
    until(pair, lambda: pair.held.wanted(pair.now_ns) == frozenset({1, 2}))
    pair.held.ask(2, frozenset({1, 2}), pair.now_ns)
    pair.held.accept({1, 2}, 3)
    pair.run(1_800)
    pair.cut = True
    until(pair, lambda: pair.accused == {2})
    assert pair.now == pair.heard + 2_000


def test_a_master_beats_to_those_alone_who_beat() -> None:
    pair = Pair(theirs=OLDER)
    pair.run(30_000)
    gaps = [after - before for before, after in zip(pair.empty, pair.empty[1:], strict=False) if before > 200]
    assert min(gaps) >= 5_000, "what RocketMQ's master says, and no more"
    silent = Pair(ours=attrs.evolve(ALL_ACK, beat_interval_ms=0))
    silent.run(30_000)
    assert len([at for at in silent.empty if at > 200]) <= 6
    assert not silent.accused


def test_a_silent_master_of_ours_is_noticed() -> None:
    for body in (0, 100):
        pair = Pair(body=body)
        pair.run(3_000)
        assert not pair.slave_accuses
        pair.master_paused = True
        until(pair, lambda pair=pair: pair.slave_accuses)  # type: ignore[misc]
        assert 4_400 <= pair.now <= 5_000
        pair.master_paused = False
        pair.run(2)
        assert not pair.slave_accuses


def test_a_master_that_does_not_beat_is_silent_only_without_a_connection() -> None:
    """As Java's masters, and ours of before."""
    pair = Pair(ours=OLDER)

    def never() -> None:
        assert not pair.slave_accuses

    pair.run(30_000, never)
    pair.master_paused = True
    pair.run(14_000, never)
    pair.slave.closed(pair.now_ns)
    closed = pair.now
    until(pair, lambda: pair.slave_accuses)
    assert closed + 2_000 <= pair.now <= closed + 2_000 + TICK
    pair.to_slave.clear()
    pair.slave.connected(pair.now_ns)
    assert pair.slave_accuses, "a stopped process is connected to as well, by its system; it answers nothing"
    pair.slave.received(MasterHandshake(END, EpochList([(1, 0)])), pair.now_ns)
    assert not pair.slave_accuses


def test_a_master_of_before_that_tells_of_confirm_offsets_does_not_beat() -> None:
    """Empty frames each 300 ms: each says something new."""
    slave = HaSlave(ALL_ACK, 2, EpochList([(1, 0)]), END, 0)
    slave.follow("m:1", 0)
    slave.connected(0)
    slave.received(MasterHandshake(END, EpochList([(1, 0)])), 0)
    end = END
    for now in range(0, 6_000, TICK):
        slave.tick(now * MS)
        if now % 300 == 0:
            slave.received(Transfer(end, Epoch(1, 0), end - 1, b"x"), now * MS)
            end += 1
            slave.stored(end, now * MS)
        if now % 300 == 100:
            assert SetConfirm(end) in slave.received(Transfer(end, Epoch(1, 0), end), now * MS)
    for now in range(6_000, 20_000, TICK):
        slave.tick(now * MS)
        assert not slave.master_silent(now * MS)


def test_a_slave_that_was_stopped_accuses_nobody() -> None:
    pair = Pair()
    pair.run(3_000)
    pair.slave_paused = True
    pair.run(5_000)
    assert not pair.slave_accuses
    pair.do(pair.slave.tick(pair.now_ns))
    assert not pair.slave_accuses
    pair.slave_paused = False

    def never() -> None:
        assert not pair.slave_accuses

    pair.run(10_000, never)


def test_a_master_silent_for_long_stays_so_when_its_connection_ends() -> None:
    pair = Pair()
    pair.run(3_000)
    pair.master_paused = True
    until(pair, lambda: pair.slave_accuses)
    pair.slave.closed(pair.now_ns)
    accused = [pair.slave_accuses]
    pair.slave.follow("m:2", pair.now_ns)
    accused.append(pair.slave_accuses)
    assert accused == [True, False], "another master begins with nothing said against it"
    until(pair, lambda: pair.slave_accuses)
    pair.slave.follow(None, pair.now_ns)
    pair.run(3_000)
    assert not pair.slave_accuses, "who follows nobody, as with a disk that is full, does not know"


def test_connections_live_on_and_with_them_what_was_seen_of_a_slave() -> None:
    pair = Pair(body=100)
    pair.run(1_000)
    held = InSync(1, ALL_ACK, frozenset({1, 2}), 2, pair.held.log_end, 0, pair.held.log_end, pair.held.log_end,
                  pair.now_ns)
    pair.master.renew(EpochList([(1, 0), (2, pair.held.log_end)]), held, pair.now_ns)
    pair.held, pair.cut = held, True
    until(pair, lambda: pair.accused == {2})
    assert pair.now == pair.heard + 2_000


def test_one_that_was_taken_for_what_it_is_not_is_accused_once() -> None:
    """It repeated itself by some chance as who beats does, and goes on each 5 s."""
    attention = Attention(ALL_ACK, 0)
    ear, accused = Ear(attention, 0), []
    for now in range(0, 60_000, TICK):
        attention.look(now * MS)
        ear.look(now * MS)
        if now in (10_000, 10_300, 10_600, 10_900) or now % 5_000 == 0:
            ear.repeated(now * MS)
            ear.heard_ns = now * MS
        if ear.silent(now * MS):
            accused.append(now)
    assert accused == [*range(12_900, 15_000, TICK)]


def test_who_repeats_itself_faster_than_it_must_is_known_too() -> None:
    attention = Attention(ALL_ACK)
    ear = Ear(attention, 0)
    for now in range(10_000, 10_700, 50):
        attention.look(now * MS)
        assert not ear.beats
        ear.repeated(now * MS)
        if now >= 10_500:
            break
    assert ear.beats


THIRD = 2_000 * MS // 3
EIGHTH = 250 * MS
AT = 50_000 * MS


@pytest.mark.parametrize(("answered", "repeated", "beats"), [
    (THIRD, THIRD, True), (THIRD + 1, 0, False), (0, THIRD + 1, False)])
def test_first_words_that_come_in_time_and_again_at_once(answered: int, repeated: int, beats: bool) -> None:
    """Nanoseconds from the question to the answer, and from there to its repetition."""
    ear = Ear(Attention(ALL_ACK, AT), AT)
    ear.began(AT, AT + answered)
    ear.repeated(AT + answered + repeated)
    assert ear.beats == beats


@pytest.mark.parametrize(("gaps", "beats"), [
    ([THIRD, THIRD], True), ([THIRD + 1, THIRD], False), ([THIRD, THIRD + 1], False), ([THIRD], False),
    ([EIGHTH, EIGHTH], True), ([EIGHTH, EIGHTH - 1], False), ([EIGHTH - 1, EIGHTH], False),
    ([THIRD, THIRD + 1, THIRD], False), ([THIRD, THIRD + 1, THIRD, THIRD], True)])
def test_repetitions_count_at_a_beats_distance(gaps: list[int], beats: bool) -> None:
    ear, now = Ear(Attention(ALL_ACK, AT), AT), AT
    ear.repeated(now)
    for gap in gaps:
        assert not ear.beats
        now += gap
        ear.repeated(now)
    assert ear.beats == beats


def test_who_is_known_to_beat_may_be_too_busy_to_repeat_itself() -> None:
    ear = Ear(Attention(ALL_ACK, AT), AT)
    ear.began(AT, AT)
    ear.repeated(AT)
    ear.repeated(AT + 5_000 * MS)
    assert ear.beats


def test_a_look_that_comes_a_quarter_of_a_silence_late_shows_a_pause() -> None:
    late = (TICK + 500) * MS
    attention = Attention(ALL_ACK, AT)
    attention.look(AT + late)
    assert attention.silent_ns(AT) == AT + 2_000 * MS
    attention.look(AT + 2 * late + 1)
    assert attention.silent_ns(AT) == AT + 2 * late + 1 + 2_000 * MS


def accuses(broker: Broker) -> bool:
    return broker.switch.master_silent


async def test_whole_replicas_notice_each_others_silence(autojump_clock: MockClock) -> None:
    async with group(3) as (net, (a, b, c)):
        held = await a.lead(1, {1, 2, 3})
        await b.follow(a, 1)
        await c.follow(a, 1)
        await trio.sleep(10)
        assert held.silent(a.journal.now_ns()) == frozenset()
        assert not accuses(b) and not accuses(c)
        told = b.changes, c.changes
        net.links[0].hangs = True
        await trio.sleep(2.5)
        assert held.wanted(a.journal.now_ns()) == frozenset({1, 3})
        assert accuses(b) and not accuses(c)
        assert b.changes == told[0] + 1, "the replicas manager hears of it"
        assert c.changes == told[1]
        net.links[0].hangs = False
        await trio.sleep(2)
        assert held.wanted(a.journal.now_ns()) is None
        assert not accuses(b)
        assert b.changes == told[0] + 2


def three_in_sync(*last_word_ms: int, least: int = 2) -> tuple[InSync, Attention]:
    """A master and two slaves that beat and were heard then for the last time."""
    attention, held = Attention(ALL_ACK), in_sync({1, 2, 3}, end=10)
    held.demand(least)
    for broker_id, heard_ms in enumerate(last_word_ms, start=2):
        held.opened(broker_id, False, 0, Ear(attention, heard_ms * MS, beats=True))
        held.acked(broker_id, 10, heard_ms * MS)
    return held, attention


def left_at(held: InSync, attention: Attention) -> list[tuple[int, frozenset[int]]]:
    """Sets that are wanted, each with the millisecond from which on it is."""
    found: list[tuple[int, frozenset[int]]] = []
    for now in range(0, 10_000, 100):
        attention.look(now * MS)
        wanted = held.wanted(now * MS)
        if wanted is not None and (not found or found[-1][1] != wanted):
            found.append((now, wanted))
    return found


def test_members_that_are_lost_together_leave_together() -> None:
    """One by one, who left first could not lead on any more, nor could the two of them: a step must not cost that."""
    held, attention = three_in_sync(5_000, 5_300)
    assert left_at(held, attention) == [(7_300, frozenset({1}))]
    assert [held.deadline_after(at * MS) for at in (6_999, 7_000)] == [7_000 * MS, 7_300 * MS], "time alone tells it"
    assert left_at(*three_in_sync(5_000, 5_600)) == [(7_000, frozenset({1, 3})), (7_600, frozenset({1}))]
    assert left_at(*three_in_sync(5_000, 5_300, least=1)) == [
        (7_000, frozenset({1, 3})), (7_300, frozenset({1}))], "enough stay, whoever leaves"


def test_who_is_only_about_to_fall_silent_holds_nobody_up_for_longer_than_a_beat() -> None:
    held, attention = three_in_sync(5_000, 5_300)
    ear = held._slaves[3].ear
    assert ear is not None
    for now in range(0, 7_200, 100):
        attention.look(now * MS)
        assert held.wanted(now * MS) is None
    ear.heard_ns = 7_150 * MS
    attention.look(7_200 * MS)
    assert held.wanted(7_200 * MS) == frozenset({1, 3})


async def test_a_slave_whose_master_is_gone_knows_it(autojump_clock: MockClock) -> None:
    async with group(2) as (_, (a, b)):
        await a.lead(1)
        await b.follow(a, 1)
        await trio.sleep(3)
        await a.stop()
        await trio.sleep(1.9)
        assert not accuses(b)
        await trio.sleep(0.3)
        assert accuses(b)
        await b.switch.leave("it has no master any more")
        assert not accuses(b)
