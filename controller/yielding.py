"""Decides who follows a master that lives and is of no use: its members do not hear it, or its disk takes no writes.

*The evidence.* A master is **silent** for a member that says so of its present epoch in a heartbeat no older than two
of its intervals. Members who all say so and reach each other, by probes of their own, could go on without it, if one
of them is electable and they are as many as the ``minInSyncReplicas`` that the master announces: a *clique*. Each of
them is *fit*: it lives, is no learner, in no doubt of its log, of a release that tells of silence, and its disk is
well. Who follows is one of its electable members; the others join the SyncStateSet once they hold its log. Were only
the electable counted, a set that lost one slave just before it lost the other would have nobody who may go on.

    row  who wants it                what must be so besides the backoff                  among the electable of
    1    the master, for silence     a clique, and the minimum is two or more             the clique
    2    the master, for its disk    it names members that are fit                        those
    3    nobody                      a clique of more than the electable fit members      the clique
                                     that hear the master, none that lives is Java's or
                                     older, and this controller missed two heartbeats

Where it is not so yet, and may be soon, the master is told to ask again; what nobody can do is refused, and it goes on.
So is a master who asks for its disk for the first time: members whose logs lie on the same disk may be about to tell of
it, and would be elected to find theirs as bad. Who tells of it more than a look later may be elected all the same.

*Why an election here loses no more than one at a death.* It is the command that a death leads to, from the same sets,
by the same log: an epoch has one master (INV_C1), who follows was electable (INV_C7). What differs is that the former
master may live, and acknowledge. Let it be m in epoch e, and n who follows it.

- With all-ack it may be replaced at once. What m acknowledges, every member of its SyncStateSet has acknowledged to it:
  all of the set that the controllers accepted are asked, whatever m has heard of it yet. Where n is of that set, it
  acknowledges nothing to m once it leads, and what it acknowledged before it holds. Where n is eligible beside the set,
  m acknowledges nothing while the set is so small (``controller.metadata.eligible``), and a larger one is accepted by
  the same log: before the election n is not eligible any more, and not elected, after it m is refused. So n holds all
  that m ever acknowledges. That m hears late of its successor, or never, costs nothing.
- In other modes m acknowledges what n may lack, as long as it believes that it leads. So m's lease must be over, by
  this controller's book, in which it ends no earlier than at m. As m asks, its lease is not renewed for a second, so it
  ends while m goes on asking; and an ask that comes late replaces no master that has gone on, for that has a lease. A
  master without one is replaced when it asks, as it is fenced then, and in no other case. Of those who may follow, who
  has the longest log that an electable living member tells is elected, and of a bad disk's master who is level with it.
  What only m held is gone, as it is at its death.
- Nothing is decided while another election is under way or in doubt: it could be meant for a master that is none.
- Where it fails, as the set changed on the way, the group keeps its master.

*Nobody is accused by who did not listen.* A controller that stood still reads old news first. So silence counts only
when it looked for a while at the times that it meant to; who looks late begins anew.

*Backoff.* Of one group such an election may follow another after 1 s, then 2 s, doubling up to 60 s; five quiet minutes
forget it. So members that hear each other one moment and not the next, or one bad disk below all, cost six elections in
a minute at most. The active controller counts; the next one counts anew.

Pure: it reads groups and ``Liveness``, and time is a number (ns). It proposes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import attrs

from controller.liveness import MS, Heartbeat, Life, Liveness
from controller.metadata.commands import LiveReplica, Observation
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.outcomes import Refused
from remoting.codes import ResponseCode

SILENCE, DISK = "silence", "disk"
"""Reasons for which a master asks for a successor."""
LOOK_NS = 100 * MS
"""Time between two looks at a group while a broker does not hear its master; also how late a look may come."""
ASK_HOLDS_NS = 1_000 * MS
"""After it asked, a master's lease is not renewed for so long."""
INTERVALS = 2
"""Heartbeats that may be missing."""
MISSING_LEAST_NS = 500 * MS
"""However often a broker beats."""
INTERVAL_UNKNOWN_MS = 1_000
FIRST_WAIT_NS = 1_000 * MS
WAIT_MOST_NS = 60_000 * MS
QUIET_NS = 300_000 * MS
CLIQUE_FROM_MOST = 16
"""Most members of a clique that are looked at; of more, those with the longest logs."""


@attrs.frozen
class Ask:
    """A master asks for a successor. ``holders``: who may follow one with a bad disk, as it says."""

    broker_id: int
    epoch: int
    reason: str
    holders: frozenset[int] = frozenset()


@attrs.frozen(kw_only=True)
class NoSuccessor(Refused):
    """Nobody follows a master that asked. ``wait``: somebody may soon."""

    code: ResponseCode = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    wait: bool = False


@attrs.frozen
class Successors:
    """An election may choose one."""

    among: Mapping[int, LiveReplica]
    left: frozenset[int]
    """The members that could go on without the master, and those that would follow them."""
    by_length: bool
    """The longest log, whatever the policy."""
    why: str


@attrs.define
class _Case:
    """Somebody of a group says that its master is silent."""

    epoch: int
    since: int
    """This controller has looked when it meant to since then."""
    look: int
    """Time of the next look."""


@attrs.define
class _Ill:
    """A master asks because of its disk."""

    epoch: int
    since: int
    """Time of its first request."""
    asked: int
    """Time of its last request."""


@attrs.define
class _Backoff:
    last: int
    wait: int


class Yielding:
    """The active controller's memory of such masters, beside ``Liveness``."""

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._cases: dict[GroupKey, _Case] = {}
        self._ill: dict[GroupKey, _Ill] = {}
        self._backoffs: dict[GroupKey, _Backoff] = {}
        self._asks: dict[GroupKey, tuple[int, int]] = {}
        """Time until which the lease of a master is not renewed, and the master's epoch."""

    # --- inputs ----------------------------------------------------------------------------------------------

    def accuses(self, group: BrokerGroup, beat: Heartbeat) -> bool:
        """Return whether a member says by this heartbeat that the present master is silent."""
        return (beat.silent_epoch is not None and beat.silent_epoch == group.master_epoch
                and group.leader not in (None, beat.broker_id))

    def decided(self, now: int, key: GroupKey) -> None:
        """An election of this kind is being proposed."""
        before = self._backoffs.get(key)
        wait = FIRST_WAIT_NS if before is None or now - before.last >= QUIET_NS else min(2 * before.wait, WAIT_MOST_NS)
        self._backoffs[key] = _Backoff(now, wait)
        self._cases.pop(key, None)
        self._ill.pop(key, None)

    def forget(self, key: GroupKey) -> None:
        """This group is no more."""
        for table in (self._cases, self._ill, self._backoffs, self._asks):
            table.pop(key, None)

    def clear(self) -> None:
        """This controller is not active any more."""
        self._cases.clear()
        self._ill.clear()
        self._backoffs.clear()
        self._asks.clear()

    # --- decisions -------------------------------------------------------------------------------------------

    def asked(self, now: int, key: GroupKey, group: BrokerGroup, ask: Ask) -> Successors | NoSuccessor:
        """Rows 1 and 2: the recorded master asks in its own epoch."""
        found = self._asked(now, key, group, ask)
        by_lease = not _asks_all(self._liveness.beat(key, ask.broker_id))
        if by_lease and (isinstance(found, Successors) or found.wait):
            self._asks[key] = now + ASK_HOLDS_NS, ask.epoch
        return found

    def _asked(self, now: int, key: GroupKey, group: BrokerGroup, ask: Ask) -> Successors | NoSuccessor:
        master = self._liveness.beat(key, ask.broker_id)
        if ask.reason not in (SILENCE, DISK):
            return NoSuccessor(remark=f"yieldReason = {ask.reason}: {SILENCE} or {DISK}")
        if master is None:
            return NoSuccessor(remark="this controller has not heard the master yet", wait=True)
        if ask.reason == DISK:
            found = self._by_disk(now, key, group, master, ask.holders)
        elif (least := _demanded(master)) < 2:
            found = NoSuccessor(remark=f"it demands {least} in sync, and can go on alone")
        else:
            found = self._by_silence(now, key, group, master)
        if isinstance(found, NoSuccessor):
            return found
        if (allowed := self._allowed(key)) > now:
            return NoSuccessor(remark=f"the last election of this kind was just before: not for {_s(allowed - now)}")
        if not _asks_all(master) and (until := self._liveness.lease_until(key, ask.broker_id) or now) > now:
            return NoSuccessor(remark=f"the master's lease lasts for {_s(until - now)}", wait=True)
        return found

    def silent(self, now: int, key: GroupKey, group: BrokerGroup) -> Successors | int | None:
        """Row 3: who may follow a master that nobody hears; or when to look again; None: nothing points to it."""
        leader = group.leader
        said = self._witnesses(now, key, group) if leader is not None else {}
        if leader is None or not said:
            self._cases.pop(key, None)
            return None
        _, look = self._listens(now, key, group.master_epoch)
        master = self._liveness.beat(key, leader)
        if master is None or not self._all_ours(now, key, group):
            return look
        due = max(self._missed(key, leader, master), self._allowed(key))
        if not _asks_all(master):
            until = self._liveness.lease_until(key, leader)
            if until is None:
                return look
            due = max(due, until)
        if due > now:
            return min(due, look)
        found = self._by_silence(now, key, group, master)
        hear_it = self._fit(now, key, group).keys() & (group.electable - said.keys())
        return found if isinstance(found, Successors) and len(found.left) > len(hear_it) else look

    def holds_back(self, now: int, key: GroupKey, group: BrokerGroup) -> bool:
        """Return whether the lease of this group's master is not to be renewed, as it asked to be replaced."""
        until, epoch = self._asks.get(key, (now, 0))
        return now < until and epoch == group.master_epoch

    def without_trouble(self, key: GroupKey, group: BrokerGroup, observation: Observation) -> Observation:
        """Without those whose disks are in trouble, where others may win and hold as much; a master that lives stays.

        With all-ack all electable hold what was acknowledged; else whose log is as long as any of them tells.
        """
        live = observation.live
        troubled = {each for each in live.keys() - {group.leader}
                    if (beat := self._liveness.beat(key, each)) is not None and beat.disk_trouble}
        electable = {each: live[each] for each in sorted(group.electable) if each in live and each in group.replicas}
        others = {each: replica for each, replica in _no_learners(group, electable).items()
                  if each not in troubled and each != group.leader}
        if not troubled or not others:
            return observation
        former = self._liveness.beat(key, group.master) if group.master is not None else None
        asks_all = _asks_all(former) if former is not None else all(
            _asks_all(self._liveness.beat(key, each)) for each in electable)
        if not asks_all and not _longest(others, electable.values()):
            return observation
        return Observation({each: replica for each, replica in live.items() if each not in troubled})

    # --- evidence --------------------------------------------------------------------------------------------

    def _by_silence(
        self, now: int, key: GroupKey, group: BrokerGroup, master: Heartbeat
    ) -> Successors | NoSuccessor:
        least, fit = _demanded(master), self._fit(now, key, group)
        first = fit.keys() & group.electable
        if not first or len(fit) < least:
            return NoSuccessor(remark=f"{names(fit)} could go on without it, led by {names(first)}, "
                                      f"and {least} are demanded")
        said = self._witnesses(now, key, group)
        clique = _clique(said, fit, first)
        if len(clique) < least or not self._listens(now, key, group.master_epoch)[0]:
            return NoSuccessor(wait=True, remark=f"it is silent for {names(said)}; of these reach each other: "
                                                 f"{names(clique)}; {least} are demanded")
        among = {each: fit[each] for each in sorted(clique & first)}
        if not _asks_all(master):
            among = _longest(among, self._living(now, key, group, group.electable).values())
        if not among:
            return NoSuccessor(remark=f"{names(clique & first)} lack what another electable member has", wait=True)
        return Successors(among, clique, not _asks_all(master),
                          f"it is silent for {names(clique)}, who reach each other")

    def _by_disk(
        self, now: int, key: GroupKey, group: BrokerGroup, master: Heartbeat, holders: Collection[int]
    ) -> Successors | NoSuccessor:
        told_ns = now - self._ill_since(now, key, group.master_epoch)
        among = fit = {each: replica for each, replica in self._fit(now, key, group).items()
                       if each in holders and each in group.electable}
        if not fit:
            return NoSuccessor(remark=f"of {names(holders)} nobody may follow it, lives and has a good disk")
        if not _asks_all(master):
            among = _longest(fit, [master.replica, *self._living(now, key, group, group.electable).values()])
        if not among:
            return NoSuccessor(remark=f"{names(fit)} have not told yet that they hold all", wait=True)
        if told_ns < LOOK_NS:
            return NoSuccessor(remark=f"{names(among)} may be about to tell of the same disk", wait=True)
        return Successors(among, frozenset(fit), not _asks_all(master), "its disk is in trouble")

    def _witnesses(self, now: int, key: GroupKey, group: BrokerGroup) -> dict[int, frozenset[int]]:
        """Fit members that say now that the master is silent, and whom they reach."""
        said = {}
        for each in self._fit(now, key, group):
            beat, heard = self._liveness.beat(key, each), self._liveness.heard_ns(key, each)
            assert beat is not None and heard is not None  # a fit broker has been heard
            if beat.silent_epoch == group.master_epoch and now - heard <= _missing(beat):
                said[each] = beat.reaches
        return said

    def _fit(self, now: int, key: GroupKey, group: BrokerGroup) -> dict[int, LiveReplica]:
        """Members that could go on without the master, as far as it goes for themselves."""
        fit = {}
        for each, replica in _no_learners(group, self._living(now, key, group, group.replicas)).items():
            beat = self._liveness.beat(key, each)
            if beat is not None and beat.interval_ms is not None and not (beat.disk_trouble or beat.log_in_doubt):
                fit[each] = replica
        return fit

    def _living(
        self, now: int, key: GroupKey, group: BrokerGroup, brokers: Collection[int]
    ) -> dict[int, LiveReplica]:
        """Those of these members that live, but the master."""
        live = {}
        for each in sorted({*brokers} - {group.leader}):
            beat = self._liveness.beat(key, each)
            if beat is not None and each in group.replicas and self._liveness.life(now, key, each) is Life.ALIVE:
                live[each] = beat.replica
        return live

    def _all_ours(self, now: int, key: GroupKey, group: BrokerGroup) -> bool:
        """Return whether every member that is heard is of a release that tells of silence."""
        return all((beat := self._liveness.beat(key, each)) is not None and beat.interval_ms is not None
                   for each in group.replicas
                   if each == group.leader or self._liveness.life(now, key, each) is Life.ALIVE)

    def _missed(self, key: GroupKey, leader: int, master: Heartbeat) -> int:
        """Return when this controller itself has not heard the master for long enough."""
        heard = self._liveness.heard_ns(key, leader) or 0
        return max(heard, self._liveness.listens_since(_missing(master))) + _missing(master) + 1

    def _listens(self, now: int, key: GroupKey, epoch: int) -> tuple[bool, int]:
        """Return whether this controller has looked on time for long enough, and when to look next."""
        case = self._cases.get(key)
        if case is None or case.epoch != epoch or now > case.look + LOOK_NS:
            case = self._cases[key] = _Case(epoch, now, now + LOOK_NS)
        elif now >= case.look:
            case.look = now + LOOK_NS
        return now - case.since >= LOOK_NS, case.look

    def _ill_since(self, now: int, key: GroupKey, epoch: int) -> int:
        """Return since when this master has been asking because of its disk."""
        ill = self._ill.get(key)
        if ill is None or ill.epoch != epoch or now - ill.asked > ASK_HOLDS_NS:
            ill = self._ill[key] = _Ill(epoch, now, now)
        ill.asked = now
        return ill.since

    def _allowed(self, key: GroupKey) -> int:
        """From when on the backoff allows the next one."""
        backoff = self._backoffs.get(key)
        return backoff.last + backoff.wait if backoff is not None else 0

    # --- words -----------------------------------------------------------------------------------------------

    def explain(self, now: int, groups: Mapping[GroupKey, BrokerGroup]) -> Iterator[str]:
        """Yield sentences about groups that have trouble."""
        for key, group in groups.items():
            troubled = [each for each in group.replicas if (beat := self._liveness.beat(key, each)) is not None
                        and beat.disk_trouble and self._liveness.life(now, key, each) is Life.ALIVE]
            if troubled:
                yield f"{key}: trouble with their disks tell {names(troubled)}."
            said = self._witnesses(now, key, group) if group.leader is not None else {}
            if said:
                fit = self._fit(now, key, group)
                yield (f"{key}: its master, broker {group.leader}, is silent for {names(said)}; of these reach each "
                       f"other: {names(_clique(said, fit, fit.keys() & group.electable))}. "
                       f"{self._heard(now, key, group)}")
            if (left := self._allowed(key) - now) > 0:
                yield f"{key}: no master that lives is replaced for {_s(left)}, as one was just before."

    def _heard(self, now: int, key: GroupKey, group: BrokerGroup) -> str:
        heard = self._liveness.heard_ns(key, group.leader) if group.leader is not None else None
        if heard is None:
            return "This controller has not heard it."
        if not self._all_ours(now, key, group):
            return "Not all members tell of silence, so its heartbeat's timeout is waited for."
        return f"This controller heard it {_s(now - heard)} ago."


def _asks_all(beat: Heartbeat | None) -> bool:
    """Return whether it acknowledges only what all in sync hold."""
    return beat is not None and beat.all_ack_in_sync_state_set


def _demanded(beat: Heartbeat) -> int:
    """Return how many members must be in sync for this master to acknowledge."""
    return max(beat.replica.min_in_sync_replicas or 1, 1)


def _missing(beat: Heartbeat) -> int:
    """Return how long a broker with this interval may stay unheard."""
    interval_ms = INTERVAL_UNKNOWN_MS if beat.interval_ms is None else beat.interval_ms
    return max(INTERVALS * interval_ms * MS, MISSING_LEAST_NS)


def _no_learners(group: BrokerGroup, replicas: Mapping[int, LiveReplica]) -> dict[int, LiveReplica]:
    return {each: replica for each, replica in replicas.items()
            if not (replica.learner or group.replicas[each].learner)}


def _end(replica: LiveReplica) -> tuple[int, int]:
    return replica.epoch, replica.max_offset


def _longest(among: Mapping[int, LiveReplica], all_of: Iterable[LiveReplica]) -> dict[int, LiveReplica]:
    """Return the candidates whose log is not behind any of these."""
    most = max(map(_end, all_of), default=(-1, -1))
    return {each: replica for each, replica in among.items() if _end(replica) >= most}


def _clique(
    said: Mapping[int, Collection[int]], replicas: Mapping[int, LiveReplica], electable: Collection[int]
) -> frozenset[int]:
    """The most members that all reach each other, both ways, one of them electable; of several the one with the longest
    logs, of the electable first."""
    order = sorted(said, key=lambda each: (
        each not in electable, *(-number for number in _end(replicas[each])), each))[:CLIQUE_FROM_MOST]
    best: tuple[int, ...] = ()

    def grow(chosen: tuple[int, ...], rest: list[int]) -> None:
        nonlocal best
        if len(chosen) > len(best):
            best = chosen
        for at, each in enumerate(rest):
            if not chosen and each not in electable:
                return  # nor are those behind it
            if len(chosen) + len(rest) - at > len(best):
                grow((*chosen, each), [one for one in rest[at + 1:] if one in said[each] and each in said[one]])

    grow((), order)
    assert not best or best[0] in electable, "one of them may lead"
    return frozenset(best)


def names(brokers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "nobody"


def _s(ns: int) -> str:
    return f"{ns / 1e9:.1f} s"
