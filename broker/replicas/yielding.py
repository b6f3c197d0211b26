"""Decides when a living master asks for a successor, and for how long: members are silent, or its disk is in trouble.

Members that reach each other can be led on by one of them. A SyncStateSet that shrank below ``minInSyncReplicas`` would
leave the master alone, and nobody would write. So before each such shrink the master asks once. An attempt ends with a
refusal, or when its time is over; the next one waits a second, then twice as long each time: up to a minute for a disk,
since the group is served meanwhile, and up to eight seconds where the set has too few members, since nobody is. How
often masters are elected is limited by controllers.

If a message is answered when all members hold it, any member may follow, and the master goes on until it hears of that.
In other modes it writes nothing while it asks, and takes no renewal of its lease: nobody is elected before the lease
ends. There a lost answer leaves it in doubt whether another master was elected. It writes nothing for as long as that
request may still be carried out.

It knows times and what a master sees of itself and its members, and neither requests nor the machine of the role.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from broker.ha.config import NS_PER_MS
from broker.ha.insync import InSync
from broker.replicas.lease import Lease
from broker.store.health import DiskHealth

ASK_AGAIN_NS: Final = 100 * NS_PER_MS
"""Pause after the answer "wait": members have yet to say whom they reach."""
ASK_LEASED_NS: Final = 400 * NS_PER_MS
"""Pause while its own lease lasts: controllers do not renew the lease for a second after each request."""
LOOK_NS: Final = 10 * NS_PER_MS
"""Time between two looks for a member that holds the whole log."""
REST_LEAST_NS: Final = 1_000 * NS_PER_MS
REST_MOST_NS: Final = 60_000 * NS_PER_MS
REST_ALONE_NS: Final = 8_000 * NS_PER_MS
"""The most where the set has too few members, so that the master acknowledges nothing."""


class Reason(enum.Enum):
    """Reasons to ask for a successor; the value is what a request says."""

    SILENCE = "silence"
    DISK = "disk"


class Told(enum.Enum):
    """Answers to a request for a successor."""

    WAIT = "members have yet to say whom they reach"
    NOBODY = "nobody may follow"
    ELECTED = "another one was, or this one hears who"
    UNKNOWN = "no answer that says for certain"


@attrs.frozen
class Sight:
    """A master's view of itself and of its members."""

    shrinks: bool = False
    """The set that it would ask for has too few members, and the accepted one has enough."""
    too_few: bool = False
    """One of the two sets has too few members, because some are silent."""
    trouble: bool = False
    """Its disk is full or stalled."""
    heirs: bool = False
    """A member is there that may hold its log, or come to hold it."""
    holders: frozenset[int] = frozenset()
    """Members that may follow it at once, as far as logs go."""
    leased: bool = False
    """Its lease holds."""
    lease_ns: int = 0
    """Length of a lease in nanoseconds."""


def sight_of(held: InSync, lease: Lease, least: int, *, end: int, disk: DiskHealth, alone: bool, now_ns: int) -> Sight:
    """Return the view of a master that demands ``least`` members in sync, and whose log ends at ``end``."""
    wanted, heard = held.wanted(now_ns) or held.accepted, held.heard(now_ns)
    shrinks = len(wanted) < least <= len(held.accepted)
    lonely = (shrinks or len(held.accepted) < least) and len(heard) + 1 < least
    assert held.self_id not in heard, "a master is no heir of its own"
    heirs = {member: ack for member, ack in heard.items() if member in held.accepted}
    return Sight(
        shrinks=shrinks, too_few=lonely and bool(lease.length_ns) if alone else lonely or shrinks,
        trouble=disk is not DiskHealth.WELL, heirs=bool(heirs), leased=lease.holds(now_ns), lease_ns=lease.length_ns,
        holders=frozenset(member for member, ack in heirs.items() if not alone or (ack is not None and ack >= end)))


@attrs.define
class Yielding:
    """The attempts of one broker to yield, over all of its masterships.

    So a disk that all members share does not elect them in circles."""

    wait_ns: int
    """``yieldWaitMs``."""
    void_ns: int
    """A request without an answer that is this old is carried out by nobody."""
    alone: bool
    """It acknowledges what not all members hold, so it asks only while it writes nothing."""
    reason: Reason | None = None
    """The reason of the attempt that is under way; None: there is none."""
    attempt: int = 0
    """Number of the attempt; answers to an earlier one say nothing of it."""
    _until_ns: int | None = None
    """Time when the attempt is over; None: it has not begun to run, since the lease lasts."""
    _began_ns: int = 0
    _ask_ns: int = 0
    _rest_ns: int = REST_LEAST_NS
    _rests_until_ns: int = 0
    _unanswered_ns: list[int] = attrs.field(factory=list)
    """Times of requests that nobody has answered: each may have elected a successor, or may do so yet."""
    _may_shrink: bool = False
    """An attempt for silent members ended in vain, and the set has had too few members ever since."""
    _grew: bool = False
    """Since the attempt began the set got enough members, so a vain request says nothing of the set as it is now."""
    _sight: Sight = Sight()
    """The last."""

    def begins(self, now_ns: int) -> None:
        """A mastership begins: its members are about to come."""
        self._rests_until_ns = max(self._rests_until_ns, now_ns + REST_LEAST_NS)
        self._may_shrink = False

    def look(self, now_ns: int, sight: Sight) -> bool:
        """Return whether the master asks for a successor now. If it is alone, it writes nothing meanwhile."""
        if sight.shrinks and not self._sight.shrinks:
            self._may_shrink, self._grew = False, True
        if self.reason is None:
            self._begin(now_ns, sight)
        elif self._over(now_ns, sight):
            self._end(now_ns)
        if self.reason is not None and not (self.alone and sight.leased):
            self._run(now_ns, sight)
        self._may_shrink = self._may_shrink and sight.too_few
        assert self.reason is not None or not self._unanswered_ns, "what waits for an answer belongs to an attempt"
        self._sight = sight
        return self.reason is not None

    def asks(self, now_ns: int, sight: Sight) -> bool:
        """Return whether a request leaves now; if it does, it counts as sent."""
        if self.reason is None or now_ns < self._ask_ns or not self._ready(sight):
            return False
        self._ask_ns = now_ns + (ASK_LEASED_NS if self.alone and sight.leased else ASK_AGAIN_NS)
        self._unanswered_ns.append(now_ns)
        return True

    def told(self, sent_ns: int, said: Told) -> None:
        """Note the outcome of the request that left at ``sent_ns``."""
        if said is not Told.UNKNOWN and sent_ns in self._unanswered_ns:
            self._unanswered_ns.remove(sent_ns)
        if said is Told.NOBODY and sent_ns >= self._began_ns:
            self._until_ns, self._ask_ns = sent_ns, sent_ns + REST_LEAST_NS

    def holds_back(self, sight: Sight) -> bool:
        """Return whether the set must not shrink yet, since members may say that they reach each other."""
        return sight.shrinks and sight.too_few and not self._may_shrink

    def deadline_ns(self, now_ns: int) -> int | None:
        """Return when to look again even if nothing happens."""
        sight = self._sight
        if self.reason is None:
            due = [self._rests_until_ns] if sight.trouble or sight.too_few else []
        else:
            due = [self._ask_ns, *(sent_ns + self.void_ns for sent_ns in self._unanswered_ns)]
            due += [] if self._until_ns is None else [self._until_ns]
            due += [now_ns + LOOK_NS] if self.reason is Reason.DISK and not self._ready(sight) else []
        return min((at_ns for at_ns in due if at_ns > now_ns), default=None)

    def over(self) -> None:
        """The mastership is over: no attempt is under way."""
        self.reason, self._sight = None, Sight()
        self._unanswered_ns.clear()

    # --- inside ----------------------------------------------------------------------------------------------

    def _begin(self, now_ns: int, sight: Sight) -> None:
        assert not self._unanswered_ns, "what became of an earlier attempt is known, or void"
        rested = now_ns >= self._rests_until_ns
        if sight.trouble and sight.heirs and rested:
            self.reason = Reason.DISK
        elif sight.too_few and (rested or (sight.shrinks and not self._may_shrink)):
            self.reason = Reason.SILENCE
        else:
            if not (sight.trouble or sight.too_few) and now_ns >= self._rests_until_ns + REST_MOST_NS:
                self._rest_ns = REST_LEAST_NS
            return
        self.attempt += 1
        self._until_ns, self._ask_ns, self._began_ns, self._grew = None, now_ns, now_ns, False

    def _run(self, now_ns: int, sight: Sight) -> None:
        """Set the end of the attempt. The controllers may have renewed the lease as the first request left."""
        if self._until_ns is None:
            book_ns = self._began_ns + sight.lease_ns if self.alone else 0
            self._until_ns = max(now_ns, book_ns) + self.wait_ns

    def _over(self, now_ns: int, sight: Sight) -> bool:
        if self._doubtful(now_ns):
            return False
        hindered = sight.trouble if self.reason is Reason.DISK else sight.too_few
        return not hindered or (self._until_ns is not None and now_ns >= self._until_ns)

    def _end(self, now_ns: int) -> None:
        assert not self._doubtful(now_ns), "another one may lead"
        self._may_shrink = self._may_shrink or (self.reason is Reason.SILENCE and not self._grew)
        most_ns = REST_ALONE_NS if self.reason is Reason.SILENCE else REST_MOST_NS
        self.reason = None
        self._unanswered_ns.clear()
        self._rests_until_ns = now_ns + min(self._rest_ns, most_ns)
        self._rest_ns = min(2 * self._rest_ns, REST_MOST_NS)
        assert REST_LEAST_NS < self._rest_ns <= REST_MOST_NS

    def _doubtful(self, now_ns: int) -> bool:
        return self.alone and any(now_ns < sent_ns + self.void_ns for sent_ns in self._unanswered_ns)

    def _ready(self, sight: Sight) -> bool:
        return self.reason is Reason.SILENCE or bool(sight.holders)
