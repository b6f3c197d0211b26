"""What comes due while the master is away is delivered by the slave, at another group's master."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from harness.simulation.worlds.brokers import Cluster, Node, until, wall_ms
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import ResponseCode
from remoting.record import decode_all, decode_properties
from tests.broker.standin.test_part import group, info, may_deliver


@asynccontextmanager
async def two_groups(slaves: int = 1, **settings: str) -> AsyncGenerator[tuple[Cluster, Node, Node, Node], None]:
    """Master and first slave of group a, and the master of group b, with a topic at both."""
    async with group(slaves, **{"enableRemoteEscape": "true", "totalReplicas": "2", **settings}) as (
            made, (master, slave, *_)):
        other = await made.node(brokerName="b")
        await made.send(other.address, b"before")
        yield made, master, slave, other


async def bodies(made: Cluster, node: Node, topic: str = "T") -> list[bytes]:
    found = []
    for queue in range(4):
        answer = await made.pull(node.address, topic=topic, queue=queue)
        if answer.code == ResponseCode.SUCCESS:
            found += [record.message.body for record in decode_all(answer.body)]
    return found


async def test_delayed_messages_and_timers(autojump_clock: trio.abc.Clock) -> None:
    async with two_groups() as (made, master, slave, other):
        for queue in range(4):
            await made.send(master.address, b"level %d" % queue, queue=queue,
                            properties=f"DELAY\x013\x02UNIQ_KEY\x01{queue}\x02")
        await made.send(master.address, b"timer",
                        properties=f"TIMER_DELIVER_MS\x01{wall_ms() + 12_000}\x02UNIQ_KEY\x01t\x02")
        await made.send(master.address, b"at once", properties="DELAY\x011\x02")
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await trio.sleep(5)
        assert await bodies(made, master) == [b"before", b"at once"]
        await trio.sleep(3)
        await master.kill()
        await until(lambda: may_deliver(slave))
        await trio.sleep(10)
        assert sorted(await bodies(made, other)) == [
            b"before", b"level 0", b"level 1", b"level 2", b"level 3", b"timer"]
        end = slave.broker.journal.end
        answer = await made.pull(other.address, offset=1)
        told = decode_properties(next(iter(decode_all(answer.body))).message.properties)
        assert told["UNIQ_KEY"] == "0"
        assert "DELAY" not in told
        assert slave.broker.journal.end == end, "nothing is written here"
        assert info(slave)["scheduleMessageOffset_3"] == "4,4"


async def test_what_nobody_takes_is_kept(autojump_clock: trio.abc.Clock) -> None:
    async with two_groups() as (made, master, slave, other):
        master.topics.update([TopicConfig("U")])
        await trio.sleep(1)
        await made.send(master.address, b"late", topic="U", properties="DELAY\x011\x02UNIQ_KEY\x01u\x02")
        await made.send(master.address, b"behind", properties="DELAY\x011\x02UNIQ_KEY\x01v\x02")
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await master.kill()
        await until(lambda: may_deliver(slave))
        await until(lambda: info(slave)["escapeWaitsFor"])
        assert info(slave)["escapeWaitsFor"] == "U: no other group of the cluster has a master that takes it"
        await trio.sleep(5)
        assert await bodies(made, other) == [b"before", b"behind"], "others of its level go on"
        assert info(slave)["scheduleMessageOffset_1"] == "0,2"
        other.topics.update([TopicConfig("U")])
        await trio.sleep(60)
        assert info(slave)["scheduleMessageOffset_1"] == "2,2"
        assert await bodies(made, other) == [b"before", b"behind"]
        assert await bodies(made, other, "U") == [b"late"]
        assert info(slave)["escapeWaitsFor"] == ""
