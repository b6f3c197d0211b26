"""Locks on queues beside a model."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.consumers import locks as module
from broker.consumers.locks import HELD_MS, Locks
from remoting.bodies.consumers import MessageQueue

QUEUES = [MessageQueue("t", "b", number) for number in range(3)]
GROUP = st.sampled_from(["g", "h"])
CLIENT = st.sampled_from(["c1", "c2"])
SOME = st.lists(st.sampled_from(QUEUES), unique=True)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.locks = Locks(lambda: self.now_ms * 1_000_000)
        self.held: dict[tuple[str, MessageQueue], tuple[str, int]] = {}

    @rule(group=GROUP, client=CLIENT, queues=SOME)
    def lock(self, group: str, client: str, queues: list[MessageQueue]) -> None:
        expected = []
        for queue in queues:
            holder, until = self.held.get((group, queue), ("", -1))
            if holder == client or until < self.now_ms:
                self.held[group, queue] = client, self.now_ms + HELD_MS
                expected.append(queue)
        assert self.locks.lock(group, queues, client) == expected

    @rule(group=GROUP, client=CLIENT, queues=SOME)
    def unlock(self, group: str, client: str, queues: list[MessageQueue]) -> None:
        for queue in queues:
            if self.held.get((group, queue), ("", 0))[0] == client:
                del self.held[group, queue]
        self.locks.unlock(group, queues, client)

    @rule(passed=st.sampled_from([1, HELD_MS // 2, HELD_MS + 1]))
    def wait(self, passed: int) -> None:
        self.now_ms += passed

    @rule()
    def expire(self) -> None:
        self.held = {key: each for key, each in self.held.items() if each[1] >= self.now_ms}
        self.locks.expire()

    @invariant()
    def knows_who_consumes_in_order(self) -> None:
        for group in ("g", "h"):
            assert self.locks.held_by_group(group) == any(
                key[0] == group and until >= self.now_ms for key, (_, until) in self.held.items())


TestMachine = Machine.TestCase


def test_a_lock_lasts_a_minute_and_as_long_as_its_holder_asks() -> None:
    now_ms = 0
    locks = Locks(lambda: now_ms * 1_000_000)
    assert locks.lock("g", QUEUES[:2], "c1") == QUEUES[:2]
    for asked_ms in range(20_000, 100_000, 20_000):
        now_ms = asked_ms
        assert locks.lock("g", QUEUES[:1], "c1") == QUEUES[:1]
    now_ms = 80_000 + 60_000
    assert locks.lock("g", QUEUES[:2], "c2") == [QUEUES[1]], "that one was not asked for again"
    now_ms += 1
    assert locks.lock("g", QUEUES[:2], "c2") == QUEUES[:2]


def test_no_more_are_held_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.HELD_MAX == 200_000
    monkeypatch.setattr(module, "HELD_MAX", 2)
    locks = Locks(lambda: 0)
    assert locks.lock("g", QUEUES, "c1") == QUEUES[:2]
    assert locks.lock("h", QUEUES, "c2") == []
    locks.unlock("g", QUEUES[:1], "c1")
    assert locks.lock("h", QUEUES, "c2") == QUEUES[:1]


def test_a_copied_grant_is_believed_but_not_against_a_grant_of_this_broker() -> None:
    now_ms = 0
    locks = Locks(lambda: now_ms * 1_000_000)
    one, other, third = QUEUES
    assert set(locks.grant("g", [one], "c1", copied=True).grants) == {one}
    assert locks.lock("g", [one], "c2") == [], "its former holder keeps it"
    assert set(locks.grant("g", [one], "c2", copied=True).grants) == {one}, "the granting broker knows better"
    assert locks.lock("g", [other], "c1") == [other]
    assert not locks.grant("g", [other], "c2", copied=True).grants
    assert locks.overlaps == 1
    now_ms = HELD_MS + 1
    assert set(locks.grant("g", QUEUES, "c2", copied=True).grants) == set(QUEUES)
    assert locks.lock("g", [third], "c2") == [third] and locks.overlaps == 1


def test_a_grant_that_was_renewed_is_not_given_back() -> None:
    locks = Locks(lambda: 0)
    first = locks.grant("g", QUEUES[:2], "c1")
    assert first.fresh == set(QUEUES[:2])
    again = locks.grant("g", QUEUES[:1], "c1")
    assert again.fresh == frozenset()
    locks.give_back("g", first.grants)
    assert locks.lock("g", QUEUES[:2], "c2") == [QUEUES[1]]
