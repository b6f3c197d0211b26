"""Pulls with filters over properties: who may, what is found, what wakes one that is held, and retry topics."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from broker.consumers.subscriptions import Subscribed
from broker.filters.expressions import compiled
from broker.filters.table import FilterKeys
from broker.pulling import filtering, reading
from broker.pulling.filtering import read_filtered
from broker.pulling.reading import Effort, ReadConfig, Status, read
from broker.store.consumequeue import ENTRY
from remoting.bodies.consumers import CheckClientRequestBody, SubscriptionData
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import DamagedRecord
from remoting.headers.pulling import SUBSCRIPTION, SUSPEND
from remoting.record import decode_all, decode_properties
from tests.broker.consumers.world import World, pull, running

PULL = RequestCode.PULL_MESSAGE
ON = FilterKeys(enable_property_filter=True)
RETRIES = FilterKeys(enable_property_filter=True, filter_support_retry=True)


def found(answer: Command) -> list[str]:
    return [decode_properties(record.message.properties).get("a", "-") for record in decode_all(answer.body)]


def inline(offset: int, text: str | None, kind: str = "SQL92", **changes: Any) -> dict[str, str]:
    return pull(offset, sys_flag=SUBSCRIPTION, subscription=text, expression_type=kind, **changes)


async def register(world: World, text: str, version: int, group: str = "g", topic: str = "t") -> None:
    await world.heartbeat(group, topic, subscription_data_set=[
        SubscriptionData(topic, text, sub_version=version, expression_type="SQL92"),
        SubscriptionData(f"%RETRY%{group}", "*", sub_version=1)])


async def test_a_pull_that_brings_its_filter(autojump_clock: MockClock) -> None:
    async with running(filters=ON) as world:
        await world.put_with({"a": "1"}, {"a": "5"}, {}, {"a": "9"}, {"a": "x"})
        some = await world.ask(PULL, inline(0, "a > 3"))
        assert (some.code, some.remark, found(some), some.ext["nextBeginOffset"]) == (0, "FOUND", ["5", "9"], "5")
        none = await world.ask(PULL, inline(2, "a > 30"))
        assert (none.code, none.remark, none.ext["nextBeginOffset"], none.body) == (
            ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", "5", b"")
        for text, kind in ((None, "SQL92"), ("a >", "SQL92"), ("a > 3", "SQL93"), ("(" * 9_000, "SQL92")):
            refused = await world.ask(PULL, inline(0, text, kind))
            assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert (refused.remark or "").startswith("parse the consumer's subscription failed: ")
        wanted = world.consumers.find("g", "t")
        assert wanted is not None and wanted.filter is None, "what pulls bring is known, and not kept compiled"


async def test_without_the_key_nobody_filters_by_properties(autojump_clock: MockClock) -> None:
    async with running() as world:
        await world.put_with({"a": "5"})
        await register(world, "a > 3", 7)
        for ext in (inline(0, "a > 3"), inline(0, "a >"), pull(0, sub_version=7)):
            answer = await world.ask(PULL, ext)
            assert (answer.code, answer.remark) == (
                ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92")
        assert (await world.ask(PULL, inline(0, None))).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_pull_that_relies_on_what_heartbeats_registered(autojump_clock: MockClock) -> None:
    async with running(filters=ON) as world:
        await world.put_with({"a": "1"}, {"a": "5"})
        await register(world, "a >", 6)
        missing = await world.ask(PULL, pull(0, sub_version=6))
        assert (missing.code, missing.remark) == (
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!Your expression may be wrong!")
        await register(world, "a > 3", 7)
        assert found(await world.ask(PULL, pull(0, sub_version=7))) == ["5"]
        registered = world.filters.get("g", "t")
        assert registered is not None
        registered.version = 5
        late = await world.ask(PULL, pull(0, sub_version=7))
        assert (late.code, late.remark) == (
            ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        assert (await world.ask(PULL, pull(0, sub_version=8))).code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_groups_have_filters_of_their_own_and_die_with_their_members(autojump_clock: MockClock) -> None:
    async with running(filters=ON) as world:
        await world.put_with({"a": "1"}, {"a": "5"})
        await register(world, "a > 3", 7)
        await register(world, "a < 3", 8, group="h")
        assert found(await world.ask(PULL, pull(0, sub_version=7))) == ["5"]
        assert found(await world.ask(PULL, pull(0, sub_version=8, group="h"))) == ["1"]
        await trio.sleep(1)
        await world.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "g"})
        gone, there = world.filters.get("g", "t"), world.filters.get("h", "t")
        assert gone is not None and gone.dead_ms and there is not None and not there.dead_ms


async def test_clients_ask_whether_their_expression_will_do(autojump_clock: MockClock) -> None:
    for keys, codes in ((ON, (0, 0, 0, 23, 23, 23)), (FilterKeys(), (0, 0, 1, 1, 1, 1))):
        async with running(filters=keys) as world:
            for (kind, text), code in zip((
                    ("TAG", "a >"), (None, "x"), ("SQL92", "a > 3"), ("SQL92", "a >"),
                    ("SQL93", "a > 3"), ("SQL92", None),
            ), codes, strict=True):
                data = SubscriptionData("t", text, expression_type=kind)
                answer = await world.ask(
                    RequestCode.CHECK_CLIENT_CONFIG, body=CheckClientRequestBody("c", "g", data).to_json())
                assert answer.code == code
                assert code != 23 or (answer.remark or "").startswith("Invalid MessageSelector. At character ")


async def test_only_a_message_that_matches_wakes_a_held_pull(autojump_clock: MockClock) -> None:
    async with running(filters=ON) as world, trio.open_nursery() as nursery:
        await register(world, "a > 3", 7)
        answers = []

        async def wait(ext: dict[str, str]) -> None:
            answer = await world.ask(PULL, ext, wire=await world.dial())
            answers.append((trio.current_time(), found(answer)))

        nursery.start_soon(wait, pull(0, sub_version=7, sys_flag=SUSPEND, suspend_timeout_millis=15_000))
        await trio.sleep(1)
        await world.put_with({"a": "1"}, {}, {"a": "x"})
        await trio.sleep(1)
        assert answers == [] and len(world.pulling.holding) == 1
        await world.put_with({"a": "2"}, {"a": "4"})
        assert answers == [(2, ["4"])]


async def test_a_pull_behind_unwanted_messages_is_told_so_in_time(autojump_clock: MockClock) -> None:
    async with running(filters=ON) as world, trio.open_nursery() as nursery:
        answers = []

        async def wait() -> None:
            ext = inline(0, "a > 3", suspend_timeout_millis=15_000)
            answer = await world.ask(PULL, {**ext, "sysFlag": str(SUBSCRIPTION | SUSPEND)}, wire=await world.dial())
            answers.append((trio.current_time(), answer.code, answer.ext["nextBeginOffset"]))

        nursery.start_soon(wait)
        await trio.sleep(1)
        await world.put_with({"a": "1"})
        await trio.sleep(9)
        assert answers == [(5, ResponseCode.PULL_RETRY_IMMEDIATELY, "1")]


async def test_held_pulls_share_a_room_that_their_compiled_expressions_fill(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.waiters.BYTES_MAX", 1 << 20)
    async with running(filters=ON) as world, trio.open_nursery() as nursery:
        codes = []

        async def wait(number: int) -> None:
            text = " OR ".join(f"a = {number}{each}" for each in range(100))
            ext = inline(0, text, suspend_timeout_millis=15_000)
            answer = await world.ask(PULL, {**ext, "sysFlag": str(SUBSCRIPTION | SUSPEND)}, wire=await world.dial())
            codes.append(answer.code)

        for number in range(20):
            nursery.start_soon(wait, number + 10)
        await trio.sleep(1)
        held = len(world.pulling.holding)
        assert 5 <= held < 15 and codes == [ResponseCode.PULL_NOT_FOUND] * (20 - held), "each takes some 100 kB"
        await trio.sleep(20)
        assert len(codes) == 20
        for _ in range(20):
            nursery.start_soon(wait, 5)
        await trio.sleep(1)
        assert len(world.pulling.holding) == 20, "one expression for all of them"


@pytest.mark.parametrize("each", ["a > 5", "a > 5 AND b > 5 AND c > 5 AND d > 5 AND e > 5"])
async def test_a_long_expression_is_evaluated_once_for_all_pulls_that_wait_with_it(
    autojump_clock: MockClock, each: str,
) -> None:
    async with running(filters=ON) as world, trio.open_nursery() as nursery:
        text, answers = " OR ".join([each] * 50), list[list[str]]()
        expression = compiled(text)
        run, asked = expression._run, list[Any]()

        def noting(values: Any) -> Any:
            asked.append(values)
            return run(values)

        expression._run = noting

        async def wait() -> None:
            ext = inline(0, text, suspend_timeout_millis=15_000)
            answers.append(found(await world.ask(
                PULL, {**ext, "sysFlag": str(SUBSCRIPTION | SUSPEND)}, wire=await world.dial())))

        for _ in range(20):
            nursery.start_soon(wait)
        await trio.sleep(1)
        await world.put_with({"a": "1"})
        await trio.sleep(1)
        assert (len(world.pulling.holding), len(asked)) == (20, 1)
        await world.put_with({"a": "x", "b": "2"}, {"a": "7", "b": "7", "c": "7", "d": "7", "e": "7"})
        await trio.sleep(1)
        assert answers == [["7"]] * 20


@pytest.mark.parametrize(("keys", "wanted"), [(ON, ["1", "5", "2", "7"]), (RETRIES, ["5", "2", "7"])])
async def test_retries_pass_the_filter_again_where_that_is_configured(
    autojump_clock: MockClock, keys: FilterKeys, wanted: list[str],
) -> None:
    """Those of a topic that the group does not filter, and what names none, are not touched."""
    async with running(filters=keys) as world:
        await register(world, "a > 3", 7)
        world.topics.update([TopicConfig("%RETRY%g", 1, 1), TopicConfig("%RETRY%h", 1, 1)])
        for topic in ("%RETRY%g", "%RETRY%h"):
            await world.put_with({"a": "1", "RETRY_TOPIC": "t"}, {"a": "5", "RETRY_TOPIC": "t"},
                                 {"a": "2", "RETRY_TOPIC": "u"}, {"a": "7"}, topic=topic)
        assert found(await world.ask(PULL, pull(0, topic="%RETRY%g", sub_version=1))) == wanted
        assert found(await world.ask(PULL, inline(0, "*", "TAG", topic="%RETRY%g"))) == wanted
        assert found(await world.ask(PULL, inline(0, "*", "TAG", topic="%RETRY%h", group="h"))) == ["1", "5", "2", "7"]


# --- reading -----------------------------------------------------------------------------------------------------


def sql(text: str) -> Subscribed:
    return Subscribed(SubscriptionData("t", text, expression_type="SQL92"), None, False, compiled(text))


def test_a_cheap_expression_is_evaluated_for_all_entries_of_a_pull_and_a_long_one_for_some() -> None:
    assert compiled("a > 3").cost == 1
    assert compiled("a > 3" + " " * 10_000).cost == 40


async def test_one_pull_looks_at_so_much_and_the_next_goes_on(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(filters=ON) as world:
        await world.put_with(*({"a": str(number)} for number in range(40)))

        def look(text: str, offset: int = 0, **changes: Any) -> tuple[Status, int, int]:
            got = read_filtered(world.journal.messages, b"t", 0, offset, wanted=sql(text), config=changes.pop(
                "config", ReadConfig()), **changes)
            return got.status, got.count, got.next_offset

        assert look("a < 0") == (Status.NO_MATCHED_MESSAGE, 0, 40)
        assert look("a >= 0") == (Status.FOUND, 32, 32)
        assert look("a >= 0", count=3) == (Status.FOUND, 3, 3)
        assert look("a > 9", count=3) == (Status.FOUND, 3, 13)
        assert look("a >= 0", bytes_max=1) == (Status.FOUND, 1, 1), "one comes, whatever its size"
        assert look("a > 7", bytes_max=1) == (Status.FOUND, 1, 9)
        assert look("a < 0", config=ReadConfig(max_filter_message_size=200)) == (Status.NO_MATCHED_MESSAGE, 0, 32)
        assert look("a = 1", 40) == (Status.OFFSET_OVERFLOW_ONE, 0, 40)
        assert look("a = 1", 99) == (Status.OFFSET_OVERFLOW_BADLY, 0, 40)
        assert look("a = 1", 99, correct=False) == (Status.OFFSET_OVERFLOW_BADLY, 0, 99)
        monkeypatch.setattr(reading, "_EFFORT", 5)
        assert look("a < 0", 10) == (Status.NO_MATCHED_MESSAGE, 0, 15)
        assert look("a < 0" + " " * 512, 10) == (Status.NO_MATCHED_MESSAGE, 0, 12)
        monkeypatch.setattr(reading, "_EFFORT", 5_000)
        monkeypatch.setattr(reading, "_EXAMINED_BYTES", 100)
        assert look("a < 0", 10) == (Status.NO_MATCHED_MESSAGE, 0, 40), "what was read at once is looked at"
        monkeypatch.setattr(filtering, "_NEAR_BYTES", -1)
        assert look("a < 0", 10) == (Status.NO_MATCHED_MESSAGE, 0, 12)
        assert look("a < 0", 39) == (Status.NO_MATCHED_MESSAGE, 0, 40)


async def test_several_reads_share_the_effort_of_one_request(autojump_clock: MockClock) -> None:
    async with running(filters=ON) as world:
        await world.put_with(*({"a": str(number)} for number in range(40)))
        messages, effort = world.journal.messages, Effort(25, 1 << 20)

        def read_one(offset: int, text: str | None, count: int = 32) -> int:
            if text is None:
                return read(messages, b"t", 0, offset, codes={5}, config=ReadConfig(), effort=effort).next_offset
            return read_filtered(messages, b"t", 0, offset, wanted=sql(text), count=count, config=ReadConfig(),
                                 effort=effort).next_offset

        assert (read_one(0, "a > 3", count=4), effort.left, effort.is_spent) == (8, 17, False)
        assert (read_one(35, "a < 0" + " " * 256), effort.left) == (40, 7)
        assert (read_one(19, None), effort.left) == (40, 4)
        assert read_one(99, "a < 0") == 40 and read_one(40, None) == 40 and effort.left == 4, "out of range"
        assert (read_one(0, "a < 0" + " " * 256), effort.left, effort.is_spent) == (2, 0, True)
        effort.left, left = 100, effort.bytes_left
        assert 0 < left < 1 << 20
        effort.bytes_left = 0
        assert (read_one(0, "a < 0"), effort.is_spent) == (40, True), "what was read at once is looked at"


async def test_what_takes_longer_is_done_for_fewer_messages(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(filters=ON) as world:
        await world.put_with(*({"a": str(number)} for number in range(40)))
        for number in range(10):
            await world.put_with({"a": "-" * number * 256})

        def look(text: str, offset: int, work: int) -> tuple[int, int]:
            effort = Effort(work)
            return read_filtered(world.journal.messages, b"t", 0, offset, wanted=sql(text), config=ReadConfig(),
                                 effort=effort).next_offset, effort.left

        assert look("a < 0", 0, 15) == (15, 0)
        assert look(" OR ".join(["a < -1"] * 25), 0, 15) == (2, -1)
        assert look("a < 0", 35, 100) == (50, 100 - 15 - sum(range(2, 10))), "long properties are more to look at"
        assert look("a < 0", 40, 20) == (46, -6)
        assert look("a < 0", 44, 1) == (45, -4), "one is looked at, whatever it takes"


async def test_a_filter_for_retries_costs_as_much_as_the_dearest_of_its_group(autojump_clock: MockClock) -> None:
    async with running(filters=ON) as world:
        await world.heartbeat("g", "t", subscription_data_set=[
            SubscriptionData("t", "a > 3", sub_version=7, expression_type="SQL92"),
            SubscriptionData("u", " OR ".join(["a > 3"] * 1_000), sub_version=7, expression_type="SQL92")])
        dearest = world.filters.get("g", "u")
        assert dearest is not None and filtering.RetryFilter(world.filters, "g").cost > dearest.expression.cost > 200


async def test_records_come_whole_from_anywhere_in_the_log(autojump_clock: MockClock) -> None:
    """Long ones and short ones, beside those of another queue, across files of the log."""
    async with running(filters=ON) as world:
        for number in range(60):
            body = b"b" * (number % 7 * 3_000)
            await world.put_with({"a": str(number)}, queue_id=0, body=body)
            await world.put_with({"a": "0"}, queue_id=1, body=b"c" * (number % 3 * 4_000))
        got, offset = [], 0
        while offset < 60:
            answer = await world.ask(PULL, inline(offset, "a > 29 AND a <> 31"))
            offset = int(answer.ext["nextBeginOffset"])
            got += [(int(record.queue_offset), len(record.message.body)) for record in decode_all(answer.body)]
        assert got == [(number, number % 7 * 3_000) for number in range(30, 60) if number != 31]


async def test_a_queue_that_points_at_no_messages_is_told_of(autojump_clock: MockClock) -> None:
    async with running(filters=ON) as world:
        await world.put_with({"a": "1"}, {"a": "2"})
        queue = world.journal.messages.queue(b"t", 0)
        assert queue is not None
        entry = queue.read
        for where, size in ((5, 100), (0, 3)):
            raw = ENTRY.pack(where, size, 0)
            queue.read = lambda offset, count, raw=raw: raw  # type: ignore[method-assign, misc]
            with pytest.raises(DamagedRecord, match="queue 0 of t is damaged at place 0"):
                read_filtered(world.journal.messages, b"t", 0, 0, wanted=sql("a = 1"), config=ReadConfig())
        queue.read = entry  # type: ignore[method-assign]
