"""What comes due while the master is away is delivered by the slave, at another group's master."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from broker.escape import part as escape_part
from broker.escape.part import EscapePart
from broker.ha.acks import PutStatus
from broker.puts import PutResult
from harness.simulation.worlds.brokers import Cluster, Node, until, wall_ms
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import ConnectionClosed
from remoting.record import Message, decode_all, decode_properties, encode_properties
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


@pytest.mark.parametrize("kind", ["level", "timer"])
async def test_what_nobody_takes_comes_from_its_master_when_that_is_back(
        kind: str, autojump_clock: trio.abc.Clock) -> None:
    async with two_groups() as (made, master, slave, other):
        master.topics.update([TopicConfig("U")])
        await trio.sleep(1)
        when = "DELAY\x014\x02" if kind == "level" else f"TIMER_DELIVER_MS\x01{wall_ms() + 30_000}\x02"
        for topic in "UT":
            await made.send(master.address, b"of " + topic.encode(), topic=topic,
                            properties=f"{when}UNIQ_KEY\x01{topic}\x02")
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await trio.sleep(5)  # until all is flushed
        await master.kill()
        await until(lambda: info(slave)["escapeWaitsFor"], within_s=60)
        assert info(slave)["escapeWaitsFor"] == "U: no other group of the cluster has a master that takes it"
        await trio.sleep(10)
        assert await bodies(made, other) == [b"before", b"of T"], "others that are due then go on"
        await master.start()
        await until(lambda: may_deliver(master), within_s=60)
        await trio.sleep(20)
        assert await bodies(made, master, "U") == [b"of U"]
        assert await bodies(made, other) == [b"before", b"of T"]


@asynccontextmanager
async def one_is_due(monkeypatch: pytest.MonkeyPatch, first: int | None) -> AsyncGenerator[
        tuple[Cluster, EscapePart, Node], None]:
    """A message of a level is due at the slave that acts. The first answer that this gets is ``first``, or is lost,
    though the other master has stored it."""
    async with two_groups() as (made, master, slave, other):
        part = slave.broker.parts[EscapePart]
        call, answered = part._client.call, list[int]()

        async def once(address: str, command: Command, timeout_ms: float | None = None) -> Command:
            answer = await call(address, command, timeout_ms)
            if command.code == RequestCode.SEND_MESSAGE_V2 and not answered:
                answered.append(answer.code)
                if first is None:
                    raise ConnectionClosed(address, "lost")
                answer.code = first
            return answer

        monkeypatch.setattr(part._client, "call", once)
        await made.send(master.address, b"due", properties="DELAY\x013\x02UNIQ_KEY\x01u\x02")
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await master.kill()
        await until(lambda: part.counters.sent, within_s=60)
        await trio.sleep(30)
        yield made, part, other


async def test_an_answer_that_is_lost_is_asked_for_again_and_counted(
        autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with one_is_due(monkeypatch, None) as (made, part, other):
        assert await bodies(made, other) == [b"before", b"due", b"due"]
        assert (part.counters.sent, part.counters.again, part.counters.unsure) == (1, 1, 0)


@pytest.mark.parametrize("code", [
    ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT])
async def test_what_is_stored_and_not_held_as_its_group_is_to_is_counted(
        code: int, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with one_is_due(monkeypatch, code) as (made, part, other):
        assert await bodies(made, other) == [b"before", b"due"], "it is not sent again"
        assert (part.counters.sent, part.counters.again, part.counters.unsure) == (1, 0, 1)


def due(body: bytes, topic: bytes = b"T", queue: int = 0) -> Message:
    return Message(topic, body, queue, encode_properties({"UNIQ_KEY": body.decode()}))


async def test_what_was_stored_of_a_put_is_not_sent_again_with_the_rest(autojump_clock: trio.abc.Clock) -> None:
    async with two_groups() as (made, master, slave, other):
        await master.kill()
        await until(lambda: may_deliver(slave))
        part, ended = slave.broker.parts[EscapePart], list[PutResult]()
        put = [due(b"one"), due(b"two", b"U"), due(b"three", queue=1)]
        part.put(put, ended.append)
        await until(lambda: ended)
        assert ended[0].status is PutStatus.SERVICE_NOT_AVAILABLE and part.counters.kept == 1
        other.topics.update([TopicConfig("U")])
        await trio.sleep(5)
        part.put(put, ended.append)
        await until(lambda: len(ended) == 2)
        assert ended[1].status is PutStatus.PUT_OK
        assert await bodies(made, other) == [b"before", b"one", b"three"]
        assert await bodies(made, other, "U") == [b"two"]


@pytest.mark.parametrize("bound", ["UNDER_WAY_MAX", "BYTES_MAX"])
async def test_only_so_much_is_under_way(
        bound: str, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_groups() as (made, master, slave, other):
        await master.kill()
        await until(lambda: may_deliver(slave))
        monkeypatch.setattr(escape_part, bound, 2)
        part, ended = slave.broker.parts[EscapePart], list[PutResult]()
        for body in (b"a", b"b", b"c"):
            part.put([due(body)], ended.append)
        (refused,) = ended
        assert refused.remark == "2 puts to other masters are in flight"
        await until(lambda: len(ended) == 3)
        assert sorted(await bodies(made, other)) == [b"a", b"b", b"before"]
        part.put([due(b"c")], ended.append)
        await until(lambda: len(ended) == 4)
        assert (await bodies(made, other))[3:] == [b"c"]
