"""Reads on a leader: what is answered, with which words, and how many may wait."""

from __future__ import annotations

import pytest

from raft.config import Config, Read
from raft.errors import Busy, RejectReason
from raft.messages import Append, AppendReply, Code, ReadReply, TimeoutNow
from tests.raft.script import Mail, Script, led

FEW = Config(reads_pending_max=3)


def replies(script: Script) -> list[ReadReply]:
    """What the leader answers to followers, from now on."""
    out: list[ReadReply] = []
    before = script.filter

    def note(mail: Mail) -> bool:
        if isinstance(mail.message, ReadReply):
            out.append(mail.message)
        return before is None or before(mail)

    script.filter = note
    return out


def test_a_read_through_the_log_is_answered_with_its_own_entry() -> None:
    script = led()
    tickets = [script.read("n0", Read.LOG) for _ in range(2)]
    script.settle()
    answers = [script.nodes["n0"].reads[ticket] for ticket in tickets]
    assert [answer.refused for answer in answers] == [None, None]
    assert [answer.index for answer in answers] == [script["n0"].commit_index - 1, script["n0"].commit_index]
    assert script["n0"].leadership is not None and not len(script["n0"].leadership.reads), "answered once, forgotten"


def test_a_voter_that_is_alone_answers_at_once() -> None:
    script = led(1)
    ticket = script.read("n0")
    assert script.outcome("n0", ticket) == "done"


def test_a_read_by_lease_says_so() -> None:
    """Whoever answers must ask once more whether the lease still holds."""
    script = led()
    assert script["n0"].lease_valid(script.now)
    answer = script.nodes["n0"].reads[script.read("n0", Read.LEASE)]
    assert (answer.lease, answer.refused, answer.index) == (True, None, script["n0"].commit_index)


def test_so_many_reads_wait_and_no_more() -> None:
    """Own callers are told ``Busy``; followers, that they may ask elsewhere."""
    script = led(config=FEW)
    script.filter = lambda mail: not isinstance(mail.message, AppendReply)
    said = replies(script)
    script.read("n0")
    script.read("n0")
    asked = script.read("n1")
    script.settle()
    assert script.outcome("n1", asked) == "open" and said == [], "the third still has a place"
    with pytest.raises(Busy):
        script.read("n0")
    refused = script.read("n2")
    script.settle()
    assert script.outcome("n2", refused) is RejectReason.TRANSFERRING
    assert [(reply.code, reply.index) for reply in said] == [(Code.LEADER_TRANSFERRING, 0)]


def test_as_many_reads_as_may_wait_do() -> None:
    script = led(config=FEW)
    script.filter = lambda mail: not isinstance(mail.message, AppendReply)
    tickets = [script.read("n0") for _ in range(3)]
    with pytest.raises(Busy):
        script.read("n0")
    script.filter = None
    script.elapse(200)
    assert {script.outcome("n0", ticket) for ticket in tickets} == {"done"}


def test_a_follower_that_asks_during_a_hand_over_is_refused() -> None:
    script = led()
    script.filter = lambda mail: not isinstance(mail.message, TimeoutNow)
    said = replies(script)
    script.transfer("n0", "n1")
    ticket = script.read("n2")
    script.settle()
    assert script.outcome("n2", ticket) is RejectReason.TRANSFERRING
    assert [(reply.code, reply.index) for reply in said] == [(Code.LEADER_TRANSFERRING, 0)]


def test_when_a_leadership_ends_followers_hear_that_it_does_not_lead() -> None:
    script = led()
    script.filter = lambda mail: not isinstance(mail.message, AppendReply)
    said = replies(script)
    asked, own = script.read("n2"), script.read("n0")
    script.settle()
    assert script.outcome("n2", asked) == script.outcome("n0", own) == "open"
    term = script["n0"].term + 1
    script["n0"].receive(script.now, "n1", Append(1, term, 1, 1, 0, 0, 0, 0))
    script.pump("n0")
    script.settle()
    answer = script.nodes["n0"].reads[own]
    assert (answer.refused, answer.index) == (RejectReason.LEADER_LOST, 0)
    assert [(reply.code, reply.index, reply.term) for reply in said] == [(Code.NOT_LEADER, 0, term)]
