"""A broker's identity: which id is its own (1012, 1013), and where it is now (1003).

An id is bound to a check code that the broker made up and keeps until it is answered. Binding is compare-and-set, so a
broker that asks again with the same code gets the same answer, whatever was lost in between.

    1013: the id is                       the check code is       the answer
    a member's                            that member's           success, nothing changes
    a member's                            another, or unknown     2014
    the next one                          any                     bound; the next one is one higher
    lower: it was bound, and cleaned      any                     2014: an id is never bound again
    higher                                any                     2014: ids are given in order

Java accepts any unused id and counts how many it bound, so after an id out of order its counter stands at one in use
and every broker that asks for the next is refused; here the next id is always one more than the largest ever. A refusal
names the next id, as the design of persistent ids says ("Persistent unique BrokerId", apache/rocketmq#5989); Java
leaves that out.

    1003: the process on record is        the answer
    this one, by its life                 success: its address is what it says now
    this one, by its address: it has      success; its life is on record from now on. Unless it was running before, a
    no life on record                     master's eligible ones go (``eligible``)
    another one                           2014, unless the proposer judged that very one dead: then success, and where
                                          it was master nobody leads its epoch any more

Names must be storable where brokers keep them: ``cluster#broker#id#code`` in a file, ``1;2`` in lists.
Pure: functions of the group and the command.
"""

from __future__ import annotations

from typing import Final

import attrs

from controller.metadata.commands import ApplyBrokerId, RegisterBroker
from controller.metadata.groups import BrokerGroup, GroupKey, Replica
from controller.metadata.outcomes import (
    BrokerIdApplied,
    BrokerIdRefused,
    Outcome,
    Refused,
    Registered,
    UnknownLife,
)
from remoting.codes import ResponseCode

NAME_CHARS_MAX: Final = 255
CHECK_CODE_CHARS_MAX: Final = 512
REPLICAS_MAX: Final = 1_000
"""Members of one group at a time. Cleaned ones do not count: brokers that lose their ids again and again use up ids."""
BROKER_ID_MAX: Final = 2**53
"""Largest number that every reader of JSON keeps exact."""


def apply_broker_id(group: BrokerGroup, command: ApplyBrokerId) -> tuple[Outcome, BrokerGroup]:
    """The outcome, and the group after it (the same object when nothing changes)."""
    wrong = key_problem(command.key) or check_code_problem(command.check_code)
    if wrong:
        return Refused(code=ResponseCode.CONTROLLER_INVALID_REQUEST, remark=wrong), group
    key, broker_id, following = command.key, command.broker_id, group.next_broker_id
    assert group.removed or max(group.replicas) < following, "the next id is above all"
    member = group.replicas.get(broker_id)
    if member is not None and member.check_code == command.check_code:
        return BrokerIdApplied(key=key, broker_id=broker_id, next_broker_id=following), group
    if member is not None:
        owner = "another check code" if member.check_code else "a check code that is not known here"
        remark = f"broker id {broker_id} of {key} is bound to {owner}; the next is {following}"
    elif broker_id != following:
        why = "was given out before, and never is again" if 0 < broker_id < following else "is out of order"
        remark = f"broker id {broker_id} of {key} {why}; the next is {following}"
    elif len(group.replicas) >= REPLICAS_MAX or broker_id >= BROKER_ID_MAX:
        remark = f"{key} has {len(group.replicas)} members and has given out {broker_id - 1} ids, which is all it may"
    else:
        replica = Replica(address_in(command.check_code), command.check_code)
        after = attrs.evolve(group, replicas={**group.replicas, broker_id: replica}, next_broker_id=following + 1)
        return BrokerIdApplied(key=key, broker_id=broker_id, next_broker_id=following + 1, changed=True), after
    return BrokerIdRefused(key=key, next_broker_id=following, remark=remark), group


def register(group: BrokerGroup, command: RegisterBroker, in_use: int) -> tuple[Outcome, BrokerGroup]:
    """The outcome, and the group after it (the same object when nothing changes, as when a broker moved nowhere).

    ``in_use``: the log's format. From 2 on a process that is not the one on record comes in only in place of one that
    the proposer judged dead, and where that was master nobody leads its epoch any more.
    """
    lives = in_use >= 2
    assert lives or not group.vacant, "only a rule of format 2 leaves a place vacant"
    wrong = address_problem(command.address)
    if wrong:
        return Refused(code=ResponseCode.CONTROLLER_INVALID_REQUEST, remark=wrong), group
    known = group.replicas.get(command.broker_id)
    if known is None:
        what = "group" if group.removed else f"broker {command.broker_id} in group"
        return Refused(code=ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
                       remark=f"no {what} {command.key}; apply for a broker id first"), group
    after = group
    another = lives and not known.is_process(command.address, command.life)
    if lives and displaces(known, command):
        return not_dead(known, command), group
    assert not another or command.instead_of == (known.address, known.life), "only the dead are replaced"
    here = attrs.evolve(
        known, address=command.address, learner=command.learner, life=command.life if lives else known.life)
    if here != known:
        after = attrs.evolve(after, replicas={**group.replicas, command.broker_id: here})
    if command.broker_id == after.master:
        same = lives and (command.running or command.life == known.life is not None)
        if another:
            after = attrs.evolve(after, vacant=True)
        elif after.eligible and not same:
            after = attrs.evolve(after, eligible=frozenset())  # a new process of the master ends it: see ``eligible``
    assert list(after.replicas) == list(group.replicas), "nobody comes or goes by registering"
    assert after.leader in (group.leader, None), "registering makes nobody a leader"
    leader = after.leader
    master = leader if leader is not None and command.observation.sees(leader, after.replicas.get(leader)) else None
    return Registered(
        key=command.key, broker_id=command.broker_id, changed=after is not group,
        master=master, address=after.address_of(master), life=after.life_of(master),
        master_epoch=None if master is None else after.master_epoch,
        sync_state_set=after.sync_state_set, sync_state_set_epoch=after.sync_state_set_epoch,
    ), after


def displaces(known: Replica, command: RegisterBroker) -> bool:
    """Return whether this is another process than the one on record, and that one was not judged dead."""
    return not known.is_process(command.address, command.life) and command.instead_of != (known.address, known.life)


def not_dead(known: Replica, command: RegisterBroker) -> Refused:
    """Return the refusal for a process that must ask again: the one on record is not known to be dead."""
    assert command.instead_of != (known.address, known.life), "one that is judged dead is replaced"
    return Refused(code=ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark=(
        f"broker {command.broker_id} of {command.key} is another process, at {known.address}, which is not known to be "
        "dead: this process may replace it once its connection closes or its heartbeats stop"))


def unknown_life(known: Replica, command: RegisterBroker) -> UnknownLife:
    """Return the refusal for a process whose store does not know the one on record."""
    assert known.life is not None and known.life != command.life, "another process is on record"
    return UnknownLife(life=known.life, remark=(
        f"the store of broker {command.broker_id} of {command.key} is an older copy: another process was registered "
        "since, whose log may hold more"))


def address_in(check_code: str) -> str:
    """Return the text before the first ``;``: the address that the broker had when it made the code up."""
    return check_code.partition(";")[0]


def key_problem(key: GroupKey) -> str | None:
    """Return why no group can have this key; None if one can."""
    return name_problem("cluster name", key.cluster) or name_problem("broker name", key.name)


def name_problem(what: str, name: str) -> str | None:
    """Return why this cannot be a name; None if it can."""
    if not name.strip():
        return f"the {what} is missing or blank"
    if len(name) > NAME_CHARS_MAX:
        return f"the {what} has {len(name)} characters; at most {NAME_CHARS_MAX} are allowed"
    if not name.isprintable() or "#" in name or ";" in name:
        return f"the {what} {name!r} must be printable and without '#' and ';', which delimit it in files and lists"
    return None


def check_code_problem(check_code: str) -> str | None:
    """Return why this cannot be a check code; None if it can. ``#`` would split it in the broker's file."""
    if len(check_code) > CHECK_CODE_CHARS_MAX:
        return f"the register check code has {len(check_code)} characters; at most {CHECK_CODE_CHARS_MAX} are allowed"
    if "#" in check_code or not check_code.isprintable():
        return f"the register check code {check_code!r} must be printable and without '#'"
    if not check_code.strip():
        return "the register check code is missing or blank"
    wrong = address_problem(address_in(check_code))
    return f"the register check code {check_code!r} must be like host:port;millis: {wrong}" if wrong else None


def address_problem(address: str) -> str | None:
    """Return why this cannot be a broker's address; None if it can."""
    if not address or len(address) > NAME_CHARS_MAX or not address.isprintable() or " " in address:
        return f"{address[:NAME_CHARS_MAX]!r} is no broker address like host:port"
    return None
