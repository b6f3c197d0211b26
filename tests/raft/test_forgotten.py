"""A node that lost what it had acknowledged: its last block rotted, or an older copy of its directory was put back.

Until it holds that again it counts for nothing; it is fed from its real end. Who knows of the loss, and when, is
``docs/explanation/elections.md``.
"""

from __future__ import annotations

from copy import deepcopy

import attrs
import pytest

from raft.config import Config, DLedgerTimers, Rules
from raft.messages import Append, AppendReply, ReadReply, Role
from raft.progress import Progress
from raft.replica import Replica
from raft.storage.memory import MemoryStorage
from tests.raft.script import Mail, Script, led

CONFIGS = {
    "strict": Config(),
    "dledger": Config(rules=Rules.DLEDGER, dledger=DLedgerTimers(
        heart_beat_time_interval_ms=100, min_vote_interval_ms=60, max_vote_interval_ms=200, vote_wait_ms=200)),
}


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> Config:
    return CONFIGS[request.param]


def peer(script: Script, name: str, leader: str = "n0") -> Progress:
    return script[leader].peers[name]


def found(leader: Replica | None) -> Replica:
    assert leader is not None
    return leader


def write(script: Script, count: int = 5, leader: str = "n0") -> None:
    for _ in range(count):
        script.propose(leader, b"w")
        script.settle()


def put_back(script: Script, name: str, copy: MemoryStorage) -> None:
    """Stop a node and start it on an older copy of its directory."""
    script.crash(name)
    script.start(name, copy)


# --- the leader of the time ---------------------------------------------------------------------------------------


def test_BUG_F1_a_voter_whose_older_copy_is_put_back_is_fed_from_its_real_end(config: Config) -> None:
    """The leader goes back behind ``match`` once an answer to a later message shows that the peer lacks it."""
    script = led(config=config)
    copy = deepcopy(script.nodes["n1"].storage)
    write(script)
    assert peer(script, "n1").match == script["n0"].log.last_index
    put_back(script, "n1", copy)
    script.elapse(400)
    assert peer(script, "n1").match == script["n0"].log.last_index == script["n1"].log.durable_index
    script.cut("n2")
    write(script, 2)
    assert script["n0"].commit_index == script["n0"].log.last_index  # it counts again: two of three live


def test_BUG_F1_it_is_fed_by_a_snapshot_where_the_log_does_not_reach_back() -> None:
    script = led(config=attrs.evolve(Config(), snapshot_tail_entries=0))
    copy = deepcopy(script.nodes["n1"].storage)
    write(script, 600)
    script.snapshot("n0")
    put_back(script, "n1", copy)
    script.elapse(400)
    assert script["n1"].log.snapshot is not None
    assert peer(script, "n1").match == script["n0"].log.last_index


def test_BUG_F2_until_it_holds_what_it_had_acknowledged_it_counts_for_nothing(config: Config) -> None:
    """Neither commits nor confirmed reads nor leases rest on it meanwhile; contact does, or nobody could feed it."""
    script = led(config=config)
    copy = deepcopy(script.nodes["n1"].storage)
    write(script)
    script.cut("n2")
    put_back(script, "n1", copy)
    script.filter = lambda mail: not (mail.target == "n1" and isinstance(mail.message, Append) and mail.message.frames)
    owed = peer(script, "n1").match
    script.elapse(380)
    leading = script["n0"].leadership
    assert leading is not None and peer(script, "n1").owed == owed and "n1" in leading.tracker.uncounted
    assert not leading.lease_valid()
    before = script["n0"].commit_index
    script.propose("n0", b"w")
    ticket = script.read("n0")
    script.elapse(200)
    assert script["n0"].role is Role.LEADER
    assert script["n0"].commit_index == before and script.outcome("n0", ticket) == "open"
    script.filter = None
    script.elapse(400)
    assert "n1" not in leading.tracker.uncounted and peer(script, "n1").owed == 0
    assert script["n0"].commit_index == before + 1 and script.outcome("n0", ticket) == "done"


def test_BUG_F3_a_late_answer_of_the_same_life_is_no_loss() -> None:
    """Answers to messages that left before ``match`` was known may fall short of it: the network turned them round."""
    script = led()
    early: list[AppendReply] = []

    def keep(mail: Mail) -> bool:
        if isinstance(mail.message, AppendReply) and mail.source == "n1":
            early.append(mail.message)
            return False
        return True

    script.filter = keep
    script.elapse(250)
    script.filter = None
    write(script)
    session, match = peer(script, "n1").session, peer(script, "n1").match
    assert early and max(reply.last_index for reply in early) < match
    for reply in early:
        script["n0"].receive(script.now, "n1", reply)
    assert (peer(script, "n1").session, peer(script, "n1").match, peer(script, "n1").owed) == (session, match, 0)


def test_BUG_F4_another_entry_where_it_had_acknowledged_ours_is_a_loss_too() -> None:
    """The copy ends as far as the log, in entries of an earlier term that were overwritten since."""
    script = led()
    script.elect("n1")
    script.cut("n1")
    script.propose("n1", b"x")
    script.propose("n1", b"y")
    script.crash("n1")
    copy = deepcopy(script.nodes["n1"].storage)
    script.heal()
    script.elect("n0")
    script.restart("n1")
    script.elapse(400)
    write(script, 1)
    script.elapse(200)
    match, term = peer(script, "n1").match, script["n0"].term
    assert match == script["n0"].log.last_index == copy.open()[1].last_index
    put_back(script, "n1", copy)
    script.elapse(600)
    leader = found(script.leader())
    assert leader.term == term and script["n1"].log.term_at(match) == term
    assert script["n1"].log.durable_index == leader.log.last_index


# --- what the node's own mark knows -------------------------------------------------------------------------------


def rotten(script: Script, name: str, *, known: bool = True) -> None:
    """Stop a node; its last block rots; start it again."""
    script.crash(name)
    assert script.nodes[name].storage.rot(1, known=known)
    script.restart(name)


def test_BUG_F5_a_node_that_knows_of_its_loss_neither_votes_nor_asks_for_votes(config: Config) -> None:
    """CTRL (FAST 2018): its vote could elect a leader without an entry that is committed by its acknowledgement."""
    script = led(config=config)
    script.elapse(300)
    script.cut("n2")
    write(script, 1)
    committed = script["n0"].commit_index
    script.crash("n0")
    rotten(script, "n1")
    assert script["n1"].lapse is not None
    assert script["n1"].log.last_index == script["n2"].log.last_index == committed - 1
    script.heal()
    script.elapse(20_000)
    assert script.leader() is None
    term = max(script["n1"].term, script["n2"].term)
    script.elapse(20_000)
    assert max(script["n1"].term, script["n2"].term) == term  # nobody elects for ever
    script.restart("n0")
    script.elapse(20_000)
    assert found(script.leader()).log.last_index >= committed


def test_BUG_F6_it_votes_again_once_a_leader_has_given_it_what_it_lost(config: Config) -> None:
    """VSR's recovery, CTRL (FAST 2018): a node that lost its end is useful again. Guards that it looks."""
    script = led(config=config)
    write(script, 3)
    rotten(script, "n1")
    assert script["n1"].lapse is not None
    script.elapse(1_000)
    assert [script["n1"].lapse, script["n1"].campaign.allowed] == [None, True]
    script.crash("n0")
    script.elapse(20_000)
    assert script.leader() is not None
    script.crash("n1")
    script.restart("n1")
    assert script["n1"].lapse is None


def test_it_counts_again_once_its_log_reaches_exactly_as_far_as_it_did() -> None:
    """Also where no leader ever says what is committed."""
    script = led()
    write(script, 3)
    script.filter = lambda mail: not isinstance(mail.message, ReadReply)
    rotten(script, "n1")
    lapse = script["n1"].lapse
    assert lapse is not None and lapse.index == script["n1"].log.last_index + 1
    script.elapse(1_000)
    assert script["n1"].log.durable_index == lapse.index and script["n1"].lapse is None


def test_BUG_F7_a_leader_counts_it_for_nothing_while_it_says_so() -> None:
    """CTRL (FAST 2018): a damaged replica is fed and not counted. Guards the hint of its acknowledgements, by which a
    leader that never heard of the lost ones knows."""
    script = led()
    write(script, 3)
    script.filter = lambda mail: not (mail.target == "n1" and isinstance(mail.message, Append) and mail.message.frames)
    rotten(script, "n1")
    script.elect("n2")
    script.elapse(200)
    leading = script["n2"].leadership
    assert leading is not None and "n1" in leading.tracker.uncounted
    assert (peer(script, "n1", "n2").owed, peer(script, "n1", "n2").lapsed) == (0, True)
    script.filter = None
    script.elapse(400)
    assert "n1" not in leading.tracker.uncounted


def test_BUG_F8_what_an_older_life_was_told_is_committed_does_not_end_a_later_lapse() -> None:
    """etcd 20418's kind: the answer to an earlier life's question. Guards the number of the question."""
    script = led()
    write(script, 3)
    kept: list[Mail] = []

    def keep(mail: Mail) -> bool:
        if mail.target == "n1" and isinstance(mail.message, ReadReply):
            kept.append(mail)
            return False
        return not (mail.target == "n1" and isinstance(mail.message, Append) and mail.message.frames)

    script.filter = keep
    rotten(script, "n1")
    script.elapse(200)
    old = kept[:]
    script.filter = None
    script.elapse(500)
    write(script, 3)
    assert old and script["n1"].lapse is None
    script.filter = keep
    rotten(script, "n1")
    script.elapse(200)
    assert script["n1"].following.verified == script["n1"].log.last_index
    for mail in old:
        script["n1"].receive(script.now, "n0", mail.message)
    script.elapse(100)
    assert script["n1"].lapse is not None


def test_BUG_F9_a_loss_is_accepted_on_purpose() -> None:
    """Those that held it never come back: the two that are left elect without it, and say nothing any more."""
    script = led()
    script.cut("n2")
    write(script, 3)
    script.crash("n0")
    rotten(script, "n1")
    script.heal()
    script.elapse(5_000)
    assert script.leader() is None
    script["n1"].regaining.accept_loss(script.now)
    script.pump("n1")
    script.elapse(5_000)
    assert found(script.leader()).lapse is None and script["n1"].lapse is None
    script.crash("n1")
    assert script.restart("n1").replica.lapse is None


def test_BUG_F5_a_single_voter_that_lost_its_end_waits_for_that_act() -> None:
    script = led(1)
    write(script, 3)
    rotten(script, "n0")
    script.elapse(5_000)
    assert script.leader() is None
    script["n0"].regaining.accept_loss(script.now)
    script.pump("n0")
    script.elapse(5_000)
    assert script["n0"].role is Role.LEADER
