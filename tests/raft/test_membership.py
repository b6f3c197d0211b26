"""Memberships as bytes, and the way from one to another: every step legal, the end as desired, from any start."""

from __future__ import annotations

import itertools

import attrs
import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.errors import MalformedMessage
from raft.membership import Desired, Member, Membership, Step, illegal, leave_joint, next_step
from raft.messages import SnapshotMeta
from raft.snapshotmeta import decode_meta, encode_meta

NAMES = ["a", "b", "c", "d", "e"]
ids = st.text(min_size=1, max_size=8)
members = st.builds(Member, st.text(max_size=20), st.binary(max_size=16), st.integers(-100, 100))
memberships = st.builds(
    Membership, st.lists(ids, max_size=5), st.lists(ids, max_size=5), st.lists(ids, max_size=5),
    st.dictionaries(ids, members, max_size=5))


# --- bytes -----------------------------------------------------------------------------------------------------


@given(memberships)
def test_a_membership_survives_its_bytes(membership: Membership) -> None:
    again = Membership.decode(membership.encode())
    assert again == membership
    assert again.encode() == membership.encode()


@given(memberships)
def test_equal_memberships_have_equal_bytes(membership: Membership) -> None:
    """Replicas compare them; the order in which roles and members were given must not show."""
    shuffled = Membership(
        reversed(membership.voters), reversed(membership.outgoing), reversed(membership.learners),
        dict(reversed(list(membership.members.items()))))
    assert shuffled.encode() == membership.encode()


@given(st.binary(max_size=200))
def test_foreign_bytes_are_malformed_or_a_membership(data: bytes) -> None:
    try:
        made = Membership.decode(data)
    except MalformedMessage:
        return
    assert Membership.decode(made.encode()) == made


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=12)


@given(st.lists(junk, min_size=3, max_size=5) | junk)
def test_foreign_cbor_is_malformed_or_a_membership(value: object) -> None:
    try:
        made = Membership.decode(cbor2.dumps(value))
    except MalformedMessage:
        return
    assert Membership.decode(made.encode()) == made
    assert "" not in {*made.everyone, *made.members}


@pytest.mark.parametrize("value", [
    [["a"], [], [], {"a": ["h:1", b"", "high"]}],
    [["a"], [], [], {"a": ["h:1", "text", 0]}],
    [["a"], [], [], {"a": [b"h:1", b"", 0]}],
    [["a"], [], [], {"a": ["h:1", b""]}],
    [["a", 7], [], [], {}],
    [[""], [], [], {}],
    [["a"], [], [], {"": ["h:1", b"", 0]}],
    [["a"], [], []],
    {"voters": ["a"]},
], ids=repr)
def test_each_wrong_shape_is_malformed(value: object) -> None:
    with pytest.raises(MalformedMessage):
        Membership.decode(cbor2.dumps(value))


# --- questions -------------------------------------------------------------------------------------------------


def test_a_member_is_reached_by_its_address() -> None:
    membership = Membership(("a",), (), (), {"a": Member("a:1"), "b": Member()})
    assert [membership.address_of(who) for who in ("a", "b", "c", None)] == ["a:1", "", None, None]


def test_who_votes_and_who_belongs() -> None:
    joint = Membership(("c", "b", "b"), ("a",), ("d",))
    assert (joint.voters, joint.everyone, joint.joint) == (("b", "c"), ("a", "b", "c", "d"), True)
    assert [name for name in "abcde" if joint.votes(name)] == ["a", "b", "c"]
    assert joint.agree(["a", "b", "c", "d"]) and not joint.agree(["b", "c", "d"]) and not joint.agree(["a", "b"])


def test_q8_learners_and_strangers_make_no_quorum() -> None:
    """openraft d60f1e85: learners were counted for reads."""
    assert not Membership(("a", "b", "c"), (), ("d", "e")).agree(["a", "d", "e", "z"])


# --- the way to a desired membership ----------------------------------------------------------------------------


def quorums(membership: Membership) -> list[frozenset[str]]:
    """Every set of voters that decides."""
    names = membership.everyone
    return [frozenset(some) for n in range(len(names) + 1) for some in itertools.combinations(names, n)
            if membership.agree(some)]


def assert_legal(current: Membership, step: Membership, caught_up: frozenset[str], strangers: dict[str, bytes]) -> None:
    assert step.voters, "a group without voters decides nothing"
    assert set(step.members) == set(step.everyone), "each member is known, nobody else is"
    assert all(mine & theirs for mine in quorums(current) for theirs in quorums(step)), "two groups in one (paper §6)"
    if not step.joint:
        assert not set(step.voters) & set(step.learners), "one role each"
    if current.joint:
        assert (step.voters, step.outgoing) == (current.voters, ()), "a joint membership is left, nothing else"
    elif step.joint:
        assert step.outgoing == current.voters
        assert set(step.voters) - set(current.voters) <= caught_up, "voters catch up as learners first"
    else:
        assert step.voters == current.voters, "voters change through a joint membership alone"
    for name in strangers:
        if step.votes(name) and name in current.members:
            assert step.members[name].incarnation == current.members[name].incarnation, (
                "a directory that lost its log must not count for the one that held it")


def walk(current: Membership, desired: Desired, strange: dict[str, bytes], slow: dict[str, int]) -> list[Membership]:
    """Take steps until there is none; ``slow``: how many questions a node stays behind after it became a learner."""
    way = []
    for _ in range(40):
        lost = {name: new for name, new in strange.items()
                if name in current.members and current.members[name].incarnation != new}
        ready = frozenset(name for name in current.learners if name not in lost and not slow.get(name))
        step = next_step(current, desired, lost, ready)
        if step.membership is not None:
            assert_legal(current, step.membership, ready, lost)
            assert step.membership != current, "a step changes something"
            current = step.membership
            way.append(current)
        elif step.waiting:
            assert set(step.waiting) <= set(current.learners) | set(lost)
            assert any(slow.get(name) for name in step.waiting), "waits only for who is behind"
            for name in step.waiting:
                slow[name] = max(0, slow.get(name, 0) - 1)
        else:
            return way
    raise AssertionError("no end")


def start(voters: list[str], learners: list[str]) -> Membership:
    names = [*voters, *learners]
    return Membership(voters, (), learners, {name: Member(f"{name}:1", name.encode(), 0) for name in names})


roles = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["voter", "learner"]), min_size=1).filter(
    lambda given: "voter" in given.values())


def of(given: dict[str, str], role: str) -> list[str]:
    return sorted(name for name, r in given.items() if r == role)


@given(roles, roles, st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3)), st.sets(st.sampled_from(NAMES)),
       st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9)), st.booleans())
def test_every_change_arrives_by_legal_steps(
    before: dict[str, str], after: dict[str, str], slow: dict[str, int], wiped: set[str], priorities: dict[str, int],
    moved: bool,
) -> None:
    current = start(of(before, "voter"), of(before, "learner"))
    leader = current.voters[0]
    strange = {name: b"new" for name in wiped if name in current.everyone and name != leader}
    port = "2" if moved else "1"
    voters, learners = ({name: f"{name}:{port}" for name in of(after, role)} for role in ("voter", "learner"))
    desired = Desired(
        voters, learners, {name: p for name, p in priorities.items() if name in after})
    assert illegal(desired) is None
    way = walk(current, desired, strange, slow)
    end = way[-1] if way else current
    assert (end.voters, end.outgoing, end.learners) == (tuple(of(after, "voter")), (), tuple(of(after, "learner")))
    for name in end.everyone:
        assert end.members[name].address == f"{name}:{port}"
        assert end.members[name].priority == priorities.get(name, 0)
        assert end.members[name].incarnation == strange.get(name, name.encode() if name in before else b"")
    assert next_step(end, desired, {}, frozenset()) == Step()


def test_a_step_that_is_there_already_is_no_step() -> None:
    current = start(["a", "b", "c"], ["d"])
    desired = Desired({name: f"{name}:1" for name in "abc"}, {"d": "d:1"})
    assert next_step(current, desired, {}, frozenset()) == Step()


def test_a_new_voter_is_a_learner_first_and_waited_for() -> None:
    current = start(["a"], [])
    desired = Desired({"a": "a:1", "b": "b:1"}, {})
    learner = next_step(current, desired, {}, frozenset()).membership
    assert learner is not None and (learner.voters, learner.learners) == (("a",), ("b",))
    assert next_step(learner, desired, {}, frozenset()) == Step(waiting=("b",))
    joint = next_step(learner, desired, {}, frozenset("b")).membership
    assert joint is not None and (joint.voters, joint.outgoing, joint.learners) == (("a", "b"), ("a",), ())
    assert leave_joint(joint) == next_step(joint, desired, {}, frozenset()).membership


def test_m2_a_joint_membership_is_left_whatever_is_desired() -> None:
    """etcd bd3c759: one leave, exactly; here it is the only step a joint membership has."""
    joint = attrs.evolve(start(["a", "b"], []), outgoing=("a",))
    for desired in (Desired({"c": "c:1"}, {}), Desired({"a": "a:1"}, {"b": "b:1"})):
        assert next_step(joint, desired, {}, frozenset()).membership == leave_joint(joint)
    assert not leave_joint(joint).joint


def test_m12_a_wiped_voter_leaves_the_voters_and_comes_back_as_a_learner() -> None:
    """etcd 2676: a node with an empty disk and its old id voted again. Its old acknowledgements are worth nothing."""
    current = start(["a", "b", "c"], [])
    desired = Desired({name: f"{name}:1" for name in "abc"}, {})
    way = walk(current, desired, {"c": b"new"}, {"c": 2})
    assert [(m.voters, m.outgoing, m.learners) for m in way] == [
        (("a", "b"), ("a", "b", "c"), ("c",)),
        (("a", "b"), (), ("c",)),
        (("a", "b"), (), ("c",)),
        (("a", "b", "c"), ("a", "b"), ()),
        (("a", "b", "c"), (), ()),
    ]
    assert [m.members["c"].incarnation for m in way] == [b"c", b"c", b"new", b"new", b"new"]


@pytest.mark.parametrize(("desired", "word"), [
    (Desired({}, {"a": "a:1"}), "at least one voter"),
    (Desired({"a": "a:1", "b": "b:1"}, {"b": "b:1"}), "b cannot be voter and learner"),
    (Desired({"a": "a:1"}, {}, {"z": 3}), "z, who is not to be a member"),
    (Desired({"a": ""}, {}), "lack a name or an address"),
    (Desired({"": "a:1"}, {}), "lack a name or an address"),
    (Desired({"a": 7}, {}), "text, not 'a' and 7"),  # type: ignore[dict-item]
    (Desired({"a": "a:1"}, {7: "b:1"}), "text, not 7 and 'b:1'"),  # type: ignore[dict-item]
    (Desired({"a": "a:1", "b\nc": "b:1"}, {}), r"at most 255 bytes, not 'b\nc' and 'b:1'"),
    (Desired({"a": "a:1"}, {"b" * 256: "b:1"}), "at most 255 bytes, not 'bbb"),
    (Desired({"a": "a:1", "\ud800": "b:1"}, {}), r"at most 255 bytes, not '\ud800'"),
    (Desired({"a": "h" * 256}, {}), "at most 255 bytes, not 'a' and 'hhh"),
    (Desired({"a": "a:1"}, {"b": "\ud800:1"}), "at most 255 bytes"),
    (Desired({"a": "a:1"}, {}, {"a": 1.5}), "a whole number, not 1.5 for 'a'"),  # type: ignore[dict-item]
])
def test_a_desired_membership_that_cannot_be_is_refused_in_words(desired: Desired, word: str) -> None:
    assert word in str(illegal(desired))


def test_greeting_under_ever_new_names_fills_no_memory() -> None:
    """What a node remembers of directories is bounded, and members are the last to be forgotten."""
    from raft.identities import GUESTS_MAX
    from tests.raft.script import Script

    script = Script()
    for number in range(3 * GUESTS_MAX):
        script["n0"].identities.meet(script.now, f"guest {number}", b"x" * 16)
    assert len(script["n0"].identities.met) <= GUESTS_MAX
    assert {"n1", "n2"} <= set(script["n0"].identities.met)


def test_what_would_not_fit_into_a_snapshot_is_illegal() -> None:
    """Joint with one as large, it is still in every snapshot, and one that cannot be read is as good as lost."""
    voters = {f"node-{i:03}": f"{i:03}.example.com:7000" for i in range(5)}
    learners = {f"learner-{i:03}": f"{i:03}.example.com:7000" for i in range(300)}
    assert illegal(Desired(voters, learners)) is None
    known = {name: Member(at, bytes(16), 1 << 60) for name, at in {**voters, **learners}.items()}
    other = {f"other-{name}": member for name, member in known.items()}
    both = Membership([*known], [*other], (), {**known, **other})
    meta = encode_meta(SnapshotMeta(1 << 60, 1 << 60, 1 << 31, both, 1 << 60, 1 << 60, 1 << 31, 1 << 60))
    assert decode_meta(meta).membership == both
    long = {f"n{i:02}": "h" * 242 for i in range(1, 91)}
    known = {name: Member(at, bytes(16)) for name, at in {"n0": "h" * 100, **long}.items()}
    spare = 24 * 1024 - len(Membership(("n0",), (), tuple(long), known).encode())
    assert 0 < spare < 155, "the address stays one that a hello can carry"
    assert illegal(Desired({"n0": "h" * (100 + spare)}, long)) is None
    assert "24577 bytes" in (illegal(Desired({"n0": "h" * (101 + spare)}, long)) or "")
    many = {f"learner-{i:03}": f"{i:03}.example.com:7000" for i in range(3_000)}
    assert "are kept in every snapshot" in (illegal(Desired(voters, many)) or "")
    assert "at most 255 bytes" in (illegal(Desired({"n0": "h" * 70_000}, {})) or "")
