"""Computes how long a master may go on without hearing from the active controller, and when its gate may be lower.

Both follow from answered heartbeats. A lease counts from when the heartbeat was sent, since the controller's own waits
begin no earlier. Java controllers renew nothing and say nothing of it: with them there is no lease. Where controllers
speak of leases, a master without one has none yet: it may be the one that silence has already replaced. This module
knows times, and neither roles nor requests.

Two machines measure one lease. So the master's ends ``CLOCK_DRIFT_PERCENT`` earlier on its own clock than the
controllers count it on theirs: it is over by their book as long as no two of these clocks run further apart.
"""

from __future__ import annotations

from typing import Final

import attrs

CLOCK_DRIFT_PERCENT: Final = 10
"""The faster of two clocks gains no more than this on the slower one, as ``clock_drift_percent`` of the controllers."""
EVERY_REPLICA: Final = 2**31
"""A minimum that no set meets, and no configuration names."""


@attrs.define
class Lease:
    """The lease of one mastership, ``masterLeaseMs`` long; a length of 0 means that there is none."""

    length_ns: int
    """Length of the lease as controllers count it, in nanoseconds."""
    granted: bool = False
    """Controllers here grant leases: one has answered a heartbeat with whether it renews this one."""
    until_ns: int | None = None
    """When the lease ends; None: no controller has renewed it yet."""

    def answered(self, sent_ns: int, renewed: bool | None) -> None:
        """A heartbeat sent at that time was answered. ``renewed`` None: by a controller that knows no leases.

        Answers may come out of order. A lease is for one mastership: False where another one's was renewed.
        """
        self.granted = self.granted or renewed is not None
        if renewed and self.length_ns:
            self.until_ns = max(self.until_ns or 0, sent_ns + self.lasts_ns)
        assert self.until_ns is None or self.granted, "what was renewed is granted"

    @property
    def lasts_ns(self) -> int:
        """Length of the lease in nanoseconds of this machine's clock."""
        return self.length_ns * (100 - CLOCK_DRIFT_PERCENT) // 100

    @property
    def began(self) -> bool:
        """Return whether the lease was renewed at least once, or none is needed."""
        return not self.granted or not self.length_ns or self.until_ns is not None

    def holds(self, now_ns: int) -> bool:
        """Return whether the lease holds; asked at each put, and at each answer to one."""
        until_ns = self.until_ns
        if until_ns is None:
            return self.began
        assert self.length_ns > 0, "only a lease that has a length ends"
        return now_ns < until_ns


@attrs.define
class Gate:
    """``minInSyncReplicas`` as it is in force: raised at once, and lowered when the active controller knows.

    The controller may elect by what was announced. So a lower minimum counts only when the active controller has
    answered a heartbeat that said so. A process before this one may have announced more: no minimum counts before such
    an answer, unless controllers tell the two apart."""

    announced: int
    generation: int = 0
    """Counts announcements and masterships, so that an answer to an older heartbeat says nothing."""
    in_force: int = attrs.field(default=attrs.Factory(lambda self: self.announced, takes_self=True))
    highest: int = attrs.field(default=attrs.Factory(lambda self: self.announced, takes_self=True), init=False)
    """The highest minimum that was ever announced."""

    def announce(self, least: int) -> None:
        """Announce this minimum, from the next heartbeat on."""
        self.announced = least
        self.highest = max(self.highest, least)
        self.generation += 1
        self.in_force = max(self.in_force, least)
        assert self.announced <= self.in_force, "puts need no less than was announced"

    def begin(self, *, own: bool) -> None:
        """A mastership begins: what was announced must be answered anew.

        Another controller than the one that answered may have given the mastership. It may know an older announcement,
        by which other replicas are eligible. ``own``: that one is of this process. Else it may be of the one before.
        """
        self.generation += 1
        self.in_force = self.highest if own else EVERY_REPLICA
        assert self.announced <= self.in_force

    @property
    def shut(self) -> bool:
        """Return whether no minimum is in force yet."""
        return self.in_force == EVERY_REPLICA

    def answered(self, generation: int) -> None:
        """The active controller has answered a heartbeat with that announcement."""
        assert generation <= self.generation, "only what was announced is answered"
        if generation == self.generation:
            self.in_force = self.announced
