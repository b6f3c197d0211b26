"""Keys, files, metrics of transactions, and the log that they keep, in virtual time."""

from __future__ import annotations

import json
import re

import pytest
import trio
from trio.testing import MockClock

from broker.config import from_properties
from broker.metrics import BrokerMetrics
from broker.parts import configuration
from broker.topics.names import CHECK_MAX_TIME, HALF
from broker.transactions.feeding import Feed
from harness.simulation.worlds.brokers import cluster, until
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.daemon.keys import ConfigError
from remoting.errors import RequestTimeout
from remoting.record import COMMIT, ROLLBACK, Record
from tests.broker.transactions.test_asking import committed, hush, unacknowledged
from tests.broker.transactions.world import (
    FAST,
    Place,
    bodies,
    place_of,
    producer,
    records,
    transactions,
    values,
)


async def test_open_transactions_are_counted_by_topic(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(transactionMetricFlushInterval="1000")
        async with producer(made, node) as shop:
            half = await shop.half()
            await shop.half(unique="U2", topic="Other")
            await trio.sleep(2)

            def counted() -> dict[str, int]:
                table = json.loads(bytes(node.store.content["config/transactionMetrics"].data))
                assert set(table) == {"transactionCount", "dataVersion"}
                return {topic: each["count"] for topic, each in table["transactionCount"].items()}

            assert counted() == {"T": 1, "Other": 1}
            await shop.commit(half)
            await trio.sleep(2)
            assert counted() == {"Other": 1}
            page = BrokerMetrics(node.broker).exposition().decode()
            assert [line.rpartition(" ")[2] for line in page.splitlines() if 'topic="Other"' in line
                    and line.startswith("rocketmq_half_messages")] == ["1.0"]
            assert "rocketmq_commit_messages_total{" in page


async def test_keys_of_the_check_loop_are_live(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(transactionCheckInterval="1000", transactionTimeOut="50000")
        async with producer(made, node) as shop:
            await shop.half()
            await trio.sleep(20)
            assert shop.checks == []
            body = properties.encode({"transactionTimeOut": "1000", "transactionCheckMax": "2"}).encode()
            answer = await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            await trio.sleep(10)
            assert len(shop.checks) == 2
            assert bodies(node, CHECK_MAX_TIME) == [b"paid"]


def test_another_engine_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="transRocksDBEnable"):
        from_properties({"transRocksDBEnable": "true"}, start=configuration()())


async def test_the_log_of_an_open_half_is_kept_and_makes_way(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST)
        async with producer(made, node, beat=False) as shop:
            half = await shop.half()
            await trio.sleep(3)
            part = transactions(node)
            assert part.keeps_from() == half.offset
            part.make_way(half.offset)
            await trio.sleep(0.5)
            assert part.keeps_from() == half.offset, "its file is not old"
            part.make_way(half.offset + 1)
            await until(lambda: len(bodies(node, HALF)) == 2)
            back = records(node, HALF)[1]
            assert values(back)["TRANSACTION_CHECK_TIMES"] == "0", "nobody was asked"
            await trio.sleep(0.5)
            assert part.keeps_from() == back.offset
            await shop.commit(half)
            await trio.sleep(0.5)
            assert part.keeps_from() is None
            assert bodies(node) == [b"paid"]


@pytest.mark.parametrize("immunity", [{}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "600"}])
async def test_a_half_that_makes_way_costs_no_check(immunity: dict[str, str], autojump_clock: MockClock) -> None:
    """Nobody is asked for it, though its producer is there."""
    async with cluster() as made:
        node = await made.node(transactionTimeOut="1000")
        async with producer(made, node) as shop:
            half = place_of(await shop.send(values=immunity))
            await trio.sleep(3)
            transactions(node).make_way(half.offset + 1)
            await until(lambda: len(bodies(node, HALF)) == 2, within_s=3)
            await trio.sleep(3)
            assert values(records(node, HALF)[1])["TRANSACTION_CHECK_TIMES"] == "0"
            assert shop.checks == []


async def test_old_files_go_when_open_halves_were_put_behind_them(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, mappedFileSizeCommitLog=str(1 << 16))
        async with producer(made, node, beat=False) as shop:
            half = await shop.half()
            await made.fill_files(node)
            await trio.sleep(3)
            node.shed()
            journal = node.broker.journal
            assert journal.begin == half.offset == 0, "its half is in the way"
            for _ in range(3):
                await trio.sleep(1)
                node.shed()
            await until(lambda: journal.begin >= 1 << 16)
            shop.decision = COMMIT
            await shop.beat()
            await until(lambda: bodies(node) == [b"paid"])
            await trio.sleep(10)
            assert (bodies(node), len(shop.checks)) == ([b"paid"], 1)


async def test_why_transactions_wait_is_counted(autojump_clock: MockClock) -> None:
    """Of the page for Prometheus, which the manual explains."""
    async with cluster() as made:
        node = await made.node(**FAST, transactionCheckMax="2")

        def counted() -> dict[str, int]:
            page = BrokerMetrics(node.broker).exposition().decode()
            found = re.findall(r'^broker_transaction_(?:ends|checks)_total{.*wh(?:y|at)="(\w+)".*} (\d+)', page,
                               re.MULTILINE)
            return {what: int(count) for what, count in found if int(count)}

        async with producer(made, node, beat=False) as shop:
            half = await shop.half()
            assert counted() == {}
            await trio.sleep(3)
            assert counted() == {"nobody": 1}
            for place in (Place(half.offset, 7), Place(1 << 40, 0)):
                assert (await shop.end(place, COMMIT)).code == ResponseCode.SYSTEM_ERROR
            await shop.beat()
            await trio.sleep(10)
            assert counted() == {"nobody": 1, "refused": 2, "asked": 2, "given_up": 1}
            node.broker.journal.refusing = "no room"
            assert (await shop.end(half, COMMIT)).code == ResponseCode.SERVICE_NOT_AVAILABLE
            node.broker.journal.refusing = ""
            for _ in range(2):
                await shop.commit(half)
            assert counted() == {"nobody": 1, "refused": 2, "asked": 2, "given_up": 1, "failed": 1, "again": 1}


async def test_a_half_older_than_the_log_keeps_is_given_up_and_may_be_brought_back(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, fileReservedTime="1", deleteWhen="")
        async with producer(made, node, beat=False) as shop:
            assert (await shop.send(born_ago_ms=3_590_000)).code == ResponseCode.SUCCESS
            await trio.sleep(9)
            assert bodies(node, CHECK_MAX_TIME) == []
            await trio.sleep(4)
            (lying,) = records(node, CHECK_MAX_TIME)
            assert (await shop.resume(lying)).code == ResponseCode.SUCCESS
            await trio.sleep(60)
            assert len(records(node, CHECK_MAX_TIME)) == 1, "its time counts anew"
            assert len(bodies(node, HALF)) == 2


async def test_what_cannot_be_read_for_a_while_is_read_later(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            half = await shop.half()

            def broken(most: int = 0) -> bool:
                raise OSError(5, "Input/output error")

            with monkeypatch.context() as patch:
                patch.setattr(transactions(node).feed, "feed", broken)
                await trio.sleep(5)
            await trio.sleep(2)
            assert len(transactions(node).halves) == 1
            await shop.commit(half)


async def test_decisions_beyond_those_that_a_young_master_keeps_are_refused(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are asked for later; the others are carried out when it knows all that was decided before."""
    monkeypatch.setattr("broker.transactions.ending.WAITING_MAX", 2)
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            halves, answers = [await shop.half(unique=f"U{number}") for number in range(3)], dict[int, Command]()

            async def ends(number: int) -> None:
                answers[number] = await shop.end(halves[number], COMMIT)

            part = transactions(node)
            part.writes_closed()
            async with trio.open_nursery() as nursery:
                for number in range(3):
                    nursery.start_soon(ends, number)
                    await trio.sleep(0.1)
                assert {number: answer.code for number, answer in answers.items()} == {2: ResponseCode.SYSTEM_BUSY}
                part.writes_opened()
            assert [answers[number].code for number in range(2)] == [ResponseCode.SUCCESS] * 2
            await until(lambda: len(bodies(node)) == 2)


async def test_a_new_process_decides_nothing_before_it_has_read_what_was_decided(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH")
        async with producer(made, node) as shop:
            half = await shop.half()
            await shop.roll_back(half)
        await node.kill()

        def broken(feed: Feed, most: int = 0) -> bool:
            raise OSError(5, "Input/output error")

        answers = list[Command]()
        async with producer(made, node, beat=False) as shop, trio.open_nursery() as nursery:
            with monkeypatch.context() as patch:
                patch.setattr(Feed, "feed", broken)
                await node.start()
                await until(lambda: node.serves)

                async def ends() -> None:
                    answers.append(await shop.end(half, COMMIT))

                nursery.start_soon(ends)
                await trio.sleep(2)
                assert answers == []
        assert [answer.code for answer in answers] == [ResponseCode.ILLEGAL_OPERATION]
        assert bodies(node) == []


async def test_a_young_master_decides_nothing_before_all_is_shown_that_its_log_held(autojump_clock: MockClock) -> None:
    """The decision that replicas have not acknowledged yet may be another master's."""
    async with unacknowledged() as (made, master, shop):
        half, part = await shop.half(), transactions(master)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(committed, shop, half)
            await hush(made, master)
            part.writes_closed()
            part.writes_opened()
            with pytest.raises(RequestTimeout):
                await shop.end(half, ROLLBACK)
            made.network.silent.clear()
        await until(lambda: bodies(master) == [b"paid"])
        assert (await shop.end(half, ROLLBACK)).code == ResponseCode.ILLEGAL_OPERATION


async def test_a_half_that_cannot_be_read_ends_no_broker(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            half, other = await shop.half(), await shop.half(unique="U2")
            await trio.sleep(1)
            part, answers = transactions(node), list[Command]()

            def broken(*where: object) -> Record:
                raise OSError(5, "Input/output error")

            async def ends() -> None:
                answers.append(await shop.end(half, COMMIT))

            part.writes_closed()
            part.writes_opened()
            with monkeypatch.context() as patch:
                patch.setattr(node.broker.journal.log, "record", broken)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ends)
                    nursery.start_soon(ends)
            assert [(each.code, "cannot be read" in (each.remark or "")) for each in answers] == 2 * [
                (ResponseCode.SYSTEM_ERROR, True)]
            await shop.commit(half)
            await shop.roll_back(other)
            assert bodies(node) == [b"paid"]


async def test_a_decision_of_an_acting_slave_is_settled_once_the_log_can_be_read(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            half = await shop.half()
            await trio.sleep(1)
            part, settled = transactions(node), list[bool]()

            def broken() -> None:
                raise OSError(5, "Input/output error")

            def settle() -> None:
                part.settle(half.offset, committed=True, done=lambda: settled.append(True))

            with monkeypatch.context() as patch:
                patch.setattr(part.feed, "feed_all", broken)
                settle()
            assert settled == []
            settle()
            await trio.sleep(1)
            assert settled == [True] and len(part.halves) == 0
