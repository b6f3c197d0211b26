"""Consumer groups: made on their own or not, forbidden, deleted, versioned."""

from __future__ import annotations

import pytest

from broker.groups import GroupsConfig, GroupTable
from broker.store.files import MemoryFiles
from broker.store.tables import SubscriptionGroup, SubscriptionGroups, load, save
from remoting.bodies.namesrv import DataVersion


def table(**config: bool) -> GroupTable:
    return GroupTable(GroupsConfig(**config), lambda: 77)


def test_system_groups_are_there_from_the_start() -> None:
    assert table().get("CID_RMQ_SYS_TRANS") == SubscriptionGroup("CID_RMQ_SYS_TRANS")
    assert table().get("g") is None


@pytest.mark.parametrize(("name", "automatic", "system", "made"), [
    ("g", True, True, True),
    ("g", False, True, False),
    ("CID_RMQ_SYS_X", False, True, True),
    ("CID_RMQ_SYS_X", False, False, False),
    ("a" * 120, True, True, True),
    ("a" * 121, True, True, False),
    ("not legal!", True, True, False),
    ("", True, True, False),
])
def test_groups_that_are_made_by_being_asked_for(name: str, automatic: bool, system: bool, made: bool) -> None:
    groups = table(auto_create_subscription_group=automatic, enable_create_sys_group=system)
    told: list[int] = []
    groups.on_change = lambda: told.append(groups.version.counter)
    assert (groups.find(name) == SubscriptionGroup(name)) is made if made else groups.find(name) is None
    assert (groups.get(name) is not None) is made
    assert told == ([1] if made else [])
    groups.find(name)
    assert told == ([1] if made else []), "once"


def test_each_change_moves_the_version_and_a_replaced_table_brings_its_own() -> None:
    groups = table()
    groups.state_version = 4
    groups.update([SubscriptionGroup("a", consume_enable=False)])
    assert groups.version == DataVersion(4, 77, 1)
    groups.forbid("a", "t", True)
    assert groups.version.counter == 2
    assert groups.delete("a")
    assert not groups.delete("a")
    assert (groups.version.counter, dict(groups.forbidden)) == (3, {})
    groups.replace(SubscriptionGroups({"b": SubscriptionGroup("b")}, {"b": {"t": 4}}, DataVersion(1, 2, 3)))
    assert (list(groups.groups), groups.version) == (["b"], DataVersion(1, 2, 3))
    assert groups.is_forbidden("b", "t")


def test_who_may_not_read_all_is_told_when_it_may_have_changed() -> None:
    groups, told = table(), list[set[str]]()
    groups.barred.join("waiting", lambda names: told.append(set(names)))
    groups.update([SubscriptionGroup("a"), SubscriptionGroup("b", consume_enable=False)])
    groups.forbid("a", "t", True)
    groups.update([SubscriptionGroup("c")])
    groups.replace(groups.snapshot())
    groups.forbid("a", "t", False)
    groups.join(SubscriptionGroups({"d": SubscriptionGroup("d", consume_enable=False)}, {"c": {"t": 4}}, DataVersion(
        1, 2, 30)).to_json())
    assert told == [{"b"}, {"a"}, {"a", "b"}, {"c", "d"}]


def test_bits_are_forbidden_one_by_one() -> None:
    groups = table()
    groups.forbid("g", "t", True)
    groups.forbid("g", "t", True, bit=1)
    groups.forbid("g", "u", True)
    groups.forbid("g", "t", False)
    assert (groups.is_forbidden("g", "t"), groups.is_forbidden("g", "t", 1)) == (False, True)
    groups.forbid("g", "t", False, bit=1)
    assert groups.forbidden == {"g": {"u": 4}}
    assert not groups.is_forbidden("x", "t")


def test_what_is_saved_is_there_again() -> None:
    files, groups = MemoryFiles(), table()
    groups.update([SubscriptionGroup("a", retry_max_times=3, attributes={"x": "y"})])
    groups.forbid("a", "t", True)
    save(files, groups.snapshot())
    again = GroupTable(GroupsConfig(), lambda: 0, load(files, SubscriptionGroups))
    assert again.snapshot() == groups.snapshot()


@pytest.mark.parametrize(("version", "retries"), [(0, 16), (900, 3)])
def test_a_master_that_comes_back_takes_what_is_new_and_loses_no_group(version: int, retries: int) -> None:
    groups = table()
    groups.find("both")
    told = SubscriptionGroups({"both": SubscriptionGroup("both", retry_max_times=3), "new": SubscriptionGroup("new")},
                              {"both": {"T": 1}}, DataVersion(counter=version))
    groups.join(told.to_json())
    both = groups.get("both")
    assert both is not None and both.retry_max_times == retries, "a newer version says more of what both have"
    assert groups.get("new") and groups.get("CID_RMQ_SYS_TRANS")
    assert groups.snapshot().forbidden_table == ({"both": {"T": 1}} if version else {})
    assert told.data_version.precedes(groups.version), "slaves copy it anew"
