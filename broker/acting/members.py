"""The living members of a broker's group, by the word of its name servers.

Name servers may differ. A broker is a member if at least half of the servers that answered lately list it. A core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

import attrs

from broker.moments import Moment

MASTER_ID: Final = 0


@attrs.frozen
class Members:
    """The living brokers of one group: their addresses for clients, by broker id."""

    addresses: Mapping[int, str] = attrs.field(factory=dict)

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of all living members in ascending order."""
        return tuple(sorted(self.addresses))

    @property
    def master(self) -> str | None:
        """The master's address; None: it is away."""
        return self.addresses.get(MASTER_ID)

    @property
    def least(self) -> int | None:
        """The smallest id: that broker is the master, or acts for it. None: no member lives."""
        return min(self.addresses, default=None)


@attrs.frozen
class _Answer:
    asked_ns: int
    addresses: Mapping[int, str]


class Group:
    """The members of this broker's group. ``changed`` is called with new members when they differ.

    The members stay as they are while no name server answers.
    """

    def __init__(self, broker_id: int = MASTER_ID) -> None:
        self.broker_id = broker_id
        self.members = Members()
        self.changed: Moment[[Members]] = Moment("Group.changed")
        self._answers: dict[str, _Answer] = {}

    @property
    def acts(self) -> bool:
        """Return whether this slave acts: there is no master and its id is the smallest. Clients use it as a read-only
        master."""
        return self.broker_id != MASTER_ID and self.members.least == self.broker_id

    def use(self, name_servers: Collection[str]) -> None:
        """Forget answers of servers that are not among these."""
        self._answers = {server: answer for server, answer in self._answers.items() if server in name_servers}

    def heard(self, name_server: str, addresses: Mapping[int, str], asked_ns: int, *, late_ns: int) -> None:
        """A name server listed these members when it was asked at ``asked_ns``. Answers older than that by ``late_ns``
        are ignored."""
        self._answers[name_server] = _Answer(asked_ns, addresses)
        lately = [answer.addresses for answer in self._answers.values() if asked_ns - answer.asked_ns < late_ns]
        votes = Counter(entry for listed in lately for entry in listed.items())
        members = Members({broker_id: address for (broker_id, address), count in sorted(votes.items())
                           if 2 * count >= len(lately)})
        if members != self.members:
            self.members = members
            self.changed(members)
