"""What is sent in a transaction waits as a half, from the request on, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.rules import Chain, Draft, Refusal, Stop
from broker.timer.letters import Letter
from broker.timer.units import Unit
from broker.topics.names import HALF, TIMER
from broker.transactions import records as made_of
from broker.transactions.conversion import Conversion
from harness.simulation.worlds.brokers import cluster
from remoting.codes import ResponseCode
from remoting.record import (
    COMMIT,
    PREPARED,
    PROPERTIES_BYTES_MAX,
    Message,
    decode_properties,
    encode_properties,
)
from tests.broker.timer.test_admission import timers
from tests.broker.transactions.test_records import HOST, half_of, stored
from tests.broker.transactions.world import GROUP, bodies, producer, records, values


async def test_no_sender_says_what_only_brokers_say(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            half = await shop.half(__QUORATE_HALF="0", __QUORATE_RESUMED="5")
            stored = values(records(node, HALF)[half.queue_offset])
            assert not [name for name in stored if name.startswith("__QUORATE")]
            bare = await shop.send(sys_flag=PREPARED, values={"TRAN_MSG": "false"})
            assert bare.code == ResponseCode.MESSAGE_ILLEGAL


def largest(**properties: str) -> tuple[Draft, Stop | None]:
    """The message with the longest properties that becomes a half, and what became of the next longer one."""
    refused: Stop | None = None
    for size in range(PROPERTIES_BYTES_MAX, 0, -1):
        sent = Draft("T" * 120, 2**31 - 1, {"UNIQ_KEY": "U" * 32, "TRAN_MSG": "true", "PGROUP": GROUP, **properties,
                                            "K": "k" * size}, sys_flag=PREPARED)
        verdict = Chain(Conversion().rule).stops(sent)
        if verdict is None:
            return sent, refused
        refused = verdict
    raise AssertionError("none is taken")


@pytest.mark.parametrize("delay", [{}, {"TIMER_DELAY_SEC": "259200"}])
def test_the_largest_half_has_room_for_all_that_becomes_of_it(delay: dict[str, str]) -> None:
    """It is put back, given up, brought back and committed, and its message may wait as a timer that rolls: with the
    longest numbers nothing is refused that could not be undone."""
    sent, refused = largest(**delay)
    assert isinstance(refused, Refusal) and refused.code == ResponseCode.MESSAGE_ILLEGAL
    record, far = stored(sent.properties), 2**62
    for _ in range(2):
        record = stored(made_of.put_back(record, half_of(record), far, HOST, checks=2**31 - 1).properties)
        assert len(made_of.given_up(record, far, HOST).properties) <= PROPERTIES_BYTES_MAX
        record = stored(made_of.resumed(record, far, HOST, far).properties)
    final = made_of.final(record, half_of(record), HOST, far)
    assert len(final.properties) <= PROPERTIES_BYTES_MAX
    committed = Draft(sent.properties["REAL_TOPIC"], final.queue_id, decode_properties(final.properties),
                      sys_flag=final.sys_flag)
    assert Chain(timers().rule).stops(committed) is None, "its commit would be refused for ever"
    waits = Letter.of(Message(TIMER.encode(), b"x", properties=encode_properties(committed.properties)))
    if delay:
        unit = Unit(far, 100, write_time_ms=far)
        rolled = Letter.of(waits.rolled(unit, far))
        for message in (rolled.rolled(unit, far, moved=True), rolled.delivered(unit, far)):
            assert len(message.properties) <= PROPERTIES_BYTES_MAX


async def test_transactions_may_be_refused(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(rejectTransactionMessage="true")
        async with producer(made, node) as shop:
            answer = await shop.send()
            assert answer.code == ResponseCode.NO_PERMISSION
            assert answer.remark == "the broker[10.0.0.1] sending transaction message is forbidden"


async def test_what_is_committed_is_delayed_then(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            await shop.commit(await shop.half(DELAY="2"))
            await trio.sleep(4)
            assert bodies(node) == []
            await trio.sleep(4)
            (copy,) = records(node)
            assert (copy.message.sys_flag, copy.message.prepared_offset) == (COMMIT, 0)




@pytest.mark.parametrize(("timer", "settings"), [
    ({"TIMER_DELIVER_MS": "99999999999999"}, {}), ({"TIMER_DELAY_SEC": "abc"}, {}), ({"TIMER_DELAY_SEC": "259201"}, {}),
    ({"TIMER_DELAY_SEC": "5"}, {"timerWheelEnable": "false"})])
async def test_a_half_that_asks_for_an_impossible_timer_is_refused_as_any_message(
        autojump_clock: MockClock, timer: dict[str, str], settings: dict[str, str]) -> None:
    """Else its commit would be refused for ever."""
    async with cluster() as made:
        node = await made.node(**settings)
        async with producer(made, node) as shop:
            plain = await shop.send(values={**timer, "TRAN_MSG": "false"}, sys_flag=0)
            half = await shop.send(values=timer)
            assert (half.code, half.remark) == (plain.code, plain.remark)
            assert half.code != ResponseCode.SUCCESS and bodies(node, HALF) == []
            assert (await shop.send(values={"DELAY": "2", **timer})).code == ResponseCode.SUCCESS


async def test_a_half_whose_timer_is_possible_is_delayed_when_it_is_committed(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            await shop.commit(await shop.half(TIMER_DELAY_SEC="5"))
            await trio.sleep(3)
            assert bodies(node) == []
            await trio.sleep(5)
            assert bodies(node) == [b"paid"]
