"""Ordered consumption: one message of a queue at a time, by the member that has the queue's lock."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.client import ConsumerSettings, MessageQueue, Messages
from broker.client.consuming import Consumer
from broker.client.share import Share
from remoting.bodies.consumers import LockBatchRequestBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from tests.broker.client.cluster import SILENCE, Cluster, ThreadedBroker, cluster
from tests.broker.client.consumption import GROUP, fill, nothing_more, numbers, reading, take


async def test_an_ordered_queue_gives_the_next_message_when_the_last_is_settled(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 6)
        async with reading(made, ordered=True) as messages:
            first = await take(messages, 2, ack=False)
            assert {message.queue.queue_id for message in first} == {0, 1}
            await nothing_more(messages)
            first[0].ack()
            (following,) = await take(messages, 1, ack=False)
            assert following.queue == first[0].queue and following.queue_offset == first[0].queue_offset + 1
            await first[1].retry_later()
            with trio.fail_after(1.1):
                (again,) = await take(messages, 1, ack=False)
            assert (again.body, again.reconsume_times) == (first[1].body, 1)
            for message in (following, again):
                message.ack()
            assert numbers([first[0], following, again, *await take(messages, 3)]) == [0, 1, 2, 3, 4, 5]
        assert not made.brokers["a"].locks, "unlocked at the end"


async def test_ordered_members_never_read_one_queue_at_a_time(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 40)
        async with reading(made, "c1", ordered=True) as one:
            held = await take(one, 2, ack=False)
            async with reading(made, "c0", ordered=True) as two:
                await trio.sleep(5)
                assert len(made.brokers["a"].locks) == 3, "queue 0 stays with who is at work on it"
                assert not [queue for queue in two.queues if queue.topic == "orders"]
                for message in held:
                    message.ack()
                with trio.fail_after(30):
                    found = await anext(two)
                assert found.queue.queue_id == 0 and found.queue_offset == 1


def spread(made: Cluster, count: int) -> ThreadedBroker:
    """A topic of four queues with so many messages in each; its broker."""
    (broker,) = made.brokers.values()
    made.name_server.set("orders", {broker.name: {0: f"{broker.name}:1"}}, queues=4)
    for queue_id in range(4):
        fill(broker, count, queue_id=queue_id)
    assert isinstance(broker, ThreadedBroker)
    return broker


async def until_shared(one: Messages, two: Messages, within_s: float = 5) -> None:
    with trio.fail_after(within_s):
        while [len([queue for queue in each.queues if queue.topic == "orders"]) for each in (one, two)] != [2, 2]:
            await trio.sleep(0.01)


async def test_queues_that_were_read_together_are_handed_over_with_their_positions(autojump_clock: MockClock) -> None:
    """Of a group's first positions, also where a broker would forget one of two that come at once."""
    async with cluster("a", kind=ThreadedBroker) as made:
        spread(made, 3)
        async with reading(made, "c1", ordered=True) as one:
            await take(one, 12)
            async with reading(made, "c2", ordered=True) as two:
                await until_shared(one, two)
                await nothing_more(two)


async def test_of_a_queue_that_is_given_up_nothing_more_is_delivered(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while its release has yet to begin: the lock would be somebody else's before that is acknowledged."""
    release, given_up = Consumer._release, list[bool]()

    async def released(self: Consumer, broker: str, shares: list[Share]) -> None:
        given_up.extend(share.dropped for share in shares)
        await release(self, broker, shares)

    monkeypatch.setattr(Consumer, "_release", released)
    async with cluster("a", kind=ThreadedBroker) as made:
        spread(made, 3)
        async with reading(made, "c1", ordered=True) as one, reading(made, "c2", ordered=True) as two:
            await until_shared(one, two)
    assert given_up == [True, True]


async def test_a_pull_on_its_way_takes_no_position_back(autojump_clock: MockClock) -> None:
    """The last word on a queue that is handed over is its release's, however late a broker looks at a pull."""
    async with cluster("a", kind=ThreadedBroker) as made:
        broker, settings = spread(made, 3), ConsumerSettings(pull_batch=1)
        async with reading(made, "c1", ordered=True, settings=settings) as one:
            await take(one, 12)
            await trio.sleep(6)  # from the first position on pulls may tell them
            broker.late_s = 0.03  # behind the release, before the other member's next look
            fill(broker, 1, first=3, queue_id=2)
            fill(broker, 1, first=3, queue_id=3)
            await take(one, 2)
            for queue_id in (2, 3):
                fill(broker, 1, first=4, queue_id=queue_id)
            await take(one, 2)
            async with reading(made, "c2", ordered=True) as two:
                await until_shared(one, two)
                await nothing_more(two)


@pytest.mark.parametrize(("busy_s", "again"), [(1.0, []), (100.0, [0, 0, 1, 1, 2, 2])])
async def test_a_lock_is_given_up_behind_the_position_or_a_few_seconds_later(
    autojump_clock: MockClock, busy_s: float, again: list[int],
) -> None:
    """A broker that is too busy for positions is told again, but no queue stands still for a minute."""
    async with cluster("a", kind=ThreadedBroker) as made:
        broker = spread(made, 3)
        async with reading(made, "c1", ordered=True) as one:
            await take(one, 12)
            until = trio.current_time() + busy_s
            broker.refuse = lambda command: (
                response(command, ResponseCode.SYSTEM_BUSY)
                if command.code == RequestCode.UPDATE_CONSUMER_OFFSET and trio.current_time() < until else None)
            async with reading(made, "c2", ordered=True) as two:
                await until_shared(one, two, within_s=6)
                assert numbers(await take(two, len(again))) == again
                await nothing_more(two)


async def test_an_ordered_message_that_fails_too_often_goes_to_the_dead_letters(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 2, queue_id=0)
        settings = ConsumerSettings(reconsume_times_max=2)
        async with reading(made, ordered=True, settings=settings) as messages:
            for times in range(3):
                (message,) = await take(messages, 1, ack=False)
                assert (message.body, message.reconsume_times) == (b"0", times)
                await message.retry_later()
            (following,) = await take(messages, 1)
            assert following.body in (b"1", b"0")
        (fields,) = made.brokers["a"].asked(RequestCode.SEND_MESSAGE_V2)
        assert (fields["b"], fields["j"], fields["l"]) == ("%RETRY%billing", "3", "2"), "the broker makes it a dead one"


async def test_without_its_lock_an_ordered_queue_rests(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        fill(made.brokers["a"], 3, queue_id=0)
        async with reading(made, ordered=True) as messages:
            await take(messages, 1)
            made.brokers["a"].locks = {(GROUP, MessageQueue("orders", "a", 0)): "somebody else"}
            await trio.sleep(21)
            (second,) = await take(messages, 1)  # on its way before the lock was found to be gone
            await nothing_more(messages, 60)
            made.brokers["a"].locks.clear()
            (third,) = await take(messages, 1)
            assert (second.body, third.body) == (b"1", b"2")


async def test_a_queue_that_is_taken_while_locks_are_renewed_is_read(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        broker, settings = made.brokers["a"], ConsumerSettings(lock_ms=20_000, member_grace_ms=1)
        async with reading(made, "c1", ordered=True, settings=settings) as one:
            began = trio.current_time()
            async with reading(made, "c2", ordered=True, settings=settings):
                await trio.sleep_until(began + 19.9)
                renewals = [1]

                def delay(command: Command) -> None:
                    lock = command.code == RequestCode.LOCK_BATCH_MQ and b'"c1"' in command.body
                    broker.delay_ms = 1_000.0 if lock and renewals and renewals.pop() else 0.0

                broker.refuse = delay
                await trio.sleep(0.2)
                assert not renewals, "it is under way"
            with trio.fail_after(0.5):
                while len(one.queues) < 3:
                    await trio.sleep(0.01)
            await trio.sleep(1)
            fill(broker, 2)
            with trio.fail_after(1):
                assert numbers(await take(one, 2)) == [0, 1]


async def test_a_queue_that_is_given_away_while_locks_are_renewed_is_not_locked_again(
    autojump_clock: MockClock,
) -> None:
    async with cluster("a", "b") as made:
        first, second = made.brokers["a"], made.brokers["b"]
        async with reading(made, ordered=True, settings=ConsumerSettings(lock_ms=20_000)) as messages:
            await trio.sleep(19.9)
            assert len(messages.queues) == 6
            first.refuse = lambda command: setattr(
                first, "delay_ms", 1_000.0 if command.code == RequestCode.LOCK_BATCH_MQ else 0.0)
            await trio.sleep(0.2)  # it is renewed at one, then at the other
            for broker in (first, second):  # a member that is slow to take its share
                broker.members[GROUP]["c2"] = broker.members[GROUP]["c1"]
                broker.notify(GROUP)
            with trio.fail_after(0.5):
                while len(messages.queues) > 3:
                    await trio.sleep(0.01)
            await trio.sleep(5)
            held = {queue for broker in (first, second) for _, queue in broker.locks}
            assert held == set(messages.queues)


async def test_queues_that_are_being_locked_at_the_end_are_unlocked(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        broker = made.brokers["a"]
        broker.refuse = lambda command: (
            setattr(broker, "delay_ms", 500.0 if command.code == RequestCode.LOCK_BATCH_MQ else 0.0))
        async with reading(made, ordered=True):
            with trio.fail_after(5):
                while not broker.locks:
                    await trio.sleep(0.1)
        assert not broker.locks


@pytest.mark.parametrize("silent", [(RequestCode.UNLOCK_BATCH_MQ,), tuple(RequestCode)], ids=["unlock", "all"])
async def test_a_broker_that_says_nothing_keeps_no_others_locks_at_the_end(
    autojump_clock: MockClock, silent: tuple[int, ...],
) -> None:
    """Nor the word that this member is gone: others would wait two minutes for its queues."""
    async with cluster("a", "b", "c", "d") as made:
        first, *others = made.brokers.values()
        fill(first, 1, queue_id=0)
        async with reading(made, ordered=True) as messages:
            with trio.fail_after(1):
                while len(messages.queues) < 12:
                    await trio.sleep(0.01)
            await take(messages, 1)
            first.refuse = lambda command: SILENCE if command.code in silent else None
        for broker in others:
            assert not broker.locks and not broker.members[GROUP]


async def test_a_lock_whose_answer_was_lost_is_given_up_with_its_queue(autojump_clock: MockClock) -> None:
    """Else the member that has the queue now would wait a minute for the lock's end."""
    async with cluster("a") as made:
        broker = made.brokers["a"]

        def lose(command: Command) -> Command | None:
            if command.code != RequestCode.LOCK_BATCH_MQ or b'"c1"' not in command.body:
                return None
            for queue in LockBatchRequestBody.from_json(command.body).mq_set:
                broker.locks.setdefault((GROUP, queue), "c1")
            return SILENCE

        broker.refuse = lose
        async with reading(made, "c1", ordered=True):
            await trio.sleep(0.5)
            assert set(broker.locks.values()) == {"c1"}
            async with reading(made, "c2", ordered=True) as two:
                await trio.sleep(10)
                assert two.queues and {broker.locks[GROUP, queue] for queue in two.queues} == {"c2"}


async def test_a_broker_that_says_nothing_keeps_no_others_queues_from_who_has_them_now(
    autojump_clock: MockClock,
) -> None:
    async with cluster("a", "b", "c") as made:
        a, _, c = made.brokers.values()
        async with reading(made, "c1", ordered=True) as one:
            await trio.sleep(1)
            assert len(one.queues) == 9
            a.refuse = lambda command: SILENCE if command.code in (
                RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNLOCK_BATCH_MQ) else None
            for broker in made.brokers.values():  # members that are slow to take their shares
                broker.members[GROUP] |= dict.fromkeys(("c0", "c2"), broker.members[GROUP]["c1"])
                broker.notify(GROUP)
            await trio.sleep(1)
            assert not [queue for _, queue in c.locks if queue.topic == "orders"]


async def test_brokers_that_say_nothing_keep_no_others_locks_from_being_renewed(autojump_clock: MockClock) -> None:
    async with cluster("a", "b", "c", "d", "e") as made:
        *silent, last = made.brokers.values()
        async with reading(made, ordered=True) as messages:
            await trio.sleep(1)
            for broker in silent:
                broker.refuse = lambda command: SILENCE if command.code == RequestCode.LOCK_BATCH_MQ else None
            await trio.sleep(30)
            fill(last, 1)
            with trio.fail_after(0.5):
                await take(messages, 1)
