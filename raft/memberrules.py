"""Properties of memberships, INV_R16 to INV_R19: one change at a time, overlapping quorums, nodes that are no voters.

``raft.invariants.Checker`` evaluates them on ghosts and replicas. They change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.frame import Frame
from raft.membership import Membership
from raft.messages import Role
from raft.violation import require

if TYPE_CHECKING:
    from raft.invariants import Checker
    from raft.replica import Replica
    from raft.shadow import Ghost


def INV_R16(
    group: Checker, node: Ghost, replica: Replica, old: tuple[int, Membership], frame: Frame, new: Membership,
) -> None:
    """One membership changes at a time: the previous one is committed first; joint is entered and left in order."""
    group.counts["INV_R16"] += 1
    assert old[0] < frame.first, "the former membership stands before the new one"
    require(old[0] <= replica.commit_index, "INV_R16",
            f"{node.name} starts membership {frame.first} while {old[0]} is not committed; commit is",
            replica.commit_index)
    if old[1].joint:
        require(new.voters == old[1].voters, "INV_R16", f"{node.name} leaves a joint membership for other voters",
                old[1].voters, new.voters)
    elif new.joint:
        require(new.outgoing == old[1].voters, "INV_R16", f"{node.name} enters a joint membership from other voters",
                old[1].voters, new.outgoing)


def INV_R17(group: Checker, node: Ghost, old: Membership, new: Membership) -> None:
    """Quorums of consecutive memberships overlap: one voter differs at most, or one of the two is joint."""
    group.counts["INV_R17"] += 1
    if old.joint or new.joint:
        return
    differing = set(old.voters) ^ set(new.voters)
    require(len(differing) <= 1 or not old.voters, "INV_R17",
            f"{node.name} goes from voters {old.voters} to {new.voters} in one step")


def INV_R18(group: Checker, node: Ghost, replica: Replica, frame: Frame) -> None:
    """A leader proposes no membership before it has committed an entry of its own term (Ongaro, raft-dev 2015)."""
    group.counts["INV_R18"] += 1
    assert replica.role is Role.LEADER, "nobody else proposes"
    term, first = node.term_first
    require(term == replica.term and first <= replica.commit_index, "INV_R18",
            f"{node.name} proposes membership {frame.first} in term {replica.term} before it has committed an entry "
            "of that term; (term, first), commit are", node.term_first, replica.commit_index)


def INV_R19_candidate(group: Checker, node: Ghost, replica: Replica) -> None:
    """Learners and strangers do not campaign; a removed voter may until its removal is committed (thesis §4.2.2)."""
    group.counts["INV_R19"] += 1
    known = [node.memory.memberships[-1][1], replica.membership, replica.log.membership_at(replica.commit_index)[1]]
    require(any(membership.votes(node.name) for membership in known), "INV_R19",
            f"{node.name} is no voter of {replica.membership.voters} and asks for votes")


def INV_R19_removed(group: Checker, node: Ghost, replica: Replica) -> None:
    """A leader that is no longer a voter stops leading once that is committed. Paper §6."""
    assert replica.role is Role.LEADER, "it is asked of leaders"
    if replica.membership.votes(node.name):
        return
    group.counts["INV_R19"] += 1
    require(replica.log.membership_index > replica.commit_index, "INV_R19",
            f"{node.name} leads on after its removal at {replica.log.membership_index} was committed")
