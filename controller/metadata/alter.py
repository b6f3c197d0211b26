"""AlterSyncStateSet (1001): a master reports who is in sync with it.

Checks in this order, each with its code:

    1  the group is known                                   2013
    2  the sender is the master, and nobody registered in
       its place since                                      2002
    3  in the epoch of its mastership                       2000
    4  and knows the accepted set by its epoch              2001
    5  the set is the accepted one already: success, nothing changes
    6  each id, in order: a member and no learner           2003
       and alive                                            2006
    7  the master is among them                             2013

Java asks 5 before 2 to 4, and answers it 2013, so that a fenced master that reports an old set never learns of its
fence. A learner is not in sync with anybody (it is never elected); the master itself may be one, where it was made
master by a controller that could not tell. Pure: a function of the group and the command.
"""

from __future__ import annotations

import attrs

from controller.metadata import eligible
from controller.metadata.commands import AlterSyncStateSet
from controller.metadata.groups import BrokerGroup
from controller.metadata.outcomes import Altered, Outcome, Refused
from remoting.codes import ResponseCode


def alter(group: BrokerGroup, command: AlterSyncStateSet, in_use: int) -> tuple[Outcome, BrokerGroup]:
    """The outcome, and the group after it (the same object when nothing changes). ``in_use``: the log's format."""
    refused = _fence(group, command)
    if refused is None and command.sync_state_set != group.sync_state_set:
        refused = _unfit(group, command)
        if refused is None:
            assert group.master in command.sync_state_set <= group.replicas.keys(), "the set is its master and members"
            group = attrs.evolve(
                group, sync_state_set=command.sync_state_set, sync_state_set_epoch=group.sync_state_set_epoch + 1,
                eligible=eligible.after_alter(group, command, in_use),
            )
            assert not group.eligible & group.sync_state_set, "who is in sync need not be eligible beside the set"
            return _accepted(group, command, changed=True), group
    return refused or _accepted(group, command, changed=False), group


def _accepted(group: BrokerGroup, command: AlterSyncStateSet, *, changed: bool) -> Altered:
    assert group.sync_state_set == command.sync_state_set, "accepted is what the master reported"
    return Altered(key=command.key, changed=changed, sync_state_set=group.sync_state_set,
                   sync_state_set_epoch=group.sync_state_set_epoch)


def _fence(group: BrokerGroup, command: AlterSyncStateSet) -> Refused | None:
    """Return why the sender does not speak for the group as it is now."""
    if group.removed:
        return Refused(code=ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
                       remark=f"no broker group {command.key} is registered")
    if group.leader is None or command.broker_id != group.leader:
        return Refused(code=ResponseCode.CONTROLLER_INVALID_MASTER,
                       remark=f"broker {command.broker_id} is not the master of {command.key}: that is {group.leader}")
    if command.master_epoch != group.master_epoch:
        return Refused(code=ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
                       remark=f"master epoch {command.master_epoch} of {command.key} is fenced: it is "
                              f"{group.master_epoch}")
    if command.sync_state_set_epoch != group.sync_state_set_epoch:
        return Refused(code=ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
                       remark=f"SyncStateSet epoch {command.sync_state_set_epoch} of {command.key} is fenced: it is "
                              f"{group.sync_state_set_epoch}")
    return None


def _unfit(group: BrokerGroup, command: AlterSyncStateSet) -> Refused | None:
    """Return why this cannot be the set; None if it can."""
    assert command.broker_id == group.leader == group.master, "nobody but the leader passes the fence"
    for broker_id in sorted(command.sync_state_set):
        replica = group.replicas.get(broker_id)
        if replica is None:
            return Refused(code=ResponseCode.CONTROLLER_INVALID_REPLICAS,
                           remark=f"broker {broker_id} is no member of {command.key}")
        seen = command.observation.live.get(broker_id)
        if broker_id != group.master and (replica.learner or (seen is not None and seen.learner)):
            return Refused(code=ResponseCode.CONTROLLER_INVALID_REPLICAS,
                           remark=f"broker {broker_id} of {command.key} is a learner and never in sync")
        if not command.observation.sees(broker_id, replica):
            return Refused(code=ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
                           remark=f"broker {broker_id} of {command.key} is not alive")
    if group.master not in command.sync_state_set:
        return Refused(code=ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
                       remark=f"a SyncStateSet of {command.key} must hold its master, broker {group.master}")
    return None
