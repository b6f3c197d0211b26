"""The decisions of pre-online: which members to ask, whose log to copy, and which members are connected.

Values and functions without I/O. Source: ``BrokerPreOnlineService`` of RocketMQ 5.5.0. Differences: each attempt begins
with the members that live then; a longer log of a member is copied first; a member's connection may come from another
host than its address for clients.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

import attrs

MASTER_ID = 0


class Phase(enum.Enum):
    """A member's progress; each value says what it waits for."""

    ASKING = "it asks name servers for the members of its group"
    COPYING = "it copies the end of the log from a member"
    EXCHANGING = "it asks the members for their progress"
    ONLINE = "clients may find it"


@attrs.frozen
class LogEnds:
    """Begin and end of a member's log. It may begin after 0, since old files are deleted."""

    begin: int
    end: int


@attrs.frozen
class Tail:
    """The order to copy the log up to ``end`` from a member."""

    member: int
    begin: int
    """Begin of the member's log; an empty log begins there too."""
    end: int


def others(broker_id: int, address: str, members: Mapping[int, str]) -> dict[int, str]:
    """The other living members in the order of their ids. A name server may still list this broker's former process."""
    return {other: at for other, at in sorted(members.items()) if other != broker_id and at != address}


def tail(own: LogEnds, members: Mapping[int, LogEnds]) -> Tail | str | None:
    """The part of the log to copy before this broker may lead. None: no member holds more. A text: why it cannot be
    copied."""
    longer = {member: ends for member, ends in members.items() if ends.end > own.end}
    if not longer:
        return None
    fitting = {member: ends for member, ends in longer.items() if not own.end or ends.begin <= own.end}
    if not fitting:
        member, ends = max(longer.items(), key=lambda item: item[1].end)
        return (f"the log here ends at {own.end}, but that of member {member} begins at {ends.begin} and ends at "
                f"{ends.end}: move the store's directory away, and all of the log is copied")
    member = max(fitting, key=lambda member: (fitting[member].end, -member))
    return Tail(member, fitting[member].begin, fitting[member].end)


def unlinked(members: Mapping[int, Collection[str]], links: Iterable[str]) -> list[int]:
    """Return members without a connection. ``members``: hosts of each; ``links``: remote host of each connection.

    A connection from an unknown host, as behind address translation, counts for any member that has no other."""
    left, missing = list(links), []
    for member, hosts in members.items():
        found = next((link for link in left if link in hosts), None)
        if found is None:
            missing.append(member)
        else:
            left.remove(found)
    known = {host for hosts in members.values() for host in hosts}
    strangers = sum(link not in known for link in left)
    return missing[strangers:]
