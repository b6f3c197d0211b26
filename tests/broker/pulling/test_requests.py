"""Pulls over the wire: the order of the checks, the codes and offsets of answers, and waiting for a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.consumers import ClientsConfig
from broker.groups import GroupsConfig
from broker.pulling.checks import PullConfig
from broker.pulling.reading import ReadConfig, Status
from broker.pulling.requests import code_of
from broker.standing import Role
from broker.store.tables import SubscriptionGroup
from remoting.bodies.consumers import SubscriptionData
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.headers.pulling import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from remoting.record import decode_all
from tests.broker.consumers.world import World, pull, running

PULL = RequestCode.PULL_MESSAGE


def bodies(answer: Command) -> list[str]:
    return [record.message.body.decode() for record in decode_all(answer.body)]


@pytest.mark.parametrize(("status", "offset", "code"), [
    (Status.FOUND, 5, 0),
    (Status.NO_MATCHED_MESSAGE, 5, 20),
    (Status.MESSAGE_WAS_REMOVING, 5, 20),
    (Status.NO_MATCHED_LOGIC_QUEUE, 0, 19),
    (Status.NO_MATCHED_LOGIC_QUEUE, 5, 21),
    (Status.NO_MESSAGE_IN_QUEUE, 0, 19),
    (Status.NO_MESSAGE_IN_QUEUE, 5, 21),
    (Status.OFFSET_OVERFLOW_ONE, 5, 19),
    (Status.OFFSET_OVERFLOW_BADLY, 5, 21),
    (Status.OFFSET_TOO_SMALL, 5, 21),
    (Status.OFFSET_RESET, 5, 21),
])
def test_codes_of_what_was_found(status: Status, offset: int, code: int) -> None:
    assert code_of(status, offset) == code
    assert {row for row in Status if code_of(row, 5) is not None} == set(Status), "each has one"


def configured(**changes: Any) -> Callable[[World], None]:
    def spoil(world: World) -> None:
        world.pulling.config = attrs.evolve(world.pulling.config, **changes)

    return spoil


def broadcasts(world: World) -> None:
    world.consumers.groups["g"].message_model = "BROADCASTING"
    world.groups.update([SubscriptionGroup("g", consume_broadcast_enable=False)])


CHECKS: list[tuple[Callable[[World], object], int, str | None]] = [
    (configured(broker_permission=2), ResponseCode.NO_PERMISSION, "1"),
    (configured(lite_pull_message_enable=False), ResponseCode.NO_PERMISSION, "1"),
    (lambda world: world.groups.delete("g"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, None),
    (lambda world: world.groups.update([SubscriptionGroup("g", False, consume_broadcast_enable=False)]),
     ResponseCode.NO_PERMISSION, "2"),
    (lambda world: world.topics.delete("t"), ResponseCode.TOPIC_NOT_EXIST, None),
    (lambda world: world.topics.update([TopicConfig("t", 0, 4, perm=2)]), ResponseCode.NO_PERMISSION, "3"),
    (lambda world: world.topics.update([TopicConfig("t", 0, 4)]), ResponseCode.INVALID_PARAMETER, None),
    (lambda world: world.consumers.groups.clear(), ResponseCode.SUBSCRIPTION_NOT_EXIST, None),
    (broadcasts, ResponseCode.NO_PERMISSION, "4"),
    (lambda world: world.groups.forbid("g", "t", True), ResponseCode.NO_PERMISSION, "5"),
    (lambda world: world.consumers.groups["g"].subscriptions.clear(), ResponseCode.SUBSCRIPTION_NOT_EXIST, None),
]
"""What makes something wrong, and how it is answered, in the order in which it is found out."""


@pytest.mark.parametrize("at", range(len(CHECKS)))
async def test_what_is_wrong_is_found_in_javas_order(autojump_clock: MockClock, at: int) -> None:
    """With two things wrong the answer is about the earlier one."""
    for other in range(at, len(CHECKS)):
        async with running(groups=GroupsConfig(auto_create_subscription_group=False)) as world:
            world.groups.update([SubscriptionGroup("g")])
            await world.heartbeat("g", "t")
            await world.put("a")
            lite = RequestCode.LITE_PULL_MESSAGE
            assert (await world.ask(lite, pull(0, sub_version=1))).code == ResponseCode.SUCCESS
            for row in (other, at):
                CHECKS[row][0](world)
            answer = await world.ask(lite, pull(0, sub_version=1))
            assert (answer.code, answer.ext.get("forbiddenType"), bool(answer.remark)) == (*CHECKS[at][1:], True)


async def test_a_pull_that_is_ahead_of_its_heartbeat_gets_all_tags(autojump_clock: MockClock) -> None:
    """A Java client that takes queues while a heartbeat leaves tells its new version with the next one, 30 s later."""
    async with running() as world:
        await world.put("a", "b", "a")
        old = SubscriptionData("t", "a", frozenset({"a"}), sub_version=5)
        await world.heartbeat("g", "t", subscription_data_set=[old])
        assert bodies(await world.ask(PULL, pull(0, sub_version=5))) == ["a 0", "a 2"]
        assert bodies(await world.ask(PULL, pull(0, sub_version=6))) == ["a 0", "b 1", "a 2"]
        sql = await world.ask(PULL, pull(0, sub_version=6, expression_type="SQL92"))
        assert sql.code == ResponseCode.SUBSCRIPTION_NOT_LATEST, "nobody but the broker looks at properties"
        await world.heartbeat("g", "t", subscription_data_set=[
            attrs.evolve(old, class_filter_mode=True, sub_version=6)])
        assert (await world.ask(PULL, pull(0, sub_version=7))).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        new = SubscriptionData("t", "b", frozenset({"b"}), sub_version=7)
        await world.heartbeat("g", "t", subscription_data_set=[new])
        assert bodies(await world.ask(PULL, pull(0, sub_version=7))) == ["b 1"]


async def test_subscriptions_of_another_kind(autojump_clock: MockClock) -> None:
    async with running() as world:
        await world.put("a")
        sql: dict[str, Any] = {"sys_flag": SUBSCRIPTION, "expression_type": "SQL92", "subscription": "a > 1"}
        refused = await world.ask(PULL, pull(0, **sql))
        assert (refused.code, refused.remark) == (
            ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92")
        await world.heartbeat("g", "t", version=7, subscription_data_set=[
            SubscriptionData("t", "a > 1", sub_version=7, expression_type="SQL92")])
        assert (await world.ask(PULL, pull(0, sub_version=7))).code == ResponseCode.SYSTEM_ERROR
        for bad in ({**sql, "subscription": None}, {"sys_flag": SUBSCRIPTION, "subscription": " || "}):
            assert (await world.ask(PULL, pull(0, **bad))).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_bad_header_is_answered_in_words(autojump_clock: MockClock) -> None:
    async with running() as world:
        for change in ({"queueId": "x"}, {"queueOffset": str(1 << 63)}, {"commitOffset": "1.5"}):
            answer = await world.ask(PULL, pull(0) | change)
            assert (answer.code, next(iter(change)) in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_records_come_as_they_are_and_filtered_by_their_tags(autojump_clock: MockClock) -> None:
    async with running() as world:
        await world.put("a", "b", "a", "c", "")
        everything = await world.ask(PULL, pull(0, sys_flag=SUBSCRIPTION, subscription="*"))
        assert bodies(everything) == ["a 0", "b 1", "a 2", "c 3", " 4"]
        assert everything.ext == {
            "suggestWhichBrokerId": "0", "nextBeginOffset": "5", "minOffset": "0", "maxOffset": "5",
            "topicSysFlag": "0", "groupSysFlag": "0"}
        assert everything.remark == "FOUND"
        some = await world.ask(PULL, pull(1, sys_flag=SUBSCRIPTION, subscription="a || c", max_msg_nums=1))
        assert (bodies(some), some.ext["nextBeginOffset"]) == (["a 2"], "3")
        none = await world.ask(PULL, pull(3, sys_flag=SUBSCRIPTION, subscription="b"))
        assert (none.code, none.ext["nextBeginOffset"], none.body) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "5", b"")
        wanted = world.consumers.find("g", "t")
        assert wanted is not None and wanted.data.sub_string == "b", "what pulls bring is known"


async def test_offsets_are_noted_and_committed_once(autojump_clock: MockClock) -> None:
    async with running() as world:
        await world.put("a", "a")
        flags = SUBSCRIPTION | COMMIT_OFFSET
        await world.ask(PULL, pull(0, sys_flag=SUBSCRIPTION, commit_offset=1))
        assert world.offsets.query("g", "t", 0) is None
        await world.ask(PULL, pull(0, sys_flag=flags, commit_offset=1))
        assert (world.offsets.query("g", "t", 0), world.offsets.query_pulled("g", "t", 0)) == (1, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.ask, PULL, pull(2, sys_flag=flags | SUSPEND, commit_offset=2,
                                                     suspend_timeout_millis=1_000))
            await trio.sleep(0.5)
            assert world.offsets.query("g", "t", 0) == 2
            world.offsets.commit("g", "t", 0, 7)
        assert world.offsets.query("g", "t", 0) == 7, "not again when it is tried again"


async def test_a_reset_sends_the_next_pull_there_and_wakes_one_that_is_held(autojump_clock: MockClock) -> None:
    async with running() as world:
        await world.put("a", "a", "a")
        flags = SUBSCRIPTION | COMMIT_OFFSET
        world.offsets.reset("g", "t", 0, 1)
        moved = await world.ask(PULL, pull(2, sys_flag=flags, commit_offset=2))
        assert (moved.code, moved.remark, moved.ext["nextBeginOffset"], moved.ext["maxOffset"]) == (
            ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", "1", "3")
        assert world.offsets.query("g", "t", 0) == 1, "the pull's own offset is an old one"
        assert (await world.ask(PULL, pull(1, sys_flag=flags, commit_offset=1))).code == ResponseCode.SUCCESS
        answers: list[Command] = []

        async def wait() -> None:
            answers.append(await world.ask(PULL, pull(3, sys_flag=flags | SUSPEND, suspend_timeout_millis=9_000)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            world.offsets.reset("g", "t", 0, 0)
        assert (answers[0].code, answers[0].ext["nextBeginOffset"], trio.current_time() < 2) == (
            ResponseCode.PULL_OFFSET_MOVED, "0", True)


# --- waiting -------------------------------------------------------------------------------------------------


class Waiting:
    """A pull that is sent in ``nursery``; ``answers`` has when it was answered, and how."""

    def __init__(self, world: World, nursery: trio.Nursery, ext: dict[str, str]) -> None:
        self.answers: list[tuple[float, Command]] = []
        self._world, self._ext = world, ext
        nursery.start_soon(self._wait)

    async def _wait(self) -> None:
        wire = await self._world.dial()
        answer = await self._world.ask(PULL, self._ext, wire=wire)
        self.answers.append((trio.current_time(), answer))


def held(offset: int, timeout_ms: int = 15_000, **changes: Any) -> dict[str, str]:
    return pull(offset, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=timeout_ms, **changes)


async def test_a_pull_waits_for_a_message_and_gets_all_of_that_turn(autojump_clock: MockClock) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        one, two = Waiting(world, nursery, held(0)), Waiting(world, nursery, held(0, queue_id=1))
        await trio.sleep(3)
        assert (len(world.pulling.holding), one.answers) == (2, [])
        await world.put("a", "b", "c")
        assert [(when, bodies(answer)) for when, answer in one.answers] == [(3, ["a 0", "b 1", "c 2"])]
        assert len(world.pulling.holding) == 1
        await world.put("d", queue_id=1)
        assert bodies(two.answers[0][1]) == ["d 0"]


async def test_a_wait_ends_in_time_with_nothing_found(autojump_clock: MockClock) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        waiting = Waiting(world, nursery, held(0, 7_000))
        await trio.sleep(10)
        (when, answer), = waiting.answers
        assert (when, answer.code, answer.ext["nextBeginOffset"]) == (7, ResponseCode.PULL_NOT_FOUND, "0")
        assert len(world.pulling.holding) == 0


async def test_who_does_not_want_to_wait_is_answered_at_once(autojump_clock: MockClock) -> None:
    async with running() as world:
        for ext in (pull(0, sys_flag=SUBSCRIPTION, suspend_timeout_millis=9_000), held(1)):
            answer = await world.ask(PULL, ext)
            assert (answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED), answer.body) == (
                True, b"")
        assert trio.current_time() == 0


async def test_nobody_waits_for_a_broker_that_stops(autojump_clock: MockClock) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        waiting = Waiting(world, nursery, held(0))
        await trio.sleep(1)
        world.pulling.finish()
        await trio.testing.wait_all_tasks_blocked()
        (when, answer), = waiting.answers
        assert (when, answer.code) == (1, ResponseCode.PULL_NOT_FOUND)
        assert (await world.ask(PULL, held(0))).code == ResponseCode.PULL_NOT_FOUND
        assert trio.current_time() == 1


async def test_without_long_polling_it_waits_a_short_time(autojump_clock: MockClock) -> None:
    async with running(pulls=PullConfig(long_polling_enable=False)) as world:
        assert (await world.ask(PULL, held(0))).code == ResponseCode.PULL_NOT_FOUND
        assert trio.current_time() == 1


async def test_messages_that_are_not_wanted_do_not_wake_but_the_sweep_leads_behind_them(
    autojump_clock: MockClock,
) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        waiting, other = Waiting(world, nursery, held(0, subscription="a")), Waiting(world, nursery, held(5))
        await trio.sleep(1)
        await world.put("b", "b")
        assert waiting.answers == []
        assert bodies(other.answers[0][1]) == [], "an offset that was too large then"
        await trio.sleep(5)
        (when, answer), = waiting.answers
        assert (when, answer.code, answer.ext["nextBeginOffset"]) == (5, ResponseCode.PULL_RETRY_IMMEDIATELY, "2")


async def test_a_closed_connection_waits_no_longer(autojump_clock: MockClock) -> None:
    async with running() as world:
        wire = await world.dial()
        await wire.send(Command(PULL, ext=held(0, 1 << 60)))
        await trio.sleep(1)
        assert len(world.pulling.holding) == 1
        await wire.stream.aclose()
        await trio.sleep(5)
        assert len(world.pulling.holding) == 0
        await world.put("a")


async def test_many_wait_for_one_queue_and_each_is_answered_once(autojump_clock: MockClock) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        waiting = [Waiting(world, nursery, held(0, group=f"g{number}")) for number in range(50)]
        await trio.sleep(1)
        await world.put("a")
        await world.put("b")
        await trio.sleep(20)
        assert [bodies(answer) for one in waiting for _, answer in one.answers] == [["a 0"]] * 50


async def test_who_has_not_taken_what_it_got_is_told_to_ask_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand pulls that were held by one that does not read: their messages would all lie in memory."""
    async with running() as world, trio.open_nursery() as nursery:
        waiting = Waiting(world, nursery, held(0))
        await trio.sleep(1)
        monkeypatch.setattr(Connection, "congested", True)
        await world.put("a")
        monkeypatch.undo()
        (_, answer), = waiting.answers
        assert (answer.code, bodies(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, [])
        assert answer.ext["nextBeginOffset"] == "0"
        assert bodies(await world.ask(PULL, held(0))) == ["a 0"]


# --- slaves --------------------------------------------------------------------------------------------------


async def test_a_slave_that_is_not_read_refuses_and_a_new_one_sends_away_who_waits(autojump_clock: MockClock) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        waiting = Waiting(world, nursery, held(0))
        await trio.sleep(1)
        world.standing.role = Role.slave(2)
        world.pulling.role_changed()
        await trio.testing.wait_all_tasks_blocked()
        answer = await world.ask(PULL, held(0))
        assert (answer.code, (answer.remark or "").startswith("[REJECTREQUEST]")) == (ResponseCode.SYSTEM_BUSY, True)
        assert [(when, answer.code) for when, answer in waiting.answers] == [(1, ResponseCode.SYSTEM_BUSY)]


async def test_who_serves_pulls_by_its_role_answers_them_though_slaves_are_not_read(autojump_clock: MockClock) -> None:
    async with running() as world:
        await world.put("a")
        world.standing.role = attrs.evolve(Role.slave(2), serves_pulls=True)
        assert bodies(await world.ask(PULL, pull(0, sys_flag=SUBSCRIPTION))) == ["a 0"]


@pytest.mark.parametrize(("offset", "checks", "code", "next_offset"), [
    (0, False, 0, 2),
    (2, False, 19, 2),
    (9, False, 20, 9),
    (-3, False, 20, -3),
    (9, True, 21, 2),
    (-3, True, 21, 0),
])
async def test_a_slave_that_is_read_corrects_nothing_unless_told(
    autojump_clock: MockClock, offset: int, checks: bool, code: int, next_offset: int,
) -> None:
    reads = ReadConfig(offset_check_in_slave=checks)
    async with running(pulls=PullConfig(slave_read_enable=True), reads=reads) as world:
        await world.put("a", "a")
        world.standing.role = Role.slave(2)
        answer = await world.ask(PULL, pull(offset, sys_flag=SUBSCRIPTION))
        assert (answer.code, answer.ext["nextBeginOffset"]) == (code, str(next_offset))
        assert world.groups.get("g") is None, "a slave makes no group"


async def test_where_to_pull_next(autojump_clock: MockClock) -> None:
    group = SubscriptionGroup("g", broker_id=3, which_broker_when_consume_slowly=4)
    for enabled, memory, suggested in ((False, 0, "0"), (True, 1 << 62, "3"), (True, 0, "4")):
        async with running(pulls=PullConfig(slave_read_enable=enabled), memory=memory) as world:
            world.groups.update([group])
            await world.put("a")
            answer = await world.ask(PULL, pull(0, sys_flag=SUBSCRIPTION))
            assert answer.ext["suggestWhichBrokerId"] == suggested


async def test_a_store_that_cannot_be_read_is_answered_in_words(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        waiting = Waiting(world, nursery, held(0))
        await trio.sleep(1)

        def broken(*_: object) -> None:
            raise OSError("no such page")

        monkeypatch.setattr(world.journal.messages, "queue", broken)
        await world.put("a")
        assert (waiting.answers[0][1].code, "no such page" in (waiting.answers[0][1].remark or "")) == (
            ResponseCode.SYSTEM_ERROR, True)


async def test_what_was_given_is_told(autojump_clock: MockClock) -> None:
    async with running(clients=ClientsConfig()) as world:
        told: list[tuple[str, str, int, int]] = []
        world.pulling.on_found = lambda *found: told.append(found)
        await world.put("a", "b")
        answer = await world.ask(PULL, pull(0, sys_flag=SUBSCRIPTION))
        await world.ask(PULL, pull(2, sys_flag=SUBSCRIPTION))
        assert told == [("g", "t", 2, len(answer.body))]
