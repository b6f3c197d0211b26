"""What waits for a write to be durable: in order, the latest of what says the same, so many, and none that is void."""

from __future__ import annotations

import pytest

from raft.held import HELD_MAX, Held
from raft.messages import Send, VoteReply, VoteResult


def reply(peer: str, token: int, *, probe: bool = False) -> Send:
    return Send(peer, VoteReply(0, token, 1, VoteResult.ACCEPT, probe), token)


def test_what_waited_for_a_write_leaves_in_its_order() -> None:
    held = Held()
    sends = [reply("n2", 1), reply("n3", 2), reply("n4", 3)]
    for send in sends:
        held.add(send)
    assert list(held.due(2)) == sends[:2] and list(held) == sends[2:]


@pytest.mark.parametrize(("peer", "probe", "left"), [("n2", False, 1), ("n2", True, 2), ("n3", False, 2)])
def test_what_says_the_same_to_the_same_peer_takes_its_place(peer: str, probe: bool, left: int) -> None:
    held = Held()
    held.add(reply("n2", 1))
    held.add(reply(peer, 2, probe=probe))
    assert [send.after for send in held] == [1, 2][-left:]


def test_the_oldest_goes_when_there_are_too_many() -> None:
    held = Held()
    for number in range(HELD_MAX + 1):
        held.add(reply(f"n{number}", number))
    assert len(held) == HELD_MAX and next(iter(held)).peer == "n1"


def test_nothing_leaves_of_what_rested_on_a_write_that_is_gone() -> None:
    held = Held()
    held.add(reply("n2", 1))
    held.clear()
    assert len(held) == 0 and list(held.due(1)) == []
