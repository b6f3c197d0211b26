"""The machine: terms, formats, bad bytes, limits, and what is asked of it without changing it."""

from __future__ import annotations

from typing import Any

import attrs
import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.metadata import machine as module
from controller.metadata.codec import FormatTooNew, encode
from controller.metadata.commands import (
    ApplyBrokerId,
    Command,
    DropEligible,
    ElectMaster,
    ImportedGroup,
    ImportGroups,
    RaiseFormat,
)
from controller.metadata.events import Applied
from controller.metadata.groups import GroupKey, Replica
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import (
    BrokerIdApplied,
    Elected,
    EligibleDropped,
    FormatRaised,
    Imported,
    Refused,
    Superseded,
    Unreadable,
)
from raft.statemachine import Entries, Machine
from remoting.codes import ResponseCode
from tests.controller.metadata.commands import ANY
from tests.controller.metadata.fleet import BROKER, KEY, led, of, raised, registered, restored, seen, snapshot_of

FIRST = ApplyBrokerId(term=3, key=KEY, broker_id=1, check_code="a:1;1")


def test_it_is_a_state_machine_of_raft() -> None:
    machine = MetadataMachine()
    wrapped = Machine(machine)
    assert wrapped.snapshots and not wrapped.threaded
    results = wrapped.apply_many([encode(FIRST, 1), b"junk", encode(FIRST, 1)], 3, 17, 0)
    assert [type(result) for result in results] == [BrokerIdApplied, Unreadable, BrokerIdApplied]
    written: list[bytes] = []

    class Sink:
        def write(self, data: bytes) -> None:
            written.append(data)

    wrapped.write(wrapped.capture(), Sink())
    again = MetadataMachine()
    Machine(again).restore(written)
    assert again.state_hash() == machine.state_hash()


@pytest.mark.parametrize("term", [0, 2, 4])
def test_a_command_of_another_term_does_nothing(term: int) -> None:
    machine = MetadataMachine()
    outcome = of(machine.apply_at(encode(FIRST, 1), term), Superseded)
    assert outcome.code == ResponseCode.CONTROLLER_NOT_LEADER and not outcome.changed
    assert (outcome.proposed_term, outcome.applied_term) == (3, term) and not machine.groups


def test_entries_carry_the_term() -> None:
    machine = MetadataMachine()
    assert isinstance(machine.apply_entries(Entries([encode(FIRST, 1)], 4, 9, 0))[0], Superseded)
    assert isinstance(machine.apply_entries(Entries([encode(FIRST, 1)], 3, 10, 0))[0], BrokerIdApplied)


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x00" * 40, cbor2.dumps([1, 2]), cbor2.dumps([7, 2, 3, "c"])])
def test_bad_bytes_are_refused_and_observed(data: bytes) -> None:
    found: list[Applied] = []
    machine = MetadataMachine(found.append)
    outcome = of(machine.apply_at(data, 3), Unreadable)
    assert outcome.code == ResponseCode.SYSTEM_ERROR and outcome.remark
    assert found == [Applied(3, None, outcome, ())]


def test_preview_tells_the_outcome_and_changes_nothing() -> None:
    fleet = led()
    before = fleet.machine.state_hash()
    command = ElectMaster(term=1, key=KEY, trigger=BROKER, broker_id=2, observation=seen(2, 3))
    previewed = fleet.machine.preview(command)
    assert of(previewed, Elected).master == 2 and fleet.machine.state_hash() == before
    assert fleet.do(command) == previewed


def test_no_node_takes_a_newer_format_before_the_group_does() -> None:
    """An old and a new node refuse it alike; once the format is raised the new one takes it and the old one stops."""
    newer = cbor2.dumps([2, 7, 1, "c", "b", 1, 1])
    old, new = MetadataMachine(reads=1), MetadataMachine()
    for machine in (old, new):
        assert isinstance(machine.apply_at(newer, 1), Unreadable)
        assert of(machine.apply_at(encode(RaiseFormat(term=1, format=1), 1), 1), FormatRaised).format == 1
    assert old.state_hash() == new.state_hash()
    raising = encode(RaiseFormat(term=1, format=2), 1)
    assert of(new.apply_at(raising, 1), FormatRaised).changed and new.format == 2
    dropped = DropEligible(term=1, key=KEY, broker_id=1, master_epoch=1)
    assert isinstance(new.apply_at(encode(dropped, 2), 1), EligibleDropped)
    with pytest.raises(FormatTooNew, match="format 2; this version reads up to 1"):
        old.apply_at(raising, 1)
    with pytest.raises(FormatTooNew):
        old.preview(RaiseFormat(term=1, format=2))
    assert old.format == 1 and not restored(snapshot_of(old)).groups


@pytest.mark.parametrize("reads", [2, 3])
@pytest.mark.parametrize("wanted", [1, 4, 2**62])
def test_from_format_2_on_only_the_next_one_may_follow(reads: int, wanted: int) -> None:
    """Whoever reads more and whoever reads less refuse it alike, and nobody stops."""
    machine = raised(MetadataMachine(reads=reads), 2)
    before = machine.state_hash()
    outcome = of(machine.apply_at(encode(RaiseFormat(term=1, format=wanted), 2), 1), Refused)
    assert outcome.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert outcome.remark == f"format 2 is in use: only 3 may follow, not {wanted}"
    assert machine.state_hash() == before


def test_a_raise_that_is_repeated_changes_nothing() -> None:
    machine = raised(MetadataMachine(), 2)
    for in_format in (1, 2):
        outcome = of(machine.apply_at(encode(RaiseFormat(term=1, format=2), in_format), 1), FormatRaised)
        assert outcome.format == 2 and not outcome.changed and machine.format == 2


def test_a_raise_of_another_term_does_nothing() -> None:
    machine, raising = MetadataMachine(), encode(RaiseFormat(term=1, format=2), 1)
    assert isinstance(machine.apply_at(raising, 2), Superseded) and machine.format == 1
    assert of(machine.apply_at(raising, 1), FormatRaised).changed


def test_in_format_1_raises_are_decided_as_they_always_were() -> None:
    """Controllers of the release that knew no other decide so, and may be in the group."""
    machine = MetadataMachine(reads=3)
    assert not of(machine.apply_at(encode(RaiseFormat(term=1, format=1), 1), 1), FormatRaised).changed
    with pytest.raises(FormatTooNew, match="format 4; this version reads up to 3"):
        machine.apply_at(encode(RaiseFormat(term=1, format=4), 1), 1)
    assert of(machine.apply_at(encode(RaiseFormat(term=1, format=3), 1), 1), FormatRaised).format == 3
    assert machine.format == 3


def test_who_does_not_read_the_next_format_stops_at_it() -> None:
    machine = raised(MetadataMachine(), 2)
    with pytest.raises(FormatTooNew, match="format 3; this version reads up to 2"):
        machine.apply_at(encode(RaiseFormat(term=1, format=3), 2), 1)


def test_commands_of_an_older_format_are_carried_out_in_a_newer_one() -> None:
    """They were proposed before the raise and are committed behind it."""
    machine = raised(MetadataMachine(), 2)
    assert of(machine.apply_at(encode(FIRST, 1), 3), BrokerIdApplied).changed


def test_a_raised_format_is_part_of_the_state() -> None:
    low, high = MetadataMachine(reads=2), MetadataMachine(reads=2)
    high.apply_at(encode(RaiseFormat(term=1, format=2), 1), 1)
    assert low.state_hash() != high.state_hash()
    high2 = MetadataMachine(reads=2)
    high2.restore_from(iter([snapshot_of(high)]))
    assert high2.format == 2 and high2.state_hash() == high.state_hash()


def test_there_is_room_for_so_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUPS_MAX", 2)
    fleet = registered(1)
    fleet.apply_id(1, key=GroupKey("c", "2"))
    fleet.clean({1})
    for _ in range(2):
        outcome = of(fleet.apply_id(1, key=GroupKey("c", "3")), Refused)
        assert outcome.code == ResponseCode.CONTROLLER_INVALID_REQUEST and "all there may be" in outcome.remark
    imported = ImportedGroup(GroupKey("c", "3"), {1: Replica("a:1", None)}, 2, frozenset(), 0, None, 0)
    assert "all there may be" in of(fleet.do(ImportGroups(term=1, groups=(imported,))), Refused).remark
    assert of(fleet.apply_id(2), BrokerIdApplied).changed  # one that is there, though removed, may come back
    monkeypatch.setattr(module, "GROUPS_MAX", 3)
    assert of(fleet.do(ImportGroups(term=1, groups=(imported,))), Imported).changed


def test_every_controller_of_every_version_has_room_for_as_many_groups() -> None:
    assert module.GROUPS_MAX == 100_000


def test_a_command_that_nobody_decides_is_a_mistake_in_words() -> None:
    @attrs.frozen(kw_only=True)
    class Odd(Command):
        key: GroupKey

    odd: Any = Odd(term=1, key=KEY)
    with pytest.raises(AssertionError, match="no decision for Odd"):
        led().machine.preview(odd)


def test_names_lead_to_groups() -> None:
    fleet = registered(1)
    a, z = GroupKey("A", KEY.name), GroupKey("Z", KEY.name)
    fleet.apply_id(1, key=z)
    fleet.apply_id(1, key=a)
    assert list(fleet.machine.named(KEY.name)) == [a, KEY, z] and list(fleet.machine.named("x")) == []
    fleet.clean({1})
    assert list(fleet.machine.named(KEY.name)) == [a, z]
    assert fleet.machine.group(KEY) is None and KEY in fleet.machine.groups
    assert fleet.machine.next_broker_id(KEY) == 2 and fleet.machine.next_broker_id(GroupKey("c", "x")) == 1


def test_a_reader_of_a_group_keeps_its_moment() -> None:
    fleet = led()
    before = fleet.group
    fleet.lost(2, 3)
    assert before.master == 1 and fleet.group.master == 2


@given(st.lists(ANY.filter(lambda command: not isinstance(command, RaiseFormat)), max_size=8), st.data())
def test_no_command_whatever_its_values_raises_or_breaks_a_property(asked: list[Command], data: st.DataObject) -> None:
    fleet = led()
    command: Any
    for command in asked:
        if not isinstance(command, ImportGroups) and data.draw(st.booleans()):
            command = attrs.evolve(command, key=KEY)
        if data.draw(st.booleans()):
            command = attrs.evolve(command, term=fleet.term)
        assert isinstance(fleet.do(command).code, ResponseCode)
