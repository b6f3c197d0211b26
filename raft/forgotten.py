"""Properties of nodes that lost what they had acknowledged: INV_R35 for commits, INV_R36 for votes.

A node learns of its loss from its own mark, or from a peer that met a life of its directory which the directory never
had. This module follows the lives that were met from starts and greetings alone, without ``raft.lives``.
``raft.invariants.Checker`` evaluates these properties on ghosts and replicas. They change nothing.
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
"""Number of each peer's lives that a directory must remember."""


def said(node: Ghost, peer: str, reply: PeerMessage) -> None:
    """Note an acknowledgement that leaves a node which lost some of what it had acknowledged."""
    assert isinstance(reply, AppendReply) and node.lost is not None and node.replica is not None
    if node.replica.lapse is None and node.disk.last >= node.lost.last:
        node.lost = None  # it holds as much again: the same entries or those that replaced them
    else:
        node.said.add((peer, reply.term, reply.session, reply.sequence, reply.last_index))


def told(group: Checker, node: Ghost, source: str, reply: AppendReply) -> None:
    """Note a reply that reaches a leader: if it shows what the sender lost, the leader knows from here on."""
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
    """Return whether this leader was told, in its present leadership, that the voter lost something."""
    return (node.name, node.term) in voter.told


def begins(node: Ghost, life: int, *, knows: bool) -> None:
    """Note that a process starts on this disk. ``knows`` is true if its mark says that it lost something."""
    node.life = life
    node.own.add(life)
    node.met = {peer: lives[:] for peer, lives in node.kept.items()}
    node.was_told = False
    node.words.clear()
    if not knows:
        node.told_of.clear()


def greets(node: Ghost, source: Ghost) -> None:
    """Note a peer's hello that reaches a node: it names the peer's life, and the lives of this node that it met."""
    if source.replica is None:
        return  # the hello is of an earlier life
    lives = node.met.setdefault(source.directory, [])
    if source.life not in lives:
        lives.append(source.life)
        del lives[:-LIVES_MET]
    assert len(lives) <= LIVES_MET and source.life in lives, "the newest lives are remembered"
    node.words[source.name] = set(source.met.get(node.directory, ())) - node.own
    believes(node)


def believes(node: Ghost) -> None:
    """Let a node take what members said. What others say counts once they are members."""
    members = node.replica.membership.members if node.replica is not None else {}
    for peer in node.words.keys() & members.keys():
        unknown = node.words.pop(peer)
        node.told_of |= unknown
        if unknown and node.lost is not None and not node.knows:
            node.knows = node.was_told = True


def INV_R35(group: Checker, node: Ghost, replica: Replica, voter: Ghost) -> None:
    """No commit counts an acknowledgement that its voter's disk lost, once the leader was told so: by an answer that
    ends before it, or by the voter itself. Checked at each commit that a leader counts while a voter lost some."""
    group.counts["INV_R35"] += 1
    if replica.leadership is None or not knew(node, voter):
        return
    counted = replica.leadership.tracker.counted(voter.name)
    lapsed = voter.replica is not None and voter.replica.lapse is not None
    require(counted <= (0 if lapsed else voter.disk.last), "INV_R35",
            f"{node.name} counts {counted} of {voter.name}, whose disk lost its end and holds", voter.disk.last)


def INV_R36(group: Checker, node: Ghost, what: str, *, gave: bool = True) -> None:
    """A node that knows of its loss does not vote, ask for votes or get elected before it holds again what counts: all
    that it had acknowledged and that is committed."""
    if node.lost is None or not node.knows:
        return
    group.counts["INV_R36"] += 1
    require(not gave or node.whole(group.marks), "INV_R36",
            f"{node.name} {what}, and its disk ends at {node.disk.last}; it had acknowledged up to", node.lost.last)
