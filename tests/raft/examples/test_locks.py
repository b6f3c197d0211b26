"""The locks: one holder at a time, tokens that rise, a takeover of exactly what was seen, repeats without effect."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raft.examples import Locks
from raft.examples.locks import FREE, Acquire, Command, Lock, Release, Renew
from raft.sim import Cluster

NAMES, OWNERS = st.sampled_from(["x", "y"]), st.sampled_from(["ann", "bob", "cy"])
SMALL = st.integers(0, 6)
COMMANDS = st.lists(
    st.builds(Acquire, NAMES, OWNERS, SMALL, st.integers(0, 2)) | st.builds(Renew, NAMES, SMALL)
    | st.builds(Release, NAMES, SMALL), max_size=40)


def test_whoever_comes_second_waits_until_it_is_free() -> None:
    machine = Locks()
    mine = machine.apply(Acquire("x", "ann"))
    assert mine == {"token": 1, "owner": "ann", "renewals": 0}
    assert machine.apply(Acquire("x", "ann")) == mine, "a repeat"
    assert machine.apply(Acquire("x", "bob")) == mine
    assert machine.apply(Acquire("y", "bob"))["token"] == 2, "another lock"
    assert machine.apply(Release("x", 2)) == mine, "another's token"
    assert machine.apply(Release("x", 1)) == FREE == machine.query(b"x")
    assert machine.apply(Acquire("x", "bob"))["token"] == 3


def test_a_lock_is_taken_over_only_as_it_was_seen() -> None:
    machine = Locks()
    machine.apply(Acquire("x", "ann"))
    seen = machine.query(b"x")
    assert machine.apply(Renew("x", 1))["renewals"] == 1
    assert machine.apply(Acquire("x", "bob", seen["token"], seen["renewals"]))["owner"] == "ann", "she lives"
    seen = machine.query(b"x")
    assert machine.apply(Acquire("x", "bob", seen["token"], seen["renewals"])) == {
        "token": 2, "owner": "bob", "renewals": 0}
    assert machine.apply(Renew("x", 1))["owner"] == "bob", "and she hears of it"
    assert machine.apply(Acquire("x", "cy", seen["token"], seen["renewals"]))["owner"] == "bob", "once"


@given(COMMANDS, st.integers(0, 40))
def test_tokens_rise_and_change_only_for_a_reason(commands: list[Command], cut: int) -> None:
    machine, last = Locks(), 0
    for number, command in enumerate(commands):
        if number == cut:
            restored = Locks()
            restored.restore(machine.snapshot())
            machine = restored
        before: Lock = machine.query(command.name.encode())
        after = machine.apply(command)
        assert after == machine.query(command.name.encode())
        if after["token"] > last:
            assert isinstance(command, Acquire) and after["owner"] == command.owner
            assert before == FREE or (before["token"], before["renewals"]) == (command.instead_of, command.renewals)
            last = after["token"]
        else:
            assert after["token"] in (0, before["token"])
            if after == FREE != before:
                assert isinstance(command, Release) and command.token == before["token"]
        assert len({lock["token"] for lock in machine.held.values()}) == len(machine.held)


def test_a_holder_that_lost_its_lock_is_fenced() -> None:
    """The store that the lock protects refuses what it is sent under an older token."""
    with Cluster(3, Locks, seed=3) as cluster:
        old = cluster.propose(Acquire("store", "ann"))
        cluster.crash(cluster.leader)
        seen = cluster.read(lambda machine: machine.query(b"store"))
        new = cluster.propose(Acquire("store", "bob", seen["token"], seen["renewals"]))
        assert (old["owner"], new["owner"]) == ("ann", "bob") and new["token"] > old["token"]
        highest = max(new["token"], old["token"])
        assert [token >= highest for token in (new["token"], old["token"])] == [True, False]
