"""The dictionary: conditions on versions, its limit, and that a restored one goes on as the old one would have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raft.examples import Dictionary
from raft.examples.dictionary import Change, Delete, Put
from raft.sim import Cluster

KEYS = st.sampled_from(["a", "b"])
VERSIONS = st.none() | st.integers(0, 6)
CHANGES = st.lists(
    st.builds(Put, KEYS, st.binary(max_size=6), VERSIONS) | st.builds(Delete, KEYS, VERSIONS), max_size=25)


def test_a_change_on_condition_is_done_once() -> None:
    machine = Dictionary()
    assert machine.apply(Put("k", b"1", 0)) == {"why": "", "version": 1}
    assert machine.apply(Put("k", b"1", 0)) == {"why": "version", "version": 1}
    assert machine.apply(Put("k", b"2", 1)) == {"why": "", "version": 2}
    assert machine.query(b"k") == {"value": b"2", "version": 2}
    assert machine.apply(Delete("k", 1)) == {"why": "version", "version": 2}
    assert machine.apply(Delete("k", 2)) == {"why": "", "version": 0}
    assert machine.query(b"k") is None
    assert machine.apply(Put("k", b"3")) == {"why": "", "version": 3}, "no version comes twice"


def test_it_is_full_at_its_limit_and_not_before() -> None:
    machine = Dictionary(bytes_max=10)
    assert machine.apply(Put("ab", b"12345678"))["why"] == ""
    assert machine.apply(Put("c", b""))["why"] == "full"
    assert machine.apply(Put("ab", b"1234567"))["why"] == "" and machine.apply(Put("c", b""))["why"] == ""
    assert machine.bytes == 10
    machine.apply(Delete("ab"))
    assert machine.bytes == 1


@given(CHANGES, CHANGES)
def test_it_is_a_dictionary_and_a_restored_one_is_the_same(before: list[Change], after: list[Change]) -> None:
    machine, model, seen = Dictionary(bytes_max=12), dict[str, bytes](), set[int]()
    for number, change in enumerate([*before, *after]):
        if number == len(before):
            restored = Dictionary(bytes_max=12)
            restored.restore(machine.snapshot())
            machine = restored
        old = {key: entry["version"] for key, entry in machine.entries.items()}
        changed = machine.apply(change)
        due = change.if_version in (None, old.get(change.key, 0))
        assert due == (changed["why"] in ("", "full"))
        if changed["why"] == "":
            if isinstance(change, Put):
                model[change.key] = change.value
                assert changed["version"] not in seen
                seen.add(changed["version"])
            else:
                model.pop(change.key, None)
        assert {key: entry["value"] for key, entry in machine.entries.items()} == model
        assert machine.bytes == sum(len(key) + len(value) for key, value in model.items()) <= 12


def test_it_outlives_its_leader() -> None:
    with Cluster(3, Dictionary, seed=2) as cluster:
        first = cluster.propose(Put("k", b"1", 0))
        cluster.crash(cluster.leader)
        assert cluster.propose(Put("k", b"2", first["version"]))["why"] == ""
        assert cluster.read(lambda machine: machine.query(b"k")["value"]) == b"2"
