"""What was popped from a master that is away comes back at another group's master, by its slave: in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.pop.reviving import Fate
from broker.store.files import MemoryFiles as StoreFiles
from broker.timer import delivery
from broker.timer.part import TimersPart
from harness.simulation.worlds.brokers import Cluster, Node, until, wall_ms
from harness.simulation.worlds.sending import SendMessageRequest
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import RequestCode
from remoting.daemon.files import MemoryFiles
from remoting.record import Message, encode_properties
from tests.broker.escape.test_part import bodies as all_bodies
from tests.broker.escape.test_part import two_groups
from tests.broker.pop.poppers import back, bodies, pop, processed, reviving, stored, values
from tests.broker.pop.world import Popped, Popper
from tests.broker.standin.test_part import info, may_deliver

LATE_MS = 5_000
"""From the end of the invisible time on a message may take so long to come back."""


async def sent(made: Cluster, node: Node, count: int) -> None:
    for number in range(count):
        answer = await made.send(node.address, b"m%d" % number, properties=f"UNIQ_KEY\x01U{number}\x02TAGS\x01a\x02")
        assert answer.code == 0, answer


async def copied(master: Node, slave: Node) -> None:
    await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)


async def popped(popper: Popper, node: Node, count: int, **asked: int) -> list[Popped]:
    """Some, one after the other, so that they have checkpoints of their own; what was ``before`` is acknowledged."""
    found: list[Popped] = []
    while len(found) < count:
        for message in await popper.pop(node, count=1, **asked):
            if message.body == b"before":
                await popper.ack(node, message)
            else:
                found.append(message)
    return found


async def taken_up(slave: Node) -> None:
    await until(lambda: may_deliver(slave))


def held(slave: Node) -> int:
    return int(info(slave)["popReviveBehind"])


async def test_what_is_not_acknowledged_comes_back_while_the_master_is_away(autojump_clock: MockClock) -> None:
    async with two_groups() as (made, master, slave, other):
        popper = Popper(made)
        await sent(made, master, 5)
        given = await popped(popper, master, 5, invisible_ms=20_000)
        due_ms = max(message.receipt.pop_time_ms for message in given) + 20_000
        for number in (1, 3):
            await popper.ack(master, given[number])
        await copied(master, slave)
        await master.kill()
        await taken_up(slave)
        end = slave.broker.journal.end
        assert wall_ms() < due_ms - 5_000
        await trio.sleep((due_ms - wall_ms()) / 1e3)
        assert bodies(other) == []
        await until(lambda: len(bodies(other)) == 3)
        assert wall_ms() <= due_ms + LATE_MS
        await trio.sleep(60)
        assert sorted(bodies(other)) == [b"m0", b"m2", b"m4"], "each once, and none that is acknowledged"
        first = next(record for record in back(other) if record.message.body == b"m0")
        found = values(first)
        assert first.message.reconsume_times == 1
        assert (found["UNIQ_KEY"], found["ORIGIN_GROUP"], found["TAGS"]) == ("U0", "G", "a")
        assert found["1ST_POP_TIME"] == str(given[0].receipt.pop_time_ms)
        assert not any(name.startswith("__QUORATE_") for name in found)
        assert slave.broker.journal.end == end, "nothing is written here"
        assert held(slave) == 0
        again = {message.body for _ in range(30) for message in await popper.pop(other)}
        assert again >= {b"m0", b"m2", b"m4"}, "its consumers find them there"


async def test_a_master_that_comes_back_brings_back_none_of_them_again(autojump_clock: MockClock) -> None:
    async with two_groups() as (made, master, slave, other):
        popper = Popper(made)
        await sent(made, master, 6)
        early = await popped(popper, master, 3, invisible_ms=15_000)
        late = await popped(popper, master, 3, invisible_ms=120_000)
        await popper.ack(master, early[1])
        await popper.ack(master, late[1])
        await made.send(master.address, b"timer",
                        properties=f"TIMER_DELIVER_MS\x01{wall_ms() + 17_000}\x02UNIQ_KEY\x01t\x02")
        await copied(master, slave)
        await master.kill()
        await taken_up(slave)
        await until(lambda: len(bodies(other)) == 2)
        await trio.sleep(10)
        assert b"timer" in await all_bodies(made, other)
        await master.start()
        await until(lambda: may_deliver(master))
        await trio.sleep(150)
        assert sorted(bodies(other)) == [b"m0", b"m2"]
        assert b"timer" not in await all_bodies(made, master), "POP does not hold the time of the timers"
        assert sorted(bodies(master)) == [b"m3", b"m5"], "what was not due meanwhile comes back here, and nothing else"


async def test_records_that_were_in_the_revive_queue_already(autojump_clock: MockClock) -> None:
    """The master delivered a checkpoint there, and died before its messages came back; its acknowledgement waits."""
    async with two_groups() as (made, master, slave, other):
        popper = Popper(made)
        await sent(made, master, 2)
        given = await popped(popper, master, 2, invisible_ms=10_000)
        await popper.ack(master, given[1])
        due_ms = given[0].receipt.pop_time_ms + 10_000
        await trio.sleep((due_ms - wall_ms()) / 1e3)
        topic = reviving(master).topic
        await until(lambda: sum(master.broker.journal.messages.max_offset(topic.encode(), number)
                                for number in range(8)) >= 2)
        assert bodies(master) == []
        await copied(master, slave)
        await master.kill()
        await until(lambda: bodies(other))
        await trio.sleep(30)
        assert bodies(other) == [b"m0"]
        assert all(done == last for done, last in (processed(slave, number) for number in range(8)))
        await master.start()
        await until(lambda: may_deliver(master))
        await trio.sleep(60)
        assert (bodies(master), bodies(other)) == ([], [b"m0"])


async def test_who_cannot_be_popped_from_gets_nothing_and_others_go_on(autojump_clock: MockClock) -> None:
    async with two_groups() as (made, master, slave, other):
        master.topics.update([TopicConfig("U", 1, 1)])
        await made.send(master.address, b"only here", topic="U")
        await sent(made, master, 1)
        elsewhere = Popper(made, topic="U")
        await until(lambda: slave.topics.get("U"))
        for _ in range(20):  # more than are tried at once
            await popped(elsewhere, master, 1, invisible_ms=20_000)
            await made.send(master.address, b"only here", topic="U")
        await popped(Popper(made), master, 1, invisible_ms=20_000)
        await copied(master, slave)
        await master.kill()
        await until(lambda: bodies(other))
        assert bodies(other) == [b"m0"]
        await until(lambda: info(slave)["popReviveWaitsFor"])
        assert info(slave)["popReviveWaitsFor"] == (
            "kept: SERVICE_NOT_AVAILABLE U: no other group of the cluster has a master where it can be popped")
        assert held(slave) >= 20
        await trio.sleep(30)
        assert bodies(other, "%RETRY%G_U") == []
        await master.start()
        await until(lambda: len(bodies(master, "%RETRY%G_U")) == 20, within_s=120)
        await trio.sleep(60)
        assert bodies(master, "%RETRY%G_U") == 20 * [b"only here"], "its master has them"


async def test_what_came_back_often_is_no_dead_letter_elsewhere(autojump_clock: MockClock) -> None:
    async with two_groups() as (made, master, slave, other):
        popper = Popper(made)
        header = SendMessageRequest(
            producer_group="P", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
            born_timestamp=wall_ms(), properties="UNIQ_KEY\x01t\x02", reconsume_times=20, unit_mode=False, batch=False)
        answer = await made.ask(master.address, RequestCode.SEND_MESSAGE, header, b"tired")
        assert answer.code == 0, answer
        await popped(popper, master, 1, invisible_ms=20_000)
        await copied(master, slave)
        await master.kill()
        await until(lambda: bodies(other))
        assert back(other)[0].message.reconsume_times == 21


async def test_the_next_slave_goes_on_when_the_first_is_lost(autojump_clock: MockClock) -> None:
    async with two_groups(2, totalReplicas="3") as (made, master, slave, other):
        popper = Popper(made)
        second = next(node for node in made.nodes if node not in (master, slave, other))
        await sent(made, master, 4)
        early = await popped(popper, master, 2, invisible_ms=20_000)
        late = await popped(popper, master, 2, invisible_ms=60_000)
        await popper.ack(master, early[1])
        await popper.ack(master, late[1])
        await copied(master, slave)
        await copied(master, second)
        await master.kill()
        await until(lambda: bodies(other) == [b"m0"])
        await trio.sleep(10)  # the next slave has heard of it
        await slave.kill()
        await until(lambda: len(bodies(other)) == 2)
        await trio.sleep(30)
        assert bodies(other) == [b"m0", b"m2"]


async def test_no_other_master_is_there_for_a_while(autojump_clock: MockClock) -> None:
    async with two_groups() as (made, master, slave, other):
        await sent(made, master, 20)
        await popped(Popper(made), master, 20, invisible_ms=20_000)
        await copied(master, slave)
        await master.kill()
        await other.kill()
        await until(lambda: "kept: " in info(slave)["popReviveWaitsFor"])
        await trio.sleep(60)
        assert held(slave) == 20
        await other.start()
        await until(lambda: len(bodies(other)) == 20, within_s=60)
        await trio.sleep(60)
        assert sorted(bodies(other)) == sorted(b"m%d" % number for number in range(20))
        assert held(slave) == 0 and info(slave)["popReviveWaitsFor"] == ""


@pytest.mark.parametrize("lost", ["queue", "record"])
async def test_what_the_slave_does_not_find_is_left_to_its_master(
        lost: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log may begin later than its master's."""
    async with two_groups() as (made, master, slave, other):
        await sent(made, master, 1)
        await popped(Popper(made), master, 1, invisible_ms=20_000)
        await copied(master, slave)
        its, found = reviving(slave), slave.broker.journal.messages.queue
        if lost == "queue":
            monkeypatch.setattr(slave.broker.journal.messages, "queue",
                                lambda topic, number: None if topic == b"T" else found(topic, number))
        else:
            monkeypatch.setattr(its, "_look_up", lambda waiting, offset: Fate.LATER)
        await master.kill()
        await until(lambda: "cannot be read here" in info(slave)["popReviveWaitsFor"])
        await trio.sleep(60)
        assert bodies(other) == [] and its.counters.gone == 0
        await master.start()
        await until(lambda: bodies(master) == [b"m0"], within_s=60)


async def test_records_that_a_slave_never_had_are_left_to_its_master(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It copied the last file alone, and the master died before it brought anything back."""
    async with two_groups(mappedFileSizeCommitLog=str(64 << 10)) as (made, master, slave, other):
        master.groups.find("G")
        monkeypatch.setattr(reviving(master), "tick", lambda now_ns: None)
        await pop(master, [0], 5_000)  # "before"
        await until(lambda: processed(master) == (-1, 0))
        while master.broker.journal.end < 64 << 10:
            await made.send(master.address, b"x" * 4_000)
        last = master.broker.journal.messages.max_offset(b"T", 0)
        await made.send(master.address, b"last")
        await pop(master, [last], 5_000)
        await until(lambda: processed(master) == (-1, 1))
        await slave.kill()
        slave.files, slave.store = MemoryFiles(), StoreFiles()
        await slave.start()
        await copied(master, slave)
        await trio.sleep(5)  # until all is flushed
        assert slave.broker.journal.messages.min_offset(reviving(slave).topic.encode(), 0) == 1
        await master.kill()
        await until(lambda: bodies(other) == [b"last"], within_s=30)
        await trio.sleep(5)
        reviving(slave).start(acts=True)
        await trio.sleep(10)
        assert bodies(other) == [b"last"] and processed(slave) == (-1, 1)
        await master.start()
        await until(lambda: bodies(master) == [b"before", b"last"], within_s=60)


async def test_what_is_no_record_holds_nothing_up(autojump_clock: MockClock) -> None:
    async with two_groups() as (made, master, slave, other):
        await sent(made, master, 1)
        await popped(Popper(made), master, 1, invisible_ms=20_000)
        topic, due_ms = reviving(master).topic, wall_ms() + 18_000
        for tag in ("ck", "other"):
            await stored(master, Message(
                b"rmq_sys_wheel_timer", b"{", 0, encode_properties(
                    {"REAL_TOPIC": topic, "REAL_QID": "3", "TIMER_OUT_MS": str(due_ms), "TAGS": tag})))
        await copied(master, slave)
        await master.kill()
        await until(lambda: bodies(other) == [b"m0"])
        await until(lambda: held(slave) == 0)
        assert reviving(slave).counters.strange == 2
        assert slave.broker.parts[TimersPart].done_before_ms > due_ms


async def test_a_record_that_waits_for_more_than_one_turn_of_its_timer(autojump_clock: MockClock) -> None:
    async with two_groups(timerRollWindowSlot="20") as (made, master, slave, other):
        await sent(made, master, 2)
        given = await popped(Popper(made), master, 2, invisible_ms=70_000)
        await Popper(made).ack(master, given[1])
        await copied(master, slave)
        await master.kill()
        await until(lambda: bodies(other), within_s=100)
        assert wall_ms() > given[0].receipt.pop_time_ms + 70_000
        await trio.sleep(60)
        assert bodies(other) == [b"m0"]


async def test_more_are_out_than_timers_may_be_unfinished(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "UNFINISHED_MAX", 3)
    async with two_groups() as (made, master, slave, other):
        await sent(made, master, 8)
        given = await popped(Popper(made), master, 8, invisible_ms=20_000)
        await Popper(made).ack(master, given[7])
        await copied(master, slave)
        await master.kill()
        await until(lambda: len(bodies(other)) == 7)
        await until(lambda: held(slave) == 0)
        assert sorted(bodies(other)) == [b"m%d" % number for number in range(7)]
