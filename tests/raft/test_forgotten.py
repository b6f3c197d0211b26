"""A node that lost what it had acknowledged: its last block rotted, or an older copy of its directory was put back.

Until it holds that again it counts for nothing; it is fed from its real end. Who knows of the loss, and when, is
``docs/explanation/elections.md``.
"""

from __future__ import annotations

from copy import deepcopy

import attrs
import pytest

from raft.config import Config, DLedgerTimers, Rules
from raft.messages import Append, AppendReply, Role
from raft.progress import Progress
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


def write(script: Script, count: int = 5, leader: str = "n0") -> None:
    for _ in range(count):
        script.propose(leader, b"w")
        script.settle()


def put_back(script: Script, name: str, copy: MemoryStorage) -> None:
    """Stop a node and start it on an older copy of its directory."""
    script.crash(name)
    script.start(name, copy)


# --- the leader of the time ---------------------------------------------------------------------------------------


def test_a_voter_whose_older_copy_is_put_back_is_fed_from_its_real_end(config: Config) -> None:
    """The leader goes back behind ``match`` once an answer to a later message shows that the peer lacks it."""
    script = led(config=config)
    copy = deepcopy(script.nodes["n1"].storage)
    write(script)
    assert peer(script, "n1").match == script["n0"].last_index
    put_back(script, "n1", copy)
    script.elapse(400)
    assert peer(script, "n1").match == script["n0"].last_index == script["n1"].durable_index
    script.cut("n2")
    write(script, 2)
    assert script["n0"].commit_index == script["n0"].last_index  # it counts again: two of three live


def test_it_is_fed_by_a_snapshot_where_the_log_does_not_reach_back() -> None:
    script = led(config=attrs.evolve(Config(), snapshot_tail_entries=0))
    copy = deepcopy(script.nodes["n1"].storage)
    write(script, 600)
    script.snapshot("n0")
    put_back(script, "n1", copy)
    script.elapse(400)
    assert script["n1"].snapshot is not None
    assert peer(script, "n1").match == script["n0"].last_index


def test_until_it_holds_what_it_had_acknowledged_it_counts_for_nothing(config: Config) -> None:
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
    assert leading is not None and peer(script, "n1").owed == owed and "n1" in leading.uncounted
    assert not leading.lease_valid()
    before = script["n0"].commit_index
    script.propose("n0", b"w")
    ticket = script.read("n0")
    script.elapse(200)
    assert script["n0"].role is Role.LEADER
    assert script["n0"].commit_index == before and script.outcome("n0", ticket) == "open"
    script.filter = None
    script.elapse(400)
    assert "n1" not in leading.uncounted and peer(script, "n1").owed == 0
    assert script["n0"].commit_index == before + 1 and script.outcome("n0", ticket) == "done"


def test_a_late_answer_of_the_same_life_is_no_loss() -> None:
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


def test_another_entry_where_it_had_acknowledged_ours_is_a_loss_too() -> None:
    """The copy ends as far as the log, in entries of an earlier term that were overwritten since."""
    script = led()
    script.elect("n1")
    script.cut("n1")
    script.propose("n1", b"x")
    script.propose("n1", b"y")
    copy = deepcopy(script.nodes["n1"].storage)
    script.heal()
    script.elect("n0")
    script.elapse(400)
    write(script, 1)
    script.elapse(200)
    match = peer(script, "n1").match
    assert match == script["n0"].last_index
    put_back(script, "n1", copy)
    assert script["n1"].last_index >= 1
    script.elapse(600)
    leader = script.leader()
    assert leader is not None
    assert script["n1"].log.term_at(match) == leader.log.term_at(match)
    assert script["n1"].durable_index == leader.last_index
