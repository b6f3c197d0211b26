"""Commands survive the log, and nothing else passes for one."""

from __future__ import annotations

import re

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.metadata.codec import FORMAT, MalformedCommand, UnknownFormat, decode, encode
from controller.metadata.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    DropEligible,
    ElectMaster,
    ImportedGroup,
    ImportGroups,
    LiveReplica,
    Observation,
    RaiseFormat,
    RegisterBroker,
    Trigger,
)
from controller.metadata.groups import GroupKey, Replica
from tests.controller.metadata.commands import ANY

KEY = GroupKey("c", "b")
ONE = Observation({1: LiveReplica(2, 300, 200, 4, False, 2), 2: LiveReplica()})

FORMAT_1: list[tuple[str, Command]] = [
    ("8a01010561636162010382010204a201860219012c18c804f40202862020201a7ffffffff4f6",
     AlterSyncStateSet(term=5, key=KEY, broker_id=1, master_epoch=3, sync_state_set=frozenset({1, 2}),
                       sync_state_set_epoch=4, observation=ONE)),
    ("8c010305616361620302f5f46764656661756c74f6a201860219012c18c804f40202862020201a7ffffffff4f6",
     ElectMaster(term=5, key=KEY, trigger=Trigger.ADMIN, broker_id=2, designate=True, observation=ONE)),
    ("8701020561636162017131302e302e302e313a31303931313b3137",
     ApplyBrokerId(term=5, key=KEY, broker_id=1, check_code="10.0.0.1:10911;17")),
    ("88010505616361628102f5a0",
     CleanBrokerData(term=5, key=KEY, broker_ids=frozenset({2}), clean_living=True, observation=Observation())),
    ("8801050561636162f6f4a0", CleanBrokerData(term=5, key=KEY, broker_ids=None, observation=Observation())),
    ("8901060561636162016e31302e302e302e313a3130393131f5a0",
     RegisterBroker(term=5, key=KEY, broker_id=1, address="10.0.0.1:10911", learner=True, observation=Observation())),
    ("87010705616361620103", DropEligible(term=5, key=KEY, broker_id=1, master_epoch=3)),
    ("8401080581886163616282840163613a3165613a313b39f4840263613a32f6f4038101020101",
     ImportGroups(term=5, groups=(ImportedGroup(
         KEY, {1: Replica("a:1", "a:1;9"), 2: Replica("a:2", None)}, 3, frozenset({1}), 2, 1, 1),))),
    ("8401090501", RaiseFormat(term=5, format=1)),
]
"""Bytes of format 1 as they stand in logs. Later versions must read them for ever; never edit a line."""


@pytest.mark.parametrize(("data", "command"), FORMAT_1, ids=lambda item: type(item).__name__)
def test_format_1_is_read(data: str, command: Command) -> None:
    assert decode(bytes.fromhex(data)) == command


@pytest.mark.parametrize(("data", "command"), FORMAT_1, ids=lambda item: type(item).__name__)
def test_format_1_is_written_where_it_is_in_use(data: str, command: Command) -> None:
    assert encode(command, 1).hex() == data


def test_numbers_of_triggers_stand_in_logs() -> None:
    assert {each.name: each.value for each in Trigger} == {"BROKER": 1, "CONTROLLER": 2, "ADMIN": 3}


@given(ANY)
def test_what_is_written_is_read(command: Command) -> None:
    data = encode(command, FORMAT)
    assert decode(data) == command and encode(decode(data), FORMAT) == data


@given(ANY, st.data())
def test_damage_is_another_command_or_malformed_and_nothing_worse(command: Command, data: st.DataObject) -> None:
    good = bytearray(encode(command, FORMAT))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(good[: data.draw(st.integers(0, len(good)))])
    for bad in (bytes(good), cut):
        try:
            read = decode(bad)
        except MalformedCommand:
            continue
        assert decode(encode(read, FORMAT)) == read


@given(st.binary(max_size=60))
@example(cbor2.dumps([1, 3, 5, "c", "b"]))
@example(b"\x9b" + b"\xff" * 8)
@example(b"\x81" * 2000)
@example(b"")
def test_foreign_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedCommand):
        decode(data)


@pytest.mark.parametrize("fields", [
    [], 7, None, "x", {}, [1], [1, 2], [1, 99, 1], [True, 2, 1, "c", "b", 1, "a"], [1, 2, -1, "c", "b", 1, "a"],
    [1, 2, 1, "c", "b", True, "a"], [1, 2, 1, "c", b"b", 1, "a"], [1, 2, 1, "c", "b", 1.0, "a"],
    [1, 2, 1, "c", "b", 2**63, "a"], [1, 2, 1, "c", "b", 1, "a", 1], [1, 2, 2**63, "c", "b", 1, "a"],
    [1, 1, 1, "c", "b", 1, 1, [1, 1], 1, {}], [1, 1, 1, "c", "b", 1, 1, [1], 1, []],
    [1, 1, 1, "c", "b", 1, 1, [1], 1, {1: [1, 2, 3, 4, 0, None]}], [1, 1, 1, "c", "b", 1, 1, [1], 1, {"1": []}],
    [1, 3, 1, "c", "b", 4, None, False, False, "default", None, {}], [1, 9, 1, 0],
    [1, 8, 1, [["c", "b", [[2, "a", None, False], [1, "a", None, False]], 3, [], 0, None, 0]]],
])
def test_the_shape_must_be_exact(fields: object) -> None:
    with pytest.raises(MalformedCommand):
        decode(cbor2.dumps(fields))


@pytest.mark.parametrize(("fields", "why"), [
    ([1, 9], "2 items; format, kind and term come first"),
    ([1, 9, 1], "a list of 1 is due"),
    ([1, 99, 7], "there is no command of kind 99"),
    ([1, 2, 1, "c", ["x" * 50], 1, "a"], "not a command: ['" + "x" * 38 + " where text is due"),
    ([1, 5, 1, "c", "b", None, False, ["x" * 50]], "not a command: ['" + "x" * 38 + " where the live brokers are due"),
])
def test_what_is_wrong_is_told_in_short(fields: list[object], why: str) -> None:
    with pytest.raises(MalformedCommand, match=re.escape(why)):
        decode(cbor2.dumps(fields))


@pytest.mark.parametrize("life", [0, -1, 1, 2**63 - 1])
def test_lives_are_numbers_from_one_on(life: int) -> None:
    data = cbor2.dumps([2, 6, 1, "c", "b", 1, "a:1", False, {}, life, False, None])
    if life > 0:
        assert decode(data) == RegisterBroker(
            term=1, key=KEY, broker_id=1, address="a:1", life=life, observation=Observation())
    else:
        with pytest.raises(MalformedCommand, match="from 1 on"):
            decode(data)


@pytest.mark.parametrize("found", [0, FORMAT + 1, 2**40])
def test_a_format_that_is_not_in_use_is_told_apart(found: int) -> None:
    data = cbor2.dumps([found, 2, 1, "c", "b", 1, "a:1;1"])
    with pytest.raises(UnknownFormat, match=f"format {found} is not in use"):
        decode(data)
    with pytest.raises(UnknownFormat):
        decode(data, in_use=2**62)


def test_only_formats_that_are_known_are_written() -> None:
    for unknown in (0, FORMAT + 1):
        with pytest.raises(ValueError, match=f"format {unknown} is not written"):
            encode(RaiseFormat(term=1, format=2), unknown)
