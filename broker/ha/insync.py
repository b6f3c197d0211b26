"""A master's SyncStateSet: which replicas are in, asked for or caught up, and what all of them hold.

*The idea.* Whoever may be the next master must hold all that was acknowledged. Only the controllers know who that may
be, and a master hears of it late. So it counts three sets together. *Accepted* is the controllers' last answer. *Asked*
are sets whose request is unanswered: any of them may have been accepted, or may be later. *Joining* are slaves so near
to the end that the confirm offset waits for them. With ``allAckInSyncStateSet`` what is acknowledged or shown to
consumers is held by all three, and the accepted set alone has as many members as ``minInSyncReplicas`` says.

*Rejected.*

- To count the accepted set alone. Between the controllers' decision and its answer the set has a new member, which may
  be elected and lack what was acknowledged meanwhile (the union rule of apache/rocketmq#5663).
- To count the asked set instead of the accepted one. The request may be lost, and then the old set still elects.
- To forget what was asked for with the process that asked. Controllers that know no lives, as Java's, let the next one
  go on with the epoch, and carry the request out later. So it is kept on disk before it leaves (``may_ask``).
- To forget a request without an answer after a while. It may only be on its way. What voids it is a set of a newer
  epoch, its own refusal, or that of a later one, which shows that it was not carried out in all that time.
- To ask only for slaves that hold everything. On a busy master none ever does. So one that is nearly there is waited
  for, for ``admission_ms``; where that was in vain the next wait comes later each time, and producers pay little.
- To count connections. A replica that connects twice would count twice. Members are broker ids, and one that has not
  acknowledged on its present connection holds nothing.

*Why it is right*, in the mode that waits for all.

- *The set of the controllers is always counted.* Only this master adds members, by what it asks for, in this run or in
  an earlier one of its epoch (``before``). So it is within the accepted set, or within one that was asked for since and
  is not void. Or this epoch is over: then the successor was in such a set, or is eligible beside it
  (``controller.metadata.eligible``), and follows this master no more.
- *Each member holds what was confirmed before it counted.* It is asked for only once it holds the confirm offset
  (``_ready``), and from its admission on nothing is confirmed without it, first as joining, then as asked, then as
  accepted.
- *The confirm offset never goes back*, and stands still where a member's acknowledgement is unknown, and where the
  accepted set is smaller than it must be. So who is left alone, or was just elected, confirms nothing that may be gone
  with it (``_confirm``; ``young_master_shows_all`` gives that up for a new master, as Java does).

In the weaker modes the confirm offset is what the master itself holds, and the sets say only who may be elected.
This module knows offsets and time, and neither frames nor requests. Source: ``AutoSwitchHAService`` of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import attrs

from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.departed import Departed
from broker.ha.silence import Ear

_RESTS: Final = 4
"""After a slave was waited for in vain it rests so many times ``admission_ms``; twice as long each further time."""
_DOUBLINGS_MAX: Final = 4
DEPARTED_MAX: Final = 64
"""Slaves without a connection, members aside, that are remembered: each look walks through them."""
_BEFORE: Final = 0
"""Number of the request of an earlier run; its own begin at 1."""


@attrs.define
class _Slave:
    connected: bool = False
    gone: bool = False
    """Its connection was here and closed."""
    learner: bool = False
    ear: Ear | None = None
    """The ear of its present connection; it judges whether the slave is silent."""
    ack: int | None = None
    """End of the log that the slave has acknowledged on its present connection; None: it has acknowledged nothing."""
    sent_max: int = 0
    """Log end at the oldest send that is not acknowledged yet, else at the last send; ``sent_ns`` is its time. A busy
    master sends more while acknowledgements travel: none would ever be of its last send."""
    sent_ns: int = 0
    caught_up_ns: int = 0
    joins_until_ns: int | None = None
    failed: int = 0
    """Number of waits in a row that were in vain. ``failed_ns`` is when the last one ended. A slave that caught up, and
    was not asked for since no controller answered, counts as failed once."""
    failed_ns: int = 0


@attrs.define(eq=False)
class InSync:
    """The sets of one mastership, made anew at each. ``confirm``: where the log is confirmed, as far as is known."""

    self_id: int
    config: HaConfig
    accepted: frozenset[int]
    accepted_epoch: int
    epoch_start: int
    """Offset where the master's own epoch begins in the log."""
    confirm: int
    log_end: int
    durable_end: int
    """End of what this replica counts for itself: the log's end, or its flushed end where puts wait for their flush."""
    started_ns: int
    least: int = 1
    """``minInSyncReplicas`` as it is in force."""
    before: frozenset[int] = frozenset()
    """Members that an earlier run of this epoch asked for, without an answer."""
    keep: Callable[[int, frozenset[int]], bool] = lambda epoch, members: True
    """Keep members for the next run of this master epoch: they are asked for beside the set of that epoch. Returns
    whether they are kept."""
    asked: dict[int, frozenset[int]] = attrs.field(factory=dict, init=False)
    """Sets whose request got no answer, by the latest request for each: there may be one each second for hours."""
    _asked_ns: dict[int, int] = attrs.field(factory=dict, init=False)
    _before_ns: dict[frozenset[int], int] = attrs.field(factory=dict, init=False)
    """For each set that was asked for in vain before: the last time."""
    _was_enough: bool = attrs.field(default=False, init=False)
    _slaves: dict[int, _Slave] = attrs.field(factory=dict, init=False)
    _departed: Departed = attrs.field(factory=lambda: Departed(DEPARTED_MAX), init=False)
    _kept: frozenset[int] = attrs.field(default=frozenset(), init=False)
    _counted: list[_Slave] | None = attrs.field(default=None, init=False)
    """The other members, kept until the sets change: each put and each acknowledgement asks for them."""

    def __attrs_post_init__(self) -> None:
        assert 0 <= self.confirm <= self.log_end, "only what is in the log is confirmed"
        assert self.epoch_start <= self.log_end, "an epoch begins where the log ended, and the log has grown since"
        if self.before:
            self.asked[_BEFORE], self._asked_ns[_BEFORE] = self.accepted | self.before, self.started_ns
            self._kept = self.before
        self._confirm()

    # --- what happens ----------------------------------------------------------------------------------------

    def advanced(self, log_end: int, durable_end: int) -> None:
        """The master's own log grew."""
        assert durable_end <= log_end, "only what is in the log is durable"
        assert log_end >= self.log_end, "nobody cuts a master's log"
        self.log_end, self.durable_end = log_end, durable_end
        self._confirm()

    def opened(self, broker_id: int, learner: bool, now_ns: int, ear: Ear | None = None) -> None:
        """A slave's handshake came, on its first connection or on a new one, of which ``ear`` hears."""
        assert broker_id != self.self_id, "no master follows itself"
        slave = self._slave(broker_id)
        slave.connected, slave.gone, slave.learner, slave.ear = True, False, learner, ear
        self._departed.back(broker_id)
        slave.ack, slave.joins_until_ns, self._counted = None, None, None
        slave.failed = min(slave.failed, 1)
        slave.sent_max, slave.sent_ns = self.log_end, now_ns

    def sent(self, broker_id: int, now_ns: int) -> None:
        """The slave was sent all of the log."""
        slave = self._slave(broker_id)
        if slave.ack is not None and slave.ack >= slave.sent_max:
            slave.sent_max, slave.sent_ns = self.log_end, now_ns

    def acked(self, broker_id: int, offset: int, now_ns: int) -> None:
        """The slave says, on its present connection, that its log ends at ``offset``."""
        slave = self._slave(broker_id)
        assert slave.connected, "what is acknowledged counts for as long as its connection"
        assert (slave.ack or 0) <= offset <= self.log_end, "a slave's log grows, and holds no more than the master's"
        slave.ack = offset
        if not slave.learner and offset >= slave.sent_max:
            at_end = offset == self.log_end
            slave.caught_up_ns = max(slave.caught_up_ns, now_ns if at_end else slave.sent_ns)
            if now_ns - slave.caught_up_ns <= self.config.admission_ms * NS_PER_MS:  # it is waited for so long
                self._admit(broker_id, slave, now_ns)
        self._confirm()

    def closed(self, broker_id: int) -> None:
        """The slave's present connection ended."""
        slave = self._slave(broker_id)
        assert slave.connected, "only the present connection tells of the slave"
        slave.connected, slave.gone, slave.ack, slave.joins_until_ns, slave.ear = False, True, None, None, None
        self._counted = None
        for other in self._departed.left(broker_id, self.members):
            del self._slaves[other]

    def tick(self, now_ns: int) -> None:
        """Time passed: wait no longer for slaves that did not come up in time."""
        for broker_id, slave in self._slaves.items():
            if slave.joins_until_ns is not None and slave.joins_until_ns <= now_ns:
                slave.failed, slave.failed_ns = 1 if broker_id in self._ready() else slave.failed + 1, now_ns
                slave.joins_until_ns = self._counted = None
        assert self._counted is None or len(self._counted) == len(self.members) - 1, "who counts is looked up anew"
        self._confirm()

    def demand(self, least: int) -> None:
        """Set ``minInSyncReplicas`` to ``least`` from now on."""
        assert least >= 1, "the master itself is in sync"
        self.least = least
        self._confirm()

    def silent(self, now_ns: int) -> frozenset[int]:
        """Members that beat, and have said nothing for so long that they are not waited for.

        Others may be about to fall silent, within a beat. Where too few would stay if they left as well, all stay for
        that long: members that this master lost together leave together, as only members may lead on without it.
        """
        found = frozenset(member for member in self.accepted if self._is_silent(member, now_ns))
        if not found:
            return found
        assert self.self_id not in found, "a master hears itself"
        soon = {member for member in self.accepted - found if self._falls_silent(member, now_ns)}
        return frozenset() if soon and len(self.accepted - found - soon) < self.least else found

    # --- requests to the controller --------------------------------------------------------------------------

    def wanted(self, now_ns: int) -> frozenset[int] | None:
        """The set to ask for now; None where it is the accepted one.

        It is found anew for each request, so a controller that comes back meets no queue of old wishes.
        """
        limit = now_ns - self.config.max_time_not_caught_up_ms * NS_PER_MS
        stay = {member for member in self.accepted if member == self.self_id or self._keeps_up(member, limit)}
        target = frozenset((stay | set(self._ready())) - self.silent(now_ns) | {self.self_id})
        if target != self.accepted:
            return target
        # An unanswered request keeps its members counted. Ask again until the epoch moves or a refusal is certain.
        return next(iter(self.asked.values()), None)

    def may_ask(self, members: frozenset[int]) -> bool:
        """Have members kept that a request for these may add; False: it must not leave."""
        new = members.union(*self.asked.values()) - self.accepted
        if not new <= self._kept:
            if not self.keep(self.accepted_epoch, new):
                return False
            self._kept = new
        return True

    def ask(self, request: int, members: frozenset[int], now_ns: int) -> None:
        """A request leaves. Until it is answered its members count, too."""
        assert self.self_id in members, "no master asks for a set without itself"
        assert request not in self.asked, "each request has its own number"
        for earlier in [asked for asked, same in self.asked.items() if same == members]:
            del self.asked[earlier]
            self._before_ns[members] = self._asked_ns.pop(earlier)
        self.asked[request] = members
        self._counted = None
        self._asked_ns[request] = now_ns
        for member in members:
            self._slave(member).joins_until_ns = None  # counted as asked for from now on

    def refused(self, request: int, now_ns: int, *, epoch_stands: bool) -> None:
        """The controller answered that this very request changed nothing. No answer is no refusal.

        ``epoch_stands``: it was not refused for its epoch. So no earlier request has been carried out so far, and one
        that is old enough never will be. A refusal for the epoch says the very opposite.
        """
        void = now_ns - self.config.asked_void_ms * NS_PER_MS if epoch_stands else -1
        for asked in [asked for asked in self.asked if asked == request or self._asked_ns[asked] <= void]:
            before_ns = self._before_ns.pop(self.asked[asked], None)
            if before_ns is not None and before_ns > void:  # an earlier request for this set may yet be carried out
                self._asked_ns[asked] = before_ns
            else:
                del self.asked[asked], self._asked_ns[asked]
        assert self.asked.keys() == self._asked_ns.keys()
        assert self._before_ns.keys() <= {*self.asked.values()}, "of sets that are asked for"
        if self._kept and not self.asked and self.keep(self.accepted_epoch, frozenset()):
            self._kept = frozenset()
        self._counted = None
        self._confirm()

    def accept(self, members: Iterable[int], epoch: int) -> bool:
        """Take the controller's set from an answer, whichever it is; returns whether it is newer.

        An older or equal epoch changes nothing: requests under way may still be carried out.
        """
        if epoch <= self.accepted_epoch:
            return False
        self.accepted, self.accepted_epoch = frozenset(members), epoch
        self._kept = frozenset()
        self.asked.clear()
        self._asked_ns.clear()
        self._before_ns.clear()
        self._counted = None
        for member in self.accepted:
            self._slave(member).failed = 0
        self._confirm()
        return True

    # --- what holds ------------------------------------------------------------------------------------------

    @property
    def members(self) -> frozenset[int]:
        """Members that are accepted, asked for or joining: any of them may be the next master and lose nothing."""
        joining = {broker_id for broker_id, slave in self._slaves.items() if slave.joins_until_ns is not None}
        return self.accepted.union({self.self_id}, joining, *self.asked.values())

    def holds_all(self, end: int) -> bool:
        if self.durable_end < end:
            return False
        for slave in self._others():  # noqa: SIM110  each put and each acknowledgement asks, and ``all`` takes longer
            if slave.ack is None or slave.ack < end:
                return False
        return True

    def holders(self, end: int) -> int:
        """Return how many replicas hold the log up to ``end``, this one among them, learners not."""
        return (self.durable_end >= end) + sum(
            slave.ack is not None and slave.ack >= end for slave in self._slaves.values() if not slave.learner)

    def enough(self, least: int) -> bool:
        return least <= len(self.accepted) >= self.least

    @property
    def joining(self) -> bool:
        """Return whether the confirm offset waits for a slave that is about to join."""
        return any(slave.joins_until_ns is not None for slave in self._slaves.values())

    @property
    def acks(self) -> dict[int, int | None]:
        """Ends of the log that connected slaves have acknowledged, by broker id; learners are left out."""
        return {broker_id: slave.ack for broker_id, slave in self._slaves.items()
                if slave.connected and not slave.learner}

    def heard(self, now_ns: int) -> dict[int, int | None]:
        """``acks`` of those that are not silent, members or not."""
        return {member: ack for member, ack in self.acks.items() if not self._is_silent(member, now_ns)}

    def deadline_after(self, now_ns: int) -> int | None:
        """Return when to look again even if nothing happens: a wait, or a member's time to catch up or to say
        something, ends then."""
        limit = self.config.max_time_not_caught_up_ms * NS_PER_MS
        due = [slave.joins_until_ns for slave in self._slaves.values() if slave.joins_until_ns is not None]
        for slave in map(self._slave, self.accepted - {self.self_id}):
            due.append(slave.caught_up_ns + limit)
            if slave.ear is not None and slave.ear.deadline_ns is not None:
                due.append(slave.ear.deadline_ns)
        return min((at_ns for at_ns in due if at_ns > now_ns), default=None)

    # --- inside ----------------------------------------------------------------------------------------------

    def _slave(self, broker_id: int) -> _Slave:
        slave = self._slaves.get(broker_id)
        if slave is None:
            slave = self._slaves[broker_id] = _Slave(caught_up_ns=self.started_ns)
        return slave

    def _others(self) -> list[_Slave]:
        if self._counted is None:
            self._counted = [self._slave(member) for member in self.members if member != self.self_id]
        return self._counted

    def _ack(self, member: int) -> int:
        slave = self._slaves.get(member)
        return -1 if slave is None or slave.ack is None else slave.ack

    def _is_silent(self, member: int, now_ns: int) -> bool:
        slave = self._slaves.get(member)
        return slave is not None and slave.ear is not None and slave.ear.silent(now_ns)

    def _falls_silent(self, member: int, now_ns: int) -> bool:
        """Return whether this member becomes silent within one beat if nothing more comes from it."""
        slave = self._slaves.get(member)
        due = None if slave is None or slave.ear is None else slave.ear.deadline_ns
        return due is not None and due <= now_ns + self.config.beat_interval_ms * NS_PER_MS

    def _keeps_up(self, member: int, limit_ns: int) -> bool:
        slave = self._slave(member)
        return not slave.gone and not slave.learner and slave.caught_up_ns > limit_ns

    def _admit(self, broker_id: int, slave: _Slave, now_ns: int) -> None:
        for other in self._others():
            if other is slave:
                return  # it counts already
        if (slave.joins_until_ns is None and now_ns >= self._rests_until_ns(slave)
                and self._ack(broker_id) >= self.epoch_start):
            self._counted = None
            slave.joins_until_ns = now_ns + self.config.admission_ms * NS_PER_MS

    def _rests_until_ns(self, slave: _Slave) -> int:
        """Return when this slave may be waited for again: one that cannot keep up must cost producers little.

        One at the very end of the log, as of a master that must not write without it, rests no longer than after the
        first time.
        """
        if not slave.failed:
            return 0
        doublings = 0 if slave.ack == self.log_end else min(slave.failed - 1, _DOUBLINGS_MAX)
        return slave.failed_ns + (_RESTS << doublings) * self.config.admission_ms * NS_PER_MS

    def _ready(self) -> list[int]:
        """Slaves that join now, as they hold what was confirmed.

        In the weaker modes that is all that was written, which a slave reaches only in a pause. There it joins when it
        holds what was written a moment ago, as ``acked`` has seen.
        """
        floor = max(self.confirm if self.config.all_ack_in_sync_state_set else 0, self.epoch_start)
        kept = [member for members in self.asked.values() for member in members if member not in self.accepted]
        joining = [broker_id for broker_id, slave in self._slaves.items() if slave.joins_until_ns is not None]
        return [member for member in (*kept, *joining) if self._ack(member) >= floor]

    def _confirm(self) -> None:
        """Move the confirm offset to where all members hold the log; it never goes back.

        It stands still while a member's acknowledgement is unknown, and while the set has fewer members than are
        demanded: what a master alone holds may be gone with it. In Java a new master shows all that it has.
        """
        assert self.confirm <= self.log_end, "only what is in the log is confirmed"
        if not self.config.all_ack_in_sync_state_set:
            self.confirm = max(self.confirm, self.durable_end)
            return
        enough = self.enough(1)
        self._was_enough = self._was_enough or enough
        if not enough and (self._was_enough or not self.config.young_master_shows_all):
            return
        least = self.durable_end
        for slave in self._others():
            least = min(least, -1 if slave.ack is None else slave.ack)
        self.confirm = max(self.confirm, least)
