"""How brokers leave: with a farewell, with their connection, by silence; what goes with them and who is told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.liveness import SWEPT_FROM
from controller.namesrv.effects import BrokerLeft, Close, MinIdChanged
from remoting.bodies.namesrv import DataVersion
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.controller import BrokerHeartbeatRequest
from tests.controller.namesrv.fleet import MS, Fleet, config


def test_a_farewell_of_the_last_broker_takes_group_cluster_and_topics() -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    fleet.register("b", 0, topics=["U"], cluster="D")
    assert fleet.unregister("a", 0).code == 0
    assert fleet.route() is None
    assert fleet.topics() == ["SELF_TEST_TOPIC", "U"]
    assert fleet.cluster().cluster_addr_table == {"D": ["b"]}
    assert fleet.effects[-1] == BrokerLeft("C", "a", 0, "a0:1", "said farewell", True, 0)


@pytest.mark.parametrize("who", [("a", 0, "a0:1", "other"), ("b", 0, "a0:1", "C"), ("a", 0, "x:1", "C")])
def test_a_farewell_of_somebody_else_is_answered_and_changes_nothing(who: tuple[str, int, str, str]) -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    assert fleet.unregister(*who).code == 0
    assert fleet.addresses() == {"a": {0: "a0:1"}}


def test_a_farewell_counts_by_address_whatever_id_it_names() -> None:
    """A broker under a controller registers as 0 and says farewell by the id that the controller gave it."""
    fleet = Fleet()
    fleet.register("a", 0)
    fleet.unregister("a", 7, "a0:1")
    assert fleet.members("a") == {}


def test_several_farewells_at_once_tell_each_group_once() -> None:
    fleet = Fleet(config(notifyMinBrokerIdChanged=True))
    for broker_id in range(3):
        fleet.register("a", broker_id, acting=True)
    fleet.register("b", 0, acting=True)
    departed = fleet.core.registry.unregister(
        [("C", "a0:1", "a"), ("C", "a1:1", "a"), ("C", "b0:1", "b"), ("C", "a0:1", "a")])
    assert [replica.address for replica in departed.replicas] == ["a0:1", "a1:1", "b0:1"]
    assert departed.notices == (MinIdChanged(("a2:1",), 2, "a2:1", offline_address="a1:1"),)


def test_all_brokers_of_a_connection_leave_when_it_closes() -> None:
    fleet = Fleet()
    fleet.register("a", 0, connection="container")
    fleet.register("b", 1, connection="container")
    fleet.register("b", 0)
    fleet.close("container")
    assert fleet.addresses() == {"b": {0: "b0:1"}}
    assert fleet.core.counters.brokers_closed == 2


@pytest.mark.parametrize("news", [{}, {"version": 2}])
def test_an_old_connection_takes_nobody_along(news: dict[str, int]) -> None:
    fleet = Fleet()
    fleet.register("a", 0, connection="before")
    fleet.register("a", 0, connection="after", **news)
    fleet.close("before")
    assert fleet.addresses() == {"a": {0: "a0:1"}}
    fleet.close("after")
    assert fleet.route() is None
    fleet.close("never heard of")


def test_the_smallest_id_that_leaves_is_told_to_all_that_remain() -> None:
    fleet = Fleet(config(notifyMinBrokerIdChanged=True))
    for broker_id in range(3):
        fleet.register("a", broker_id, acting=True)
    fleet.close("a0:1")
    assert fleet.notices() == [MinIdChanged(("a1:1", "a2:1"), 1, "a1:1", offline_address="a0:1")]
    fleet.close("a2:1")
    assert fleet.notices() == []


def test_a_group_without_acting_master_is_told_nothing_of_leaving() -> None:
    fleet = Fleet(config(notifyMinBrokerIdChanged=True))
    fleet.register("a", 0)
    fleet.register("a", 1)
    fleet.close("a0:1")
    assert fleet.notices() == []


# --- silence -------------------------------------------------------------------------------------------------


def test_silence_is_judged_at_its_deadline() -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    fleet.register("b", 0, timeout_ms=10_000)
    fleet.pass_to(9_999.999)
    assert fleet.core.next_deadline() == 10_000 * MS
    assert set(fleet.addresses()) == {"a", "b"}
    fleet.pass_to(10_000)
    assert set(fleet.addresses()) == {"a"}
    fleet.pass_to(119_999)
    assert fleet.route() is not None
    fleet.pass_to(120_000)
    assert fleet.route() is None
    assert fleet.core.next_deadline() is None
    assert fleet.core.counters.brokers_silent == 2


def test_heartbeats_data_versions_and_registrations_put_it_off() -> None:
    fleet = Fleet()
    fleet.register("a", 0, timeout_ms=1_000)
    fleet.pass_to(900)
    fleet.heartbeat("a0:1")
    fleet.pass_to(1_800)
    fleet.data_version("a0:1", DataVersion())
    fleet.pass_to(2_700)
    fleet.register("a", 0, timeout_ms=1_000)
    fleet.pass_to(3_699)
    assert fleet.route() is not None
    fleet.heartbeat("a0:1", cluster="other")
    fleet.pass_to(3_700)
    assert fleet.route() is None


def test_a_heartbeat_is_read_once_while_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts each time. One with a bad field is refused, also behind good ones, and good ones behind it count."""
    fleet = Fleet()
    fleet.register("a", 0, timeout_ms=1_000)
    read: list[Mapping[str, str]] = []
    from_ext = BrokerHeartbeatRequest.from_ext

    def reads(ext: Mapping[str, str]) -> BrokerHeartbeatRequest:
        read.append(ext)
        return from_ext(ext)

    monkeypatch.setattr(BrokerHeartbeatRequest, "from_ext", reads)
    good = BrokerHeartbeatRequest("C", "a0:1", "a").to_ext()
    for at, fields, code in ((900, good, 0), (1_800, good, 0), (2_700, good | {"maxOffset": "much"}, 1),
                             (2_750, good, 0), (3_000, good | {"maxOffset": "7"}, 0), (3_900, good, 0)):
        fleet.pass_to(at)
        assert fleet.hand_over(Command(RequestCode.BROKER_HEARTBEAT, ext=fields), "a0:1").code == code
    assert len(read) == 4, "the first, the bad one, and where they change"
    fleet.pass_to(4_899)
    assert fleet.route() is not None
    fleet.unregister("a", 0)
    fleet.heartbeat("a0:1")
    assert fleet.route() is None
    fleet.register("a", 0, timeout_ms=1_000)
    fleet.pass_to(5_899)
    assert fleet.route() is None, "not before it says so in its new life"


def test_a_shorter_timeout_counts_at_once_and_a_longer_one_too() -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    fleet.register("a", 0, timeout_ms=500)
    fleet.pass_to(499)
    assert fleet.core.next_deadline() == 500 * MS
    fleet.register("a", 0, timeout_ms=4_501)
    fleet.pass_to(4_999)
    assert fleet.route() is not None
    fleet.pass_to(5_000)
    assert fleet.route() is None


def test_neither_heartbeat_nor_data_version_brings_a_broker_back() -> None:
    fleet = Fleet()
    fleet.register("a", 0, timeout_ms=1_000)
    fleet.pass_to(1_000)
    assert fleet.heartbeat("a0:1").code == 0
    answer = fleet.data_version("a0:1", DataVersion(0, 1_000, 1))
    assert (answer.ext, answer.body) == ({"changed": "true"}, b"")
    assert fleet.route() is None


def test_a_broker_that_comes_and_goes_fills_no_queue() -> None:
    """Each of its lives had a place there until its deadline, which a broker may put off for years."""
    fleet = Fleet()
    fleet.register("b", 0, timeout_ms=1_000)
    for number in range(3_000):
        fleet.register("a", number % 2, address="a:1", timeout_ms=1 << 40)
    assert len(fleet.core.registry._silence) <= 2 * len(fleet.tables.live) + SWEPT_FROM
    fleet.pass_to(1_000)
    assert set(fleet.addresses()) == {"a"}


def test_the_connection_of_the_silent_is_closed_unless_others_live_on_it() -> None:
    fleet = Fleet()
    fleet.register("a", 0, timeout_ms=1_000, connection="one")
    fleet.register("b", 0, timeout_ms=1_000, connection="two")
    fleet.register("c", 0, timeout_ms=9_000, connection="two")
    fleet.pass_to(1_000)
    assert [effect for effect in fleet.effects if isinstance(effect, Close)] == [Close("one")]
    assert set(fleet.addresses()) == {"c"}


def test_who_was_not_listening_does_not_judge() -> None:
    """A name server that was stopped for a while reads what piled up before it calls anybody silent."""
    fleet = Fleet()
    fleet.register("a", 0, timeout_ms=10_000)
    fleet.register("b", 0, timeout_ms=10_000)
    fleet.now = 60_000 * MS
    fleet.core.expire(fleet.now)
    assert set(fleet.addresses()) == {"a", "b"}
    fleet.heartbeat("a0:1")
    fleet.pass_to(64_999)
    assert set(fleet.addresses()) == {"a", "b"}
    fleet.pass_to(65_000)
    assert set(fleet.addresses()) == {"a"}


def test_it_looks_for_pauses_of_its_own_only_before_a_deadline() -> None:
    fleet = Fleet()
    fleet.register("a", 0, timeout_ms=10_000)
    looks = []
    while (due := fleet.core.next_deadline()) is not None:
        looks.append(due // MS)
        fleet.pass_to(due // MS)
    assert looks == [*range(8_000, 10_001, 100)]


@pytest.mark.parametrize("late_ms", [-900, 0, 900])
def test_a_pause_that_ends_close_to_a_deadline_is_nobodys_silence(late_ms: int) -> None:
    fleet = Fleet()
    fleet.register("a", 0, timeout_ms=10_000)
    fleet.pass_to(500)
    fleet.now = (10_000 + late_ms) * MS
    fleet.core.expire(fleet.now)
    assert set(fleet.addresses()) == {"a"}
    fleet.pass_to(14_999 + late_ms)
    assert set(fleet.addresses()) == {"a"}
    fleet.pass_to(15_000 + late_ms)
    assert not fleet.addresses()


@pytest.mark.parametrize("timeout_ms", [0, -5, -(2**63), 2**63 - 1])
def test_absurd_timeouts_harm_nobody_else(timeout_ms: int) -> None:
    fleet = Fleet()
    fleet.register("b", 0)
    fleet.register("a", 0, timeout_ms=timeout_ms)
    fleet.pass_to(60_000)
    assert "b" in fleet.addresses()
    assert ("a" in fleet.addresses()) == (timeout_ms > 0)


def test_repeated_registrations_leave_nothing_behind() -> None:
    fleet = Fleet()
    for _ in range(1_000):
        fleet.register("a", 0, timeout_ms=60_000)
    assert len(fleet.core.registry._silence) == 1


# --- data versions -------------------------------------------------------------------------------------------


def test_a_data_version_is_answered_with_ours_and_whether_it_differs() -> None:
    fleet = Fleet()
    fleet.register("a", 0, version=3)
    same = fleet.data_version("a0:1", DataVersion(0, 1_000, 3))
    assert same.ext == {"changed": "false"}
    assert DataVersion.from_json(same.body) == DataVersion(0, 1_000, 3)
    assert fleet.data_version("a0:1", DataVersion(0, 1_000, 4)).ext == {"changed": "true"}
