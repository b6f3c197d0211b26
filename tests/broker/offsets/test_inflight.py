"""How many messages are out: given, less those that are done with, and never below none."""

from __future__ import annotations

from broker.offsets.inflight import PAIRS_MAX, Inflight


def test_what_is_given_is_out_until_it_is_done_with() -> None:
    found = Inflight()
    found.gave("G", "T", 5)
    found.gave("H", "T", 1)
    found.done("G", "T", 2)
    assert found.of == {("G", "T"): 3, ("H", "T"): 1}
    found.done("G", "T", 9)
    assert found.of["G", "T"] == 0, "the others were given by a process before this one"
    found.gave("G", "T", 1)
    assert found.of["G", "T"] == 1


def test_what_another_process_gave_is_not_counted() -> None:
    found = Inflight()
    found.done("G", "T", 2)
    assert not found.of


def test_what_is_deleted_is_forgotten() -> None:
    found = Inflight()
    for group, topic in (("G", "T"), ("G", "U"), ("H", "T")):
        found.gave(group, topic, 1)
    found.forget_topic("T")
    assert list(found.of) == [("G", "U")]
    found.forget_group("G")
    assert not found.of


def test_too_many_pairs_are_not_counted() -> None:
    found = Inflight()
    for number in range(PAIRS_MAX + 1):
        found.gave("G", f"T{number}", 1)
    found.gave("G", "T0", 1)
    assert len(found.of) == PAIRS_MAX and found.of["G", "T0"] == 2
