"""Invariants of the replicated metadata, as code: one function per property, asked after every command.

A ``Checker`` is an observer of a machine. It keeps what no group remembers: who was master in which epoch, and to which
check code each id was ever bound. ``counts`` says how often each property was asked about something; one that was never
asked proves nothing. Properties about what is between brokers and controllers (C14 to C18, C20, C21) are not here.
``raft.invariants.InvariantViolation`` carries the property's name. No property asks the code that it checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from controller.metadata.commands import (
    AlterSyncStateSet,
    AnyCommand,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    ImportGroups,
    LiveReplica,
    RegisterBroker,
)
from controller.metadata.events import Applied
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.outcomes import Altered, BrokerIdApplied, Cleaned, Elected, MasterStillExists, Outcome, Refused
from raft.invariants import require


@attrs.frozen
class Step:
    """One command and one group that it is about."""

    key: GroupKey
    before: BrokerGroup
    command: AnyCommand
    outcome: Outcome
    after: BrokerGroup


@attrs.define(eq=False)
class History:
    """The past of groups that no group itself remembers, by their keys."""

    masters: dict[tuple[GroupKey, int], int | None] = attrs.field(factory=dict)
    """Master of each epoch; None: nobody was, and nobody may be."""
    codes: dict[tuple[GroupKey, int], str | None] = attrs.field(factory=dict)
    """Check code that an id is bound to for ever."""
    lives: dict[tuple[GroupKey, int], int] = attrs.field(factory=dict)
    """Life of the master that led an epoch."""

    def remember(self, step: Step) -> None:
        """After the properties were asked."""
        if step.after.master_epoch:
            self.masters.setdefault((step.key, step.after.master_epoch), step.after.master)
        life = step.after.life_of(step.after.leader)
        if life is not None:
            self.lives.setdefault((step.key, step.after.master_epoch), life)
        for broker_id, replica in step.after.replicas.items():
            self.codes.setdefault((step.key, broker_id), replica.check_code)


def alive(group: BrokerGroup, broker_id: int | None, command: AlterSyncStateSet | ElectMaster) -> bool:
    """Return whether a member was seen alive, and not another process with its id."""
    if broker_id is None or broker_id not in group.replicas or broker_id not in command.observation.live:
        return False
    replica, seen = group.replicas[broker_id], command.observation.live[broker_id]
    if seen.address is None:
        return True
    return seen.life == replica.life if replica.life is not None else seen.address == replica.address


def one_master_per_epoch(step: Step, history: History) -> bool:
    """C1: a master epoch has one master, or none, for ever."""
    known = (step.key, step.after.master_epoch)
    if known not in history.masters:
        return False
    require(history.masters[known] == step.after.master, "INV_C1", "two masters in one epoch", step)
    return True


def master_is_in_sync(step: Step, history: History) -> bool:
    """C2: the master is in the SyncStateSet."""
    if step.after.master is None:
        return False
    require(step.after.master in step.after.sync_state_set, "INV_C2", "the master is not in sync with itself", step)
    return True


def epochs_rise_by_one(step: Step, history: History) -> bool:
    """C3: epochs never fall; a new master raises the one, a new SyncStateSet the other, by exactly one."""
    before, after = step.before, step.after
    masters = after.master_epoch - before.master_epoch
    sets = after.sync_state_set_epoch - before.sync_state_set_epoch
    if isinstance(step.command, ImportGroups):
        require(masters >= 0 and sets >= 0, "INV_C3", "an epoch fell", step)
        return True
    elected = isinstance(step.outcome, Elected)
    require(masters == (elected or after.master != before.master), "INV_C3", "the master epoch is not one on", step)
    moved = elected or after.sync_state_set != before.sync_state_set
    require(sets == moved, "INV_C3", "the SyncStateSet epoch is not one on", step)
    return True


def in_sync_are_members(step: Step, history: History) -> bool:
    """C4: who is in sync or eligible is a member; a group that had a master has somebody in sync as long as it is."""
    after = step.after
    require(after.electable <= after.replicas.keys(), "INV_C4", "a stranger is electable", step)
    require(bool(after.sync_state_set) or after.removed or not step.before.sync_state_set,
            "INV_C4", "nobody is in sync any more", step)
    require(after.master is None or after.master in after.replicas, "INV_C4", "a stranger is master", step)
    return True


def altered_by_its_master(step: Step, history: History) -> bool:
    """C5: a SyncStateSet is altered by the master, in its epoch, knowing the former set, to members that are alive."""
    command, before = step.command, step.before
    if not (isinstance(command, AlterSyncStateSet) and step.after != before):
        return False
    wanted = command.sync_state_set
    require(
        isinstance(step.outcome, Altered) and step.after.sync_state_set == wanted
        and before.master == command.broker_id and before.master_epoch == command.master_epoch
        and before.sync_state_set_epoch == command.sync_state_set_epoch
        and wanted <= before.replicas.keys() and all(alive(before, each, command) for each in wanted)
        and not before.vacant
        and before.master in wanted and wanted != before.sync_state_set,
        "INV_C5", "altered although it must not be", step)
    return True


def election_leaves_the_master_alone(step: Step, history: History) -> bool:
    """C6: right after an election only the master is in sync."""
    if not isinstance(step.outcome, Elected):
        return False
    require(step.after.sync_state_set == {step.outcome.master}, "INV_C6", "the SyncStateSet is not the master", step)
    return True


def elections_are_clean(step: Step, history: History) -> bool:
    """C7: who is elected was electable, unless unclean elections are allowed or it is the first."""
    if not isinstance(step.outcome, Elected) or not isinstance(step.command, ElectMaster):
        return False
    master, before = step.outcome.master, step.before
    require(step.command.unclean or not before.sync_state_set or master in before.electable,
            "INV_C7", "an unclean election", step)
    return True


def living_master_stays(step: Step, history: History) -> bool:
    """C8: while the master is alive, nothing changes unless somebody else is designated."""
    command, before = step.command, step.before
    if before.vacant or not isinstance(command, ElectMaster) or not alive(before, before.master, command) or (
            command.designate and command.broker_id != before.master):
        return False
    require(step.after == before, "INV_C8", "a living master was replaced", step)
    invalid = type(step.outcome) is Refused  # the sender is a stranger, or the command makes no sense
    require(isinstance(step.outcome, MasterStillExists) or invalid, "INV_C8", "nobody is told of the master", step)
    return True


def the_best_wins(step: Step, history: History) -> bool:
    """C9: a winner is a living member and no learner; by the default policy none such in its pool had a longer log."""
    command, before = step.command, step.before
    if not (isinstance(step.outcome, Elected) and isinstance(command, ElectMaster)):
        return False

    def fit(pool: Iterable[int]) -> dict[int, LiveReplica]:
        live = command.observation.live
        return {i: live[i] for i in pool
                if alive(before, i, command) and not live[i].learner and not before.replicas[i].learner}

    master = step.outcome.master
    require(master in fit(before.replicas), "INV_C9", "the winner may not win", step)
    if command.policy == "default" and not command.designate and before.sync_state_set:
        pool = fit(before.electable) or fit(before.replicas)
        require(master in pool, "INV_C9", "the winner is of a worse pool", step)
        best = max((r.epoch, r.max_offset, -r.priority) for r in pool.values())
        won = pool[master]
        require((won.epoch, won.max_offset, -won.priority) == best, "INV_C9", "a better one lost", step)
    return True


def ids_stay_bound(step: Step, history: History) -> bool:
    """C10: ids start at 1; one that was bound to a check code is never bound to another, nor again once cleaned."""
    asked = False
    for broker_id, replica in step.after.replicas.items():
        require(broker_id >= 1, "INV_C10", "an id below 1", step)
        if (step.key, broker_id) in history.codes:
            asked = True
            require(history.codes[step.key, broker_id] == replica.check_code, "INV_C10", "bound to another code", step)
            require(broker_id in step.before.replicas, "INV_C10", "a cleaned id is back", step)
    return asked


def ids_are_compared_and_set(step: Step, history: History) -> bool:
    """C11: who has an id gets it again for the same code; who gets one has it; nobody else's is touched."""
    command = step.command
    if not isinstance(command, ApplyBrokerId):
        return False
    had = step.before.replicas.get(command.broker_id)
    if isinstance(step.outcome, BrokerIdApplied):
        has = step.after.replicas.get(command.broker_id)
        require(has is not None and has.check_code == command.check_code, "INV_C11", "an id that is not there", step)
        require(had is None or had == has, "INV_C11", "an id was taken away", step)
    else:
        require(had is None or had.check_code != command.check_code, "INV_C11", "a repeated claim was refused", step)
        require(step.after == step.before, "INV_C11", "a refused claim changed something", step)
    others = {i: r for i, r in step.after.replicas.items() if i != command.broker_id}
    require(others == {i: r for i, r in step.before.replicas.items() if i != command.broker_id},
            "INV_C11", "somebody else's id changed", step)
    return True


def next_id_is_free(step: Step, history: History) -> bool:
    """C12: the next id is larger than any that was ever bound, and never falls."""
    after = step.after.next_broker_id
    require(after >= step.before.next_broker_id, "INV_C12", "the next id fell", step)
    require(all(i < after for i in step.after.replicas), "INV_C12", "the next id is in use", step)
    require((step.key, after) not in history.codes, "INV_C12", "the next id was in use", step)
    return True


def living_are_not_cleaned(step: Step, history: History) -> bool:
    """C19: living brokers go by force only, and only those named; the group stays while a member does."""
    command = step.command
    if not isinstance(command, CleanBrokerData) or not isinstance(step.outcome, Cleaned):
        return False
    gone = step.before.replicas.keys() - step.after.replicas.keys()
    require(step.outcome.removed_ids == gone, "INV_C19", "the outcome names others than were removed", step)
    require(command.clean_living or not gone & command.observation.live.keys(), "INV_C19", "a living one went", step)
    require(command.broker_ids is None or gone <= command.broker_ids, "INV_C19", "one that was not named went", step)
    require(step.outcome.group_removed == (step.after.removed and bool(gone)), "INV_C19", "wrong about the group", step)
    return True


def one_epoch_per_loss(step: Step, history: History) -> bool:
    """C22: an epoch without a master only where one was lost."""
    before, after = step.before, step.after
    if after.master is not None or after.master_epoch == before.master_epoch:
        return False
    require(before.master is not None or isinstance(step.command, ImportGroups),
            "INV_C22", "an epoch grew although no master was lost", step)
    return True


def one_life_per_epoch(step: Step, history: History) -> bool:
    """C23: a master epoch is led by one process: when another one registers under the master's id, nobody leads it."""
    before, after = step.before, step.after
    if before.master is None or (after.master, after.master_epoch) != (before.master, before.master_epoch):
        return False
    require(after.vacant or not before.vacant, "INV_C23", "an epoch that nobody led any more is led again", step)
    life = after.life_of(after.leader)
    known = history.lives.get((step.key, after.master_epoch))
    require(life is None or known in (None, life), "INV_C23", "two lives in one epoch", step)
    command = step.command
    if isinstance(command, RegisterBroker) and command.broker_id == after.leader and command.instead_of is not None:
        one, other = before.replicas[after.leader], after.replicas[after.leader]
        require(other.life == one.life if one.life is not None else other.address == one.address,
                "INV_C23", "another process came in place of the master, and the epoch is led", step)
    return known is not None or after.vacant


def none_but_the_living_is_on_record(step: Step, history: History) -> bool:
    """C24: an elected broker was alive, with the life and the address on record.

    Only a process that was judged dead goes off the record.
    """
    command, outcome = step.command, step.outcome
    if isinstance(outcome, Elected) and isinstance(command, ElectMaster):
        require(alive(step.before, outcome.master, command), "INV_C24", "the elected is another process", step)
        require(outcome.address == step.after.replicas[outcome.master].address,
                "INV_C24", "elected at another address", step)
        return outcome.life is not None
    if not isinstance(command, RegisterBroker) or step.after == step.before:
        return False
    one = step.before.replicas[command.broker_id]
    if one.life is None or one.life == command.life:
        return False
    require(command.instead_of == (one.address, one.life), "INV_C24", "off the record, and not judged dead", step)
    return True


def eligible_stand_beside_one(step: Step, history: History) -> bool:
    """Eligible brokers were electable, and are not in the SyncStateSet. They become so by an election, or as the set
    shrinks below what its master demands of it; an alter to a set that is large enough ends it."""
    before, after, command = step.before, step.after, step.command
    altered = after.sync_state_set != before.sync_state_set and isinstance(command, AlterSyncStateSet)
    if not after.eligible:
        return bool(before.eligible) and altered
    require(not after.eligible & after.sync_state_set, "INV_ELIGIBLE", "eligible and in sync", step)
    require(after.eligible <= before.electable, "INV_ELIGIBLE", "eligible without having been electable", step)
    if altered:
        assert isinstance(command, AlterSyncStateSet)
        require(command.least is not None and len(after.sync_state_set) < command.least,
                "INV_ELIGIBLE", "eligible beside a set in which its master may acknowledge", step)
    else:
        require(isinstance(step.outcome, Elected) or after.eligible <= before.eligible,
                "INV_ELIGIBLE", "somebody became eligible without an election or an alter", step)
    return True


Invariant = Callable[[Step, History], bool]
"""Raises ``InvariantViolation``; returns whether the step said anything about the property."""

INVARIANTS: Final[dict[str, Invariant]] = {
    "INV_C1": one_master_per_epoch, "INV_C2": master_is_in_sync, "INV_C3": epochs_rise_by_one,
    "INV_C4": in_sync_are_members, "INV_C5": altered_by_its_master, "INV_C6": election_leaves_the_master_alone,
    "INV_C7": elections_are_clean, "INV_C8": living_master_stays, "INV_C9": the_best_wins, "INV_C10": ids_stay_bound,
    "INV_C11": ids_are_compared_and_set, "INV_C12": next_id_is_free, "INV_C19": living_are_not_cleaned,
    "INV_C22": one_epoch_per_loss, "INV_C23": one_life_per_epoch,
    "INV_C24": none_but_the_living_is_on_record, "INV_ELIGIBLE": eligible_stand_beside_one,
}


class Checker:
    """All of it, as the observer of one machine."""

    def __init__(self) -> None:
        self.history = History()
        self.counts: Counter[str] = Counter()

    def __call__(self, applied: Applied) -> None:
        if applied.command is None:
            return
        for key, before, after in applied.groups:
            step = Step(key, before, applied.command, applied.outcome, after)
            require(applied.outcome.changed or after == before, "INV_C13", "a change that its outcome hides", step)
            for name, holds in INVARIANTS.items():
                self.counts[name] += holds(step, self.history)
            self.history.remember(step)
