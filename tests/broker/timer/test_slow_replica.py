"""What is stored while a replica is slow is done once it is confirmed, and not stored again meanwhile."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.topics.names import TIMER, TIMER_DEAD
from harness.simulation.worlds.brokers import cluster, three, until, wall_ms
from remoting.record import Message, encode_properties
from tests.broker.test_silent_replica import cut_copying
from tests.broker.timer.test_timers import bodies


@pytest.mark.parametrize("controllers", [0, 3])
async def test_delayed_messages_timers_and_what_is_set_aside_are_stored_once(
        autojump_clock: MockClock, controllers: int) -> None:
    async with cluster(controllers=controllers) as made:
        if controllers:
            master, slave, _ = await three(
                made, allAckInSyncStateSet="true", minInSyncReplicas="2", totalReplicas="3", haBeatIntervalMs="0")
        else:
            counts = {"totalReplicas": "2", "inSyncReplicas": "2", "minInSyncReplicas": "1"}
            master = await made.node(brokerRole="SYNC_MASTER", **counts)
            await until(lambda: master.serves)
            slave = await made.node(brokerRole="SLAVE", brokerId="1", **counts)
        await trio.sleep(20)
        out_ms = (wall_ms() + 5_000) // 1_000 * 1_000
        master.broker.puts.put([Message(TIMER.encode(), b"odd", properties=encode_properties(
            {"TIMER_OUT_MS": str(out_ms)}))], lambda result: None)
        for properties in ({"DELAY": "2"}, {"TIMER_DELAY_SEC": "5"}):
            await made.send(master.address, b"".join(name.encode() for name in properties),
                            properties=encode_properties({"UNIQ_KEY": "U", **properties}).decode())
        await trio.sleep(4)
        cut_copying(made, slave, master)
        await trio.sleep(16)
        made.network.cuts.clear()
        await trio.sleep(30)
        assert sorted(bodies(master)) == [b"DELAY", b"TIMER_DELAY_SEC"]
        assert bodies(master, TIMER_DEAD) == [b"odd"]
        again = {"UNIQ_KEY": "V", "DELAY": "1"}
        await made.send(master.address, b"later", properties=encode_properties(again).decode())
        await until(lambda: b"later" in bodies(master), within_s=5)
