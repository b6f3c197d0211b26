"""Requests that may change the metadata (1001-1003, 1011, 1013), as commands for the state machine.

What a command is decided from is put into it here: the term, who is alive, the settings of this controller. Names that
no group can have are refused before anything remembers or repeats them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from controller.active import ActiveController
from controller.liveness import Heartbeat
from controller.metadata.clean import parse_ids
from controller.metadata.commands import (
    PRIORITY_DEFAULT,
    AlterSyncStateSet,
    AnyCommand,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    LiveReplica,
    Observation,
    RegisterBroker,
    Trigger,
)
from controller.metadata.groups import GroupKey
from controller.metadata.identity import (
    BROKER_ID_MAX,
    REPLICAS_MAX,
    address_problem,
    displaces,
    key_problem,
    name_problem,
    not_dead,
    unknown_life,
)
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Refused
from controller.yielding import Ask
from remoting.bodies.controller import SyncStateSet
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.fields import decimal, shown
from remoting.headers.controller import (
    HEARTBEAT_TIMEOUT_MS_MAX,
    NOBODY,
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    BrokerHeartbeatRequest,
    CleanBrokerDataRequest,
    ElectMasterRequest,
    RegisterBrokerToControllerRequest,
)

_MEMBERS_CHARS_MAX: Final = REPLICAS_MAX * (len(str(BROKER_ID_MAX)) + 1)
_NO_MEMBERS: Final = f"must be ids of brokers, with commas between them, {REPLICAS_MAX} at most"


@attrs.frozen
class Seen:
    """This controller's state when it takes a request.

    ``names`` are the groups that this connection spoke for.
    """

    now: int
    machine: MetadataMachine
    active: ActiveController
    names: Mapping[str, GroupKey]

    def group(self, name: str, cluster: str | None) -> GroupKey | Refused:
        wrong = name_problem("broker name", name)
        if not wrong and cluster and cluster.strip():
            wrong = name_problem("cluster name", cluster)
        return refused(wrong) if wrong else self.machine.resolve(name, cluster, self.names.get(name))

    def observe(self, key: GroupKey) -> Observation:
        return self.active.observe(self.now, key)


def refused(remark: str) -> Refused:
    """A request that makes no sense."""
    return Refused(code=ResponseCode.CONTROLLER_INVALID_REQUEST, remark=remark)


def read_heartbeat(request: Command) -> Heartbeat | Refused:
    """Reads the header of a 904. Raises ``HeaderError``."""
    header = BrokerHeartbeatRequest.from_ext(request.ext)
    if header.broker_id is None:
        return refused("Heart beat with empty brokerId")
    key = GroupKey(header.cluster_name, header.broker_name)
    wrong = key_problem(key) or address_problem(header.broker_addr)
    if wrong or header.broker_id < 0:
        return refused(wrong or f"brokerId = {header.broker_id}: ids of brokers are not negative")
    if header.broker_life is not None and header.broker_life < 1:
        return refused(f"brokerLife = {header.broker_life}: must be above 0")
    if header.heartbeat_timeout_ms is not None and header.heartbeat_timeout_ms < 1:
        return refused(f"heartbeatTimeoutMills = {header.heartbeat_timeout_ms}: must be above 0")
    if header.heartbeat_interval_ms is not None and header.heartbeat_interval_ms < 1:
        return refused(f"heartbeatIntervalMs = {header.heartbeat_interval_ms}: must be above 0")
    reaches = _numbers(header.reaches)
    if reaches is None:
        return refused(f"reaches = {shown(header.reaches)}: {_NO_MEMBERS}")
    timeout_ms = header.heartbeat_timeout_ms
    timeout_ms = None if timeout_ms is None else min(timeout_ms, HEARTBEAT_TIMEOUT_MS_MAX)
    replica = LiveReplica(
        epoch=-1 if header.epoch is None else header.epoch,
        max_offset=-1 if header.max_offset is None else header.max_offset,
        confirm_offset=-1 if header.confirm_offset is None else header.confirm_offset,
        priority=PRIORITY_DEFAULT if header.election_priority is None else header.election_priority,
        learner=bool(header.learner), min_in_sync_replicas=header.min_in_sync_replicas, life=header.broker_life,
        address=header.broker_addr)
    return Heartbeat(
        key, header.broker_id, header.broker_addr, replica,
        timeout_ms, header.master_lease_ms or 0, bool(header.all_ack_in_sync_state_set),
        bool(header.log_in_doubt), -1 if header.doubt_epoch is None else header.doubt_epoch,
        header.silent_epoch, reaches, bool(header.disk_trouble), header.heartbeat_interval_ms)


def read_command(request: Command, seen: Seen) -> AnyCommand | Refused:
    """The command that a request asks for. Raises ``HeaderError``, ``BodyError``."""
    return _READERS[RequestCode(request.code)](request, seen)


def _alter(request: Command, seen: Seen) -> AnyCommand | Refused:
    header = AlterSyncStateSetRequest.from_ext(request.ext)
    wanted = SyncStateSet.from_json(request.body)
    key = seen.group(header.broker_name, header.cluster_name)
    if isinstance(key, Refused):
        return key
    return AlterSyncStateSet(
        term=seen.active.term, key=key, broker_id=header.master_broker_id, master_epoch=header.master_epoch,
        sync_state_set=wanted.sync_state_set, sync_state_set_epoch=wanted.sync_state_set_epoch,
        observation=seen.observe(key), least=header.min_in_sync_replicas)


def _elect(request: Command, seen: Seen) -> AnyCommand | Refused:
    header = ElectMasterRequest.from_ext(request.ext)
    if "brokerId" not in request.ext and "brokerAddress" in request.ext:
        return refused("brokerId is missing: releases before 5.1 name brokers by brokerAddress; upgrade the sender")
    key = seen.group(header.broker_name, header.cluster_name)
    if isinstance(key, Refused):
        return key
    broker_id = None if header.broker_id == NOBODY else header.broker_id
    by_itself = broker_id is not None and not header.designate_elect
    settings = seen.active.settings
    if by_itself and header.lost_epoch is not None:
        group = seen.machine.group(key)
        if group is not None and (group.master, group.master_epoch) == (broker_id, header.lost_epoch):
            return ElectMaster(  # treat it as dead: end its epoch, then any living broker may follow
                term=seen.active.term, key=key, trigger=Trigger.CONTROLLER, broker_id=None, observation=Observation())
    if broker_id is not None and by_itself:
        yielded = _yield(header, broker_id, key, seen)
        if yielded is not None:
            return yielded
    observation, policy = seen.observe(key), settings.policy
    if not header.designate_elect:  # a designated broker is taken as it is
        observation, policy = seen.active.candidates(key, observation)
    return ElectMaster(
        term=seen.active.term, key=key, trigger=Trigger.BROKER if by_itself else Trigger.ADMIN, broker_id=broker_id,
        designate=header.designate_elect, unclean=settings.unclean, policy=policy,
        preferred=settings.preferred.get(key), observation=observation)


def _yield(
    header: ElectMasterRequest, broker_id: int, key: GroupKey, seen: Seen
) -> AnyCommand | Refused | None:
    """None: it is no master that asks for a successor, or its epoch is over, and it asks as anybody does."""
    group, holders = seen.machine.group(key), _numbers(header.holders)
    if holders is None:
        return refused(f"holders = {shown(header.holders)}: {_NO_MEMBERS}")
    if group is None or (group.leader, group.master_epoch) != (broker_id, header.yield_epoch):
        return None
    return seen.active.yields(
        seen.now, key, Ask(broker_id, group.master_epoch, header.yield_reason or "", holders))


def _numbers(text: str | None) -> frozenset[int] | None:
    """``2,3``; None if it is no such list, or longer than that of the largest group."""
    if text and (len(text) > _MEMBERS_CHARS_MAX or text.count(",") >= REPLICAS_MAX):
        return None
    numbers = [decimal(each) for each in text.split(",")] if text else []
    members = frozenset(number for number in numbers if number is not None)
    return members if None not in numbers else None


def _register(request: Command, seen: Seen) -> AnyCommand | Refused:
    header = RegisterBrokerToControllerRequest.from_ext(request.ext)
    key = GroupKey(header.cluster_name, header.broker_name)
    wrong = key_problem(key)
    if wrong:
        return refused(wrong)
    if header.broker_life is not None and header.broker_life < 1:
        return refused(f"brokerLife = {header.broker_life}: must be above 0")
    known = _numbers(header.known_lives)
    if known is None:
        return refused(f"knownLives = {shown(header.known_lives)}: must be numbers, with commas between them")
    command = RegisterBroker(
        term=seen.active.term, key=key, broker_id=header.broker_id, address=header.broker_address,
        learner=bool(header.learner), life=header.broker_life, running=bool(header.already_running),
        instead_of=seen.active.instead_of(seen.now, key, header.broker_id, header.broker_address, header.broker_life),
        observation=seen.observe(key))
    group = seen.machine.group(key)
    member = group.replicas.get(header.broker_id) if group is not None else None
    if member is None:
        return command
    if displaces(member, command):
        return not_dead(member, command)
    if header.known_lives is not None and member.life not in (None, command.life, *known):
        return unknown_life(member, command)  # the log refuses what changed by then: ``instead_of`` names this life
    return command


def _clean(request: Command, seen: Seen) -> AnyCommand | Refused:
    header = CleanBrokerDataRequest.from_ext(request.ext)
    key = seen.group(header.broker_name, header.cluster_name)
    if isinstance(key, Refused):
        return key
    try:
        broker_ids = parse_ids(header.broker_controller_ids_to_clean)
    except ValueError as error:
        return Refused(code=ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark=str(error))
    return CleanBrokerData(
        term=seen.active.term, key=key, broker_ids=broker_ids, clean_living=header.is_clean_living_broker,
        observation=seen.observe(key))


def _apply_id(request: Command, seen: Seen) -> AnyCommand | Refused:
    header = ApplyBrokerIdRequest.from_ext(request.ext)
    return ApplyBrokerId(
        term=seen.active.term, key=GroupKey(header.cluster_name, header.broker_name),
        broker_id=header.applied_broker_id, check_code=header.register_check_code)


_READERS: Mapping[RequestCode, Callable[[Command, Seen], AnyCommand | Refused]] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: _alter,
    RequestCode.CONTROLLER_ELECT_MASTER: _elect,
    RequestCode.CONTROLLER_REGISTER_BROKER: _register,
    RequestCode.CLEAN_BROKER_DATA: _clean,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: _apply_id,
}
WRITES = frozenset(_READERS)
"""The codes of this module."""
