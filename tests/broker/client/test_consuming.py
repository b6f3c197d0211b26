"""Members of a consumer group against brokers in memory: shares, deliveries, positions, order, what brokers ask."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import orjson
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.client import ClientSettings, ConsumerSettings, FlowLimits, Message, MessageQueue, Received, Start
from remoting import record as codec
from remoting.bodies.consumers import ConsumerStatus, ResetOffsetBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.errors import RemotingError
from remoting.headers.consumers import (
    ConsumerClientRequest,
    ConsumerGroupRequest,
    GetConsumerStatusRequest,
    ResetOffsetRequest,
)
from remoting.headers.pulling import PullMessageResponse
from tests.broker.client.cluster import SILENCE, FakeBroker, ThreadedBroker, cluster, refusing
from tests.broker.client.consumption import FIRST, GRACE_S, GROUP, fill, nothing_more, numbers, reading, take

# --- deliveries ----------------------------------------------------------------------------------------------


async def test_every_message_of_every_queue_comes_once(autojump_clock: MockClock) -> None:
    async with cluster("a", "b") as made:
        fill(made.brokers["a"], 100)
        fill(made.brokers["b"], 100, first=100)
        async with reading(made) as messages:
            assert numbers(await take(messages, 200)) == list(range(200))
            await trio.sleep(0.1)
            assert len(messages.queues) == 6, "four, and the retry topic's two"
            fill(made.brokers["b"], 10, first=200)
            began = trio.current_time()
            assert numbers(await take(messages, 10)) == list(range(200, 210))
            assert trio.current_time() == began, "held pulls are answered when something comes"
            await nothing_more(messages)


async def test_messages_come_in_the_order_of_their_queue(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 50, queue_id=0)
        async with reading(made) as messages:
            assert [int(message.body) for message in await take(messages, 50)] == list(range(50))


async def test_only_the_tags_that_were_asked_for_come(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        for number, tag in enumerate(["new", "old", "other", "new"] * 5):
            made.brokers["a"].put("orders", 0, b"%d" % number, TAGS=tag)
        made.brokers["a"].put("orders", 0, b"20")
        async with reading(made, wanted={"orders": "new || old"}) as messages:
            assert [message.tag for message in await take(messages, 15)] == ["new", "old", "new"] * 5
            await nothing_more(messages)
        assert made.brokers["a"].offsets[GROUP, "orders", 0] == 21, "what was sorted out is done with"


async def test_several_tasks_share_the_messages(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 200)
        seen: list[int] = []
        async with reading(made) as messages, trio.open_nursery() as nursery:
            async def handle(message: Received) -> None:
                await trio.sleep(0.1)
                seen.append(int(message.body))
                if len(seen) == 200:
                    nursery.cancel_scope.cancel()

            began = trio.current_time()
            await messages.for_each(handle, tasks=20)
        assert sorted(seen) == list(range(200)) and trio.current_time() - began < 1.2


async def test_what_a_handler_raises_comes_again(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 3)
        seen: list[tuple[int, int]] = []
        async with reading(made) as messages:
            async def handle(message: Received) -> None:
                seen.append((int(message.body), message.reconsume_times))
                if seen.count((1, 0)) and message.reconsume_times == 0 and int(message.body) == 1:
                    raise ValueError("not today")

            with trio.move_on_after(5):
                await messages.for_each(handle, tasks=2)
        assert sorted(seen) == [(0, 0), (1, 0), (1, 1), (2, 0)]
        assert "not today" in caplog.text


async def test_a_damaged_answer_is_asked_for_again(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 3, queue_id=0)
        broken = iter(range(2))

        def damage(command: Command) -> Command | None:
            if command.code == RequestCode.PULL_MESSAGE and command.ext["topic"] == "orders" and (
                    next(broken, None) is not None):
                return response(command, body=b"no record")
            return None

        made.brokers["a"].refuse = damage
        async with reading(made) as messages:
            assert numbers(await take(messages, 3)) == [0, 1, 2]


# --- where a group begins ------------------------------------------------------------------------------------


async def test_a_new_group_begins_at_the_end_and_goes_on_where_it_was(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 10)
        async with reading(made, start=Start.LAST) as messages:
            await nothing_more(messages, 1)
            fill(made.brokers["a"], 4, first=10)
            assert numbers(await take(messages, 4)) == [10, 11, 12, 13]
        fill(made.brokers["a"], 4, first=14)
        async with reading(made, start=Start.LAST) as messages:
            assert numbers(await take(messages, 4)) == [14, 15, 16, 17]


async def test_a_group_that_read_nothing_keeps_its_beginning(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 10)
        async with reading(made, start=Start.LAST) as messages:
            await nothing_more(messages, 1)
        fill(made.brokers["a"], 2, first=10)
        async with reading(made, start=Start.LAST) as messages:
            assert numbers(await take(messages, 2)) == [10, 11]


async def test_a_group_may_begin_at_a_time(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 4)
        await trio.sleep(10)
        fill(made.brokers["a"], 4, first=4)
        at = dt.datetime.fromtimestamp(trio.current_time() - 5, dt.UTC)
        async with reading(made, start=at) as messages:
            assert numbers(await take(messages, 4)) == [4, 5, 6, 7]


async def test_an_offset_that_was_deleted_is_passed_over(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 20, queue_id=0)
        made.brokers["a"].trimmed["orders", 0] = 15
        async with reading(made) as messages:
            assert numbers(await take(messages, 5)) == [15, 16, 17, 18, 19]


async def test_a_queue_that_lost_its_end_is_read_from_there_after_a_second_look(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 3, queue_id=0)
        made.brokers["a"].offsets[GROUP, "orders", 0] = 9
        async with reading(made) as messages:
            await trio.sleep(0.5)
            fill(made.brokers["a"], 8, first=3, queue_id=0)  # a new master that was behind for a moment
            assert numbers(await take(messages, 2)) == [9, 10]
        made.brokers["a"].offsets[GROUP, "orders", 0] = 99
        async with reading(made) as messages:
            await trio.sleep(3)
            fill(made.brokers["a"], 1, first=11, queue_id=0)
            assert numbers(await take(messages, 1)) == [11]


async def test_a_queue_that_lost_its_end_keeps_what_is_not_settled_before_that(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        broker = made.brokers["a"]
        fill(broker, 5, queue_id=0)
        async with reading(made) as messages:
            held, *_ = await take(messages, 5, ack=False)
            del broker.queues["orders", 0][2:]
            await trio.sleep(20)
            fill(broker, 1, first=2, queue_id=0)
            assert numbers(await take(messages, 1)) == [2]
            assert held.queue_offset == 0 and not held.settled
        assert broker.offsets[GROUP, "orders", 0] == 0, "it was not acknowledged"


@pytest.mark.parametrize("offset", [0, 3])
async def test_an_ordered_queue_that_lost_its_end_goes_on_when_a_message_was_given_back(
    autojump_clock: MockClock, offset: int,
) -> None:
    """``offset`` of that message: one that is still there, and one that is gone."""
    async with cluster("a") as made:
        broker = made.brokers["a"]
        fill(broker, 5, queue_id=0)
        async with reading(made, ordered=True) as messages:
            await take(messages, offset)
            (held,) = await take(messages, 1, ack=False)
            assert held.queue_offset == offset
            del broker.queues["orders", 0][2:]
            await trio.sleep(20)
            await held.retry_later()
            fill(broker, 1, first=9, queue_id=0)
            following = await take(messages, 1 if offset else 3)
            assert [int(message.body) for message in following] == ([9] if offset else [0, 1, 9])


# --- positions -----------------------------------------------------------------------------------------------


async def test_positions_stop_before_the_first_message_that_is_not_settled(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 10, queue_id=0)
        async with reading(made) as messages:
            found = await take(messages, 10, ack=False)
            for message in found[:3] + found[4:]:
                message.ack()
            await trio.sleep(6)
            assert made.brokers["a"].offsets[GROUP, "orders", 0] == 3
            found[3].ack()
            await trio.sleep(6)
            assert made.brokers["a"].offsets[GROUP, "orders", 0] == 10
        async with reading(made) as messages:
            await nothing_more(messages)


async def test_the_end_commits_and_what_was_not_acknowledged_comes_again(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 10, queue_id=0)
        async with reading(made) as messages:
            for message in (await take(messages, 10, ack=False))[:4]:
                message.ack()
        assert made.brokers["a"].offsets[GROUP, "orders", 0] == 4
        assert GROUP not in {group for group, members in made.brokers["a"].members.items() if members}
        async with reading(made) as messages:
            assert numbers(await take(messages, 6)) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("ordered", [False, True])
async def test_the_end_keeps_the_first_positions_of_all_queues(autojump_clock: MockClock, ordered: bool) -> None:
    """Also at a broker that would forget one of two that come at once."""
    async with cluster("a", kind=ThreadedBroker) as made:
        broker = made.brokers["a"]
        fill(broker, 4)
        async with reading(made, ordered=ordered) as messages:
            await take(messages, 4)
        assert [broker.offsets.get((GROUP, "orders", queue_id)) for queue_id in (0, 1)] == [2, 2]


async def test_an_idle_group_tells_again_what_a_broker_has_forgotten(autojump_clock: MockClock) -> None:
    """As a new master that was behind for a moment."""
    async with cluster("a") as made:
        broker = made.brokers["a"]
        fill(broker, 4)
        async with reading(made) as messages:
            await take(messages, 4)
            await trio.sleep(6)
            broker.offsets.clear()
            await trio.sleep(40)
        assert broker.offsets[GROUP, "orders", 0] == broker.offsets[GROUP, "orders", 1] == 2


async def test_pulling_pauses_while_too_much_is_unsettled(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 500, queue_id=0)
        settings = ConsumerSettings(flow=FlowLimits(messages=100), pull_batch=32)
        async with reading(made, settings=settings) as messages:
            found = await take(messages, 128, ack=False)
            await nothing_more(messages)
            for message in found:
                message.ack()
            assert len(await take(messages, 372)) == 372


async def test_a_message_that_nobody_settles_is_given_back(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 1, queue_id=0)
        async with reading(made, settings=ConsumerSettings(consume_timeout_ms=60_000)) as messages:
            (held,) = await take(messages, 1, ack=False)
            with trio.fail_after(80):
                again = await anext(messages)
            assert again.body == held.body and again.reconsume_times == 1 and held.settled


async def test_positions_that_could_not_be_told_are_told_at_the_end(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        broker = made.brokers["a"]
        fill(broker, 2, queue_id=0)
        async with reading(made) as messages:
            await take(messages, 2)
            broker.refuse = lambda command: (
                SILENCE if command.code == RequestCode.UPDATE_CONSUMER_OFFSET else None)
            await trio.sleep(6)  # less than a pull is held
            assert broker.offsets.get((GROUP, "orders", 0), 0) < 2
            broker.refuse = lambda command: None
        assert broker.offsets[GROUP, "orders", 0] == 2


async def test_a_broker_that_says_nothing_keeps_no_others_positions_back_at_the_end(autojump_clock: MockClock) -> None:
    async with cluster("a", "b") as made:
        a, b = made.brokers.values()
        for broker in (a, b):
            fill(broker, 2, queue_id=0)
        async with reading(made) as messages:
            await take(messages, 4)
            await trio.sleep(6)
            a.refuse = lambda command: SILENCE
            fill(b, 1, queue_id=0)
            await take(messages, 1)
        assert b.offsets[GROUP, "orders", 0] == 3


async def test_a_slow_broker_gets_the_positions_of_many_queues_at_the_end(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        broker, queues = made.brokers["a"], 100
        made.name_server.set("orders", {"a": {0: "a:1"}}, queues=queues)
        async with reading(made) as messages:
            await trio.sleep(6)
            for queue_id in range(queues):
                fill(broker, 1, queue_id=queue_id)
            await take(messages, queues)
            broker.delay_ms = 50.0
        assert [broker.offsets[GROUP, "orders", queue_id] for queue_id in range(queues)] == [1] * queues


@pytest.mark.parametrize(("ordered", "silent"), [
    (False, RequestCode.QUERY_CONSUMER_OFFSET), (True, RequestCode.QUERY_CONSUMER_OFFSET),
    (True, RequestCode.LOCK_BATCH_MQ)])
async def test_a_broker_that_says_nothing_keeps_no_others_queues_back_at_the_beginning(
    autojump_clock: MockClock, ordered: bool, silent: int,
) -> None:
    async with cluster("a", "b") as made:
        a, b = made.brokers.values()
        a.refuse = lambda command: SILENCE if command.code == silent else None
        fill(a, 2)
        fill(b, 2, first=2)
        async with reading(made, ordered=ordered) as messages:
            with trio.fail_after(1):
                assert numbers(await take(messages, 2)) == [2, 3]
            await trio.sleep(3)
            asked = len(a.asked(RequestCode.QUERY_CONSUMER_OFFSET))
            assert asked <= 2, "one queue of a topic tells of all"
            a.refuse = lambda command: None
            assert numbers(await take(messages, 2)) == [0, 1]


# --- giving back ---------------------------------------------------------------------------------------------


async def test_a_message_that_is_given_back_comes_again_and_in_the_end_to_the_dead_letters(
    autojump_clock: MockClock,
) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 1, queue_id=0)
        async with reading(made, settings=ConsumerSettings(reconsume_times_max=3)) as messages:
            for times in range(4):
                (message,) = await take(messages, 1, ack=False)
                assert (message.reconsume_times, message.topic, message.body) == (times, "orders", b"0")
                await message.retry_later()
            await nothing_more(messages)
        (dead,) = [record for record in made.brokers["a"].log if record.message.topic == b"%DLQ%billing"]
        assert dead.message.body == b"0"
        assert [ext["delayLevel"] for ext in made.brokers["a"].asked(RequestCode.CONSUMER_SEND_MSG_BACK)] == ["0"] * 4


async def test_where_giving_back_fails_the_message_is_sent_to_the_retry_topic(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        made.brokers["a"].put("orders", 0, b"0", UNIQ_KEY="ID", TAGS="new", DELAY="9")
        made.brokers["a"].refuse = refusing(RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_ERROR)
        async with reading(made) as messages:
            (message,) = await take(messages, 1, ack=False)
            await message.retry_later()
            (again,) = await take(messages, 1)
            assert again.queue.topic == "%RETRY%billing" and (again.topic, again.reconsume_times) == ("orders", 1)
            assert again.message_id == "ID" and again.properties["DELAY"] == "3"
            assert again.properties["ORIGIN_MESSAGE_ID"] == "ID"
        (fields,) = made.brokers["a"].asked(RequestCode.SEND_MESSAGE_V2)
        assert (fields["j"], fields["l"]) == ("1", "16")
        assert made.brokers["a"].offsets[GROUP, "orders", 0] == 1


async def test_where_nothing_helps_this_client_delivers_again(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 2, queue_id=0)
        made.brokers["a"].refuse = lambda command: (
            response(command, ResponseCode.NO_PERMISSION) if command.code in (
                RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2) else None)
        async with reading(made) as messages:
            first, second = await take(messages, 2, ack=False)
            second.ack()
            await first.retry_later()
            first.ack()  # too late: it is said already
            (again,) = await take(messages, 1, ack=False)
            assert (again.body, again.reconsume_times) == (b"0", 1)
            await trio.sleep(6)
            assert made.brokers["a"].offsets[GROUP, "orders", 0] == 0
            again.ack()
        assert made.brokers["a"].offsets[GROUP, "orders", 0] == 2


async def test_a_cancelled_giving_back_does_not_lose_the_message(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 1, queue_id=0)
        made.brokers["a"].refuse = lambda command: (
            SILENCE if command.code == RequestCode.CONSUMER_SEND_MSG_BACK else None)
        async with reading(made) as messages:
            (message,) = await take(messages, 1, ack=False)
            with trio.move_on_after(0.5):
                await message.retry_later()
            assert numbers(await take(messages, 1)) == [0]


async def test_a_heartbeat_during_the_goodbye_does_not_bring_the_member_back(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client(settings=ClientSettings(heartbeat_ms=100)) as client:
        broker = made.brokers["a"]
        async with client.consume(GROUP, "orders"):
            await trio.sleep(1)
            assert broker.members[GROUP]
            broker.refuse = lambda command: setattr(
                broker, "delay_ms", 1_000.0 if command.code == RequestCode.UNREGISTER_CLIENT else 0.0)
        await trio.sleep(1)
        assert not broker.members[GROUP], "others would leave its queues to it"


async def test_a_broker_whose_connection_breaks_behind_its_answer_is_greeted_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Answer and end come in one turn, and the end is noticed first."""
    async with cluster("a") as made, made.client(settings=ClientSettings(heartbeat_ms=5_000)) as client:
        broker, remoting = made.brokers["a"], client._session.remoting
        async with client.consume(GROUP, "orders", settings=ConsumerSettings(rebalance_ms=60_000)):
            await trio.sleep(4)
            call = remoting.call

            async def breaking(address: str, command: Command, timeout_ms: float | None = None) -> Command:
                answer = await call(address, command, timeout_ms)
                connection = remoting.connection(address)
                if command.code == RequestCode.HEART_BEAT and connection is not None:
                    monkeypatch.undo()
                    connection.close("broken")
                return answer

            monkeypatch.setattr(remoting, "call", breaking)
            await trio.sleep(2)
            assert made.net.dialled.count("a:1") == 2 and list(broker.members[GROUP]) == ["client"]


async def test_a_giving_back_that_outlives_the_consumer_raises_nothing(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 1, queue_id=0)
        made.brokers["a"].refuse = lambda command: (
            SILENCE if command.code == RequestCode.CONSUMER_SEND_MSG_BACK else None)
        async with trio.open_nursery() as workers, reading(made) as messages:
            (message,) = await take(messages, 1, ack=False)
            workers.start_soon(message.retry_later)
            await trio.sleep(1)
        assert made.brokers["a"].offsets[GROUP, "orders", 0] == 0


# --- shares --------------------------------------------------------------------------------------------------


async def test_members_share_the_queues_and_take_over_from_who_leaves(autojump_clock: MockClock) -> None:
    async with cluster("a", "b") as made:
        async with reading(made, "c1") as one:
            async with reading(made, "c2") as two:
                await trio.sleep(1)
                shares = [{queue for queue in each.queues if queue.topic == "orders"} for each in (one, two)]
                assert [{(queue.broker_name, queue.queue_id) for queue in share} for share in shares] == [
                    {("a", 0), ("a", 1)}, {("b", 0), ("b", 1)}]
                fill(made.brokers["b"], 10)
                await take(two, 10)
                fill(made.brokers["a"], 2)
                await take(one, 2)
            await trio.sleep(GRACE_S + 1)
            assert len([queue for queue in one.queues if queue.topic == "orders"]) == 4
            fill(made.brokers["b"], 10, first=10)
            assert numbers(await take(one, 10)) == list(range(10, 20)), "from where the other was"


async def test_a_member_that_dies_is_replaced(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        async with reading(made, "c1") as one:
            async with trio.open_nursery() as nursery:
                async def member() -> None:
                    async with reading(made, "c2"):
                        await trio.sleep_forever()

                nursery.start_soon(member)
                await trio.sleep(1)
                assert len(one.queues) == 2
                made.brokers["a"].members[GROUP]["c2"].close("dead")
                made.brokers["a"].refuse = lambda command: (
                    SILENCE if command.code == RequestCode.HEART_BEAT and b'"c2"' in command.body else None)
                await trio.sleep(GRACE_S + 1)
                assert len(one.queues) == 3
                nursery.cancel_scope.cancel()


async def test_a_member_that_a_broker_forgets_for_a_moment_keeps_its_queues(autojump_clock: MockClock) -> None:
    """As after a failover: the new master hears of the members one after the other."""
    async with cluster("a") as made, reading(made, "c1") as one, reading(made, "c2") as two:
        await trio.sleep(1)
        shares = one.queues, two.queues
        known = made.brokers["a"].members[GROUP]

        async def tell() -> None:
            changed = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequest(GROUP))
            assert (await known["c1"].call(changed, 1_000)).code == ResponseCode.SUCCESS

        for _ in range(3):
            forgotten = known.pop("c2")
            await tell()
            await trio.sleep(GRACE_S / 2)
            assert (one.queues, two.queues) == shares
            known["c2"] = forgotten
            await tell()
            await trio.sleep(GRACE_S * 2)
            assert (one.queues, two.queues) == shares


async def test_messages_of_a_queue_that_left_are_void(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 20)
        async with reading(made, "c1") as one:
            (held,) = await take(one, 1, ack=False)
            await wait_all_tasks_blocked()
            async with reading(made, "c0") as two:  # sorts before: it gets queue 0, the other keeps queue 1
                await trio.sleep(1)
                mine = {message.queue.queue_id for message in await take(one, 10)}
                assert mine == {1}
                assert {message.queue.queue_id for message in await take(two, 10)} == {0}
                assert held.settled == (held.queue.queue_id == 0)
                held.ack()


async def test_a_topic_that_comes_later_is_read(autojump_clock: MockClock) -> None:
    async with cluster("a", topics=("other",)) as made, reading(made) as messages:
        await trio.sleep(1)
        made.name_server.set("orders", {"a": {0: "a:1"}})
        fill(made.brokers["a"], 4)
        assert numbers(await take(messages, 4)) == [0, 1, 2, 3]


async def test_a_subscription_that_names_no_tag_is_refused_at_once(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        with pytest.raises(ValueError, match="'\\|\\|' names no tag"):
            async with client.consume(GROUP, {"orders": "||"}):
                pass


async def test_a_second_consumer_of_a_group_needs_a_client_of_its_own(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client, client.consume(GROUP, "orders"):
        with pytest.raises(ValueError, match="a client of its own"):
            async with client.consume(GROUP, "orders"):
                pass
        async with client.consume("another", "orders"):
            pass
        with pytest.raises(ValueError, match="group 'no group'"):
            async with client.consume("no group", "orders"):
                pass


# --- failover ------------------------------------------------------------------------------------------------


async def test_reading_goes_on_at_the_new_master_at_once(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 10)
        async with reading(made) as messages:
            await take(messages, 10)
            await trio.sleep(6)
            old = made.brokers["a"]
            made.kill("a:1")
            new = FakeBroker("a")
            new.offsets = dict(old.offsets)
            fill(new, 14)
            await trio.sleep(0.3)
            await made.start("a:2", new)
            for topic in ("orders",):
                made.name_server.set(topic, {"a": {0: "a:2"}})
            began = trio.current_time()
            assert numbers(await take(messages, 4)) == [10, 11, 12, 13]
            assert trio.current_time() - began < 0.4
            assert "c1" in new.members[GROUP], "it greeted the new master before it pulled"


async def test_a_slave_that_becomes_master_is_greeted_as_such(autojump_clock: MockClock) -> None:
    """As a slave it took the heartbeat and made neither group nor retry topic of it."""
    async with cluster("a") as made:
        slave = await made.start("a:2", FakeBroker("a"))
        made.name_server.set("orders", {"a": {0: "a:1", 2: "a:2"}})
        async with reading(made):
            await trio.sleep(1)
            before = len(slave.asked(RequestCode.HEART_BEAT))
            made.kill("a:1")
            made.name_server.set("orders", {"a": {0: "a:2"}})
            await trio.sleep(1)
            assert before and len(slave.asked(RequestCode.HEART_BEAT)) == before + 1


# --- broadcast -----------------------------------------------------------------------------------------------


async def test_every_member_of_a_broadcast_gets_all_and_keeps_its_own_positions(
    autojump_clock: MockClock, tmp_path: Path,
) -> None:
    settings = ConsumerSettings(offsets_dir=tmp_path)
    async with cluster("a") as made:
        fill(made.brokers["a"], 10)
        async with reading(made, "c1", broadcast=True, settings=settings) as one:
            async with reading(made, "c2", broadcast=True, settings=settings) as two:
                assert numbers(await take(one, 10)) == numbers(await take(two, 10)) == list(range(10))
        assert not [key for key in made.brokers["a"].offsets if key[0] == GROUP]
        (path,) = tmp_path.rglob("offsets.json")  # noqa: ASYNC240  # a few files
        assert path.parent.name == GROUP and path.parent.parent.name == "127.0.0.1@DEFAULT", "as Java has it"
        assert set(ResetOffsetBody.from_json(path.read_bytes()).offset_table.values()) == {5}
        fill(made.brokers["a"], 2, first=10)
        async with reading(made, "c3", broadcast=True, settings=settings) as messages:
            (first,) = await take(messages, 1, ack=False)
            await first.retry_later()
            (second, again) = await take(messages, 2)
            assert sorted([(int(second.body), second.reconsume_times), (int(again.body), again.reconsume_times)]) == [
                (10, int(first.body) == 10), (11, int(first.body) == 11)]
        assert not made.brokers["a"].asked(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_a_damaged_file_of_positions_is_begun_anew(autojump_clock: MockClock, tmp_path: Path) -> None:
    path = tmp_path / "127.0.0.1@DEFAULT" / GROUP / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text("{broken")
    async with cluster("a") as made:
        fill(made.brokers["a"], 2)
        async with reading(made, broadcast=True, settings=ConsumerSettings(offsets_dir=tmp_path)) as messages:
            await take(messages, 2)
    assert ResetOffsetBody.from_json(path.read_bytes()).offset_table
    assert path.with_name("offsets.json.bak").read_text() == "{broken"


async def test_positions_of_a_broadcast_that_could_not_be_written_are_at_the_end(
    autojump_clock: MockClock, tmp_path: Path,
) -> None:
    folder = tmp_path / "offsets"
    folder.write_text("in the way")
    async with cluster("a") as made:
        fill(made.brokers["a"], 2, queue_id=0)
        async with reading(made, broadcast=True, settings=ConsumerSettings(offsets_dir=folder)) as messages:
            await take(messages, 2)
            await trio.sleep(10)
            folder.unlink()
        (path,) = tmp_path.rglob("offsets.json")  # noqa: ASYNC240  # a few files
        assert ResetOffsetBody.from_json(path.read_bytes()).offset_table[MessageQueue("orders", "a", 0)] == 2


# --- what brokers ask ----------------------------------------------------------------------------------------


async def ask_client(broker: FakeBroker, command: Command) -> Command:
    (connection,) = broker.members[GROUP].values()
    return await connection.call(command, 20_000)


async def test_a_reset_goes_on_elsewhere(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 10, queue_id=0)
        async with reading(made) as messages:
            await take(messages, 10)
            body = ResetOffsetBody({MessageQueue("orders", "a", 0): 7, MessageQueue("orders", "z", 0): 1}).to_json()
            await ask_client(made.brokers["a"], request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequest("orders", GROUP), body))
            assert numbers(await take(messages, 3)) == [7, 8, 9]
            assert (await ask_client(made.brokers["a"], request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequest("orders", "other"), body))).code == 1


async def test_a_reset_by_the_broker_is_followed_at_once_as_it_is_said_once(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        broker = made.brokers["a"]
        fill(broker, 10, queue_id=0)
        resets = [PullMessageResponse(0, 7, 0, 10)]

        def reset(command: Command) -> Command | None:
            asked = command.code == RequestCode.PULL_MESSAGE and command.ext["queueOffset"] == "10"
            if not asked or not resets:
                return None
            return response(command, ResponseCode.PULL_OFFSET_MOVED, resets.pop(), remark="OFFSET_RESET")

        async with reading(made) as messages:
            broker.refuse = reset
            assert numbers(await take(messages, 13)) == sorted([*range(10), 7, 8, 9])
            await nothing_more(messages)


async def test_a_consumer_says_where_it_is_and_how(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 4, queue_id=0)
        async with reading(made) as messages:
            await take(messages, 3)
            broker = made.brokers["a"]
            status = await ask_client(broker, request(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatusRequest("orders", GROUP)))
            assert ConsumerStatus.from_json(status.body).message_queue_table == {
                MessageQueue("orders", "a", 0): 3, MessageQueue("orders", "a", 1): 0}
            info = await ask_client(broker, request(
                RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerClientRequest(GROUP, "c1")))
            assert b'"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"' in info.body
            assert b'{"brokerName":"a","queueId":0,"topic":"orders"}:{"cachedMsgCount":1,' in info.body


async def test_an_operator_s_message_is_handled_and_reported(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        raw = codec.encode(codec.Message(b"orders", b"by hand", 0), 5, 6, 7)
        async with reading(made) as messages:
            results: list[dict[str, object]] = []

            async def push() -> None:
                answer = await ask_client(made.brokers["a"], request(
                    RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumerClientRequest(GROUP, "c1"), raw))
                results.append(orjson.loads(answer.body))

            await trio.sleep(1)
            for what in ("ack", "retry_later", "nothing"):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(push)
                    message = await anext(messages)
                    assert message.body == b"by hand"
                    if what == "ack":
                        message.ack()
                    elif what == "retry_later":
                        await message.retry_later()
            assert [each["consumeResult"] for each in results] == ["CR_SUCCESS", "CR_LATER", "CR_RETURN_NULL"]
            nonsense = await ask_client(made.brokers["a"], request(
                RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumerClientRequest(GROUP, "c1"), b"no record"))
            assert nonsense.code == ResponseCode.SYSTEM_ERROR


async def test_a_heartbeat_says_what_the_group_wants(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, reading(made, wanted={"orders": "new||old"}):
        data = made.brokers["a"].heartbeats[-1]
        (group,) = data.consumer_data_set
        assert (data.client_id, group.group_name, group.consume_type) == ("c1", GROUP, "CONSUME_PASSIVELY")
        assert (group.message_model, group.consume_from_where) == ("CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
        assert {(each.topic, each.sub_string, frozenset(each.tags_set)) for each in group.subscription_data_set} == {
            ("orders", "new||old", frozenset({"new", "old"})), ("%RETRY%billing", "*", frozenset())}


async def test_the_block_s_own_error_comes_out_and_positions_are_kept(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 3, queue_id=0)
        with pytest.raises(KeyError):  # noqa: PT012  # the block is what is tested
            async with reading(made) as messages:
                await take(messages, 2)
                raise KeyError("mine")
        assert made.brokers["a"].offsets[GROUP, "orders", 0] == 2


async def test_sending_and_consuming_share_connections(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client, client.consume(GROUP, "orders", start=FIRST) as messages:
        await client.send(Message("orders", b"1"))
        assert numbers(await take(messages, 1)) == [1]
        assert made.net.dialled.count("a:1") == 1
        with pytest.raises(RemotingError):
            await made.brokers["a"].members[GROUP]["client"].call(request(9999), 0)
