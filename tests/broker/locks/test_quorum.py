"""Locks by majority, beside what clients believe: whatever is lost or late, one client holds a queue at a time."""

from __future__ import annotations

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.consumers.locks import Granted, Locks
from broker.locks.quorum import majority, read, won, written
from remoting.bodies.consumers import MessageQueue

QUEUES = [MessageQueue("t", "b", number) for number in range(2)]
CLIENT_MS, REQUEST_MS = 30_000, 3_000
"""How long a Java client takes a lock for held after the answer, and the most that a request takes."""
MEMBERS, CLIENTS = st.integers(0, 2), st.sampled_from(["c1", "c2", "c3"])


def test_a_majority() -> None:
    assert [majority(total) for total in range(1, 6)] == [1, 2, 2, 3, 3]
    one, other = QUEUES
    assert won(QUEUES, [[one, one], [one], [other]], 2) == [one], "a broker has one voice"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**63 - 1)), unique_by=lambda each: each[0]), st.text())
def test_grants_are_read_as_they_were_written(fresh: list[tuple[int, int]], other: str) -> None:
    queues = [MessageQueue("t", "b", number) for number in range(10)]
    grants = {queues[place]: grant for place, grant in fresh}
    assert read(written(queues, grants), queues) == grants
    assert set(read(other, queues)) <= set(queues)


@attrs.define(eq=False)
class Asking:
    """A request of a client that is under way: what each broker has answered."""

    client: str
    began_ms: int
    by: int
    answers: dict[int, Granted] = attrs.field(factory=dict)


class Group(RuleBasedStateMachine):
    """Three brokers; any of them may be asked, votes come one by one, and some never."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.brokers = [Locks(lambda: self.now_ms * 1_000_000, 1_000 * number) for number in range(3)]
        self.asking: list[Asking] = []
        self.late: list[tuple[int, dict[MessageQueue, int]]] = []
        self.believed: dict[tuple[str, MessageQueue], int] = {}

    @rule(client=CLIENTS, by=MEMBERS)
    def ask(self, client: str, by: int) -> None:
        self.asking.append(Asking(client, self.now_ms, by))
        self.vote(len(self.asking) - 1, by)

    @rule(number=st.integers(0, 5), member=MEMBERS)
    def vote(self, number: int, member: int) -> None:
        if number < len(self.asking) and member not in self.asking[number].answers:
            asking = self.asking[number]
            asking.answers[member] = self.brokers[member].grant("g", QUEUES, asking.client)

    @rule(number=st.integers(0, 5), told=st.booleans())
    def answer(self, number: int, told: bool) -> None:
        """What was won is told, unless the answer is lost; what was not is given back, soon or late."""
        if number >= len(self.asking):
            return
        asking = self.asking.pop(number)
        held = won(QUEUES, [granted.grants for granted in asking.answers.values()], majority(3))
        for member, granted in asking.answers.items():
            self.late.append((member, {
                queue: granted.grants[queue] for queue in granted.fresh if queue not in held}))
        if told:
            for queue in QUEUES:
                self.believed[asking.client, queue] = self.now_ms + CLIENT_MS if queue in held else -1

    @rule(number=st.integers(0, 9))
    def give_back(self, number: int) -> None:
        if number < len(self.late):
            member, grants = self.late.pop(number)
            self.brokers[member].give_back("g", grants)

    @rule(passed=st.sampled_from([1, 2_000, 28_000, 31_000, 61_000]))
    def wait(self, passed: int) -> None:
        """No request lasts longer than both sides wait for it."""
        self.now_ms += passed
        self.asking = [each for each in self.asking if self.now_ms - each.began_ms < REQUEST_MS]

    @invariant()
    def one_client_holds_a_queue(self) -> None:
        for queue in QUEUES:
            holders = [client for (client, at), until in self.believed.items() if at == queue and until >= self.now_ms]
            assert len(holders) <= 1, (queue, holders)


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
