"""Pre-online, decided: whom a member that starts has to level itself with, whose log it lacks, and who is linked to it.

Values and functions without I/O. Source: ``BrokerPreOnlineService`` of RocketMQ 5.5.0. Unlike there each attempt begins
with the members that live by then, the log of a member that goes further is copied first, and a member is recognized by
its connection also where that comes from another address than clients are told.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

import attrs

MASTER_ID = 0


class Phase(enum.Enum):
    """Where a member stands; each says what it waits for."""

    ASKING = "it asks name servers who lives in its group"
    COPYING = "it copies the end of the log from a member"
    EXCHANGING = "it asks the members how far they are"
    ONLINE = "it is for clients"


@attrs.frozen
class LogEnds:
    """From where to where a member holds the log; a log may begin behind 0, as old files go."""

    begin: int
    end: int


@attrs.frozen
class Tail:
    """Copy the log up to ``end`` from that member."""

    member: int
    begin: int
    """Where its log begins: there an empty log begins, too."""
    end: int


def others(broker_id: int, address: str, members: Mapping[int, str]) -> dict[int, str]:
    """The members that live, in the order of their ids, without this broker: a name server may still list its former
    process."""
    return {other: at for other, at in sorted(members.items()) if other != broker_id and at != address}


def tail(own: LogEnds, members: Mapping[int, LogEnds]) -> Tail | str | None:
    """What of the log is to be copied before this broker may lead; None: no member holds more. In words, why it cannot
    be."""
    longer = {member: ends for member, ends in members.items() if ends.end > own.end}
    if not longer:
        return None
    fitting = {member: ends for member, ends in longer.items() if not own.end or ends.begin <= own.end}
    if not fitting:
        member, ends = max(longer.items(), key=lambda item: item[1].end)
        return (f"the log here ends at {own.end}, that of member {member} begins at {ends.begin} and ends at {ends.end}"
                ": move the store's directory away, and all of it is copied")
    member = max(fitting, key=lambda member: (fitting[member].end, -member))
    return Tail(member, fitting[member].begin, fitting[member].end)


def unlinked(members: Mapping[int, Collection[str]], links: Iterable[str]) -> list[int]:
    """Members that none of these connections can be from; ``members``: hosts of each, ``links``: the host at the other
    end of each. A connection from nobody's host counts for a member that has none, as behind a translated address."""
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
