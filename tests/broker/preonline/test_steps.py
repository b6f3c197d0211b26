"""Whom a member that starts asks, whose log it lacks, and who is linked to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.preonline.steps import LogEnds, Tail, others, tail, unlinked

ENDS = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: LogEnds(*sorted(pair)))


def test_the_others_are_all_but_this_broker_and_its_former_process() -> None:
    members = {2: "c:1", 0: "old:1", 1: "b:1", 3: "a:1"}
    assert list(others(0, "a:1", members).items()) == [(1, "b:1"), (2, "c:1")]


@given(ENDS, st.dictionaries(st.integers(1, 4), ENDS, max_size=4))
def test_copying_what_is_longer_ends_level_with_the_longest_or_says_why_not(
    own: LogEnds, members: dict[int, LogEnds]
) -> None:
    for _ in range(len(members) + 1):
        todo = tail(own, members)
        if not isinstance(todo, Tail):
            break
        held = members[todo.member]
        assert held.end == todo.end > own.end
        assert not own.end or held.begin <= own.end, "no gap"
        own = LogEnds(own.begin if own.end else todo.begin, todo.end)
    else:
        pytest.fail("each copy is of a longer log")
    longest = max((ends.end for ends in members.values()), default=0)
    if todo is None:
        assert own.end >= longest
    else:
        assert own.end < longest
        assert f"ends at {own.end}" in todo


HOSTS = st.sampled_from(["a", "b", "name", "other"])


@given(st.dictionaries(st.integers(1, 4), HOSTS.map(lambda host: [host]), max_size=4), st.lists(HOSTS, max_size=5))
def test_each_member_needs_a_connection_of_its_own(members: dict[int, list[str]], links: list[str]) -> None:
    missing = unlinked(members, links)
    assert set(missing) <= members.keys()
    assert len(members) - len(missing) <= len(links)
    if links.count("a") > sum(hosts == ["a"] for hosts in members.values()) and ["a"] in members.values():
        assert unlinked(members, [*links, "a"]) == missing, "one host too often counts for nobody else"
    for member in missing:
        assert members[member][0] not in links or (
            sum(hosts == members[member] for hosts in members.values()) > links.count(members[member][0]))
    assert unlinked(members, [hosts[0] for hosts in members.values()]) == []
    assert unlinked(members, ["10.0.0.1"] * len(members)) == [], "clients are told other addresses than that is from"
