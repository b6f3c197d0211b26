"""What a request for a vote changes at the node that is asked, beside the answer."""

from __future__ import annotations

import pytest

from raft.messages import HardState, Lapse, Role, Vote, VoteReply, VoteResult, Write
from tests.raft.alone import DLEDGER, Node

LATER = 10**12
"""When no promise of silence stands any more, in ns."""


def asked(term: int, last_term: int = 9) -> Vote:
    return Vote(1, term, 1, 9, last_term)


def test_who_lacks_something_says_so_to_a_question() -> None:
    node = Node()
    node.replica.lapse = Lapse(1, 1)
    assert node.hear(asked(4)) == [VoteReply(1, 3, 1, VoteResult.UNKNOWN, probe=False)]
    assert (node.replica.term, node.replica.voted_for) == (3, None)


def test_a_candidate_that_is_asked_in_a_higher_term_follows_and_waits() -> None:
    node = Node()
    node.replica.become_candidate("a test")
    node.said()
    node.hear(asked(9), later=LATER)
    assert [role for role, *_ in node.roles] == [node.replica.role] == [Role.FOLLOWER]
    assert node.replica.voted_for == "n1"


def test_a_follower_without_a_leader_that_is_asked_in_a_higher_term_stays_what_it_is() -> None:
    node = Node()
    node.said()
    node.hear(asked(9), later=LATER)
    assert node.roles == [] and (node.replica.term, node.replica.voted_for) == (9, "n1")


def test_a_candidate_that_refuses_its_vote_before_there_was_any_term_stays_one() -> None:
    node = Node(hard_state=HardState())
    node.replica.become_candidate("a test")
    node.said()
    assert [reply.result for reply in node.hear(Vote(1, 1, 1, 0, 0), "n9")] == [VoteResult.REJECT_UNKNOWN_LEADER]
    assert node.replica.role is Role.CANDIDATE and node.others(Write) == []


@pytest.mark.parametrize("term", [3, 4])
def test_who_gave_its_vote_waits_anew(term: int) -> None:
    node = Node()
    before = node.replica.election_deadline
    node.hear(asked(term), later=before - node.now - 1)
    assert node.replica.voted_for == "n1"
    assert node.replica.election_deadline == node.now + node.replica.silence_ns > before


def test_a_candidate_of_dledger_asks_in_the_term_that_it_was_asked_in() -> None:
    node = Node(config=DLEDGER)
    node.hear(asked(9))
    assert node.replica.role is Role.CANDIDATE
    rounds = [message.term for _ in range(20) for message in node.tick(100_000_000) if isinstance(message, Vote)]
    assert rounds[0] == 9
