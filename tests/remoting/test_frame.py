"""Frames: bytes as Java writes them, round trips in both encodings in any pieces, and refusals of everything else."""

from __future__ import annotations

import json
import struct
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.codes import Language, RequestCode
from remoting.command import ONEWAY, RESPONSE, Command, Encoding
from remoting.errors import FrameError, NotEncodable
from remoting.frame import FRAME_BYTES_MAX, FrameLimits, FrameReader, encode

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def commands(draw: st.DrawFn) -> Command:
    encoding = draw(st.sampled_from(Encoding))
    small = INT16 if encoding is Encoding.ROCKETMQ else INT32
    remark = draw(st.none() | TEXT)
    return Command(
        code=draw(small), opaque=draw(INT32), flag=draw(st.sampled_from([0, RESPONSE, ONEWAY, 3]) | INT32),
        ext=draw(st.dictionaries(TEXT, TEXT, max_size=5)), body=draw(st.binary(max_size=40)),
        remark=remark or None if encoding is Encoding.ROCKETMQ else remark,  # it has no empty remark
        language=draw(st.sampled_from(Language)), version=draw(small), encoding=encoding,
    )


def decode(data: bytes, limits: FrameLimits | None = None) -> list[Command]:
    return list(FrameReader(limits or FrameLimits()).feed(data))


def json_frame(header: Any, body: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(raw) + len(body), len(raw)) + raw + body


def binary_frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), 1 << 24 | len(header)) + header + body


# --- bytes of the reference implementation -------------------------------------------------------------------

BINARY = bytes.fromhex(
    "0000002c 01000026 03ec 00 0000 00000007 00000000 00000000 00000011 000a 62726f6b65724e616d65 00000001 62 0102"
)


def test_binary_header_is_javas() -> None:
    command = Command(1004, 7, 0, {"brokerName": "b"}, b"\x01\x02", None, Language.JAVA, 0, Encoding.ROCKETMQ)
    assert encode(command) == BINARY
    assert decode(BINARY) == [command]


def test_json_header_is_javas() -> None:
    header = b'{"code":1005,"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":0}'
    command = Command(RequestCode.CONTROLLER_GET_METADATA_INFO, 7, language=Language.JAVA, version=0)
    assert encode(command) == json_frame(header)
    assert decode(json_frame(header)) == [command]


def test_header_of_a_python_peer() -> None:
    command = Command(0, 3, RESPONSE, {"b": "é", "a": "1"}, b"xyz", "fine")
    assert encode(command)[8:] == (
        '{"code":0,"extFields":{"b":"é","a":"1"},"flag":1,"language":"PYTHON","opaque":3,"remark":"fine",'
        '"serializeTypeCurrentRPC":"JSON","version":513}xyz'
    ).encode()


def test_an_answer_always_has_ext_fields() -> None:
    def fields(flag: int) -> Any:
        return json.loads(encode(Command(1, flag=flag))[8:])

    assert fields(RESPONSE)["extFields"] == {}
    assert "extFields" not in fields(0) and "extFields" not in fields(ONEWAY)


# --- round trips ---------------------------------------------------------------------------------------------


@given(st.lists(commands(), max_size=4), st.data())
def test_commands_come_back_in_any_pieces(sent: list[Command], data: st.DataObject) -> None:
    raw = b"".join(map(encode, sent))
    assert decode(raw) == sent
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    reader = FrameReader()
    got: list[Command] = []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        got += reader.feed(raw[start:end])
    assert got == sent
    assert reader.unfinished_bytes == 0


def test_every_split_of_two_frames() -> None:
    sent = [attrs.evolve(decode(BINARY)[0], opaque=1), Command(5, 2, remark="r", body=b"abc")]
    raw = b"".join(map(encode, sent))
    for cut in range(len(raw) + 1):
        reader = FrameReader()
        first = list(reader.feed(raw[:cut]))
        held = reader.unfinished_bytes
        assert held == cut - sum(len(encode(command)) for command in first)
        assert first + list(reader.feed(raw[cut:])) == sent
    reader = FrameReader()
    assert [command for byte in raw for command in reader.feed(bytes([byte]))] == sent


def test_what_a_stream_gives_may_change_afterwards() -> None:
    received = bytearray(encode(Command(5, 2, body=b"abc")))
    (command,) = FrameReader().feed(received)
    received[:] = bytes(len(received))
    assert type(command.body) is bytes and command.body == b"abc"


def test_commands_not_asked_for_come_with_the_next_call() -> None:
    sent = [Command(1, number, body=b"x" * number) for number in range(5)]
    raw = b"".join(map(encode, sent))
    reader = FrameReader()
    early = reader.feed(raw[:-1])
    assert next(early) == sent[0]
    late = reader.feed(raw[-1:])
    assert next(late) == sent[1]
    assert list(early) == []
    assert list(late) == sent[2:]
    assert reader.unfinished_bytes == 0


# --- what is tolerated ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({}, Command(0, language=Language.JAVA, version=0)),
        ({"code": 1, "unknown": {"x": [1]}, "language": "COBOL"}, Command(1, language=Language.OTHER, version=0)),
        ({"code": "12", "flag": None, "language": 3}, Command(12, language=Language.OTHER, version=0)),
        ({"code": True, "remark": 5}, Command(1, remark="5", language=Language.JAVA, version=0)),
        ({"language": None, "remark": None, "extFields": None}, Command(0, language=Language.OTHER, version=0)),
        (
            {"extFields": {"i": 7, "l": 2**63 - 1, "t": True, "f": False, "d": 1.5, "n": None, "s": "x"}},
            Command(0, ext={"i": "7", "l": str(2**63 - 1), "t": "true", "f": "false", "d": "1.5", "s": "x"},
                    language=Language.JAVA, version=0),
        ),
        (b' { "opaque" : 9 }\n', Command(0, 9, language=Language.JAVA, version=0)),
    ],
)
def test_tolerated_json(header: Any, expected: Command) -> None:
    assert decode(json_frame(header)) == [expected]


def test_a_language_of_the_future_keeps_its_number_in_binary() -> None:
    (command,) = decode(binary_frame(struct.pack(">hBhiiii", 1, 99, 600, 4, 0, 0, 0)))
    assert (command.language, command.version, command.remark, command.ext) == (99, 600, None, {})
    assert b'"language":"OTHER"' in encode(attrs.evolve(command, encoding=Encoding.JSON))


# --- what is refused -----------------------------------------------------------------------------------------

FIXED = struct.pack(">hBhii", 1, 0, 0, 1, 0)
SMALL = FrameLimits(frame_bytes_max=1_000, header_bytes_max=300, ext_count_max=3)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (struct.pack(">ii", 3, 0), "frame length 3"),
        (struct.pack(">ii", -1, 0), "frame length -1"),
        (struct.pack(">ii", 997, 0), "frame of 1001 bytes; 1000"),
        (b"GET / HT", "frame of 1195725860 bytes"),
        (struct.pack(">ii", 100, 97), "header of 97 bytes in a frame that has 96"),
        (struct.pack(">ii", 500, 301), "header of 301 bytes; 300"),
        (struct.pack(">ii", 100, 2 << 24 | 1), "header encoding 2"),
        (struct.pack(">ii", 100, -1), "header encoding 255"),
        (json_frame(b""), "no JSON"),
        (json_frame(b"{"), "no JSON"),
        (json_frame(b'{"a":"\xff"}'), "no JSON"),
        (json_frame(b"[" * 299), "no JSON"),
        (json_frame([1]), "no JSON object"),
        (json_frame({"code": 2**31}), "code is 2147483648"),
        (json_frame({"code": 10**30}), "code is 1e+30"),
        (json_frame({"opaque": 1.5}), "opaque is 1.5"),
        (json_frame({"flag": "x"}), "flag is 'x'"),
        (json_frame({"version": []}), "version is list"),
        (json_frame({"remark": {}}), "'remark' is dict"),
        (json_frame({"extFields": [1]}), "extFields is list"),
        (json_frame({"extFields": "x"}), "extFields is 'x'"),
        (json_frame({"extFields": {"a": {"b": 1}}}), "'a' is dict"),
        (json_frame({"extFields": dict.fromkeys("abcd", "")}), "4 ext fields; 3"),
        (binary_frame(FIXED[:-1]), "middle of a field"),
        (binary_frame(FIXED), "middle of a field"),
        (binary_frame(FIXED + struct.pack(">i", 5) + b"abcd"), "field of 5 bytes"),
        (binary_frame(FIXED + struct.pack(">iii", -1, 0, 0)), "field of -1 bytes"),
        (binary_frame(FIXED + struct.pack(">i", 2) + b"\xff\xfe" + bytes(4)), "not UTF-8"),
        (binary_frame(FIXED + struct.pack(">ii", 0, 1)), "1 bytes where 0 are left"),
        (binary_frame(FIXED + struct.pack(">ii", 0, 0) + b"x"), "0 bytes where 1 are left"),
        (binary_frame(FIXED + struct.pack(">iihi", 0, 6, -1, 0)), "an ext field of -1 and"),
        (binary_frame(FIXED + struct.pack(">iihi", 0, 6, 0, -1)), "an ext field of 0 and -1"),
        (binary_frame(FIXED + struct.pack(">iihi", 0, 6, 0, 1)), "an ext field of 0 and 1"),
        (binary_frame(FIXED + struct.pack(">iih", 0, 2, 9)), "middle of a field"),
        (binary_frame(FIXED + struct.pack(">ii", 0, 24) + bytes(24)), "more than 3 ext fields"),
    ],
)
def test_refused(raw: bytes, says: str) -> None:
    good = encode(Command(7))
    reader = FrameReader(SMALL)
    got: list[int] = []
    with pytest.raises(FrameError, match=says.replace("(", r"\(").replace("+", r"\+")) as first:
        got.extend(command.code for command in reader.feed(good + raw + good))
    assert got == [7], "what came before the damage is given, what comes after it is not"
    with pytest.raises(FrameError) as again:
        reader.feed(good)
    assert again.value.reason == first.value.reason
    assert reader.unfinished_bytes == 0


def test_a_length_is_refused_before_anything_is_kept() -> None:
    reader = FrameReader(SMALL)
    assert list(reader.feed(b"\x7f\xff\xff")) == []
    assert reader.unfinished_bytes == 3
    with pytest.raises(FrameError):
        list(reader.feed(b"\xff" + bytes(4) + bytes(10_000)))


def test_the_largest_frame_passes_and_no_larger() -> None:
    empty = len(encode(Command(1)))
    largest = Command(1, body=bytes(FRAME_BYTES_MAX - empty))
    raw = encode(largest)
    assert len(raw) == FRAME_BYTES_MAX
    assert decode(raw)[0].body == largest.body
    with pytest.raises(NotEncodable, match="makes a frame of 16777217 bytes; peers take 16777216"):
        encode(attrs.evolve(largest, body=largest.body + b"x"))
    with pytest.raises(NotEncodable, match="peers take 100"):
        encode(Command(1, body=bytes(100)), 100)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (Command(200_050), "code 200050 does not fit the 16 bits"),
        (Command(1, version=40_000), "version 40000 does not fit"),
        (Command(1, opaque=2**31), "a number or the name"),
        (Command(1, ext={"k" * 32_768: "v"}), "the name of an ext field is too large"),
        (Command(1, ext={"k": "\ud800"}), "cannot be UTF-8"),
    ],
)
def test_what_the_binary_header_cannot_carry(command: Command, says: str) -> None:
    with pytest.raises(NotEncodable, match=says):
        encode(attrs.evolve(command, encoding=Encoding.ROCKETMQ))


def test_lone_surrogates_cannot_be_json() -> None:
    with pytest.raises(NotEncodable, match="code 1 cannot be JSON"):
        encode(Command(1, remark="\ud800"))
    assert decode(encode(Command(200_050)))[0].code == 200_050


@given(st.binary(max_size=60), st.sampled_from([json_frame, binary_frame, bytes]))
def test_any_bytes_are_refused_or_decoded(data: bytes, shape: Any) -> None:
    raw = shape(data)
    try:
        got = decode(raw)
    except FrameError:
        return
    for command in got:
        assert decode(encode(command)) == [command]


@pytest.mark.parametrize("field", ["frame_bytes_max", "header_bytes_max", "ext_count_max"])
def test_limits_make_sense(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is 0"):
        FrameLimits(**{field: 0})
