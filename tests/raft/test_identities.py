"""Whose directory a peer's hello names: who is a stranger, and how many are remembered."""

from __future__ import annotations

import pytest

from raft.frame import Kind
from raft.identities import GUESTS_MAX
from tests.raft.alone import NOW, Node, among
from tests.raft.script import frame


def test_a_member_with_another_directory_is_a_stranger() -> None:
    node = Node(1, membership=among("n0", "n1", "n2", "n3", n1=b"one", n2=b"two"))
    for peer, met in (("n1", b"other"), ("n2", b"two"), ("n3", b"three"), ("n9", b"nine")):
        node.replica.identities.meet(NOW, peer, met)
    assert node.replica.identities.strangers == {"n1"}
    assert node.replica.identities.met == {"n1": b"other", "n2": b"two", "n3": b"three", "n9": b"nine"}
    node.replica.identities.meet(NOW, "n2", b"")
    assert node.replica.identities.strangers == {"n1"}, "who does not say it"
    node.append(1, frame(2, 3, among("n1", n1=b"other").encode(), kind=Kind.MEMBERSHIP))
    assert node.replica.identities.strangers == frozenset()


def test_a_leader_begins_anew_with_a_directory_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(membership=among("n0", "n1", "n2", n2=b"two"))
    node.lead()
    recorded: list[int] = []
    assert node.replica.leadership is not None
    monkeypatch.setattr(node.replica.leadership.changes, "record_incarnations", lambda: recorded.append(1))
    sessions = {name: peer.session for name, peer in node.replica.peers.items()}

    def renewed(peer: str, met: bytes) -> bool:
        node.replica.identities.meet(NOW, peer, met)
        before, sessions[peer] = sessions[peer], node.replica.peers[peer].session
        return sessions[peer] != before

    assert not renewed("n1", b"one") and recorded == [1], "met for the first time"
    assert not renewed("n1", b"one") and recorded == [1], "met again"
    assert renewed("n1", b"other") and recorded == [1, 1]
    assert renewed("n2", b"stranger")
    assert node.replica.leadership.tracker.uncounted == {"n2"}


def test_so_many_directories_are_remembered() -> None:
    node = Node()
    node.replica.identities.meet(NOW, "n1", b"member")
    for number in range(GUESTS_MAX):
        node.replica.identities.meet(NOW, f"guest {number}", b"x")
    assert len(node.replica.identities.met) == GUESTS_MAX
    assert "n1" in node.replica.identities.met and "guest 0" not in node.replica.identities.met
    assert "guest 1" in node.replica.identities.met
    many = [f"m{number}" for number in range(GUESTS_MAX + 1)]
    node = Node(membership=among("n0", *many))
    for name in many:
        node.replica.identities.meet(NOW, name, b"x")
    assert many[-1] not in node.replica.identities.met, "of members alone the last is forgotten"
    assert len(node.replica.identities.met) == GUESTS_MAX
