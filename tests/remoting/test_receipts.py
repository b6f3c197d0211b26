"""Texts of POP's headers: as Java prints them, there and back, and what is none."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import receipts
from remoting.errors import HeaderError
from remoting.receipts import ITEMS_MAX, LENGTH_MAX, ORDERED, Receipt

LONGS = st.integers(0, 2**63 - 1)
INTS = st.integers(0, 2**31 - 1)
FLAGS = st.integers(0, 2)
NAMES = st.text("abcXYZ019-_%", min_size=1, max_size=20)
PLACES = st.tuples(FLAGS, INTS)


def test_receipts_are_those_that_java_prints() -> None:
    found = Receipt(100, 1_700_000_000_000, 60_000, 3, receipts.RETRY_V1, "brk", 0, 105)
    assert found.encode() == "100 1700000000000 60000 3 1 brk 0 105"
    assert Receipt.decode("100 1700000000000 60000 3 1 brk 0 105") == found
    assert not found.ordered
    assert Receipt.decode(f"100 1700000000000 60000 {ORDERED} 0 brk 0").ordered


def test_the_short_form_and_a_field_more_are_read() -> None:
    assert Receipt.decode("100 1700000000000 60000 3 0 brk 2").offset is None
    assert Receipt.decode("100 1700000000000 60000 3 0 brk 2 105 4096").offset == 105, "as the proxy appends it"


@given(st.builds(Receipt, LONGS, LONGS, LONGS, INTS, FLAGS, NAMES, INTS, st.none() | LONGS))
def test_a_receipt_there_and_back(found: Receipt) -> None:
    assert Receipt.decode(found.encode()) == found
    for _ in range(2):
        assert attrs.evolve(Receipt.decode_front(found.encode()), offset=found.offset) == found


@pytest.mark.parametrize(("text", "words"), [
    ("", "1 fields"), ("100 1 2 3 0 brk", "6 fields"), ("x 1 2 3 0 brk 0", "no number"),
    ("-1 1 2 3 0 brk 0", "no number"),
    (f"{2**63} 1 2 3 0 brk 0", "no number"), (f"1 1 2 {2**31} 0 brk 0", "no number"),
    (f"1 1 2 3 0 brk {2**31}", "no number"), ("1 1 2 3 0 brk 0 x", "no number"), ("1 1 2 3 3 brk 0", "retry flag"),
    ("1 1 2 3 0  0", "no broker"), ("1 " * LENGTH_MAX, "characters")])
def test_what_is_no_receipt_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(HeaderError, match=words):
        Receipt.decode_front(text)
    with pytest.raises(HeaderError, match=words) as refused:
        Receipt.decode(text)
    assert refused.value.field == "extraInfo"
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(("topic", "flag"), [
    ("T1", 0), ("%RETRY%G_T", 1), ("%RETRY%G+T", 2), ("%RETRY%G", 1), ("a+b", 0)])
def test_a_topic_has_its_flag(topic: str, flag: int) -> None:
    assert receipts.retry_flag(topic) == flag


def test_what_an_answer_says_is_as_java_prints_it() -> None:
    assert receipts.starts([((0, 0), 10), ((1, 0), 7)]) == "0 0 10;1 0 7"
    assert receipts.offsets([((0, 0), [10, 12])]) == "0 0 10,12"
    assert receipts.order_counts([((0, 0), {10: 1}, 0)]) == "0 qo0%10 1;0 0 0"
    assert receipts.order_counts([((0, 0), {11: 1, 13: 1}, 0)]) == "0 qo0%11 1;0 qo0%13 1;0 0 0"
    assert receipts.order_counts([((0, 0), {}, 0)]) == "0 0 0"


def test_counts_of_messages_in_order() -> None:
    found = receipts.read_order_counts("0 qo0%11 1;0 qo0%13 2;0 0 0;0 1 3")
    assert [found.of(0, 0, offset) for offset in (11, 13, 14)] == [1, 2, 0]
    assert found.of(0, 1, 5) == 3
    assert found.of(2, 7, 5) == 0


@given(st.dictionaries(PLACES, LONGS, max_size=8))
def test_starts_there_and_back(found: dict[tuple[int, int], int]) -> None:
    assert receipts.read_starts(receipts.starts(found.items())) == found


@given(st.dictionaries(PLACES, st.lists(LONGS, min_size=1, max_size=32), max_size=8))
def test_offsets_there_and_back(found: dict[tuple[int, int], list[int]]) -> None:
    assert receipts.read_offsets(receipts.offsets(found.items())) == found


@given(st.dictionaries(PLACES, st.tuples(st.dictionaries(LONGS, INTS, max_size=4), INTS), max_size=4))
def test_counts_there_and_back(found: dict[tuple[int, int], tuple[dict[int, int], int]]) -> None:
    text = receipts.order_counts((place, counts, least) for place, (counts, least) in found.items())
    read = receipts.read_order_counts(text)
    assert read.by_queue == {place: least for place, (_, least) in found.items()}
    assert read.by_offset == {
        (*place, offset): count for place, (counts, _) in found.items() for offset, count in counts.items()}


@pytest.mark.parametrize("read", [receipts.read_starts, receipts.read_offsets, receipts.read_order_counts])
@pytest.mark.parametrize("text", ["0", "0 0", "0 0 x", "x 0 1", "0 -1 1", "0 0 1;", "0 0 1 2", "0 0 1;" * ITEMS_MAX])
def test_what_says_nothing_is_refused(read: object, text: str) -> None:
    with pytest.raises(HeaderError):
        read(text)  # type: ignore[operator]
