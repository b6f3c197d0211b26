"""Which brokers a container takes, and with what they are started."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config import BrokerConfig, from_properties
from broker.container.config import ContainerConfig
from broker.container.config import from_properties as container
from broker.container.hosting import Hosted, HostedName, NotAdmitted, Roster, admit, hosted
from remoting.daemon.keys import ConfigError

HANDED_ON = {"namesrvAddr": "10.0.0.9:9876"}


def configure(properties: Mapping[str, str]) -> BrokerConfig:
    return from_properties({"brokerIP1": "10.0.0.1", **properties})


def places(config: BrokerConfig) -> dict[str, str]:
    return {"storePathRootDir": config.store_path_root_dir}


def made(**keys: str) -> Hosted:
    properties = {"brokerName": "a", "listenPort": "20911", "storePathRootDir": "/a", **keys}
    return hosted("/etc/a.conf", properties, HANDED_ON, configure, places)


def test_what_a_broker_is_started_with() -> None:
    master = made(brokerId="3", haListenPort="7")
    assert master.settings == {"namesrvAddr": "10.0.0.9:9876", "haListenPort": "20912", "brokerId": "0"}
    assert master.identity == HostedName("DefaultCluster", "a", 0)
    assert str(master.identity) == "DefaultCluster_a_0"
    slave = made(brokerRole="SLAVE", brokerId="3", namesrvAddr="10.0.0.8:9876")
    assert slave.settings == {"haListenPort": "20912"}
    assert slave.config.name_servers == ("10.0.0.8:9876",)
    assert slave.identity.broker_id == 3
    controlled = made(enableControllerMode="true", controllerAddr="10.0.0.7:9877", brokerRole="SLAVE")
    assert "brokerId" not in controlled.settings, "controllers choose"
    assert made(listenPort="0").settings["haListenPort"] == "0"


@pytest.mark.parametrize(("keys", "words"), [
    ({"brokerRole": "SLAVE"}, "slave broker id must be > 0"),
    ({"brokerRole": "SLAVE", "brokerId": "-1"}, "slave broker id must be > 0"),
    ({"totalReplicas": "1", "inSyncReplicas": "2"}, "invalid replicas number"),
    ({"totalReplicas": "2", "minInSyncReplicas": "2"}, "invalid replicas number"),
    ({"duplicationEnable": "true"}, "Can not add broker to container when duplicationEnable is true currently"),
    ({"listenPort": "many"}, "listenPort = many: must be a whole number from 0 to 65535"),
    ({"brokerName": "a#b"}, "brokerName = a#b: must not be empty nor contain '#' or a line's end")])
def test_who_is_refused_in_the_words_of_the_original(keys: dict[str, str], words: str) -> None:
    with pytest.raises(NotAdmitted) as refused:
        made(**keys)
    assert str(refused.value) == words


def test_a_file_without_a_key_is_no_broker() -> None:
    with pytest.raises(NotAdmitted, match="addBroker properties empty"):
        hosted("/etc/a.conf", {}, HANDED_ON, configure, places)


@pytest.mark.parametrize(("keys", "words"), [
    ({}, "DefaultCluster_a_0 has already been added to current broker container"),
    ({"brokerName": "b"}, "listenPort = 20911: is listenPort of DefaultCluster_a_0; choose another listenPort"),
    ({"brokerName": "b", "listenPort": "20913"},
     "listenPort - 2 = 20911: is listenPort of DefaultCluster_a_0; choose another listenPort"),
    ({"brokerName": "b", "listenPort": "20910"},
     "haListenPort = 20911: is listenPort of DefaultCluster_a_0; choose another listenPort"),
    ({"brokerName": "b", "listenPort": "10811"},
     "listenPort = 10811: is the container's listenPort; choose another listenPort"),
    ({"brokerName": "b", "listenPort": "30911"},
     "storePathRootDir = /a: is a directory of DefaultCluster_a_0; give each broker its own"),
    ({"brokerName": "b", "listenPort": "30911", "storePathRootDir": "/b"}, "")])
def test_two_brokers_share_no_name_no_port_and_no_directory(keys: dict[str, str], words: str) -> None:
    said = ""
    try:
        admit(made(**keys), [made()], {10_811: "listenPort"})
    except NotAdmitted as refused:
        said = str(refused)
    assert said == words


def test_two_pages_of_metrics_need_two_ports() -> None:
    pages = {"metricsExporterType": "PROM", "metricsPromExporterPort": "5557"}
    other = made(brokerName="b", listenPort="30911", storePathRootDir="/b", **pages)
    with pytest.raises(NotAdmitted, match="metricsPromExporterPort = 5557: is metricsPromExporterPort of"):
        admit(other, [made(**pages)], {})
    admit(other, [made()], {})


# --- who is listed ---------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcd"))))
def test_the_roster_is_what_was_last_said_of_each(said: list[tuple[bool, str]]) -> None:
    """At the next start, too, and whatever the configuration lists."""
    configured = ("a", "b")
    roster, wanted = Roster(configured), {"a", "b"}
    for adds, path in said:
        roster = roster.with_one(path) if adds else roster.without(path)
        wanted = wanted | {path} if adds else wanted - {path}
        assert set(roster) == wanted
        assert len(list(roster)) == len(wanted)
        assert Roster.from_json(configured, roster.to_json()) == roster


def test_what_the_configuration_lists_no_more_is_gone() -> None:
    roster = Roster(("a", "b")).without("b").with_one("c")
    assert list(Roster.from_json(("a",), roster.to_json())) == ["a", "c"]
    assert list(Roster.from_json(("a",), None)) == ["a"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"added": 1}', b'{"removed": [1]}', b"\xff"])
def test_a_damaged_roster_is_said(content: bytes) -> None:
    with pytest.raises(ValueError):
        Roster.from_json((), content)


# --- the container's own keys ----------------------------------------------------------------------------------------


def test_the_keys_of_the_original() -> None:
    config = container({"brokerConfigPaths": "/a.conf: /b.conf:", "namesrvAddr": "10.0.0.9:9876;10.0.0.8:9876",
                        "fetchNameSrvAddrByDnsLookup": "true", "rocketmqHome": "/opt"})
    assert config.paths == ("/a.conf", "/b.conf")
    assert config.handed_on == {"namesrvAddr": "10.0.0.9:9876;10.0.0.8:9876", "fetchNameSrvAddrByDnsLookup": "true"}
    assert config.kept == {"rocketmqHome": "/opt"}
    assert ContainerConfig().listen_port == 10_811 and ContainerConfig().handed_on == {}
    assert {"brokerConfigPaths", "configBlackList", "listenPort"} <= container(
        {"configBlackList": "listenPort"}).black_list
    assert attrs.evolve(config, config_store_path="/etc/c.conf").store_path == "/etc/c.conf.d"


@pytest.mark.parametrize("keys", [
    {"namesrvAddr": "nowhere"}, {"bindAddress": "a b"}, {"listenPort": "-1"}, {"useTLS": "true"}, {"brokerNames": "x"}])
def test_bad_keys_are_refused(keys: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(keys))):
        container(keys)
