"""What a file says holds whatever the power does."""

from __future__ import annotations

from broker.sure import Sure


def test_a_value_counts_once_the_disk_has_what_it_is_true_of() -> None:
    sure = Sure("a")
    sure.offer(100, lambda: "b")
    sure.offer(200, lambda: "c")
    assert not sure.flushed(99) and sure.value == "a"
    assert sure.flushed(100) and sure.value == "b"
    assert not sure.flushed(300), "nothing waits: one value does at a time"
    sure.offer(300, lambda: "d")
    assert sure.flushed(300) and sure.value == "d"


def test_a_log_that_was_cut_and_grew_again_makes_nothing_true() -> None:
    sure = Sure("a")
    sure.offer(100, lambda: "b")
    sure.cut(100)
    assert sure.flushed(100) and sure.value == "b"
    sure.offer(200, lambda: "c")
    sure.cut(199)
    assert not sure.flushed(300) and sure.value == "b"


def test_the_latest_value_is_made_once_the_disk_has_the_one_before() -> None:
    sure = Sure("a")
    assert sure.latest(100, 99, lambda: "b") == "a"
    assert sure.latest(200, 99, lambda: "c") == "a"
    assert sure.latest(200, 199, lambda: "d") == "b", "and the next one waits"
    assert sure.latest(300, 200, lambda: "e") == "d"
    assert sure.latest(300, 300, lambda: "f") == "f", "the disk has all"
