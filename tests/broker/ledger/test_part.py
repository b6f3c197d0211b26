"""What a slave learns without its master: kept, copied to the other slave, handed over, and forgotten."""

from __future__ import annotations

from collections.abc import Callable

import trio
from trio.testing import MockClock

from broker.ledger.codes import READ_LEDGER, ReadLedgerRequest
from broker.ledger.entries import Mark, Subject, Thing, decode
from broker.ledger.part import LedgerPart
from harness.simulation.worlds.brokers import Cluster, Node, cluster, until
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.pulling import UpdateConsumerOffsetRequest
from tests.broker.preonline.test_levelling import ACTING, SLAVE, pair

OFFSET = Thing(Subject.OFFSET, "T@G", 0)


def ledger(node: Node) -> LedgerPart:
    return node.broker.parts[LedgerPart]


async def commit(made: Cluster, node: Node, offset: int) -> Command:
    return await made.ask(node.address, RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest(
        "G", "T", 0, offset))


async def test_a_commit_that_was_answered_outlives_a_slave_that_is_killed(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await trio.sleep(15)  # logs are synced
        await master.kill()
        assert (await commit(made, slave, 7)).code == ResponseCode.SUCCESS
        assert (await commit(made, slave, 5)).code == ResponseCode.SUCCESS, "back, as its consumers want"
        await slave.kill()
        await slave.start()
        await until(lambda: slave.broker.standing.role.listed)
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 5
        assert ledger(master).joined == 1
        assert not ledger(slave).ledger.get(OFFSET), "the master has it"


async def test_the_last_word_of_the_slave_counts_and_it_learns_no_more(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        assert (await commit(made, slave, 9)).code == ResponseCode.SUCCESS
        answer = await made.ask(slave.address, READ_LEDGER, ReadLedgerRequest(0, 0, hand_over=True))
        (entry,), _ = decode(answer.body)
        assert (entry.thing, entry.value) == (OFFSET, 9)
        for asked in (await commit(made, slave, 3), await made.ask(slave.address, RequestCode.LOCK_BATCH_MQ),
                      await made.ask(slave.address, RequestCode.END_TRANSACTION)):
            assert (asked.code, asked.remark) == (
                ResponseCode.SYSTEM_ERROR, "the master of this group comes back: ask it")
        slave.offsets.commit("G", "T", 0, 2)  # as pulls do
        assert slave.offsets.query("G", "T", 0) == 9
        await trio.sleep(11)
        assert (await commit(made, slave, 4)).code == ResponseCode.SUCCESS, "it did not come back after all"


async def test_the_next_slave_has_it_as_far_as_it_was_copied(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, first = await pair(made)
        second = await made.node(**ACTING, **SLAVE | {"brokerId": "2"})
        await until(lambda: second.broker.standing.role.listed and second.groups.get("G")
                    and second.broker.journal.end == master.broker.journal.end)
        await trio.sleep(15)
        await master.kill()
        await commit(made, first, 6)
        await until(lambda: second.offsets.query("G", "T", 0) == 6)
        first_mark = ledger(first).ledger.end
        await first.kill()
        await commit(made, second, 4)
        assert ledger(second).ledger.end > first_mark, "what is noted later counts, whoever notes it"
        await first.start()
        await until(lambda: first.offsets.query("G", "T", 0) == 4)
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 4


async def test_what_a_master_never_read_is_forgotten_when_it_would_set_it_back(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        await commit(made, slave, 5)
        master.settings["skipPreOnline"] = "true"
        await master.start()
        await until(lambda: master.serves)
        await trio.sleep(60)
        assert ledger(slave).ledger.get(OFFSET) is None
        assert ledger(slave).ledger.end > Mark(), "terms do not begin anew"


async def test_offsets_beyond_the_queue_are_not_taken(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        await commit(made, slave, 11)
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) is None


async def test_a_slave_goes_on_when_the_master_that_came_back_is_lost_again(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await trio.sleep(15)
        for offset in (4, 6):
            await master.kill()
            await commit(made, slave, offset)
            await master.start()
            await until(lambda: master.serves)
            assert master.offsets.query("G", "T", 0) == offset
            await trio.sleep(3)  # name servers are asked by then
            assert not ledger(slave).is_handed_over


async def test_a_commit_is_answered_when_it_is_synced(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        disk, write = trio.Event(), ledger(slave).file._run_sync
        answers: list[Command] = []

        async def slow(work: Callable[[], None]) -> None:
            await disk.wait()
            await write(work)

        async def ask() -> None:
            answers.append(await commit(made, slave, 5))

        ledger(slave).file._run_sync = slow
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(5)
            assert not answers
            disk.set()
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS]
