"""Finds the members that a slave of a silent master reaches: it asks each directly, for as long as the silence lasts.

Members have no link to each other while a master leads. Controllers replace a silent master only if enough members say
that they reach each other, so that the others can follow the one that is elected. Only the member that it names answers
code 61,011: not another group's broker at its address, nor a process that lost its id. Java's brokers, and earlier ones
of ours, do not know the code, and count as not reached.

It knows members, addresses and times, and neither roles nor what follows from a silence.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.ha.config import NS_PER_MS
from broker.ha.taking import BecomeSlave
from broker.replicas.outputs import Output
from broker.replicas.timetable import Kind
from broker.replicas.underway import UnderWay
from remoting.bodies.controller import BrokerNames, BrokerReplicasInfo
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.header import Header, Int64, header
from remoting.headers.controller import GetSyncStateDataRequest

PROBE_MEMBER: Final = 61_011
"""Request code: ours alone. The answer has neither header nor body; anything but success is no answer."""


@header
class ProbeMemberRequest(Header):
    """61,011: the member that is asked."""

    cluster_name: str
    broker_name: str
    broker_id: Int64


class Probing:
    """The probes of one broker. ``judge`` says which master is silent, ``look`` asks."""

    def __init__(self, cluster_name: str, broker_name: str, under_way: UnderWay, *, interval_ms: int, silence_ms: int,
                 members_ms: int) -> None:
        """``interval_ms``: time between two questions to one member; 0: nobody is asked. ``members_ms``: time between
        two questions to the controller. An answer counts for ``silence_ms`` from its question on."""
        self._role: BecomeSlave | None = None
        """This broker's role under the master that is silent."""
        self._cluster_name, self._broker_name, self._under_way = cluster_name, broker_name, under_way
        self._every_ns, self._fresh_ns = interval_ms * NS_PER_MS, silence_ms * NS_PER_MS
        self._members_ns = members_ms * NS_PER_MS
        self._members: dict[int, str] = {}
        self._asked_ns: dict[int, int] = {}
        self._reached_ns: dict[int, int] = {}
        """For each member, the time when the last question left that it answered."""

    def judge(self, role: BecomeSlave | None) -> None:
        """Set the role under a silent master; None: no master is silent. With another role all begins anew."""
        role = role if self._every_ns else None
        if role != self._role:
            self._role = role
            self._members.clear()
            self._asked_ns.clear()
            self._reached_ns.clear()
            self._under_way.times.put(Kind.MEMBERS)

    @property
    def silent_epoch(self) -> int | None:
        """Epoch of the master that is silent."""
        return None if self._role is None else self._role.epoch

    def look(self, now_ns: int, leader: str, self_id: int) -> list[Output]:
        """Ask the active controller who is in the group, and ask each of these members."""
        role = self._role
        if role is None:
            return []
        outputs: list[Output] = []
        times = self._under_way.times
        assert self_id != role.master_id, "its master is another one"
        if times.due(Kind.MEMBERS, now_ns):
            times.put(Kind.MEMBERS, now_ns + self._members_ns)
            outputs += self._under_way.send(
                Kind.MEMBERS, leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
                GetSyncStateDataRequest(self._cluster_name), now_ns,
                partial(self._know, frozenset({self_id, role.master_id})), BrokerNames([self._broker_name]).to_json())
        assert self._members.keys().isdisjoint((self_id, role.master_id)), "others are asked"
        for member, address in self._members.items():
            if now_ns >= self._asked_ns.get(member, 0) + self._every_ns:
                self._asked_ns[member] = now_ns
                outputs += self._under_way.send(
                    Kind.PROBE, address, PROBE_MEMBER,
                    ProbeMemberRequest(self._cluster_name, self._broker_name, member), now_ns,
                    partial(self._answered, member, now_ns, role), slot=str(member),
                    timeout_ms=self._fresh_ns // NS_PER_MS)
        return outputs

    def reaches(self, now_ns: int) -> str:
        """Return the members that are reached, as a heartbeat says it: "2,3"."""
        assert self._role is not None or not self._reached_ns, "who was reached under another master does not count"
        return ",".join(str(member) for member, asked_ns in sorted(self._reached_ns.items())
                        if member in self._members and now_ns < asked_ns + self._fresh_ns)

    def deadline_ns(self, now_ns: int) -> int | None:
        """Return when a member must be asked next, or stops counting as reached."""
        due = [asked_ns + self._every_ns for asked_ns in self._asked_ns.values()]
        due += [asked_ns + self._fresh_ns for asked_ns in self._reached_ns.values()]
        return min((at_ns for at_ns in due if at_ns > now_ns), default=None)

    # --- answers ---------------------------------------------------------------------------------------------

    def _know(self, but: frozenset[int], answer: Command | None, _: int) -> list[Output]:
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            group = BrokerReplicasInfo.from_json(answer.body).replicas_info_table.get(self._broker_name)
            known = [] if group is None else [*group.in_sync_replicas, *group.not_in_sync_replicas]
            self._members = {each.broker_id: each.broker_address for each in known
                             if each.broker_id is not None and each.broker_id not in but and each.broker_address}
        return []

    def _answered(self, member: int, asked_ns: int, role: BecomeSlave, answer: Command | None, _: int) -> list[Output]:
        """Note that a member answered, if the slave still has the role that it had when it asked."""
        if answer is not None and answer.code == ResponseCode.SUCCESS and role == self._role:
            self._reached_ns[member] = max(asked_ns, self._reached_ns.get(member, 0))
        return []
