"""The broker's configuration: RocketMQ's keys, their relations, and what each part is told of them."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import broker
from broker import settings
from broker.config import (
    ALWAYS_BLACKLISTED,
    QUICK,
    BrokerConfig,
    check,
    from_properties,
    listing,
    live_keys,
    pick,
    to_properties,
)
from broker.groups.table import GroupsConfig
from broker.ha.acks import BrokerRole
from broker.ha.config import HaConfig
from broker.idle_keys import FEATURES, IDLE, NOT_OFFERED
from broker.journal import FlushDiskType, JournalConfig
from broker.offsets.table import OffsetsConfig
from broker.pulling.checks import PullConfig
from broker.pulling.reading import ReadConfig
from broker.topics.table import TopicsConfig
from remoting.daemon.keys import ConfigError, names
from remoting.record import unpacked_host

NAMED = {"brokerName": "a", "brokerIP1": "10.0.0.1"}


def test_a_configuration_of_java_works_as_it_is() -> None:
    config = from_properties({
        "brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0", "deleteWhen": "04",
        "fileReservedTime": "48", "brokerRole": "ASYNC_MASTER", "flushDiskType": "ASYNC_FLUSH",
        "sendMessageThreadPoolNums": "16", "storePathConsumeQueue": "/data/consumequeue", "brokerIP1": "10.0.0.1"})
    check(config)
    assert config.file_reserved_time == 48
    assert config.without_meaning == {
        "sendMessageThreadPoolNums": "16", "storePathConsumeQueue": "/data/consumequeue"}
    assert to_properties(config)["sendMessageThreadPoolNums"] == "16"


@pytest.mark.parametrize(("given", "forcibly"), [
    ({}, False), ({"diskSpaceCleanForciblyRatio": "80"}, True), ({"cleanFileForciblyEnable": "true"}, True),
    ({"diskSpaceCleanForciblyRatio": "80", "cleanFileForciblyEnable": "false"}, False),
    ({"diskMaxUsedSpaceRatio": "70"}, False),
])
def test_young_messages_are_deleted_only_where_the_file_asks_for_it(given: dict[str, str], forcibly: bool) -> None:
    config = from_properties(given)
    assert config.clean_file_forcibly_enable is forcibly
    assert from_properties({"fileReservedTime": "48"}, start=config).clean_file_forcibly_enable is forcibly
    assert from_properties(to_properties(config)).clean_file_forcibly_enable is forcibly


CONTROLLED = {**NAMED, "enableControllerMode": "true", "controllerAddr": "10.0.0.1:9877"}


def test_a_profile_sets_its_keys_and_single_keys_in_the_file_win() -> None:
    quick = from_properties({**CONTROLLED, "detectionProfile": " quick "})
    check(quick)
    assert {name: to_properties(quick)[name] for name in QUICK} == QUICK
    assert not any(to_properties(BrokerConfig())[name] == value for name, value in QUICK.items())
    chosen = from_properties({**CONTROLLED, "masterLeaseMs": "1800", "detectionProfile": "quick"})
    assert to_properties(chosen) == {**to_properties(quick), "masterLeaseMs": "1800"}
    assert to_properties(from_properties(to_properties(chosen))) == to_properties(chosen), "as written down"


def test_a_change_of_the_profile_leaves_what_was_chosen() -> None:
    chosen = from_properties({"masterLeaseMs": "1800"})
    quick = from_properties({"detectionProfile": "quick"}, start=chosen)
    assert to_properties(quick)["brokerHeartbeatInterval"] == QUICK["brokerHeartbeatInterval"]
    assert quick.master_lease_ms == 1800
    assert from_properties({"detectionProfile": "default"}, start=quick) == chosen
    assert from_properties({"brokerPermission": "4"}, start=quick).broker_heartbeat_interval == 250


def test_a_profile_that_there_is_not_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="detectionProfile = fast: must be one of default, quick"):
        from_properties({"detectionProfile": "fast"})
    with pytest.raises(ConfigError, match="masterLeaseMs = 5000: must be below controllerHeartBeatTimeoutMills"):
        check(from_properties({**CONTROLLED, "masterLeaseMs": "5000", "detectionProfile": "quick"}))


def test_no_key_has_and_lacks_a_meaning() -> None:
    assert not set(names(BrokerConfig)) & set(IDLE)
    assert set(NOT_OFFERED) | set(FEATURES) <= set(IDLE)
    assert not set(NOT_OFFERED) & set(FEATURES)
    assert live_keys() < set(names(BrokerConfig))


@pytest.mark.parametrize("name", sorted(NOT_OFFERED))
def test_what_is_not_offered_is_refused_and_its_default_is_taken(name: str) -> None:
    assert from_properties({name: NOT_OFFERED[name]}).without_meaning == {name: NOT_OFFERED[name]}
    with pytest.raises(ConfigError, match=f"{name} = true.*not offered"):
        from_properties({name: "true"})


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"brokerNmae = a: is no known key; brokerName is"):
        from_properties({"brokerNmae": "a"})


@pytest.mark.parametrize(("given", "key"), [
    ({"brokerName": "a#b"}, "brokerName"),
    ({"brokerClusterName": " "}, "brokerClusterName"),
    ({"brokerId": "1"}, "brokerId"),
    ({"brokerRole": "SLAVE"}, "brokerId"),
    ({"brokerRole": "SLAVE", "brokerId": "-1"}, "brokerId"),
    ({"brokerIP1": "a host"}, "brokerIP1"),
    ({"brokerIP1": "10.0.0.300"}, "brokerIP1"),
    ({"brokerIP2": "host:10912"}, "brokerIP2"),
    ({"bindAddress": "0.0.0.0:10911"}, "bindAddress"),
    ({"namesrvAddr": "somewhere"}, "namesrvAddr"),
    ({"enableControllerMode": "true"}, "controllerAddr"),
    ({"enableControllerMode": "true", "controllerAddr": "c:1;nowhere"}, "controllerAddr"),
    ({"enableControllerMode": "true", "controllerAddr": "c:1", "masterLeaseMs": "10000"}, "masterLeaseMs"),
    ({"enableControllerMode": "true", "controllerAddr": "c:1", "brokerHeartbeatInterval": "3000"},
     "brokerHeartbeatInterval"),
    ({"allAckInSyncStateSet": "true"}, "allAckInSyncStateSet"),
    ({"asyncLearner": "true"}, "asyncLearner"),
    ({"haListenPort": "10911"}, "haListenPort"),
    ({"haListenPort": "10909"}, "haListenPort"),
    ({"mappedFileSizeConsumeQueue": "30"}, "mappedFileSizeConsumeQueue"),
])
def test_relations_between_keys(given: dict[str, str], key: str) -> None:
    check(from_properties(NAMED))
    with pytest.raises(ConfigError) as refused:
        check(from_properties({**NAMED, **given}))
    assert refused.value.key == key


@pytest.mark.parametrize(("given", "port"), [
    ({}, 10912), ({"listenPort": "30911"}, 30912), ({"listenPort": "30911", "haListenPort": "0"}, 30912),
    ({"listenPort": "30911", "haListenPort": "40000"}, 40000), ({"listenPort": "0"}, 0),
])
def test_slaves_have_the_port_above_that_of_clients_unless_the_file_says_another(
    given: dict[str, str], port: int,
) -> None:
    config = from_properties(given)
    assert config.ha_listen_port == port
    assert from_properties({"fileReservedTime": "3"}, start=config).ha_listen_port == port
    moved = 20912 if port in (0, 10912, 30912) else port
    assert from_properties({"listenPort": "20911"}, start=config).ha_listen_port == moved


def test_addresses_and_what_follows_from_the_keys() -> None:
    config = from_properties({
        **NAMED, "listenPort": "20911", "haListenPort": "20912", "brokerIP2": "10.1.0.1",
        "namesrvAddr": "n:1; n:2", "controllerAddr": "c:1,c:2", "enableControllerMode": "true"})
    check(config)
    assert (config.address, config.ha_address) == ("10.0.0.1:20911", "10.1.0.1:20912")
    assert config.name_servers == ("n:1", "n:2")
    assert config.controllers == ("c:1", "c:2")
    assert config.role is BrokerRole.SLAVE
    assert config.identity_path == "~/store/brokerIdentity"
    assert "brokerConfigPath" in config.black_list


def test_parts_are_told_what_the_keys_say() -> None:
    config = from_properties({
        **NAMED, "mappedFileSizeCommitLog": "8192", "flushDiskType": "SYNC_FLUSH",
        "syncFlushTimeout": "7", "haFlowControlEnable": "true", "totalReplicas": "3", "inSyncReplicas": "2",
        "allAckInSyncStateSet": "true", "enableControllerMode": "true", "controllerAddr": "c:1", "slaveTimeout": "9",
        "masterLeaseMs": "4000", "brokerRole": "SYNC_MASTER"})
    assert settings.store(config).log_file_bytes == 8192
    assert settings.journal(config).flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert settings.journal(from_properties({})) == JournalConfig()
    assert settings.replication(config).flow_control_bytes_per_second == 100 << 20
    assert settings.replication(config).all_ack_in_sync_state_set
    beats = settings.replication(from_properties({"haBeatIntervalMs": "200", "haSilenceMs": "1000"}))
    assert (beats.beat_interval_ms, beats.silence_ms) == (200, 1_000)
    assert settings.replication(from_properties({})) == HaConfig()
    assert settings.replication(from_properties({})).flow_control_bytes_per_second == 0
    quorum = settings.quorum(config)
    assert (quorum.total_replicas, quorum.in_sync_replicas, quorum.slave_timeout_ms) == (3, 2, 9)
    assert settings.mode(config).controller
    manager = settings.manager(config)
    assert (manager.address, manager.controllers, manager.master_lease_ms) == ("10.0.0.1:10911", ("c:1",), 4000)


def test_what_a_part_refuses_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"haSendHeartbeatInterval = 5000: .*haHousekeepingInterval .6000."):
        settings.replication(from_properties({"haHousekeepingInterval": "6000"}))
    with pytest.raises(ConfigError, match=r"haBeatIntervalMs = 500: .*haSilenceMs .1000.: nobody would see"):
        settings.replication(from_properties({"haSilenceMs": "1000"}))
    with pytest.raises(ConfigError, match=r"inSyncReplicas = 3: .*totalReplicas 2: no put could"):
        settings.quorum(from_properties({"totalReplicas": "2", "inSyncReplicas": "3"}))


def test_a_part_named_as_the_keys_are_needs_no_more() -> None:
    @attrs.frozen
    class Part:
        max_msgs_num_batch: int = 1
        own: int = 5

    assert pick(from_properties({"maxMsgsNumBatch": "12"}), Part) == Part(12, 5)


def test_a_black_list_in_the_file_takes_the_place_of_the_default_one() -> None:
    assert {"storePathRootDir", "storePathCommitLog", "bindAddress", "listenPort", "haListenPort", "brokerIP1",
            "brokerIP2"} <= from_properties({}).black_list
    paths = {name for name in names(BrokerConfig) if name.startswith("storePath")}
    assert paths <= from_properties({}).black_list
    assert from_properties({"configBlackList": "listenPort; regionId"}).black_list == {
        *ALWAYS_BLACKLISTED, "listenPort", "regionId"}


def test_the_password_is_shown_to_nobody() -> None:
    config = from_properties({"tls.server.keyPassword": "secret"})
    assert "secret" not in listing(config).values()
    assert "secret" in to_properties(config).values()


@given(st.dictionaries(st.sampled_from(sorted(IDLE)), st.text(st.characters(codec="ascii"), max_size=5), max_size=5))
def test_idle_keys_are_kept_as_written(given: dict[str, str]) -> None:
    if any(text.strip().lower() != NOT_OFFERED.get(name, text.strip().lower()) for name, text in given.items()):
        with pytest.raises(ConfigError, match="not offered"):
            from_properties(given)
        return
    config = from_properties(given)
    assert {name: to_properties(config)[name] for name in given} == given
    assert from_properties({"brokerName": "b"}, start=config).without_meaning == given


def test_no_part_has_a_key_that_the_configuration_takes_for_idle() -> None:
    """A field of that name would keep its default whatever the file says."""
    modules = [importlib.import_module(found.name) for found in pkgutil.walk_packages(broker.__path__, "broker.")
               if not found.name.startswith("broker.client")]
    kinds = {kind for module in modules for kind in vars(module).values() if attrs.has(kind) and isinstance(kind, type)}
    configurations = {kind for kind in kinds if kind.__name__.endswith("Config")}
    assert len(configurations) > 10
    idle = {re.sub("[A-Z]", lambda sign: f"_{sign[0].lower()}", name): name for name in IDLE}
    assert {idle[field.name]: kind.__name__ for kind in configurations for field in attrs.fields(kind)
            if field.name in idle} == {}


def test_keys_of_java_that_parts_have_reach_them() -> None:
    config = from_properties({
        "litePullMessageEnable": "false", "enableMixedMessageType": "true", "consumerOffsetUpdateVersionStep": "7",
        "enableSplitMetadata": "false", "splitMetadataSize": "9", "maxFilterMessageSize": "40",
        "enableCreateSysGroup": "false", "reviveQueueNum": "3"})
    topics, groups = pick(config, TopicsConfig), pick(config, GroupsConfig)
    assert (topics.enable_mixed_message_type, topics.revive_queue_num) == (True, 3)
    assert (topics.enable_split_metadata, topics.split_metadata_size) == (False, 9)
    assert (groups.enable_split_metadata, groups.split_metadata_size) == (False, 9)
    assert not groups.enable_create_sys_group
    assert not pick(config, PullConfig).lite_pull_message_enable
    assert pick(config, ReadConfig).max_filter_message_size == 40
    assert pick(config, OffsetsConfig).consumer_offset_update_version_step == 7


def test_the_ip_that_messages_carry_is_the_resolved_one() -> None:
    config = attrs.evolve(from_properties({**NAMED, "brokerIP1": "some-host"}), resolved_ip="10.0.0.7")
    assert (config.address, unpacked_host(config.store_host)) == ("some-host:10911", ("10.0.0.7", 10_911))
    packing = [str(path) for path in Path(broker.__path__[0]).rglob("*.py")
               if re.search(r"broker_ip1, (self|config|shared\.config)\.listen_port", path.read_text())]
    assert [Path(path).name for path in packing] == ["config.py"], "a host name has no bytes: store_host has"
