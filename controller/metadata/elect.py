"""Elections (1002): who becomes master of a group, if anybody.

    row  the group                  asked for        the decision
    1    unknown                    anything         2010
    2    broker not a member        BROKER           2010
    3    never had a master         a broker         that one if it is a member, alive and no learner, else 2012
    4    never had a master         no one           2004, nothing written
    5    master alive               no other one     2011 with the master
    6    an electable one is alive  fitting          the one designated, or whom the policy chooses: a new epoch
    7    none                       CONTROLLER       2004; the lost master is recorded as none, once, in a new epoch
    8    none                       a broker         2012, nothing written
    9    none                       no one           2004, nothing written

Electable are the SyncStateSet and who is eligible beside it; with ``unclean``, then all members. Learners never. As
in ``ReplicasInfoManager.electMaster``, the broker that asks gets no preference after the first election.

Differs from Java where that is wrong: rows 2 and 3 check membership and liveness (Java makes even an id that nobody
has master); row 4 writes no epoch (in Java it bricks the group, whose SyncStateSet stays empty for ever); row 7 writes
one epoch per lost master, not one per attempt; "never had a master" means an empty SyncStateSet, so that a group that
such a Java controller bricked recovers. Alive is who was heard in the life that is on record; where another process
has registered as the master since (``vacant``) none is, for row 5. Pure: a function of the group and the command.
"""

from __future__ import annotations

import attrs

from controller.metadata import eligible
from controller.metadata.commands import ElectMaster, LiveReplica, Observation, Trigger
from controller.metadata.groups import BrokerGroup
from controller.metadata.outcomes import Elected, MasterStillExists, NotElected, Outcome, Refused
from controller.metadata.policy import POLICIES
from remoting.codes import ResponseCode

_NEED_TO_BE_REGISTERED = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


def elect(group: BrokerGroup, command: ElectMaster) -> tuple[Outcome, BrokerGroup]:
    """The outcome, and the group after it (the same object when nothing changes)."""
    asked = None if command.trigger is Trigger.CONTROLLER else command.broker_id
    if group.removed:
        return Refused(code=_NEED_TO_BE_REGISTERED, remark=f"no broker group {command.key} is registered"), group
    if command.trigger is Trigger.BROKER and asked is not None and asked not in group.replicas:
        return Refused(code=_NEED_TO_BE_REGISTERED, remark=f"{command.key} has no broker {asked}"), group
    if command.policy not in POLICIES:
        remark = f"no elect policy {command.policy!r}; there are {', '.join(POLICIES)}"
        return Refused(code=ResponseCode.CONTROLLER_INVALID_REQUEST, remark=remark), group
    if command.designate and asked is None:
        remark = "an election that designates must name the broker"
        return Refused(code=ResponseCode.CONTROLLER_INVALID_REQUEST, remark=remark), group
    target = asked if command.designate or not group.sync_state_set else None
    leader = group.leader
    assert leader is None or leader in group.sync_state_set, "a master is in sync with itself"
    if leader is not None and target in (None, leader) and command.observation.sees(leader, group.replicas[leader]):
        return _still_exists(group, leader, command), group
    winner = _winner(group, command, target)
    return _nobody(group, command, asked) if winner is None else _elected(group, command, winner)


def _winner(group: BrokerGroup, command: ElectMaster, target: int | None) -> int | None:
    for pool in _pools(group, command, target):
        candidates = _candidates(group, command.observation, pool)
        if target is not None:
            if target in candidates:
                return target
        elif candidates:
            chosen = POLICIES[command.policy].choose(candidates, command.preferred)
            assert chosen in candidates, "a policy chooses badly at worst, never a stranger"
            return chosen
    return None


def _pools(group: BrokerGroup, command: ElectMaster, target: int | None) -> list[frozenset[int]]:
    """From whom to choose, the better pool first."""
    assert target is None or target == command.broker_id, "only who asks is aimed at"
    if not group.sync_state_set:
        return [frozenset() if target is None else frozenset({target})]
    return [group.electable, frozenset(group.replicas)] if command.unclean else [group.electable]


def _candidates(
    group: BrokerGroup, observation: Observation, pool: frozenset[int]
) -> dict[int, LiveReplica]:
    """Return the members of the pool that may win: alive, and no learner by registration or heartbeat.

    Source: apache/rocketmq#10013.
    """
    return {
        broker_id: observation.live[broker_id]
        for broker_id in sorted(pool)
        if observation.sees(broker_id, group.replicas.get(broker_id))
        and not (observation.live[broker_id].learner or group.replicas[broker_id].learner)
    }


def _elected(group: BrokerGroup, command: ElectMaster, winner: int) -> tuple[Elected, BrokerGroup]:
    assert winner in group.electable or command.unclean or not group.sync_state_set, "clean, or allowed not to be"
    after = attrs.evolve(
        group,
        master=winner,
        master_epoch=group.master_epoch + 1,
        sync_state_set=frozenset({winner}),
        sync_state_set_epoch=group.sync_state_set_epoch + 1,
        eligible=eligible.after_election(group, winner, command.observation.live[winner]),
        vacant=False,
    )
    assert winner not in after.eligible <= group.electable, "only who was electable may be elected in its place"
    return Elected(
        key=command.key, master=winner, address=after.replicas[winner].address,
        life=after.replicas[winner].life, master_epoch=after.master_epoch, sync_state_set=after.sync_state_set,
        sync_state_set_epoch=after.sync_state_set_epoch, members=after.addresses(), previous=group.master,
        clean=not group.sync_state_set or winner in group.electable,
    ), after


def _still_exists(group: BrokerGroup, master: int, command: ElectMaster) -> MasterStillExists:
    assert not group.vacant and master in group.sync_state_set, "it leads, and as the process on record"
    return MasterStillExists(
        remark=f"the master of {command.key}, broker {master}, is alive",
        key=command.key, master=master, address=group.replicas[master].address, life=group.replicas[master].life,
        master_epoch=group.master_epoch, sync_state_set=group.sync_state_set,
        sync_state_set_epoch=group.sync_state_set_epoch, members=group.addresses(),
    )


def _nobody(group: BrokerGroup, command: ElectMaster, asked: int | None) -> tuple[NotElected, BrokerGroup]:
    first = not group.sync_state_set
    if asked is not None:
        code = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        why = f"broker {asked} is no member, not alive or a learner" if first else _why(group, command)
    else:
        code = ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
        why = "it never had a master; its first is who asks for it" if first else _why(group, command)
    lost = command.trigger is Trigger.CONTROLLER and group.master is not None
    assert not lost or group.leader is None or not command.observation.sees(
        group.leader, group.replicas[group.leader]), "a living master is not lost"
    after = attrs.evolve(group, master=None, master_epoch=group.master_epoch + 1, vacant=False) if lost else group
    return NotElected(
        code=code, remark=f"no master for {command.key}: {why}", changed=lost, key=command.key,
        master_epoch=after.master_epoch, previous=group.master if lost else None,
    ), after


def _why(group: BrokerGroup, command: ElectMaster) -> str:
    if command.designate and command.broker_id in command.observation.live:
        return f"broker {command.broker_id} may not be elected; {sorted(group.electable)} may, if alive"
    return f"of the electable {sorted(group.electable)} none that may win is alive"
