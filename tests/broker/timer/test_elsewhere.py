"""What an acting slave delivered is passed over, and what it lacked comes: at their borders, and by whole brokers."""

from __future__ import annotations

from random import Random

import pytest
import trio

from broker.ledger.entries import Entry, Mark, Subject, Thing
from broker.ledger.part import LedgerPart, timers_done
from broker.store.files import MemoryFiles as StoreFiles
from broker.timer.checkpoint import TimerCheckpoint
from broker.timer.elsewhere import EVERY, DoneElsewhere, Elsewhere, TimersDone
from broker.timer.letters import TOPIC
from broker.timer.part import TimersPart
from harness.simulation.worlds.brokers import Cluster, Node, cluster, until, wall_ms
from remoting.codes import RequestCode
from remoting.daemon.files import MemoryFiles
from remoting.errors import BodyError
from remoting.record import decode
from tests.broker.escape.test_part import bodies, two_groups
from tests.broker.standin.test_part import may_deliver


def test_a_timer_was_delivered_if_it_was_due_before_and_stands_below() -> None:
    known = Elsewhere(DoneElsewhere([TimersDone(5_000, 700)]))
    assert known.has(4_999, 699)
    assert not known.has(5_000, 699), "its slot was not over"
    assert not known.has(4_999, 700), "the slave did not have it"
    known = Elsewhere(DoneElsewhere([TimersDone(5_000, 700, 300)]))
    assert known.has(4_999, 300)
    assert not known.has(4_999, 299), "the slave never had it: it copied its master's last file alone"


def test_of_slaves_that_acted_in_turn_each_one_counts_until_the_disk_is_past_it() -> None:
    """Against a plain set of all that was said, in any order."""
    random = Random(7)
    for _ in range(300):
        told = [TimersDone(random.randrange(1, 8), random.randrange(1, 8), random.choice((0, random.randrange(7))))
                for _ in range(random.randrange(1, 6))]
        told = [each for each in told if each.begin < each.below]
        known = Elsewhere(DoneElsewhere())
        for each in told:
            known.add(each)
            assert not known.add(each), "it is known now"
        read_ms = random.randrange(8)
        known.pass_to(read_ms)
        for slot in range(read_ms, 8):
            for offset in range(8):
                assert known.has(slot, offset) is any(
                    slot < each.time_ms and each.begin <= offset < each.below for each in told)
        kept = known.table().done
        assert all(each.time_ms > read_ms for each in kept)
        assert Elsewhere(known.table()).table() == known.table()


def timers(node: Node) -> TimersPart:
    return node.broker.parts[TimersPart]


async def timer(made: Cluster, node: Node, body: bytes, in_s: int) -> None:
    await made.send(node.address, body, properties=(
        f"TIMER_DELIVER_MS\x01{wall_ms() + in_s * 1_000}\x02UNIQ_KEY\x01{body.decode()}\x02"))


async def test_a_timer_that_only_the_lost_master_had_comes_late_and_no_other_comes_twice(
        autojump_clock: trio.abc.Clock) -> None:
    async with two_groups() as (made, master, slave, other):
        await timer(made, master, b"shared", 60)
        await timer(made, master, b"moved", 90)
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await trio.sleep(5)
        end = slave.broker.journal.end
        await slave.stop()
        await timer(made, master, b"own", 5)
        await timer(made, master, b"late", 60)
        await timer(made, master, b"later", 300)
        timers(master).make_way(end)
        await trio.sleep(15)
        assert timers(master).counters.moved == 1, "the other one is due soon"
        assert await bodies(made, master) == [b"before", b"own"]
        await master.kill()
        await slave.start()
        await until(lambda: may_deliver(slave), within_s=30)
        await trio.sleep(80)
        assert await bodies(made, other) == [b"before", b"shared", b"moved"]
        master.settings["timerStopDequeue"] = "true"
        await master.start()
        await until(lambda: may_deliver(master), within_s=60)
        await trio.sleep(40)
        assert not list(slave.broker.parts[LedgerPart].ledger.of(Subject.TIMERS)), "the master's disk knows it"
        await slave.stop()
        await master.kill()
        del master.settings["timerStopDequeue"]
        await master.start()
        await until(lambda: may_deliver(master), within_s=60)
        await trio.sleep(5)
        assert await bodies(made, master) == [b"before", b"own", b"late"]
        assert timers(master).counters.passed_over == 2
        await trio.sleep(300)
        assert await bodies(made, master) == [b"before", b"own", b"late", b"later"]
        assert await bodies(made, other) == [b"before", b"shared", b"moved"]
        assert timers(master).elsewhere.table() == DoneElsewhere(), "its wheel is past that"


async def test_of_a_member_without_a_ledger_its_place_in_the_queue_says_what_it_lacked(
        autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        for number in range(2):
            await timer(made, node, b"%d" % number, 60)
        (raw, *_) = node.broker.journal.messages.get(TOPIC, 0, 1)
        join = timers(node).joins()[RequestCode.GET_TIMER_CHECK_POINT]
        for place, end in ((1, decode(raw).offset), (2, node.broker.journal.end)):
            join(TimerCheckpoint(read_time_ms=wall_ms(), queue_offset=place).body())
            assert timers(node).elsewhere.table() == DoneElsewhere([TimersDone(wall_ms(), end)])
        join(TimerCheckpoint(read_time_ms=wall_ms() + 1, queue_offset=2).body(begin=77))
        assert TimersDone(wall_ms() + 1, end, 77) in timers(node).elsewhere.table().done, "one whose log begins there"
        far = TimerCheckpoint(read_time_ms=wall_ms() + 90_000_000).body()
        join(far)
        assert max(each.time_ms for each in timers(node).elsewhere.table().done) == wall_ms() + 1
        with pytest.raises(BodyError, match="more than a day from now"):
            timers(node).copies()[RequestCode.GET_TIMER_CHECK_POINT](far)


async def test_a_clock_that_was_ahead_at_the_slave_keeps_no_master_away(autojump_clock: trio.abc.Clock) -> None:
    async with two_groups() as (made, master, slave, other):
        await timer(made, master, b"soon", 30)
        await timer(made, master, b"tomorrow", 100_000)
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await trio.sleep(5)  # until all is flushed
        await master.kill()
        await until(lambda: may_deliver(slave))
        await trio.sleep(40)
        slave.ahead_ms = 2 * 86_400_000
        await trio.sleep(10)
        slave.ahead_ms = 0
        await trio.sleep(10)
        assert await bodies(made, other) == [b"before", b"soon", b"tomorrow"], "by its clock that was due"
        await master.start()
        await until(lambda: may_deliver(master), within_s=60)
        await trio.sleep(10)
        assert await bodies(made, master) == [b"before"]
        assert timers(master)._store.pending == 1, "by the master's clock it is not due"


async def test_a_slave_says_what_it_delivered_and_never_that_it_delivered_less(autojump_clock: trio.abc.Clock) -> None:
    async with two_groups() as (made, master, slave, _):
        await timer(made, master, b"soon", 30)
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await trio.sleep(2)
        await master.kill()
        await until(lambda: may_deliver(slave))
        await trio.sleep(5)
        ledger = slave.broker.parts[LedgerPart]
        (entry,) = ledger.ledger.of(Subject.TIMERS)
        (raw,) = slave.broker.journal.messages.get(TOPIC, 0, 0)
        assert timers_done(entry) == TimersDone(entry.value, decode(raw).offset + 1)
        assert wall_ms() - 3_000 < entry.value <= wall_ms()
        ledger.ledger.take(Entry(entry.mark, entry.thing, entry.value + 60_000))  # of another slave that acted
        await trio.sleep(5)
        assert ledger.ledger.get(entry.thing) == entry.value + 60_000


async def test_a_slave_that_copied_the_last_file_alone_does_not_say_that_it_delivered_what_it_never_had(
        autojump_clock: trio.abc.Clock) -> None:
    async with two_groups(mappedFileSizeCommitLog=str(64 << 10)) as (made, master, slave, other):
        await timer(made, master, b"before it", 60)
        while master.broker.journal.end < 64 << 10:
            await made.send(master.address, b"x" * 4_000)
        await slave.kill()
        slave.files, slave.store = MemoryFiles(), StoreFiles()
        await slave.start()
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        assert slave.broker.journal.begin > 0, "an empty slave begins with the last file"
        await timer(made, master, b"behind it", 60)
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await trio.sleep(5)  # until all is flushed
        await master.kill()
        await until(lambda: may_deliver(slave), within_s=30)
        await trio.sleep(80)
        assert (await bodies(made, other))[-1:] == [b"behind it"]
        await master.start()
        await until(lambda: may_deliver(master), within_s=60)
        await trio.sleep(20)
        assert (await bodies(made, master))[-1:] == [b"before it"]


@pytest.mark.parametrize(("kind", "name", "done"), [
    (Subject.TIMERS, "700", TimersDone(5, 700)),
    (Subject.TIMERS, "", TimersDone(5, EVERY)),  # as a former version says
    (Subject.HELD_TIMERS, "300-700", TimersDone(5, 700, 300)),
    (Subject.HELD_TIMERS, "700", TimersDone(5, 700, EVERY)), (Subject.HELD_TIMERS, "3-x", TimersDone(5, 0, 3)),
    (Subject.HELD_TIMERS, "", TimersDone(5, 0, EVERY))])  # which say nothing
def test_what_an_entry_says_of_the_timers(kind: Subject, name: str, done: TimersDone) -> None:
    assert timers_done(Entry(Mark(), Thing(kind, name, 0), 5)) == done
