"""When a raft node is healthy, and when it is ready: in words, from its status."""

from __future__ import annotations

import attrs
import pytest

from raft.explain import SITUATIONS
from raft.membership import Member, Membership
from raft.messages import Role
from raft.probes import UNREADY, unhealthy, unready
from tests.raft.statuses import make_status

FOLLOWS = {"role": Role.FOLLOWER, "leader": "n1"}
ALONE = {"role": Role.CANDIDATE, "leader": None}
ADDED_LATER = Membership(("n1", "n2"), learners=("n0",), members={
    "n0": Member("h0:7000"), "n1": Member("h1:7000"), "n2": Member("h2:7000")})


@pytest.mark.parametrize("changes", [
    {}, FOLLOWS, {**FOLLOWS, "storage": "full"}, {"transfer_target": "n1"}, {"keeps_log": 1},
    {**FOLLOWS, "membership": ADDED_LATER},
])
def test_it_serves(changes: dict[str, object]) -> None:
    status = make_status(**changes)
    assert unhealthy([status]) == unready([status]) == ""


@pytest.mark.parametrize(("changes", "words"), [
    ({"faulted": "apply raised"}, "n0: This node is faulted and does nothing any more: apply raised"),
    ({"storage": "failed"}, "n0: A write or sync of this node's disk failed"),
    ({"storage": "damaged"}, "n0: What this node's disk had stored is damaged"),
])
def test_who_does_nothing_any_more_is_neither_healthy_nor_ready(changes: dict[str, object], words: str) -> None:
    status = make_status(**changes)
    assert unhealthy([status]).startswith(words)
    assert unready([status]).startswith(words)


@pytest.mark.parametrize(("changes", "words"), [
    (ALONE, "No leader is known in term 7"),
    ({"own_term_committed": False}, "This leader has not committed an entry of its own term"),
    ({**FOLLOWS, "installing": 90}, "This node restores a snapshot up to entry 90"),
    ({**FOLLOWS, "membership": Membership()}, "This node belongs to no group yet"),
    ({**FOLLOWS, "leader": None, "membership": ADDED_LATER}, "n0: No leader is known."),
    ({"peers": ()}, "No quorum of the voters"),
])
def test_who_does_not_serve_is_healthy_and_not_ready(changes: dict[str, object], words: str) -> None:
    status = make_status(**changes)
    assert unhealthy([status]) == ""
    assert words in unready([status])


def test_a_process_is_ready_when_all_of_its_groups_are() -> None:
    ready = make_status()
    late = attrs.evolve(ready, node_id="n2", **ALONE)  # type: ignore[arg-type]  # a table for several tests
    assert unready([ready, ready]) == ""
    assert unready([ready, late]).startswith("n2: No leader is known")
    assert unready([]) == "No group is open."


def test_every_situation_that_is_asked_for_exists() -> None:
    assert set(UNREADY) <= {name for name, _ in SITUATIONS}
