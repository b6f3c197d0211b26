"""Fuzz targets of the controller: requests to commands, commands out of the log, snapshots.

The promises are those of ``fuzz.targets``, and that what is refused changes nothing. The first byte of an input chooses
how the rest is used: as it is, or as a variation of something whole that only the decoder behind looks at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import cbor2

from controller.active import ActiveController, ElectionSettings
from controller.answers import answer
from controller.liveness import Heartbeat, Liveness
from controller.metadata import codec, snapshot
from controller.metadata.commands import (
    AlterSyncStateSet,
    AnyCommand,
    ApplyBrokerId,
    CleanBrokerData,
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
from controller.metadata.groups import BrokerGroup, GroupKey, Replica
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Refused
from controller.requests import WRITES, Seen, read_command, read_heartbeat
from fuzz import sealing
from fuzz.target import Target
from remoting.bodies.controller import SyncStateSet
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.errors import BodyError, HeaderError
from remoting.frame import encode
from remoting.headers.controller import (
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    BrokerHeartbeatRequest,
    CleanBrokerDataRequest,
    ElectMasterRequest,
    RegisterBrokerToControllerRequest,
)

KEY: Final = GroupKey("c", "b")
_LIVE: Final = Observation({1: LiveReplica(1, 9, 9), 2: LiveReplica(1, 8, 8, 3, False, 2)})
_REPLICAS: Final = {1: Replica("h:1", "h:1;1"), 2: Replica("h:2", None, True)}
_GROUPS: Final = {
    KEY: BrokerGroup(_REPLICAS, 3, frozenset({1, 2}), 4, 1, 2, frozenset()),
    GroupKey("c", "gone"): BrokerGroup({}, 3, frozenset(), 4, None, 2),
    GroupKey("d", "b"): BrokerGroup({1: Replica("h:3", "h:3;1")}, 2),
}


def _snapshot(groups: dict[GroupKey, BrokerGroup]) -> bytes:
    chunks: list[bytes] = []

    class Sink:
        def write(self, data: bytes) -> None:
            chunks.append(data)

    snapshot.write(groups, codec.FORMAT, Sink())
    return b"".join(chunks)


_WHOLE: Final = _snapshot(_GROUPS)

# --- requests ------------------------------------------------------------------------------------------------

_REQUESTS: Final = [
    (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, AlterSyncStateSetRequest("b", 1, 2, 7, "c"),
     SyncStateSet(frozenset({1}), 4).to_json()),
    (RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequest("c", "b", 2, True, 7), b""),
    (RequestCode.CONTROLLER_REGISTER_BROKER, RegisterBrokerToControllerRequest("c", "b", 2, "h:9", 7, False), b""),
    (RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataRequest("b", "c", "1;2", True, 7), b""),
    (RequestCode.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequest("c", "b", 3, "h:4;1"), b""),
    (RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequest("c", "b", "h:1", 1, 1, 2, 2, 9, 1, 1, True, 2, False), b""),
]


def _machine() -> tuple[MetadataMachine, ActiveController]:
    machine = MetadataMachine()
    machine.restore_from(iter([_WHOLE]))
    active = ActiveController(machine, Liveness(), ElectionSettings())
    for broker_id, replica in _LIVE.live.items():
        active.heartbeat(0, Heartbeat(KEY, broker_id, f"h:{broker_id}", replica), "here")
    active.activate(0, 5)
    return machine, active


_MACHINE, _ACTIVE = _machine()
_HASH: Final = _MACHINE.state_hash()


def check_requests(data: bytes) -> None:
    """Values of the header's fields separated by 0, ``-`` for one that is missing; the last is the body."""
    code, header, _ = _REQUESTS[(data[0] if data else 0) % len(_REQUESTS)]
    *values, body = data[1:].split(b"\0")
    names = [wire for _, wire, _, _ in header._fields]
    ext = {name: value.decode(errors="replace") for name, value in zip(names, values, strict=False) if value != b"-"}
    request = Command(code, 1, ext=ext, body=body)
    try:
        if code in WRITES:
            command = read_command(request, Seen(1, _MACHINE, _ACTIVE, {}))
        elif isinstance(beat := read_heartbeat(request), Refused):
            command = beat
        else:
            assert 0 <= beat.broker_id and (beat.timeout_ms is None or beat.timeout_ms > 0)
            return
    except (HeaderError, BodyError) as error:
        said = str(error)
        assert len(said) < 1_000
        return
    if isinstance(command, Refused):
        outcome: object = command
        encode(answer(request, command))
    else:
        outcome = _MACHINE.preview(command)
        assert not isinstance(command, RaiseFormat)
        encode(answer(request, _MACHINE.preview(command)))
        if _MACHINE.preview(command).changed:  # then it goes into the log, and must come out of it as it was
            assert codec.decode(codec.encode(command, codec.FORMAT)) == command
    remark = getattr(outcome, "remark", "")
    assert len(remark) < 10_000
    assert _MACHINE.state_hash() == _HASH


def _request_seeds() -> list[bytes]:
    return [
        bytes([number]) + b"\0".join(
            [*(header.to_ext().get(wire, "-").encode() for _, wire, _, _ in header._fields), body])
        for number, (_, header, body) in enumerate(_REQUESTS)]


# --- commands ------------------------------------------------------------------------------------------------

_COMMANDS: Final[list[AnyCommand]] = [
    AlterSyncStateSet(term=5, key=KEY, broker_id=1, master_epoch=2, sync_state_set=frozenset({1}),
                      sync_state_set_epoch=4, observation=_LIVE),
    ApplyBrokerId(term=5, key=KEY, broker_id=3, check_code="h:4;1"),
    ElectMaster(term=5, key=KEY, trigger=Trigger.CONTROLLER, broker_id=None, preferred=1, observation=Observation({})),
    ElectMaster(term=5, key=KEY, trigger=Trigger.ADMIN, broker_id=1, designate=True, unclean=True, observation=_LIVE),
    CleanBrokerData(term=5, key=KEY, broker_ids=frozenset({2}), clean_living=True, observation=_LIVE),
    CleanBrokerData(term=5, key=KEY, broker_ids=None, observation=_LIVE),
    RegisterBroker(term=5, key=KEY, broker_id=1, address="h:9", learner=True, observation=_LIVE),
    DropEligible(term=5, key=KEY, broker_id=1, master_epoch=2),
    ImportGroups(term=5, groups=(ImportedGroup(GroupKey("c", "x"), _REPLICAS, 3, frozenset({1}), 1, 1, 1),)),
    RaiseFormat(term=5, format=codec.FORMAT + 1),
]


def _varied(data: bytes, templates: list[object]) -> bytes:
    """The rest of the input as it is, or as a variation of one of these; see ``sealing.shaped``."""
    choice = data[0] if data else 0
    return sealing.shaped(data[1:], templates[choice % len(templates)]) if choice >= 0x40 else data[1:]


_PLAIN_COMMANDS: Final[list[object]] = [cbor2.loads(codec.encode(command, codec.FORMAT)) for command in _COMMANDS]


def check_commands(data: bytes) -> None:
    raw = _varied(data, _PLAIN_COMMANDS)
    machine = MetadataMachine()
    machine.restore_from(iter([_WHOLE]))
    try:
        command = codec.decode(raw)
    except codec.MalformedCommand as error:
        said = str(error)
        assert len(said) < 1_000
        assert not machine.apply_at(raw, 5).changed
        assert machine.state_hash() == _HASH
        return
    assert codec.decode(codec.encode(command, codec.FORMAT)) == command
    try:
        outcome = machine.apply_at(raw, 5)
    except codec.FormatTooNew:
        assert isinstance(command, RaiseFormat) and command.format == codec.FORMAT + 1
        return
    assert outcome.changed == (machine.state_hash() != _HASH)
    if outcome.changed:
        again = MetadataMachine()
        again.restore_from(iter([_snapshot(dict(machine.groups))]))
        assert again.state_hash() == machine.state_hash()


def _command_seeds() -> list[bytes]:
    plain = [b"\0" + codec.encode(command, codec.FORMAT) for command in _COMMANDS]
    return [*plain, *(bytes([0x40 + number]) + bytes(40) for number in range(len(_COMMANDS)))]


# --- snapshots -----------------------------------------------------------------------------------------------


def _blocks(whole: bytes) -> list[object]:
    found, at = [], 0
    while at < len(whole):
        (length,) = struct.unpack_from(">I", whole, at)
        found.append(cbor2.loads(whole[at + 4 : at + 4 + length]))
        at += 4 + length
    return found


_BLOCKS: Final = _blocks(_WHOLE)


def check_snapshot(data: bytes) -> None:
    if data[:1] >= b"\x40":
        cut = len(data) * data[0] >> 8
        made = [sealing.shaped(data[1 : cut + 1], _BLOCKS[0]) if data[0] & 1 else cbor2.dumps(_BLOCKS[0]),
                sealing.shaped(data[cut + 1 :], _BLOCKS[1])]
        raw = b"".join(struct.pack(">I", len(block)) + block for block in made)
    else:
        raw = data[1:]
    half = len(raw) // 2
    machine, empty = MetadataMachine(), MetadataMachine().state_hash()
    try:
        machine.restore_from(iter([raw[:half], b"", raw[half:]]))
    except (snapshot.UnreadableSnapshot, codec.FormatTooNew) as error:
        said = str(error)
        assert len(said) < 1_000
        assert machine.state_hash() == empty
        return
    again = MetadataMachine()
    again.restore_from(iter([_snapshot(dict(machine.groups))]))
    assert again.state_hash() == machine.state_hash()


def _snapshot_seeds() -> list[bytes]:
    return [b"\0" + _WHOLE, b"\0" + _snapshot({}), b"\x40" + bytes(60), b"\x80" + bytes(60), b"\x81" + bytes(80)]


def _target(about: str, check: Callable[[bytes], None], seeds: Callable[[], list[bytes]]) -> Target:
    return Target(about, check, seeds, 384)


CONTROLLER_TARGETS: Final[dict[str, Target]] = {
    "controller-requests": _target("controller.requests: read_command, read_heartbeat", check_requests, _request_seeds),
    "controller-commands": _target("metadata.codec.decode, MetadataMachine.apply_at", check_commands, _command_seeds),
    "controller-snapshot": _target("metadata.snapshot.read, MetadataMachine.restore_from", check_snapshot,
                                   _snapshot_seeds),
}
