"""A leader without a group: what tests of ``leadership`` tell it, and what it says."""

from __future__ import annotations

from random import Random
from typing import Any

from raft.config import MS, Config, Rules
from raft.frame import Frame
from raft.leadership import Leadership
from raft.membership import Member, Membership
from raft.messages import Append, AppendReply, Code, Output, PeerMessage, Recovered, Send, SnapshotMeta
from raft.progress import Progress
from raft.replica import Replica
from raft.rules import make_rules
from raft.trace import BecameFollower, Dropped, PeerState
from tests.raft.script import disk

TERM = 5
NOW = 1_000 * MS
DLEDGER = Config(rules=Rules.DLEDGER)


def limits(**values: int) -> Config:
    """Limits that are smaller than a configuration may have."""
    config = Config()
    for name, value in values.items():
        object.__setattr__(config, name, value)
    return config


SMALL = limits(entry_bytes_max=60, frame_bytes_max=400, frame_entries_max=4, append_bytes_max=400,
               uncommitted_bytes_max=1_000)


class Leader:
    """n0, which leads term 5 with a log of entries of these terms, its no-op behind them."""

    def __init__(
        self, *terms: int, peers: int = 2, config: Config | None = None, learners: tuple[str, ...] = (),
        durable: bool = True,
    ) -> None:
        names = tuple(f"n{number}" for number in range(peers + 1))
        self.membership = Membership(names, (), learners, {name: Member(name) for name in (*names, *learners)})
        self.config, self.now = config or Config(), NOW
        self.events: list[Any] = []
        self.replica = Replica(
            group=1, node_id="n0", config=self.config, rules=make_rules(self.config), rng=Random(1), now=NOW,
            recovered=disk(terms, term=4).open().get(1) or Recovered(), membership=self.membership, life=1,
            trace=self.events.append)
        self.replica.previous_leader = "n2"
        self.replica.wall_ms = 77
        self.replica.set_hard_state(TERM, "n0")
        self.replica.become_leader(("n0", "n1"))
        assert self.replica.leadership is not None
        self.leads: Leadership = self.replica.leadership
        self.outputs: list[Output] = []
        self.first = self.said()
        if durable:
            self.synced()

    # --- in

    def tell(self, peer: str, message: PeerMessage) -> list[tuple[str, Any]]:
        self.replica.receive(self.now, peer, message)
        return self.said()

    def reply(
        self, peer: str = "n1", code: Code = Code.SUCCESS, *, match: int = 0, last: int | None = None,
        hint: tuple[int, int] = (0, 0), read_round: int = 0, sequence: int | None = None, session: int | None = None,
        term: int = TERM,
    ) -> list[tuple[str, Any]]:
        """An answer to the newest message."""
        progress = self.leads.peers.get(peer)
        if progress is not None:
            sequence = progress.sequence if sequence is None else sequence
            session = progress.session if session is None else session
        return self.tell(peer, AppendReply(1, term, session or 0, sequence or 0, code, match,
                                           match if last is None else last, *hint, read_round))

    def propose(self, *payloads: bytes) -> list[tuple[str, Any]]:
        self.replica.propose(self.now, list(payloads), 0)
        return self.said()

    def tick(self, later: int = 0) -> list[tuple[str, Any]]:
        self.now += later
        self.replica.tick(self.now)
        return self.said()

    def beat(self, later: int = 0) -> list[tuple[str, Any]]:
        self.now += later
        self.replica.now = self.now
        self.leads.beat()
        return self.said()

    def synced(self) -> list[tuple[str, Any]]:
        """All that it wrote is on its disk."""
        told = self.said()
        self.replica.durable(self.now, self.replica.writes._next_token - 1)
        return told + self.said()

    # --- out

    def said(self) -> list[tuple[str, Any]]:
        self.outputs = self.replica.drain()
        return [(output.peer, output.message) for output in self.outputs if isinstance(output, Send)]

    def others(self, kind: type) -> list[Any]:
        return [output for output in self.outputs if isinstance(output, kind)]

    def peer(self, name: str = "n1") -> Progress:
        return self.leads.peers[name]

    def streams(self, *names: str) -> None:
        """These peers hold all that the log has."""
        for name in names or tuple(self.leads.peers):
            self.reply(name, match=self.last)
        self.said()

    def append(
        self, sequence: int, previous: int, previous_term: int, *frames: Frame, commit: int = 0, read_round: int = 0,
        session: int = 1,
    ) -> Append:
        return Append(1, TERM, session, sequence, previous, previous_term, commit, read_round, list(frames) or ())

    @property
    def last(self) -> int:
        return self.replica.log.last_index

    @property
    def commit(self) -> int:
        return self.replica.commit_index

    @property
    def drops(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, Dropped)]

    @property
    def reasons(self) -> list[str]:
        """Why it stepped down."""
        return [event.reason for event in self.events if isinstance(event, BecameFollower)]

    def turns(self, peer: str = "n1") -> list[tuple[str, str]]:
        """What became of a peer, and why."""
        return [(event.state, event.reason) for event in self.events
                if isinstance(event, PeerState) and event.peer == peer]


def purged(leader: Leader, index: int) -> None:
    """The log begins behind ``index``, which a snapshot covers."""
    replica = leader.replica
    replica.applied(leader.now, index)
    replica.log.note_end(index)
    replica.log.snapshot = SnapshotMeta(index, replica.log.term_at(index), 0, leader.membership, 0, 1_000)
    replica.snapshots.purge(index)
    assert replica.log.purged_index == index
    leader.synced()
