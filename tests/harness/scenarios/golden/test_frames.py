"""Sorting recorded frames: headers peeked into, requests paired with responses, one of each shape kept."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from harness.scenarios.golden import frames
from harness.scenarios.golden.record import Direction, Recorded
from remoting.codes import RequestCode

GOLDEN = Path(__file__).parents[3] / "remoting" / "golden"


def json_frame(code: int, opaque: int, flag: int = 0, body: bytes = b"", **ext: str) -> bytes:
    content: dict[str, object] = {"code": code, "flag": flag, "opaque": opaque}
    if ext:
        content["extFields"] = ext
    header = json.dumps(content).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def recorded(frame: bytes, direction: Direction = "to_server", connection: int = 1) -> Recorded:
    return Recorded(0, "a link", connection, direction, frame)


def test_peek_json() -> None:
    seen = frames.peek(json_frame(1005, 7, 1, b"x", isLeader="true", group="g"))
    assert seen == frames.Peeked(1005, 7, 1, "json", frozenset({"isLeader=true", "group"}), True)


def test_peek_binary() -> None:
    frame = bytes.fromhex(
        "0000002c 01000026 03ec 00 0000 00000007 00000000 00000000 00000011"
        "000a 62726f6b65724e616d65 00000001 62 0102")
    assert frames.peek(frame) == frames.Peeked(1004, 7, 0, "rocketmq", frozenset({"brokerName"}), True)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0\4\2\0\0\0"])
def test_peek_refuses_what_is_no_frame(frame: bytes) -> None:
    with pytest.raises(ValueError, match=r"a frame of 0 bytes|serialize type 2"):
        frames.peek(frame)


def test_responses_are_paired_by_connection_direction_and_opaque() -> None:
    ask, oneway, back = json_frame(105, 1), json_frame(904, 2, 2), json_frame(905, 1)
    yes, no = json_frame(0, 1, 1), json_frame(17, 1, 1)
    found = frames.exchanges([
        recorded(ask), recorded(oneway), recorded(ask, connection=2), recorded(back, "to_client"),
        recorded(no, "to_client", 2), recorded(yes, "to_client"), recorded(json_frame(105, 9)),
        recorded(json_frame(0, 77, 1), "to_client"), recorded(no, "to_server"),
    ])
    assert [(one.request, one.response) for one in found] == [(ask, yes), (oneway, None), (ask, no), (back, no)]


def test_one_of_each_shape_is_kept() -> None:
    def exchange(code: int, response: int, **ext: str) -> frames.Exchange:
        return frames.Exchange(json_frame(code, 1), json_frame(response, 1, 1, b"", **ext))

    first, second = exchange(1005, 0, isLeader="true"), exchange(1005, 0, isLeader="false")
    many = [exchange(1002, code) for code in range(frames.KINDS_MAX + 3)]
    kept = frames.pick([first, first, second, exchange(51001, 0), *many])
    assert kept == {
        RequestCode.CONTROLLER_ELECT_MASTER: many[:frames.KINDS_MAX],
        RequestCode.CONTROLLER_GET_METADATA_INFO: [first, second],
    }


def test_each_encoding_has_its_own_share() -> None:
    """Many shapes in one encoding do not crowd out the other."""
    binary = bytes.fromhex("00000019 01000015 03ea 00 0000 00000007 00000002 00000000 00000000")
    many = [frames.Exchange(json_frame(1002, 1), json_frame(code, 1, 1)) for code in range(frames.KINDS_MAX)]
    last = frames.Exchange(binary, None)
    assert frames.pick([*many, last])[RequestCode.CONTROLLER_ELECT_MASTER] == [*many, last]


def test_written_as_the_readme_says(tmp_path: Path) -> None:
    code = RequestCode.BROKER_HEARTBEAT
    frames.write({code: [frames.Exchange(b"\1", None), frames.Exchange(b"\2", b"\3")]}, tmp_path, "5.5.0")
    lines = (tmp_path / "5.5.0" / "904-broker-heartbeat.ndjson").read_text().splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == [
        (904, "BROKER_HEARTBEAT", "request", "5.5.0", "01"),
        (904, "BROKER_HEARTBEAT", "request", "5.5.0", "02"),
        (904, "BROKER_HEARTBEAT", "response", "5.5.0", "03"),
    ]


@pytest.mark.parametrize("version", ["5.5.0", "5.3.3"])
def test_what_is_kept_in_the_tree_is_in_order(version: str) -> None:
    """Both encodings of every file's request are there, and responses follow their requests."""
    files = sorted((GOLDEN / version).glob("*.ndjson"))
    assert {path.name for path in files} >= {
        frames.file_name(RequestCode(code))
        for code in (103, 104, 105, 106, 901, 904, 905, *range(1001, 1014))
    }
    for path in files:
        asked: frames.Peeked | None = None
        encodings = set()
        for line in path.read_text().splitlines():
            content = json.loads(line)
            seen = frames.peek(bytes.fromhex(content["frame"]))
            code = RequestCode(content["code"])
            assert (content["name"], path.name) == (code.name, frames.file_name(code))
            if content["direction"] == "request":
                assert (seen.code, seen.flag & frames.RESPONSE) == (code, 0)
                asked = seen
                encodings.add(seen.encoding)
            else:
                assert asked is not None
                assert (seen.opaque, seen.flag & frames.RESPONSE) == (asked.opaque, frames.RESPONSE)
                asked = None
        assert encodings == {"json", "rocketmq"}, path.name
