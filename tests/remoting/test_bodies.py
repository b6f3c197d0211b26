"""Bodies beyond what golden frames show: the compressed registration and its limits, and Java's shapes and odd ends."""

from __future__ import annotations

import json
import struct
import zlib

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.bodies import (
    BrokerData,
    BrokerMemberGroup,
    BrokerNames,
    DataVersion,
    ElectMasterResponseBody,
    EpochEntry,
    EpochEntryCache,
    GetBrokerMemberGroupResponseBody,
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
    QueueData,
    RegisterBrokerBody,
    SyncStateSet,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from remoting.errors import BodyError

NAME = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" "), min_size=1, max_size=8)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


# --- registrations -------------------------------------------------------------------------------------------


def int_and(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


VERSION = b'{"counter":3,"stateVersion":1,"timestamp":7}'
TOPIC = b'T 8 4 6 SINGLE_TAG {"+message.type":"FIFO"}'
PACKED = int_and(VERSION) + struct.pack(">i", 1) + int_and(TOPIC) + int_and(b'["h:1"]') + struct.pack(">i", 0)
BODY = RegisterBrokerBody(
    TopicConfigSerializeWrapper(
        {"T": TopicConfig("T", 8, 4, 6, attributes={"+message.type": "FIFO"})}, DataVersion(1, 7, 3)
    ), ["h:1"],
)


def test_compressed_form_is_javas() -> None:
    assert RegisterBrokerBody.decode(zlib.compress(PACKED), compressed=True) == BODY
    assert zlib.decompress(BODY.encode(compressed=True)) == PACKED


def test_brokers_before_5_send_neither_attributes_nor_mappings() -> None:
    packed = int_and(VERSION) + struct.pack(">i", 1) + int_and(b"T 8 4 6 MULTI_TAG") + int_and(b"[]")
    body = RegisterBrokerBody.decode(zlib.compress(packed), compressed=True)
    wrapper = body.topic_config_serialize_wrapper
    assert wrapper.topic_config_table == {"T": TopicConfig("T", 8, 4, 6, "MULTI_TAG")}
    assert (wrapper.topic_queue_mapping_info_map, body.filter_server_list) == ({}, [])


@given(
    st.dictionaries(NAME, st.tuples(INT32, INT32, INT32, st.dictionaries(NAME, NAME, max_size=2)), max_size=3),
    st.builds(DataVersion, INT64, INT64, INT64), st.lists(NAME, max_size=2),
    st.dictionaries(NAME, st.tuples(INT32, st.dictionaries(INT32, INT32, max_size=2)), max_size=2),
)
def test_registrations_come_back_in_both_forms(
    topics: dict[str, tuple[int, int, int, dict[str, str]]], version: DataVersion, filters: list[str],
    mappings: dict[str, tuple[int, dict[int, int]]],
) -> None:
    body = RegisterBrokerBody(
        TopicConfigSerializeWrapper(
            {name: TopicConfig(name, read, write, perm, attributes=attributes)
             for name, (read, write, perm, attributes) in topics.items()},
            version,
            {name: TopicQueueMappingInfo(name, total_queues=total, curr_id_map=ids)
             for name, (total, ids) in mappings.items()},
        ), filters,
    )
    for compressed in (False, True):
        assert RegisterBrokerBody.decode(body.encode(compressed=compressed), compressed=compressed) == body


def test_what_the_compressed_form_has_no_place_for() -> None:
    for topic in (TopicConfig("a b"), TopicConfig("a", attributes={"k": "v w"})):
        body = RegisterBrokerBody(TopicConfigSerializeWrapper({topic.topic_name: topic}))
        with pytest.raises(BodyError, match="must have no space"):
            body.encode(compressed=True)


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (b"", "ends where a number is needed"),
        (b"\0\0\0", "ends where a number is needed"),
        (struct.pack(">i", -1), "a block of -1 bytes where 0 are left"),
        (struct.pack(">i", 5) + b"abcd", "a block of 5 bytes where 4 are left"),
        (int_and(b"x"), "body makes no sense"),
        (int_and(b"[]"), "DataVersion is list"),
        (int_and(VERSION) + struct.pack(">i", 2**31 - 1), "ends where a number is needed"),
        (int_and(VERSION) + struct.pack(">i", 1) + int_and(b"\xff"), "a topic that is not UTF-8"),
        (int_and(VERSION) + struct.pack(">i", 1) + int_and(b"T 8 4 6"), "'T 8 4 6' is no topic"),
        (int_and(VERSION) + struct.pack(">i", 1) + int_and(b"T 8 x 6 M"), "is no topic"),
        (int_and(VERSION) + struct.pack(">i", 1) + int_and(b" 8 4 6 M"), "is no topic"),
        (int_and(VERSION) + struct.pack(">i", 1) + int_and(b"T 9999999999 4 6 M"), "TopicConfig.readQueueNums is"),
        (int_and(VERSION) + struct.pack(">i", 1) + int_and(b"T 8 4 6 M []"), "TopicConfig.attributes is list"),
        (int_and(VERSION) + struct.pack(">i", 0) + int_and(b"{}"), "RegisterBrokerBody.filterServerList is dict"),
        (int_and(VERSION) + struct.pack(">i", 0) + int_and(b"[]") + struct.pack(">i", 1), "ends where a number"),
    ],
)
def test_damaged_registrations(packed: bytes, says: str) -> None:
    with pytest.raises(BodyError, match=says.replace("[", r"\[")):
        RegisterBrokerBody.decode(zlib.compress(packed), compressed=True)


def test_decompression_is_bounded() -> None:
    bomb = zlib.compress(bytes(10_000_000), 9)
    with pytest.raises(BodyError, match="makes more than 1000000 bytes"):
        RegisterBrokerBody.decode(bomb, compressed=True, bytes_max=1_000_000)
    packed = zlib.compress(PACKED)
    assert RegisterBrokerBody.decode(packed, compressed=True, bytes_max=len(PACKED)) == BODY
    with pytest.raises(BodyError, match="makes more than"):
        RegisterBrokerBody.decode(packed, compressed=True, bytes_max=len(PACKED) - 1)
    for damaged, says in ((packed[:-5], "ends too early"), (b"{}", "cannot be decompressed"), (b"", "ends too early")):
        with pytest.raises(BodyError, match=says):
            RegisterBrokerBody.decode(damaged, compressed=True)


# --- the controller's ----------------------------------------------------------------------------------------


def test_sync_state_sets() -> None:
    assert SyncStateSet(frozenset({2, 1}), 5).to_json() == b'{"syncStateSet":[1,2],"syncStateSetEpoch":5}'
    assert SyncStateSet.from_json(b'{"syncStateSet":["1",2]}') == SyncStateSet(frozenset({1, 2}), 0)
    large = b'{"syncStateSet":[%b1]}' % (b"1," * 50_000)
    assert SyncStateSet.from_json(large, 200_000).sync_state_set == {1}
    with pytest.raises(BodyError, match="body of 100020 bytes; 65536 are allowed"):
        SyncStateSet.from_json(large)
    with pytest.raises(BodyError, match=r"SyncStateSet\.syncStateSet is missing"):
        SyncStateSet.from_json(b'{"syncStateSetEpoch":5}')


def test_an_election_answers_old_tools_too() -> None:
    members = BrokerMemberGroup("c", "b", {1: "h:1", 2: "h:2"})
    raw = ElectMasterResponseBody(frozenset({2}), members).to_json()
    assert BrokerMemberGroup.from_json(raw) == members
    assert ElectMasterResponseBody.from_json(raw) == ElectMasterResponseBody(frozenset({2}), members)
    assert ElectMasterResponseBody(frozenset({2})).to_json() == b'{"syncStateSet":[2]}'


def test_member_groups_with_bare_keys() -> None:
    raw = b'{"brokerMemberGroup":{"brokerAddrs":{0:"h:1",12:"h:2"},"brokerName":"b","cluster":"c"}}'
    group = GetBrokerMemberGroupResponseBody(BrokerMemberGroup("c", "b", {0: "h:1", 12: "h:2"}))
    assert GetBrokerMemberGroupResponseBody.from_json(raw) == group
    assert json.loads(group.to_json())["brokerMemberGroup"]["brokerAddrs"] == {"0": "h:1", "12": "h:2"}


def test_broker_names() -> None:
    assert BrokerNames.from_json(BrokerNames(["b", "a"]).to_json()).names == ["b", "a"]
    for raw, says in ((b"{}", "broker names are dict"), (b'["a",1]', "broker name 1 is 1"), (b"[null]", "is None")):
        with pytest.raises(BodyError, match=says):
            BrokerNames.from_json(raw)


def test_epochs_without_an_end_still_grow() -> None:
    cache = EpochEntryCache.from_json(b'{"epochList":[{"epoch":1,"startOffset":0}],"maxOffset":9}')
    assert cache.epoch_list == [EpochEntry(1, 0, 9_223_372_036_854_775_807)]
    assert json.loads(cache.to_json()) == {
        "brokerId": 0, "epochList": [{"endOffset": 2**63 - 1, "epoch": 1, "startOffset": 0}], "maxOffset": 9,
    }


# --- routes and brokers --------------------------------------------------------------------------------------


def test_routes() -> None:
    route = TopicRouteData(
        [QueueData("b", 8, 8, 6)], [BrokerData("b", "c", {0: "h:1"}, zone_name="zürich")], {"h:1": ["f:1"]}, "b:4",
    )
    assert route.to_json(ascii_only=True) == (
        rb'{"brokerDatas":[{"brokerAddrs":{"0":"h:1"},"brokerName":"b","cluster":"c","enableActingMaster":false,'
        rb'"zoneName":"z\u00fcrich"}],"filterServerTable":{"h:1":["f:1"]},"orderTopicConf":"b:4","queueDatas":'
        rb'[{"brokerName":"b","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )
    assert TopicRouteData.from_json(route.to_json()) == route
    again = TopicRouteData.from_json(
        b'{"brokerDatas":[{"brokerAddrs":{0:"h:1"},"brokerName":"a"},{"$ref":"$.brokerDatas[0]"}],"queueDatas":null}'
    )
    assert again == TopicRouteData(broker_datas=[BrokerData("a", broker_addrs={0: "h:1"})] * 2)


def test_ha_runtime_info() -> None:
    info = HARuntimeInfo(
        True, 5, 1, [HAConnectionRuntimeInfo("h:1", 4, 1, True, 9, 0)], HAClientRuntimeInfo(is_activated=True)
    )
    plain = json.loads(info.to_json())
    assert plain["haConnectionInfo"][0] == {
        "addr": "h:1", "slaveAckOffset": 4, "diff": 1, "inSync": True, "transferredByteInSecond": 9,
        "transferFromWhere": 0,
    }
    assert plain["haClientRuntimeInfo"]["isActivated"] is True
    assert HARuntimeInfo.from_json(info.to_json()) == info
    assert attrs.evolve(info, master=False) != info
