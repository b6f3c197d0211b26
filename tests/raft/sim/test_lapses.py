"""Disks that lose what was acknowledged: whom the simulator counts as lacking something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from raft.forgotten import begins, greets
from raft.membership import Member, Membership
from raft.replica import Replica
from raft.shadow import Ghost
from raft.sim.campaign import run
from raft.sim.lapses import Lapses
from raft.sim.tape import Tape


def test_who_was_told_of_its_loss_counts_as_lapsed_while_it_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told again at each start: whoever lost something beside it meanwhile would leave no majority."""
    met: set[str] = set()
    lapsed = Lapses.lapsed

    def asked(self: Lapses) -> set[str]:
        answer, cluster = lapsed(self), self._cluster
        told = {name for name, ghost in cluster.checker.nodes.items() if ghost.told_of and ghost.lost is not None}
        assert told <= answer, (told, answer)
        met.update(name for name in told if cluster.nodes[name].life is None
                   and cluster.checker.nodes[name].whole(cluster.checker.marks))
        return answer

    monkeypatch.setattr(Lapses, "lapsed", asked)
    result = run(Tape(400_000_814), until_ns=17_050_000_000)
    assert result.failure is None, result.message
    assert met


def test_a_directory_made_anew_owes_nothing_for_the_lives_of_the_one_before() -> None:
    bootstrap = Membership(("n0", "n1"), members={name: Member(name) for name in ("n0", "n1")})
    peer, before, after = (
        Ghost(name, incarnation, bootstrap) for name, incarnation in (("n0", b"a"), ("n1", b"b"), ("n1", b"c")))
    for life, ghost in enumerate((peer, before, after)):
        ghost.replica = cast(Replica, SimpleNamespace(membership=bootstrap))
        begins(ghost, life, knows=False)
    greets(peer, before)
    after.lost = after.disk.copy()

    greets(after, peer)
    assert (after.told_of, after.knows) == (set(), False)

    before.lost, before.own = before.disk.copy(), set()
    greets(before, peer)
    assert (before.told_of, before.knows) == ({1}, True)
