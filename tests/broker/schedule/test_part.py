"""The part's key, and where it begins as master, in a running broker."""

from __future__ import annotations

from trio.testing import MockClock

from broker.schedule.levels import SCHEDULE_TOPIC
from broker.schedule.part import DelaysPart
from broker.store.tables import DelayOffsets, load
from harness.simulation.worlds.brokers import cluster, until
from remoting.codes import RequestCode, ResponseCode
from remoting.record import Message, encode


async def test_the_versions_step_is_a_key_that_may_change_while_it_runs(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(delayOffsetUpdateVersionStep="3")
        machine = node.broker.parts[DelaysPart]._delivery.machine
        assert machine.version_step == 3
        answer = await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"delayOffsetUpdateVersionStep=5")
        assert (answer.code, answer.remark) == (0, None)
        assert machine.version_step == 5


async def test_a_position_behind_messages_that_consumers_do_not_see_yet_stays_where_it_is(
    autojump_clock: MockClock,
) -> None:
    """The end of a log that was copied is confirmed later. Taken for beyond its queue, it would deliver them again."""
    async with cluster() as made:
        node = await made.node()
        journal, delivery = node.broker.journal, node.broker.parts[DelaysPart]._delivery
        await until(lambda: journal.visible.offset == journal.end)
        delivery.stop()
        journal.append_raw(encode(Message(SCHEDULE_TOPIC, b"copied", 2), 0, journal.end, 0), journal.end)
        delivery.machine.replace(DelayOffsets({3: 2}))
        delivery.fit()
        assert journal.visible.offset < journal.end
        assert delivery.offsets().offset_table == {3: 1}


async def test_a_broker_that_stops_writes_positions_of_all_that_it_delivered(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(flushIntervalCommitLog="60000", flushCommitLogThoroughInterval="60000")
        await until(lambda: node.serves)
        assert (await made.send(node.address, b"later", properties="DELAY\x011\x02")).code == ResponseCode.SUCCESS
        delivery = node.broker.parts[DelaysPart]._delivery
        await until(lambda: delivery.delivered)
        assert not load(node.store, DelayOffsets).offset_table.get(1)
        await node.stop()
        assert load(node.store, DelayOffsets).offset_table == {1: 1}
