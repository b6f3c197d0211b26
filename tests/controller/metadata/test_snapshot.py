"""Snapshots: the state and nothing but the state, in bytes that may be cut anywhere, and old ones for ever."""

from __future__ import annotations

import struct
import tracemalloc

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.metadata import snapshot
from controller.metadata.codec import FORMAT, FormatTooNew
from controller.metadata.groups import BrokerGroup, GroupKey, Replica
from controller.metadata.identity import CHECK_CODE_CHARS_MAX, NAME_CHARS_MAX, REPLICAS_MAX
from controller.metadata.machine import MetadataMachine
from controller.metadata.snapshot import UnreadableSnapshot
from tests.controller.metadata.commands import INT64, KEYS, TEXT
from tests.controller.metadata.fleet import (
    CONTROLLER,
    GATED,
    KEY,
    Bytes,
    led,
    raised,
    registered,
    restored,
    seen,
    snapshot_of,
)

IDS = st.frozensets(INT64, max_size=4)
GROUPS = st.builds(
    BrokerGroup,
    replicas=st.dictionaries(
        INT64, st.builds(Replica, TEXT, st.none() | TEXT, st.booleans()), max_size=4).map(
            lambda found: dict(sorted(found.items()))),
    next_broker_id=st.integers(1, 2**62), sync_state_set=IDS, sync_state_set_epoch=st.integers(0, 2**40),
    master=st.none() | INT64, master_epoch=st.integers(0, 2**40), eligible=IDS)

LAYOUT_1 = bytes.fromhex(
    "00000015847071756f726174652d6d6574616461746101010200000033828961636162048101050102810382840163613a3165613a313b39f4"
    "840363613a33f6f589616364676f6e65078008f6098080")
"""Two groups, one of them removed, as a snapshot of layout 1. Later versions must read it for ever; never edit it."""


def block(content: object) -> bytes:
    data = cbor2.dumps(content)
    return struct.pack(">I", len(data)) + data


HEAD = block(["quorate-metadata", 1, 1, 1])
GROUP = ["c", "b", 2, [1], 1, 1, 1, [], [[1, "a:1", None, False]]]


def test_layout_1_is_read() -> None:
    machine = restored(LAYOUT_1)
    assert machine.format == 1 and machine.groups == {
        GroupKey("c", "b"): BrokerGroup(
            {1: Replica("a:1", "a:1;9"), 3: Replica("a:3", None, learner=True)}, 4, frozenset({1}), 5, 1, 2,
            frozenset({3})),
        GroupKey("c", "gone"): BrokerGroup(next_broker_id=7, sync_state_set_epoch=8, master_epoch=9),
    }
    assert list(machine.named("b")) == [GroupKey("c", "b")] and not machine.named("gone")
    assert snapshot_of(machine) == LAYOUT_1


@given(st.dictionaries(KEYS, GROUPS, max_size=6), st.integers(1, 300))
def test_what_is_written_is_read_however_it_is_cut(groups: dict[GroupKey, BrokerGroup], cut: int) -> None:
    sink = Bytes()
    snapshot.write(groups, FORMAT, sink)
    data = b"".join(sink.pieces)
    chunks = [data[start : start + cut] for start in range(0, len(data), cut)]
    assert snapshot.read(chunks) == (groups, FORMAT)
    assert snapshot.read([b"", *chunks, b""]) == (groups, FORMAT)


def test_the_order_in_which_groups_came_is_not_seen() -> None:
    one, other = Bytes(), Bytes()
    groups = {GroupKey("c", name): BrokerGroup(next_broker_id=number + 1) for number, name in enumerate("xyz")}
    snapshot.write(groups, 1, one)
    snapshot.write(dict(reversed(groups.items())), 1, other)
    assert b"".join(one.pieces) == b"".join(other.pieces)


def test_many_groups_come_in_blocks() -> None:
    groups = {GroupKey("c", f"b{number}"): BrokerGroup() for number in range(snapshot.BLOCK_GROUPS * 2 + 1)}
    sink = Bytes()
    snapshot.write(groups, 1, sink)
    assert len(sink.pieces) == 4 and snapshot.read(sink.pieces)[0] == groups


def test_blocks_end_where_they_always_did() -> None:
    """The bytes are hashed, and controllers of different versions compare the hashes."""
    def ends(groups: dict[GroupKey, BrokerGroup]) -> list[int]:
        sink = Bytes()
        snapshot.write(groups, 1, sink)
        return [len(cbor2.loads(piece[4:])) for piece in sink.pieces[1:]]

    assert ends({GroupKey("c", f"b{number:03}"): BrokerGroup() for number in range(257)}) == [256, 1]
    replica = Replica("a:1", None)
    sizes = (4_095, 1, 4_095, 1, 4_096, 4_097, 4_094, 1)
    assert ends({
        GroupKey("c", f"b{number}"): BrokerGroup(dict.fromkeys(range(1, size + 1), replica), size + 1)
        for number, size in enumerate(sizes)
    }) == [2, 2, 1, 1, 2]


def test_the_largest_groups_that_there_can_be_come_back() -> None:
    widest = "\U00010400"  # four bytes
    replica = Replica(widest * NAME_CHARS_MAX, widest * CHECK_CODE_CHARS_MAX)
    largest = BrokerGroup(dict.fromkeys(range(1, REPLICAS_MAX + 1), replica), REPLICAS_MAX + 1)
    groups = {GroupKey("c", f"b{number:02}"): largest for number in range(24)}
    sink = Bytes()
    snapshot.write(groups, 1, sink)
    assert sum(map(len, sink.pieces)) > snapshot.BLOCK_BYTES_MAX
    assert snapshot.read(sink.pieces)[0] == groups


def test_everything_comes_back() -> None:
    fleet = led(observed=seen(1, 2, 3))
    fleet.elect(CONTROLLER, None, seen(b2=GATED, b3=GATED))
    fleet.register(3, learner=True)
    again = restored(snapshot_of(fleet.machine), cut=7)
    assert again.groups == fleet.machine.groups and again.state_hash() == fleet.machine.state_hash()
    assert list(again.named(KEY.name)) == [KEY] and fleet.group.eligible and again.group(KEY) == fleet.group


def test_a_removed_group_is_remembered() -> None:
    fleet = led()
    fleet.clean(None, force=True)
    again = restored(snapshot_of(fleet.machine))
    assert again.group(KEY) is None and again.next_broker_id(KEY) == 4 and not again.named(KEY.name)


def test_a_view_does_not_move() -> None:
    fleet = led()
    view = fleet.machine.capture()
    fleet.clean(None, force=True)
    sink = Bytes()
    fleet.machine.write(view, sink)
    assert restored(b"".join(sink.pieces)).group(KEY) is not None and fleet.machine.group(KEY) is None


def test_a_restore_replaces_all_state() -> None:
    fleet = registered(1, key=GroupKey("Other", "x"))
    fleet.machine.restore_from(iter([snapshot_of(led().machine)]))
    assert list(fleet.machine.groups) == [KEY] and not fleet.machine.named("x")


@pytest.mark.parametrize("data", [
    b"", b"\x00", b"\x00\x00\x00\x09ab", b"\xff\xff\xff\xff", HEAD[:-1], HEAD, HEAD + block([GROUP, GROUP]),
    HEAD + block([GROUP])[:-1], HEAD + block(7), HEAD + block([[1, 2, 3]]), HEAD + block([GROUP]) + b"\x00",
    block(["other", 1, 1, 0]), block(["quorate-metadata", 2, 1, 0]), block(["quorate-metadata", 1, 0, 0]),
    block(["quorate-metadata", 1, 1]), block(["quorate-metadata", 1, 1, -1]),
    HEAD + block([[*GROUP[:2], 0, *GROUP[3:]]]), HEAD + block([[*GROUP[:3], [1, 1], *GROUP[4:]]]),
    HEAD + block([[*GROUP[:4], -1, *GROUP[5:]]]), HEAD + block([[*GROUP[:6], -1, *GROUP[7:]]]),
    HEAD + block([GROUP]) + block([GROUP]) + block([[]]),
])
def test_what_is_no_snapshot_is_refused_and_changes_nothing(data: bytes) -> None:
    fleet = led()
    before = fleet.machine.state_hash()
    with pytest.raises(UnreadableSnapshot):
        fleet.machine.restore_from(iter([data]))
    assert fleet.machine.state_hash() == before


@pytest.mark.parametrize(("data", "why"), [
    (b"\x00\x00\x00\x09ab", "it ends 7 bytes early"),
    (HEAD + b"\x00\x00\x00\x09", "it ends 9 bytes early"),
    (HEAD + b"\x00\x00", "it ends 2 bytes early"),
    ((64 << 20).to_bytes(4, "big"), f"it ends {64 << 20} bytes early"),
    ((64 << 20 | 1).to_bytes(4, "big"), f"a block of {(64 << 20) + 1} bytes; at most {64 << 20} are read"),
    (block(["x" * 50, "y" * 50, 1, 1]), f"it begins {'x' * 40}, {'y' * 40}; due are quorate-metadata, layout 1"),
])
def test_what_is_wrong_is_told_in_short(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableSnapshot, match=f"{why}$"):
        snapshot.read([data])


@given(st.binary(max_size=80))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableSnapshot):
        snapshot.read([data])


def test_a_snapshot_of_a_newer_format_is_for_a_newer_node() -> None:
    """However its groups look: this version cannot know that."""
    for reads in range(1, FORMAT + 1):
        newer = [block(["quorate-metadata", 1, reads + 1, 1]), block([[*GROUP, "what it adds"]])]
        with pytest.raises(FormatTooNew, match=f"uses format {reads + 1}; this version reads up to {reads}: upgrade"):
            MetadataMachine(reads=reads).restore_from(iter(newer))


@pytest.mark.parametrize("in_format", range(1, FORMAT + 1))
def test_the_format_in_use_comes_back(in_format: int) -> None:
    machine = raised(MetadataMachine(), in_format)
    assert restored(snapshot_of(machine)).format == in_format


def test_a_length_that_lies_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableSnapshot, match="bytes early"):
            snapshot.read([struct.pack(">I", snapshot.BLOCK_BYTES_MAX) + b"x" * 100])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
