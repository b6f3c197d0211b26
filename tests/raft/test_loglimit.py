"""Repeated log lines are few, and say how many they stand for. Time is a number here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.loglimit import RepeatLimit


@attrs.define
class Desk:
    """A logger with one handler, and time."""

    now_s: float = 0.0
    lines: list[str] = attrs.field(factory=list)
    timers: list[tuple[float, Callable[[], None]]] = attrs.field(factory=list)
    handler: logging.Handler = attrs.field(init=False)
    logger: logging.Logger = attrs.field(factory=lambda: logging.getLogger("desk"))
    limit: RepeatLimit = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.handler = logging.Handler()
        self.handler.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]
        self.limit = RepeatLimit(5, 1.0, clock=lambda: self.now_s, later=self._later)
        self.handler.addFilter(self.limit)
        self.logger.handlers, self.logger.propagate = [self.handler], False
        self.logger.setLevel(logging.WARNING)  # another test may have changed the root's

    def _later(self, wait_s: float, call: Callable[[], None]) -> None:
        self.timers.append((self.now_s + wait_s, call))

    def sleep(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while due := [timer for timer in self.timers if timer[0] <= until_s]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now_s = first[0]
            first[1]()
        self.now_s = until_s

    def said(self) -> int:
        return sum(int(line.split()[0]) for line in self.lines if "left out" in line)

    def passed(self) -> int:
        return sum("left out" not in line for line in self.lines)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.logger.handlers, made.logger.propagate = [], True


def test_a_flood_is_some_lines_and_a_number(desk: Desk) -> None:
    for number in range(32_000):
        desk.logger.warning("replica at %s refused", number)
        desk.sleep(45 / 32_000)
    assert desk.passed() <= 5 + 45
    desk.sleep(60)
    assert desk.passed() + desk.said() == 32_000
    assert desk.lines[-1].endswith("left out: replica at %s refused")


def test_kinds_are_apart_and_time_gives_room_again(desk: Desk) -> None:
    for _ in range(9):
        desk.logger.warning("one %d", 1)
    desk.logger.warning("another %d", 1)
    desk.logger.error("one %d", 1)
    assert desk.lines[5:] == ["another 1", "one 1"]
    desk.sleep(1.5)
    desk.logger.warning("one %d", 2)
    assert desk.lines[7:] == ["4 lines like this one were left out: one %d", "one 2"]
    desk.logger.warning("one %d", 3)
    assert desk.lines[9:] == []


def test_what_was_left_out_is_said_though_nobody_logs_any_more(desk: Desk) -> None:
    for _ in range(7):
        desk.logger.info("quiet")  # below the logger's level: neither counted nor said
        desk.logger.warning("loud")
    assert len(desk.timers) == 1, "one for all"
    desk.sleep(10)
    assert desk.lines[5:] == ["2 lines like this one were left out: loud"]
    desk.sleep(100)
    assert len(desk.lines) == 6


def test_words_that_change_with_each_line_do_not_fill_the_memory(desk: Desk) -> None:
    for number in range(10_000):
        desk.logger.warning(f"peer said {number}")  # noqa: G004  what nobody should do
    assert len(desk.limit._kinds) <= 4_100
    desk.limit.tell()
    assert desk.passed() + desk.said() == 10_000


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=200))
def test_no_line_is_lost_without_a_word(steps: list[tuple[int, str]]) -> None:
    desk = Desk()
    for wait_s, words in steps:
        desk.sleep(wait_s / 2)
        desk.logger.warning(words)
    desk.sleep(20)
    assert desk.passed() + desk.said() == len(steps)
    for words in "abc":
        assert desk.lines.count(words) <= 5 + desk.now_s
    desk.logger.handlers, desk.logger.propagate = [], True


def test_one_line_a_second_is_never_too_many(desk: Desk) -> None:
    for _ in range(1_000):
        desk.logger.warning("steady")
        desk.sleep(1)
    assert desk.passed() == 1_000 and not desk.said()
