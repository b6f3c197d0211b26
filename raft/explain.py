"""Turns a ``Status`` into sentences: why there is no leader, who holds the commit back, what is being waited for.

Each situation is one function from a status to its sentences; ``SITUATIONS`` lists them, the gravest first. A sentence
states facts of this status, with their numbers, and never guesses.
Pure: no clock, no I/O. It knows ``Status`` and nothing of the replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from raft.config import MS
from raft.messages import Role
from raft.quorum import majority
from raft.status import PeerStatus, RefusalKind, Status

CONTACT_NS: Final = 1_000 * MS
"""Silence after which a peer counts as out of contact."""
PAUSE_TOLD_NS: Final = 60_000 * MS
"""Time for which a pause of the process is told."""


def explain(status: Status) -> list[str]:
    """Return sentences that say what is wrong, the gravest first; one sentence if all is well."""
    return [sentence for _, sentence in diagnose(status)]


def diagnose(status: Status) -> list[tuple[str, str]]:
    """Return (name, sentence) of each situation. Programs may rely on the names."""
    found = [(name, sentence) for name, situation in SITUATIONS for sentence in situation(status)]
    return found or [("healthy", _healthy(status))]


# --- words and sums ------------------------------------------------------------------------------------------


def _ms(duration_ns: int) -> str:
    return f"{duration_ns // MS} ms" if duration_ns < 10_000 * MS else f"{duration_ns // (1_000 * MS)} s"


def _and(words: Iterable[str]) -> str:
    listed = list(words)
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


def _entries(count: int) -> str:
    assert count >= 0, "nobody is behind by less than nothing"
    return "1 entry" if count == 1 else f"{count} entries"


def _silence(peer: PeerStatus) -> str:
    return "never heard" if peer.silent_ns is None else f"last heard {_ms(peer.silent_ns)} ago"


def _in_contact(status: Status, node_id: str) -> bool:
    """Return whether this is the node itself, or a peer that is connected and not silent."""
    if node_id == status.node_id:
        return True
    peer = _peer(status, node_id)
    return peer is not None and peer.connected and (peer.silent_ns is None or peer.silent_ns < CONTACT_NS)


def _peer(status: Status, node_id: str) -> PeerStatus | None:
    return next((peer for peer in status.peers if peer.node_id == node_id), None)


def _halves(status: Status) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each set of voters that must agree, with words for it."""
    membership = status.membership
    if membership.joint:
        yield "the new voters", membership.voters
        yield "the outgoing voters", membership.outgoing
    elif membership.voters:
        yield "the voters", membership.voters


def _match(status: Status, node_id: str) -> int:
    """Return the last index that a voter's disk holds, as far as this leader knows."""
    if node_id == status.node_id:
        return status.durable_index
    peer = _peer(status, node_id)
    return peer.match if peer else 0


def _is_lapsed(status: Status, node_id: str) -> bool:
    """Return whether a peer lacks what it had acknowledged."""
    peer = _peer(status, node_id)
    return peer is not None and bool(peer.owed or peer.lapsed)


# --- situations of this node ---------------------------------------------------------------------------------


def _faulted(status: Status) -> Iterator[str]:
    if status.faulted:
        yield (f"This node is faulted and does nothing any more: {status.faulted}. It skips no entry; "
               "mend the cause and restart it.")


def _storage_failed(status: Status) -> Iterator[str]:
    if status.storage == "failed":
        yield ("A write or sync of this node's disk failed, which is final: nobody knows what the disk holds. "
               "Restart it.")
    if status.storage == "damaged":
        yield ("What this node's disk had stored is damaged, which is final: nothing of it is cut off or given to "
               "others. Let the node join anew, with an empty directory.")


def _disk_full(status: Status) -> Iterator[str]:
    if status.storage == "full":
        yield (f"The disk of this node is full: it takes no entry beyond {status.durable_index} and does not lead, "
               "but still votes. It goes on by itself when there is room.")
    for peer in status.peers:
        if peer.disk_full:
            yield f"The disk of {peer.node_id} is full: it stays at entry {peer.match} until there is room."


def _storage_stalled(status: Status) -> Iterator[str]:
    waited = status.oldest_unsynced_ns
    if status.storage == "ok" and waited is not None and waited * 10 >= status.storage_stall_ns:
        more = "" if waited < status.storage_stall_ns else f", longer than the allowed {_ms(status.storage_stall_ns)}"
        yield (f"The disk of this node stalls: a write has been under way for {_ms(waited)}{more}; "
               f"{status.unsynced_writes} wait, and of entries up to {status.last_index} those up to "
               f"{status.durable_index} are durable here.")


def _not_a_member(status: Status) -> Iterator[str]:
    membership = status.membership
    if not membership.everyone:
        yield "This node belongs to no group yet: it waits to be added with `reconfigure` on the leader."
    elif status.node_id not in membership.everyone:
        yield (f"This node is not a member any more: the membership of entry {status.membership_index} has voters "
               f"{_and(membership.voters)}. It may be stopped.")


def _installing(status: Status) -> Iterator[str]:
    if status.installing:
        yield (f"This node restores a snapshot up to entry {status.installing}; "
               "until then it applies and answers nothing.")


def _apply_lag(status: Status) -> Iterator[str]:
    if not status.installing and not status.faulted and status.apply_lag > status.learner_lag_entries:
        yield (f"The state machine of this node is {_entries(status.apply_lag)} behind: committed up to "
               f"{status.commit_index}, applied up to {status.applied_index}.")


def _log_kept(status: Status) -> Iterator[str]:
    if status.keeps_log:
        yield (f"The shared log is kept for this group alone, {status.keeps_log} bytes of it: its state machine has no "
               "snapshot(), so no entry of it may go. Give it one, or remove the group.")


def _paused(status: Status) -> Iterator[str]:
    ago = status.at_ns - status.paused_at_ns
    if status.paused_ns and ago <= PAUSE_TOLD_NS:
        lease = ("; its lease was void from then on and holds again" if status.leads and status.lease_valid else
                 "; its lease is void until a quorum answers anew" if status.leads else "")
        yield f"This process stood still for {_ms(status.paused_ns)}, {_ms(max(ago, 0))} ago{lease}."


# --- situations between nodes --------------------------------------------------------------------------------

_REFUSED: Final = {
    RefusalKind.RULES: ("wrong_rules", "runs other election rules or timers, and a group must agree on them"),
    RefusalKind.CLUSTER: ("foreign_cluster", "belongs to another cluster"),
    RefusalKind.VERSION: ("wrong_version", "speaks another version of the protocol"),
    RefusalKind.IDENTITY: ("wrong_identity", "is not the node it should be"),
    RefusalKind.CERTIFICATE: ("bad_certificate", "shows no valid certificate"),
    RefusalKind.STRANGER: ("unknown_node", "is not let in"),
    RefusalKind.OTHER: ("refused", "could not be greeted"),
}


def _refused(kind: RefusalKind) -> Callable[[Status], Iterator[str]]:
    def situation(status: Status) -> Iterator[str]:
        for refusal in status.refusals:
            if refusal.kind is kind:
                yield f"{refusal.peer} {_REFUSED[kind][1]}, so there is no connection with it: {refusal.reason}."

    return situation


def _wiped(status: Status) -> Iterator[str]:
    for name in status.strangers:
        role = "voter" if status.membership.votes(name) else "learner"
        yield (f"{role.capitalize()} {name} came back with another directory than the membership knows: what it "
               "promised is lost, so it counts for nothing. Ask for the present membership with `reconfigure`: that "
               "admits it anew, as a learner first.")


def _lapsed(status: Status) -> Iterator[str]:
    if status.lapse_index:
        yield (f"This node lost what it had acknowledged, up to entry {status.lapse_index} or further: its disk was "
               f"damaged, or an older copy of its directory was put back. It holds entries up to {status.last_index}, "
               "and neither votes nor counts until a leader has given it the rest.")
        if status.leader is None:
            yield ("No leader can be elected with its vote. If those that hold what it lost never come back, open the "
                   "group on purpose: `raftctl accept-loss` with this node's address; what only they and it had "
                   "acknowledged is lost then.")
    for peer in status.peers:
        if peer.owed or peer.lapsed:
            role = "Voter" if peer.voter else "Learner"
            lost = f" up to entry {peer.owed}" if peer.owed else ""
            given = ("is being sent a snapshot" if peer.state == "SNAPSHOT" else f"holds entries up to {peer.match}")
            yield (f"{role} {peer.node_id} lost what it had acknowledged{lost}: its disk was damaged, or an older copy "
                   f"was put back. It {given} ({_silence(peer)}), and counts for nothing until it holds that again.")


def _no_leader(status: Status) -> Iterator[str]:
    if status.leader is not None or status.faulted or not status.membership.votes(status.node_id):
        return
    silence = "" if status.heard_leader_ns is None else f"; none was heard for {_ms(status.heard_leader_ns)}"
    yield f"No leader is known in term {status.term}{silence}. This node is a {status.role.name.lower()}."
    election = status.election
    if election is not None and status.role is Role.CANDIDATE:
        yield _last_round(status)


def _last_round(status: Status) -> str:
    election = status.election
    assert election is not None and status.role is Role.CANDIDATE, "only a candidate asks"
    kind = "probe" if election.probe else "vote"
    answers = _and(f"{voter} {answer}" for voter, answer in election.answers) or "nobody answered"
    silent = [name for _, voters in _halves(status) for name in voters if name not in dict(election.answers)]
    missing = f"; no answer from {_and(sorted(set(silent)))}" if silent else ""
    result = f" and ended with {election.last_result}" if election.last_result else ""
    return f"Its round {election.round}, a {kind} for term {election.asked_term}, got: {answers}{missing}{result}."


def _no_quorum(status: Status) -> Iterator[str]:
    if status.faulted or (status.leader is not None and not status.leads):
        return
    for half, voters in _halves(status):
        present = [name for name in voters if _in_contact(status, name) and name not in status.strangers]
        if len(present) < majority(len(voters)):
            absent = []
            for name in voters:
                if name not in present:
                    peer = _peer(status, name)
                    what = "other directory" if name in status.strangers else _silence(peer) if peer else "unknown"
                    absent.append(f"{name} ({what}{'' if peer is None or peer.connected else ', not connected'})")
            yield (f"No quorum of {half}: {len(present)} of {len(voters)} are in contact with this node and "
                   f"{majority(len(voters))} are needed; missing: {_and(absent)}.")


def _not_ready(status: Status) -> Iterator[str]:
    if status.leads and not status.own_term_committed:
        yield (f"This leader has not committed an entry of its own term {status.term} yet; "
               "until then it answers no reads and changes no membership.")


def _holding_back(status: Status) -> Iterator[str]:
    """Name the voters that must store entry commit + 1 before it is committed (paper §5.4.2; both halves while
    joint)."""
    if not status.leads or status.commit_index >= status.last_index:
        return
    due = status.commit_index + 1
    waiting = f"{_entries(status.last_index - status.commit_index)} after {status.commit_index}"
    for half, voters in _halves(status):
        holding = [name for name in voters
                   if _match(status, name) >= due and name not in status.strangers and not _is_lapsed(status, name)]
        if len(holding) >= majority(len(voters)):
            continue
        lacking = []
        for name in voters:
            if name not in holding:
                peer = _peer(status, name)
                contact = "this leader's own disk" if peer is None else _silence(peer)
                lacking.append(f"{name} (at {_match(status, name)}, {contact})")
        yield (f"{waiting} cannot be committed yet: {len(holding)} of {len(voters)} of {half} hold entry {due} on disk "
               f"and {majority(len(voters))} must; held back by {_and(lacking)}.")


def _lagging(status: Status) -> Iterator[str]:
    """Name each voter or learner that is behind while a quorum stands without it."""
    if not status.leads:
        return
    for peer in status.peers:
        behind = status.commit_index - peer.match
        # A committed entry is on a quorum's disks, so a peer that lacks it was not needed.
        late = behind > status.learner_lag_entries or (behind > 0 and not _in_contact(status, peer.node_id))
        if peer.voter and late and peer.state != "SNAPSHOT":
            gone = "" if peer.connected else ", not connected"
            yield (f"{peer.node_id} is {_entries(behind)} behind ({_silence(peer)}{gone}), but holds nothing back: "
                   "a quorum stores every committed entry without it.")
        elif peer.voter and behind <= 0 and not _in_contact(status, peer.node_id):
            yield f"{peer.node_id} is out of contact ({_silence(peer)}); a quorum stands without it."


def _learners(status: Status) -> Iterator[str]:
    if not status.leads:
        return
    for peer in status.peers:
        behind = status.last_index - peer.match
        if not peer.voter and behind > status.learner_lag_entries and peer.state != "SNAPSHOT":
            yield (f"Learner {peer.node_id} has not caught up: {_entries(behind)} behind, and "
                   f"{status.learner_lag_entries} or less are needed before it may vote ({_silence(peer)}).")


def _snapshots(status: Status) -> Iterator[str]:
    if not status.leads:
        return
    for peer in status.peers:
        if peer.state == "SNAPSHOT":
            size = f" of {status.snapshot_size}" if peer.snapshot_index in (0, status.snapshot_index) else ""
            index = peer.snapshot_index or status.snapshot_index
            yield (f"{peer.node_id} is being sent a snapshot (up to entry {index}), because the log here begins at "
                   f"{status.purged_index + 1} and it stands at {peer.match}: {peer.snapshot_offset}{size} bytes "
                   "are there.")


def _joint(status: Status) -> Iterator[str]:
    membership = status.membership
    if membership.joint:
        yield (f"The membership is joint since entry {status.membership_index}: a majority of "
               f"{_and(membership.voters)} and one of {_and(membership.outgoing)} must agree until the change is "
               "complete.")


def _change(status: Status) -> Iterator[str]:
    if status.change:
        yield f"A membership change is under way: {status.change}."


def _transfer(status: Status) -> Iterator[str]:
    if status.transfer_target:
        peer = _peer(status, status.transfer_target)
        behind = f", which is {_entries(status.last_index - peer.match)} behind" if peer else ""
        yield (f"Leadership is being handed over to {status.transfer_target}{behind}; "
               "writes and reads are refused until that ends.")


def _limit(status: Status) -> Iterator[str]:
    if status.pending_bytes * 2 >= status.pending_bytes_max > 0:
        yield (f"Uncommitted proposals take {status.pending_bytes} of {status.pending_bytes_max} bytes "
               f"({status.pending_proposals} of them); at the limit new ones wait, and `propose_nowait` raises Busy.")


def _healthy(status: Status) -> str:
    lead = ("It leads" if status.leads else f"It follows {status.leader}" if status.leader else "It knows no leader")
    return (f"All is well with {status.node_id}. {lead} in term {status.term}; committed up to {status.commit_index}, "
            f"applied up to {status.applied_index}.")


SITUATIONS: Final[tuple[tuple[str, Callable[[Status], Iterator[str]]], ...]] = (
    ("faulted", _faulted),
    ("storage_failed", _storage_failed),
    ("disk_full", _disk_full),
    ("storage_stalled", _storage_stalled),
    ("not_a_member", _not_a_member),
    *((name, _refused(kind)) for kind, (name, _) in _REFUSED.items()),
    ("wiped_voter", _wiped),
    ("lapsed_voter", _lapsed),
    ("no_leader", _no_leader),
    ("no_quorum", _no_quorum),
    ("commit_held_back", _holding_back),
    ("not_ready", _not_ready),
    ("joint", _joint),
    ("change", _change),
    ("transfer", _transfer),
    ("snapshot_sent", _snapshots),
    ("learner_behind", _learners),
    ("peer_lagging", _lagging),
    ("clock_pause", _paused),
    ("uncommitted_limit", _limit),
    ("installing", _installing),
    ("apply_lag", _apply_lag),
    ("log_kept", _log_kept),
)
"""Name and finder of every situation, the gravest first; ``healthy`` stands alone when none has anything to say."""
assert len(dict(SITUATIONS)) == len(SITUATIONS), "a name means one situation"
