"""Records byte for byte beside Java's, and every way of being no record."""

from __future__ import annotations

import contextlib
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import record as codec
from remoting.errors import DamagedRecord, MessageIllegal
from remoting.record import Message

GOLDEN = {line["what"]: bytes.fromhex(line["record"]) for line in map(
    json.loads, (Path(__file__).parent / "golden_records" / "records.ndjson").read_text().splitlines())}

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
messages = st.builds(
    Message, topic=st.binary(min_size=1, max_size=300), body=st.binary(max_size=200), queue_id=int32s,
    properties=st.binary(max_size=300), flag=int32s, sys_flag=int32s, born_time_ms=int64s, born_host=hosts,
    store_host=hosts, reconsume_times=int32s, prepared_offset=int64s)


@pytest.mark.parametrize("what", GOLDEN)
def test_java_records_come_out_of_our_encoder_again(what: str) -> None:
    raw = GOLDEN[what]
    record = codec.decode(raw)
    assert record.size == len(raw)
    assert codec.encode(record.message, record.queue_offset, record.offset, record.store_time_ms) == raw


def test_what_java_wrote_reads_as_what_was_sent() -> None:
    tagged = codec.decode(GOLDEN["tagged with UTF-8"])
    properties = codec.decode_properties(tagged.message.properties)
    assert (tagged.message.topic, tagged.message.flag) == (b"Orders", 7)
    assert tagged.message.body.decode() == "tagged é世"
    assert (properties["TAGS"], properties["KEYS"], properties["colour"]) == ("TagA", "k1 k2", "blüe")
    assert codec.property_of(tagged.message.properties, b"KEYS") == b"k1 k2"
    compressed = codec.decode(GOLDEN["compressed body"]).message
    assert compressed.sys_flag & codec.COMPRESSED and zlib.decompress(compressed.body) == bytes(6000)
    delayed = codec.decode(GOLDEN["delayed, level 1"])
    assert delayed.message.topic == b"SCHEDULE_TOPIC_XXXX"
    assert [codec.decode(GOLDEN[f"batch {n} of 3"]).queue_offset for n in (1, 2, 3)] == [0, 1, 2]
    both = codec.decode(GOLDEN["both hosts IPv6"]).message
    assert codec.unpacked_host(both.born_host) == ("fe80::1", 4321)
    assert codec.unpacked_host(both.store_host) == ("2001:db8::5", 10911)
    assert codec.packed_host("2001:db8::5", 10911) == both.store_host
    assert (both.reconsume_times, both.prepared_offset, both.born_time_ms) == (2, 77, 1700000000123)
    assert len(codec.decode(GOLDEN["long topic"]).message.topic) == 150


def test_message_id_as_java_printed_it() -> None:
    assert codec.decode(GOLDEN["tagged with UTF-8"]).message_id == "7F0000010000854900000000000000F5"
    assert codec.parse_message_id("7F0000010000854900000000000000F5") == (codec.packed_host("127.0.0.1", 34121), 0xF5)
    for wrong in ("", "7F", "G" * 32, " " * 32, "0" * 40):
        with pytest.raises(MessageIllegal, match="no message id"):
            codec.parse_message_id(wrong)


@given(messages, int64s, int64s, int64s)
def test_round_trip(message: Message, queue_offset: int, offset: int, store_time_ms: int) -> None:
    raw = codec.encode(message, queue_offset, offset, store_time_ms)
    record = codec.decode(raw)
    assert (record.queue_offset, record.offset, record.store_time_ms, record.size) == (
        queue_offset, offset, store_time_ms, len(raw))
    message.sys_flag = record.message.sys_flag  # the bits for IPv6 follow the hosts
    assert record.message == message
    assert codec.encode(record.message, queue_offset, offset, store_time_ms) == raw
    assert [found.size for found in codec.decode_all(raw + raw)] == [len(raw)] * 2


@pytest.mark.parametrize("what", ["plain", "both hosts IPv6", "long topic"])
def test_no_cut_and_no_flipped_body_is_a_record(what: str) -> None:
    raw = GOLDEN[what]
    for end in range(len(raw)):
        with pytest.raises(DamagedRecord):
            codec.decode(raw[:end])
    body = codec.decode(raw).message.body
    for at in range(raw.index(body), raw.index(body) + len(body)):
        with pytest.raises(DamagedRecord, match="CRC"):
            codec.decode(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])


@given(st.data())
def test_any_bytes_are_a_record_or_damage(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(sorted(GOLDEN.values()))))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        record = codec.decode(bytes(raw))
    except DamagedRecord:
        return
    assert record.size == len(raw)


def test_limits_are_errors_in_words() -> None:
    ok = Message(b"t", b"")
    for wrong, words in (
        (Message(b"", b""), "topic of 0 bytes"),
        (Message(b"t", bytes((64 << 20) + 1)), "body of 67108865 bytes; 67108864"),
        (Message(b"t", b"", properties=b"p" * 32_768), "properties of 32768"),
    ):
        with pytest.raises(MessageIllegal, match=words):
            codec.encode(wrong, 0, 0, 0)
    assert codec.decode(codec.encode(ok, 0, 0, 0)).message == ok
    with pytest.raises(MessageIllegal, match="no IP address"):
        codec.packed_host("localhost", 1)


plain_text = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"))


@given(st.dictionaries(plain_text.filter(bool), plain_text, max_size=8))
def test_properties_round_trip(values: dict[str, str]) -> None:
    raw = codec.encode_properties(values)
    read = {key: value for key, value in values.items() if value}
    assert codec.decode_properties(raw) == read, "Java passes over empty ones"
    assert codec.decode_properties(raw[:-1]) == read
    for key, value in values.items():
        assert codec.property_of(raw, key.encode()) == value.encode()


@pytest.mark.parametrize("values", [{"": "v"}, {"a\x01": "v"}, {"a": "v\x02"}, {"a": "x" * 32_767}, {"a": "\ud800"}])
def test_properties_that_no_reader_could_split(values: dict[str, str]) -> None:
    with pytest.raises(MessageIllegal):
        codec.encode_properties(values)


def test_blank() -> None:
    assert codec.blank(100).hex() == "00000064cbd43194"
    assert codec.blank_size(codec.blank(100)) == 100
    assert codec.blank_size(GOLDEN["plain"]) is None


@given(st.lists(st.tuples(int32s, st.binary(max_size=50), st.binary(max_size=50)), min_size=1, max_size=5))
def test_batch_round_trip(inner: list[tuple[int, bytes, bytes]]) -> None:
    raw = codec.encode_batch(inner)
    assert codec.decode_batch(raw) == inner
    whole = set()
    for end in range(1, len(raw)):  # a cut is an error, or falls between two messages
        with contextlib.suppress(MessageIllegal):
            whole.add(len(codec.decode_batch(raw[:end])))
    assert whole == set(range(1, len(inner)))
    with pytest.raises(MessageIllegal, match="more than"):
        codec.decode_batch(raw, count_max=len(inner) - 1)
