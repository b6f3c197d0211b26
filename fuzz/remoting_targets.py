"""Fuzz targets of remoting's decoders, under the promises that ``fuzz.targets`` states.

The first byte of an input chooses how the rest is used: as it is, or as the part of something whole that only the
decoder behind looks at. Knows codecs; opens no socket.
"""

from __future__ import annotations

import json
import re
import struct
import typing
import zlib
from contextlib import suppress
from typing import Any, Final

import cbor2
import orjson

from broker.store import tables
from fuzz import sealing
from fuzz.target import Target
from remoting import bodies, fastjson, properties
from remoting.bodies import consumers as of_consumers
from remoting.bodies import queries as of_queries
from remoting.bodies import topics as of_topics
from remoting.body import Body
from remoting.codes import Language
from remoting.command import Command, Encoding
from remoting.errors import BodyError, FrameError, HeaderError
from remoting.fields import described, int_range
from remoting.frame import FrameLimits, FrameReader, encode
from remoting.header import Header
from remoting.headers import broker, consumers, controller, namesrv, popping, pulling, queries, sending, topics

LIMITS: Final = FrameLimits(frame_bytes_max=1 << 16, header_bytes_max=1 << 12, ext_count_max=20)

# --- frames --------------------------------------------------------------------------------------------------

_HEADER: Final = {
    "code": 105, "extFields": {"topic": "t", "n": "1"}, "flag": 1, "language": "JAVA", "opaque": 7, "remark": "r",
    "serializeTypeCurrentRPC": "JSON", "version": 401,
}


def _framed(header: bytes, encoding: int, body: bytes = b"xy") -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), encoding << 24 | len(header)) + header + body


def _fed(pieces: list[bytes]) -> tuple[list[Command], str | None]:
    reader, got = FrameReader(LIMITS), []
    try:
        for piece in pieces:
            for command in reader.feed(piece):
                got.append(command)  # noqa: PERF402  # what came before an error counts
    except FrameError as error:
        return got, error.reason
    assert reader.unfinished_bytes <= sum(map(len, pieces))
    return got, None


def check_remoting_frame(data: bytes) -> None:
    mode, raw = data[0] if data else 0, data[1:]
    if mode >= 0xC0:
        raw = _framed(_json_like(raw, _HEADER), 0)
    elif mode >= 0x80:
        raw = _framed(raw[:4_096], 1)
    elif mode >= 0x40:
        raw = _framed(raw[:4_096], 0)
    got, error = _fed([raw])
    cut = len(raw) * mode >> 8
    assert _fed([raw[:cut], raw[cut:]]) == (got, error)
    if len(raw) <= 128:
        assert _fed([bytes([byte]) for byte in raw]) == (got, error)
    for command in got:
        assert _fed([encode(command)]) == ([command], None)


def _frames() -> list[bytes]:
    one = Command(1004, 7, 0, {"brokerName": "b", "x": ""}, b"\1\2", "why", Language.JAVA, 513)
    two = Command(1004, 7, 1, {"é": "中"}, encoding=Encoding.ROCKETMQ)
    binary = encode(two)
    return [
        b"\x01" + encode(one) + binary, b"\x33" + binary * 2, b"\x80" + binary[8:], b"\x40" + encode(one)[8:],
        b"\xc0" + bytes(30), b"\xf0" + bytes(30),
    ]


# --- JSON ----------------------------------------------------------------------------------------------------


def _json_like(data: bytes, template: object) -> bytes:
    """JSON much like ``template``; see ``sealing.shaped``."""
    return json.dumps(cbor2.loads(sealing.shaped(data, template)), skipkeys=True, default=repr).encode()


_TOKENS: Final = [
    b"{", b"}", b"[", b"]", b":", b",", b'"a"', b"'b'", b'"', b"'", b"\\", b"1", b"-", b".5", b"e9", b"true", b"null",
    b"key", b" ", b"\\u0041", b'{"$ref":"$.a"}', b'{"$ref":"$.a[0]"}', b'"$ref"', b'"$.b"', b"{1:", b"{{", b"}:",
    b'{"a":', b"[[", b"]]", b",}", b"\xc3\xa9",
]
_LONG_NUMBER: Final = re.compile(rb"[0-9.eE+-]{16,}|[eE]")


def check_remoting_json(data: bytes) -> None:
    raw = data[1:]
    if data[:1] >= b"\x80":
        raw = b"".join(_TOKENS[byte % len(_TOKENS)] for byte in raw)
    try:
        value = fastjson.loads(raw)
    except BodyError:
        value = _Refused
    _check_parsers_agree(raw)
    if value is _Refused:
        return
    try:
        text = fastjson.dumps(value)
    except BodyError:  # integers beyond 64 bits
        assert _LONG_NUMBER.search(raw)
        return
    assert fastjson.dumps(fastjson.loads(text)) == text
    assert fastjson.loads(fastjson.dumps(value, ascii_only=True)) == fastjson.loads(text)


class _Refused:
    pass


def _check_parsers_agree(raw: bytes) -> None:
    """What is strict JSON means the same to the tolerant parser; long numbers alone are exact there."""
    try:
        strict = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return
    if not _LONG_NUMBER.search(raw):
        assert fastjson._Parser(raw.decode()).whole() == strict


def _json_texts() -> list[bytes]:
    texts = [
        b'{"brokerAddrs":{1:"h:1",2:"i"},"a":[{"x":1},{"$ref":"$.a[0]"}]}', b"{a:'b\\'c',\"d\":[1,2.5e3,],}",
        b'{"t":{{"topic":"t","queueId":0}:5},"u":"\\ud83d\\ude00"}', b'["\\u00e9",true,null,-1]',
    ]
    return [*(b"\0" + text for text in texts), b"\x80" + bytes(range(32)), b"\xff" + bytes([27, 28, 11, 5, 11, 29, 1])]


# --- bodies --------------------------------------------------------------------------------------------------

_MEMBERS: Final = bodies.BrokerMemberGroup("c", "b", {0: "h:1", 2: "h:2"})
_REPLICA: Final = bodies.ReplicaIdentity("b", 1, "h:1", True)
_MAPPING: Final = bodies.TopicQueueMappingInfo("T", "s", 4, "b", 1, False, {0: 1})
_REGISTRATION: Final = bodies.RegisterBrokerBody(
    bodies.TopicConfigSerializeWrapper(
        {"T": bodies.TopicConfig("T", attributes={"+a": "b"})}, bodies.DataVersion(1, 2, 3), {"T": _MAPPING}
    ), ["f:1"],
)
_BODIES: Final[list[Body]] = [
    bodies.SyncStateSet(frozenset({1, 2}), 5), bodies.GetBrokerMemberGroupResponseBody(_MEMBERS),
    bodies.ElectMasterResponseBody(frozenset({1}), _MEMBERS),
    bodies.BrokerReplicasInfo({"b": bodies.ReplicasInfo(1, "h:1", 2, 3, [_REPLICA], [_REPLICA])}),
    bodies.EpochEntryCache("c", "b", 0, [bodies.EpochEntry(1, 2, 3)], 9), _REGISTRATION,
    bodies.TopicRouteData(
        [bodies.QueueData("b", 1, 2, 6, 0)], [bodies.BrokerData("b", "c", {0: "h:1"}, True, "z")], {"h:1": ["f"]}, "o",
        {"b": _MAPPING},
    ),
    bodies.ClusterInfo({"b": bodies.BrokerData("b")}, {"c": ["b"]}), bodies.KVTable({"k": "v"}),
    bodies.TopicList(["t"], "h:1"), bodies.DataVersion(1, 2, 3),
    bodies.HARuntimeInfo(
        True, 1, 2, [bodies.HAConnectionRuntimeInfo("h:1")], bodies.HAClientRuntimeInfo("h:1", is_activated=True)
    ),
]


def _example(cls: type[Body]) -> Body:
    """With a value in each field."""
    return cls(**{field.attribute: _value(field.hint) for field in described(cls)})


def _value(hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is dict:
        return {_value(arguments[0]): _value(arguments[1])}
    if origin in (list, frozenset):
        return origin([_value(arguments[0])])
    if isinstance(hint, type) and issubclass(hint, Body):
        return _example(hint)
    if hint in (str, bool, float, Any):
        return {str: "s", bool: True, float: 1.5}.get(hint, {"a": [1]})
    return int_range(hint)[1] >> 1


def _all_bodies() -> list[Body]:
    """Of the modules whose bodies are not among those above one by one, and of the store's tables."""
    modules = (of_consumers, of_queries, of_topics, tables)
    return [_example(cls) for module in modules for cls in vars(module).values()
            if isinstance(cls, type) and issubclass(cls, Body) and cls.__module__ == module.__name__]


_BODIES.extend(_all_bodies())
assert len(_BODIES) < 128


def check_remoting_bodies(data: bytes) -> None:
    example = _BODIES[(data[0] & 0x7F if data else 0) % len(_BODIES)]
    raw = data[1:]
    if data[:1] >= b"\x80":
        with suppress(cbor2.CBOREncodeError):  # what has objects for keys is no CBOR
            raw = _json_like(raw, example.to_plain())
    try:
        found = type(example).from_json(raw)
    except BodyError:
        return
    try:
        again = found.to_json()
    except BodyError:  # what is passed on as it is may hold integers beyond 64 bits
        assert _LONG_NUMBER.search(raw)
        return
    assert type(example).from_json(again).to_json() == again


def _body_seeds() -> list[bytes]:
    plain = [bytes([number]) + example.to_json() for number, example in enumerate(_BODIES)]
    return [*plain, *(bytes([0x80 + number]) + bytes(40) for number in range(len(_BODIES)))]


def check_remoting_registration(data: bytes) -> None:
    raw = data[1:] if data[:1] < b"\x80" else zlib.compress(data[1:], 1)
    try:
        found = bodies.RegisterBrokerBody.decode(raw, compressed=True, bytes_max=1 << 16)
    except BodyError:
        return
    try:
        again = found.encode(compressed=True)
    except BodyError:  # a space that was escaped in an attribute
        assert any(" " in text for topic in found.topic_config_serialize_wrapper.topic_config_table.values()
                   for text in (*topic.attributes, *topic.attributes.values()))
        return
    assert bodies.RegisterBrokerBody.decode(again, compressed=True) == found


def _registrations() -> list[bytes]:
    packed = _REGISTRATION.encode(compressed=True)
    return [b"\0" + packed, b"\x80" + zlib.decompress(packed)]


# --- headers and properties ----------------------------------------------------------------------------------


def _headers() -> list[type[Header]]:
    return sorted(
        (cls for module in (broker, consumers, controller, namesrv, popping, pulling, queries, sending, topics)
         for cls in vars(module).values()
         if isinstance(cls, type) and issubclass(cls, Header) and cls is not Header),
        key=lambda cls: cls.__qualname__,
    )


_HEADERS: Final = _headers()


def check_remoting_headers(data: bytes) -> None:
    """Values separated by 0, of the header's fields in their order."""
    cls = _HEADERS[(data[0] if data else 0) % len(_HEADERS)]
    names = [wire for _, wire, _, _ in cls._fields]
    values = data[1:].decode(errors="replace").split("\0")
    ext = {name: value for name, value in zip(names, values, strict=False) if value != "-"}
    try:
        found = cls.from_ext(ext)
    except HeaderError as error:
        faulty = error.field
    else:
        assert cls.from_ext(found.to_ext()) == found
        return
    assert faulty in names


def _header_seeds() -> list[bytes]:
    return [bytes([number]) + b"\0".join([b"1"] * len(cls._fields)) for number, cls in enumerate(_HEADERS)]


def check_remoting_properties(data: bytes) -> None:
    try:
        found = properties.parse(data.decode(errors="replace"))
    except ValueError:
        return
    text = properties.encode(found)
    assert properties.parse(text) == found and properties.encode(properties.parse(text)) == text


def _property_seeds() -> list[bytes]:
    return [b"a=b\nc : d\\\n  e\n# f\n\\u00e9\\==\\ x\\ \n", b"! x\rk v\r\n=\n\\\n", b"a=\\ud83d\\ude00\n\tb\f=c  "]


REMOTING_TARGETS: Final[dict[str, Target]] = {
    "remoting-frame": Target("remoting.frame.FrameReader", check_remoting_frame, _frames, 256),
    "remoting-json": Target("remoting.fastjson.loads", check_remoting_json, _json_texts, 512),
    "remoting-bodies": Target("from_json of remoting.bodies", check_remoting_bodies, _body_seeds, 384),
    "remoting-registration": Target("RegisterBrokerBody.decode", check_remoting_registration, _registrations),
    "remoting-headers": Target("from_ext of remoting.headers", check_remoting_headers, _header_seeds, 256),
    "remoting-properties": Target("remoting.properties.parse", check_remoting_properties, _property_seeds, 256),
}
