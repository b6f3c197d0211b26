"""Who may deliver: one broker at a time, whatever becomes of messages, links and processes; and how soon."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from random import Random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.acting.right import ActingRight, Always, MasterRight, Right

MS = 1_000_000
TIMEOUT_MS, RIGHT_MS, BEAT_MS = 10_000, 3_000, 1_000


@attrs.define(eq=False)
class NameServer:
    """Lists whoever beat lately, by id."""

    name: str
    last_ms: dict[int, float] = attrs.field(factory=dict)

    def beats(self, broker_id: int, now_ms: float) -> None:
        self.last_ms[broker_id] = now_ms

    def members(self, now_ms: float) -> dict[int, str]:
        self.last_ms = {each: last for each, last in self.last_ms.items() if now_ms - last < TIMEOUT_MS}
        return {each: f"b{each}:1" for each in self.last_ms}


@attrs.define(eq=False)
class Broker:
    number: int
    right: Right
    beaten_ms: dict[str, float] = attrs.field(factory=dict)
    paused_until_ms: float = 0
    dead: bool = False
    held_ms: float = 0


class Scene:
    """A master, slaves and name servers, with messages that take their time; ``cut`` links lose them in silence."""

    def __init__(self, servers: int, slaves: int, rng: Random) -> None:
        self.now_ms, self.rng = 0.0, rng
        self.servers = [NameServer(f"n{number}:1") for number in range(servers)]
        self.brokers = [Broker(0, MasterRight("b0:1", timeout_ns=TIMEOUT_MS * MS, right_ns=RIGHT_MS * MS))]
        self.brokers += [Broker(number, ActingRight(number, f"b{number}:1", timeout_ns=TIMEOUT_MS * MS,
                                                    right_ns=RIGHT_MS * MS)) for number in range(1, slaves + 1)]
        self.cut: set[tuple[int, str]] = set()
        self.overlaps_ms = self.longest_ms = self._overlap_ms = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        for broker in self.brokers:
            broker.right.use([server.name for server in self.servers])
            for server in self.servers:
                self._at(rng.uniform(0, BEAT_MS), partial(self._beat, broker, server))

    def _at(self, delay_ms: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, call))

    def _beat(self, broker: Broker, server: NameServer) -> None:
        """A heartbeat and its answer, a question and its answer: each takes a while, or is lost."""
        self._at(BEAT_MS, lambda: self._beat(broker, server))
        if broker.dead or self.now_ms < broker.paused_until_ms:
            return
        left_ms, way = self.now_ms, [self.rng.uniform(0, 300) for _ in range(4)]

        def reaches() -> bool:
            return (broker.number, server.name) not in self.cut

        def beaten() -> None:
            if reaches():
                server.beats(broker.number, self.now_ms)
                self._at(way[1], answered)

        def answered() -> None:
            if reaches() and not broker.dead:
                broker.beaten_ms[server.name] = max(left_ms, broker.beaten_ms.get(server.name, 0))
                beaten_ms, asked_ms = broker.beaten_ms[server.name], self.now_ms
                self._at(way[2], lambda: asked(beaten_ms, asked_ms))

        def asked(beaten_ms: float, asked_ms: float) -> None:
            if reaches():
                members = server.members(self.now_ms)
                self._at(way[3], lambda: heard(members, beaten_ms, asked_ms))

        def heard(members: dict[int, str], beaten_ms: float, asked_ms: float) -> None:
            if self.now_ms < broker.paused_until_ms:
                self._at(broker.paused_until_ms - self.now_ms, lambda: heard(members, beaten_ms, asked_ms))
            elif reaches() and not broker.dead:
                broker.right.heard(server.name, members, asked_ns=int(asked_ms * MS), beaten_ns=int(beaten_ms * MS),
                                   now_ns=int(self.now_ms * MS))

        self._at(way[0], beaten)

    def holds(self, number: int) -> bool:
        broker = self.brokers[number]
        return not broker.dead and self.now_ms >= broker.paused_until_ms and not broker.right.why_not(
            int(self.now_ms * MS))

    def run(self, for_ms: float) -> None:
        """In steps of 50 ms, in which it is looked who may deliver."""
        end_ms = self.now_ms + for_ms
        while self.now_ms < end_ms:
            step_ms = self.now_ms + 50
            while self._events and self._events[0][0] <= step_ms:
                self.now_ms, _, call = heapq.heappop(self._events)
                call()
            self.now_ms = step_ms
            may = [broker for broker in self.brokers if self.holds(broker.number)]
            self.overlaps_ms += 50 * (len(may) > 1)
            self._overlap_ms = self._overlap_ms + 50 if len(may) > 1 else 0.0
            self.longest_ms = max(self.longest_ms, self._overlap_ms)
            for broker in may:
                broker.held_ms += 50

    def first(self, number: int, within_ms: float) -> float:
        """How long it took until that one might deliver."""
        begun_ms = self.now_ms
        while not self.holds(number):
            assert self.now_ms - begun_ms < within_ms, self.brokers[number].right.why_not(int(self.now_ms * MS))
            self.run(50)
        return self.now_ms - begun_ms


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 2), st.integers(0, 2**32))
def test_one_at_a_time(servers: int, slaves: int, seed: int) -> None:
    rng = Random(seed)
    scene = Scene(servers, slaves, rng)
    scene.run(8_000)
    assert scene.holds(0)
    for _ in range(6):
        broker = rng.choice(scene.brokers)
        what = rng.randrange(4)
        if what == 0:
            broker.paused_until_ms = scene.now_ms + rng.uniform(0, 25_000)
        elif what == 1:
            broker.dead = not broker.dead
        else:
            link = broker.number, rng.choice(scene.servers).name
            scene.cut.symmetric_difference_update((link,) if what == 2 else {
                (broker.number, server.name) for server in scene.servers})
        scene.run(rng.uniform(0, 16_000))
    assert scene.overlaps_ms == 0
    scene.cut.clear()
    for broker in scene.brokers:
        broker.dead, broker.paused_until_ms = False, 0
    scene.run(25_000)
    assert scene.overlaps_ms == 0
    assert scene.holds(0), "in the end the master delivers again"


@pytest.mark.parametrize("servers", [1, 2, 3, 4])
def test_how_soon(servers: int) -> None:
    """A dead master: by the first answers without it. One that comes back: when no slave's right is left."""
    scene = Scene(servers, 2, Random(7))
    scene.run(8_000)
    assert scene.holds(0)
    scene.brokers[0].dead = True
    scene.run(TIMEOUT_MS - 1_500)
    assert not scene.holds(1)
    assert scene.first(1, 5_000) > 0
    assert not scene.holds(2)
    scene.run(5_000)
    scene.brokers[0].dead = False
    assert RIGHT_MS < scene.first(0, RIGHT_MS + 2_500)
    assert not scene.holds(1)
    assert scene.overlaps_ms == 0


@pytest.mark.parametrize(("servers", "lost", "holds"), [
    (1, 1, False), (2, 1, True), (2, 2, False), (3, 1, True), (3, 2, False), (4, 2, True), (4, 3, False)])
def test_a_master_needs_half_of_them_and_a_slave_more(servers: int, lost: int, holds: bool) -> None:
    scene = Scene(servers, 1, Random(1))
    scene.run(8_000)
    scene.cut = {(0, server.name) for server in scene.servers[:lost]}
    scene.run(3 * TIMEOUT_MS)
    assert (scene.holds(0), scene.holds(1)) == (holds, not holds)


def test_a_name_server_that_closes_connections_lets_both_deliver_for_the_timeout_at_most() -> None:
    scene = Scene(1, 1, Random(3))
    scene.run(8_000)
    scene.cut = {(0, "n0:1")}
    del scene.servers[0].last_ms[0]
    scene.run(3 * TIMEOUT_MS)
    assert TIMEOUT_MS - 2 * BEAT_MS < scene.overlaps_ms <= TIMEOUT_MS


def test_a_slave_that_hears_its_master_lets_it_come_to_its_end() -> None:
    scene = Scene(1, 1, Random(3))
    scene.brokers[1].right = ActingRight(1, "b1:1", timeout_ns=TIMEOUT_MS * MS, right_ns=RIGHT_MS * MS,
                                         hears_master=lambda: True)
    scene.brokers[1].right.use(["n0:1"])
    scene.run(8_000)
    scene.cut = {(0, "n0:1")}
    del scene.servers[0].last_ms[0]
    scene.run(3 * TIMEOUT_MS)
    assert scene.overlaps_ms == 0
    assert scene.holds(1)


def test_what_a_name_server_says_that_is_none_any_more_counts_no_more() -> None:
    scene = Scene(2, 1, Random(5))
    scene.run(8_000)
    scene.brokers[0].right.use(["n8:1", "n9:1"])
    assert not scene.holds(0)
    assert "0 of 2 name servers" in scene.brokers[0].right.why_not(0)
    scene.run(2_000)
    assert not scene.holds(0)


def test_a_master_is_none_where_a_name_server_lists_another() -> None:
    right = MasterRight("b0:1", timeout_ns=TIMEOUT_MS * MS, right_ns=RIGHT_MS * MS)
    right.use(["n"])
    right.heard("n", {0: "b0:1"}, asked_ns=0, beaten_ns=0, now_ns=5)
    later = RIGHT_MS * MS + 5
    assert right.why_not(later - 1), "it has been listed too short a time"
    assert not right.why_not(later)
    right.heard("n", {0: "other:1"}, asked_ns=later + 6, beaten_ns=later + 6, now_ns=later + 7)
    assert right.why_not(later + 7), "another one is master there"


def test_where_nobody_is_asked_the_role_decides() -> None:
    right = Always()
    right.use(["n"])
    right.heard("n", {}, asked_ns=0, beaten_ns=None, now_ns=0)
    assert not right.why_not(0)


def test_it_says_when_its_word_may_change_by_itself() -> None:
    master = MasterRight("b0:1", timeout_ns=TIMEOUT_MS * MS, right_ns=RIGHT_MS * MS)
    master.use(["n"])
    assert Always().changes_ns(0) == master.changes_ns(0) > 1 << 62, "by itself it does not"
    master.heard("n", {0: "b0:1"}, asked_ns=1 * MS, beaten_ns=0, now_ns=2 * MS)
    begins_ns, ends_ns = (2 + RIGHT_MS) * MS, TIMEOUT_MS * MS
    assert master.changes_ns(3 * MS) == begins_ns
    assert master.why_not(begins_ns - 1) and not master.why_not(begins_ns)
    assert master.changes_ns(begins_ns) == ends_ns
    assert not master.why_not(ends_ns - 1) and master.why_not(ends_ns)
    assert master.changes_ns(ends_ns) > 1 << 62


def test_a_slave_that_hears_its_master_looks_again_and_again() -> None:
    slave = ActingRight(1, "b1:1", timeout_ns=TIMEOUT_MS * MS, right_ns=RIGHT_MS * MS, hears_master=lambda: True)
    slave.use(["n"])
    for now_ms in range(0, RIGHT_MS + TIMEOUT_MS + 1, BEAT_MS):
        slave.heard("n", {1: "b1:1"}, asked_ns=now_ms * MS, beaten_ns=now_ms * MS, now_ns=now_ms * MS)
    waited_ns = RIGHT_MS * MS
    assert slave.changes_ns(waited_ns + TIMEOUT_MS * MS - 1) == waited_ns + TIMEOUT_MS * MS - 1
    assert slave.changes_ns(waited_ns + TIMEOUT_MS * MS) == waited_ns + TIMEOUT_MS * MS + RIGHT_MS * MS


def test_a_right_that_ended_and_began_while_the_process_stood_still_is_another_one() -> None:
    master = MasterRight("b0:1", timeout_ns=TIMEOUT_MS * MS, right_ns=RIGHT_MS * MS)
    master.use(["m", "n"])

    def hears(server: str, now_ms: int) -> None:
        master.heard(server, {0: "b0:1"}, asked_ns=now_ms * MS, beaten_ns=now_ms * MS, now_ns=now_ms * MS)

    hears("m", 0)
    assert master.since_ns((RIGHT_MS - 1) * MS) is None
    assert master.since_ns((RIGHT_MS + 9) * MS) == RIGHT_MS * MS
    hears("m", 5_000)
    assert master.since_ns(6_000 * MS) == RIGHT_MS * MS, "it goes on"
    hears("n", 5_000 + TIMEOUT_MS - RIGHT_MS + 1_000)
    assert not master.why_not(16_500 * MS)
    assert master.since_ns(16_500 * MS) == 16_000 * MS, "from 15 s to 16 s nobody gave it"
    assert Always().since_ns(5) is None
