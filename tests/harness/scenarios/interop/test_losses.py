"""A loss is found in a log's bytes, and told with whom it concerns."""

from __future__ import annotations

import pytest

from harness.scenarios.interop.losses import (
    CUT,
    EARLY,
    OURS,
    Acknowledged,
    acknowledged,
    cause,
    evidence,
    master_of,
    missing,
    numbers_in,
)
from remoting import record as codec
from remoting.record import Message

HOST = codec.packed_host("127.0.0.1", 10911)
JAVA = "127.0.0.1:10911"


def record(number: int, offset: int, topic: bytes = b"Orders") -> bytes:
    message = Message(topic, b"%d ...." % number, 1, b"", 0, 0, 0, HOST, HOST)
    return codec.encode(message, number, offset, 0)


def log_with(*numbers: int, blank_behind: int = -1) -> bytes:
    log = b""
    for number in numbers:
        log += record(number, len(log))
        if number == blank_behind:
            log += codec.blank(40) + bytes(32)
    return log


def promise(number: int, master: str = JAVA) -> Acknowledged:
    return Acknowledged(number, 1, number, master, 5)


def test_numbers_are_read_over_the_end_of_a_file_and_up_to_damage() -> None:
    log = log_with(0, 1, 2, blank_behind=1)
    assert numbers_in(log, "Orders") == {0: {(1, 0)}, 1: {(1, 1)}, 2: {(1, 2)}}
    assert numbers_in(log, "Others") == {}
    assert set(numbers_in(log[:-1], "Orders")) == {0, 1}
    assert numbers_in(bytes(100), "Orders") == {}


def test_a_number_at_another_place_is_missing() -> None:
    log = log_with(0, 1)
    moved = Acknowledged(1, 1, 7, JAVA, 5)
    assert missing([promise(0), promise(1)], log, "Orders") == []
    assert missing([promise(0), moved, promise(2)], log, "Orders") == [moved, promise(2)]


def test_promises_are_what_was_acknowledged_and_by_whom() -> None:
    said = {"sequence": 3, "queue": 1, "offset": 9, "id": codec.message_id(HOST, 4_000), "ended_us": 7, "ok": True}
    assert acknowledged([said, {"sequence": 4, "ok": False}]) == {3: Acknowledged(3, 1, 9, JAVA, 7)}
    assert master_of("nothing") == ""


@pytest.mark.parametrize(("by_java", "from_java", "named"), [
    (True, True, EARLY), (True, False, EARLY), (False, True, CUT), (False, False, OURS)])
def test_each_loss_has_a_cause(by_java: bool, from_java: bool, named: str) -> None:
    assert cause(by_java, from_java) == named


def test_the_evidence_names_both_sides_and_everybodys_epochs() -> None:
    told = evidence("after kill 2", [promise(4), promise(5, "127.0.0.1:1")], [JAVA], "127.0.0.1:2",
                    {JAVA: "1-0\n2-400\n"})
    assert "2 acknowledged messages are not on 127.0.0.1:2" in told
    assert f"1 acknowledged by {JAVA} (RocketMQ's)" in told
    assert f"cause: {EARLY}" in told
    assert f"cause: {OURS}" in told
    assert f"epochs of {JAVA}: ['1-0', '2-400']" in told
