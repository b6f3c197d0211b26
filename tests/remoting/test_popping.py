"""Bodies and headers of POP: as Java prints them, there and back, and what is none."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.bodies.popping import (
    BITS_MAX,
    AckMessage,
    BatchAck,
    BatchAckMessage,
    BatchAckRequest,
    CheckPoint,
    bits_of,
)
from remoting.errors import BodyError
from remoting.headers.popping import AckMessageRequest, PopMessageRequest, PopMessageResponse

CHECKPOINT = CheckPoint(100, 1_700_000_000_000, 60_000, 3, 2, "T1", "G1", diffs=[0, 1, 5], broker_name="brk")
CHECKPOINT_JSON = (
    b'{"bm":0,"bn":"brk","c":"G1","d":[0,1,5],"it":60000,"n":3,"pt":1700000000000,"q":2,"reviveTime":1700000060000,'
    b'"ro":0,"so":100,"sp":false,"t":"T1"}')
ACK = AckMessage(101, 100, "G1", "T1", 2, 1_700_000_000_000, "brk")
ACK_JSON = b'{"ao":101,"bn":"brk","c":"G1","pt":1700000000000,"q":2,"so":100,"t":"T1"}'
BATCH_JSON = b'{"ao":-1,"aol":[101,105],"bn":"brk","c":"G1","pt":1700000000000,"q":2,"so":100,"t":"T1"}'
REQUEST_JSON = (
    b'{"acks":[{"b":"AQI=","c":"G1","it":60000,"pt":1700000000000,"q":2,"r":"0","rq":3,"so":100,"t":"T1"}],'
    b'"brokerName":"brk"}')


def test_a_checkpoint_is_as_java_prints_it() -> None:
    assert CHECKPOINT.to_json() == CHECKPOINT_JSON
    assert CheckPoint.from_json(CHECKPOINT_JSON) == CHECKPOINT
    again = attrs.evolve(CHECKPOINT, re_puts="2", suspend=True)
    assert again.to_json() == CHECKPOINT_JSON.replace(b'"ro":0,', b'"ro":0,"rp":"2",').replace(b"false", b"true")
    assert CheckPoint.from_json(again.to_json()) == again


def test_a_checkpoint_of_an_older_broker() -> None:
    old = CheckPoint.from_json(b'{"bm":0,"c":"G1","it":60000,"n":3,"pt":17,"q":2,"ro":0,"so":100,"t":"T1"}')
    old.check()
    assert old.offsets == [100, 101, 102]
    assert not old.suspend


def test_what_a_checkpoint_stands_for() -> None:
    CHECKPOINT.check()
    assert CHECKPOINT.offsets == [100, 101, 105]
    assert CHECKPOINT.end == 106
    assert CHECKPOINT.revive_time_ms == 1_700_000_060_000
    assert CHECKPOINT.key == ACK.key == ("T1", "G1", 2, 100, 1_700_000_000_000, "brk")
    none = attrs.evolve(CHECKPOINT, count=0, diffs=[])
    none.check()
    assert none.end == 100


@pytest.mark.parametrize("change", [
    {"start_offset": -1}, {"pop_time_ms": -1}, {"invisible_ms": -1}, {"queue_id": -1}, {"revive_offset": -1},
    {"count": -1}, {"count": 128}, {"count": 2}, {"diffs": [0, 5, 1]}, {"diffs": [0, 1, 1]}, {"diffs": [-1, 0, 1]},
    {"group": "G\x02a\x01b"}, {"topic": "T\x01"}, {"group": "x" * 256}, {"broker_name": "x" * 256}])
def test_a_checkpoint_that_nobody_gives_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(BodyError, match="a checkpoint"):
        attrs.evolve(CHECKPOINT, **change).check()  # type: ignore[arg-type]


def test_acknowledgements_are_as_java_prints_them() -> None:
    assert ACK.to_json() == ACK_JSON
    assert AckMessage.from_json(ACK_JSON) == ACK
    assert ACK.acked == [101]
    batch = BatchAckMessage([101, 105], 100, "G1", "T1", 2, 1_700_000_000_000, "brk")
    assert batch.to_json() == BATCH_JSON
    assert BatchAckMessage.from_json(BATCH_JSON) == batch
    assert batch.acked == [101, 105]
    assert batch.key == CHECKPOINT.key


def test_a_request_for_many_is_as_java_prints_it() -> None:
    entry = BatchAck("G1", "T1", 100, 2, 3, 1_700_000_000_000, 60_000, bits_of([0, 9]))
    assert BatchAckRequest("brk", [entry]).to_json() == REQUEST_JSON
    assert BatchAckRequest.from_json(REQUEST_JSON) == BatchAckRequest("brk", [entry])
    assert entry.offsets == [100, 109]


def test_long_names_of_an_entry_are_read() -> None:
    short = json.loads(REQUEST_JSON)["acks"][0]
    names = {"c": "consumerGroup", "t": "topic", "r": "retry", "so": "startOffset", "q": "queueId",
             "rq": "reviveQueueId", "pt": "popTime", "it": "invisibleTime", "b": "bitSet"}
    assert BatchAck.from_plain({names[name]: value for name, value in short.items()}) == BatchAck.from_plain(short)


@given(st.sets(st.integers(0, 2_000), max_size=64))
def test_sets_of_bits_there_and_back(numbers: set[int]) -> None:
    entry = BatchAck("G1", "T1", 7, 2, 3, 1, 1, bits_of(numbers))
    assert entry.offsets == sorted(7 + number for number in numbers)


@pytest.mark.parametrize("bits", ["A", "AQI", "A*I=", "é", "AQI=\n", bits_of(range(BITS_MAX + 1)), "A" * 200_000])
def test_what_is_no_set_of_bits_is_refused(bits: str) -> None:
    with pytest.raises(BodyError):
        BatchAck("G1", "T1", 7, 2, 3, 1, 1, bits).offsets  # noqa: B018


def test_headers_have_the_names_of_java() -> None:
    asked = PopMessageRequest("G1", "T1", -1, 32, 60_000, 15_000, 17, 1, "TAG", "a", False)
    assert asked.to_ext() == {
        "consumerGroup": "G1", "topic": "T1", "queueId": "-1", "maxMsgNums": "32", "invisibleTime": "60000",
        "pollTime": "15000", "bornTime": "17", "initMode": "1", "expType": "TAG", "exp": "a", "order": "false"}
    assert PopMessageResponse(1, 2, 3, 4, "0 0 10", "0 0 10").to_ext() == {
        "popTime": "1", "invisibleTime": "2", "reviveQid": "3", "restNum": "4", "startOffsetInfo": "0 0 10",
        "msgOffsetInfo": "0 0 10"}
    assert AckMessageRequest("G1", "T1", 0, "x", 5).to_ext() == {
        "consumerGroup": "G1", "topic": "T1", "queueId": "0", "extraInfo": "x", "offset": "5"}
