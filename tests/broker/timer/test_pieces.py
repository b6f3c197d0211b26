"""Many timers that are due at once are delivered in pieces, between which others have the loop."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.journal import JournalConfig
from broker.timer.delivery import PIECE_NS, TOGETHER_MAX
from broker.timer.part import TimersPart
from harness.simulation.worlds import brokers
from harness.simulation.worlds.brokers import EPOCH_MS, Cluster, Node, cluster, until
from remoting.record import Message
from tests.broker.timer.test_timers import bodies, good

COUNT = 600
TICK_S = JournalConfig().tick_interval_ms / 1e3
DUE_MS = EPOCH_MS + 60_000
LOOKED_AT_NS = 50_000
"""What the loop takes for one timer."""


@attrs.define(eq=False)
class Work(trio.abc.Instrument):
    """The time that the loop takes for timers, which a virtual clock lacks: in all, and at most in one pass, in which
    each task that wants it has a turn."""

    spent_ns: int = 0
    pass_ns: int = 0
    begun: trio.Event = attrs.field(factory=trio.Event)
    _before_ns: int = 0

    def now_ns(self) -> int:
        return int(trio.current_time() * 1e9) + self.spent_ns

    def take(self, message: Message, done: Callable[[], None]) -> bool:
        self.begun.set()
        self.spent_ns += LOOKED_AT_NS
        return False

    def before_io_wait(self, timeout: float) -> None:
        self.pass_ns = max(self.pass_ns, self.spent_ns - self._before_ns)
        self._before_ns = self.spent_ns


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work()
    monkeypatch.setattr(brokers, "now_ns", made.now_ns)
    return made


async def stored(made: Cluster, work: Work) -> Node:
    """A broker whose timers are all due in one second."""
    node = await made.node()
    for number in range(COUNT):
        await good(made, node, b"%d" % number, f"U{number}", TIMER_DELIVER_MS=DUE_MS)
    node.broker.parts[TimersPart].take(work.take)
    trio.lowlevel.add_instrument(work)
    return node


async def test_others_have_the_loop_while_many_timers_are_due(autojump_clock: MockClock, work: Work) -> None:
    async with cluster() as made:
        node = await stored(made, work)
        await until(lambda: len(bodies(node)) == COUNT, within_s=90)
    assert work.spent_ns == COUNT * LOOKED_AT_NS
    assert work.pass_ns <= PIECE_NS + TOGETHER_MAX * LOOKED_AT_NS


async def test_no_time_passes_between_two_pieces(autojump_clock: MockClock, work: Work) -> None:
    async with cluster() as made:
        node = await stored(made, work)
        await work.begun.wait()
        began = trio.current_time()
        await until(lambda: len(bodies(node)) == COUNT)
        assert trio.current_time() - began < TICK_S
