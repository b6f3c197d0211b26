"""Popping from brokers in memory: receipts, times, what comes again, order, and the end."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.client import ConsumerSettings, Popped, Popper, Refused, Start, Unreachable
from broker.client.popping import BACK_OFF_S
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from tests.broker.client.cluster import SILENCE, cluster, refusing
from tests.broker.client.popped import GROUP, numbers, popping, take


async def test_every_message_comes_once_and_is_acknowledged(autojump_clock: MockClock) -> None:
    async with popping("a", "b", count=50) as (_, brokers, popper):
        found = await take(popper, 100)
        assert numbers(found) == list(range(100))
        for message in found:
            await message.ack()
            assert message.settled
        assert [broker.acked for broker in brokers] == [list(range(50)), list(range(50, 100))]
        assert await popper.poll(timeout_ms=200_000) == []
        assert {(asked.init_mode, asked.queue_id, asked.order) for asked in brokers[0].pops} == {(0, -1, None)}
        assert not any(beat.consumer_data_set for beat in brokers[0].heartbeats), "it is in no list of members"


async def test_what_is_not_acknowledged_comes_again_with_another_receipt(autojump_clock: MockClock) -> None:
    async with popping("a", count=1, invisible_ms=10_000) as (_, (broker,), popper):
        (first,) = await take(popper, 1)
        began = trio.current_time()
        (again,) = await take(popper, 1)
        assert 9.9 < trio.current_time() - began < 10.2
        assert (again.topic, again.body, again.reconsume_times, first.expired) == ("orders", b"0", 1, True)
        assert again.stands_in == f"%RETRY%{GROUP}_orders"
        await first.ack()
        assert broker.acked == [], "too late"
        await again.ack()
        assert broker.acked == [0]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_sender_whose_property_is_no_receipt_stops_nothing(autojump_clock: MockClock, ordered: bool) -> None:
    async with popping("a", ordered=ordered) as (_, (broker,), popper):
        broker.put("orders", 0, b"0")
        broker.put("orders", 0, b"1", POP_CK="x")
        broker.put("orders", 0, b"2")
        for number in range(3):
            (message,) = await take(popper, 1)
            assert message.body == b"%d" % number
            await message.ack()
        assert broker.acked == [0, 1, 2]


async def test_time_is_made_longer_with_receipts_that_follow_each_other(autojump_clock: MockClock) -> None:
    async with popping("a", count=1, invisible_ms=5_000) as (_, (broker,), popper):
        (message,) = await take(popper, 1)
        for _ in range(4):
            await trio.sleep(4)
            before = message.receipt
            await message.extend(5_000)
            assert message.receipt != before
            assert message.receipt.start_offset == message.queue_offset
        assert not message.expired
        await message.ack()
        assert broker.acked == [0]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_ack_has_the_receipt_of_a_change_that_is_under_way(autojump_clock: MockClock, cancelled: bool) -> None:
    async with popping("a", count=1) as (_, (broker,), popper):
        (message,) = await take(popper, 1)
        await trio.sleep(1)
        broker.delay_ms = 200
        async with trio.open_nursery() as nursery:
            nursery.start_soon(message.extend, 20_000)
            await wait_all_tasks_blocked()
            if cancelled:
                nursery.cancel_scope.cancel()
            else:
                await message.ack()
        await message.ack()
        assert broker.acked == [0]
        assert len(broker.asked(RequestCode.ACK_MESSAGE)) == 1


async def test_what_is_given_back_while_a_task_extends_it_comes_when_it_shall(autojump_clock: MockClock) -> None:
    async with popping("a", count=1) as (_, (broker,), popper):
        (message,) = await take(popper, 1)
        await trio.sleep(1)
        broker.delay_ms = 200
        async with trio.open_nursery() as nursery:
            nursery.start_soon(message.extend, 20_000)
            await wait_all_tasks_blocked()
            nursery.start_soon(message.retry_later, 1_000)
            await wait_all_tasks_blocked()
            nursery.start_soon(message.extend, 30_000)
        assert [change.invisible_time for change in broker.changes] == [20_000, 1_000]
        assert [again.body for again in await popper.poll(timeout_ms=2_000)] == [b"0"]


async def test_messages_that_are_given_back_come_later_each_time(autojump_clock: MockClock) -> None:
    async with popping("a", count=1) as (_, (broker,), popper):
        for times in range(4):
            (message,) = await take(popper, 1) if times < 3 else (await anext(popper),)
            assert message.reconsume_times == times
            await message.retry_later()
            await message.ack()
            assert broker.changes[-1].invisible_time == BACK_OFF_S[times] * 1_000
        (message,) = (await anext(popper),)
        await message.retry_later(pause_ms=1)
        assert broker.changes[-1].invisible_time == 1
        assert broker.acked == [], "the first word counts"


async def test_after_so_many_times_it_goes_to_the_dead_letters(autojump_clock: MockClock) -> None:
    async with popping("a", count=1, settings=ConsumerSettings(reconsume_times_max=2)) as (_, (broker,), popper):
        for _ in range(3):
            await (await anext(popper)).retry_later(1)
        assert [ext["delayLevel"] for ext in broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)] == ["-1"]
        assert broker.acked == [0]
        assert len(broker.queues[f"%DLQ%{GROUP}", 0]) == 1


async def test_tags_with_the_same_hash_are_not_given_to_the_user(autojump_clock: MockClock) -> None:
    async with popping("a", wanted={"orders": "Aa"}) as (_, (broker,), popper):
        broker.put("orders", 0, b"0", TAGS="BB")  # the hash of Aa
        broker.put("orders", 0, b"1", TAGS="Aa")
        (message,) = await take(popper, 1)
        assert message.body == b"1"
        await wait_all_tasks_blocked()
        assert broker.acked == [0], "it is nobody's"
        assert {(asked.exp_type, asked.exp) for asked in broker.pops} == {("TAG", "Aa")}


async def test_messages_are_handled_in_tasks_and_those_that_fail_come_again(autojump_clock: MockClock) -> None:
    tried: list[int] = []

    async def handle(message: Popped) -> None:
        tried.append(int(message.body))
        if int(message.body) % 5 == 0 and not message.reconsume_times:
            raise RuntimeError("not now")

    async with popping("a", count=20) as (_, (broker,), popper):
        with trio.move_on_after(30):
            await popper.for_each(handle, tasks=4)
        assert broker.acked == list(range(20))
        assert sorted(tried) == sorted([*range(20), 0, 5, 10, 15])


async def test_no_more_is_popped_than_is_settled(autojump_clock: MockClock) -> None:
    async with popping("a", count=30, invisible_ms=30_000, settings=ConsumerSettings(pop_unsettled=10)) as (
            _, (broker,), popper):
        found = await take(popper, 10)
        assert await popper.poll(timeout_ms=5_000) == []
        assert sum(each.given for each in broker.given.values()) == 10
        await found[0].ack()
        assert len(await popper.poll(timeout_ms=1_000)) >= 1
        assert len(await take(popper, 5)) == 5, "those that were never settled free their places in time"


@pytest.mark.parametrize("polls", [False, True])
async def test_a_message_that_expires_as_it_is_taken_ends_no_reading(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, polls: bool,
) -> None:
    """Between two looks at the clock."""
    looks = list[Popped]()

    def expired(message: Popped) -> bool:
        looks.append(message)
        return len(looks) == 2 or trio.current_time() >= message.visible_at

    async with popping("a", count=1, invisible_ms=10_000) as (_, (broker,), popper):
        await popper.something()
        monkeypatch.setattr(Popped, "expired", property(expired))
        (message,) = await popper.poll(timeout_ms=20_000) if polls else [await anext(popper)]
        await message.ack()
        assert broker.acked == [0]


async def test_there_is_room_when_one_of_many_has_expired(autojump_clock: MockClock) -> None:
    async with popping("a", count=6, invisible_ms=10_000, settings=ConsumerSettings(pop_unsettled=4)) as (_, _, popper):
        _, *extended = await take(popper, 4)
        for message in extended:
            await message.extend(300_000)
        assert await popper.poll(timeout_ms=11_000)


async def test_a_message_is_acknowledged_whose_old_time_ends_while_it_is_extended(autojump_clock: MockClock) -> None:
    async with popping("a", count=6, invisible_ms=10_000, settings=ConsumerSettings(pop_unsettled=4)) as (
            _, (broker,), popper):
        first, *_ = await take(popper, 4)
        await trio.sleep(9.9)
        broker.delay_ms = 200
        await first.extend(60_000)
        assert len(broker.pops) > 1, "there was room for more"
        await first.extend(60_000)
        await first.ack()
        assert broker.acked == [int(first.body)]


async def test_a_queue_in_order_gives_the_next_when_the_one_before_is_done(autojump_clock: MockClock) -> None:
    async with popping("a", count=6, ordered=True) as (_, _, popper):
        heads = await take(popper, 2)
        assert [int(message.body) for message in heads] == [0, 1], "one of each queue"
        assert await popper.poll(timeout_ms=100) == []
        await heads[1].ack()
        (third,) = await take(popper, 1)
        assert third.body == b"3"
        await heads[0].retry_later(2_000)
        assert await popper.poll(timeout_ms=1_900) == []
        (again,) = await take(popper, 1)
        assert (again.body, again.reconsume_times) == (b"0", 1)
        await again.ack()
        assert (await take(popper, 1))[0].body == b"2", "and not before it"


async def test_in_order_each_message_has_its_whole_time(autojump_clock: MockClock) -> None:
    async with popping("a", count=16, ordered=True, invisible_ms=10_000) as (_, (broker,), popper):
        for number in range(16):  # of two queues, so one waits for its first taker as the other is worked on
            (message,) = await take(popper, 1)
            assert (int(message.body), message.reconsume_times) == (number, 0)
            await trio.sleep(9.5)
            assert not message.expired
            await message.ack()
        assert broker.acked == list(range(16))
        assert {each.given for each in broker.given.values()} == {1}


async def test_in_order_those_behind_a_message_are_kept_as_long_as_it_is(autojump_clock: MockClock) -> None:
    async with popping("a", count=6, ordered=True, invisible_ms=10_000) as (_, _, popper):
        first, other = await take(popper, 2)
        await other.ack()
        await first.extend(100_000)
        await trio.sleep(99)
        await first.ack()
        later = {int(message.body): message for message in await take(popper, 2)}
        assert sorted(later) == [2, 3]
        assert later[2].reconsume_times == 0


async def test_in_order_who_takes_no_more_messages_leaves_them_to_others(autojump_clock: MockClock) -> None:
    async with popping("a", count=6, ordered=True, invisible_ms=10_000) as (_, (broker,), popper):
        await take(popper, 1)
        await trio.sleep(14.9)
        assert {each.given for each in broker.given.values()} == {1}
        await trio.sleep(0.3)
        assert {each.given for each in broker.given.values()} == {2}


async def test_in_order_what_cannot_be_kept_is_not_given_to_the_user(autojump_clock: MockClock) -> None:
    async with popping("a", count=6, ordered=True, invisible_ms=10_000) as (_, (broker,), popper):
        (first,) = await take(popper, 1)
        broker.refuse = refusing(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ResponseCode.SYSTEM_ERROR)
        await trio.sleep(10.1)
        assert first.expired
        assert [(int(each.body), each.reconsume_times) for each in await popper.poll()] == [(0, 1), (1, 1)]


async def test_in_order_a_message_that_others_have_is_neither_extended_nor_acknowledged(
        autojump_clock: MockClock) -> None:
    async with popping("a", ordered=True, invisible_ms=10_000) as (_, (broker,), popper):
        await trio.sleep(1)
        broker.put("orders", 0, b"0")
        (first,) = await take(popper, 1)
        (again,) = await take(popper, 1)
        with pytest.raises(Refused, match="not out any more"):
            await first.extend(10_000)
        with pytest.raises(Refused, match="not out any more"):
            await first.retry_later()
        await first.ack()
        assert broker.acked == []
        await again.ack()
        assert broker.acked == [0]


async def test_in_order_an_answer_that_was_lost_is_asked_for_again(autojump_clock: MockClock) -> None:
    async with popping("a", ordered=True, settings=ConsumerSettings(suspend_ms=500, pull_timeout_ms=1_000)) as (
            _, (broker,), popper):
        dropped: list[str] = []

        def lose(command: Command) -> Command | None:
            if command.code == RequestCode.POP_MESSAGE and not dropped:
                dropped.append(command.ext["attemptId"])
                return SILENCE
            return None

        broker.refuse = lose
        await trio.sleep(5)
        broker.put("orders", 0, b"0")
        assert (await take(popper, 1))[0].body == b"0"
        assert dropped[0] in {asked.attempt_id for asked in broker.pops}, "with the same name"
        assert len({asked.attempt_id for asked in broker.pops}) > 1


async def test_what_nobody_took_is_given_back_at_the_end(autojump_clock: MockClock) -> None:
    async with popping("a", count=10) as (_, (broker,), popper):
        (taken,) = await take(popper, 1)
    assert sorted((int(change.extra_info.split()[6]), change.offset, change.suspend) for change in broker.changes) == [
        (number % 2, number // 2, True) for number in sorted(range(10), key=lambda each: (each % 2, each // 2))
        if number != int(taken.body)]
    with pytest.raises(StopAsyncIteration):
        await anext(popper)


async def test_what_is_being_given_back_at_the_end_is_given_to_nobody_here(autojump_clock: MockClock) -> None:
    found = list[Popped]()

    async def read(popper: Popper) -> None:
        await trio.sleep(1)
        found.extend([message async for message in popper])

    async with trio.open_nursery() as nursery, popping("a", count=4) as (_, (broker,), popper):
        await popper.something()
        broker.delay_ms = 2_000
        nursery.start_soon(read, popper)
    assert len(broker.changes) == 4 and not found


async def test_refusals_are_told_to_whoever_acknowledges(autojump_clock: MockClock) -> None:
    async with popping("a", count=1) as (_, (broker,), popper):
        (message,) = await take(popper, 1)
        broker.refuse = refusing(RequestCode.ACK_MESSAGE, ResponseCode.SYSTEM_ERROR)
        with pytest.raises(Refused, match="told so"):
            await message.ack()
        assert not message.settled
        broker.refuse = lambda command: None
        await message.ack()
        assert broker.acked == [0]


async def test_a_refusal_behind_a_lost_answer_does_not_say_that_it_comes_again(autojump_clock: MockClock) -> None:
    """The first broker has stored the acknowledgement and died; the next one refuses the same."""
    async with popping("a", count=1) as (made, (broker,), popper):
        (message,) = await take(popper, 1)
        heard = list[int]()

        def refuse(command: Command) -> Command | None:
            if command.code != RequestCode.ACK_MESSAGE:
                return None
            heard.append(command.code)
            if len(heard) > 1:
                return response(command, ResponseCode.SYSTEM_ERROR, remark="told so")
            next(iter(broker.given.values())).acked = True
            made.kill("a:1")
            return SILENCE

        broker.refuse = refuse
        await made.start("a:2", broker)
        made.name_server.set("orders", {"a": {0: "a:2"}})
        with pytest.raises(Unreachable, match="told so"):
            await message.ack()
        assert len(heard) == 2 and broker.acked == [0]


async def test_a_broker_that_dies_is_looked_up_anew(autojump_clock: MockClock) -> None:
    async with popping("a", count=4) as (made, (broker,), popper):
        found = await take(popper, 4)
        made.kill("a:1")
        await made.start("a:2", broker)
        made.name_server.set("orders", {"a": {0: "a:2"}})
        for message in found:
            await message.ack()
        assert broker.acked == [0, 1, 2, 3]
        broker.put("orders", 0, b"4")
        assert (await take(popper, 1))[0].body == b"4"


async def test_a_group_may_begin_with_the_last_message(autojump_clock: MockClock) -> None:
    async with popping("a", start=Start.LAST) as (_, (broker,), _):
        await wait_all_tasks_blocked()
        assert broker.pops[0].init_mode == 1


@pytest.mark.parametrize(("wanted", "invisible_ms", "words"), [({}, 1, "no topic"), ("orders", 0, "above 0")])
async def test_what_makes_no_sense_is_refused(
        autojump_clock: MockClock, wanted: str | dict[str, str], invisible_ms: int, words: str) -> None:
    async with cluster("a") as made, made.client() as client:
        with pytest.raises(ValueError, match=words):
            async with client.pop(GROUP, wanted, invisible_ms=invisible_ms):
                pass
