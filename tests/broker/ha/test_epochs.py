"""The epoch list: what Java's file and rules fix, and the defects of the original that are not here."""

from __future__ import annotations

import re
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ha.epochs import (
    EPOCHS_MAX,
    Epoch,
    EpochError,
    EpochFileError,
    EpochList,
    consistent_point,
    from_text,
    load,
    to_text,
)

THREE = EpochList([(1, 100), (2, 300), (3, 500)])


@st.composite
def lists(draw: st.DrawFn, size: int = 8) -> EpochList:
    steps = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 300)), max_size=size))
    epoch, start, entries = 0, draw(st.integers(0, 50)), []
    for up, on in steps:
        epoch, start = epoch + up, start + on
        entries.append((epoch, start))
    return EpochList(entries)


@pytest.mark.parametrize(("local", "local_end", "master", "master_end", "point"), [
    (THREE, 700, EpochList([(1, 100), (2, 300), (3, 450)]), 700, 450),
    (THREE, 700, THREE, 600, 600),
    (THREE, 600, THREE, 700, 600),
    (THREE, 700, EpochList([(1, 200), (2, 500)]), 700, None),
    (EpochList([*THREE, (4, 800)]), 900, THREE, 700, 700),
    (EpochList(), 0, THREE, 700, None),
    (THREE, 700, EpochList(), 0, None),
    (THREE, 400, THREE, 700, 400),  # the last entry lies behind the log's end and says nothing
    (THREE, 500, THREE, 500, 500),  # a reign without a byte
])
def test_consistent_point(
    local: EpochList, local_end: int, master: EpochList, master_end: int, point: int | None,
) -> None:
    assert consistent_point(local, local_end, master, master_end) == point


def test_append() -> None:
    grown = EpochList().append(1, 0).append(3, 70)
    assert list(grown) == [(1, 0), (3, 70)]
    assert [grown.end(0), grown.end(1)] == [70, 2**63 - 1]
    assert grown.append(3, 90) is grown, "a master that restarts in its epoch keeps where it began"
    for epoch, start in [(2, 90), (4, 69), (2, 70)]:
        with pytest.raises(EpochError, match=f"epoch {epoch} from {start} cannot follow epoch 3 from 70"):
            grown.append(epoch, start)


def test_equal_starts_are_overwritten() -> None:
    """apache/rocketmq#9942: refused there, so that heartbeats told an older epoch than the controller's."""
    assert list(EpochList([(1, 0), (2, 50)]).append(5, 50)) == [(1, 0), (5, 50)]


def test_no_stale_end_after_a_truncation() -> None:
    """There the new last entry kept its old end in memory, and later offsets were found in no epoch."""
    cut = THREE.cut_from_offset(500)
    assert cut == EpochList([(1, 100), (2, 300)])
    assert cut.find(10_000) == (2, 300)
    assert THREE.cut_from_offset(501) == THREE
    assert THREE.cut_from_offset(0) == EpochList()


def test_prefix_truncation_keeps_whose_bytes_are_left() -> None:
    assert THREE.drop_before(300) == THREE
    assert THREE.drop_before(301) == EpochList([(2, 300), (3, 500)])
    assert THREE.drop_before(10**9) == EpochList([(3, 500)])


def test_a_log_that_begins_where_an_epoch_ended_is_the_same_up_to_there() -> None:
    """Its first epoch has no byte that the master has, so only the one before it tells."""
    behind = EpochList([(1, 0), (2, 300)]).drop_before(300).append(4, 300)
    assert consistent_point(behind, 350, EpochList([(1, 0), (3, 300)]), 400) == 300


def test_find_and_next() -> None:
    assert [THREE.find(o) for o in (99, 100, 299, 300, 500, 10**12)] == [
        None, (1, 100), (1, 100), (2, 300), (3, 500), (3, 500)]
    assert [THREE.next(e) for e in (0, 1, 2, 3)] == [(1, 100), (2, 300), (3, 500), None]


def test_the_oldest_go_when_a_java_master_could_not_tell_them() -> None:
    grown = EpochList()
    for epoch in range(EPOCHS_MAX + 5):
        grown = grown.append(epoch, 10 * epoch)
    assert len(grown) == EPOCHS_MAX
    assert grown.entries[0] == Epoch(5, 50)


def test_text_is_javas() -> None:
    assert to_text(EpochList([(1, 0)])) == "1\n1725254278\n1-0\n"
    assert to_text(EpochList([(7, 7000), (8, 8000)])) == "2\n773307083\n7-7000\n8-8000\n"
    assert from_text("2\n773307083\n7-7000\n8-8000\n") == EpochList([(7, 7000), (8, 8000)])
    assert from_text("1\n0\n7-7000") == EpochList([(7, 7000)]), "a CRC of 0 is not checked"


def test_an_empty_list_is_persisted() -> None:
    """There it was not written, and epochs that a truncation had removed came back after a restart."""
    text = to_text(EpochList())
    assert text == "0\n0\n"
    assert load(text, to_text(THREE)).epochs == EpochList()


@pytest.mark.parametrize(("text", "words"), [
    ("", "has 0 lines"),
    ("1\n", "has 1 lines"),
    ("x\n0\n", "line 1 of the epoch file is 'x'"),
    ("2\n0\n1-0\n", "announces 2 entries and holds 1"),
    ("1\n5\n1-0\n", "CRC"),
    ("1\n0\n10\n", "<epoch>-<start> was expected"),
    ("1\n0\n-1-0\n", "line 3"),
    ("1\n0\n1--7\n", "line 3"),
    ("1\n0\n99999999999-0\n", "from 0 to 2147483647"),
    ("2\n0\n2-0\n1-5\n", "do not rise"),
    ("9" * 5000 + "\n0\n", "line 1"),
])
def test_damage_is_named(text: str, words: str) -> None:
    with pytest.raises(EpochFileError, match=words):
        from_text(text)
    found = load(text, to_text(THREE))
    assert found.epochs == THREE
    assert re.search(words, found.damaged)
    with pytest.raises(EpochFileError, match=words):
        load(text, None)


def test_load() -> None:
    assert load(None, None).epochs == EpochList()
    assert load(None, to_text(THREE)).epochs == THREE
    assert load(to_text(THREE), "rot").epochs == THREE


def test_windows_line_ends() -> None:
    lines = "7-7000\r\n8-8000\r\n"
    assert len(from_text(f"2\r\n{zlib.crc32(lines.encode()) & 0x7FFFFFFF}\r\n{lines}")) == 2


@given(lists())
def test_text_round_trip(epochs: EpochList) -> None:
    assert from_text(to_text(epochs)) == epochs


@given(lists(), st.integers(0, 3000), st.integers(0, 3000))
def test_logs_agree_below_the_consistent_point(shared: EpochList, mine: int, theirs: int) -> None:
    """Two logs that share a history and then part: the point is never above where they part, nor above either end."""
    parting = max((entry.start for entry in shared), default=0) + 40
    local = shared.append(100, parting)
    master = shared.append(101, parting + 7)
    point = consistent_point(local, mine, master, theirs)
    if point is not None:
        assert point <= min(mine, theirs, parting)
        assert local.find(point - 1) == master.find(point - 1) or point in {e.start for e in shared} | {0}


@given(lists(), st.integers(0, 3000))
def test_cuts_keep_a_prefix_or_a_suffix(epochs: EpochList, offset: int) -> None:
    assert list(epochs.cut_from_offset(offset)) == [e for e in epochs if e.start < offset]
    assert epochs.within(offset).cut_from_offset(offset) == epochs.cut_from_offset(offset)
    kept = epochs.drop_before(offset)
    assert list(kept) == list(epochs)[len(epochs) - len(kept):]
    if epochs:
        assert kept.last == epochs.last
        assert kept.find(offset) == epochs.find(offset)
