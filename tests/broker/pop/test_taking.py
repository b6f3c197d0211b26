"""Which queues a POP looks at, and what its answer says of them."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from broker.pop import taking
from broker.pop.taking import Haul, RetryNames, Visit, queue_offsets, told, visits
from remoting.receipts import Receipt
from remoting.record import PROPERTIES_BYTES_MAX, Message, decode, decode_properties, encode

RECEIPT = Receipt(100, 1_700_000_000_000, 60_000, 3, 1, "brk", 0)
RETRY = ("%RETRY%G1_T1", 1, 1)


def stored(offset: int, properties: bytes = b"A\x01b\x02", topic: str = "%RETRY%G1_T1") -> bytes:
    return encode(Message(topic.encode(), b"x%d" % offset, 0, properties), offset, 1_000 + offset, 17)


def test_names_of_retry_topics_that_are_read() -> None:
    assert RetryNames().readable("T", "G") == [("%RETRY%G_T", 1)]
    assert RetryNames(v2=True).readable("T", "G") == [("%RETRY%G+T", 2), ("%RETRY%G_T", 1)]
    assert RetryNames(v2=True, v1_too=False).readable("T", "G") == [("%RETRY%G+T", 2)]


def test_queues_are_looked_at_in_turn() -> None:
    assert [each.queue_id for each in visits("T", 4, -1, None, 0, retry_first=False)] == [3, 2, 1, 0]
    assert [each.queue_id for each in visits("T", 4, -1, None, 6, retry_first=False)] == [1, 0, 3, 2]
    assert visits("T", 4, 2, RETRY, 0, retry_first=False) == [Visit("T", 0, 2), Visit("%RETRY%G1_T1", 1, 0)]
    assert visits("T", 4, 2, RETRY, 0, retry_first=True)[0].flag == 1
    for chance, wanted in ((0, [0, 1, 2, 3]), (6, [2, 3, 0, 1])):
        found = visits("T", 4, -1, None, chance, retry_first=False, last_first=False)
        assert [each.queue_id for each in found] == wanted


@given(st.integers(1, 40), st.integers(-1, 39), st.integers(0, 99), st.booleans(), st.integers(1, 9))
def test_no_place_comes_twice(queues: int, queue: int, chance: int, first: bool, retries: int) -> None:
    found = visits("T", queues, queue, ("%RETRY%G_T", 1, retries), chance, retry_first=first)
    assert len({(each.flag, each.queue_id) for each in found}) == len(found), "a client could not tell them apart"
    assert len(found) == (queues if queue < 0 else 1) + retries


def test_an_answer_says_where_its_messages_stand() -> None:
    hauls = [Haul(Visit("T1", 0, 0), 10, [10, 12], 20, b""), Haul(Visit("%RETRY%G1_T1", 1, 0), 5, [7], 8, b"")]
    assert told(hauls) == ("0 0 10;1 0 7", "0 0 10,12;1 0 7")
    assert [haul.end for haul in hauls] == [13, 8]


def test_records_know_their_places() -> None:
    assert queue_offsets(b"") == []
    assert queue_offsets(stored(5) + stored(9, b"") + stored(2**40)) == [5, 9, 2**40]


def test_what_comes_back_is_of_the_topic_and_bears_its_receipt() -> None:
    haul = Haul(Visit("%RETRY%G1_T1", 1, 0), 100, [100, 105], 106, stored(100) + stored(105, b"A\x01b"))
    found, at = [], 0
    data = taking.given(haul, "T1", RECEIPT)
    while at < len(data):
        found.append(decode(data, at))
        at += found[-1].size
    assert [each.message.topic for each in found] == [b"T1", b"T1"]
    assert [(each.queue_offset, each.offset, each.store_time_ms) for each in found] == [
        (100, 1_100, 17), (105, 1_105, 17)]
    values = [decode_properties(each.message.properties) for each in found]
    assert [each["POP_CK"] for each in values] == [
        "100 1700000000000 60000 3 1 brk 0 100", "100 1700000000000 60000 3 1 brk 0 105"]
    assert [each["A"] for each in values] == ["b", "b"]


def test_a_receipt_that_is_there_stays() -> None:
    haul = Haul(Visit("%RETRY%G1_T1", 1, 0), 100, [100], 101, stored(100, b"POP_CK\x01mine\x02"))
    assert decode(taking.given(haul, "T1", RECEIPT)).message.properties == b"POP_CK\x01mine\x02"


def test_one_without_room_for_a_receipt_stays_as_it_is() -> None:
    raw = stored(100, b"A\x01" + b"b" * (PROPERTIES_BYTES_MAX - 10) + b"\x02")
    assert taking.given(Haul(Visit("%RETRY%G1_T1", 1, 0), 100, [100], 101, raw), "T1", RECEIPT) == raw


def test_others_are_as_they_stand_in_the_log() -> None:
    haul = Haul(Visit("T1", 0, 0), 100, [100], 101, stored(100, topic="T1"))
    assert taking.given(haul, "T1", attrs.evolve(RECEIPT, retry_flag=0)) == haul.data
