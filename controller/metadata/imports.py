"""ImportGroups: groups move here from another controller with their ids, check codes and epochs.

All groups of a command, or none. One that is here already must be equal in all that the import tells; then it counts as
imported, so an import may be repeated. Epochs and the next id only grow, over a removed group of that name too. A
check code that the source does not tell is None: that broker has its id on disk and only registers; who applies for
that id is refused. Pure: a function of the groups and the command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller.metadata.commands import ImportedGroup, ImportGroups
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.identity import BROKER_ID_MAX, REPLICAS_MAX, address_problem, check_code_problem, key_problem
from controller.metadata.outcomes import Imported, Outcome, Refused
from remoting.codes import ResponseCode

EPOCH_MAX: Final = 2**30
"""On the wire epochs have 31 bits; a group that arrives with more than half of them used has a wrong number in it."""


def import_groups(
    group_of: Callable[[GroupKey], BrokerGroup], command: ImportGroups
) -> tuple[Outcome, dict[GroupKey, BrokerGroup]]:
    """The outcome, and the groups that are new by their keys."""
    added: dict[GroupKey, BrokerGroup] = {}
    for item in command.groups:
        here = group_of(item.key)
        wrong = "it is there twice" if item.key in added else _problem(item) or _clash(item, here)
        if wrong:
            return Refused(code=ResponseCode.CONTROLLER_INVALID_REQUEST,
                           remark=f"cannot import {item.key}: {wrong}"), {}
        if here.removed:
            assert here.next_broker_id <= min(item.replicas), "no id of the removed group is bound again"
            assert here.master_epoch <= item.master_epoch, "epochs never fall"
            added[item.key] = BrokerGroup(
                replicas=dict(sorted(item.replicas.items())),
                next_broker_id=max(item.next_broker_id, here.next_broker_id),
                sync_state_set=item.sync_state_set, sync_state_set_epoch=item.sync_state_set_epoch,
                master=item.master, master_epoch=item.master_epoch,
            )
    assert all(group.electable <= group.replicas.keys() for group in added.values()), "the electable are members"
    return Imported(keys=tuple(added), changed=bool(added)), added


def _problem(item: ImportedGroup) -> str | None:
    """Return why no controller can have such a group; None if one can."""
    wrong = key_problem(item.key)
    if wrong:
        return wrong
    if not 1 <= len(item.replicas) <= REPLICAS_MAX:
        return f"it has {len(item.replicas)} brokers; a group has 1 to {REPLICAS_MAX}"
    if not 1 <= min(item.replicas) <= max(item.replicas) < item.next_broker_id <= BROKER_ID_MAX:
        return f"broker ids {sorted(item.replicas)} do not lie between 1 and the next id, {item.next_broker_id}"
    if not item.sync_state_set <= item.replicas.keys():
        return f"the SyncStateSet {sorted(item.sync_state_set)} is not among the brokers {sorted(item.replicas)}"
    if item.master is not None and item.master not in item.sync_state_set:
        return f"the master, broker {item.master}, is not in the SyncStateSet {sorted(item.sync_state_set)}"
    for name, epoch in (("master", item.master_epoch), ("SyncStateSet", item.sync_state_set_epoch)):
        if not bool(item.sync_state_set) <= epoch <= EPOCH_MAX:
            return f"the {name} epoch {epoch} is out of range"
    for broker_id, replica in item.replicas.items():
        wrong = address_problem(replica.address) or (replica.check_code and check_code_problem(replica.check_code))
        if wrong:
            return f"broker {broker_id}: {wrong}"
    return None


def _clash(item: ImportedGroup, here: BrokerGroup) -> str | None:
    """Return why the group cannot come beside what is here; None if it can."""
    if here.removed:
        if item.master_epoch < here.master_epoch or item.sync_state_set_epoch < here.sync_state_set_epoch:
            return (f"a group of that name was removed here at master epoch {here.master_epoch} and SyncStateSet epoch "
                    f"{here.sync_state_set_epoch}; epochs never fall")
        if min(item.replicas) < here.next_broker_id:
            return f"a group of that name was removed here; its ids below {here.next_broker_id} are never bound again"
        return None
    for what, theirs, ours in (
        ("master", item.master, here.master), ("master epoch", item.master_epoch, here.master_epoch),
        ("SyncStateSet", sorted(item.sync_state_set), sorted(here.sync_state_set)),
        ("SyncStateSet epoch", item.sync_state_set_epoch, here.sync_state_set_epoch),
        ("brokers", sorted(item.replicas), sorted(here.replicas)),
    ):
        if theirs != ours:
            return (f"a group of that name is here already, with other data: {what} {str(ours)[:200]} here, "
                    f"{str(theirs)[:200]} there")
    assert item.replicas.keys() == here.replicas.keys(), "the ids were compared above"
    for broker_id, replica in item.replicas.items():
        known = here.replicas[broker_id]
        if replica.address != known.address or replica.check_code not in (None, known.check_code):
            return (f"a group of that name is here already, with other data: broker {broker_id} is at {known.address} "
                    f"here, at {replica.address} there, or has another check code")
    return None
