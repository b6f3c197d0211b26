"""What an answered send promises, by whole brokers on virtual time: as many as were demanded hold it at that moment."""

from __future__ import annotations

import trio

from harness.simulation.worlds.brokers import Cluster, Node, cluster, in_sync, new_master, three, until
from remoting.codes import ResponseCode
from remoting.command import Command
from tests.broker.test_server import bodies, send_all

TWO = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2", "totalReplicas": "3",
       "haMaxTimeSlaveNotCatchup": "1000", "haSendHeartbeatInterval": "500"}


async def send_beside(nursery: trio.Nursery, made: Cluster, master: Node, body: bytes) -> list[Command]:
    """Sent, and stored by its master; the answer comes into the list."""
    answers: list[Command] = []
    end = master.broker.journal.end

    async def send() -> None:
        answers.append(await made.send(master.address, body))

    nursery.start_soon(send)
    while master.broker.journal.end == end:
        await trio.sleep(0.01)
    return answers


async def test_a_send_that_the_master_alone_holds_is_not_answered_as_held(autojump_clock: trio.abc.Clock) -> None:
    """It was let in while three were in sync; the SyncStateSet shrinks to the master before anybody else has it."""
    async with cluster(controllers=3) as made, trio.open_nursery() as nursery:
        master, *others = await three(made, **TWO)
        await send_all(made, master.address, b"held")
        for node in others:
            made.network.silent.add(node.address)
        confirmed = master.broker.journal.confirm_offset
        answers = await send_beside(nursery, made, master, b"alone")
        for node in others:
            await node.kill()
        await in_sync(master, 0)
        assert answers == [] and master.broker.journal.confirm_offset == confirmed
        await until(lambda: answers)
        assert [answer.code for answer in answers] == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
        assert master.broker.journal.confirm_offset == confirmed
        assert await bodies(made, master.address) == [b"held"], "nor does a consumer see it"


async def test_a_send_waits_for_members_that_come_back_in_time(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made, trio.open_nursery() as nursery:
        master, first, second = await three(made, **TWO)
        for node in (first, second):
            made.network.silent.add(node.address)
        answers = await send_beside(nursery, made, master, b"waits")
        for node in (first, second):
            await node.kill()
        await in_sync(master, 0)
        made.network.silent.clear()
        await first.start()
        await in_sync(master, 1)
        await trio.sleep(0.1)
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS]
        assert first.broker.journal.read(0, 1 << 20) == master.broker.journal.read(0, 1 << 20)
        assert await bodies(made, master.address) == [b"waits"]


async def test_a_master_that_is_left_alone_and_dies_is_replaced_at_once(autojump_clock: trio.abc.Clock) -> None:
    """It acknowledged nothing since the others left: they hold all that was."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **TWO)
        await send_all(made, master.address, b"held")
        await trio.sleep(1)  # by then format 2 of the controllers' log is in use
        made.network.listeners.pop(f"{master.host}:10912")
        await made.network.drop(f"{master.host}:10912")
        await in_sync(master, 0)
        answer = await made.send(master.address, b"refused")
        assert answer.code == ResponseCode.SYSTEM_ERROR and "2 are needed" in (answer.remark or "")
        lost = trio.current_time()
        await master.kill()
        second = await new_master(*others)
        assert trio.current_time() - lost < 1
        await in_sync(second, 1)
        await send_all(made, second.address, b"after")
        assert await bodies(made, second.address) == [b"held", b"after"]
