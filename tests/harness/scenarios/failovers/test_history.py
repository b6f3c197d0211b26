"""Each promise is broken by the events that break it, and by no others; a history that is cut or foreign says so."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scenarios.failovers.history import Account, History, Note, Op, Place, Promise, read

AT, NEXT = Place("broker-a", 0, 7), Place("broker-a", 0, 8)


def broken(*events: tuple[Op, str, Place | None]) -> list[Promise]:
    account = Account()
    for number, (op, body, place) in enumerate(events):
        account.add(Note(number, op, body, place))
    return [each.promise for each in account.verdict()]


def test_a_run_in_which_all_is_well() -> None:
    assert not broken((Op.ACKED, "a", AT), (Op.SAW, "a", AT), (Op.SAW, "a", AT), (Op.UNKNOWN, "b", None),
                      (Op.FAILED, "c", None), (Op.LAST, "a", AT), (Op.LAST, "b", NEXT))


def test_an_acknowledged_message_that_is_gone_is_lost() -> None:
    assert broken((Op.ACKED, "a", AT)) == [Promise.LOST]


def test_one_that_is_elsewhere_is_lost_too() -> None:
    assert broken((Op.ACKED, "a", AT), (Op.LAST, "a", NEXT)) == [Promise.LOST]


def test_an_offset_that_is_acknowledged_for_two_messages() -> None:
    assert Promise.TWICE in broken((Op.ACKED, "a", AT), (Op.ACKED, "b", AT), (Op.LAST, "b", AT))


@pytest.mark.parametrize("later", [Op.SAW, Op.LAST])
def test_what_was_seen_and_is_another_message_now(later: Op) -> None:
    assert Promise.UNSEEN in broken((Op.SAW, "a", AT), (later, "b", AT), (Op.LAST, "b", AT))


def test_what_was_seen_and_is_gone() -> None:
    assert broken((Op.SAW, "a", AT)) == [Promise.UNSEEN]


def test_what_is_stored_nowhere_is_not_there() -> None:
    assert broken((Op.FAILED, "a", None), (Op.LAST, "a", AT)) == [Promise.DENIED]


PLACES = st.builds(Place, st.text(), st.integers(), st.integers())


@given(st.integers(0), st.sampled_from(Op), st.text(), st.none() | PLACES)
def test_events_are_written_and_read(at_ms: int, op: Op, body: str, place: Place | None) -> None:
    event = Note(at_ms, op, body, place)
    assert Note.from_json(event.to_json()) == event


def test_a_history_is_judged_again_from_its_file(tmp_path: Path) -> None:
    file = io.StringIO()
    history = History(file)
    history.add(1, Op.ACKED, "a", AT)
    history.add(2, Op.LAST, "b", AT)
    path = tmp_path / "history.jsonl"
    path.write_text(file.getvalue())
    assert read(path).verdict() == history.account.verdict()


@pytest.mark.parametrize("line", [
    "", "{}", "[1]", '[1,"acked","a","broker-a",0', '[1,"thought","a"]', '[1,"acked","a",1]'])
def test_a_line_that_is_no_event_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(Note(1, Op.FAILED, "a").to_json() + f"\n{line}\n")
    with pytest.raises(ValueError, match="line 2: no event of a history"):
        read(path)


def test_an_acknowledgement_needs_its_place() -> None:
    with pytest.raises(ValueError, match="says no place"):
        Account().add(Note(1, Op.ACKED, "a"))
