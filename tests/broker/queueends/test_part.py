"""A slave that began to copy behind the messages of a queue goes on with their numbers as master."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from itertools import pairwise
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from broker.journal import NEVER
from broker.queueends.ends import GET_QUEUE_ENDS, QueueEnds, QueueEndsRequest
from broker.queueends.part import LOOK_NS, QueueEndsPart
from broker.standing import Role
from broker.store.files import MemoryFiles
from broker.store.store import MessageStore
from harness.simulation.worlds.brokers import Cluster, Node, cluster, controlled, in_sync, new_master, until
from remoting.client import Client
from remoting.codes import ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.errors import ConnectFailed
from remoting.headers.sending import SendMessageResponse
from remoting.record import decode_all
from tests.broker.store.small import message, opened

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
        self.messages = self
        self.queues_flushed = True

    def join(self, place: str, call: object) -> None:
        self.cut = call

    def stir(self) -> None:
        """It is asked by hand."""

    def queues(self) -> list[tuple[bytes, int]]:
        return [*self.begun]

    def begin_queues(self, ends: dict[tuple[bytes, int], int]) -> None:
        self.begun |= ends

    def truncate(self, offset: int, *, everything: bool) -> None:
        assert everything and not self.end
        self.begun.clear()
        self.cut(0)  # type: ignore[operator]


def told(ends: dict[str, dict[int, int]]) -> Command:
    return response(Command(0), body=QueueEnds(ends).to_json())


async def looks(part: QueueEndsPart, now_s: int) -> bool:
    """Whether something is due then; it is done."""
    if part.due_ns() > now_s * LOOK_NS:
        return False
    part.tick(now_s * LOOK_NS)
    await trio.testing.wait_all_tasks_blocked()
    return True


async def a_part(nursery: trio.Nursery, *answers: Command | Exception) -> tuple[QueueEndsPart, Master, SlaveLog]:
    master, log = Master(*answers), SlaveLog()
    part = QueueEndsPart(cast("Client", master), cast("MessageStore", log))  # type: ignore[arg-type]
    await nursery.start(part.run)
    part.role_changed(Role.slave(2, 1, "a:1"))
    return part, master, log


async def test_a_slave_that_was_not_told_where_queues_end_is_not_in_sync(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:
    """Elected before that, it would begin them at 0 again."""
    answer, asked, opened = QueueEndsPart._answer, list[float](), list[float]()

    async def held(part: QueueEndsPart, connection: Connection, command: Command) -> Command:
        asked.append(trio.current_time())
        if not opened:
            raise RuntimeError("held back")
        return await answer(part, connection, command)

    monkeypatch.setattr(QueueEndsPart, "_answer", held)
    async with cluster(controllers=1) as made:
        master = await made.node(**FEW, **controlled(1))
        await until(lambda: master.serves)
        assert [await put(made, master, "Idle", b"%d" % number) for number in range(3)] == [0, 1, 2]
        while master.broker.journal.end < 3 * 8192:
            await put(made, master, "Busy", b"x" * 500)
        slave = await made.node(**FEW, **controlled(1), syncFromLastFile="true")
        await until(lambda: asked)
        await trio.sleep(10)
        assert master.broker.roles.runtime_info().in_sync_slave_nums == 0
        assert slave.broker.journal.end == 0, "it holds nothing for which it could be elected"
        assert len(asked) >= 10 and max(b - a for a, b in pairwise(asked)) <= 1.2, "asked again within a second"
        assert caplog.text.count("queue ends are not known") == 1
        assert "connection to the master's HA port" not in "".join(
            line.message for line in caplog.records if line.levelno >= logging.WARNING), "all is as it should be"
        opened.append(trio.current_time())
        await in_sync(master, 1)
        assert trio.current_time() - opened[0] < 2
        assert slave.broker.journal.begin >= 2 * 8192
        await master.kill()
        assert await new_master(slave) is slave
        assert await put(made, slave, "Idle", b"3") == 3


async def test_an_empty_log_begins_when_it_is_on_disk_where_queues_end(nursery: trio.Nursery) -> None:
    part, master, log = await a_part(nursery, told({"T": {0: 3}}), told({"T": {0: 5}}), told({}))
    assert part.may_begin(0)
    assert not part.may_begin(8192), "the master has not said yet whether it may be asked"
    assert part.due_ns() == NEVER
    part.offered({GET_QUEUE_ENDS})
    assert not part.may_begin(8192)
    log.queues_flushed = False
    assert await looks(part, 1) and master.asked == [8192] and log.begun == {(b"T", 0): 3}
    assert not part.may_begin(8192), "a power cut would take it away again"
    assert await looks(part, 1) and not part.may_begin(8192)
    log.queues_flushed = True
    assert await looks(part, 1) and part.may_begin(8192)
    assert not part.may_begin(16384), "files went meanwhile, and messages with them"
    assert await looks(part, 2) and master.asked == [8192, 16384] and log.begun == {(b"T", 0): 5}
    assert await looks(part, 2) and part.may_begin(16384)
    part.role_changed(Role.slave(2, 2, "b:1"))
    assert not part.may_begin(16384), "the next master has to say it, too"
    part.offered({GET_QUEUE_ENDS})
    assert await looks(part, 3) and master.asked[2:] == [16384]
    assert await looks(part, 3) and part.may_begin(16384)
    log.begin, log.end = 16384, 20000
    assert await looks(part, 4) and len(master.asked) == 3, "a log that begins there was told already"


async def test_queues_of_an_earlier_beginning_go_further(nursery: trio.Nursery) -> None:
    """A queue that was begun goes on from there, and nobody begins it again."""
    part, _, log = await a_part(nursery, told({"T": {0: 3, 1: 3}}), told({"T": {0: 5}}))
    part.offered({GET_QUEUE_ENDS})
    for second, begin in enumerate((8192, 16384), start=1):
        assert not part.may_begin(begin) and await looks(part, second) and await looks(part, second)
    assert log.begun == {(b"T", 0): 5}


async def test_a_log_that_begins_at_0_drops_queues_that_were_begun_for_another(nursery: trio.Nursery) -> None:
    part, _, log = await a_part(nursery, told({"T": {0: 3}}))
    part.offered({GET_QUEUE_ENDS})
    assert not part.may_begin(8192) and await looks(part, 1) and log.begun
    assert part.may_begin(0) and not log.begun


async def test_a_master_tells_of_messages_that_are_in_no_queue_yet() -> None:
    """Those of a young master, which waits for the very slave that asks."""
    store, journal = opened(MemoryFiles()), SlaveLog()
    for _ in range(3):
        store.writer.put(message("Idle", 0, "x"), 1_000)
    begin = store.writer.put(message("Busy", 0, "x"), 1_000).offset
    journal.log, journal.visible, journal.messages = store.log, store.visible, store.messages  # type: ignore[attr-defined, assignment]
    part = QueueEndsPart(cast("Client", Master()), cast("MessageStore", journal))  # type: ignore[arg-type]
    for _ in range(2):
        answer = part.handlers()[GET_QUEUE_ENDS](
            cast("Connection", None), request(GET_QUEUE_ENDS, QueueEndsRequest(begin)))
        assert isinstance(answer, Coroutine)
        found = await answer
        assert found is not None and QueueEnds.from_json(found.body) == QueueEnds({"Idle": {0: 3}})
        store.visible.advance()


async def test_a_log_begins_at_once_at_a_master_that_does_not_offer_the_answer(nursery: trio.Nursery) -> None:
    part, _, _ = await a_part(nursery)
    assert not part.may_begin(8192)
    part.offered({61_011})
    assert part.may_begin(8192)


async def test_a_master_that_is_lost_is_asked_no_longer(nursery: trio.Nursery) -> None:
    class Silent(Master):
        async def call(self, address: str, command: Command, timeout_ms: int) -> Command:
            if address == "a:1":
                await trio.sleep_forever()
            return await super().call(address, command, timeout_ms)

    log, master = SlaveLog(), Silent(told({"T": {0: 3}}))
    part = QueueEndsPart(cast("Client", master), cast("MessageStore", log))  # type: ignore[arg-type]
    await nursery.start(part.run)
    for second, address in enumerate(("a:1", "b:1"), start=1):
        part.role_changed(Role.slave(2, second, address))
        part.offered({GET_QUEUE_ENDS})
        assert not part.may_begin(8192) and await looks(part, second)
    assert log.begun == {(b"T", 0): 3}


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
