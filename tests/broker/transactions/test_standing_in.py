"""Code 37 at a slave that acts: a commit goes to another group; decisions outlive the slave, and are the master's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from broker.acting.right import ActingRight, MasterRight
from broker.ledger.part import LedgerPart
from broker.rules import Refusal
from broker.transactions.ending import Ending
from controller.namesrv.config import NamesrvConfig
from harness.simulation.worlds.brokers import Cluster, Node, cluster, until
from remoting.codes import ResponseCode
from remoting.record import COMMIT, ROLLBACK
from tests.broker.transactions.world import FAST, Place, Producer, bodies, place_of, producer, transactions

ACTING = {**FAST, "enableSlaveActingMaster": "true", "totalReplicas": "2", "enableRemoteEscape": "true"}


@asynccontextmanager
async def bereft(halves: Sequence[Mapping[str, str]]) -> AsyncGenerator[tuple[Cluster, Node, Node, Node, list[Place]]]:
    """A master that died, its slave, which acts, and another group's master. Halves with these properties are open."""
    async with cluster(namesrv=NamesrvConfig(support_acting_master=True)) as made:
        master = await made.node(**ACTING)
        await until(lambda: master.serves)
        slave = await made.node(**ACTING, brokerRole="SLAVE", brokerId="1")
        other = await made.node(brokerName="b")
        await made.send(other.address, b"there is T")
        async with producer(made, master) as shop:
            places = []
            for number, properties in enumerate(halves):
                answer = await shop.send(b"%d" % number, unique=f"U{number}", values=properties)
                places.append(place_of(answer))
            await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
            await trio.sleep(20)  # logs are synced, and name servers list both
        await master.kill()
        await until(lambda: slave.broker.standing.role.acts)
        await trio.sleep(5)
        yield made, master, slave, other, places


@asynccontextmanager
async def lone_master() -> AsyncGenerator[tuple[Node, Producer]]:
    """A master that needs the right to deliver, and a producer at it."""
    async with cluster(namesrv=NamesrvConfig(support_acting_master=True)) as made:
        master = await made.node(**ACTING)
        await until(lambda: master.serves)
        async with producer(made, master) as shop:
            yield master, shop


async def test_without_the_right_to_deliver_nothing_is_decided(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bereft([{}, {}]) as (made, _, slave, other, halves), producer(made, slave, "q") as shop:
        monkeypatch.setattr(ActingRight, "why_not", lambda *_: "the master is heard still")
        for half, decision in zip(halves, (COMMIT, ROLLBACK), strict=True):
            answer = await shop.end(half, decision)
            assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "the master is heard still")
        monkeypatch.undo()
        await shop.roll_back(halves[0])
        await shop.commit(halves[1])
        assert bodies(other) == [b"there is T", b"1"]


async def test_a_master_without_the_right_to_deliver_decides_nothing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with lone_master() as (master, shop):
        halves = [await shop.half(b"%d" % number, unique=f"U{number}") for number in range(3)]
        await until(lambda: transactions(master)._open)
        await shop.commit(halves[0])
        monkeypatch.setattr(MasterRight, "why_not", lambda *_: "1 of 3 name servers")
        for half, decision in ((halves[0], COMMIT), (halves[1], COMMIT), (halves[2], ROLLBACK)):
            answer = await shop.end(half, decision)
            assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "1 of 3 name servers")
        await trio.sleep(30)
        assert not shop.checks, "nor is anybody asked"
        monkeypatch.undo()
        await shop.roll_back(halves[1])
        await shop.commit(halves[2])
        assert sorted(bodies(master)) == [b"0", b"2"]


async def test_who_waits_for_a_master_is_answered_when_its_right_is_lost(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with lone_master() as (master, shop):
        half = await shop.half(b"0", unique="U0")
        await until(lambda: transactions(master)._open)
        transactions(master)._ending._open = False  # as while a table is read
        async with trio.open_nursery() as nursery:
            async def ends() -> None:
                answer = await shop.end(half, COMMIT)
                assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "it is lost")

            nursery.start_soon(ends)
            await until(lambda: transactions(master)._ending._waiting)
            monkeypatch.setattr(MasterRight, "why_not", lambda *_: "it is lost")
            master.broker.parts.right_changed()
        monkeypatch.undo()


async def test_what_no_broker_could_deliver_is_rolled_back(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bereft([{}, {}]) as (made, _, slave, other, halves), producer(made, slave, "q") as shop:
        monkeypatch.setattr(Ending, "_ruled", lambda *_: Refusal(ResponseCode.MESSAGE_ILLEGAL, "too far in the future"))
        assert (await shop.end(halves[0], COMMIT)).remark == "too far in the future"
        await shop.roll_back(halves[0])
        await shop.roll_back(halves[1])
        assert bodies(other) == [b"there is T"]


async def test_what_is_delayed_waits_at_another_master(autojump_clock: MockClock) -> None:
    halves = [{"DELAY": "2"}, {"TIMER_DELAY_SEC": "8"}]
    async with bereft(halves) as (made, _, slave, other, places), producer(made, slave, "q") as shop:
        began = trio.current_time()
        for place in places:
            await shop.commit(place)
            await shop.commit(place)
        assert bodies(other) == [b"there is T"]
        for number, due_s in enumerate((5, 8)):
            await until(lambda number=number: len(bodies(other)) == number + 2, within_s=20)  # type: ignore[misc]
            assert due_s <= trio.current_time() - began < due_s + 1.5
        await trio.sleep(30)
        assert bodies(other) == [b"there is T", b"0", b"1"]


async def test_decisions_at_a_slave_are_the_masters(autojump_clock: MockClock) -> None:
    async with bereft([{}] * 4) as (made, master, slave, other, halves):
        async with producer(made, slave, "q") as shop:
            for place, decision in ((halves[0], COMMIT), (halves[1], ROLLBACK)):
                assert (await shop.end(place, decision)).code == ResponseCode.SUCCESS
                assert (await shop.end(place, decision)).code == ResponseCode.SUCCESS, "again"
            assert (await shop.end(halves[1], COMMIT)).code == ResponseCode.ILLEGAL_OPERATION, "it was rolled back"
            assert bodies(other) == [b"there is T", b"0"], "once"
            await slave.kill()
            await slave.start()
            await until(lambda: slave.broker.standing.role.acts)
        await other.kill()
        await trio.sleep(5)
        async with producer(made, slave, "r") as shop:
            assert (await shop.end(halves[1], COMMIT)).code == ResponseCode.ILLEGAL_OPERATION, "it is remembered"
            refused = await shop.end(halves[2], COMMIT)
            assert refused.code != ResponseCode.SUCCESS, "no other master has it"
        await master.start()
        await until(lambda: master.serves)
        async with producer(made, master, "s") as shop:
            await until(lambda: len(shop.checks) >= 2)
            await trio.sleep(10)
            asked = {check.record.message.body for check in shop.checks}
            assert asked == {b"2", b"3"}, "of these nobody decided"
            assert {each.first for each in transactions(master).halves} == {each.offset for each in halves[2:]}
            assert (await shop.end(halves[0], COMMIT)).code == ResponseCode.SUCCESS
            assert bodies(master) == [], "its message is at the other group"
        assert not len(master.broker.parts[LedgerPart].ledger), "its log has what the slave decided"


async def test_a_decision_stays_in_the_masters_ledger_until_its_mark_is_on_disk(autojump_clock: MockClock) -> None:
    async with cluster(namesrv=NamesrvConfig(support_acting_master=True)) as made:
        master = await made.node(**ACTING)
        await until(lambda: master.serves)
        slave = await made.node(**ACTING, brokerRole="SLAVE", brokerId="1")
        async with producer(made, master) as shop:
            half = await shop.half(b"0", unique="U0")
            await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
            await trio.sleep(20)  # logs are synced
        await master.kill()
        await until(lambda: slave.broker.standing.role.acts)
        await trio.sleep(5)
        async with producer(made, slave, "q") as shop:
            assert (await shop.end(half, ROLLBACK)).code == ResponseCode.SUCCESS
        await master.start()
        await until(lambda: master.serves)
        await slave.kill()
        ledger = master.broker.parts[LedgerPart]
        await until(lambda: ledger._in_log)
        await trio.sleep(2)  # the mark is put, and not synced
        await master.kill()
        await master.start()
        ledger = master.broker.parts[LedgerPart]
        assert ledger.decision(half.offset) is False
        await until(lambda: ledger.decision(half.offset) is None)
        await until(lambda: transactions(master).halves.of(half.offset) is None)
