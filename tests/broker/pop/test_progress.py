"""How far groups are, as every replica finds it in the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.pop import progress
from broker.pop.progress import UNDONE_MAX, KeptProgress, PopProgress, Stretch
from broker.pop.records import Records
from broker.timer.letters import Letter
from broker.timer.units import Unit
from remoting.record import NOTED, Message, Outline
from tests.broker.pop.test_records import HOST, NOW_MS, REVIVE, records
from tests.remoting.test_popping import CHECKPOINT

KEY = ("T1", "G1", 2)


class Log:
    """Outlines of messages, as they would be shown."""

    def __init__(self) -> None:
        self.end = 1_000
        self.progress = PopProgress(REVIVE)
        self.made: Records = records()

    def outline(self, message: Message) -> Outline:
        offset, self.end = self.end, self.end + 100
        return (offset, 100, message.queue_id, 0, message.sys_flag, NOW_MS, message.topic, message.properties)

    def hear(self, message: Message) -> None:
        self.progress.hear(self.outline(message))

    def checkpoint(self, text: str) -> Message:
        message = self.made.checkpoint(CHECKPOINT, 3, text)
        assert isinstance(message, Message)
        return message

    def give(self, floor: int, begin: int, end: int) -> None:
        self.hear(self.checkpoint(Stretch(*KEY, floor, begin, end).encode()))

    @property
    def at(self) -> int | None:
        return self.progress.ends.get(KEY)


def test_checkpoints_take_their_group_on_one_behind_the_other() -> None:
    log = Log()
    log.give(0, 0, 10)
    log.give(0, 10, 20)
    log.give(20, 20, 25)
    assert log.at == 25


def test_one_behind_a_gap_takes_nobody_on() -> None:
    """The checkpoint in between was refused, or cut off."""
    log = Log()
    log.give(0, 10, 20)
    assert log.at == 0
    log.give(0, 0, 10)
    log.give(0, 20, 30)
    assert log.at == 10
    log.give(10, 10, 15)
    assert log.at == 15


def test_who_was_somewhere_else_begins_there() -> None:
    """It pulled meanwhile, or a filter left out all in between."""
    log = Log()
    log.give(0, 0, 10)
    log.give(500, 500, 510)
    assert log.at == 510


def test_one_that_begins_further_back_counts() -> None:
    """A reset that no record tells of, or another topic of the name."""
    log = Log()
    log.give(0, 0, 500)
    log.give(0, 0, 10)
    assert log.at == 10


def test_resets_and_deletions_are_records() -> None:
    log = Log()
    log.give(0, 0, 500)
    log.hear(progress.reset("T1", "G1", 2, 7, HOST, NOW_MS))
    assert log.at == 7
    log.hear(progress.gone("T2", "", HOST, NOW_MS))
    log.hear(progress.gone("", "G2", HOST, NOW_MS))
    assert log.at == 7
    assert log.progress.knows("T1", "G1")
    log.hear(progress.gone("T1", "", HOST, NOW_MS))
    assert not log.progress.ends
    assert not log.progress.knows("", "")
    log.give(0, 0, 5)
    log.hear(progress.gone("", "G1", HOST, NOW_MS))
    assert not log.progress.ends


def test_a_deleted_topic_takes_its_retry_topics_with_it() -> None:
    log = Log()
    for topic in ("%RETRY%G1_T1", "%RETRY%G1+T1", "%RETRY%G1_T2"):
        log.hear(log.checkpoint(Stretch(topic, "G1", 0, 0, 0, 5).encode()))
    log.hear(progress.gone("T1", "", HOST, NOW_MS))
    assert log.progress.ends == {("%RETRY%G1_T2", "G1", 0): 5}


def test_copies_of_a_checkpoint_say_nothing() -> None:
    log = Log()
    message = log.checkpoint(Stretch(*KEY, 0, 0, 10).encode())
    letter, unit = Letter.of(message), Unit(1_000, 100)
    for copy in (letter.rolled(unit, NOW_MS), letter.rolled(unit, NOW_MS, moved=True), letter.delivered(unit, NOW_MS)):
        assert copy.sys_flag & NOTED
        log.hear(copy)
    assert log.at is None
    log.hear(message)
    assert log.at == 10


@pytest.mark.parametrize("text", [
    "", "1", "0 0 10 2 G1", "0 0 10 2 G1 T1 x", "x 0 10 2 G1 T1", "0 -1 10 2 G1 T1", f"0 0 {2**63} 2 G1 T1",
    f"0 0 10 {2**31} G1 T1"])
def test_what_nobody_writes_is_passed_over(text: str) -> None:
    assert Stretch.decode(text) is None
    log = Log()
    log.hear(log.checkpoint(text or "?"))
    assert not log.progress.ends


@pytest.mark.parametrize("text", ["", "to", "to x 2 G T", "to 1 x G T", "gone", "gone G", "so 1 2 G T"])
def test_resets_that_nobody_writes_are_passed_over(text: str) -> None:
    log = Log()
    log.give(0, 0, 5)
    log.hear(progress._record(text, HOST, NOW_MS))
    assert log.progress.ends == {KEY: 5}


def test_others_cannot_say_it() -> None:
    """In another topic, as any sender may."""
    log = Log()
    log.hear(Message(b"T1", b"", 0, f"__QUORATE_POP\x01{Stretch(*KEY, 0, 0, 9).encode()}\x02".encode(), sys_flag=NOTED))
    log.hear(Message(b"rmq_sys_wheel_timer", b"", 0, (
        f"__QUORATE_POP\x01{Stretch(*KEY, 0, 0, 9).encode()}\x02REAL_TOPIC\x01T1\x02").encode(), sys_flag=NOTED))
    assert not log.progress.ends


def test_what_was_cut_off_is_undone() -> None:
    log = Log()
    log.give(0, 0, 10)
    cut = log.end
    log.give(10, 10, 20)
    log.hear(progress.gone("T1", "", HOST, NOW_MS))
    log.give(0, 0, 3)
    log.progress.cut(log.end)
    assert log.at == 3
    log.progress.cut(cut)
    assert log.at == 10
    log.progress.cut(0)
    assert log.at is None


def test_of_a_log_that_was_cut_far_back_nothing_is_known() -> None:
    """Rather than too much."""
    log = Log()
    for number in range(UNDONE_MAX + 5):
        log.give(number, number, number + 1)
    assert not log.progress.cut(1_000 + 300), "it is to be heard again"
    assert not log.progress.ends
    kept = PopProgress(REVIVE, KeptProgress(5_000, {"T1@G1": {2: 77}}))
    assert kept.cut(5_000)
    assert kept.ends == {KEY: 77}
    assert not kept.cut(4_999)
    assert not kept.ends


@given(st.dictionaries(st.tuples(st.sampled_from("AB"), st.sampled_from("GH"), st.integers(0, 3)),
                       st.integers(0, 2**63 - 1)))
def test_what_is_kept_is_known_again(ends: dict[tuple[str, str, int], int]) -> None:
    known = PopProgress(REVIVE)
    known.ends.update(ends)
    assert PopProgress(REVIVE, KeptProgress.from_json(known.kept(5).to_json())).ends == ends


def given_to(steps: list[tuple[int, int, int]]) -> Log:
    """A log with a checkpoint for each of these: floor, begin, count."""
    log = Log()
    for floor, begin, count in steps:
        log.give(floor, begin, begin + count)
    return log


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 9)), max_size=30), st.data())
def test_what_is_kept_of_a_shorter_log_is_what_that_one_says(
        steps: list[tuple[int, int, int]], data: st.DataObject) -> None:
    sure = data.draw(st.integers(0, len(steps)))
    long, short = given_to(steps), given_to(steps[:sure])
    kept = long.progress.kept(1_000 + 100 * sure)
    assert kept.log_offset == 1_000 + 100 * sure
    assert PopProgress(REVIVE, kept).ends == short.progress.ends


def test_what_can_be_undone_no_more_is_kept_as_it_is() -> None:
    log = Log()
    for number in range(UNDONE_MAX + 5):
        log.give(number, number, number + 1)
    kept = log.progress.kept(1_000)
    assert 1_000 < kept.log_offset <= 1_000 + 100 * 5
    assert PopProgress(REVIVE, kept).ends == {KEY: 5}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 9)), max_size=30), st.data())
def test_a_cut_leaves_what_a_shorter_log_says(
        steps: list[tuple[int, int, int]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(steps)))
    long, short = given_to(steps), given_to(steps[:cut])
    long.progress.cut(1_000 + 100 * cut)
    assert long.progress.ends == short.progress.ends
