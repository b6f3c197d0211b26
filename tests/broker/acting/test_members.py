"""Who lives in a group, by what several name servers say."""

from __future__ import annotations

from broker.acting.members import Group, Members


def test_members() -> None:
    members = Members({2: "c:1", 0: "a:1"})
    assert (members.ids, members.master, members.least) == ((0, 2), "a:1", 0)
    assert (Members().ids, Members().master, Members().least) == ((), None, None)


def test_half_of_those_that_answered_lately_say_who_is_one() -> None:
    group = Group(1)
    heard: list[Members] = []
    group.changed.join("parts", heard.append)
    group.heard("n1", {0: "a:1", 1: "b:1"}, 0, late_ns=100)
    assert group.members.least == 0
    group.heard("n2", {1: "b:1"}, 10, late_ns=100)
    assert group.members.master == "a:1"
    group.heard("n3", {1: "b:1"}, 20, late_ns=100)
    assert group.members == Members({1: "b:1"})
    assert group.acts
    group.heard("n3", {1: "b:1", 0: "a:1"}, 30, late_ns=100)
    assert group.members.master == "a:1"
    group.heard("n2", {1: "b:1"}, 110, late_ns=100)
    assert group.members.master == "a:1", "n3 said it lately"
    group.use(["n1", "n2"])
    group.heard("n2", {1: "b:1"}, 120, late_ns=100)
    assert [each.ids for each in heard] == [(0, 1), (1,), (0, 1), (1,)]


def test_a_master_and_another_slave_act_for_nobody() -> None:
    for own in (0, 2):
        group = Group(own)
        group.heard("n", {own: "x:1", 1: "b:1"}, 0, late_ns=1)
        assert not group.acts
