"""Code 105: what a route holds, above all between the loss of a master and the registration of the next."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from controller.namesrv.routes import SYNC_MEMBER_PREFIX
from remoting.bodies.namesrv import TopicQueueMappingInfo
from remoting.codes import RequestCode, ResponseCode
from tests.controller.namesrv.fleet import Fleet, config, topic


def three(fleet: Fleet, **what: Any) -> Fleet:
    for broker_id in range(3):
        fleet.register("a", broker_id, **what)
    return fleet


# --- after the loss of a master ------------------------------------------------------------------------------


def test_a_lost_master_leaves_its_queues_and_its_slaves() -> None:
    fleet = three(Fleet())
    fleet.close("a0:1")
    assert fleet.perms() == {"a": 6}
    assert fleet.addresses() == {"a": {1: "a1:1", 2: "a2:1"}}
    assert fleet.tables.groups["a"].bereft
    assert fleet.core.counters.masters_lost == 1
    fleet.register("a", 0, address="a1:1", epoch=2)
    assert fleet.addresses() == {"a": {0: "a1:1", 2: "a2:1"}}
    assert not fleet.tables.groups["a"].bereft


def test_a_master_that_fell_silent_leaves_the_same() -> None:
    fleet = Fleet()
    fleet.register("a", 0, timeout_ms=1_000)
    fleet.register("a", 1)
    fleet.pass_to(1_000)
    assert fleet.perms() == {"a": 6}
    assert fleet.addresses() == {"a": {1: "a1:1"}}


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("acting", [True, False, None])
@pytest.mark.parametrize("support", [True, False])
def test_while_a_replica_is_registered_there_is_a_route_with_addresses(
    order: tuple[int, ...], acting: bool | None, support: bool,
) -> None:
    """Whichever replicas are lost, and whichever of them brought the topics."""
    fleet = three(Fleet(config(supportActingMaster=support)), acting=acting)
    for count, lost in enumerate(order[:-1], 1):
        fleet.close(f"a{lost}:1")
        (addresses,) = fleet.addresses().values()
        assert sorted(addresses.values()) == sorted(f"a{left}:1" for left in order[count:])
        assert fleet.perms() == {"a": 4 if acting and 0 in order[:count] else 6}
        fleet.register("a", order[-1], acting=acting)
        assert fleet.addresses() == {"a": addresses}
    fleet.close(f"a{order[-1]}:1")
    assert fleet.route() is None


def test_a_group_whose_only_replica_was_its_master_is_gone() -> None:
    """Nobody lives who could be named: a client keeps the route it has, and other groups serve the topic."""
    fleet = Fleet()
    fleet.register("a", 0)
    fleet.register("b", 0)
    fleet.close("a0:1")
    assert fleet.addresses() == {"b": {0: "b0:1"}}
    fleet.close("b0:1")
    answer = fleet.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "'T'" in str(answer.remark)


def test_a_master_that_takes_leave_of_its_slaves_is_no_loss() -> None:
    fleet = three(Fleet())
    fleet.unregister("a", 0)
    assert fleet.addresses() == {"a": {1: "a1:1", 2: "a2:1"}}
    assert not fleet.tables.groups["a"].bereft
    assert fleet.core.counters.masters_lost == 0
    fleet.unregister("a", 1)
    fleet.unregister("a", 2)
    assert fleet.route() is None


def test_a_slave_that_never_brought_topics_keeps_those_of_the_lost_master() -> None:
    fleet = Fleet()
    fleet.register("a", 0, topics=["T", "U"], acting=None)
    fleet.register("a", 5, topics=["S"], acting=None)
    fleet.close("a0:1")
    assert fleet.addresses("U") == {"a": {5: "a5:1"}}
    fleet.register("a", 5, topics=["S"], acting=None, version=2)
    assert fleet.addresses("U") == {"a": {5: "a5:1"}}


def test_the_new_master_may_come_before_the_old_connection_closes() -> None:
    fleet = three(Fleet(), epoch=1)
    fleet.register("a", 0, address="a1:1", epoch=2)
    assert fleet.addresses() == {"a": {0: "a1:1", 2: "a2:1"}}
    fleet.close("a0:1")
    assert fleet.addresses() == {"a": {0: "a1:1", 2: "a2:1"}}
    assert fleet.register("a", 0, address="a0:1", epoch=1).code == 0
    assert fleet.addresses() == {"a": {0: "a1:1", 2: "a2:1"}}, "the deposed master does not come back as master"


def test_the_old_master_returns_as_a_slave() -> None:
    fleet = three(Fleet())
    fleet.close("a0:1")
    fleet.register("a", 0, address="a1:1", epoch=2)
    fleet.register("a", 1, address="a0:1", epoch=2)
    assert fleet.addresses() == {"a": {0: "a1:1", 1: "a0:1", 2: "a2:1"}}


# --- acting master -------------------------------------------------------------------------------------------


def test_the_smallest_slave_stands_in_where_group_and_configuration_allow_it() -> None:
    fleet = three(Fleet(config(supportActingMaster=True)), acting=True)
    fleet.close("a0:1")
    assert fleet.addresses() == {"a": {0: "a1:1", 2: "a2:1"}}
    assert fleet.perms() == {"a": 4}
    assert fleet.members("a") == {1: "a1:1", 2: "a2:1"}, "brokers see what is"


@pytest.mark.parametrize(("support", "acting", "perm"), [(False, True, 4), (True, False, 6), (True, None, 6)])
def test_nobody_stands_in_where_one_of_them_does_not(support: bool, acting: bool | None, perm: int) -> None:
    fleet = three(Fleet(config(supportActingMaster=support)), acting=acting)
    fleet.close("a0:1")
    assert fleet.addresses() == {"a": {1: "a1:1", 2: "a2:1"}}
    assert fleet.perms() == {"a": perm}


def test_nobody_stands_in_for_queues_that_take_writes() -> None:
    fleet = Fleet(config(supportActingMaster=True))
    fleet.register("a", 1, acting=True)
    fleet.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a")
    assert fleet.addresses() == {"a": {1: "a1:1"}}


def test_members_that_look_for_each_other_see_no_stand_in() -> None:
    name = SYNC_MEMBER_PREFIX + "a"
    fleet = three(Fleet(config(supportActingMaster=True)), acting=True, topics=[name])
    fleet.close("a0:1")
    assert fleet.addresses(name) == {"a": {1: "a1:1", 2: "a2:1"}}


# --- what else is in it --------------------------------------------------------------------------------------


def test_a_topic_in_several_groups_names_them_all() -> None:
    fleet = Fleet()
    fleet.register("b", 0, topics=[topic("T", queues=8)], cluster="D")
    fleet.register("a", 0)
    route = fleet.route()
    assert route is not None
    assert [queue.broker_name for queue in route.queue_datas] == ["a", "b"]
    assert [(broker.broker_name, broker.cluster) for broker in route.broker_datas] == [("a", "C"), ("b", "D")]


def test_order_is_in_it_where_the_configuration_says_so() -> None:
    for wanted in (True, False):
        fleet = Fleet(config(orderMessageEnable=wanted))
        fleet.register("a", 0)
        assert fleet.route() is not None
        fleet.ask(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4")
        route = fleet.route()
        assert route is not None
        assert route.order_topic_conf == ("a:4" if wanted else None)
        fleet.ask(RequestCode.DELETE_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T")
        route = fleet.route()
        assert route is not None
        assert route.order_topic_conf is None


def test_filter_servers_are_in_it_while_their_broker_is() -> None:
    fleet = Fleet()
    fleet.register("a", 0, filters=["f:1", "f:2"])
    route = fleet.route()
    assert route is not None
    assert route.filter_server_table == {"a0:1": ["f:1", "f:2"]}
    fleet.register("a", 0)
    route = fleet.route()
    assert route is not None
    assert route.filter_server_table == {}


def test_static_topics_have_their_mapping_in_it_and_leave_none_behind() -> None:
    fleet = Fleet()
    mapping = TopicQueueMappingInfo("T", total_queues=2, bname="a", epoch=1, curr_id_map={0: 0, 1: 1})
    fleet.register("a", 0, mappings={"T": mapping})
    route = fleet.route()
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"a": mapping}
    bare = fleet.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T", version=400).body
    assert b'"currIdMap":{0:0,1:1}' in bare
    fleet.register("b", 0)
    fleet.close("a0:1")
    assert fleet.route() is not None
    assert not fleet.tables.mappings


def test_groups_of_other_zones_are_left_out_unless_they_have_no_master() -> None:
    fleet = Fleet()
    fleet.register("a", 0, zone="z1", filters=["f:1"])
    fleet.register("b", 0, zone="Z2", filters=["f:2"])
    fleet.register("c", 0, zone="z3")
    fleet.register("c", 1, zone="z3")
    fleet.close("c0:1")
    near = fleet.route(__ZONE_MODE="true", __ZONE_NAME="z2")
    assert near is not None
    assert [broker.broker_name for broker in near.broker_datas] == ["b", "c"]
    assert [queue.broker_name for queue in near.queue_datas] == ["b", "c"]
    assert near.filter_server_table == {"b0:1": ["f:2"]}
    asked: list[dict[str, Any]] = [
        {"__ZONE_MODE": "false", "__ZONE_NAME": "z2"}, {"__ZONE_MODE": "true", "__ZONE_NAME": " "}, {}]
    for ext in asked:
        assert set(fleet.addresses()) == {"a", "b", "c"}
        everything = fleet.route(**ext)
        assert everything is not None
        assert len(everything.broker_datas) == 3


# --- how it is written ---------------------------------------------------------------------------------------


def test_ids_are_bare_numbers_for_clients_before_494_unless_they_ask_otherwise() -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    fleet.register("a", 1)

    def body(version: int, **ext: Any) -> bytes:
        return fleet.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T", version=version, **ext).body

    assert b'"brokerAddrs":{0:"a0:1",1:"a1:1"}' in body(400)
    assert b'"brokerAddrs":{"0":"a0:1","1":"a1:1"}' in body(401)
    assert body(28, acceptStandardJsonOnly="true") == body(513)
    assert b"{0:" in fleet.ask(RequestCode.GET_BROKER_CLUSTER_INFO, version=317).body
    assert b'{"0":' in fleet.ask(RequestCode.GET_BROKER_CLUSTER_INFO, version=513).body


def test_strict_answers_are_ascii() -> None:
    fleet = Fleet()
    fleet.register("a", 0, cluster="集群")
    assert fleet.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body.isascii()
    route = fleet.route()
    assert route is not None
    assert route.broker_datas[0].cluster == "集群"


def test_an_answer_is_encoded_once_until_something_in_it_changes() -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    fleet.register("a", 1)
    counters = fleet.core.counters

    def encodings() -> int:
        before = counters.routes_encoded
        for _ in range(3):
            fleet.route()
        return counters.routes_encoded - before

    assert encodings() == 1
    fleet.register("a", 0)
    fleet.register("a", 1)
    fleet.register("b", 0, topics=["U"], system=True)
    fleet.heartbeat("a0:1")
    assert encodings() == 0
    changes: list[Callable[[], object]] = [
        lambda: fleet.register("a", 2),
        lambda: fleet.register("a", 0, version=2, topics=[topic("T", perm=4)]),
        lambda: fleet.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a"),
        lambda: fleet.register("a", 2, zone="z"),
        lambda: fleet.register("a", 2, zone="z", acting=True),
        lambda: fleet.close("a0:1"),
        lambda: fleet.register("b", 0, version=2),
        lambda: fleet.unregister("b", 0),
        lambda: fleet.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"supportActingMaster=true"),
    ]
    for number, change in enumerate(changes):
        change()
        assert encodings() == 1, number


def test_routes_wait_for_brokers_where_the_configuration_says_so() -> None:
    fleet = Fleet(config(needWaitForService=True, waitSecondsForService=45))
    fleet.register("a", 0)
    fleet.pass_to(44_999)
    answer = fleet.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    fleet.pass_to(45_000)
    assert fleet.route() is not None
