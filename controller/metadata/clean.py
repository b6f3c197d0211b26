"""CleanBrokerData (1011): forget brokers, or a whole group.

    the group is        ids          living are among them     and then             the answer
    unknown             any          -                         -                    2009, also when forced
    known               none given   -                         it has a master      2009 unless forced
    known               none given   yes                       -                    2009 unless forced
    known               given        yes                       -                    2009 unless forced
    known               given        -                         one was never bound  2009, also when forced
    known               given        -                         members would remain,
                                                               but none in sync     2009, also when forced
    known               -            -                         -                    success

``clean_living`` forces. Ids that were cleaned before are no mistake, so a command may be repeated. A removed id leaves
the SyncStateSet (its epoch rises by one) and who is eligible; a removed master leaves none (the master epoch rises by
one). The group stays while it has a member; when the last goes, what must never restart from zero stays: the next id
and both epochs. So no id is bound twice and no master epoch has two masters, however often a group comes and goes;
*the same life of a broker group* is, here, all of its time.

Java ignores the ids when forced and removes the whole group; without ids and without a master it removes living
brokers; it keeps a removed master as the master, raises no epoch, and drops the two halves of a group one by one,
after which the group is unknown to some calls and the next id applied for wipes the rest. The last refusal is ours: a
clean must not make the next election an unclean one; elect somebody first (unclean, if it must be), or clean all.
Pure: a function of the group and the command.
"""

from __future__ import annotations

import attrs

from controller.metadata.commands import CleanBrokerData
from controller.metadata.groups import BrokerGroup
from controller.metadata.outcomes import Cleaned, Outcome, Refused
from remoting.codes import ResponseCode


def parse_ids(text: str | None) -> frozenset[int] | None:
    """``1;2`` as ids; None for a blank text, which means the whole group.

    Raises ``ValueError`` that names what is wrong.
    """
    if text is None or not text.strip():
        return None
    ids = set()
    for item in text.split(";"):
        if item.strip():
            if not (item.strip().isascii() and item.strip().isdigit()) or len(item.strip()) > 18:
                raise ValueError(f"{item.strip()[:40]!r} is no broker id; ids are numbers separated by ';'")
            ids.add(int(item))
    if not ids:
        raise ValueError(f"{text[:40]!r} names no broker id; leave it out to mean the whole group")
    return frozenset(ids)


def clean(group: BrokerGroup, command: CleanBrokerData) -> tuple[Outcome, BrokerGroup]:
    """The outcome, and the group after it (the same object when nothing changes)."""
    wrong = _problem(group, command)
    if wrong:
        return Refused(code=ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark=wrong), group
    removed = frozenset(group.replicas) & _asked(group, command)
    if not removed:
        return Cleaned(key=command.key, removed_ids=removed, group_removed=False, lost_master=False), group
    lost_master = group.master in removed
    assert max(removed) < group.next_broker_id, "a cleaned id stays below the next, so it is never bound again"
    shrunk = group.sync_state_set - removed
    after = attrs.evolve(
        group,
        replicas={broker_id: r for broker_id, r in group.replicas.items() if broker_id not in removed},
        sync_state_set=shrunk,
        sync_state_set_epoch=group.sync_state_set_epoch + (shrunk != group.sync_state_set),
        master=None if lost_master else group.master,
        master_epoch=group.master_epoch + lost_master,
        vacant=group.vacant and not lost_master,
        eligible=group.eligible - removed,
    )
    assert after.electable <= after.replicas.keys(), "nobody can elect who was cleaned"
    assert after.removed or bool(after.sync_state_set) == bool(group.sync_state_set), "the next election can be clean"
    return Cleaned(
        key=command.key, changed=True, removed_ids=removed, group_removed=after.removed, lost_master=lost_master,
    ), after


def _asked(group: BrokerGroup, command: CleanBrokerData) -> frozenset[int]:
    return frozenset(group.replicas) if command.broker_ids is None else command.broker_ids


def _problem(group: BrokerGroup, command: CleanBrokerData) -> str | None:
    """Return why this must not be done; None if it may."""
    key = command.key
    if group.removed:
        return f"no broker group {key} is registered"
    asked = _asked(group, command)
    unknown = sorted(i for i in asked if not 0 < i < group.next_broker_id)
    if unknown:
        return f"{key} never had broker {unknown[0]}; it has {sorted(group.replicas)}"
    if not command.clean_living:
        if command.broker_ids is None and group.master is not None:
            return f"{key} has a master, broker {group.master}; name the brokers to clean, or force it"
        living = sorted(asked & group.replicas.keys() & command.observation.live.keys())
        if living:
            return f"broker {living[0]} of {key} is alive; stop it first, or force it"
    if group.sync_state_set and asked >= group.sync_state_set and not asked >= group.replicas.keys():
        rest = sorted(group.replicas.keys() - asked)
        return (f"without {sorted(asked & group.sync_state_set)} nobody of {key} is in sync any more; elect one of "
                f"{rest} first, uncleanly if it must be, or clean the whole group")
    return None
