"""Who may do what on a node's port, judged by what the connection itself shows.

That is the socket's own peer and a verified certificate: never what a hello or a PROXY header says. Without TLS an
address and an id are all that there is to judge by, and both can be made up by who reaches the network of a group.
Pure: it knows addresses and names; nothing of streams, requests or messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import attrs

from raft.errors import ConfigError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LOCAL: Final = "this machine"
"""``Caller.host`` of a connection that no network carries: a Unix socket's, or one of a machine to its own address."""
OWN_PROCESS_ONLY: Final = "this state machine takes commands from its own process alone"


@attrs.frozen
class Caller:
    """The other end of a connection."""

    host: str = ""
    """Address of the socket's peer; empty where there is no telling."""
    names: frozenset[str] = frozenset()
    """Of its verified certificate, if it showed one."""

    @property
    def address(self) -> Address | None:
        """As a number; an IPv4 address in IPv6's clothes as what it is."""
        try:
            found = ip_address(self.host)
        except ValueError:
            return None
        return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found

    @property
    def is_local(self) -> bool:
        """Whether it connects from this machine."""
        address = self.address
        return self.host == LOCAL if address is None else address.is_loopback

    def __str__(self) -> str:
        return self.host or "an unknown address"


def networks_of(given: Iterable[str | Network]) -> tuple[Network, ...]:
    """Networks from ``10.0.0.0/24`` and the like; a single address is one, too. Raises ``ConfigError``."""
    found = []
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError("networks", given, "must be a list of networks, such as ['10.0.0.0/24']")
    for each in given:
        try:
            found.append(ip_network(str(each).strip()))
        except ValueError as error:
            raise ConfigError(
                "networks", str(each), f"must be networks such as 10.0.0.0/24 or fd00::/8: {error}") from None
    return tuple(found)


def _names(given: Iterable[str]) -> frozenset[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError("admins", given, "must be a list of names, such as ['ops']")
    names = frozenset(given)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError("admins", given, "must be a list of names, which are text")
    return names


@attrs.frozen(kw_only=True)
class Access:
    """The rule of one host. Looking, reading and asking for status stay open to all that may connect."""

    networks: tuple[Network, ...] = attrs.field(default=(), converter=networks_of)
    """Clients may change the group from here, and from the loopback: members, leader, snapshots."""
    admins: frozenset[str] = attrs.field(default=(), converter=_names)
    """So may, from anywhere, certificates that name one of these or a member's id."""
    peer_networks: tuple[Network, ...] = attrs.field(default=(), converter=networks_of)
    """Nodes come from here or from the loopback; none named: from anywhere."""
    client_proposals: bool = True
    """Whether clients may propose commands; ``False``: the node's own process alone does."""

    def __attrs_post_init__(self) -> None:
        if type(self.client_proposals) is not bool:
            raise ConfigError("client_proposals", self.client_proposals, "must be True or False")

    def change_refused(self, caller: Caller, members: Collection[str]) -> str | None:
        """Why this client may not change the group; None: it may."""
        if caller.is_local or _within(caller, self.networks) or caller.names & {*members, *self.admins}:
            return None
        shown = f" with a certificate of {', '.join(sorted(caller.names))}" if caller.names else ""
        return (f"{caller}{shown} may look, but change nothing: that is for the loopback"
                f"{_listed(self.networks)} and for certificates of members and admins")

    def peer_refused(self, caller: Caller) -> str | None:
        """Why no node may come from there; None: one may. Who it is comes on top."""
        if not self.peer_networks or caller.is_local or _within(caller, self.peer_networks):
            return None
        return f"nodes come from the loopback{_listed(self.peer_networks)}, not from {caller}"


def _within(caller: Caller, networks: Iterable[Network]) -> bool:
    address = caller.address
    return address is not None and any(address in network for network in networks)


def _listed(networks: Iterable[Network]) -> str:
    return "".join(f", {network}" for network in networks)
