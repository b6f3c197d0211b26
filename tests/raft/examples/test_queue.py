"""The queue: in order, no item twice, no put twice, whatever is repeated; and what a forgotten session is told."""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from raft.examples import Queue
from raft.examples.queue import Answered, Command, OpenSession, Pop, Push
from raft.sim import Cluster


def test_first_in_first_out() -> None:
    machine = Queue()
    assert machine.apply(OpenSession()) == {"why": "", "session": 1, "item": None}
    assert [machine.apply(Push(1, number, b"%d" % number))["why"] for number in (1, 2)] == ["", ""]
    assert machine.query(b"") == 2
    assert [machine.apply(Pop(1, number))["item"] for number in (3, 4, 5)] == [b"1", b"2", None]
    assert machine.apply(Pop(1, 5))["why"] == "empty", "a repeat, and it goes on being empty"
    machine.apply(Push(1, 6, b"late"))
    assert machine.apply(Pop(1, 7))["item"] == b"late"


def test_a_repeat_gives_the_same_answer_and_does_nothing() -> None:
    machine = Queue()
    for _ in range(2):
        machine.apply(OpenSession())
    for _ in range(3):
        machine.apply(Push(1, 1, b"one"))
    machine.apply(Push(2, 1, b"two"))
    assert [machine.apply(Pop(1, 2))["item"] for _ in range(3)] == [b"one"] * 3
    assert machine.apply(Pop(2, 2))["item"] == b"two" and machine.query(b"") == 0
    assert machine.apply(Push(1, 1, b"one"))["why"] == "order", "long past"
    assert machine.apply(Push(1, 4, b"one"))["why"] == "order", "3 is missing"
    assert machine.query(b"") == 0


def test_the_session_that_was_silent_for_longest_is_forgotten_and_told_so() -> None:
    machine = Queue(sessions_max=2)
    for _ in range(2):
        machine.apply(OpenSession())
    machine.apply(Push(1, 1, b"x"))
    assert machine.apply(OpenSession())["session"] == 3
    assert machine.apply(Pop(2, 1)) == {"why": "forgotten", "session": 2, "item": None}
    assert machine.apply(Pop(1, 2))["item"] == b"x"
    assert machine.apply(Pop(9, 1))["why"] == "forgotten"


def test_it_is_full_at_its_limit() -> None:
    machine = Queue(bytes_max=5)
    machine.apply(OpenSession())
    assert machine.apply(Push(1, 1, b"1234"))["why"] == ""
    assert machine.apply(Push(1, 2, b""))["why"] == "full"
    machine.apply(Pop(1, 3))
    assert machine.apply(Push(1, 4, b""))["why"] == ""


STEPS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["put", "take", "repeat", "restore"])), max_size=60)


@given(STEPS)
def test_every_item_is_given_out_once_and_in_order(steps: list[tuple[int, str]]) -> None:
    machine, model, given_out = Queue(), deque[bytes](), list[bytes]()
    numbers, last = Counter[int](), dict[int, tuple[Command, Answered]]()
    for _ in range(3):
        machine.apply(OpenSession())
    for session, step in steps:
        if step == "restore":
            restored = Queue()
            restored.restore(machine.snapshot())
            assert restored.snapshot() == machine.snapshot() and restored.bytes == machine.bytes
            machine = restored
        elif step == "repeat":
            if session in last:
                command, outcome = last[session]
                assert machine.apply(command) == outcome
        else:
            numbers[session] += 1
            number = numbers[session]
            command = (Push(session, number, b"%d/%d" % (session, number)) if step == "put" else Pop(session, number))
            outcome = machine.apply(command)
            last[session] = command, outcome
            if isinstance(command, Push):
                model.append(command.item)
            else:
                due = model.popleft() if model else None
                assert outcome["item"] == due and (outcome["why"] == "empty") == (due is None)
                if due is not None:
                    given_out.append(due)
        assert list(machine.items) == list(model)
    assert len(set(given_out)) == len(given_out)


def test_a_take_repeated_to_the_next_leader_is_the_same_take() -> None:
    with Cluster(3, Queue, seed=4) as cluster:
        session = cluster.propose(OpenSession())["session"]
        cluster.propose(Push(session, 1, b"one"))
        cluster.propose(Push(session, 2, b"two"))
        taken = cluster.propose(Pop(session, 3))
        cluster.crash(cluster.leader)
        assert cluster.propose(Pop(session, 3)) == taken
        assert cluster.propose(Pop(session, 4))["item"] == b"two"
