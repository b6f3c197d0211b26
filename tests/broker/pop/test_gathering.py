"""Acknowledgements of one turn: which become one record, and who hears of it."""

from __future__ import annotations

from broker.pop.gathering import Gathering
from remoting.bodies.popping import COUNT_MAX, AckMessage, BatchAckMessage


def made(offset: int, start: int = 0) -> AckMessage:
    return AckMessage(offset, start, "G", "T", 1, 1_000, "a")


def test_those_of_one_checkpoint_are_one() -> None:
    gathering, said = Gathering(), list[str]()
    firsts = [gathering.add(ack, 2, 60_000, lambda why, name=name: said.append(f"{name}{why}"))  # type: ignore[misc]
              for name, ack in zip("abcde", (made(4), made(9, 8), made(0), made(4), made(2)), strict=True)]
    assert firsts == [True, False, False, False, False]
    one, two = gathering.take()
    assert one.ack == BatchAckMessage([4, 0, 2], 0, "G", "T", 1, 1_000, "a")
    assert (one.revive_qid, one.invisible_ms) == (2, 60_000)
    assert two.ack == made(9, 8)
    one.answer("!")
    two.answer("")
    assert said == ["a!", "c!", "d!", "e!", "b"]


def test_the_same_checkpoint_by_another_revive_queue_or_time_stands_alone() -> None:
    gathering = Gathering()
    for revive_qid, invisible_ms in ((1, 5), (2, 5), (1, 6)):
        gathering.add(made(3), revive_qid, invisible_ms, lambda why: None)
    assert [(each.revive_qid, each.invisible_ms) for each in gathering.take()] == [(1, 5), (2, 5), (1, 6)]
    assert not gathering.take()
    assert gathering.add(made(3), 1, 5, lambda why: None), "the first of the next turn"


def test_more_than_a_checkpoint_has_are_several_records() -> None:
    gathering = Gathering()
    for offset in range(COUNT_MAX + 2):
        gathering.add(made(offset), 1, 5, lambda why: None)
    assert [len(each.offsets) for each in gathering.take()] == [COUNT_MAX, 2]
