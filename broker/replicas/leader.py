"""Finds the active controller: it asks all that are known; one that renews a lease is active.

Known are those of the configuration, the active one, and the members that it names: controllers come and go while the
configuration stays. It knows what controllers answer, and neither the group nor its roles.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

from broker.ha.config import NS_PER_MS
from broker.replicas.outputs import Output
from broker.replicas.timetable import Kind
from broker.replicas.underway import UnderWay
from remoting.address import split_address
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.controller import GetMetadataResponse

MEMBERS_MAX: Final = 32
"""Most members of a controller group that are taken from its answer."""
_ASKED_ANEW: Final = (Kind.ELECT, Kind.POLL, Kind.ALTER, Kind.YIELD, Kind.MEMBERS)


class LeaderSearch:
    """The search. ``address`` is where the active controller is asked; None while none is known."""

    def __init__(self, controllers: tuple[str, ...], under_way: UnderWay, *, retry_ms: int, period_ms: int) -> None:
        self.address: str | None = None
        self._controllers, self._under_way = controllers, under_way
        self._retry_ns, self._period_ns = retry_ms * NS_PER_MS, period_ms * NS_PER_MS
        self._looked_ns = 0
        self._at_once_ns: int | None = None
        """When the last look began that could not wait."""
        self._renewed_ns = -1
        """Time when the last heartbeat left for which the active controller renewed the lease."""
        self._names: dict[str, str] = {}
        """Address of each controller that was active, by the name that it gives itself; one of the configuration
        goes before others."""
        self._ids: dict[str, str] = {}
        """Ids of controllers of ours, by the address where they were asked."""
        self._members: dict[str, str] = {}
        """Addresses of the active controller's group by id, as it said last."""
        self._sure = False
        """The active controller said itself that it is, and has refused or left unanswered nothing since."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of all controllers that are known; those of the configuration come first.

        Each has one, as far as can be told: two names of the active controller would take turns in leading."""
        met = {self._ids.get(address) for address in self._controllers}
        others = [address for member, address in self._members.items() if member not in met]
        if self.address is not None:
            others.append(self._names.get(self.address, self.address))
        assert len(others) <= MEMBERS_MAX + 1, "the members that one answer named, and who leads"
        return tuple(dict.fromkeys((*self._controllers, *others)))

    def look(self, now_ns: int) -> list[Output]:
        """Ask the controllers, if it is time."""
        outputs: list[Output] = []
        times = self._under_way.times
        for address in self.addresses if times.due(Kind.DISCOVER, now_ns) else ():
            outputs += self._under_way.send(Kind.DISCOVER, address, RequestCode.CONTROLLER_GET_METADATA_INFO, None,
                                            now_ns, partial(self._told, address), slot=address)
            self._looked_ns = now_ns
            times.put(Kind.DISCOVER, now_ns + (self._period_ns if self.address else self._retry_ns))
        return outputs

    def look_soon(self, now_ns: int) -> None:
        """Ask again at once, but not more often than each ``retry_ms``."""
        self._under_way.times.put_by(Kind.DISCOVER, max(now_ns, self._looked_ns + self._retry_ns))

    def look_at_once(self, now_ns: int) -> None:
        """Ask again now, whenever controllers were asked last: a newer epoch was told of, so one of them leads by now.

        Anybody can tell of an epoch, so only one look each ``retry_ms`` is begun for that."""
        if self._at_once_ns is None or now_ns >= self._at_once_ns + self._retry_ns:
            self._at_once_ns = now_ns
            self._under_way.times.put(Kind.DISCOVER)
        else:
            self.look_soon(now_ns)

    def failed(self, address: str, now_ns: int) -> None:
        """The controller that was asked did not answer, or says that it does not lead."""
        if address == self.address:
            self._sure = False
            self.look_soon(now_ns)

    def leads(self, address: str) -> bool:
        return self.address is not None and address in (self.address, self._names.get(self.address))

    def renewed(self, address: str, sent_ns: int) -> None:
        """The controller there renewed the lease, for a heartbeat that was sent at that time."""
        if sent_ns > self._renewed_ns and not self.leads(address):
            self._lead_by(address)  # one that renews a lease leads: no question is needed
            assert self.leads(address)
        if sent_ns >= self._renewed_ns:
            self._renewed_ns = sent_ns
            self._sure = True

    def _told(self, address: str, answer: Command | None, _: int) -> list[Output]:
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            told = GetMetadataResponse.from_ext(answer.ext)
            leader = told.controller_leader_address
            if told.controller_id:
                self._ids[address] = told.controller_id
            if leader and told.is_leader:
                if address in self._controllers or self._names.get(leader) not in self._controllers:
                    self._names = {name: known for name, known in self._names.items() if known != address}
                    self._names[leader] = address
                assert self._names[leader] == address or address not in self._controllers, "as it is configured"
                self._members = _members(told.peers or "") if told.controller_id else {}
                assert len({*self._names.values()}) == len(self._names), "a controller has one name"
            said = told.is_leader or not self._sure  # a controller that left its group names an old leader for ever
            if leader and said and self.address not in (leader, self._names.get(leader, leader)):
                self._lead_by(leader)
            self._sure = self._sure or bool(leader and told.is_leader)
        return []

    def _lead_by(self, leader: str) -> None:
        """Treat that controller as the active one from now on: ask it what the one before was asked.

        The one before may answer still, or never, as a host that is gone.
        """
        self.address = leader
        self._under_way.times.ask_again(due=(Kind.REGISTER, Kind.BEAT, *_ASKED_ANEW), waiting=_ASKED_ANEW)


def _members(peers: str) -> dict[str, str]:
    """``n0:host:port;n1:host:port;`` as addresses by id; what is no such member is passed over."""
    members = {}
    for item in islice(filter(None, peers.split(";")), MEMBERS_MAX):
        member, _, address = item.partition(":")
        with suppress(ValueError):
            split_address(address)
            members[member] = address
    assert len(members) <= MEMBERS_MAX, "whoever answers, few are asked"
    return members
