"""The table of topics: what is there from the start, versions, and what is kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from broker.moments import WATCH
from broker.store.files import MemoryFiles
from broker.store.tables import Topics, load, save
from broker.topics import TopicsConfig, TopicTable
from broker.topics.table import INHERIT
from remoting.bodies.namesrv import DataVersion, TopicConfig, TopicConfigSerializeWrapper

NAMED = TopicsConfig(broker_cluster_name="c", broker_name="b")


def table(kept: Topics | None = None, **config: Any) -> TopicTable:
    return TopicTable(attrs.evolve(NAMED, **config), lambda: 7, kept)


def counted(topics: TopicTable) -> Callable[[], int]:
    calls: list[DataVersion] = []
    topics.on_change.join(WATCH, lambda: calls.append(topics.version))
    return lambda: len(calls)


def test_what_every_broker_has_from_its_start() -> None:
    found = {name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm)
             for name, topic in table().topics.items()}
    assert found == {
        "SELF_TEST_TOPIC": (1, 1, 6), "TBW102": (8, 8, 7), "BenchmarkTest": (1024, 1024, 6), "c": (16, 16, 7),
        "b": (1, 1, 7), "OFFSET_MOVED_EVENT": (1, 1, 6), "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "c_REPLY_TOPIC": (1, 1, 6), "rmq_sys_REVIVE_LOG_c": (8, 8, 6), "rmq_sys_SYNC_BROKER_MEMBER_b": (1, 1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6), "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6), "rmq_sys_timer_undeliverable": (1, 1, 6),
        "rmq_sys_pop_resets": (1, 1, 6)}
    assert table().version == DataVersion()
    assert set(found) <= table().system


@pytest.mark.parametrize(("config", "name", "expected"), [
    ({"auto_create_topic_enable": False}, "TBW102", None),
    ({"default_topic_queue_nums": 3}, "TBW102", TopicConfig("TBW102", 3, 3, 7)),
    ({"cluster_topic_enable": False}, "c", TopicConfig("c", 16, 16, 1)),
    ({"broker_topic_enable": False}, "b", TopicConfig("b", 1, 1, 1)),
    ({"trace_topic_enable": True}, "RMQ_SYS_TRACE_TOPIC", TopicConfig("RMQ_SYS_TRACE_TOPIC", 1, 1, 6)),
    ({"revive_queue_num": 2}, "rmq_sys_REVIVE_LOG_c", TopicConfig("rmq_sys_REVIVE_LOG_c", 2, 2, 6)),
])
def test_what_depends_on_the_configuration(config: dict[str, Any], name: str, expected: TopicConfig | None) -> None:
    assert table(**config).get(name) == expected


def test_what_is_on_disk_goes_before_what_is_configured() -> None:
    kept = Topics({"TBW102": TopicConfig("TBW102", 2, 2, 7), "t": TopicConfig("t")}, DataVersion(1, 2, 3))
    topics = table(kept, default_topic_queue_nums=5)
    assert topics.get("TBW102") == TopicConfig("TBW102", 2, 2, 7)
    assert topics.get("t") == TopicConfig("t") and topics.version == DataVersion(1, 2, 3)
    topics = table(kept, auto_create_topic_enable=False)
    assert topics.create_for_send("new", "TBW102", 4) is None  # switched off since


def test_the_version_moves_with_each_change_and_is_told() -> None:
    topics = table()
    calls = counted(topics)
    topics.state_version = 5
    topics.update([TopicConfig("t"), TopicConfig("u")])
    assert topics.version == DataVersion(5, 7, 1) and calls() == 1
    assert not topics.update([TopicConfig("t")]) and calls() == 1
    topics.set_ordered(["t", "u", "nobody"])
    topics.set_ordered(["t"])
    assert topics.is_ordered("t") and not topics.is_ordered("nobody") and calls() == 2
    topics.create_for_retry("g", 2, unit=True)
    topics.create_for_retry("g", 9)
    assert topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 2, 2, 6, topic_sys_flag=2) and calls() == 3
    topics.create_for_dead_letters("g")
    topics.touch()
    assert topics.version.counter == calls() == 5


def test_deleting() -> None:
    topics = table()
    calls, gone = counted(topics), list[str]()
    topics.on_delete.join(WATCH, gone.append)
    topics.update([TopicConfig("t")])
    assert topics.delete("t") and not topics.delete("t")
    assert topics.get("t") is None and gone == ["t", "t"] and calls() == 2


def test_a_slave_becomes_what_its_master_has() -> None:
    master, slave = table(), table()
    master.update([TopicConfig("t")])
    slave.update([TopicConfig("mine")])
    slave.replace(master.snapshot())
    assert slave.snapshot() == master.snapshot() and slave.get("mine") is None
    master.update([TopicConfig("u")])
    assert slave.get("u") is None


@pytest.mark.parametrize(("perm", "queues", "expected"), [
    (7, 4, TopicConfig("new", 4, 4, 6)),
    (7, 99, TopicConfig("new", 5, 5, 6)),
    (7, -1, TopicConfig("new", 0, 0, 6)),
    (5, 4, TopicConfig("new", 4, 4, 4)),
    (6, 4, None),
])
def test_made_after_another_topic(perm: int, queues: int, expected: TopicConfig | None) -> None:
    topics = table()
    topics.update([TopicConfig("model", 9, 5, perm, "MULTI_TAG")])
    found = topics.create_for_send("new", "model", queues)
    assert found == (None if expected is None else attrs.evolve(expected, topic_filter_type="MULTI_TAG"))
    assert topics.get("new") == found
    assert bool(perm & INHERIT) == (found is not None)


def test_it_is_kept() -> None:
    files, topics = MemoryFiles(), table()
    topics.update([TopicConfig("t", attributes={"message.type": "FIFO"})])
    save(files, topics.snapshot())
    assert table(load(files, Topics)).snapshot() == topics.snapshot()


def test_a_topic_made_again_has_all_queues_that_hold_messages() -> None:
    """A master may be elected before it heard of a topic whose messages it has."""
    topics = table()
    topics.queues_kept = {"known": 7}.__getitem__
    made = topics.create_for_send("known", "TBW102", 4)
    assert made is not None and (made.read_queue_nums, made.write_queue_nums) == (7, 7)


@pytest.mark.parametrize(("version", "queues"), [(0, 4), (9, 8)])
def test_a_master_that_comes_back_takes_what_is_new_and_loses_no_topic(version: int, queues: int) -> None:
    topics = table(Topics({"old": TopicConfig("old"), "both": TopicConfig("both", 4, 4)}, DataVersion(0, 1, 5)))
    told = TopicConfigSerializeWrapper(
        {"both": TopicConfig("both", 8, 8), "new": TopicConfig("new", 2, 2)}, DataVersion(0, 1, version))
    before = topics.version
    topics.join(told.to_json())
    assert {"old", "both", "new"} <= topics.topics.keys()
    assert topics.topics["both"].read_queue_nums == queues, "a newer version says more of a topic that both have"
    assert before.precedes(topics.version) and told.data_version.precedes(topics.version), "slaves copy it anew"
    version_now = topics.version
    topics.join(told.to_json())
    assert topics.version == version_now, "nothing was new"
