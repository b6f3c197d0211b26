"""Work that comes all at once is done in pieces, between which others have the loop."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.journal import PIECE_MAX, PIECE_NS, JournalConfig
from broker.schedule.levels import LEVELS_MAX
from broker.schedule.part import DelaysPart
from broker.timer.delivery import TOGETHER_MAX
from broker.timer.letters import Letter
from broker.timer.part import TimersPart
from broker.timer.units import Unit
from harness.simulation.worlds import brokers
from harness.simulation.worlds.brokers import EPOCH_MS, Cluster, Node, cluster, until
from remoting.codes import RequestCode
from remoting.record import Message
from tests.broker.timer.test_timers import bodies, good

COUNT = 600
TICK_S = JournalConfig().tick_interval_ms / 1e3
DUE_MS = EPOCH_MS + 60_000
TOOK_NS = 50_000
"""What the loop takes for one message."""


@attrs.define(eq=False)
class Work(trio.abc.Instrument):
    """The messages that the loop looks at: in all, and at most in one pass, in which each task that wants it has a
    turn. Each takes some time, which a virtual clock lacks."""

    took_ns: int = TOOK_NS
    looked_at: int = 0
    most: int = 0
    begun: trio.Event = attrs.field(factory=trio.Event)
    _before: int = 0

    def now_ns(self) -> int:
        return int(trio.current_time() * 1e9) + self.looked_at * self.took_ns

    def look(self, *_: object) -> None:
        self.begun.set()
        self.looked_at += 1

    def take(self, *_: object) -> bool:
        self.look()
        return False

    def before_io_wait(self, timeout: float) -> None:
        self.most = max(self.most, self.looked_at - self._before)
        self._before = self.looked_at

    def check(self, together: int) -> None:
        """All were looked at, and so many more than a piece has time for, at most, in one pass."""
        assert self.looked_at == COUNT
        assert self.most <= (PIECE_NS // self.took_ns + together if self.took_ns else PIECE_MAX)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work()
    monkeypatch.setattr(brokers, "now_ns", made.now_ns)
    return made


async def stored(made: Cluster, work: Work, **settings: str) -> Node:
    """A broker whose timers are all due in one second."""
    node = await made.node(**settings)
    for number in range(COUNT):
        await good(made, node, b"%d" % number, f"U{number}", TIMER_DELIVER_MS=DUE_MS)
    trio.lowlevel.add_instrument(work)
    return node


async def test_others_have_the_loop_while_many_timers_are_due(autojump_clock: MockClock, work: Work) -> None:
    async with cluster() as made:
        node = await stored(made, work)
        node.broker.parts[TimersPart].take(work.take)
        await until(lambda: len(bodies(node)) == COUNT, within_s=90)
    work.check(TOGETHER_MAX)


async def test_no_time_passes_between_two_pieces(autojump_clock: MockClock, work: Work) -> None:
    async with cluster() as made:
        node = await stored(made, work)
        node.broker.parts[TimersPart].take(work.take)
        await work.begun.wait()
        began = trio.current_time()
        await until(lambda: len(bodies(node)) == COUNT)
        assert trio.current_time() - began < TICK_S


@pytest.mark.parametrize("took_ns", [TOOK_NS, 0])
async def test_others_have_the_loop_while_many_timers_come_into_the_wheel(
        autojump_clock: MockClock, work: Work, took_ns: int) -> None:
    work.took_ns = took_ns
    async with cluster() as made:
        node = await stored(made, work, timerStopEnqueue="true")
        part = node.broker.parts[TimersPart]
        part._delivery.came = work.look
        began = trio.current_time()
        await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"timerStopEnqueue=false")
        await until(lambda: part.places[0] == COUNT)
        assert trio.current_time() - began < 2 * TICK_S
        await until(lambda: len(bodies(node)) == COUNT, within_s=90)
    work.check(1)


async def test_timers_that_were_due_as_they_came_into_the_wheel_wait_for_no_tick(
        autojump_clock: MockClock, work: Work) -> None:
    async with cluster() as made:
        node = await stored(made, work, timerStopEnqueue="true")
        await trio.sleep(90)
        part = node.broker.parts[TimersPart]
        part._delivery.came = work.look
        await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"timerStopEnqueue=false")
        await work.begun.wait()
        began = trio.current_time()
        await until(lambda: len(bodies(node)) == COUNT)
        assert trio.current_time() - began < TICK_S


async def test_others_have_the_loop_while_timers_make_way_for_the_log(
        autojump_clock: MockClock, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        node = await made.node()
        for number in range(COUNT):
            await good(made, node, b"%d" % number, f"U{number}", TIMER_DELIVER_MS=EPOCH_MS + 600_000)
        part = node.broker.parts[TimersPart]
        await until(lambda: part.places[0] == COUNT)
        trio.lowlevel.add_instrument(work)
        rolled = Letter.rolled

        def roll(letter: Letter, unit: Unit, now_ms: int, *, moved: bool) -> Message:
            work.look()
            return rolled(letter, unit, now_ms, moved=moved)

        monkeypatch.setattr(Letter, "rolled", roll)
        part.make_way(node.broker.journal.end)
        await until(lambda: part.counters.moved == COUNT)
    work.check(TOGETHER_MAX)


@pytest.mark.parametrize("took_ns", [TOOK_NS, 0])
async def test_others_have_the_loop_while_messages_of_all_levels_are_due(
        autojump_clock: MockClock, work: Work, took_ns: int) -> None:
    work.took_ns = took_ns
    async with cluster() as made:
        node = await made.node(messageDelayLevel=" ".join(["1s"] * LEVELS_MAX))
        part = node.broker.parts[DelaysPart]
        part.end()
        for number in range(COUNT):
            await made.send(node.address, b"%d" % number, properties=f"DELAY\x01{1 + number % LEVELS_MAX}\x02")
        await trio.sleep(2)
        part._delivery.expects = work.look
        trio.lowlevel.add_instrument(work)
        part.begin()
        await work.begun.wait()
        began = trio.current_time()
        await until(lambda: len(bodies(node)) == COUNT)
        assert trio.current_time() - began < TICK_S
    work.check(TOGETHER_MAX)
