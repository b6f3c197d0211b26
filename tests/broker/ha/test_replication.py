"""Masters and slaves of one group under random schedules, and the named hazards one by one.

The world here: three replicas with real cores over byte strings, a controller that is one compare-and-set, connections
that lose what is under way, crashes, and time.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ha.acks import ALL, Need, PutQueue, PutStatus
from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.epochs import Epoch, EpochList
from broker.ha.insync import InSync
from broker.ha.master import Close, HaMaster, Idle, LogView, SendLog
from broker.ha.slave import (
    AppendLog,
    Connect,
    Disconnect,
    HaSlave,
    NoEpochs,
    Output,
    Send,
    SetConfirm,
    TruncateLog,
    WriteEpochs,
)
from broker.ha.wire import Ack, HaState, MasterHandshake, MasterMessages, SlaveHandshake, SlaveMessages, Transfer
from tests.broker.ha.group import in_sync

MS = NS_PER_MS
CONFIG = HaConfig(all_ack_in_sync_state_set=True, transfer_batch_bytes=7, catch_up_batch_bytes=7,
                  reconnect_wait_ms=5_000)


# --- the world -----------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Replica:
    """One broker: what is on its disk, and the core of the role that it has."""

    id: int
    log: bytes = b""
    epochs: EpochList = attrs.field(factory=EpochList)
    confirm: int = 0
    master: HaMaster | None = None
    puts: PutQueue[tuple[int, bytes]] | None = None
    slave: HaSlave | None = None
    to_master: SlaveMessages = attrs.field(factory=SlaveMessages)
    to_slave: MasterMessages = attrs.field(factory=MasterMessages)
    link: int = 0


class World:
    """A group under a controller; every acknowledged message, and every byte that was confirmed, is remembered."""

    def __init__(self) -> None:
        self.now = 0
        self.replicas = {i: Replica(i) for i in (1, 2, 3)}
        self.accepted: frozenset[int] = frozenset()
        self.epoch = self.set_epoch = 0
        self.master_id = 0
        self.acknowledged: list[tuple[int, bytes]] = []
        self.confirmed = b""
        self.late: list[tuple[int, int, frozenset[int], int]] = []
        self.links = self.requests = 0
        self.elect(1)

    @property
    def master(self) -> Replica:
        return self.replicas[self.master_id]

    def elect(self, new: int) -> None:
        if self.accepted and new not in self.accepted:
            return
        for replica in self.replicas.values():
            self.stop(replica)
        self.master_id, self.epoch, self.set_epoch = new, self.epoch + 1, self.set_epoch + 1
        self.accepted = frozenset({new})
        replica = self.master
        assert replica.log.startswith(self.confirmed), "B4: what was confirmed is on every later master"
        for offset, message in self.acknowledged:
            assert replica.log[offset:offset + len(message)] == message, "B1: an acknowledged message is lost"
        end = len(replica.log)
        replica.epochs = replica.epochs.append(self.epoch, end)
        held = InSync(new, CONFIG, self.accepted, self.set_epoch, end, replica.confirm, end, end, self.now)
        replica.master, replica.puts = HaMaster(CONFIG, held, replica.epochs), PutQueue(self.released)
        self.check()

    def stop(self, replica: Replica) -> None:
        replica.master = replica.puts = replica.slave = None
        replica.link = 0

    def released(self, put: tuple[int, bytes], status: PutStatus) -> None:
        offset, message = put
        if status is PutStatus.PUT_OK:
            for member in self.accepted:
                held = self.replicas[member].log[offset:offset + len(message)]
                assert held == message, f"B15: acknowledged, and member {member} does not hold it"
            self.acknowledged.append((offset, message))

    def put(self, size: int) -> None:
        replica = self.master
        assert replica.master is not None and replica.puts is not None
        message = bytes([65 + self.epoch % 26]) * size
        offset = len(replica.log)
        replica.log += message
        replica.master.in_sync.advanced(len(replica.log), len(replica.log))
        assert replica.puts.add((offset, message), len(replica.log), Need(ALL), self.now + 3_000 * MS)
        replica.puts.advanced(replica.master.in_sync)

    def connect(self, who: int) -> None:
        replica, master = self.replicas[who], self.master
        if who == self.master_id or master.master is None:
            return
        if replica.slave is None:
            replica.slave = HaSlave(CONFIG, who, replica.epochs, len(replica.log), replica.confirm)
            self.do(replica, replica.slave.follow("master", self.now))
        elif replica.link:
            return
        self.links += 1
        replica.link, replica.to_master, replica.to_slave = self.links, SlaveMessages(), MasterMessages()
        master.master.opened(replica.link, self.now)
        self.do(replica, replica.slave.connected(self.now))

    def do(self, replica: Replica, outputs: list[Output]) -> None:
        slave = replica.slave
        assert slave is not None
        for output in outputs:
            match output:
                case Send(data):
                    self.hear(replica, data)
                case TruncateLog(point, _, below_confirm):
                    assert not below_confirm, "B9: what was confirmed is cut"
                    replica.log = replica.log[:point]
                    self.do(replica, slave.truncated(point, self.now))
                    assert all(e.start <= point for e in replica.epochs), "B10"
                case WriteEpochs(epochs):
                    replica.epochs = epochs
                case AppendLog(offset, body):
                    assert offset == len(replica.log), "B11"
                    assert replica.epochs.find(offset) == replica.epochs.find(offset + len(body) - 1), "B8"
                    replica.log += body
                    self.do(replica, slave.stored(len(replica.log), self.now))
                case SetConfirm(confirm):
                    assert confirm <= len(replica.log)
                    replica.confirm = confirm
                case Disconnect(reason):
                    raise AssertionError(f"no honest master makes a slave leave: {reason}")
                case Connect():
                    pass

    def hear(self, replica: Replica, data: bytes) -> None:
        assert self.master.master is not None and self.master.puts is not None
        for message in replica.to_master.feed(data):
            if isinstance(message, Ack):
                assert message.offset <= len(replica.log), "B12"
            for close in self.master.master.received(replica.link, message, self.now):
                assert "connected again" in close.reason, close.reason
                self.master.master.closed(close.connection)
        self.master.puts.advanced(self.master.master.in_sync)

    def transfer(self, who: int, rounds: int) -> None:
        replica, master = self.replicas[who], self.master
        for _ in range(rounds):
            if not replica.link or master.master is None or replica.slave is None:
                return
            sending = master.master.next_send(replica.link, LogView(0, len(master.log)), self.now)
            assert not isinstance(sending, Close)
            if isinstance(sending, Idle):
                return
            if isinstance(sending, SendLog):
                body = master.log[sending.offset:sending.offset + sending.size]
                frame = Transfer(sending.offset, sending.epoch, sending.confirm, body).to_bytes()
            else:
                frame = sending.to_bytes()
            for message in replica.to_slave.feed(frame):
                self.do(replica, replica.slave.received(message, self.now))

    def half_open(self, who: int) -> None:
        """The slave's end is gone; the master finds out later, or by the next connection."""
        replica = self.replicas[who]
        if replica.slave is not None and replica.link:
            replica.slave.closed(self.now)
            replica.link = 0

    def cut(self, who: int) -> None:
        replica = self.replicas[who]
        link = replica.link
        self.half_open(who)
        if link and self.master.master is not None:
            self.master.master.closed(link)

    def restart(self, who: int) -> None:
        if who != self.master_id:
            self.cut(who)
            self.stop(self.replicas[who])

    def ask(self, fate: str) -> None:
        """The master asks for the set it wants; its request or its answer may be lost, or come late."""
        assert self.master.master is not None and self.master.puts is not None
        held = self.master.master.in_sync
        members = held.wanted(self.now)
        if members is None:
            return
        self.requests += 1
        held.ask(self.requests, members, self.now)
        request = (self.requests, self.epoch, members, held.accepted_epoch)
        if fate == "late":
            self.late.append(request)
        elif fate == "lost answer":
            self.decide(request)
        elif fate == "answered":
            if self.decide(request):
                held.accept(self.accepted, self.set_epoch)
            else:
                held.refused(self.requests, self.now, epoch_stands=(self.epoch, self.set_epoch) == request[1::2])
            self.master.puts.advanced(held)

    def decide(self, request: tuple[int, int, frozenset[int], int]) -> bool:
        _, epoch, members, set_epoch = request
        if (epoch, set_epoch) != (self.epoch, self.set_epoch) or members == self.accepted:
            return False
        for member in members:
            assert self.replicas[member].log.startswith(self.confirmed), "B13: a joiner lacks what is confirmed"
        self.accepted, self.set_epoch = members, self.set_epoch + 1
        return True

    def poll(self) -> None:
        assert self.master.master is not None and self.master.puts is not None
        self.master.master.in_sync.accept(self.accepted, self.set_epoch)
        self.master.puts.advanced(self.master.master.in_sync)

    def pass_time(self, ms: int) -> None:
        self.now += ms * MS
        assert self.master.master is not None and self.master.puts is not None
        for close in self.master.master.tick(self.now):
            for replica in self.replicas.values():
                if replica.link == close.connection:
                    self.half_open(replica.id)
            self.master.master.closed(close.connection)
        self.master.puts.expire(self.now)
        self.master.puts.advanced(self.master.master.in_sync)

    def check(self) -> None:
        replica = self.master
        assert replica.master is not None
        held = replica.master.in_sync
        assert held.confirm <= len(replica.log)
        for member in self.accepted:
            assert len(self.replicas[member].log) >= held.confirm, "B3"
        assert held.confirm >= replica.confirm, "B4: monotone"
        replica.confirm = held.confirm
        seen = replica.log[:held.confirm]
        assert self.confirmed.startswith(seen) or seen.startswith(self.confirmed), "B5: what was read is read for ever"
        self.confirmed = max(self.confirmed, seen, key=len)
        for one in self.replicas.values():
            assert all(entry.start <= len(one.log) for entry in one.epochs), "B6"
            assert one.log.startswith(self.confirmed[:one.confirm]), "B2"
            for entry in one.epochs:
                assert replica.epochs.start_of(entry.epoch) in (None, entry.start) or one.link == 0, "B7"


WEIGHTS = {"put": 30, "transfer": 40, "connect": 20, "ask": 20, "cut": 3, "half_open": 3, "restart": 3, "elect": 4,
           "pass_time": 6, "poll": 3, "late": 4}


def scripted(seed: int, steps: int) -> list[tuple[object, ...]]:
    """Mostly a group at work, now and then a fault."""
    chance = random.Random(seed)
    arguments: dict[str, Callable[[], tuple[object, ...]]] = {
        "put": lambda: (chance.randint(1, 20),),
        "transfer": lambda: (chance.randint(1, 3), chance.randint(1, 6)),
        "ask": lambda: (chance.choice(["answered", "answered", "lost answer", "lost", "late"]),),
        "pass_time": lambda: (chance.choice([1, 1, 100, 500, 1_000, 4_000, 16_000]),),
        "poll": tuple, "late": tuple,
    }
    names = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=steps)
    return [(name, *arguments.get(name, lambda: (chance.randint(1, 3),))()) for name in names]


def run(world: World, script: list[tuple[object, ...]]) -> None:
    for name, *arguments in script:
        if name == "late":
            if world.late:
                world.decide(world.late.pop(0))
        else:
            getattr(world, str(name))(*arguments)
        world.check()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 300))
def test_nothing_confirmed_or_acknowledged_is_lost(seed: int, steps: int) -> None:
    world = World()
    run(world, scripted(seed, steps))
    # B22: when all heals, all replicas hold the master's log and are in the SyncStateSet again.
    for replica in world.replicas.values():
        world.cut(replica.id)
    for _ in range(90):
        world.poll()
        for who in world.replicas:
            world.connect(who)
            world.transfer(who, 200)
        world.ask("answered")
        world.pass_time(1_000)
        world.check()
    assert world.accepted == {1, 2, 3}
    assert {replica.log for replica in world.replicas.values()} == {world.master.log}
    assert len({replica.epochs for replica in world.replicas.values()}) == 1, "B7"
    assert world.master.master is not None
    assert world.master.master.in_sync.confirm == len(world.master.log)


def test_the_world_reaches_what_it_is_for() -> None:
    world = World()
    run(world, [("put", 5), ("connect", 2), ("transfer", 2, 9), ("ask", "answered"), ("put", 4)])
    assert world.accepted == {1, 2}
    assert len(world.acknowledged) == 1
    run(world, [("transfer", 2, 3)])
    assert len(world.acknowledged) == 2
    run(world, [("elect", 2), ("connect", 1), ("transfer", 1, 9), ("ask", "answered")])
    assert world.master_id == 2
    assert world.accepted == {1, 2}
    assert list(world.replicas[1].epochs) == [(1, 0), (2, 9)]


# --- the master, hazard by hazard ----------------------------------------------------------------------------


def test_h5_a_member_that_has_not_acknowledged_yet_is_not_passed_over() -> None:
    held = in_sync({1, 2, 3}, end=10)
    held.opened(2, False, 0)
    held.opened(3, False, 0)
    held.acked(2, 10, 0)
    assert held.confirm == 0
    held.acked(3, 0, 0)
    assert held.confirm == 0
    held.acked(3, 4, 0)
    assert held.confirm == 4
    held.closed(3)
    held.acked(2, 10, 0)
    assert held.confirm == 4, "nor is one that is away (apache/rocketmq#6662)"


def test_h6_a_set_that_may_have_been_accepted_counts_until_it_is_known() -> None:
    held = in_sync({1}, end=10)
    held.opened(2, False, 0)
    held.acked(2, 10, 0)
    assert held.wanted(0) == frozenset({1, 2})
    held.ask(7, frozenset({1, 2}), 0)
    held.advanced(20, 20)
    assert held.confirm == 10
    assert not held.holds_all(20)
    assert not held.accept({1}, 1), "the epoch has not moved: the request may yet be carried out"
    assert not held.holds_all(20)
    held.ask(8, frozenset({1, 2}), 0)
    held.refused(8, 1, epoch_stands=True)
    assert not held.holds_all(20), "that one was refused, the other is still out"
    assert held.accept({1}, 2)
    assert held.holds_all(20)
    assert held.confirm == 20


def test_a_request_that_nobody_answered_is_void_at_last() -> None:
    held = in_sync({1}, end=10)
    held.opened(2, False, 0)
    held.acked(2, 10, 0)
    held.ask(1, frozenset({1, 2}), 0)
    held.closed(2)
    later = CONFIG.asked_void_ms * MS
    assert held.wanted(later) == frozenset({1, 2}), "or nothing could be acknowledged ever again"
    held.ask(2, frozenset({1, 2}), later)
    held.refused(2, later, epoch_stands=False)
    assert held.members == {1, 2}, "refused for its epoch: the first may be what moved it"
    held.ask(3, frozenset({1, 2}), later)
    held.refused(3, later, epoch_stands=True)
    assert held.members == {1}
    assert held.wanted(later) is None


def test_h7_two_connections_of_one_slave_are_one_holder() -> None:
    held = in_sync({1, 2, 3}, end=10)
    master = HaMaster(CONFIG, held, EpochList([(1, 0)]))
    closes: list[Close] = []
    for link in (1, 2):
        master.opened(link, 0)
        closes = master.received(link, SlaveHandshake(2), 0)
        assert isinstance(master.next_send(link, LogView(0, 10), 0), MasterHandshake)
        master.received(link, Ack(10), 0)
    assert closes == [Close(1, "slave 2 has connected again")]
    assert held.holders(10) == 2
    assert not held.holds_all(10)
    master.closed(1)
    assert held.holders(10) == 2, "the older connection's end says nothing (apache/rocketmq#9897)"
    assert held.wanted(0) is None
    master.closed(2)
    assert held.holders(10) == 1


def test_an_earlier_life_of_a_slave_acknowledges_nothing_for_a_later_one() -> None:
    """Connections tell no life. What an earlier one sent comes by its own connection, before the later one has said who
    it is, or counts no more."""
    held = in_sync({1, 2, 3}, end=10)
    master = HaMaster(CONFIG, held, EpochList([(1, 0)]))
    for link in (1, 2, 3):
        master.opened(link, 0)
    master.received(1, SlaveHandshake(2), 0)
    master.next_send(1, LogView(0, 10), 0)
    master.received(1, Ack(4), 0)
    assert held.holders(4) == 2
    assert master.received(3, SlaveHandshake(2), 0) == [Close(1, "slave 2 has connected again")]
    assert held.holders(4) == 1, "of the later life nothing is known yet"
    master.received(1, Ack(10), 0)
    assert held.holders(4) == held.holders(10) == 1, "words of the earlier one, read late"
    master.next_send(3, LogView(0, 10), 0)
    master.received(3, Ack(10), 0)
    assert held.holders(10) == 2
    master.received(2, SlaveHandshake(2), 0)
    assert held.holders(10) == 1, "a handshake that came late: who sent it is asked, and cannot answer any more"
    assert master.received(2, Ack(10), 0)[0].reason == "slave 2 acknowledged before it was answered"
    assert held.holders(10) == 1


def test_learners_hold_nothing_that_counts() -> None:
    held = in_sync({1}, end=10)
    held.opened(5, True, 0)
    held.acked(5, 10, 0)
    assert held.holders(10) == 1
    assert held.wanted(0) is None
    assert held.acks == {}


def test_h10_leaving_is_measured_on_the_clock_that_only_runs() -> None:
    held = in_sync({1, 2, 3}, end=10)
    for slave in (2, 3):
        held.opened(slave, False, 0)
        held.acked(slave, 10, 0)
    held.advanced(20, 20)
    held.acked(3, 20, 14_000 * MS)
    assert held.wanted(14_999 * MS) is None
    assert held.deadline_after(0) == 15_000 * MS
    assert held.wanted(15_000 * MS) == frozenset({1, 3})


def test_weaker_modes_confirm_what_is_written() -> None:
    held = in_sync({1, 2}, end=10, all_ack_in_sync_state_set=False)
    assert held.confirm == 10


def link_with(master: HaMaster, log: LogView, ack: int, link: int = 1, **flags: bool) -> None:
    master.opened(link, 0)
    assert master.received(link, SlaveHandshake(1 + link, **flags), 0) == []
    assert isinstance(master.next_send(link, log, 0), MasterHandshake)
    assert isinstance(master.next_send(link, log, 0), Idle), "first data only after the first acknowledgement"
    assert master.received(link, Ack(ack), 0) == []


def sends(master: HaMaster, log: LogView, link: int = 1, now: int = 0) -> list[tuple[int, int, Epoch]]:
    found = []
    while isinstance(sending := master.next_send(link, log, now), SendLog):
        found.append((sending.offset, sending.size, sending.epoch))
    assert isinstance(sending, Idle)
    return found


def test_the_last_bytes_of_an_epoch_carry_that_epoch() -> None:
    master = HaMaster(CONFIG, in_sync({1}, end=12), EpochList([(1, 0), (2, 5), (4, 12)]))
    link_with(master, LogView(0, 12), 0)
    assert sends(master, LogView(0, 12)) == [(0, 5, (1, 0)), (5, 7, (2, 5)), (12, 0, (4, 12))]


def test_a_new_epoch_of_the_same_master_reaches_connections_that_live_on() -> None:
    """apache/rocketmq#9689."""
    held = in_sync({1}, end=3)
    master = HaMaster(CONFIG, held, EpochList([(1, 0)]))
    link_with(master, LogView(0, 3), 0)
    assert sends(master, LogView(0, 3)) == [(0, 3, (1, 0))]
    held = in_sync({1}, end=3)
    master.renew(master.epochs.append(2, 3), held, 0)
    held.advanced(5, 5)
    assert sends(master, LogView(0, 5)) == [(3, 2, (2, 3))]


def test_what_a_power_cut_took_from_a_master_is_cut_from_its_slaves() -> None:
    """It goes on with its epoch, so epochs alone do not tell its new bytes from those that a slave still holds."""
    held = in_sync({1, 2}, end=10)
    master = HaMaster(CONFIG, held, EpochList([(1, 0)]))
    held.advanced(25, 25)
    for connection, ack, told in ((1, 20, 10), (2, 10, 10), (3, 25, 25)):
        master.opened(connection, 0)
        assert not [each for each in master.received(connection, SlaveHandshake(2, False, False), 0)
                    if each.connection == connection]
        assert master.next_send(connection, LogView(0, 25), 0) == MasterHandshake(told, EpochList([(1, 0)]))
        refused = master.received(connection, Ack(ack), 0)
        assert bool(refused) == (ack > told)
        if refused:
            assert "ahead and must cut its log" in refused[0].reason
            master.closed(connection)


def test_where_a_copy_begins() -> None:
    for ack, from_last, first in [(0, False, 20), (0, True, 40), (30, True, 30)]:
        master = HaMaster(CONFIG, in_sync({1}, end=45), EpochList([(3, 42)]))
        link_with(master, LogView(20, 45, 40), ack, sync_from_last_file=from_last)
        found = sends(master, LogView(20, 45, 40))
        assert found[0][0] == first
        assert {epoch for _, _, epoch in found} == {(3, 42)}, "bytes older than the list go by its first entry"
    master = HaMaster(CONFIG, in_sync({1}, end=45), EpochList([(3, 42)]))
    link_with(master, LogView(20, 45), 19)
    assert isinstance(close := master.next_send(1, LogView(20, 45), 0), Close)
    assert "the log holds 20 to 45" in close.reason


def test_a_slave_that_comes_again_without_a_log_is_offered_the_same_file() -> None:
    """It left to ask where queues end before that file, and another file has begun meanwhile."""
    master = HaMaster(CONFIG, in_sync({1}, end=95), EpochList([(1, 0)]))

    def first(begin: int, end: int, last_file: int, *, then: int = 0) -> int:
        log = LogView(begin, end, last_file)
        link_with(master, log, 0, sync_from_last_file=True)
        offset = sends(master, log)[0][0]
        assert master.received(1, Ack(then), 0) == []
        master.closed(1)
        return offset

    assert [first(0, 45, 40), first(0, 55, 50), first(0, 75, 70, then=75)] == [40, 40, 40]
    assert first(0, 85, 80) == 80, "it had a log, and its store was removed"
    assert first(90, 95, 90) == 90, "the file that it was offered is deleted"


def test_an_empty_slave_whose_offered_file_goes_each_time_is_offered_a_later_one() -> None:
    """The oldest file was deleted while it asked where queues end before that file: it never began."""
    master = HaMaster(CONFIG, in_sync({1}, end=1_005), EpochList([(1, 0)]))

    def first(begin: int, end: int, *, then: int = 0) -> int:
        log = LogView(begin, end, end - end % 10, file_bytes=10)
        link_with(master, log, 0)
        offset = sends(master, log)[0][0]
        assert master.received(1, Ack(then), 0) == []
        master.closed(1)
        return offset

    assert [first(at, at + 105) for at in (0, 10, 20, 30)] == [0, 20, 20, 50]
    assert [first(at, at + 105) for at in (40, 50, 60, 70)] == [50, 50, 100, 100]
    assert first(110, 145) == 140, "the last file is the furthest"
    assert first(110, 155, then=155) == 140
    assert first(120, 165) == 120, "it had a log, and its store was removed"


def test_what_strangers_were_told_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may say any id, again and again."""
    monkeypatch.setattr("broker.ha.master.DEPARTED_MAX", 10)
    master = HaMaster(CONFIG, in_sync({1, 2}, end=95), EpochList([(1, 0)]))
    log = LogView(0, 95, 90)
    for broker_id in (2, 3, *range(1_000, 1_100), 3):
        master.opened(1, 0)
        assert master.received(1, SlaveHandshake(broker_id, False, False), 0) == []
        assert isinstance(master.next_send(1, log, 0), MasterHandshake)
        assert master.received(1, Ack(0), 0) == []
        assert isinstance(master.next_send(1, log, 0), SendLog)
        master.closed(1)
    assert master._met == master._offered.keys() == {2, 3, *range(1_091, 1_100)}, "members, and who was here last"


def test_heartbeats_and_silence() -> None:
    master = HaMaster(CONFIG, in_sync({1}), EpochList([(1, 0)]))
    link_with(master, LogView(0, 0), 0)
    assert sends(master, LogView(0, 0)) == [(0, 0, (1, 0))], "an empty frame tells the epoch"
    assert sends(master, LogView(0, 0), now=4_999 * MS) == []
    assert sends(master, LogView(0, 0), now=5_000 * MS) == [(0, 0, (1, 0))]
    master.opened(9, 0)
    assert [c.connection for c in master.tick(10_000 * MS)] == [9], "a port probe (apache/rocketmq#8875)"
    assert [c.connection for c in master.tick(20_000 * MS)] == [1, 9]


def test_flow_control() -> None:
    config = attrs.evolve(CONFIG, flow_control_bytes_per_second=10)
    master = HaMaster(config, in_sync({1}, end=100), EpochList([(1, 0)]))
    link_with(master, LogView(0, 100), 0)
    assert [size for _, size, _ in sends(master, LogView(0, 100))] == [7]
    assert [size for _, size, _ in sends(master, LogView(0, 100), now=300 * MS)] == [], "no crumbs"
    assert [size for _, size, _ in sends(master, LogView(0, 100), now=500 * MS)] == [7]
    assert [size for _, size, _ in sends(master, LogView(0, 100), now=1_900 * MS)] == [7]


@pytest.mark.parametrize(("messages", "words"), [
    ([Ack(0)], "before the handshake"),
    ([SlaveHandshake(1)], "same identity file"),
    ([SlaveHandshake(2), Ack(0)], "before it was answered"),
    ([SlaveHandshake(2), None, Ack(11)], "acknowledged 11, the log ends at 10"),  # apache/rocketmq#3015
    ([SlaveHandshake(2), None, Ack(5), Ack(4)], "acknowledged 4 after 5"),
    ([SlaveHandshake(2), None, Ack(5), SlaveHandshake(2)], "second handshake"),
    ([SlaveHandshake(2), SlaveHandshake(3)], "second handshake"),
])
def test_what_a_slave_may_not_do(messages: list[SlaveHandshake | Ack | None], words: str) -> None:
    master = HaMaster(CONFIG, in_sync({1}, end=10), EpochList([(1, 0)]))
    master.opened(1, 0)
    closes: list[Close] = []
    for message in messages:
        assert closes == []
        if message is None:
            master.next_send(1, LogView(0, 10), 0)
        else:
            closes = master.received(1, message, 0)
    assert words in closes[0].reason


# --- the slave, hazard by hazard -----------------------------------------------------------------------------


def greeted(slave: HaSlave, log_end: int, epochs: list[tuple[int, int]]) -> list[Output]:
    assert slave.follow("m:1", 0) == [Connect("m:1")]
    assert slave.connected(0) == [Send(SlaveHandshake(2).to_bytes())]
    return slave.received(MasterHandshake(log_end, EpochList(epochs)), 0)


def test_the_first_acknowledgement_leaves_at_once() -> None:
    assert greeted(HaSlave(CONFIG, 2, EpochList(), 0, 0), 9, [(1, 0)]) == [
        WriteEpochs(EpochList()), SetConfirm(0), Send(Ack(0).to_bytes())]


def test_h8_a_log_without_epochs_is_copied_anew() -> None:
    slave = HaSlave(CONFIG, 2, EpochList(), 50, 0)
    assert greeted(slave, 90, [(1, 0), (2, 70)]) == [TruncateLog(0, everything=True)]
    assert slave.truncated(0, 0) == [WriteEpochs(EpochList()), SetConfirm(0), Send(Ack(0).to_bytes())]
    assert slave.received(Transfer(20, Epoch(1, 0), 5, b"abc"), 0) == [
        WriteEpochs(EpochList([(1, 0)])), AppendLog(20, b"abc")]


def test_an_empty_log_waits_without_a_connection_until_it_may_begin() -> None:
    allowed: set[int] = {0}
    slave = HaSlave(CONFIG, 2, EpochList(), 0, 0, may_begin=allowed.__contains__)
    greeted(slave, 90, [(1, 0)])
    (leave,) = slave.received(Transfer(20, Epoch(1, 0), 5, b"abc"), 1)
    assert isinstance(leave, Disconnect) and "would begin at 20" in leave.reason and leave.is_usual
    assert slave.log_end == 0 and slave.epochs == EpochList(), "nothing of it was taken"
    minute = 60_000 * MS
    for now in range(0, minute + 1, 100 * MS):
        assert slave.tick(now) == [] and slave.deadline_ns <= now
        assert not slave.master_silent(now), "it left by itself"
    allowed.add(20)
    assert slave.tick(minute + 1) == [Connect("m:1")] and slave.tick(minute + 2) == []
    assert slave.connected(minute + 3) == [Send(SlaveHandshake(2).to_bytes())]
    slave.received(MasterHandshake(90, EpochList([(1, 0)])), minute + 4)
    assert slave.received(Transfer(20, Epoch(1, 0), 5, b"abc"), minute + 5) == [
        WriteEpochs(EpochList([(1, 0)])), AppendLog(20, b"abc")]
    assert slave.received(Transfer(23, Epoch(1, 0), 5, b"d"), minute + 6) == [AppendLog(23, b"d")], "it has begun"


def test_another_master_is_connected_to_though_the_log_may_not_begin_yet() -> None:
    slave = HaSlave(CONFIG, 2, EpochList(), 0, 0, may_begin=lambda offset: not offset)
    greeted(slave, 90, [(1, 0)])
    slave.received(Transfer(20, Epoch(1, 0), 5, b"abc"), 1)
    assert slave.tick(2) == []
    assert slave.follow("n:1", 3) == [Connect("n:1")]


def test_a_plain_groups_log_moves_in_place() -> None:
    slave = HaSlave(CONFIG, 2, EpochList(), 80, 0, no_epochs=NoEpochs.PLAIN)
    assert greeted(slave, 90, [(1, 70)]) == [TruncateLog(70)]
    assert slave.truncated(70, 0)[-1] == Send(Ack(70).to_bytes())


def test_h9_the_log_is_cut_before_the_epoch_file_and_a_crash_between_is_seen_at_start() -> None:
    slave = HaSlave(CONFIG, 2, EpochList([(1, 0), (3, 60), (4, 70)]), 80, 80)
    assert greeted(slave, 90, [(1, 0), (5, 50)]) == [TruncateLog(50, below_confirm=True)]
    assert slave.truncated(50, 0) == [
        WriteEpochs(EpochList([(1, 0)])), SetConfirm(50), Send(Ack(50).to_bytes())]
    crashed = HaSlave(CONFIG, 2, EpochList([(1, 0), (3, 60), (4, 70)]), 50, 80)
    assert crashed.epochs == EpochList([(1, 0)])
    assert crashed.confirm == 50


def test_an_epoch_that_begins_at_the_logs_end_stays_only_if_it_is_the_masters() -> None:
    mine = EpochList([(1, 0), (3, 50)])
    assert greeted(HaSlave(CONFIG, 2, mine, 50, 0), 50, [(1, 0), (3, 50)])[0] == WriteEpochs(mine)
    assert greeted(HaSlave(CONFIG, 2, mine, 50, 0), 90, [(1, 0), (4, 60)])[0] == WriteEpochs(EpochList([(1, 0)]))


def test_a_log_that_cannot_be_cut_there_and_one_with_nothing_in_common() -> None:
    slave = HaSlave(CONFIG, 2, EpochList([(1, 0)]), 80, 0)
    assert greeted(slave, 50, [(1, 0)]) == [TruncateLog(50)]
    (leave,) = slave.truncated(47, 0)
    assert leave == Disconnect("the log could not be cut at 50")
    assert slave.log_end == 47
    assert slave.deadline_ns == 2_000 * MS
    (leave,) = greeted(HaSlave(CONFIG, 2, EpochList([(1, 0)]), 80, 0), 50, [(2, 10)])
    assert isinstance(leave, Disconnect) and "no epoch in common" in leave.reason


def test_a_replica_of_which_the_next_master_had_nothing_is_copied_anew() -> None:
    """Epoch 1 wrote nothing that the master of epoch 2 has, so epoch 2 begins at 0 as well; a Java slave is stuck."""
    assert greeted(HaSlave(CONFIG, 2, EpochList([(1, 0)]), 80, 80), 50, [(2, 0)]) == [
        TruncateLog(0, everything=True, below_confirm=True)]


def test_a_replica_whose_log_begins_behind_the_common_point_is_copied_anew() -> None:
    """No cut leaves anything: ``syncFromLastFile`` had it begin at a file that a master since replaced had written."""
    slave = HaSlave(CONFIG, 2, EpochList([(1, 0)]), 80, 80, begin=lambda: 60)
    assert greeted(slave, 90, [(1, 0), (2, 50)]) == [TruncateLog(0, everything=True, below_confirm=True)]
    assert slave.truncated(0, 0)[-1] == Send(Ack(0).to_bytes())


def test_a_mis_tagged_last_frame_leaves_no_hole_in_the_epochs() -> None:
    """A Java master tags the last bytes of epoch 1 with epoch 2, which begins behind them."""
    slave = HaSlave(CONFIG, 2, EpochList(), 0, 0)
    greeted(slave, 9, [(1, 0), (2, 5)])
    assert slave.received(Transfer(0, Epoch(2, 5), 0, b"12345"), 0) == [
        WriteEpochs(EpochList([(1, 0), (2, 5)])), AppendLog(0, b"12345")]
    assert slave.received(Transfer(5, Epoch(2, 5), 0, b"67"), 0) == [AppendLog(5, b"67")]


def test_acknowledged_is_what_is_stored_and_confirmed_what_the_master_says() -> None:
    slave = HaSlave(CONFIG, 2, EpochList([(1, 0)]), 4, 0)
    greeted(slave, 9, [(1, 0)])
    assert slave.received(Transfer(4, Epoch(1, 0), 6, b"56"), 1) == [AppendLog(4, b"56"), SetConfirm(4)]
    assert slave.stored(6, 2) == [SetConfirm(6), Send(Ack(6).to_bytes())]
    assert slave.received(Transfer(6, Epoch(1, 0), 3), 3) == [], "it does not go back"


def test_after_a_reconnection_the_first_acknowledgement_waits_for_what_is_being_stored() -> None:
    slave = HaSlave(CONFIG, 2, EpochList([(1, 0)]), 4, 0)
    greeted(slave, 9, [(1, 0)])
    slave.received(Transfer(4, Epoch(1, 0), 0, b"56"), 1)
    slave.closed(1)
    slave.connected(2)
    assert slave.received(MasterHandshake(9, EpochList([(1, 0)])), 2) == [
        WriteEpochs(EpochList([(1, 0)])), SetConfirm(0)]
    assert slave.stored(6, 3) == [Send(Ack(6).to_bytes())]


@pytest.mark.parametrize(("frame", "words"), [
    (Transfer(5, Epoch(2, 2), 0, b"x"), "sent offset 5, this log ends at 4"),
    (Transfer(4, Epoch(1, 0), 0, b"x"), "sent epoch 1 from 0 behind epoch 2 from 2"),
    (Transfer(4, Epoch(2, 3), 0, b"x"), "sent epoch 2 from 3 behind epoch 2 from 2"),
    (MasterHandshake(4, EpochList()), "expected something else"),
])
def test_a_master_that_does_not_fit_is_left(frame: Transfer | MasterHandshake, words: str) -> None:
    slave = HaSlave(CONFIG, 2, EpochList([(1, 0), (2, 2)]), 4, 0)
    greeted(slave, 9, [(1, 0), (2, 2)])
    (leave,) = slave.received(frame, 1)
    assert isinstance(leave, Disconnect) and words in leave.reason
    assert slave.state is HaState.READY
    assert slave.tick(5_000 * MS) == []
    assert slave.tick(5_000 * MS + 1) == [Connect("m:1")]


def test_a_slaves_timers_and_a_new_address() -> None:
    slave = HaSlave(attrs.evolve(CONFIG, beat_interval_ms=0), 2, EpochList([(1, 0)]), 4, 0)
    greeted(slave, 4, [(1, 0)])
    assert slave.deadline_ns == 5_000 * MS
    assert slave.tick(5_000 * MS) == [Send(Ack(4).to_bytes())]
    (leave,) = slave.tick(20_000 * MS)
    assert isinstance(leave, Disconnect) and "said nothing" in leave.reason
    assert slave.follow("m:2", 20_001 * MS) == [Connect("m:2")], "a new address does not wait"
    slave.closed(20_002 * MS)
    assert slave.follow(None, 20_003 * MS) == []
    assert slave.tick(90_000 * MS) == []


@pytest.mark.parametrize("fields", [
    {"heartbeat_interval_ms": 11_000}, {"beat_interval_ms": 700}, {"max_time_not_caught_up_ms": 4_000},
    {"transfer_batch_bytes": 0}])
def test_limits_that_contradict_each_other(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        HaConfig(**fields)  # type: ignore[arg-type]
