"""Code 103, rule by rule: who is let in, whose topics count, what is answered and who is told."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from controller.namesrv import tables
from controller.namesrv.effects import BrokerCame, MinIdChanged, RegistrationRefused
from controller.namesrv.requests import FILTERS_MAX, NAME_MAX
from remoting.bodies.namesrv import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.headers.controller import BrokerHeartbeatRequest
from tests.controller.namesrv.fleet import SYSTEM, Fleet, config, consistent, registration, topic


def test_a_broker_is_seen_everywhere_once_it_registered() -> None:
    fleet = Fleet()
    assert fleet.route() is None
    answer = fleet.register("a", 0)
    assert (answer.code, answer.ext, answer.body) == (0, {}, b"")
    route = fleet.route()
    assert route is not None
    assert [attrs.astuple(queue) for queue in route.queue_datas] == [("a", 4, 4, 6, 0)]
    (broker,) = route.broker_datas
    assert (broker.cluster, broker.broker_name, broker.broker_addrs) == ("C", "a", {0: "a0:1"})
    assert fleet.members("a") == {0: "a0:1"}
    assert fleet.cluster().cluster_addr_table == {"C": ["a"]}
    assert fleet.topics() == [SYSTEM, "T"]
    assert fleet.effects == [BrokerCame("C", "a", 0, "a0:1")]


def test_a_slave_is_told_where_its_master_is_while_that_is_registered() -> None:
    fleet = Fleet()
    assert fleet.register("a", 1).ext == {}
    fleet.register("a", 0)
    assert fleet.register("a", 1).ext == {"haServerAddr": "ha-a0:1", "masterAddr": "a0:1"}
    fleet.close("a0:1")
    assert fleet.register("a", 1).ext == {}


def test_an_address_has_one_id() -> None:
    fleet = Fleet()
    fleet.register("a", 1, address="x:1")
    fleet.register("a", 0, address="x:1")
    assert fleet.members("a") == {0: "x:1"}
    fleet.register("a", 2, address="x:1")
    assert fleet.members("a") == {2: "x:1"}


def test_an_address_has_one_group() -> None:
    fleet = Fleet()
    fleet.register("a", 0, address="x:1", topics=["A"])
    fleet.register("b", 0, address="x:1", topics=["B"])
    assert fleet.addresses("B") == {"b": {0: "x:1"}}
    assert fleet.route("A") is None
    assert fleet.members("a") == {}


@pytest.mark.parametrize("epoch", [3, 4])
def test_a_newer_or_equal_state_version_takes_an_id_over_and_nothing_stays_of_the_former(epoch: int) -> None:
    fleet = Fleet()
    fleet.register("a", 0, address="old:1", epoch=3)
    fleet.register("a", 0, address="new:1", epoch=epoch)
    assert fleet.members("a") == {0: "new:1"}
    assert list(fleet.tables.live) == [("C", "new:1")]
    fleet.close("old:1")
    assert fleet.addresses() == {"a": {0: "new:1"}}


def test_an_older_state_version_is_answered_with_success_and_leaves_the_tables() -> None:
    fleet = Fleet()
    fleet.register("a", 0, address="new:1", epoch=4)
    fleet.register("a", 2, address="old:1", epoch=4)
    answer = fleet.register("a", 0, address="old:1", epoch=3, topics=["T", "U"], acting=True)
    assert (answer.code, answer.ext) == (0, {})
    assert fleet.members("a") == {0: "new:1"}
    assert fleet.route("U") is None
    assert not fleet.tables.groups["a"].acting_master
    assert fleet.effects[-1] == RegistrationRefused("C", "a", 0, "old:1", "outranked")


def test_one_topic_alone_is_refused_until_the_broker_has_registered_and_changes_nothing() -> None:
    fleet = Fleet()
    answer = fleet.register("a", 0, system=False)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "all of its topics" in str(answer.remark)
    assert not fleet.tables.groups
    fleet.register("a", 1)
    assert fleet.register("a", 0, address="a1:1", system=False).code == ResponseCode.SYSTEM_ERROR
    assert fleet.members("a") == {1: "a1:1"}
    fleet.register("a", 0)
    assert fleet.register("a", 0, system=False, topics=["U"], version=2).code == 0
    assert fleet.route("U") is not None


def test_topics_come_from_the_master_and_not_from_its_slaves() -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    fleet.register("a", 1, topics=["S"])
    assert fleet.route("S") is None
    assert fleet.addresses() == {"a": {0: "a0:1", 1: "a1:1"}}


def test_without_a_master_topics_come_from_the_smallest_slave() -> None:
    fleet = Fleet()
    fleet.register("a", 2, topics=["two"])
    assert fleet.addresses("two") == {"a": {2: "a2:1"}}
    fleet.register("a", 1, topics=["one"])
    fleet.register("a", 2, topics=["three"], version=2)
    assert fleet.route("one") is not None
    assert fleet.route("three") is None


def test_a_slave_from_before_acting_master_brings_no_topics() -> None:
    fleet = Fleet()
    fleet.register("a", 1, acting=None)
    assert fleet.route() is None
    assert fleet.members("a") == {1: "a1:1"}


def test_an_acting_master_gives_no_write_permission_and_its_master_restores_it() -> None:
    fleet = Fleet()
    fleet.register("a", 1, acting=True)
    assert fleet.perms() == {"a": 4}
    fleet.register("a", 0, acting=True)
    assert fleet.perms() == {"a": 6}
    fleet.close("a0:1")
    assert fleet.perms() == {"a": 4}
    fleet.register("a", 0, acting=True)
    assert fleet.perms() == {"a": 6}


def test_a_slave_elected_master_restores_it_with_the_data_version_it_had() -> None:
    fleet = Fleet()
    fleet.register("a", 0, acting=True)
    fleet.register("a", 1, acting=True)
    fleet.close("a0:1")
    fleet.register("a", 0, address="a1:1", acting=True)
    assert fleet.perms() == {"a": 6}
    assert fleet.addresses() == {"a": {0: "a1:1"}}


def test_the_same_data_version_changes_no_known_topic_but_brings_an_unknown_one() -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    fleet.register("a", 0, topics=[topic("T", perm=2), "U"])
    assert fleet.perms() == {"a": 6}
    assert fleet.perms("U") == {"a": 6}
    fleet.register("a", 0, topics=[topic("T", perm=2, queues=9)], version=2)
    route = fleet.route()
    assert route is not None
    assert attrs.astuple(route.queue_datas[0]) == ("a", 9, 9, 2, 0)
    assert fleet.route("U") is not None, "what is not named stays"


def test_topics_are_forgotten_where_the_configuration_says_so() -> None:
    fleet = Fleet(config(deleteTopicWithBrokerRegistration=True))
    fleet.register("a", 0, topics=["T", "U"])
    fleet.register("b", 0, topics=["U"])
    fleet.register("a", 0, topics=["T"], version=2)
    assert fleet.addresses("U") == {"b": {0: "b0:1"}}
    fleet.register("b", 0, topics=["T"], version=2)
    assert fleet.route("U") is None


def test_a_slave_that_lags_forgets_no_topic_of_a_lost_master() -> None:
    fleet = Fleet(config(deleteTopicWithBrokerRegistration=True))
    fleet.register("a", 0, topics=["T", "U"])
    fleet.register("a", 1)
    fleet.close("a0:1")
    fleet.register("a", 1, version=2)
    assert fleet.addresses("U") == {"a": {1: "a1:1"}}
    fleet.register("a", 0, address="a1:1", version=3)
    assert fleet.route("U") is None, "the next master's word counts"


@pytest.mark.parametrize("enabled", [True, False])
def test_a_smaller_id_is_told_to_the_others_where_the_configuration_says_so(enabled: bool) -> None:
    fleet = Fleet(config(notifyMinBrokerIdChanged=enabled))
    fleet.register("a", 3)
    fleet.register("a", 2)
    expected = MinIdChanged(("a3:1",), 2, "a2:1", ha_address="ha-a2:1")
    assert fleet.notices() == ([expected] if enabled else [])
    fleet.register("a", 4)
    assert fleet.notices() == []


def test_a_smaller_id_that_is_alone_is_told_itself() -> None:
    fleet = Fleet(config(notifyMinBrokerIdChanged=True))
    fleet.register("a", 1, address="x:1")
    fleet.register("a", 0, address="x:1")
    assert fleet.notices() == [MinIdChanged(("x:1",), 0, "x:1", ha_address="ha-x:1")]


def test_orders_of_topics_are_answered_to_brokers_unless_switched_off() -> None:
    for wanted in (True, False):
        fleet = Fleet(config(returnOrderTopicConfigToBroker=wanted))
        fleet.ask(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4")
        assert fleet.register("a", 0).body == (b'{"table":{"T":"a:4"}}' if wanted else b"")


def test_a_registration_with_nothing_new_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    read: list[bytes] = []
    decode = RegisterBrokerBody.decode.__func__  # type: ignore[attr-defined]  # of a class method

    def counted(cls: type[RegisterBrokerBody], data: bytes, *, compressed: bool = False) -> RegisterBrokerBody:
        read.append(data)
        found: RegisterBrokerBody = decode(cls, data, compressed=compressed)
        return found

    monkeypatch.setattr(RegisterBrokerBody, "decode", classmethod(counted))

    def readings() -> int:
        read.clear()
        for _ in range(3):
            assert fleet.register("a", 0).code == 0
        return len(read)

    assert readings() == 1
    fleet.heartbeat("a0:1")
    assert readings() == 0
    for change in (
        lambda: fleet.register("a", 1),
        lambda: fleet.close("a1:1"),
        lambda: fleet.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T"),
        lambda: fleet.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a"),
        lambda: fleet.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"deleteTopicWithBrokerRegistration=true"),
        lambda: fleet.register("a", 0, topics=["T", "U"]),
        lambda: fleet.register("a", 0, zone="z"),
        lambda: fleet.close("a0:1"),
    ):
        change()
        assert readings() == 1
    fleet.register("a", 0, connection="other")
    fleet.close("a0:1")
    assert fleet.route() is not None, "it may come over another connection"


def test_compressed_and_old_registrations_are_read() -> None:
    fleet = Fleet()
    fleet.register("a", 0, compressed=True)
    assert fleet.perms() == {"a": 6}
    old = registration("b", 0, acting=None, wire_version=36)
    old.body = TopicConfigSerializeWrapper({"U": topic("U"), "V": topic("V")}, DataVersion()).to_json()
    del old.ext["bodyCrc32"]
    assert fleet.hand_over(old, "b").code == 0
    assert fleet.perms("U") == {"b": 6}


def test_a_registration_without_a_body_is_one_without_topics() -> None:
    fleet = Fleet()
    bare = registration("a", 0)
    bare.body = b""
    del bare.ext["bodyCrc32"]
    assert fleet.hand_over(bare).code == 0
    assert fleet.members("a") == {0: "a0:1"}


def test_a_body_that_does_not_match_its_crc_changes_nothing() -> None:
    fleet = Fleet()
    damaged = registration("a", 0)
    damaged.body = damaged.body.replace(b'"T"', b'"U"')
    answer = fleet.hand_over(damaged)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "bodyCrc32 does not match the body")
    assert not fleet.tables.groups
    assert fleet.core.counters.registrations_damaged == 1


def test_a_full_table_takes_nobody_new_and_loses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    monkeypatch.setattr(tables, "REPLICAS_MAX", 1)
    assert fleet.register("b", 0).code == ResponseCode.SYSTEM_BUSY
    assert fleet.register("a", 0, version=2).code == 0
    monkeypatch.setattr(tables, "ROWS_MAX", 4)
    answer = fleet.register("a", 0, version=3, topics=["T", "U", "V"])
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert fleet.addresses() == {"a": {0: "a0:1"}}
    assert sum(fleet.core.counters.registrations_refused.values()) == 2


def test_a_table_is_full_of_characters_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    monkeypatch.setattr(tables, "CHARS_MAX", 10_000)
    mapping = TopicQueueMappingInfo("T", total_queues=1_000, bname="b", curr_id_map=dict.fromkeys(range(1_000), 0))
    for large in (
        {"mappings": {"T": mapping}}, {"filters": ["f" * NAME_MAX] * 10},
        {"topics": [f"{each:>1000}" for each in range(10)]},
    ):
        assert fleet.register("b", 0, **large).code == ResponseCode.SYSTEM_BUSY
    for _ in range(1_000):  # what leaves is not counted
        assert fleet.register("b", 0, filters=["f" * NAME_MAX], zone="z" * NAME_MAX).code == 0
        assert fleet.register("b", 0, filters=["f" * NAME_MAX] * 2, version=2).code == 0
        fleet.close("b0:1")
    consistent(fleet.tables)


@pytest.mark.parametrize("large", [
    {"zone": "z" * (NAME_MAX + 1)}, {"filters": ["f" * (NAME_MAX + 1)]}, {"filters": ["f"] * (FILTERS_MAX + 1)}])
def test_what_would_be_kept_of_any_size_is_refused(large: dict[str, Any]) -> None:
    fleet = Fleet()
    assert fleet.register("a", 0, **large).code == ResponseCode.SYSTEM_ERROR
    assert not fleet.tables.groups


def test_fields_that_nobody_knows_are_not_kept() -> None:
    fleet = Fleet()
    for field in ("x", "y"):
        command = registration("a", 0)
        command.ext["junk"] = field * 1_000_000
        assert fleet.hand_over(command).code == 0
    (replica,) = fleet.tables.live.values()
    assert replica.chars < 100 and "y" * 100 not in repr(replica.settled)
    beat = request(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequest("C", "a0:1", "a"))
    beat.ext["junk"] = "x" * 1_000_000
    assert fleet.hand_over(beat).code == 0 and replica.beat is None
    del beat.ext["junk"]
    assert fleet.hand_over(beat).code == 0 and replica.beat is not None


def test_a_cluster_that_is_renamed_broker_by_broker_leaves_no_trace_of_its_old_name() -> None:
    fleet = Fleet()
    fleet.register("a", 0, cluster="old")
    fleet.register("a", 1, cluster="old")
    fleet.register("a", 0, cluster="new", connection="again")
    assert fleet.cluster().cluster_addr_table == {"new": ["a"], "old": ["a"]}
    fleet.register("a", 1, cluster="new", connection="again")
    assert fleet.cluster().cluster_addr_table == {"new": ["a"]}
    route = fleet.route()
    assert route is not None
    assert route.broker_datas[0].cluster == "new"
