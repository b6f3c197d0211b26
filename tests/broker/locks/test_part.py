"""Codes 41 and 42 of whole brokers: alone, by majority, and with word to the others."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.locks.part import LocksPart
from harness.simulation.worlds.brokers import Cluster, Node, cluster, until
from remoting.bodies.consumers import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from remoting.codes import RequestCode
from remoting.command import Command

QUEUES = [MessageQueue("t", "a", number) for number in range(3)]


async def lock(
    made: Cluster, node: Node, client: str, queues: list[MessageQueue], *, here: bool = False,
) -> tuple[list[int], str | None]:
    """Numbers of the queues that the client holds, and what was remarked."""
    body = LockBatchRequestBody("g", client, queues, here)
    answer = await made.ask(node.address, RequestCode.LOCK_BATCH_MQ, body=body.to_json())
    assert answer.code == 0
    found = LockBatchResponseBody.from_json(answer.body).lock_ok_mq_set
    return [queue.queue_id for queue in found], answer.remark


async def unlock(made: Cluster, node: Node, client: str, queues: list[MessageQueue]) -> None:
    body = LockBatchRequestBody("g", client, queues)
    assert (await made.ask(node.address, RequestCode.UNLOCK_BATCH_MQ, body=body.to_json())).code == 0


async def group(made: Cluster, slaves: int, **settings: str) -> list[Node]:
    """A master and its slaves, all of them with the name server."""
    total = str(1 + slaves)
    nodes = [await made.node(totalReplicas=total, skipPreOnline="true", **settings)]
    nodes += [await made.node(brokerRole="SLAVE", brokerId=str(number + 1), totalReplicas=total,
                              skipPreOnline="true", **settings) for number in range(slaves)]
    await until(lambda: all(node.broker.registration.registered for node in nodes))
    if settings.get("lockInStrictMode") == "true":
        await trio.sleep(61)
    return nodes


async def test_one_broker_grants_a_queue_to_one_client(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        assert await lock(made, node, "c1", QUEUES[:2]) == ([0, 1], None)
        assert await lock(made, node, "c2", QUEUES) == ([2], None)
        assert await lock(made, node, "c2", QUEUES, here=True) == ([2], None)
        await unlock(made, node, "c1", QUEUES)
        assert await lock(made, node, "c2", QUEUES) == ([0, 1, 2], None)


async def test_by_majority_one_holder_whoever_is_asked(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, first, second = await group(made, 2, lockInStrictMode="true")
        assert await lock(made, master, "c1", QUEUES[:2]) == ([0, 1], None)
        for node in (first, second):
            assert await lock(made, node, "c2", QUEUES[:1]) == ([], None)
        await second.kill()
        assert await lock(made, first, "c1", QUEUES[:2]) == ([0, 1], None), "two of three are a majority"
        await unlock(made, first, "c1", QUEUES[:2])
        await until(lambda: not master.broker.parts[LocksPart].locks.held_by_group("g"), within_s=5)
        assert await lock(made, first, "c2", QUEUES) == ([0, 1, 2], None)


async def test_by_majority_who_forgot_what_it_granted_grants_nothing_for_a_minute(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, first, second = await group(made, 2, lockInStrictMode="true")
        await second.kill()
        assert await lock(made, master, "c1", QUEUES[:1]) == ([0], None)
        await first.kill()
        await first.start()
        await second.start()
        await until(lambda: first.broker.registration.registered and second.broker.registration.registered)
        held, said = await lock(made, first, "c2", QUEUES)
        assert held == [] and said is not None and said.startswith(
            "lockInStrictMode: this broker has just started to grant locks, and grants no new one for "), said
        await trio.sleep(61)
        assert await lock(made, first, "c2", QUEUES) == ([0, 1, 2], None)
        for node in (master, first):
            for strict in (b"false", b"true"):
                answer = await made.ask(
                    node.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"lockInStrictMode=" + strict)
                assert answer.code == 0, answer
        assert await lock(made, first, "c2", QUEUES) == ([0, 1, 2], None), "what is held here is renewed"
        await unlock(made, first, "c2", QUEUES)
        assert (await lock(made, first, "c3", QUEUES))[0] == []


async def test_by_majority_an_unlock_that_comes_late_takes_no_later_lock(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        master, first, second = await group(made, 2, lockInStrictMode="true")
        await second.kill()
        fellows, hold = master.broker.parts[LocksPart]._fellows, trio.Event()
        tell = fellows.tell

        async def late(address: str, command: Command) -> None:
            await hold.wait()
            await tell(address, command)

        monkeypatch.setattr(fellows, "tell", late)
        assert await lock(made, master, "c1", QUEUES[:1]) == ([0], None)
        await unlock(made, master, "c1", QUEUES[:1])
        assert await lock(made, master, "c1", QUEUES[:1]) == ([0], None)
        hold.set()
        await trio.sleep(0.5)
        await second.start()
        await until(lambda: second.broker.registration.registered)
        await trio.sleep(20)
        assert first.broker.parts[LocksPart].locks.lock("g", QUEUES[:1], "c2") == []


async def test_of_two_members_one_alone_locks_nothing_and_says_so(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster() as made:
        master, slave = await group(made, 1, lockInStrictMode="true")
        assert await lock(made, master, "c1", QUEUES[:1]) == ([0], None)
        await master.kill()
        nothing, said = await lock(made, slave, "c1", QUEUES[:1])
        assert nothing == []
        assert said == "lockInStrictMode: 1 of 2 replicas answered, 2 must: no queue can be locked"
        assert "queues cannot be locked: too few replicas answer" in caplog.messages
        part = slave.broker.parts[LocksPart]
        assert part.without_majority == 1
        await lock(made, slave, "c2", QUEUES[1:2])
        assert part.locks.lock("g", QUEUES[1:2], "c3") == QUEUES[1:2], "what was not won is given back"


async def test_who_gets_no_majority_keeps_nothing_at_others(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, first, second = await group(made, 2, lockInStrictMode="true")
        for node in (first, second):
            node.broker.parts[LocksPart].locks.lock("g", QUEUES[:1], f"held at {node.address}")
        assert await lock(made, master, "c1", QUEUES[:1]) == ([], None)
        assert master.broker.parts[LocksPart].locks.lock("g", QUEUES[:1], "c2") == QUEUES[:1]


@pytest.mark.parametrize("strict", ["false", "true"])
async def test_a_master_that_is_not_back_yet_grants_nothing_by_itself(autojump_clock: MockClock, strict: str) -> None:
    """The slave that acts grants meanwhile. By majority the master is asked as any member is."""
    async with cluster() as made:
        keys = {"enableSlaveActingMaster": "true", "totalReplicas": "2", "lockInStrictMode": strict}
        master = await made.node(**keys)
        slave = await made.node(brokerRole="SLAVE", brokerId="1", **keys)
        await until(lambda: all(node.broker.registration.registered for node in (master, slave)))
        await master.kill()
        master.settings["haListenPort"] = "19999"  # where nobody listens in this world
        await master.start()
        await until(lambda: slave.broker.standing.role.acts)
        await trio.sleep(61)
        assert not master.broker.standing.role.leads
        granted, _ = await lock(made, slave, "c1", QUEUES[:2])
        asked = await lock(made, master, "c2", QUEUES)
        if strict == "true":
            assert granted == [] and asked == ([0, 1, 2], None), "the master reaches both, the slave itself alone"
            return
        assert granted == [0, 1]
        assert asked == ([], "this master is not back yet: the slave that acts for it grants locks")
        await slave.stop()
        await until(lambda: master.broker.standing.role.leads)
        assert await lock(made, master, "c1", QUEUES[:2]) == ([0, 1], None)


async def test_a_former_holder_keeps_its_queue_where_its_grant_was_copied(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await group(made, 1, enableSlaveActingMaster="true")
        assert await lock(made, master, "c1", QUEUES[:2]) == ([0, 1], None)
        await until(lambda: slave.broker.parts[LocksPart].locks.held_by_group("g"))
        await unlock(made, master, "c1", QUEUES[1:2])
        await until(lambda: slave.broker.parts[LocksPart].locks.lock("g", QUEUES[1:2], "c2"))
        await master.kill()
        assert await lock(made, slave, "c2", QUEUES) == ([1, 2], None), "c1 holds queue 0 for the rest of its minute"
        assert await lock(made, slave, "c1", QUEUES[:1]) == ([0], None)
        await master.start()
        await until(lambda: master.broker.registration.registered)
        assert await lock(made, master, "c2", QUEUES[:1]) == ([0], None), "it does not know of c1"
        await until(lambda: slave.broker.parts[LocksPart].locks.overlaps == 1)
