"""Who lives in a broker's group, as its name servers say. Values and a moment; no I/O, no time of its own.

Name servers may differ. A broker counts as a member where at least half of those that answered lately list it.
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
    """The brokers of one group that live: addresses of clients, by broker id."""

    addresses: Mapping[int, str] = attrs.field(factory=dict)

    @property
    def ids(self) -> tuple[int, ...]:
        """All that live, the smallest first."""
        return tuple(sorted(self.addresses))

    @property
    def master(self) -> str | None:
        """Its address; None: it is away."""
        return self.addresses.get(MASTER_ID)

    @property
    def least(self) -> int | None:
        """The smallest id, whose broker is master or acts for it; None: nobody lives."""
        return min(self.addresses, default=None)


@attrs.frozen
class _Answer:
    asked_ns: int
    addresses: Mapping[int, str]


class Group:
    """What is known of this broker's group. ``changed`` tells parts of other members than before.

    It stays as it is while no name server answers.
    """

    def __init__(self, broker_id: int = MASTER_ID) -> None:
        self.broker_id = broker_id
        self.members = Members()
        self.changed: Moment[[Members]] = Moment("Group.changed")
        self._answers: dict[str, _Answer] = {}

    @property
    def acts(self) -> bool:
        """There is no master, and this is the slave of the smallest id: clients take it for a master that only
        reads."""
        return self.broker_id != MASTER_ID and self.members.least == self.broker_id

    def use(self, name_servers: Collection[str]) -> None:
        """What others said counts no more."""
        self._answers = {server: answer for server, answer in self._answers.items() if server in name_servers}

    def heard(self, name_server: str, addresses: Mapping[int, str], asked_ns: int, *, late_ns: int) -> None:
        """It listed these when it was asked. Answers that are older by ``late_ns`` count no more."""
        self._answers[name_server] = _Answer(asked_ns, addresses)
        lately = [answer.addresses for answer in self._answers.values() if asked_ns - answer.asked_ns < late_ns]
        votes = Counter(entry for listed in lately for entry in listed.items())
        members = Members({broker_id: address for (broker_id, address), count in sorted(votes.items())
                           if 2 * count >= len(lately)})
        if members != self.members:
            self.members = members
            self.changed(members)
