"""Frames that Java programs sent to each other: each decodes, header and body with it, and encodes to equal JSON again.

Recorded by ``python -m harness.processes.java record``; see the README beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from remoting import bodies, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RESPONSE, Command, Encoding
from remoting.fastjson import loads
from remoting.frame import FrameReader, encode
from remoting.header import Header
from remoting.headers import broker, controller, namesrv

GOLDEN = Path(__file__).parent / "golden"
LINES = [
    pytest.param(json.loads(line), id=f"{path.parent.name}-{path.stem}-{number}")
    for path in sorted(GOLDEN.glob("*/*.ndjson")) for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
]


class NoHeader(Header):
    """Of codes that have none."""


Shape = Any
"""A body class, ``properties.parse``, or None."""
N, C, S = NoHeader, controller, bodies.SyncStateSet
TABLE: dict[int, tuple[type[Header], Shape, type[Header], Shape]] = {
    # code: request's header and body, answer's header and body
    100: (namesrv.PutKVConfigRequest, None, N, None),
    101: (namesrv.KVKeyRequest, None, namesrv.KVValueResponse, None),
    102: (namesrv.KVKeyRequest, None, N, None),
    103: (namesrv.RegisterBrokerRequest, bodies.RegisterBrokerBody, namesrv.RegisterBrokerResponse, bodies.KVTable),
    104: (namesrv.UnregisterBrokerRequest, None, N, None),
    105: (namesrv.GetRouteInfoRequest, None, N, bodies.TopicRouteData),
    106: (N, None, N, bodies.ClusterInfo),
    205: (namesrv.BrokerNameRequest, None, namesrv.WipeWritePermResponse, None),
    206: (N, None, N, bodies.TopicList),
    216: (namesrv.DeleteTopicRequest, None, N, None),
    217: (namesrv.RegisterTopicRequest, bodies.TopicRouteData, N, None),
    219: (namesrv.KVNamespaceRequest, None, N, bodies.KVTable),
    224: (namesrv.GetTopicsByClusterRequest, None, N, bodies.TopicList),
    304: (N, None, N, bodies.TopicList),
    311: (N, None, N, bodies.TopicList),
    312: (N, None, N, bodies.TopicList),
    313: (N, None, N, bodies.TopicList),
    318: (N, properties.parse, N, None),
    319: (N, None, N, properties.parse),
    322: (namesrv.QueryDataVersionRequest, bodies.DataVersion, namesrv.QueryDataVersionResponse, bodies.DataVersion),
    327: (namesrv.BrokerNameRequest, None, namesrv.AddWritePermResponse, None),
    901: (namesrv.GetBrokerMemberGroupRequest, None, N, bodies.GetBrokerMemberGroupResponseBody),
    904: (C.BrokerHeartbeatRequest, None, C.BrokerHeartbeatResponse, None),
    905: (namesrv.NotifyMinBrokerIdChangeRequest, None, N, None),
    906: (broker.ExchangeHAInfoRequest, None, broker.ExchangeHAInfoResponse, None),
    907: (N, None, N, bodies.HARuntimeInfo),
    1001: (C.AlterSyncStateSetRequest, S, C.AlterSyncStateSetResponse, S),
    1002: (C.ElectMasterRequest, None, C.ElectMasterResponse, bodies.ElectMasterResponseBody),
    1003: (C.RegisterBrokerToControllerRequest, None, C.RegisterBrokerToControllerResponse, S),
    1004: (C.GetReplicaInfoRequest, None, C.GetReplicaInfoResponse, S),
    1005: (N, None, C.GetMetadataResponse, None),
    1006: (N, bodies.BrokerNames, N, bodies.BrokerReplicasInfo),
    1007: (N, None, N, bodies.EpochEntryCache),
    1008: (C.NotifyBrokerRoleChangedRequest, S, N, None),
    1009: (N, properties.parse, N, None),
    1010: (N, None, N, properties.parse),
    1011: (C.CleanBrokerDataRequest, None, N, None),
    1012: (C.GetNextBrokerIdRequest, None, C.GetNextBrokerIdResponse, None),
    1013: (C.ApplyBrokerIdRequest, None, C.ApplyBrokerIdResponse, None),
}
"""Without an error, an answer has its class; with one, what the class has no default for may be missing."""


def test_there_are_recordings_of_both_versions() -> None:
    assert {path.name for path in GOLDEN.iterdir() if path.is_dir()} >= {"5.3.3", "5.5.0"}
    assert len(LINES) > 100


@pytest.mark.parametrize("line", LINES)
def test_a_frame_of_java(line: dict[str, Any]) -> None:
    raw = bytes.fromhex(line["frame"])
    (command,) = FrameReader().feed(raw)
    answer = line["direction"] == "response"
    assert bool(command.flag & RESPONSE) == answer
    assert answer or command.code == line["code"]
    RequestCode(line["code"]), ResponseCode(command.code if answer else 0)

    assert list(FrameReader().feed(encode(command))) == [command]
    if command.encoding is Encoding.ROCKETMQ:
        assert encode(command) == raw
    else:
        assert header_json(encode(command)) == header_json(raw)

    request_header, request_body, answer_header, answer_body = TABLE[line["code"]]
    if command.ext:
        header = (answer_header if answer else request_header).from_ext(command.ext)
        assert header.to_ext() == command.ext
    if command.body:
        check_body(command, answer_body if answer else request_body)


def header_json(frame: bytes) -> Any:
    """An answer without a header has none in Java, and an empty one here."""
    fields = json.loads(frame[8 : 8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF)])
    return fields | {"extFields": fields.get("extFields", {})}


def check_body(command: Command, shape: Shape) -> None:
    assert shape is not None, "a body where none was expected"
    if shape is properties.parse:
        values = properties.parse(command.body.decode())
        assert properties.parse(properties.encode(values)) == values
        assert properties.encode(values).encode() == command.body
        return
    if shape is bodies.RegisterBrokerBody:
        compressed = command.ext["compressed"] == "true"
        registration = bodies.RegisterBrokerBody.decode(command.body, compressed=compressed)
        packed = registration.encode(compressed=True)
        again = bodies.RegisterBrokerBody.decode(packed, compressed=True)
        wrapper = registration.topic_config_serialize_wrapper
        assert again.topic_config_serialize_wrapper == attrs.evolve(
            wrapper, topic_queue_mapping_detail_map={}, mapping_data_version=bodies.DataVersion()
        )
        if compressed:
            return
    ours, theirs = json.loads(shape.from_json(command.body).to_json()), loads(command.body)
    if shape is bodies.ElectMasterResponseBody:  # ours has the members once more, for old tools
        theirs = theirs.get("brokerMemberGroup", {}) | theirs
    assert ours == theirs
