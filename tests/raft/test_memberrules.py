"""What each rule of memberships lets pass and what it refuses, at its edges: facts made by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raft.memberrules import INV_R16, INV_R17, INV_R18, INV_R19_candidate, INV_R19_removed
from raft.membership import Membership
from raft.messages import Role
from raft.violation import InvariantViolation

AB, ABC, CD = Membership(("a", "b")), Membership(("a", "b", "c")), Membership(("c", "d"))
JOINT = Membership(("a", "b", "c"), ("a", "b"))


class Facts:
    """Node a, which leads term 7 since entry 5; its memberships as far as it knows, and what is committed."""

    def __init__(self, *, commit: int = 9, since: tuple[int, int] = (7, 5), remembered: Membership = ABC,
                 now: Membership = ABC, committed: Membership = ABC) -> None:
        self.counts: Counter[str] = Counter()
        self.group = cast(Any, self)
        self.node = cast(Any, SimpleNamespace(
            name="a", term_first=since, memory=SimpleNamespace(memberships=[(0, CD), (1, remembered)])))
        log = SimpleNamespace(membership_index=9, membership_at=lambda index: ({commit: 1}[index], committed))
        self.replica = cast(Any, SimpleNamespace(
            role=Role.LEADER, term=7, commit_index=commit, membership=now, log=log))
        self.frame = cast(Any, SimpleNamespace(first=10))


def goes(old: Membership, new: Membership, at: int = 9) -> Callable[[Facts], None]:
    return lambda facts: INV_R16(facts.group, facts.node, facts.replica, (at, old), facts.frame, new)


def differs(old: Membership, new: Membership) -> Callable[[Facts], None]:
    return lambda facts: INV_R17(facts.group, facts.node, old, new)


def proposes(facts: Facts) -> None:
    INV_R18(facts.group, facts.node, facts.replica, facts.frame)


def asks(facts: Facts) -> None:
    INV_R19_candidate(facts.group, facts.node, facts.replica)


def leads(facts: Facts) -> None:
    INV_R19_removed(facts.group, facts.node, facts.replica)


@pytest.mark.parametrize(("facts", "rule", "asked", "holds"), [
    (Facts(), goes(AB, ABC), 1, True), (Facts(), goes(AB, ABC, at=8), 1, True),
    (Facts(commit=8), goes(AB, ABC), 1, False),
    (Facts(), goes(AB, JOINT), 1, True), (Facts(), goes(ABC, JOINT), 1, False),
    (Facts(), goes(JOINT, ABC), 1, True), (Facts(), goes(JOINT, AB), 1, False),
    (Facts(), goes(JOINT, Membership(("a", "b", "c"), ("c", "d"))), 1, True),
    (Facts(), differs(AB, AB), 1, True), (Facts(), differs(AB, ABC), 1, True), (Facts(), differs(ABC, AB), 1, True),
    (Facts(), differs(AB, Membership(("a", "c"))), 1, False), (Facts(), differs(Membership(()), ABC), 1, True),
    (Facts(), differs(AB, Membership(())), 1, False),
    (Facts(), differs(AB, Membership(("c", "d"), ("a", "b"))), 1, True), (Facts(), differs(JOINT, CD), 1, True),
    (Facts(), proposes, 1, True), (Facts(commit=5), proposes, 1, True), (Facts(commit=4), proposes, 1, False),
    (Facts(since=(6, 5)), proposes, 1, False),
    (Facts(remembered=CD, now=CD), asks, 1, True), (Facts(remembered=CD, committed=CD), asks, 1, True),
    (Facts(now=CD, committed=CD), asks, 1, True), (Facts(remembered=CD, now=CD, committed=CD), asks, 1, False),
    (Facts(now=CD), leads, 1, False), (Facts(now=CD, commit=8), leads, 1, True), (Facts(), leads, 0, True),
])
def test_each_rule_at_its_edges(facts: Facts, rule: Callable[[Facts], None], asked: int, holds: bool) -> None:
    if holds:
        rule(facts)
    else:
        with pytest.raises(InvariantViolation) as error:
            rule(facts)
        assert list(facts.counts) == [error.value.id]
    assert facts.counts.total() == asked
    facts.counts.clear()
