"""Whatever a peer sends gets an answer or nothing, changes nothing it may not change, and never raises."""

from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.codes import RequestCode, ResponseCode
from remoting.command import RESPONSE, Command
from remoting.errors import FrameError
from remoting.frame import FrameReader, encode
from tests.controller.namesrv.fleet import Fleet, consistent, registration

SERVED = sorted(Fleet().core.codes)
NAMES = (
    "brokerName", "brokerAddr", "clusterName", "brokerId", "haServerAddr", "heartbeatTimeoutMillis", "bodyCrc32",
    "enableActingMaster", "compressed", "topic", "namespace", "key", "value", "cluster", "__ZONE_MODE", "__ZONE_NAME",
    "acceptStandardJsonOnly",
)
VALUES = st.one_of(
    st.sampled_from(["a", "a0:1", "C", "0", "1", "-1", "true", "9" * 19, "9" * 30, "", " ", "0x1", "1.5", "\x00"]),
    st.text(max_size=20), st.integers().map(str))
BODIES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"", b"{}", b"[]", b"null", b"1", b'{"queueDatas":[{}]}', b'{"queueDatas":[{"brokerName":"a"}]}',
                     b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{}}}}', b"a=b", b"supportActingMaster=x",
                     zlib.compress(b"\xff" * 40)]))


def snapshot(fleet: Fleet) -> tuple[object, ...]:
    return fleet.cluster(), fleet.topics(), fleet.route(), fleet.core.kv.encode(), fleet.core.config


@given(code=st.sampled_from(SERVED) | st.integers(-1, 70_000), ext=st.dictionaries(st.sampled_from(NAMES), VALUES),
       body=BODIES, version=st.integers(-1, 1_000))
def test_any_request_is_answered_and_leaves_the_tables_sound(
    code: int, ext: dict[str, str], body: bytes, version: int,
) -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    fleet.register("a", 1)
    answer = fleet.hand_over(Command(code, 7, ext=ext, body=body, version=version))
    assert answer.opaque == 7
    assert answer.flag & RESPONSE
    encode(answer)
    if answer.code:
        assert answer.remark
        consistent(fleet.tables)
    if code not in SERVED:
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@given(ext=st.dictionaries(st.sampled_from(NAMES), VALUES), cut=st.integers(0, 400), flip=st.integers(0, 400))
def test_a_damaged_registration_is_refused_and_changes_nothing(ext: dict[str, str], cut: int, flip: int) -> None:
    fleet = Fleet()
    fleet.register("a", 0)
    before = snapshot(fleet)
    command = registration("b", 0)
    at = flip % len(command.body)
    flipped = command.body[:at] + bytes([command.body[at] ^ 1]) + command.body[at + 1 :]
    command.body = flipped[: len(flipped) - cut]
    if "bodyCrc32" not in ext:
        assert fleet.hand_over(command).code == ResponseCode.SYSTEM_ERROR
        assert snapshot(fleet) == before
    command.ext.update(ext)
    fleet.hand_over(command)


@pytest.mark.parametrize(("field", "value"), [
    ("brokerId", "-1"), ("brokerId", "x"), ("brokerId", "9" * 19), ("brokerId", ""), ("clusterName", ""),
    ("brokerName", ""), ("brokerAddr", ""), ("brokerAddr", "a" * 2_000), ("clusterName", "c" * 2_000),
    ("bodyCrc32", "nonsense"), ("heartbeatTimeoutMillis", "soon"),
])
def test_absurd_header_fields_are_named_in_the_refusal(field: str, value: str) -> None:
    fleet = Fleet()
    command = registration("a", 0)
    command.ext[field] = value
    answer = fleet.hand_over(command)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert field in str(answer.remark)
    assert len(str(answer.remark)) < 300
    assert not fleet.tables.groups


@pytest.mark.parametrize("field", ["brokerId", "clusterName", "brokerName", "brokerAddr"])
def test_a_missing_field_is_named_in_the_refusal(field: str) -> None:
    fleet = Fleet()
    command = registration("a", 0)
    del command.ext[field]
    answer = fleet.hand_over(command)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"{field} is missing" in str(answer.remark)
    assert not fleet.tables.groups


def test_a_topic_with_a_name_too_long_is_refused() -> None:
    fleet = Fleet()
    answer = fleet.register("a", 0, topics=["T" * 1_025])
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert not fleet.tables.groups


@pytest.mark.parametrize("body", [
    zlib.compress(bytes(80 << 20), 9),
    zlib.compress(b"\x00\x00\x00\x02{}" + b"\x7f\xff\xff\xff"),
    zlib.compress(b"\x7f\xff\xff\xff{}"),
    zlib.compress(b"\xff\xff\xff\xff{}"),
    zlib.compress(b"\x00\x00\x00\x02{}")[:-3],
    b"not compressed at all",
], ids=["bomb", "topics that are not there", "block beyond the end", "negative block", "cut off", "plain"])
def test_compressed_bodies_that_lie_are_refused(body: bytes) -> None:
    fleet = Fleet()
    command = registration("a", 0)
    command.body = body
    command.ext |= {"compressed": "true", "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
    answer = fleet.hand_over(command)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert not fleet.tables.groups


def test_long_names_asked_for_are_not_echoed_whole() -> None:
    fleet = Fleet()
    long = "t" * 100_000
    for answer in (
        fleet.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=long),
        fleet.ask(RequestCode.GET_KV_CONFIG, namespace=long, key=long),
        fleet.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace=long),
    ):
        assert answer.code
        assert len(str(answer.remark)) < 1_000
    assert not fleet.tables.answers


@given(data=st.binary(max_size=200))
def test_bytes_on_the_wire_are_no_request_or_one_that_is_answered(data: bytes) -> None:
    fleet = Fleet()
    with contextlib.suppress(FrameError):
        for command in FrameReader().feed(data):
            encode(fleet.hand_over(command))
    assert not fleet.tables.groups
