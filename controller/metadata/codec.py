"""Commands as bytes, as they stand in the log: a CBOR list ``[format, kind, term, field, ...]``.

*Formats.* A log outlives the version that wrote it, and while a group is upgraded node by node its members must still
decide the same. So the format in use is part of the replicated state: it starts at 1, every node refuses what is
newer than it (a newer node too, which could read it), and ``RaiseFormat`` moves it when the leader knows that every
member reads the next. A node reads all formats from 1 to ``FORMAT``. Names of policies are part of the format.

*A field that format N adds* stands after those of format N - 1, here and in ``controller.metadata.snapshot``. Its
``pack`` writes it where ``in_format >= N``. Its ``unpack`` gives it a default where ``in_format < N``: that is the
format that the bytes name, and commands of an older one may follow a ``RaiseFormat`` in the log. *A rule that format N
adds* asks the machine's format in use, never the bytes and never ``FORMAT``: below N it decides as before, and a field
that the older format cannot carry counts for nothing, in a preview too.

Kinds 1 to 6 are numbered like the event types of Java's ``EventType``; the bytes are not Java's.
This module knows the commands' shapes and not what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

import cbor2

from controller.metadata.commands import (
    AlterSyncStateSet,
    AnyCommand,
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
from controller.metadata.fields import flag, ids, integer, items, optional, text
from controller.metadata.groups import GroupKey, Replica

FORMAT: Final = 2
"""The newest that this version reads and writes."""
DAMAGED: Final = (
    ValueError, TypeError, cbor2.CBORError, RecursionError, OverflowError, MemoryError,
)
"""All that reading foreign bytes as CBOR may raise."""


class FormatTooNew(Exception):
    """The group has moved to a format that this version cannot read. Going on would be a guess; upgrade this node."""


class MalformedCommand(ValueError):
    """These bytes are no command. The message says why."""


class UnknownFormat(MalformedCommand):
    """A command in a format that is not in use, or none at all."""


def encode(command: Command, in_format: int) -> bytes:
    """The bytes of a command; the same command always gives the same bytes. ``in_format``: the one in use.

    What that format has no field for is left out.
    """
    if not 1 <= in_format <= FORMAT:
        raise ValueError(f"format {in_format} is not written by this version, which writes 1 to {FORMAT}")
    assert command.term >= 0, "no group has been in such a term"
    kind, pack, _ = _KINDS_BY_CLASS[type(command)]
    return cbor2.dumps([in_format, kind, command.term, *pack(command, in_format)])


def decode(data: bytes, in_use: int = FORMAT) -> AnyCommand:
    """Raises ``MalformedCommand`` for anything but the bytes of a command in a format up to ``in_use``."""
    try:
        fields = items(cbor2.loads(data))
        if len(fields) < 3:
            raise ValueError(f"{len(fields)} items; format, kind and term come first")
        found = integer(fields[0])
        if not 1 <= found <= min(in_use, FORMAT):
            raise UnknownFormat(f"format {found} is not in use: that is {in_use}")
        known = _UNPACK.get(integer(fields[1]))
        if known is None:
            raise ValueError(f"there is no command of kind {fields[1]}")
        return known(integer(fields[2], 0), fields[3:], found)
    except MalformedCommand:
        raise
    except DAMAGED as error:
        raise MalformedCommand(f"not a command: {error}") from error


def check_reads(reads: int, in_use: int) -> None:
    """Raises ``FormatTooNew`` where a node that ``reads`` so much cannot follow."""
    if in_use > reads:
        raise FormatTooNew(f"the group uses format {in_use}; this version reads up to {reads}: upgrade this node")


# --- parts ---------------------------------------------------------------------------------------------------


def _pack_live(observation: Observation, in_format: int) -> dict[int, list[Any]]:
    return {
        broker_id: [r.epoch, r.max_offset, r.confirm_offset, r.priority, r.learner, r.min_in_sync_replicas,
                    *([r.life, r.address] if in_format >= 2 else [])]
        for broker_id, r in sorted(observation.live.items())
    }


def _observation(value: Any, in_format: int) -> Observation:
    if type(value) is not dict:
        raise ValueError(f"{str(value)[:40]} where the live brokers are due")
    live = {}
    for broker_id, replica in value.items():
        epoch, longest, confirmed, priority, learner, least, *since_2 = items(replica, 6 if in_format < 2 else 8)
        life, address = since_2 or (None, None)
        live[integer(broker_id)] = LiveReplica(
            integer(epoch), integer(longest), integer(confirmed), integer(priority), flag(learner),
            optional(least, integer), optional(life, _life), optional(address, text))
    return Observation(live)


def pack_replicas(replicas: Mapping[int, Replica], in_format: int) -> list[list[Any]]:
    """Members as lists, in the order of ids. Snapshots hold them in the same form."""
    return [[broker_id, r.address, r.check_code, r.learner, *([r.life] if in_format >= 2 else [])]
            for broker_id, r in sorted(replicas.items())]


def replicas_of(value: Any, in_format: int) -> dict[int, Replica]:
    """Back from ``pack_replicas``. Raises ``ValueError``."""
    found = {}
    for item in items(value):
        broker_id, address, check_code, learner, *life = items(item, 4 if in_format < 2 else 5)
        found[integer(broker_id)] = Replica(
            text(address), optional(check_code, text), flag(learner), *(optional(each, _life) for each in life))
    if len(found) != len(value) or list(found) != sorted(found):
        raise ValueError(f"replicas {list(found)} are not in the order of ids, each once")
    return found


def _life(value: Any) -> int:
    return integer(value, 1)


def _key(cluster: Any, name: Any) -> GroupKey:
    return GroupKey(text(cluster), text(name))


# --- one pair for each kind ----------------------------------------------------------------------------------


def _pack_alter(c: AlterSyncStateSet, in_format: int) -> list[Any]:
    fields = [*c.key, c.broker_id, c.master_epoch, sorted(c.sync_state_set), c.sync_state_set_epoch,
              _pack_live(c.observation, in_format)]
    return [*fields, c.least] if in_format >= 2 else fields


def _alter(term: int, fields: list[Any], in_format: int) -> AlterSyncStateSet:
    cluster, name, broker_id, master_epoch, members, epoch, live, least = items(
        fields if in_format >= 2 else [*fields, None], 8)
    return AlterSyncStateSet(
        term=term, key=_key(cluster, name), broker_id=integer(broker_id), master_epoch=integer(master_epoch),
        sync_state_set=ids(members), sync_state_set_epoch=integer(epoch), observation=_observation(live, in_format),
        least=optional(least, integer))


def _pack_apply(c: ApplyBrokerId, in_format: int) -> list[Any]:
    return [*c.key, c.broker_id, c.check_code]


def _apply(term: int, fields: list[Any], in_format: int) -> ApplyBrokerId:
    cluster, name, broker_id, check_code = items(fields, 4)
    return ApplyBrokerId(
        term=term, key=_key(cluster, name), broker_id=integer(broker_id), check_code=text(check_code))


def _pack_elect(c: ElectMaster, in_format: int) -> list[Any]:
    return [*c.key, int(c.trigger), c.broker_id, c.designate, c.unclean, c.policy, c.preferred,
            _pack_live(c.observation, in_format)]


def _elect(term: int, fields: list[Any], in_format: int) -> ElectMaster:
    cluster, name, trigger, broker_id, designate, unclean, policy, preferred, live = items(fields, 9)
    return ElectMaster(
        term=term, key=_key(cluster, name), trigger=Trigger(integer(trigger)), broker_id=optional(broker_id, integer),
        designate=flag(designate), unclean=flag(unclean), policy=text(policy), preferred=optional(preferred, integer),
        observation=_observation(live, in_format))


def _pack_clean(c: CleanBrokerData, in_format: int) -> list[Any]:
    return [*c.key, None if c.broker_ids is None else sorted(c.broker_ids), c.clean_living,
            _pack_live(c.observation, in_format)]


def _clean(term: int, fields: list[Any], in_format: int) -> CleanBrokerData:
    cluster, name, broker_ids, clean_living, live = items(fields, 5)
    return CleanBrokerData(
        term=term, key=_key(cluster, name), broker_ids=optional(broker_ids, ids), clean_living=flag(clean_living),
        observation=_observation(live, in_format))


def _pack_register(c: RegisterBroker, in_format: int) -> list[Any]:
    return [*c.key, c.broker_id, c.address, c.learner, _pack_live(c.observation, in_format),
            *([c.life, c.running, c.instead_of] if in_format >= 2 else [])]


def _register(term: int, fields: list[Any], in_format: int) -> RegisterBroker:
    cluster, name, broker_id, address, learner, live, *since_2 = items(fields, 6 if in_format < 2 else 9)
    life, running, instead_of = since_2 or (None, False, None)
    return RegisterBroker(
        term=term, key=_key(cluster, name), broker_id=integer(broker_id), address=text(address), learner=flag(learner),
        life=optional(life, _life), running=flag(running), instead_of=optional(instead_of, _process),
        observation=_observation(live, in_format))


def _process(value: Any) -> tuple[str, int | None]:
    address, life = items(value, 2)
    return text(address), optional(life, _life)


def _pack_drop(c: DropEligible, in_format: int) -> list[Any]:
    return [*c.key, c.broker_id, c.master_epoch]


def _drop(term: int, fields: list[Any], in_format: int) -> DropEligible:
    cluster, name, broker_id, master_epoch = items(fields, 4)
    return DropEligible(
        term=term, key=_key(cluster, name), broker_id=integer(broker_id), master_epoch=integer(master_epoch))


def _pack_import(c: ImportGroups, in_format: int) -> list[Any]:
    return [[
        [*g.key, pack_replicas(g.replicas, in_format), g.next_broker_id, sorted(g.sync_state_set),
         g.sync_state_set_epoch, g.master, g.master_epoch]
        for g in c.groups
    ]]


def _import(term: int, fields: list[Any], in_format: int) -> ImportGroups:
    groups = []
    [listed] = items(fields, 1)
    for item in items(listed):
        cluster, name, replicas, following, members, epoch, master, master_epoch = items(item, 8)
        groups.append(ImportedGroup(
            _key(cluster, name), replicas_of(replicas, in_format), integer(following), ids(members), integer(epoch),
            optional(master, integer), integer(master_epoch)))
    return ImportGroups(term=term, groups=tuple(groups))


def _pack_raise(c: RaiseFormat, in_format: int) -> list[Any]:
    return [c.format]


def _raise(term: int, fields: list[Any], in_format: int) -> RaiseFormat:
    [wanted] = items(fields, 1)
    return RaiseFormat(term=term, format=integer(wanted, 1))


_Pack = Callable[[Any, int], list[Any]]
_Unpack = Callable[[int, list[Any], int], AnyCommand]
_KINDS: Final[list[tuple[int, type[Command], _Pack, _Unpack]]] = [
    (1, AlterSyncStateSet, _pack_alter, _alter),
    (2, ApplyBrokerId, _pack_apply, _apply),
    (3, ElectMaster, _pack_elect, _elect),
    (5, CleanBrokerData, _pack_clean, _clean),
    (6, RegisterBroker, _pack_register, _register),
    (7, DropEligible, _pack_drop, _drop),
    (8, ImportGroups, _pack_import, _import),
    (9, RaiseFormat, _pack_raise, _raise),
]
_KINDS_BY_CLASS: Final = {made: (kind, pack, unpack) for kind, made, pack, unpack in _KINDS}
_UNPACK: Final = {kind: unpack for kind, _, _, unpack in _KINDS}
assert _KINDS_BY_CLASS.keys() == set(get_args(AnyCommand)), "every command has its bytes"
assert len(_UNPACK) == len(_KINDS), "every kind is one command"
