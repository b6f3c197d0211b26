"""A slave that began to copy behind the messages of a queue goes on with their numbers as master."""

from __future__ import annotations

from typing import cast

import pytest
import trio
from trio.testing import MockClock

from broker.journal import NEVER
from broker.queueends.ends import GET_QUEUE_ENDS, QueueEnds, QueueEndsRequest
from broker.queueends.part import LOOK_NS, QueueEndsPart
from broker.standing import Role
from broker.store.store import MessageStore
from harness.simulation.worlds.brokers import Cluster, Node, cluster, controlled, in_sync, new_master, until
from remoting.client import Client
from remoting.codes import ResponseCode
from remoting.command import Command, response
from remoting.errors import ConnectFailed
from remoting.headers.sending import SendMessageResponse
from remoting.record import decode_all

FEW = {"mappedFileSizeCommitLog": "8192"}


async def put(made: Cluster, node: Node, topic: str, body: bytes) -> int:
    answer = await made.send(node.address, body, topic)
    assert answer.code == ResponseCode.SUCCESS, answer
    return SendMessageResponse.from_ext(answer.ext).queue_offset


@pytest.mark.parametrize("again", [False, True], ids=["as it runs", "after a power cut"])
async def test_a_new_master_goes_on_with_the_numbers_of_what_it_never_had(
    autojump_clock: MockClock, again: bool,
) -> None:
    async with cluster(controllers=1) as made:
        master = await made.node(**FEW, **controlled(1))
        await until(lambda: master.serves)
        assert [await put(made, master, "Idle", b"%d" % number) for number in range(3)] == [0, 1, 2]
        while master.broker.journal.end < 3 * 8192:
            await put(made, master, "Busy", b"x" * 500)
        slave = await made.node(**FEW, **controlled(1), syncFromLastFile="true")
        await in_sync(master, 1)
        await until(lambda: slave.broker.journal.messages.max_offset(b"Idle", 0))
        assert slave.broker.journal.begin >= 2 * 8192
        if again:
            await trio.sleep(5)  # until the queues are flushed
            await slave.kill()
            await slave.start()
            await in_sync(master, 1)
        await master.kill()
        assert await new_master(slave) is slave
        assert await put(made, slave, "Idle", b"3") == 3
        answer = await made.pull(slave.address, 3, "Idle")
        assert [record.message.body for record in decode_all(answer.body)] == [b"3"]


class Master:
    """Answers as it is told; knows what it was asked."""

    def __init__(self, *answers: Command | Exception) -> None:
        self.answers, self.asked = list(answers), list[int]()

    async def call(self, address: str, command: Command, timeout_ms: int) -> Command:
        await trio.lowlevel.checkpoint()
        self.asked.append(QueueEndsRequest.from_ext(command.ext).log_offset)
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


class SlaveLog:
    """Of a journal, what the part uses."""

    def __init__(self) -> None:
        self.begin = self.end = 0
        self.begun: dict[tuple[bytes, int], int] = {}
        self.was_cut = self

    def join(self, place: str, call: object) -> None:
        self.cut = call

    def stir(self) -> None:
        """It is asked by hand."""

    def begin_queues(self, ends: dict[tuple[bytes, int], int]) -> None:
        self.begun |= ends


def told(ends: dict[str, dict[int, int]]) -> Command:
    return response(Command(0), body=QueueEnds(ends).to_json())


async def looks(part: QueueEndsPart, now_s: int) -> bool:
    """Whether something is due then; it is done."""
    if part.due_ns() > now_s * LOOK_NS:
        return False
    part.tick(now_s * LOOK_NS)
    await trio.testing.wait_all_tasks_blocked()
    return True


async def test_it_asks_once_of_each_log_and_again_if_nobody_answered(nursery: trio.Nursery) -> None:
    many = dict.fromkeys(range(120), 7)
    master, log = Master(ConnectFailed("a:1", "refused"), told({"T": many}), told({})), SlaveLog()
    part = QueueEndsPart(cast("Client", master), cast("MessageStore", log))  # type: ignore[arg-type]
    await nursery.start(part.run)
    assert not await looks(part, 0), "no master"
    part.role_changed(Role.slave(2, 1, "a:1"))
    assert not await looks(part, 1), "a Java master offers nothing"
    part.offered({GET_QUEUE_ENDS})
    assert await looks(part, 1) and not master.asked, "an empty log may begin anywhere"
    log.begin, log.end = 8192, 9000
    assert await looks(part, 2) and master.asked == [8192] and not log.begun
    assert await looks(part, 3) and log.begun == {(b"T", number): 7 for number in many}
    assert part.due_ns() == NEVER
    part.role_changed(Role.slave(2, 2, "b:1"))
    assert part.due_ns() == NEVER, "another master has the same log"
    log.cut(0)  # type: ignore[operator]
    assert not await looks(part, 4), "it has not said yet what it offers"
    part.offered({GET_QUEUE_ENDS})
    part.offered({GET_QUEUE_ENDS})
    assert await looks(part, 5) and len(master.asked) == 3
    log.cut(0)  # type: ignore[operator]
    part.offered(())
    assert not await looks(part, 6), "it does not any more"


async def test_a_log_that_begins_at_0_lacks_nothing() -> None:
    log = SlaveLog()
    log.end = 100
    part = QueueEndsPart(cast("Client", Master()), cast("MessageStore", log))  # type: ignore[arg-type]
    part.role_changed(Role.slave(2, 1, "a:1"))
    part.offered({GET_QUEUE_ENDS})
    assert await looks(part, 0) and part.due_ns() == NEVER
