"""The right to deliver due messages, which one broker of a group without controllers has at a time.

*The rules.* Name servers give the right by their answers.
- The master has it while at least half of them confirm it. A server confirms it for the timeout after a heartbeat was
  sent, if it answered the heartbeat and then listed the master.
- A slave has it while more than half of them list no master, and the slave as the smallest id. Such an answer counts
  for ``right_ns`` after the question was sent.
- An answer counts only once its server has listed the broker without a break for ``right_ns``.

*Proof.* Any half and any majority share a name server. That server lists a master for the timeout after its last
heartbeat. So while it lives, connections stay and clocks run alike, it begins to deny the master only when the master's
right from it is over. The last rule covers a master that comes back: when a server counts for it, no slave uses an
older answer of that server any more.

*Rest.* Name servers that restart know no master. So a slave that still hears its master over the replication port waits
for the timeout. Cores: they are given answers and times in ns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

import attrs

from broker.acting.members import MASTER_ID

NEVER: Final = 1 << 63


class Right(Protocol):
    """Says whether this broker may deliver due messages."""

    def use(self, name_servers: Collection[str]) -> None:
        """Set the name servers of the group."""

    def heard(self, name_server: str, addresses: Mapping[int, str], *, asked_ns: int, beaten_ns: int | None,
              now_ns: int) -> None:
        """A name server listed these members when it was asked at ``asked_ns``. ``beaten_ns``: when the last heartbeat
        was sent that it answered before; None: there is none."""

    def why_not(self, now_ns: int) -> str:
        """Return why this broker may not deliver; "": it may."""

    def since_ns(self, now_ns: int) -> int | None:
        """Since when name servers give this broker the right without a break; None: they do not."""

    def changes_ns(self, now_ns: int) -> int:
        """Return when the result of ``why_not`` may change, if nothing is heard before."""


class Always:
    """The right in groups that need none: the role alone decides."""

    def use(self, name_servers: Collection[str]) -> None:
        """Do nothing: no server is counted."""

    def heard(self, name_server: str, addresses: Mapping[int, str], *, asked_ns: int, beaten_ns: int | None,
              now_ns: int) -> None:
        """Do nothing: no answer is needed."""

    def why_not(self, now_ns: int) -> str:
        return ""

    def since_ns(self, now_ns: int) -> int | None:
        """None: no server is asked."""
        return None

    def changes_ns(self, now_ns: int) -> int:
        return NEVER


@attrs.define
class _Run:
    """A time during which one name server lists this broker without a break, as heartbeats prove."""

    matures_ns: int
    """Its answers count from then on."""
    listed_until_ns: int
    """It lists this broker at least until then, even if later heartbeats are lost."""
    until_ns: int = 0
    """Its last answer counts until then."""


class _Counting:
    """Counts the name servers whose answers give the right."""

    def __init__(self, broker_id: int, address: str, timeout_ns: int, right_ns: int) -> None:
        self._broker_id, self._address = broker_id, address
        self._timeout_ns, self._right_ns = timeout_ns, right_ns
        self._runs: dict[str, _Run] = {}
        self._servers: frozenset[str] = frozenset()
        self._since_ns: int | None = None
        self._looked_ns = 0

    def use(self, name_servers: Collection[str]) -> None:
        self._servers = frozenset(name_servers)
        self._runs = {server: run for server, run in self._runs.items() if server in self._servers}

    def _good(self, now_ns: int) -> int:
        return sum(run.matures_ns <= now_ns < run.until_ns for run in self._runs.values())

    def _enough(self, now_ns: int) -> bool:
        """Return whether so many servers give the right at that time as must."""
        raise NotImplementedError

    def _counts_until_ns(self, run: _Run, addresses: Mapping[int, str], asked_ns: int) -> int:
        """Until when an answer of that run gives the right."""
        raise NotImplementedError

    def heard(self, name_server: str, addresses: Mapping[int, str], *, asked_ns: int, beaten_ns: int | None,
              now_ns: int) -> None:
        self.since_ns(now_ns)
        run = self._run(name_server, addresses, beaten_ns, now_ns)
        if run is not None:
            run.until_ns = self._counts_until_ns(run, addresses, asked_ns)
        self.since_ns(now_ns)

    def since_ns(self, now_ns: int) -> int | None:
        """Look at all times since the last look: a process may have been stopped while its right ended and began."""
        times = {time_ns for run in self._runs.values() for time_ns in (run.matures_ns, run.until_ns)
                 if self._looked_ns < time_ns < now_ns}
        for time_ns in (*sorted(times), now_ns):
            if not self._enough(time_ns):
                self._since_ns = None
            elif self._since_ns is None:
                self._since_ns = time_ns
        self._looked_ns = now_ns
        return self._since_ns

    def changes_ns(self, now_ns: int) -> int:
        return min((time_ns for run in self._runs.values() if run.until_ns > now_ns
                    for time_ns in (run.matures_ns, run.until_ns) if time_ns > now_ns), default=NEVER)

    def _run(self, name_server: str, addresses: Mapping[int, str], beaten_ns: int | None, now_ns: int) -> _Run | None:
        """The run of a name server that lists this broker first among its peers; None: it does not."""
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
    """The right of the master, the broker with id 0."""

    def __init__(self, address: str, *, timeout_ns: int, right_ns: int) -> None:
        """``timeout_ns``: name servers forget a broker after this time without heartbeats."""
        super().__init__(MASTER_ID, address, timeout_ns, right_ns)

    def _counts_until_ns(self, run: _Run, addresses: Mapping[int, str], asked_ns: int) -> int:
        return run.listed_until_ns

    def _enough(self, now_ns: int) -> bool:
        return bool(self._servers) and 2 * self._good(now_ns) >= len(self._servers)

    def why_not(self, now_ns: int) -> str:
        if self._enough(now_ns):
            return ""
        return (f"{self._good(now_ns)} of {len(self._servers)} name servers answered it lately, and have listed it as "
                f"the master for {self._right_ns / 1e9:.1f} s: half of them must")


class ActingRight(_Counting):
    """The right of a slave, while its master is away."""

    def __init__(self, broker_id: int, address: str, *, timeout_ns: int, right_ns: int,
                 hears_master: Callable[[], bool] = lambda: False,
                 hands_over: Callable[[], bool] = lambda: False) -> None:
        """``timeout_ns``: name servers forget a broker after this time without heartbeats. ``hands_over`` returns
        whether the master comes back and has read this slave's ledger."""
        super().__init__(broker_id, address, timeout_ns, right_ns)
        self._hears_master, self._hands_over = hears_master, hands_over

    def _enough(self, now_ns: int) -> bool:
        return 2 * self._good(now_ns) > len(self._servers)

    def _counts_until_ns(self, run: _Run, addresses: Mapping[int, str], asked_ns: int) -> int:
        return 0 if MASTER_ID in addresses else asked_ns + self._right_ns

    def changes_ns(self, now_ns: int) -> int:
        """Return when ``why_not`` may change: at once while the master is heard, since no event tells the end of
        that."""
        if self._since_ns is not None and now_ns < self._since_ns + self._timeout_ns:
            return now_ns
        return super().changes_ns(now_ns)

    def why_not(self, now_ns: int) -> str:
        since_ns = self.since_ns(now_ns)
        if since_ns is None:
            return (f"{self._good(now_ns)} of {len(self._servers)} name servers said lately that there is no master, "
                    f"and have listed this slave as the first for {self._right_ns / 1e9:.1f} s: more than half must")
        if self._hands_over():
            return "the master of this group comes back, and has read this slave's ledger"
        left_ns = since_ns + self._timeout_ns - now_ns
        if left_ns > 0 and self._hears_master():
            return f"its master is still heard, and may deliver for {left_ns / 1e9:.1f} s yet"
        return ""
