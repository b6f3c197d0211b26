"""Locks by majority, beside what clients believe: whatever is lost or late, one client holds a queue at a time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.consumers.locks import HELD_MS, Granted, Locks
from broker.locks.quorum import Votes, majority, read, won, written
from remoting.bodies.consumers import MessageQueue

QUEUES = [MessageQueue("t", "b", number) for number in range(2)]
CLIENT_MS, REQUEST_MS = 30_000, 3_000
"""How long a Java client takes a lock for held after the answer, and the most that a request takes."""
CLIENTS = ["c1", "c2", "c3"]


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


def test_what_a_client_gives_back() -> None:
    votes, (one, other) = Votes(60), QUEUES
    votes.remember("g", "c1", {"": {one: 1, other: 2}, "m": {one: 7}}, 0)
    votes.remember("g", "c1", {"m": {one: 8}, "n": {one: 3}}, 10)
    assert votes.take("g", "c2", QUEUES) == votes.take("h", "c1", QUEUES) == {}
    assert votes.take("g", "c1", [one]) == {"": {one: 1}, "m": {one: 8}, "n": {one: 3}}, "the last of each member"
    assert votes.take("g", "c1", QUEUES) == {"": {other: 2}}
    votes.remember("g", "c1", {"m": {one: 9}}, 20)
    votes.remember("g", "c2", {"n": {one: 4}}, 20)
    assert votes.take("g", "c1", QUEUES) == {} and votes.take("g", "c2", QUEUES) == {"n": {one: 4}}
    votes.remember("g", "c1", {"m": {one: 9}}, 20)
    votes.remember("g", "c1", {"m": {other: 9}}, 90)
    assert len(votes) == 1, "what is over is let go"


@attrs.define(eq=False)
class Asking:
    """A request of a client that is under way: what each broker has answered."""

    client: str
    began_ms: int
    by: int
    answers: dict[int, Granted] = attrs.field(factory=dict)


class Group:
    """Three brokers; any of them may be asked, votes come one by one, and some never. What is given back comes late,
    and brokers die and forget."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.lives = 0
        self.brokers = [self._begun() for _ in range(3)]
        self.votes = [Votes(HELD_MS) for _ in range(3)]
        self.asking: list[Asking] = []
        self.unlocking: list[tuple[str, int]] = []
        """Clients' words that are under way to a broker, in their order."""
        self.late: list[tuple[int, dict[MessageQueue, int]]] = []
        self.believed: dict[tuple[str, MessageQueue], int] = {}
        for broker in self.brokers:
            broker.silent_until_ns = 0  # as if the group were older than that

    def _begun(self) -> Locks:
        self.lives += 1
        locks = Locks(lambda: self.now_ms * 1_000_000, 1_000 * self.lives)
        locks.be_silent()
        return locks

    def ask(self, client: str, by: int) -> None:
        while (client, by) in self.unlocking:  # one broker hears a client in its order
            self.unlocked(self.unlocking.index((client, by)))
        self.asking.append(Asking(client, self.now_ms, by))
        self.vote(len(self.asking) - 1, by)

    def vote(self, number: int, member: int) -> None:
        if number < len(self.asking) and member not in self.asking[number].answers:
            asking = self.asking[number]
            asking.answers[member] = self.brokers[member].grant("g", QUEUES, asking.client)

    def answer(self, number: int, told: bool) -> None:
        """What was won is told, unless the answer is lost; what was not is given back, soon or late."""
        if number >= len(self.asking):
            return
        asking = self.asking.pop(number)
        held = won(QUEUES, [granted.grants for granted in asking.answers.values()], majority(3))
        for member, granted in asking.answers.items():
            self.late.append((member, {
                queue: granted.grants[queue] for queue in granted.fresh if queue not in held}))
        self.votes[asking.by].remember("g", asking.client, {
            str(member): {queue: granted.grants[queue] for queue in granted.grants if queue in held}
            for member, granted in asking.answers.items()}, self.now_ms)
        if told:
            for queue in QUEUES:
                self.believed[asking.client, queue] = self.now_ms + CLIENT_MS if queue in held else -1

    def lock(self, client: str, by: int, other: int) -> None:
        """All of it at once; the third broker does not answer."""
        self.ask(client, by)
        self.vote(len(self.asking) - 1, other)
        self.answer(len(self.asking) - 1, told=True)

    def unlock(self, client: str, by: int) -> None:
        """A client gives all back, and believes no answer to what it asked before."""
        self.asking = [each for each in self.asking if each.client != client]
        self.unlocking.append((client, by))
        for queue in QUEUES:
            self.believed.pop((client, queue), None)

    def unlocked(self, number: int) -> None:
        if number < len(self.unlocking):
            client, by = self.unlocking.pop(number)
            for member, grants in self.votes[by].take("g", client, QUEUES).items():
                if int(member) == by:
                    self.brokers[by].give_back("g", grants)
                else:
                    self.late.append((int(member), grants))

    def give_back(self, number: int) -> None:
        if number < len(self.late):
            member, grants = self.late.pop(number)
            self.brokers[member].give_back("g", grants)

    def restart(self, member: int) -> None:
        """It knows nothing of what it granted. What it was asked for is not answered."""
        self.brokers[member], self.votes[member] = self._begun(), Votes(HELD_MS)
        self.asking = [each for each in self.asking if each.by != member]

    def wait(self, passed: int) -> None:
        """No request lasts longer than both sides wait for it."""
        self.now_ms += passed
        self.asking = [each for each in self.asking if self.now_ms - each.began_ms < REQUEST_MS]

    def holders(self) -> dict[MessageQueue, list[str]]:
        """By queue the clients that take it for theirs."""
        return {queue: [client for (client, at), until in self.believed.items() if at == queue and until >= self.now_ms]
                for queue in QUEUES}


def drawn(group: Group, rng: Random) -> tuple[Callable[..., None], *tuple[object, ...]]:
    """Something that may happen. Most requests are whole, and time seldom passes."""
    client, by, other, number = rng.choice(CLIENTS), rng.randrange(3), rng.randrange(3), rng.randrange(10)
    told = rng.random() < 0.8
    what = rng.choices(
        ("lock", "ask", "vote", "answer", "unlock", "unlocked", "give_back", "restart", "wait"),
        (6, 2, 4, 2, 2, 2, 2, 1, 3))[0]
    found: dict[str, tuple[Callable[..., None], *tuple[object, ...]]] = {
        "lock": (group.lock, client, by, other), "ask": (group.ask, client, by), "vote": (group.vote, number, other),
        "answer": (group.answer, number, told), "unlock": (group.unlock, client, by),
        "unlocked": (group.unlocked, number), "give_back": (group.give_back, number),
        "restart": (group.restart, by), "wait": (group.wait, rng.choice([1, 1, 2_000, 2_000, 28_000, 31_000, 61_000])),
    }
    return found[what]


@pytest.mark.parametrize("seed", range(20))
def test_one_client_holds_a_queue_whatever_is_late_lost_or_forgotten(seed: int) -> None:
    rng, held = Random(seed), 0
    for _ in range(200):
        group = Group()
        done = []
        for _ in range(60):
            call, *values = drawn(group, rng)
            done.append((call.__name__, *values))
            call(*values)
            holders = group.holders()
            held += any(holders.values())
            assert all(len(each) <= 1 for each in holders.values()), (holders, done)
    assert held > 2_000
