"""Properties that bound what may wait: INV_R32 for peers and readers, INV_R38 for a disk that stands still, INV_R37
for elections that cannot help, INV_R39 and INV_R40 for groups that share a log.

``raft.invariants.Checker`` evaluates them on ghosts and replicas. They change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raft.config import MS
from raft.held import Held
from raft.identities import GUESTS_MAX
from raft.messages import ReadReply
from raft.replica import Replica
from raft.violation import require
from raft.writes import WRITE_BYTES, WRITES_MAX

if TYPE_CHECKING:
    from raft.invariants import Checker
    from raft.shadow import Ghost

CALM_ELECTIONS: Final = 3
KINDS: Final = 8
"""Kinds of messages that a node may hold back for one peer while a vote or term is not durable."""


def INV_R32(group: Checker, node: Ghost, replica: Replica) -> None:
    """Resources are bounded: what is in flight to each peer, reads that wait, and directories of peers met."""
    config = group.config
    for progress in replica.peers.values():
        group.counts["INV_R32"] += 1
        require(len(progress.inflight) <= config.inflight_messages_max
                and progress.inflight_bytes <= config.inflight_bytes_max + config.message_bytes_max, "INV_R32",
                f"{node.name} has {len(progress.inflight)} messages, {progress.inflight_bytes} bytes in flight to",
                progress.peer)
    if replica.leadership is not None:
        waiting = len(replica.leadership.reads)
        require(waiting <= config.reads_pending_max, "INV_R32", f"{node.name} keeps {waiting} reads waiting")
    require(len(replica.identities.met) <= GUESTS_MAX, "INV_R32", f"{node.name} remembers too many directories",
            len(replica.identities.met))
    require(len(replica.regaining.words) <= GUESTS_MAX, "INV_R32", f"{node.name} remembers too many nodes' words",
            len(replica.regaining.words))


def INV_R37(group: Checker, node: Ghost, term: int) -> None:
    """Elections end: while nothing fails or comes back, a group elects only a few times for each member before
    something is committed."""
    if not group.calm:
        return
    group.counts["INV_R37"] += 1
    group.elected += 1
    require(group.elected <= CALM_ELECTIONS * len(group.nodes), "INV_R37",
            f"{node.name} leads term {term}; since something was committed or failed, elected were", group.elected)


def INV_R38(group: Checker, node: Ghost, replica: Replica, clock: int, held: Held) -> None:
    """A stalled disk delays a bounded amount, however long it stalls and whoever leads meanwhile: writes and frames are
    bounded by bytes, messages by kinds and peers. Checked while a write waits longer than an election timeout."""
    config, pending = group.config, node.pending
    if node.full or clock - replica.writes.oldest_unsynced_ns() < config.election_timeout_ms * MS:
        return
    group.counts["INV_R38"] += 1
    size = sum(len(frame.data) for write in pending for frame in write.frames) + len(pending) * WRITE_BYTES
    most = config.unsynced_bytes_max + config.uncommitted_bytes_max + config.frame_bytes_max + WRITES_MAX * WRITE_BYTES
    require(size <= most, "INV_R38", f"{node.name} queues {len(pending)} writes, {size} bytes, of at most {most}")
    messages = sum(type(send.message) is not ReadReply for send in held)
    require(messages <= KINDS * len(group.nodes), "INV_R38", f"{node.name} holds {messages} messages back")


def INV_R39(log_bytes: int, segment_bytes: int, tails: int, live: int) -> None:
    """A shared log has at most two segments, the ``tails`` of busy groups and the ``live`` bytes of quiet ones.

    ``tails`` are not in a snapshot yet. The part of ``live`` above one segment counts twice, since no more is carried
    forward than is written. Checked between group commits."""
    most = 2 * segment_bytes + tails + live + max(0, live - segment_bytes)
    assert most >= 2 * segment_bytes + tails + live, "what must be kept has room"
    require(log_bytes <= most, "INV_R39", f"the log has {log_bytes} bytes, of at most {most}",
            f"{tails} of tails, {live} quiet")


def INV_R40(name: str, found: list[bytes] | None, due: list[bytes]) -> None:
    """A quiet group on a shared log comes back in every life with all it had, however often that was carried forward.
    If its bytes were damaged, it is refused, and nothing else is taken for it."""
    require(found == due, "INV_R40", f"{name} has of the quiet group on its log",
            "what it cannot read" if found is None else f"{len(found)} entries, {len(due)} are due, or others")
