"""Messages on the wire: properties, ids, compressed bodies, and what is refused before anything is sent."""

from __future__ import annotations

import zlib
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client import Compression, CompressionMissing, Message, MessageIllegal
from broker.client.client import month_of
from broker.client.ids import UniqueIds
from broker.client.message import Encoded, Received, encode, properties_of
from remoting import record as codec
from remoting.bodies.consumers import MessageQueue
from remoting.compression import flag_of

MIB = 1 << 20
MONTH_MS = 31 * 86_400_000


# --- properties ----------------------------------------------------------------------------------------------


def test_everything_a_user_says_is_in_the_properties() -> None:
    message = Message("orders", b"", tag="new", keys=["42", "k"], properties={"colour": "red"}, delay_level=3,
                      wait_stored=False)
    assert codec.decode_properties(properties_of(message, "ID").encode()) == {
        "UNIQ_KEY": "ID", "WAIT": "false", "TAGS": "new", "KEYS": "42 k", "DELAY": "3", "colour": "red"}


@pytest.mark.parametrize(("message", "words"), [
    (Message("", b""), "topic ''"), (Message("a b", b""), "letters"), (Message("a" * 128, b""), "127"),
    (Message("t", b"", tag=""), "tag"), (Message("t", b"", tag="a||b"), "no subscription"),
    (Message("t", b"", tag=" a"), "tag ' a'"), (Message("t", b"", keys="key"), "a list of strings"),
    (Message("t", b"", keys=["a b"]), "separator"), (Message("t", b"", keys=[""]), "separator"),
    (Message("t", b"", flag=1 << 31), "32 bits"), (Message("t", b"", delay_level=-1), "delay_level -1"),
    (Message("t", b"", properties={"TAGS": "x"}), "'TAGS' has a meaning"),
    (Message("t", b"", properties={"a\x01": "x"}), "characters 1 or 2"),
    (Message("t", b"", properties={"a": "x" * 40_000}), "32767"),
])
def test_what_no_broker_would_take_is_refused(message: Message, words: str) -> None:
    with pytest.raises(MessageIllegal, match=words):
        properties_of(message, "ID")


@pytest.mark.parametrize(("wrong", "words"), [
    ({"topic": None}, "topic is NoneType None; str"), ({"topic": ["t"]}, "topic is list"), ({"tag": 5}, "tag is int 5"),
    ({"keys": [1]}, "keys are list"), ({"keys": 7}, "keys are int"), ({"flag": "1"}, "flag is str '1'; int"),
    ({"delay_level": None}, "delay_level is NoneType"), ({"delay": 5}, "delay 5, .*timedelta"),
    ({"deliver_at": "now"}, "deliver_at 'now'.*datetime"), ({"properties": ["a"]}, "properties are list"),
    ({"properties": {"a": 5}}, "property str 'a' is int 5"), ({"properties": {"a": None}}, "is NoneType None"),
    ({"properties": {7: "a"}}, "property int 7"),
])
def test_what_has_another_type_is_refused_in_words(wrong: dict[str, Any], words: str) -> None:
    """It failed somewhere inside, or None was sent as the text "None"."""
    with pytest.raises(MessageIllegal, match=words):
        properties_of(Message(**{"topic": "t", "body": b"b", **wrong}), "ID")


def test_what_is_no_message_is_refused() -> None:
    no_message: Any = "text"
    with pytest.raises(MessageIllegal, match="str 'text' is no Message"):
        properties_of(no_message, "ID")


def test_bodies_above_the_limit_are_refused_and_large_ones_compressed() -> None:
    def encoded(size: int) -> Encoded:
        return encode(Message("t", b"." * size), "ID", 7, compress_from=4_096, compression=Compression.ZLIB, level=5,
                      body_bytes_max=10_000)

    assert (encoded(4_096).body, encoded(4_096).sys_flag) == (b"." * 4_096, 0)
    large = encoded(4_097)
    assert zlib.decompress(large.body) == b"." * 4_097 and large.sys_flag == 0x301, "as Java flags it"
    with pytest.raises(MessageIllegal, match="10001 bytes; 10000"):
        encoded(10_001)


def test_a_body_that_compressing_makes_larger_stays_as_it_is() -> None:
    body = Random(1).randbytes(10_000)
    found = encode(Message("t", body), "ID", 7, compress_from=4_096, compression=Compression.ZLIB, level=5,
                   body_bytes_max=10_000)
    assert (found.body, found.sys_flag) == (body, 0)


def test_a_body_that_is_text_is_refused_in_words() -> None:
    message = Message("t", "text")  # type: ignore[arg-type]
    with pytest.raises(MessageIllegal, match="body is str; bytes are needed"):
        encode(message, "ID", 7, compress_from=4_096, compression=Compression.ZLIB, level=5, body_bytes_max=10_000)


# --- ids -----------------------------------------------------------------------------------------------------


def test_an_id_is_made_like_java_s_and_says_where_and_when() -> None:
    ids = UniqueIds("10.1.2.3", 0x12345, 0xCAFEBABE, lambda now_ms: (1_000, 1_000 + MONTH_MS))
    assert ids.next(1_255) == "0A010203" "2345" "CAFEBABE" "000000FF" "0001"
    assert ids.next(1_255).endswith("0002")
    assert len(UniqueIds("::1", 1, 1, lambda now_ms: (0, MONTH_MS)).next(5)) == 56


@given(st.lists(st.integers(0, 3 * MONTH_MS), max_size=50))
def test_ids_are_unique_over_months(times: list[int]) -> None:
    ids = UniqueIds("127.0.0.1", 1, 1, month_of)
    made = [ids.next(at) for at in sorted(times)]
    assert len(set(made)) == len(made)


def test_months_begin_and_end() -> None:
    january = 1_767_225_600_000  # 2026-01-01T00:00Z
    assert month_of(january) == month_of(january + MONTH_MS - 1) == (january, january + MONTH_MS)
    assert month_of(january - 1) == (january - MONTH_MS, january), "December"


# --- compression ---------------------------------------------------------------------------------------------


def test_a_body_that_cannot_be_read_is_told_in_the_client_s_own_types(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("remoting.compression.import_module", missing)
    words = r"lz4.*quorate\[client-compression\]"
    with pytest.raises(CompressionMissing, match=words) as caught:
        _ = received(body=b"x", sys_flag=flag_of(Compression.LZ4)).body
    assert caught.value.library == "lz4"
    with pytest.raises(CompressionMissing, match=words):
        encode(Message("t", b"x" * 9), "1", 0, compress_from=1, compression=Compression.LZ4, level=5, body_bytes_max=99)
    with pytest.raises(MessageIllegal, match="cannot be expanded"):
        _ = received(body=b"no such thing", sys_flag=flag_of(Compression.ZLIB)).body


# --- received ------------------------------------------------------------------------------------------------


def received(topic: str = "orders", body: bytes = b"b", sys_flag: int = 0, **properties: str) -> Received:
    raw = codec.encode(codec.Message(
        topic.encode(), body, 3, codec.encode_properties(properties), sys_flag=sys_flag, born_time_ms=5), 11, 22, 33)
    return Received(codec.decode(raw), MessageQueue(topic, "a", 3), MIB)


def test_a_received_message_says_what_its_record_says() -> None:
    message = received(TAGS="new", KEYS="1 2", UNIQ_KEY="ID", colour="red")
    assert (message.topic, message.body, message.tag, message.keys) == ("orders", b"b", "new", ["1", "2"])
    assert (message.message_id, message.queue_offset, message.born_time_ms, message.store_time_ms) == ("ID", 11, 5, 33)
    assert message.properties["colour"] == "red" and message.born_host == ("127.0.0.1", 0)
    assert received().message_id == received().offset_message_id == "7F00000100000000" + f"{22:016X}"


def test_a_repeated_delivery_shows_the_topic_it_was_sent_to() -> None:
    assert received("%RETRY%group", RETRY_TOPIC="orders").topic == "orders"
    assert received("%RETRY%group").topic == "%RETRY%group"
    assert received("orders", RETRY_TOPIC="other").topic == "orders"


def test_a_compressed_body_is_expanded_when_it_is_asked_for() -> None:
    assert received(body=zlib.compress(b"hello"), sys_flag=0x301).body == b"hello"
    broken = received(body=b"?", sys_flag=0x301)
    assert broken.tag is None
    with pytest.raises(MessageIllegal):
        assert broken.body
