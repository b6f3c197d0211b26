"""Real processes, killed with -9 while halves wait in them: checks are counted on, forgers decide nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from broker.client import Decision, Message, Received
from broker.topics.names import CHECK_MAX_TIME
from broker.transactions.ending import NOT_FOUND, WRONG_GROUP, WRONG_QUEUE_OFFSET
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.headers.transactions import EndTransactionRequest, ResumeCheckHalfMessageRequest
from remoting.record import COMMIT, parse_message_id
from tests.broker.waiting import GROUP, PATIENCE_S, TOPIC, alone, read

pytestmark = pytest.mark.slow
SOON = {"transactionTimeOut": "100", "transactionCheckInterval": "200"}


class Checker:
    """Says what it is told to, and counts."""

    def __init__(self, says: Decision) -> None:
        self.says, self.asked = says, 0

    async def check(self, message: Received) -> Decision:
        self.asked += 1
        return self.says


async def test_a_half_that_nobody_answers_for_is_given_up_and_323_brings_it_back(tmp_path: Path) -> None:
    """Fifteen checks in all, whatever part of them another process counted."""
    checker = Checker(Decision.UNDECIDED)
    async with (
        alone(tmp_path, **SOON) as (broker, client), open_client() as remoting,
        client.transactions(checker.check, topics=[TOPIC]) as transactions,
    ):
        async with transactions.begin(Message(TOPIC, b"order")) as transaction:
            transaction.leave()
        with trio.fail_after(PATIENCE_S):
            while checker.asked < 5:
                await trio.sleep(0.02)
        await broker.kill()
        await broker.start()
        (lying,) = await read(client, lambda reader: reader.came, CHECK_MAX_TIME)
        assert lying.body == b"order" and lying.properties["TRANSACTION_CHECK_TIMES"] == "15"
        assert checker.asked in (14, 15), "the kill may have met one that was counted, and not sent yet"
        checker.says = Decision.COMMIT
        answer = await remoting.call(broker.address, request(
            RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequest(lying.offset_message_id)))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await read(client, lambda reader: reader.came)
        async with transactions.begin(Message(TOPIC, b"later")):
            pass
        came = await read(client, lambda reader: b"later" in reader.bodies)
        assert sorted(message.body for message in came) == [b"later", b"order"]


async def test_who_names_another_group_or_place_decides_nothing(tmp_path: Path) -> None:
    """Before and after a kill; the producer that it belongs to decides behind them."""
    async with (
        alone(tmp_path) as (broker, client), open_client() as remoting,
        client.transactions(Checker(Decision.COMMIT).check, topics=[TOPIC]) as transactions,
        transactions.begin(Message(TOPIC, b"order")) as transaction,
    ):
        place, offset = transaction.half.queue_offset, parse_message_id(transaction.half.offset_message_id)[1]
        for _ in range(2):
            for group, queue_offset, log_offset, words in (
                    ("others", place, offset, WRONG_GROUP), (GROUP, place + 1, offset, WRONG_QUEUE_OFFSET),
                    (GROUP, place, offset + 1, NOT_FOUND)):
                answer = await remoting.call(broker.address, request(
                    RequestCode.END_TRANSACTION, EndTransactionRequest(group, queue_offset, log_offset, COMMIT)))
                assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, words)
            await broker.kill()
            await broker.start()
        await client.send(Message(TOPIC, b"beside"))
        assert [message.body for message in await read(client, lambda reader: reader.came)] == [b"beside"]
        transaction.commit()
        came = await read(client, lambda reader: b"order" in reader.bodies)
        assert sorted(message.body for message in came) == [b"beside", b"order"]
