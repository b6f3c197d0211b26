"""Who may deliver what is due, in a group without controllers: one broker at a time, by the word of its name servers.

A master may while at least half of them answered its heartbeat, and listed it in an answer to a later question, less
than the timeout ago, from when the heartbeat was sent. A slave may while more than half list no master, and itself as
the smallest id, less than ``right_ns`` ago, from when they were asked. Any half and any such majority share a name
server. It lists a master for the timeout after its last heartbeat; so while name servers live, connections stay, and
all clocks run alike, a slave begins when the master's right is over. A name server counts from ``right_ns`` on after it
began to list a broker: by then no slave goes by what it said before.

A slave that still hears its master over the replication port waits for the timeout: name servers may have begun anew.
Cores: they are given times in ns, and answers, and do no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

import attrs

from broker.acting.members import MASTER_ID

NEVER: Final = 1 << 63


class Right(Protocol):
    """Whether this broker may deliver what is due."""

    def use(self, name_servers: Collection[str]) -> None:
        """These are all of them, from now on."""

    def heard(self, name_server: str, addresses: Mapping[int, str], *, asked_ns: int, beaten_ns: int | None,
              now_ns: int) -> None:
        """It answered with these members. ``beaten_ns``: when the last heartbeat left that it had answered before it
        was asked; None: there is none."""

    def why_not(self, now_ns: int) -> str:
        """"" while this broker may deliver."""

    def changes_ns(self, now_ns: int) -> int:
        """``why_not`` may be another then, if nothing is heard before."""


class Always:
    """Whoever the role lets deliver, may: of groups that need no such right."""

    def use(self, name_servers: Collection[str]) -> None:
        """Nobody is counted, whoever they are."""

    def heard(self, name_server: str, addresses: Mapping[int, str], *, asked_ns: int, beaten_ns: int | None,
              now_ns: int) -> None:
        """Nobody is asked, so nothing is learnt."""

    def why_not(self, now_ns: int) -> str:
        return ""

    def changes_ns(self, now_ns: int) -> int:
        return NEVER


@attrs.define
class _Run:
    """For how long one name server has listed this broker without a break, as heartbeats prove it."""

    matures_ns: int
    listed_until_ns: int
    """It is listed up to then at least, whatever becomes of later heartbeats."""
    until_ns: int = 0
    """The last word is good up to then."""


class _Counting:
    """Which name servers' words are good."""

    def __init__(self, broker_id: int, address: str, timeout_ns: int, right_ns: int) -> None:
        self._broker_id, self._address = broker_id, address
        self._timeout_ns, self._right_ns = timeout_ns, right_ns
        self._runs: dict[str, _Run] = {}
        self._servers: frozenset[str] = frozenset()

    def use(self, name_servers: Collection[str]) -> None:
        self._servers = frozenset(name_servers)
        self._runs = {server: run for server, run in self._runs.items() if server in self._servers}

    def _good(self, now_ns: int) -> int:
        return sum(run.matures_ns <= now_ns < run.until_ns for run in self._runs.values())

    def changes_ns(self, now_ns: int) -> int:
        return min((time_ns for run in self._runs.values() if run.until_ns > now_ns
                    for time_ns in (run.matures_ns, run.until_ns) if time_ns > now_ns), default=NEVER)

    def _run(self, name_server: str, addresses: Mapping[int, str], beaten_ns: int | None, now_ns: int) -> _Run | None:
        """None: it does not list this broker, or another one that goes before it."""
        first = min((each for each in addresses if each != MASTER_ID or self._broker_id == MASTER_ID), default=None)
        if (name_server not in self._servers or beaten_ns is None or first != self._broker_id
                or addresses[first] != self._address):
            self._runs.pop(name_server, None)
            return None
        run = self._runs.get(name_server)
        if run is None or now_ns >= run.listed_until_ns:
            run = self._runs[name_server] = _Run(now_ns + self._right_ns, 0)
        run.listed_until_ns = beaten_ns + self._timeout_ns
        return run


class MasterRight(_Counting):
    """Of the broker with id 0."""

    def __init__(self, address: str, *, timeout_ns: int, right_ns: int) -> None:
        """``timeout_ns``: after such a silence name servers forget it."""
        super().__init__(MASTER_ID, address, timeout_ns, right_ns)

    def heard(self, name_server: str, addresses: Mapping[int, str], *, asked_ns: int, beaten_ns: int | None,
              now_ns: int) -> None:
        run = self._run(name_server, addresses, beaten_ns, now_ns)
        if run is not None:
            run.until_ns = run.listed_until_ns

    def why_not(self, now_ns: int) -> str:
        if self._servers and 2 * self._good(now_ns) >= len(self._servers):
            return ""
        return (f"{self._good(now_ns)} of {len(self._servers)} name servers answered it lately, and have listed it as "
                f"the master for {self._right_ns / 1e9:.1f} s: half of them must")


class ActingRight(_Counting):
    """Of a slave, while its master is away."""

    def __init__(self, broker_id: int, address: str, *, timeout_ns: int, right_ns: int,
                 hears_master: Callable[[], bool] = lambda: False,
                 hands_over: Callable[[], bool] = lambda: False) -> None:
        """``timeout_ns``: after such a silence name servers forget the master, or this broker. ``hands_over``: the
        master comes back, and has read what this slave learned."""
        super().__init__(broker_id, address, timeout_ns, right_ns)
        self._hears_master, self._hands_over = hears_master, hands_over
        self._since_ns: int | None = None
        """When more than half had said it; they have ever since."""

    def _enough(self, now_ns: int) -> bool:
        return 2 * self._good(now_ns) > len(self._servers)

    def heard(self, name_server: str, addresses: Mapping[int, str], *, asked_ns: int, beaten_ns: int | None,
              now_ns: int) -> None:
        self.why_not(now_ns)
        run = self._run(name_server, addresses, beaten_ns, now_ns)
        if run is not None:
            run.until_ns = 0 if MASTER_ID in addresses else asked_ns + self._right_ns
        self.why_not(now_ns)

    def changes_ns(self, now_ns: int) -> int:
        """At once while it waits for a master that is heard, which nobody tells when that ends."""
        if self._since_ns is not None and now_ns < self._since_ns + self._timeout_ns:
            return now_ns
        return super().changes_ns(now_ns)

    def why_not(self, now_ns: int) -> str:
        if not self._enough(now_ns):
            self._since_ns = None
            return (f"{self._good(now_ns)} of {len(self._servers)} name servers said lately that there is no master, "
                    f"and have listed this slave as the first for {self._right_ns / 1e9:.1f} s: more than half must")
        if self._since_ns is None:
            self._since_ns = now_ns
        if self._hands_over():
            return "the master of this group comes back, and has read what this slave learned"
        left_ns = self._since_ns + self._timeout_ns - now_ns
        if left_ns > 0 and self._hears_master():
            return f"its master is heard still, and may deliver for {left_ns / 1e9:.1f} s yet"
        return ""
