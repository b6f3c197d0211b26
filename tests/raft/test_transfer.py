"""Handing leadership over: to whom, when the target is told, and how it ends."""

from __future__ import annotations

import pytest

from raft.config import MS, NEVER, Config, Rules
from raft.errors import Rejected, RejectReason
from raft.leadership import Leadership
from raft.membership import Membership
from raft.messages import Role, TimeoutNow
from raft.rules.interface import LeaderDecision
from raft.storage.memory import MemoryStorage
from raft.trace import Transfer as TransferEvent
from tests.raft.script import Script, led


def leadership(script: Script) -> Leadership:
    leading = script["n0"].leadership
    assert leading is not None
    return leading


def states(script: Script) -> list[tuple[str, str]]:
    return [(event.target, event.state) for event in script.nodes["n0"].traces if isinstance(event, TransferEvent)]


def told(script: Script) -> list[tuple[str, tuple[int, ...]]]:
    return [(mail.target, (mail.message.group, mail.message.term, mail.message.last_index, mail.message.last_term))
            for mail in script.mail if isinstance(mail.message, TimeoutNow)]


def tick(script: Script, at: int) -> None:
    script.now = at
    script["n0"].tick(at)
    script.pump("n0")


def test_the_target_is_told_once_it_holds_everything() -> None:
    script = led()
    script.cut("n1")
    replica, leading = script["n0"], leadership(script)
    script.propose("n0", b"more")
    script.settle()
    began = script.now
    ticket = script.transfer("n0", "n1")
    assert leading.transfer.deadline == began + script.config.transfer_timeout_ms * MS
    assert (leading.transfer.busy, leading.transfer.told, leading.lease_dead, told(script)) == (True, False, False, [])
    assert states(script) == [("n1", "begun")]
    with pytest.raises(Rejected) as error:
        script.transfer("n0", "n2")
    assert error.value.reason == RejectReason.TRANSFERRING
    leading.peers["n1"].match = replica.log.last_index
    leading.transfer.advance()
    script.pump("n0")
    assert told(script) == [("n1", (1, replica.term, replica.log.last_index, replica.log.last_term))]
    assert (leading.transfer.told, leading.lease_dead) == (True, True)
    assert states(script) == [("n1", "begun"), ("n1", "told")]
    leading.transfer.advance()
    script.pump("n0")
    assert len(told(script)) == 1, "told once"
    deadline = leading.transfer.deadline
    script.elapse((deadline - script.now) / MS - 5)
    tick(script, deadline)
    assert script.outcome("n0", ticket) == "unknown", "it may still campaign"


def test_a_hand_over_that_takes_too_long_is_given_up_and_the_next_may_begin() -> None:
    script = led()
    script.cut("n1")
    leading = leadership(script)
    script.propose("n0", b"more")
    script.settle()
    ticket = script.transfer("n0", "n1")
    deadline = leading.transfer.deadline
    script.elapse((deadline - script.now) / MS - 5)
    tick(script, deadline - 1)
    assert script.outcome("n0", ticket) == "open"
    tick(script, deadline)
    end = script.nodes["n0"].resolved[ticket]
    assert (end.refused, end.detail, end.unknown) == (
        RejectReason.NOT_CAUGHT_UP, "n1 did not take over in time", False)
    assert (leading.transfer.busy, leading.transfer.deadline, leading.lease_dead) == (False, NEVER, False)
    assert states(script) == [("n1", "begun"), ("n1", "given up")]
    tick(script, deadline + 1)
    script.transfer("n0", "n2")
    script.settle()
    assert script.leader() is script["n2"]


def test_a_hand_over_to_the_leader_itself_is_done() -> None:
    script = led()
    ticket = script.transfer("n0", "n0")
    assert script.outcome("n0", ticket) == "done"
    assert not leadership(script).transfer.busy and states(script) == []


def test_leadership_goes_to_a_voter_that_counts_or_to_nobody() -> None:
    script = Script(2, learners=["l0"])
    script.elect("n0")
    script.elapse(100)
    leading = leadership(script)
    for target in ("l0", "nobody"):
        with pytest.raises(Rejected, match=f"{target} is not a voter that can lead") as error:
            script.transfer("n0", target)
        assert error.value.reason == RejectReason.NO_SUCH_MEMBER
    leading.tracker.uncounted = frozenset(["n1"])
    for named in ("n1", None):
        with pytest.raises(Rejected) as error:
            script.transfer("n0", named)
        assert error.value.reason == RejectReason.NO_SUCH_MEMBER
    assert not leading.transfer.busy
    leading.tracker.uncounted = frozenset()
    script.transfer("n0", None)
    script.settle()
    assert script.leader() is script["n1"]


def test_whoever_lacks_the_latest_membership_is_not_told_to_lead_by_it() -> None:
    script = led()
    script.start("n3", MemoryStorage(), Membership())
    script.cut("n1")
    script.reconfigure("n0", ["n0", "n1", "n2"], ["n3"])
    script.settle()
    leading = leadership(script)
    leading.peers["n1"].match = script["n0"].log.membership_index - 1
    with pytest.raises(Rejected, match="n1 does not hold the latest membership yet") as error:
        script.transfer("n0", "n1")
    assert error.value.reason == RejectReason.NOT_CAUGHT_UP and not leading.transfer.busy
    leading.peers["n1"].match += 1
    script.transfer("n0", "n1")
    assert leading.transfer.busy


@pytest.mark.parametrize(("to", "role"), [("n1", Role.FOLLOWER), ("n2", Role.CANDIDATE), ("", Role.CANDIDATE)])
def test_who_resigns_leaves_its_time_to_the_one_it_told(to: str, role: Role) -> None:
    """Without promises of silence a leader that resigns asks for votes again at once, but for a hand-over."""
    script = led(config=Config(rules=Rules.DLEDGER))
    script.cut("n2")
    script.propose("n0", b"more")
    script.settle()
    script.filter = lambda mail: not isinstance(mail.message, TimeoutNow)
    if to:
        script.transfer("n0", to)
    assert leadership(script).transfer.told is (to == "n1")
    leadership(script).resign(LeaderDecision(True, reason="for this test"))
    assert script["n0"].role == role


def test_a_leadership_that_ends_leaves_the_answer_to_whoever_leads_next() -> None:
    script = led()
    script.cut("n1")
    script.propose("n0", b"more")
    ticket = script.transfer("n0", "n1")
    replica, leading = script["n0"], leadership(script)
    replica.step_down("for this test")
    script.pump("n0")
    assert replica.following.handed_over == (ticket, "n1", script.now + script.config.transfer_timeout_ms * MS)
    assert (leading.transfer.busy, script.outcome("n0", ticket)) == (False, "open")
    assert states(script) == [("n1", "begun"), ("n1", "left")]


def test_who_has_no_leases_goes_on_in_its_term() -> None:
    script = led(config=Config(rules=Rules.DLEDGER))
    replica, term = script["n0"], script["n0"].term
    script.filter = lambda mail: not isinstance(mail.message, TimeoutNow)
    script.transfer("n0", "n1")
    script.elapse(script.config.transfer_timeout_ms + 100)
    assert script.leader() is replica and replica.term == term
