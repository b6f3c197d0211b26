"""Links: latency, order, and each thing that can happen to a message, counted."""

from __future__ import annotations

from typing import Any

import pytest

from raft.sim.links import Link, LinkProfile, Network, Receiver
from raft.sim.tape import Tape
from raft.sim.world import World


class Net:
    """A network whose arrivals are written down."""

    def __init__(self, profile: LinkProfile | None = None, tape: Tape | None = None) -> None:
        self.world = World()
        self.arrived: list[tuple[int, str, str, Any]] = []
        self.net = Network(self.world, tape or Tape(1), self._take, profile)

    def _take(self, link: Link) -> Receiver:
        return lambda message: self.arrived.append((self.world.now, link.source, link.target, message))

    def send(self, count: int, source: str = "a", target: str = "b", every: int = 10) -> list[Any]:
        """Send 0, 1, ... and run until all is quiet; what arrived, in order."""
        for number in range(count):
            self.world.at(self.world.now + every * number, lambda n: self.net.link(source, target).send(n), number)
        self.world.run(self.world.now + 10**12)
        return [message for *_, message in self.arrived]


def test_the_boring_link_keeps_order_and_takes_its_latency() -> None:
    net = Net(LinkProfile(latency_ns=700))
    assert net.send(20) == list(range(20))
    assert [when for when, *_ in net.arrived] == [700 + 10 * number for number in range(20)]
    assert not net.net.counts


@pytest.mark.parametrize("fault", ["loss", "duplicate", "reorder", "delay"])
def test_each_fault_happens_about_as_often_as_asked_and_is_counted(fault: str) -> None:
    net = Net(LinkProfile(**{"latency_ns": 1_000, "delay_ns": 500, fault: 0.25}))  # type: ignore[arg-type]
    arrived = net.send(1_000)
    happened = net.net.counts[fault]
    assert 180 < happened < 320
    assert len(arrived) == {"loss": 1_000 - happened, "duplicate": 1_000 + happened}.get(fault, 1_000)
    assert (arrived == sorted(arrived)) == (fault in ("loss", "delay"))


def test_a_late_message_holds_up_those_behind_it() -> None:
    tape = Tape(1, {"link/raft/a>b": {0: ["delay", 5_000]}})
    net = Net(LinkProfile(latency_ns=100), tape)
    assert net.send(3) == [0, 1, 2]
    assert [when for when, *_ in net.arrived] == [5_100, 5_100, 5_100]


def test_an_overtaken_message_does_not() -> None:
    net = Net(LinkProfile(latency_ns=100), Tape(1, {"link/raft/a>b": {0: ["reorder", 5_000]}}))
    assert net.send(3) == [1, 2, 0]


def test_a_full_link_drops_what_is_too_much() -> None:
    net = Net(LinkProfile(latency_ns=1_000, capacity=3))
    assert net.send(10, every=0) == [0, 1, 2]
    assert net.net.counts["overflow"] == 7


def test_a_cut_is_one_way_and_takes_what_is_on_its_way() -> None:
    net = Net(LinkProfile(latency_ns=1_000))
    net.net.link("a", "b").send("under way")
    net.net.cut("a", "b")
    net.net.link("b", "a").send("back")
    net.net.link("a", "b").send("lost")
    assert net.send(0) == ["back"]
    assert net.net.counts["cut"] == 2
    assert (net.net.open("a", "b"), net.net.open("b", "a")) == (False, True)
    net.net.heal("a", "b")
    assert net.send(1) == ["back", 0]


def test_a_partition_leaves_each_side_whole() -> None:
    net = Net()
    net.net.partition([["a", "b"], ["c"]])
    pairs = [(source, target) for source in "abc" for target in "abc" if source != target]
    assert [pair for pair in pairs if net.net.open(*pair)] == [("a", "b"), ("b", "a")]
    net.net.heal()
    assert all(net.net.open(*pair) for pair in pairs)


def test_a_cut_can_hit_one_kind_of_traffic_alone() -> None:
    net = Net()
    net.net.cut("a", "b", kind="client")
    net.net.link("a", "b", "client").send("client")
    net.net.link("a", "b").send("raft")
    assert net.send(0) == ["raft"]


def test_held_messages_come_after_release_in_order() -> None:
    net = Net(LinkProfile(latency_ns=50))
    link = net.net.link("a", "b")
    link.hold()
    assert net.send(4) == []
    now = net.world.now
    link.release()
    assert net.send(0) == [0, 1, 2, 3]
    assert {when for when, *_ in net.arrived} == {now + 50}
    assert net.net.counts["hold"] == 4


def test_a_replay_delivers_as_the_recording_did() -> None:
    profile = LinkProfile(loss=0.1, duplicate=0.1, reorder=0.1, delay=0.2)
    tape = Tape(9)
    recorded = Net(profile, tape)
    recorded.send(300)
    replayed = Net(LinkProfile(), Tape(9, tape.deviations))
    replayed.send(300)
    assert replayed.arrived == recorded.arrived
