"""Half-open connections to the HA port, in any number: no replica waits for a place because of them."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from broker.ha.acks import QuorumConfig
from broker.ha.config import HaConfig
from broker.ha.places import NEIGHBOURS, Place, Stage, superfluous
from broker.ha.wire import Ack, SlaveHandshake
from tests.broker.ha.group import ALL_ACK, Broker, Net, group, log_of
from tests.broker.ha.test_bad_peers import ended
from tests.broker.plain.test_roles import CONFIG as PLAIN
from tests.broker.plain.test_roles import Process

MANY = 2 * ALL_ACK.connections_max


# --- who makes room ----------------------------------------------------------------------------------------------


def places(*found: tuple[str, Stage]) -> list[Place]:
    return [Place(number, host, standing) for number, (host, standing) in enumerate(found)]


SOME = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(Stage)), max_size=60)


@given(SOME, st.integers(1, 20))
def test_what_stays_is_within_the_limits_and_who_ends_was_of_a_crowd(
        found: list[tuple[str, Stage]], most: int) -> None:
    there = places(*found)
    gone = set(superfluous(there, most))
    assert not any(place.standing is Stage.MEMBER for place in there if place.number in gone)
    for copies in (True, False):
        pool = [place for place in there
                if place.standing is not Stage.MEMBER and (place.standing is Stage.COPIES) is copies]
        stay = [place for place in pool if place.number not in gone]
        assert len(stay) == min(most, len(pool))
        before, after = (Counter(place.host for place in some) for some in (pool, stay))
        for place in pool:
            if place.number in gone:
                assert max(after.values()) <= max(NEIGHBOURS, before[place.host])


@given(SOME, st.sampled_from("abcxyz"), st.integers(0, 9))
def test_who_came_last_is_let_in_and_stays_for_a_while(found: list[tuple[str, Stage]], host: str, more: int) -> None:
    """Whatever the others have said, and wherever they come from."""
    there = places(*found, (host, Stage.SILENT), *[("x", Stage.SPOKE)] * more)
    assert len(found) not in superfluous(there, 4 * more + 1)


def test_replicas_behind_one_address_stay_while_strangers_come_from_many() -> None:
    replicas = [("nat", Stage.SPOKE)] * NEIGHBOURS
    strangers = [(f"s{number}", Stage.SILENT) for number in range(300) for _ in range(2)]
    there = places(*replicas, *strangers)
    assert set(superfluous(there, 256)).isdisjoint(range(NEIGHBOURS))


def test_the_most_crowded_address_makes_room_the_silent_and_the_oldest_first() -> None:
    there = places(*[("a", Stage.SPOKE)] * 10, *[("a", Stage.SILENT)] * 3, *[("b", Stage.SILENT)] * 9)
    assert superfluous(there, 21) == [10]
    assert superfluous(there, 18) == [10, 11, 12, 0]


def test_who_copies_keeps_its_place_before_those_who_began_later() -> None:
    there = places(*[("a", Stage.COPIES)] * 10, ("b", Stage.COPIES), *[("a", Stage.SILENT)] * 2)
    assert superfluous(there, 10) == [9]


# --- over streams, in virtual time -------------------------------------------------------------------------------


async def half_open(net: Net, address: str, count: int, say: bytes = b"") -> list[trio.abc.Stream]:
    streams = []
    for _ in range(count):
        stream = await net.connect(address)
        streams.append(stream)
        await trio.testing.wait_all_tasks_blocked()
        if say:
            await stream.send_all(say)
    return streams


async def level_within(a: Broker, b: Broker, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        while b.log != a.log or len(a.switch.runtime_info().ha_connection_info) < 1:
            await trio.sleep(0.01)
        return True
    return False


@pytest.mark.parametrize("say", [b"", SlaveHandshake(77).to_bytes()[:9], SlaveHandshake(77).to_bytes()])
async def test_half_open_connections_delay_no_slave(say: bytes, autojump_clock: MockClock) -> None:
    async with group(2) as (net, (a, b)):
        await a.lead(1)
        a.put(b"one")
        await half_open(net, a.address, MANY, say)
        await b.follow(a, 1)
        assert await level_within(a, b, 0.1)


async def test_a_flood_that_goes_on_breaks_no_copying_and_no_new_beginning(autojump_clock: MockClock) -> None:
    async with group(3) as (net, (a, b, c)):
        held = await a.lead(1, {1, 2})
        await b.follow(a, 1)
        await c.follow(a, 1)
        await trio.sleep(1)
        assert held.members == {1, 2, 3}

        async def flood() -> None:
            while True:
                await half_open(net, a.address, 20)
                await trio.sleep(0.02)

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(flood)
                for number in range(5):
                    links = len(net.dialled)
                    a.put(b"%d" % number)
                    assert await level_within(a, b, 0.1) and await level_within(a, c, 0.1)
                    assert not {"b", "c"} & set(net.dialled[links:])
                    c.switch.follow(None)  # and once more from the beginning
                    await trio.sleep(0.1)
                    c.switch.follow(a.address)
                    assert await level_within(a, c, 0.1)
                assert len(a.switch._port.links) <= ALL_ACK.connections_max + 3
                scope.cancel()


async def test_members_need_none_of_the_places(autojump_clock: MockClock) -> None:
    """One that a controller accepted and that has not copied since, as after a change of masters."""
    async with group(1) as (net, (a,)):
        await a.lead(1, {1, 2, 3})
        members = [(await half_open(net, a.address, 1, SlaveHandshake(number).to_bytes()))[0] for number in (2, 3)]
        await half_open(net, a.address, MANY, SlaveHandshake(77).to_bytes()[:9])
        for stream in members:
            assert await stream.receive_some(1_000)
            await stream.send_all(Ack(0).to_bytes())
        await trio.sleep(0.1)
        master = a.switch._master
        assert master is not None
        there = [master.slave_of(number) for number in a.switch._port.links]
        assert {slave[0] for slave in there if slave is not None} == {2, 3}


async def test_slaves_that_wait_for_their_master_keep_their_places(autojump_clock: MockClock) -> None:
    """Nobody knows yet who they are: what they said is kept, and is more than others say."""
    async with group(3) as (net, (a, b, c)):
        await b.follow(a, 1)
        await c.follow(a, 1)
        await trio.sleep(0.1)
        dialled = len(net.dialled)
        await half_open(net, a.address, MANY)
        await trio.sleep(3)
        await a.lead(1)
        a.put(b"one")
        assert await level_within(a, b, 0.1) and await level_within(a, c, 0.1)
        assert len(net.dialled) == dialled + MANY, "on the connections that they had"


async def test_who_says_nothing_is_closed_soon_and_who_spoke_waits_for_the_role(autojump_clock: MockClock) -> None:
    async with group(1) as (net, (a,)):
        [silent] = await half_open(net, a.address, 1)
        [waiting] = await half_open(net, a.address, 1, SlaveHandshake(2).to_bytes())
        with trio.fail_after(2.5):
            assert await ended(silent)
        await trio.sleep(7)
        await a.lead(1)
        assert await waiting.receive_some(1_000), "answered"
        await waiting.send_all(Ack(0).to_bytes())
        [silent] = await half_open(net, a.address, 1)
        with trio.fail_after(2.5):
            assert await ended(silent)


async def test_half_open_connections_delay_no_plain_slave(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        a, b = Process(nursery, net), Process(nursery, net)
        await a.master(QuorumConfig())
        await half_open(net, "m:1", MANY)
        slave = await b.slave()
        await trio.sleep(0.1)
        a.put(b"one")
        await trio.sleep(0.1)
        assert slave.connected and log_of(a.journal) == log_of(b.journal) != b""
        await half_open(net, "m:1", MANY)
        a.put(b"two")
        await trio.sleep(0.1)
        assert slave.runtime_info().ha_client_runtime_info.max_offset == a.journal.end
        assert log_of(a.journal) == log_of(b.journal)
        nursery.cancel_scope.cancel()


def test_a_java_slave_may_take_its_time_to_report() -> None:
    assert HaConfig().handshake_timeout_ms == 2_000
    assert PLAIN.first_report_ms == 10_000 > PLAIN.heartbeat_interval_ms
