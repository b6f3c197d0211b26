"""Records byte for byte beside Java's, and every way of being no record."""

from __future__ import annotations

import contextlib
import json
import zlib
from pathlib import Path

import attrs
import pytest
from hypothesis import example, given
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


plain = st.builds(Message, topic=st.binary(min_size=1, max_size=4), body=st.binary(max_size=4),
                  properties=st.binary(max_size=4), sys_flag=int32s)
damage = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255)), max_size=3)


def spoilt(raw: bytes, message: Message, changes: list[tuple[int, int]]) -> bytes:
    """``raw`` with other bytes: mostly in the sizes, offset and flags of the first record, which is ``message``."""
    topic_at = 80 + len(message.born_host + message.store_host) - 8 + len(message.body)
    places = [*range(8), *range(28, 40), *range(84, 88), *range(topic_at, len(raw))]
    found = bytearray(raw)
    for place, byte in changes:
        found[places[place % len(places)]] = byte
    return bytes(found)


@given(st.lists(messages | plain, min_size=1, max_size=3), damage, st.integers(0, 9), st.booleans(), st.integers(0, 4))
def test_the_quick_scan_of_a_log_ends_where_the_slow_one_does(
    several: list[Message], changes: list[tuple[int, int]], cut: int, check_crc: bool, most: int,
) -> None:
    """It reads fields of its own, so it could pass what ``outline`` refuses."""
    base, raw = 1000, b""
    for number, message in enumerate(several):
        raw += codec.encode(message, number, base + len(raw), 5)
    raw = spoilt(raw, several[0], changes)[: len(raw) - cut]
    slow, at = list[codec.Outline](), 0
    while len(slow) < most:
        try:
            found = codec.outline(raw, at, check_crc=check_crc)
        except DamagedRecord:
            break
        if found[0] != base + at:
            break
        slow.append(found)
        at += found[1]
    assert codec.outlines(raw, base, 0, most, check_crc=check_crc) == (slow, at)


@given(messages | plain, damage, st.integers(0, 9))
@example(Message(b"t", b"", properties=b"abc"), [(24, 255)], 0)
@example(Message(b"t", b"", properties=b"abc"), [(24, 2)], 0)
def test_properties_read_alone_are_those_of_the_record(
    message: Message, changes: list[tuple[int, int]], cut: int,
) -> None:
    whole = codec.encode(message, 0, 0, 5)
    raw = spoilt(whole, message, changes)[: len(whole) - cut]
    try:
        _, size, *_, wanted = codec.outline(raw, check_crc=False)
    except DamagedRecord:
        with pytest.raises(DamagedRecord):
            codec.properties_begin(raw, 0, len(raw))
    else:
        assert raw[codec.properties_begin(raw, 0, size) : size] == wanted
        for other in (size - 1, size + 1, 0, -1):
            with pytest.raises(DamagedRecord):
                codec.properties_begin(raw, 0, other)


@given(messages, st.lists(st.tuples(int32s, st.binary(max_size=50), st.binary(max_size=50)), max_size=4), int64s)
def test_messages_that_differ_in_parts_are_encoded_as_one_by_one(
    common: Message, parts: list[codec.Part], store_time_ms: int,
) -> None:
    wanted, sizes = b"", []
    for number, (flag, body, properties) in enumerate(parts):
        one = attrs.evolve(common, flag=flag, body=body, properties=properties)
        sizes.append(codec.size_of(one))
        wanted += codec.encode(one, 7 + number, 100 + len(wanted), store_time_ms)
    assert codec.encode_parts(common, parts, sizes, 7, 100, store_time_ms) == wanted


def test_a_key_is_not_found_at_the_end_of_another() -> None:
    raw = codec.encode_properties({"MYKEYS": "1", "KEYS2": "2", "KEYS": "3"})
    assert codec.property_of(raw, b"KEYS") == b"3"
    assert codec.property_of(codec.encode_properties({"MYKEYS": "1"}), b"KEYS") is None
    assert codec.property_of(b"", b"KEYS") is None


@pytest.mark.parametrize(("topic", "good"), [
    (b"t", True), ("\u4e16".encode(), True), (b"", False), (b".", False), (b"..", False), (b"...", True),
    (b"a/b", False), (b"a\\b", False), (b"a\0", False), (b"C:", False), (b"\xff", False)])
def test_no_topic_leads_out_of_its_folder(topic: bytes, good: bool) -> None:
    assert codec.is_folder_name(topic) is good


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
