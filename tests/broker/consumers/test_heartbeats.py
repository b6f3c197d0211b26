"""Clients come and go, and the others of their group hear of it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.consumers import ClientsConfig
from broker.groups import GroupsConfig
from broker.standing import Role
from broker.store.tables import SubscriptionGroup
from harness.simulation.worlds.streams import Wire
from remoting.bodies.consumers import CheckClientRequestBody, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from tests.broker.consumers.world import World, running

SUB_CHANGE, V2 = "IS_SUB_CHANGE", "IS_SUPPORT_HEART_BEAT_V2"


async def told(world: World, wire: Wire) -> list[str]:
    """Groups of the messages 40 that have come to ``wire`` since this was asked last."""
    found = [push for to, push in world.pushed if to is wire]
    world.pushed = [(to, push) for to, push in world.pushed if to is not wire]
    with trio.move_on_after(0.001):
        while (push := await wire.receive()) is not None:
            found.append(push)
    assert all(push.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and push.is_oneway for push in found)
    return [push.ext["consumerGroup"] for push in found]


def members(world: World, group: str = "g") -> list[str]:
    found = world.consumers.groups.get(group)
    return found.client_ids() if found is not None else []


async def test_a_first_heartbeat_makes_group_and_retry_topic(autojump_clock: MockClock) -> None:
    async with running() as world:
        answer = await world.heartbeat("g", "t", unit_mode=True)
        assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {V2: "true", SUB_CHANGE: "true"})
        assert world.groups.get("g") == SubscriptionGroup("g")
        retry = world.topics.get("%RETRY%g")
        assert retry is not None and (retry.read_queue_nums, retry.topic_sys_flag) == (1, 2)
        assert (members(world), list(world.producers.groups)) == (["c1"], ["p-g"])


async def test_a_group_that_may_not_be_made_is_passed_over(autojump_clock: MockClock) -> None:
    async with running(groups=GroupsConfig(auto_create_subscription_group=False)) as world:
        assert (await world.heartbeat("g", "t")).code == ResponseCode.SUCCESS
        assert (members(world), world.topics.get("%RETRY%g"), list(world.producers.groups)) == ([], None, ["p-g"])


async def test_a_slave_makes_nothing_and_knows_its_clients(autojump_clock: MockClock) -> None:
    async with running() as world:
        world.standing.role = Role.slave(1)
        await world.heartbeat("g", "t")
        assert (members(world), world.groups.get("g"), world.topics.get("%RETRY%g")) == (["c1"], None, None)


async def test_the_others_hear_at_once_of_who_comes_and_goes(autojump_clock: MockClock) -> None:
    async with running() as world:
        one, two, three = [await world.dial() for _ in range(3)]
        await world.heartbeat("g", "t", client="a", wire=one)
        await trio.sleep(1)
        assert await told(world, one) == ["g"], "of itself"
        await world.heartbeat("g", "t", client="b", wire=two)
        await world.heartbeat("h", "t", client="b", wire=two)
        assert (await told(world, one), await told(world, two)) == (["g"], [])
        await trio.sleep(1)
        assert (await told(world, one), sorted(await told(world, two))) == ([], ["g", "h"])
        await world.heartbeat("g", "t", client="a", wire=one)
        await trio.sleep(1)
        assert (await told(world, one), await told(world, two)) == ([], []), "nothing new"
        await world.heartbeat("g", "t", "u", client="a", wire=one)
        assert (await told(world, one), await told(world, two)) == ([], ["g"]), "another topic"
        await trio.sleep(1)
        assert (await told(world, one), await told(world, two)) == (["g"], [])
        await world.heartbeat("g", "t", client="c", wire=three)
        await world.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "g"}, wire=three)
        await trio.sleep(1)
        assert (set(await told(world, one)), await told(world, three), members(world)) == ({"g"}, [], ["a", "b"])
        await two.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert (await told(world, one), members(world), members(world, "h")) == (["g"], ["a"], [])
        assert list(world.producers.groups) == ["p-g"]


async def test_whose_heartbeat_makes_a_change_hears_of_it_half_a_second_later_once(autojump_clock: MockClock) -> None:
    """A lite pull consumer of Java takes no queues until it is told."""
    async with running() as world:
        one, two = [await world.dial() for _ in range(2)]
        await world.heartbeat("g", "t", client="a", wire=one)
        beat_at = trio.current_time()
        await world.heartbeat("g", "t", client="b", wire=two)
        push = await one.receive()
        assert push is not None and push.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert trio.current_time() - beat_at == pytest.approx(0.5)
        await trio.sleep(60)
        assert (await told(world, one), await told(world, two)) == ([], ["g"])


async def test_nobody_is_told_while_it_sends_heartbeats(autojump_clock: MockClock) -> None:
    """With several brokers, told in between, a Java client raises its version, which not all hear of: no pull for 30 s.

    Others join meanwhile, and its heartbeats say again what they said.
    """
    async with running() as world:
        one, two = [await world.dial() for _ in range(2)]
        for _ in range(4):
            await world.heartbeat("g", "t", client="a", wire=one)
            await trio.sleep(0.2)
            await world.heartbeat("g", "t", client="b", wire=two)
            await trio.sleep(0.2)
            assert await told(world, one) == []
        await trio.sleep(0.2)
        assert await told(world, one) == ["g"], "its last heartbeat is over for half a second"
        await trio.sleep(60)
        assert (await told(world, one), await told(world, two)) == ([], ["g"])


async def test_consumers_that_start_together_hear_of_each_other_at_once(autojump_clock: MockClock) -> None:
    """Else the first one reads what is sent meanwhile, and the others read it again.

    A Java client asks who is in its group (38) behind its heartbeats. As its queues change it sends a newer version."""
    async with running() as world:
        one, two, three, four = [await world.dial() for _ in range(4)]
        await world.heartbeat("g", "t", client="a", version=1, wire=one)
        await world.heartbeat("g", "t", client="b", version=9, wire=two)
        assert (await told(world, one), await told(world, two)) == ([], []), "they may be in the middle of heartbeats"
        await world.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}, wire=one)
        assert (await told(world, one), await told(world, two)) == (["g"], [])
        await world.heartbeat("g", "t", client="a", version=2, wire=one)
        await world.heartbeat("g", "t", client="c", version=11, wire=three)
        assert (await told(world, one), await told(world, two)) == (["g"], []), "newer than its last"
        await world.heartbeat("g", "t", client="b", version=10, wire=two)
        assert await told(world, two) == ["g"], "what waited"
        await world.heartbeat("g", "t", client="b", version=10, wire=two)
        await world.heartbeat("g", "t", client="d", version=12, wire=four)
        assert (await told(world, one), await told(world, two)) == (["g"], []), "a round that says nothing new"
        await trio.sleep(0.05)
        assert [await told(world, wire) for wire in (one, two, three, four)] == [[], ["g"], [], []]
        await trio.sleep(60)
        assert [await told(world, wire) for wire in (one, two, three, four)] == [[], [], ["g"], ["g"]]


async def test_heartbeats_without_subscriptions_say_nothing_of_queues(autojump_clock: MockClock) -> None:
    async with running() as world:
        one, two = [await world.dial() for _ in range(2)]
        await world.heartbeat("g", "t", client="a", version=5, fingerprint=7, wire=one)
        await trio.sleep(60)
        assert await told(world, one) == ["g"]
        await world.heartbeat("g", client="a", fingerprint=7, without=True, wire=one)
        await world.heartbeat("g", "t", client="a", version=5, fingerprint=7, wire=one)
        await world.heartbeat("g", "t", client="b", version=5, fingerprint=7, wire=two)
        assert await told(world, one) == [], "its version is the one that it had"


async def test_who_asks_for_a_group_that_it_is_not_in_hears_nothing(autojump_clock: MockClock) -> None:
    async with running() as world:
        await world.heartbeat("g", "t", client="a", wire=await world.dial())
        for name in ("g", "nobody"):
            await world.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": name})
        assert await told(world, world.wire) == []


async def test_a_client_that_never_stops_sending_heartbeats_is_told_after_two_seconds(
    autojump_clock: MockClock
) -> None:
    async with running() as world:
        one = await world.dial()
        for _ in range(9):
            await world.heartbeat("g", "t", client="a", wire=one)
            assert await told(world, one) == []
            await trio.sleep(0.2)
        await world.heartbeat("g", "t", client="a", wire=one)
        await trio.sleep(0.2)
        assert await told(world, one) == ["g"]


@pytest.mark.parametrize("quiet", ["broadcasting", "group", "broker"])
async def test_groups_that_want_to_hear_nothing(autojump_clock: MockClock, quiet: str) -> None:
    clients = ClientsConfig(notify_consumer_ids_changed_enable=quiet != "broker")
    async with running(clients=clients) as world:
        world.groups.update([SubscriptionGroup("g", notify_consumer_ids_changed_enable=quiet != "group")])
        model = "0" if quiet == "broadcasting" else "CLUSTERING"
        one, two = [await world.dial() for _ in range(2)]
        for client, wire in (("a", one), ("b", two)):
            await world.heartbeat("g", "t", client=client, wire=wire, message_model=model)
        await trio.sleep(1)
        assert (await told(world, one), await told(world, two), members(world)) == ([], [], ["a", "b"])


async def test_silence_ends_a_membership_and_an_idle_connection(autojump_clock: MockClock) -> None:
    clients = ClientsConfig(channel_expired_timeout=30_000)
    async with running(clients=clients) as world:
        busy, silent = [await world.dial() for _ in range(2)]
        await world.heartbeat("g", "t", client="silent", wire=silent)
        await world.heartbeat("h", "t", client="silent", wire=silent)
        for _ in range(3):
            await world.heartbeat("g", "t", client="busy", wire=busy)
            await world.heartbeat("h", "t", client="silent", wire=silent)
            await trio.sleep(15)
        assert (members(world), members(world, "h")) == (["busy"], ["silent"]), "each of its groups alone"
        assert not (await world.heartbeat("h", client="silent", wire=silent)).code
        await trio.sleep(45)
        assert (members(world), members(world, "h"), world.producers.groups) == ([], [], {})
        await trio.sleep(1)
        with trio.fail_after(1):
            while await silent.receive() is not None:
                pass  # then it is closed


async def test_heartbeats_without_subscriptions_are_taken_where_those_are_known(autojump_clock: MockClock) -> None:
    async with running() as world:
        blind = await world.heartbeat("g", client="a", fingerprint=7, without=True)
        assert (blind.ext[SUB_CHANGE], members(world)) == ("true", ["a"]), "it must bring them"
        assert (await world.heartbeat("g", "t", client="a", fingerprint=7)).ext[SUB_CHANGE] == "false"
        assert (await world.heartbeat("g", client="a", fingerprint=7, without=True)).ext[SUB_CHANGE] == "false"
        assert list(world.consumers.groups["g"].subscriptions) == ["t"], "they stay"
        assert (await world.heartbeat("g", client="a", fingerprint=8, without=True)).ext[SUB_CHANGE] == "true"


async def test_a_newer_subscription_replaces_an_older_one_and_never_the_other_way(autojump_clock: MockClock) -> None:
    async with running() as world:
        for version, expression, expected in ((5, "a", "a"), (4, "b", "a"), (6, "b || c", "b || c")):
            await world.heartbeat("g", "t", version=version, expression=expression)
            wanted = world.consumers.find("g", "t")
            assert wanted is not None and wanted.data.sub_string == expected
            assert wanted.codes == frozenset(map(ord, expected.replace(" || ", "")))


async def test_expressions_are_checked_before_a_consumer_starts(autojump_clock: MockClock) -> None:
    async with running() as world:
        for kind, code in (("TAG", 0), (None, 0), ("SQL92", 1)):
            body = CheckClientRequestBody("c", "g", SubscriptionData("t", "x", expression_type=kind)).to_json()
            assert (await world.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)).code == code


async def test_nonsense_is_answered_in_words(autojump_clock: MockClock) -> None:
    async with running() as world:
        for body in (b"", b"[]", b'{"clientID":"a","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[5]}]}'):
            answer = await world.ask(RequestCode.HEART_BEAT, body=body)
            assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
        assert members(world) == []


async def test_what_fastjson_and_clients_in_other_languages_send(autojump_clock: MockClock) -> None:
    """Numbers for enums, a version in a string, null sets."""
    async with running() as world:
        body = (b'{"clientID":"x@1","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g",'
                b'"messageModel":1,"subscriptionDataSet":[{"classFilterMode":false,"codeSet":["97"],'
                b'"subString":"a","subVersion":"1700000000000","tagsSet":["a"],"topic":"t"}],"unitMode":false}],'
                b'"producerDataSet":null}')
        assert (await world.ask(RequestCode.HEART_BEAT, body=body)).code == ResponseCode.SUCCESS
        group = world.consumers.groups["g"]
        assert (group.consume_type, group.message_model, group.consume_from_where) == (
            "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
        assert group.subscriptions["t"].codes == frozenset({97})


async def test_a_producer_that_says_another_id_leaves_its_former_ones(autojump_clock: MockClock) -> None:
    """Each of them stayed for as long as the connection did."""
    async with running() as world:
        producers = world.producers
        for number in range(50):
            await world.heartbeat("g", client=f"c{number}")
        assert list(producers._clients) == ["c49"] and producers.client("c48") is None
        await world.heartbeat("h", client="d")
        assert list(producers._clients) == ["c49", "d"], "one connection may carry several"
        await world.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c49", "producerGroup": "p-g"})
        assert list(producers._clients) == ["d"]
        again = await world.dial()
        await world.heartbeat("h", client="d", wire=again)
        await world.wire.stream.aclose()
        await wait_all_tasks_blocked()
        assert producers.client("d") is next(iter(producers.groups["p-h"])), "the one that is there"
        await again.stream.aclose()
        await wait_all_tasks_blocked()
        assert not producers.groups and not producers._clients and not producers._ids and not producers._of


async def test_the_newer_of_two_connections_of_one_producer_may_go_first(autojump_clock: MockClock) -> None:
    """Then the other one's end found no id to forget: it ended with a ``KeyError``, before other parts heard of it."""
    async with running() as world:
        newer = await world.dial()
        for wire in (world.wire, newer):
            await world.heartbeat("g", client="d", wire=wire)
        for wire in (newer, world.wire):
            await wire.stream.aclose()
            await wait_all_tasks_blocked()
        assert not world.producers.groups and not world.producers._clients
