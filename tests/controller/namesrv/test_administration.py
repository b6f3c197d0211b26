"""What operators ask for: lists of topics, write permission, topics by hand, the key-value table, the configuration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.namesrv import kvconfig
from controller.namesrv.config import from_properties, to_properties
from controller.namesrv.effects import Save
from controller.namesrv.kvconfig import KVConfig
from remoting import properties
from remoting.bodies.namesrv import KVTable, QueueData, TopicList, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.daemon.edits import Edit
from remoting.errors import BodyError
from tests.controller.namesrv.fleet import SYSTEM, Fleet, config, topic


def two_clusters() -> Fleet:
    fleet = Fleet()
    fleet.register("a", 0, topics=["T", topic("unit", topicSysFlag=1)])
    fleet.register("b", 0, topics=["T", topic("sub", topicSysFlag=2), topic("both", topicSysFlag=3)], cluster="D")
    return fleet


# --- lists ---------------------------------------------------------------------------------------------------


def test_topics_are_listed_all_by_cluster_and_by_flag() -> None:
    fleet = two_clusters()
    assert fleet.topics() == [SYSTEM, "T", "both", "sub", "unit"]
    code = RequestCode.GET_TOPICS_BY_CLUSTER
    assert fleet.topics(code, cluster="C") == [SYSTEM, "T", "unit"]
    assert fleet.topics(code, cluster="nowhere") == []
    assert fleet.topics(RequestCode.GET_UNIT_TOPIC_LIST) == ["both", "unit"]
    assert fleet.topics(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["both", "sub"]
    assert fleet.topics(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ["sub"]


def test_system_topics_are_names_of_clusters_and_groups_with_some_address() -> None:
    answer = two_clusters().ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert TopicList.from_json(answer.body) == TopicList(["C", "a", "D", "b"], "a0:1")
    assert TopicList.from_json(Fleet().ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body) == TopicList([], None)


@pytest.mark.parametrize(("key", "codes"), [
    ("enableAllTopicList", [206]), ("enableTopicList", [224, 311, 312, 313]),
])
def test_lists_can_be_switched_off(key: str, codes: list[int]) -> None:
    fleet = Fleet(config(**{key: False}))
    for code in (206, 224, 304, 311, 312, 313):
        answer = fleet.ask(code, cluster="C")
        assert answer.code == (ResponseCode.SYSTEM_ERROR if code in codes else ResponseCode.SUCCESS)
        assert (key in str(answer.remark)) == (code in codes)


# --- by hand -------------------------------------------------------------------------------------------------


def test_write_permission_is_taken_from_and_given_to_a_whole_group() -> None:
    fleet = Fleet()
    fleet.register("a", 0, topics=[topic("T", perm=7)])
    fleet.register("b", 0)
    assert fleet.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a").ext == {"wipeTopicCount": "2"}
    assert fleet.perms() == {"a": 5, "b": 6}
    fleet.register("a", 0, topics=[topic("T", perm=7)])
    assert fleet.perms()["a"] == 5, "until its topics change"
    assert fleet.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a").ext == {"addTopicCount": "2"}
    assert fleet.perms()["a"] == 6
    assert fleet.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="nobody").ext == {"wipeTopicCount": "0"}


def test_a_topic_registered_by_hand_must_be_on_registered_groups() -> None:
    fleet = Fleet()
    fleet.register("a", 0)

    def register(*queues: QueueData) -> int:
        return fleet.ask(
            RequestCode.REGISTER_TOPIC_IN_NAMESRV, body=TopicRouteData(list(queues)).to_json(), topic="H").code

    assert register(QueueData("a", 1, 1, 6), QueueData("x", 1, 1, 6)) == 0
    assert fleet.route("H") is None
    assert register(QueueData("a", 1, 1, 6)) == 0
    assert fleet.addresses("H") == {"a": {0: "a0:1"}}
    assert register() == 0
    assert fleet.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, topic="H").code == 0
    assert fleet.addresses("H") == {"a": {0: "a0:1"}}


def test_a_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    fleet = two_clusters()
    delete = RequestCode.DELETE_TOPIC_IN_NAMESRV
    for cluster in ("nowhere", "D"):
        assert fleet.ask(delete, topic="T", clusterName=cluster).code == 0
        assert set(fleet.addresses()) == ({"a", "b"} if cluster == "nowhere" else {"a"})
    fleet.register("b", 0, topics=["T"], cluster="D", version=2)
    assert fleet.ask(delete, topic="T").code == 0
    assert fleet.route() is None
    assert fleet.ask(delete, topic="T").code == 0


# --- key-value table -----------------------------------------------------------------------------------------


def test_what_is_put_can_be_got_listed_deleted_and_is_on_disk_each_time() -> None:
    fleet = Fleet(config(kvConfigPath="/kv"))
    put, get, delete, listing = 100, 101, 102, 219
    assert fleet.ask(get, namespace="n", key="k").code == ResponseCode.QUERY_NOT_FOUND
    assert fleet.ask(listing, namespace="n").code == ResponseCode.QUERY_NOT_FOUND
    assert fleet.ask(put, namespace="n", key="k", value="v").code == 0
    assert fleet.ask(get, namespace="n", key="k").ext == {"value": "v"}
    assert KVTable.from_json(fleet.ask(listing, namespace="n").body).table == {"k": "v"}
    assert fleet.ask(delete, namespace="n", key="k").code == 0
    assert fleet.ask(get, namespace="n", key="k").code == ResponseCode.QUERY_NOT_FOUND
    assert fleet.ask(listing, namespace="n").body == b'{"table":{}}'
    assert fleet.effects == [
        Save("/kv", b'{"configTable":{"n":{"k":"v"}}}'), Save("/kv", b'{"configTable":{"n":{}}}')]


def test_the_table_comes_back_from_its_file() -> None:
    table = KVConfig()
    table.put("n", "k", "värde")
    table.put("m", "k", "")
    table.delete("m", "k")
    again = KVConfig.decode(table.encode())
    assert again == table
    assert again.namespace("m") == {}


NAMES = st.sampled_from(["n", "m", "o", "long"])


@given(st.lists(st.tuples(NAMES, st.sampled_from("kl"), st.booleans()), max_size=60))
def test_namespaces_without_a_key_are_forgotten_before_there_are_many(steps: list[tuple[str, str, bool]]) -> None:
    """The table against dictionaries, with room for two empty namespaces, and for five letters of their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kvconfig, "EMPTY_MAX", 2)
        patch.setattr(kvconfig, "EMPTY_CHARS_MAX", 5)
        table, model, empty = KVConfig(), dict[str, set[str]](), list[str]()
        for namespace, key, puts in steps:
            if puts:
                table.put(namespace, key, "v")
                model.setdefault(namespace, set()).add(key)
            else:
                table.delete(namespace, key)
                model.get(namespace, set()).discard(key)
            empty = [each for each in empty if not model.get(each, True)]
            empty += [each for each, keys in model.items() if not keys and each not in empty]
            while len(empty) > 2 or sum(map(len, empty)) > 5:
                del model[empty.pop(0)]
            assert {each: set(keys) for each, keys in table.tables.items()} == model
            assert KVConfig.decode(table.encode()) == table


def test_of_many_namespaces_that_are_empty_the_latest_are_remembered() -> None:
    table = KVConfig()
    for number in range(kvconfig.EMPTY_MAX + 3):
        table.put(f"{number}", "k", "v")
        table.delete(f"{number}", "k")
    assert [*table.tables] == [f"{number}" for number in range(3, kvconfig.EMPTY_MAX + 3)]
    assert table.namespace("2") is None and table.namespace("3") == {}


def test_a_long_name_of_a_namespace_that_is_empty_fills_nothing() -> None:
    table = KVConfig()
    for number in range(3):
        table.put(f"{number}" * kvconfig.EMPTY_CHARS_MAX, "k", "v")
        table.delete(f"{number}" * kvconfig.EMPTY_CHARS_MAX, "k")
    assert len(table.tables) == 1


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"configTable":[]}', b'{"configTable":{"n":1}}',
                                     b'{"configTable":{"n":{"k":1}}}'])
def test_a_damaged_file_is_refused_in_words(content: bytes) -> None:
    with pytest.raises(BodyError):
        KVConfig.decode(content)


def test_the_table_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvconfig, "BYTES_MAX", 10)
    fleet = Fleet()
    assert fleet.ask(100, namespace="n", key="k", value="12345678").code == 0
    assert fleet.ask(100, namespace="n", key="l", value="").code == ResponseCode.SYSTEM_BUSY
    assert fleet.ask(100, namespace="n", key="k", value="123456789").code == ResponseCode.SYSTEM_BUSY
    assert fleet.ask(101, namespace="n", key="k").ext == {"value": "12345678"}
    fleet.ask(102, namespace="n", key="k")
    assert fleet.ask(100, namespace="n", key="l", value="").code == 0


# --- configuration -------------------------------------------------------------------------------------------


def test_the_configuration_is_answered_as_properties_without_the_password() -> None:
    fleet = Fleet(config(**{"supportActingMaster": True, "tls.server.keyPassword": "hush", "serverWorkerThreads": 3}))
    answered = properties.parse(fleet.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode())
    assert answered["supportActingMaster"] == "true"
    assert answered["serverWorkerThreads"] == "3"
    assert answered["listenPort"] == "9876"
    assert answered["tls.server.keyPassword"] == "******"


def test_a_changed_key_counts_at_once_and_is_saved() -> None:
    fleet = Fleet(config(configStorePath="/conf"))
    fleet.register("a", 1, acting=True)
    assert fleet.addresses() == {"a": {1: "a1:1"}}
    fleet.effects.clear()
    answer = fleet.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"supportActingMaster=true\nlistenPort=9\n")
    assert (answer.code, answer.remark) == (0, "from the next start on: listenPort")
    assert fleet.addresses() == {"a": {0: "a1:1"}}
    (save,) = fleet.effects
    assert isinstance(save, Save)
    assert save.path == "/conf"
    assert isinstance(save.content, Edit)
    assert save.content.of(b"# mine\nlistenPort = 7\n") == b"# mine\nlistenPort=9\nsupportActingMaster=true\n"
    saved = properties.parse(save.content.of(None).decode())
    assert (saved["supportActingMaster"], saved["listenPort"]) == ("true", "9")
    fleet.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"notifyMinBrokerIdChanged=true")
    assert fleet.addresses() == {"a": {0: "a1:1"}}, "one change keeps the other"


@pytest.mark.parametrize(("body", "code", "word"), [
    (b"kvConfigPath=/x", ResponseCode.NO_PERMISSION, "kvConfigPath"),
    (b"supportActingMaster=true\nconfigBlackList=", ResponseCode.NO_PERMISSION, "configBlackList"),
    (b"rocketmqHome=/x", ResponseCode.NO_PERMISSION, "rocketmqHome"),
    (b"enableTopicList=false", ResponseCode.NO_PERMISSION, "enableTopicList"),
    (b"supportActingMastr=true", ResponseCode.INVALID_PARAMETER, "supportActingMaster is"),
    (b"supportActingMaster=ja", ResponseCode.INVALID_PARAMETER, "true or false"),
    (b"useTLS=true", ResponseCode.INVALID_PARAMETER, "useTLS"),
    (b"\xff\xfe", ResponseCode.INVALID_PARAMETER, "utf-8"),
    (b"a=\\u12", ResponseCode.INVALID_PARAMETER, "hexadecimal"),
    (b"#" * (2 << 20), ResponseCode.INVALID_PARAMETER, "bytes"),
])
def test_a_change_that_cannot_be_is_refused_in_words_and_changes_nothing(
    body: bytes, code: int, word: str,
) -> None:
    fleet = Fleet(config(configBlackList="enableTopicList"))
    before = fleet.core.config
    answer = fleet.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    assert answer.code == code
    assert word in str(answer.remark)
    assert fleet.core.config == before
    assert fleet.effects == []


def test_keys_of_an_embedded_controller_are_kept_in_the_file() -> None:
    given = {"controllerDLegerGroup": "g", "listenPort": "1"}
    kept = from_properties(given, others=["controllerDLegerGroup"])
    assert to_properties(kept)["controllerDLegerGroup"] == "g"
