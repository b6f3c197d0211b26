"""The members of a group, and the legal steps from one membership to another.

*The idea: joint consensus* (Raft, extended version, §6). To go from the voters C to the voters D, a group first becomes
*joint*: an election or a commit then needs a majority of C and a majority of D. When that membership is committed, the
leader appends D alone. A membership counts from the moment at which it is appended, and no longer once it is truncated.
A change is planned from the state that is wanted, one step at a time, so a new leader need not know earlier steps: it
looks where the group is. New voters begin as learners, which count nowhere, and vote once they have caught up.

*Rejected.*

- To go from C to D in one step. A majority of C and one of D may have nobody in common: two leaders in one term.
- One voter at a time, the other way of the thesis (§4.1). Its majorities overlap, but to replace a member takes two
  steps. Between them a group of three has two voters, and survives no failure, or four, and survives only one.
- A membership that counts once it is committed. A leader would count by another one than its followers vote by, and a
  node that lags would go on with an old one.
- To leave the joint state when an operator says so. If the leader died before, nobody would leave it. Any leader that
  finds it committed leaves it (``raft.changes``).

*Why it is right.*

- *Neighbours overlap.* Whatever the joint membership agrees to, a majority of C and one of D agreed to. So each of its
  quorums meets each quorum of C, and each of D. Steps that leave the voters as they are change no quorum.
- *Only neighbours are in use together.* A step is appended only when the one before it is committed, and only after an
  entry of the leader's own term is (raft-dev 2015): that entry commits all before it, so no leader takes a step from a
  membership that another one may have left already.
- So of any two leaders, the later one's quorum has a voter who knows what the earlier one committed, memberships among
  it: one leader in a term, and nothing committed is lost, as without changes.
- *A voter that comes back with another directory* does not know how it voted. It leaves the voters first, and joins
  again as a learner under its new ``incarnation``; until then it counts nowhere (``next_step``).

Pure: no messages, no clock, no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import cbor2

from raft.arguments import NAME_BYTES_MAX, fits
from raft.errors import MalformedMessage
from raft.quorum import has_quorum


@attrs.frozen
class Member:
    """The group's record of one node, besides its role. ``incarnation`` is b"" until the leader has met the node."""

    address: str = ""
    incarnation: bytes = b""
    priority: int = 0


BYTES_MAX = 24 << 10
"""Largest size of a desired membership: together with the former one, while joint, it fits into a snapshot's meta."""


def _sorted(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(ids)))


@attrs.frozen
class Membership:
    """The members of a group by role, ids sorted. While ``outgoing`` is not empty the group is joint: both halves must
    agree."""

    voters: tuple[str, ...] = attrs.field(converter=_sorted, default=())
    outgoing: tuple[str, ...] = attrs.field(converter=_sorted, default=())
    learners: tuple[str, ...] = attrs.field(converter=_sorted, default=())
    members: Mapping[str, Member] = attrs.field(factory=dict)

    @property
    def joint(self) -> bool:
        return bool(self.outgoing)

    @property
    def everyone(self) -> tuple[str, ...]:
        """Voters of both halves, and learners, sorted."""
        return _sorted((*self.voters, *self.outgoing, *self.learners))

    def votes(self, node_id: str) -> bool:
        """Return whether this node counts towards any quorum."""
        return node_id in self.voters or node_id in self.outgoing

    def address_of(self, node_id: str | None) -> str | None:
        """Return a member's address; None for others."""
        member = self.members.get(node_id) if node_id else None
        return member.address if member else None

    def agree(self, yes: Iterable[str]) -> bool:
        """Return whether these ids make a quorum."""
        ids = frozenset(yes)
        return has_quorum(self.voters, self.outgoing, ids.__contains__)

    def encode(self) -> bytes:
        return cbor2.dumps([
            list(self.voters), list(self.outgoing), list(self.learners),
            {name: [m.address, m.incarnation, m.priority] for name, m in sorted(self.members.items())},
        ])

    @classmethod
    def decode(cls, data: bytes) -> Membership:
        """Decode a membership. Raises ``MalformedMessage`` for anything else."""
        try:
            voters, outgoing, learners, members = cbor2.loads(data)
            ids = [*voters, *outgoing, *learners, *members]
            if not all(type(i) is str and i for i in ids):
                raise ValueError("ids must be non-empty text")
            made = {}
            for name, (address, incarnation, priority) in members.items():
                if type(address) is not str or type(incarnation) is not bytes or type(priority) is not int:
                    raise ValueError(f"member {name}")
                made[name] = Member(address, incarnation, priority)
            return cls(voters, outgoing, learners, made)
        except (ValueError, TypeError, AttributeError, cbor2.CBORError, RecursionError, OverflowError,
                MemoryError) as error:
            raise MalformedMessage(f"not a membership: {error}") from error


@attrs.frozen
class Desired:
    """The membership that a group shall reach: ids to addresses (``host:port``), and priorities."""

    voters: Mapping[str, str]
    learners: Mapping[str, str]
    priorities: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Step:
    """The next thing to do: append ``membership``, or (None) wait for ``waiting`` to catch up, or nothing if all is
    done."""

    membership: Membership | None = None
    waiting: tuple[str, ...] = ()


def illegal(desired: Desired) -> str | None:
    """Return the reason why a desired membership is not legal; None if it is."""
    everyone = (*desired.voters.items(), *desired.learners.items())
    for name, address in everyone:
        if type(name) is not str or type(address) is not str:
            return f"ids and addresses (host:port) are text, not {name!r} and {address!r}"
        if not fits(name) or not fits(address):
            return (f"ids and addresses are printable text of at most {NAME_BYTES_MAX} bytes, not {name!r:.80} and "
                    f"{address!r:.80}")
    for name, priority in desired.priorities.items():
        if type(priority) is not int:
            return f"a priority is a whole number, not {priority!r} for {name!r}"
    both = sorted(set(desired.voters) & set(desired.learners))
    if not desired.voters:
        return "a group needs at least one voter"
    if both:
        return f"{', '.join(both)} cannot be voter and learner at once"
    unknown = sorted(set(desired.priorities) - set(desired.voters) - set(desired.learners))
    if unknown:
        return f"a priority is given for {', '.join(unknown)}, who is not to be a member"
    empty = sorted(name for name, address in everyone if not name or not address)
    if empty:
        return f"{empty} lack a name or an address"
    size = len(Membership(desired.voters, (), desired.learners, {
        name: Member(address, bytes(16), desired.priorities.get(name, 0)) for name, address in everyone}).encode())
    return f"names and addresses of {size} bytes; at most {BYTES_MAX} are kept in every snapshot" if (
        size > BYTES_MAX) else None


def leave_joint(current: Membership) -> Membership:
    """Return the second half of a joint change: the membership with the new voters alone (paper §6)."""
    assert current.joint
    keep = {*current.voters, *current.learners}
    made = attrs.evolve(
        current, outgoing=(), members={name: m for name, m in current.members.items() if name in keep})
    assert not made.joint and made.members.keys() <= {*made.everyone}
    return made


def next_step(current: Membership, desired: Desired, strangers: Mapping[str, bytes], caught_up: frozenset[str]) -> Step:
    """Return one legal step from ``current`` towards ``desired``.

    ``strangers`` are members that came back with another directory (and its incarnation): they leave the voters
    first, then rejoin as learners under the new incarnation. New voters are learners until in ``caught_up``.
    """
    if current.joint:
        return Step(leave_joint(current))
    assert desired.voters and not desired.voters.keys() & desired.learners.keys(), "``illegal`` was asked"
    lost = tuple(name for name in current.voters if name in strangers)
    voters = tuple(sorted(desired.voters))
    joining = tuple(name for name in voters if name not in current.voters or name in lost)
    target_learners = {*desired.learners, *joining}
    # A voter with a new directory leaves first, and the directory is recorded once it is a learner: before that it
    # would count in place of the lost one.
    members = _members(current, desired, {name: strangers[name] for name in strangers if name not in lost})
    if lost:
        staying = tuple(name for name in current.voters if name not in lost)
        return Step(Membership(staying, current.voters, {*current.learners, *(set(lost) & target_learners)},
                               _only(members, {*staying, *current.voters, *current.learners})))
    missing = target_learners - set(current.learners) - set(current.voters)
    if missing or any(members.get(n) != current.members.get(n) for n in (*current.voters, *current.learners)):
        learners = {*current.learners, *missing}
        return Step(Membership(current.voters, (), learners, _only(members, {*current.voters, *learners})))
    waiting = tuple(name for name in joining if name not in caught_up)
    if waiting:
        return Step(waiting=waiting)
    if voters != current.voters:
        assert {*voters} <= {*current.voters, *current.learners}, "who is to vote was a learner first"
        learners = {*desired.learners} - set(current.voters)
        demoted = {*desired.learners} & set(current.voters)
        made = Membership(voters, current.voters, learners, _only(members, {*voters, *current.voters, *learners}))
        return Step(attrs.evolve(made, learners={*learners, *demoted}))
    if current.learners != tuple(sorted(desired.learners)):
        return Step(Membership(voters, (), desired.learners, _only(members, {*voters, *desired.learners})))
    return Step()


def _only(members: Mapping[str, Member], names: set[str]) -> dict[str, Member]:
    return {name: member for name, member in sorted(members.items()) if name in names}


def _members(current: Membership, desired: Desired, renewed: Mapping[str, bytes]) -> dict[str, Member]:
    """Return the record of each node, with its desired address and priority, and its new incarnation."""
    members = dict(current.members)
    for name, address in (*desired.voters.items(), *desired.learners.items()):
        known = members.get(name, Member())
        members[name] = Member(address, known.incarnation, desired.priorities.get(name, known.priority))
    for name, incarnation in renewed.items():
        if name in members:
            members[name] = attrs.evolve(members[name], incarnation=incarnation)
    return members
