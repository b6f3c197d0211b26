"""The properties of nodes that lost what they had acknowledged: INV_R35 of commits, INV_R36 of votes.

A node knows of its loss by its own mark, or by a peer that met a life of its directory which the directory never had.
Which lives were met is followed here from starts and greetings alone, not by ``raft.lives``.
Asked by ``raft.invariants.Checker``, of ghosts and replicas. Changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.messages import AppendReply, Code, PeerMessage
from raft.violation import require

if TYPE_CHECKING:
    from raft.invariants import Checker
    from raft.replica import Replica
    from raft.shadow import Ghost

LIVES_MET = 8
"""Lives of each peer that a directory is to remember."""


def said(node: Ghost, peer: str, reply: PeerMessage) -> None:
    """An acknowledgement leaves a node that lost some."""
    assert isinstance(reply, AppendReply) and node.lost is not None and node.replica is not None
    if node.replica.lapse is None and node.disk.last >= node.lost.last:
        node.lost = None  # it holds as much again, the same or what took its place
    else:
        node.said.add((peer, reply.term, reply.session, reply.sequence, reply.last_index))


def told(group: Checker, node: Ghost, source: str, reply: AppendReply) -> None:
    """A reply reaches a leader: from here on it can know what the sender lost, if the reply shows it."""
    sender, replica = group.nodes.get(source), node.replica
    if sender is None or sender.lost is None or replica is None or replica.leadership is None:
        return
    progress = replica.leadership.peers.get(source)
    if progress is None or (node.name, reply.term, reply.session, reply.sequence, reply.last_index) not in sender.said:
        return
    shows = sender.knows and (not sender.was_told or (reply.code == Code.SUCCESS and reply.hint_index > 0))
    if reply.term == replica.term and reply.session == progress.session and (
            (reply.sequence > progress.match_sequence and reply.last_index < progress.match) or shows):
        sender.told.add((node.name, reply.term))


def knew(node: Ghost, voter: Ghost) -> bool:
    """Whether this leader was told, in its present leadership, that the voter lost something."""
    return (node.name, node.term) in voter.told


def begins(node: Ghost, life: int, *, knows: bool) -> None:
    """A process starts on this disk. ``knows``: its mark says that it lost something."""
    node.life = life
    node.own.add(life)
    node.met = {peer: lives[:] for peer, lives in node.kept.items()}
    node.was_told = False
    if not knows:
        node.told_of.clear()


def greets(node: Ghost, source: Ghost) -> None:
    """A peer's hello reaches a node: which life it is, and which lives of this node it met."""
    if source.replica is None:
        return  # what it had sent before it died
    lives = node.met.setdefault(source.directory, [])
    if source.life not in lives:
        lives.append(source.life)
        del lives[:-LIVES_MET]
    assert len(lives) <= LIVES_MET and source.life in lives, "the newest lives are remembered"
    unknown = set(source.met.get(node.directory, ())) - node.own
    node.told_of |= unknown
    if unknown and node.lost is not None and not node.knows:
        node.knows = node.was_told = True


def INV_R35(group: Checker, node: Ghost, replica: Replica, voter: Ghost) -> None:
    """No commit counts an acknowledgement that its voter's disk lost, once the leader was told: by an answer that falls
    short of it, or by the voter's own word. Asked at every commit that a leader counts while a voter has lost some."""
    group.counts["INV_R35"] += 1
    if replica.leadership is None or not knew(node, voter):
        return
    counted = replica.leadership.tracker.counted(voter.name)
    lapsed = voter.replica is not None and voter.replica.lapse is not None
    require(counted <= (0 if lapsed else voter.disk.last), "INV_R35",
            f"{node.name} counts {counted} of {voter.name}, whose disk lost its end and holds", voter.disk.last)


def INV_R36(group: Checker, node: Ghost, what: str, *, gave: bool = True) -> None:
    """Who knows that it lost what it had acknowledged neither votes, asks for votes nor is elected before it holds, of
    that, everything that is committed."""
    if node.lost is None or not node.knows:
        return
    group.counts["INV_R36"] += 1
    require(not gave or node.whole(group.marks), "INV_R36",
            f"{node.name} {what}, and its disk ends at {node.disk.last}; it had acknowledged up to", node.lost.last)
