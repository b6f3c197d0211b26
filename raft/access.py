"""Decides who may do what on a node's port, from what the connection itself shows.

That is the socket's own peer and a verified certificate, never a hello or a PROXY header. Without TLS there are only
an address and an id, and anybody who reaches the group's network can forge both.
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
"""``Caller.host`` of a connection that no network carries: through a Unix socket, or from a machine to its own
address."""
OWN_PROCESS_ONLY: Final = "this state machine takes commands from its own process alone"


@attrs.frozen
class Caller:
    """The other end of a connection."""

    host: str = ""
    """Address of the socket's peer; empty if it is not known."""
    names: frozenset[str] = frozenset()
    """Names in its verified certificate, if it showed one."""

    @property
    def address(self) -> Address | None:
        """Return the host as an IP address, or None. An IPv4 address that is mapped into IPv6 is returned as IPv4."""
        try:
            found = ip_address(self.host)
        except ValueError:
            return None
        return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found

    @property
    def is_local(self) -> bool:
        """Return whether the caller connects from this machine."""
        address = self.address
        return self.host == LOCAL if address is None else address.is_loopback

    def __str__(self) -> str:
        return self.host or "an unknown address"


def networks_of(given: Iterable[str | Network]) -> tuple[Network, ...]:
    """Parse networks such as ``10.0.0.0/24``. A single address is a network too. Raises ``ConfigError``."""
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
    """The access rules of one host. Everybody who may connect can read and ask for status."""

    networks: tuple[Network, ...] = attrs.field(default=(), converter=networks_of)
    """Networks whose clients may change the group (members, leader, snapshots). The loopback always may."""
    admins: frozenset[str] = attrs.field(default=(), converter=_names)
    """Names whose certificates may change the group from anywhere. A member's id always may."""
    peer_networks: tuple[Network, ...] = attrs.field(default=(), converter=networks_of)
    """Networks from which nodes may connect, besides the loopback. Empty: from anywhere."""
    client_proposals: bool = True
    """True if clients may propose commands; False if only the node's own process may."""

    def __attrs_post_init__(self) -> None:
        if type(self.client_proposals) is not bool:
            raise ConfigError("client_proposals", self.client_proposals, "must be True or False")

    def change_refused(self, caller: Caller, members: Collection[str]) -> str | None:
        """Return the reason why this client may not change the group; None if it may."""
        if caller.is_local or _within(caller, self.networks) or caller.names & {*members, *self.admins}:
            return None
        shown = f" with a certificate of {', '.join(sorted(caller.names))}" if caller.names else ""
        return (f"{caller}{shown} may look, but change nothing: that is for the loopback"
                f"{_listed(self.networks)} and for certificates of members and admins")

    def peer_refused(self, caller: Caller) -> str | None:
        """Return the reason why no node may connect from there; None if it may. Who the node is, is checked apart."""
        if not self.peer_networks or caller.is_local or _within(caller, self.peer_networks):
            return None
        return f"nodes come from the loopback{_listed(self.peer_networks)}, not from {caller}"


def _within(caller: Caller, networks: Iterable[Network]) -> bool:
    address = caller.address
    return address is not None and any(address in network for network in networks)


def _listed(networks: Iterable[Network]) -> str:
    return "".join(f", {network}" for network in networks)
