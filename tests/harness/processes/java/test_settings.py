"""Configuration files of Java peers: keys as RocketMQ spells them, and what a caller sets wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.pop.requests import TakingConfig
from harness.processes.java import settings

HERE = Path("/d")
JAVA_REVIVE_QUEUES = 8
"""``BrokerConfig.reviveQueueNum`` where it is not set."""


def test_properties_are_sorted_and_booleans_are_javas() -> None:
    assert settings.properties({"b": True, "a": 1, "c": HERE / "x", "d": False}) == "a=1\nb=true\nc=/d/x\nd=false\n"


def test_backslashes_survive_the_properties_format() -> None:
    assert settings.properties({"a": r"C:\store"}) == "a=C:\\\\store\n"


@pytest.mark.parametrize(("key", "value"), [("a", "x\ny"), ("a\nb", "x"), ("a=b", "x")])
def test_what_does_not_fit_on_a_line_is_refused(key: str, value: str) -> None:
    with pytest.raises(ValueError, match="does not fit on one line of properties"):
        settings.properties({key: value})


def test_dledger_controller() -> None:
    made = settings.dledger_controller(
        HERE, host="127.0.0.1", index=1, peers=["h:1", "h:2", "h:3"], extra={"mappedFileSize": 5})
    assert made["controllerDLegerPeers"] == "n0-h:1;n1-h:2;n2-h:3"
    assert made["controllerDLegerSelfId"] == "n1"
    assert made["mappedFileSize"] == 5


def test_jraft_controller() -> None:
    made = settings.jraft_controller(
        HERE, host="127.0.0.1", index=1, peers=["h:1", "h:2"], raft_peers=["h:8", "h:9"], extra={})
    assert made["controllerType"] == "jRaft"
    assert (made["jRaftServerId"], made["jRaftInitConf"]) == ("h:9", "h:8,h:9")
    assert made["jRaftControllerRPCAddr"] == "h:1,h:2"


def broker(extra: dict[str, settings.Value]) -> dict[str, settings.Value]:
    return settings.broker(
        HERE, host="127.0.0.1", announced="127.0.0.2", port=10, ha_port=11, group="g", cluster="c",
        namesrv=["h:1", "h:2"], extra=extra)


def test_a_broker_with_timers_reads_all_revive_queues_that_ours_fills() -> None:
    ours = TakingConfig().revive_queue_num
    assert broker({"timerWheelEnable": True}).get("reviveQueueNum", JAVA_REVIVE_QUEUES) == ours
    assert broker({"timerWheelEnable": True, "reviveQueueNum": 2})["reviveQueueNum"] == 2
    assert (broker({})["timerWheelEnable"], broker({})["reviveQueueNum"]) == (False, 1)


def test_broker_by_itself_is_a_master_and_under_controllers_is_nobody_yet() -> None:
    plain, ruled = broker({}), broker(settings.controlled(["h:3", "h:4"]))
    assert (plain["brokerId"], plain["brokerRole"], "controllerAddr" in plain) == (0, "ASYNC_MASTER", False)
    assert (ruled["brokerId"], ruled["brokerRole"], ruled["controllerAddr"]) == (-1, "SLAVE", "h:3;h:4")
    assert (plain["namesrvAddr"], plain["brokerIP1"]) == ("h:1;h:2", "127.0.0.2")
    assert plain["storePathRootDir"] == HERE / "store"


def test_namesrv() -> None:
    made = settings.namesrv(HERE, host="127.0.0.1", port=9, extra={"supportActingMaster": True})
    assert made == {
        "listenPort": 9, "bindAddress": "127.0.0.1", "kvConfigPath": HERE / "kvConfig.json",
        "supportActingMaster": True,
    }
