"""A second, naive metadata: one mutable record per group, written from the text of the rules and not from the code.

Every method does what one request asks and returns the response code alone. It keeps no bytes, outcomes or history.
"""

from __future__ import annotations

import attrs

from controller.metadata.commands import LiveReplica, Trigger

Live = dict[int, LiveReplica]


@attrs.define
class Broker:
    code: str
    address: str
    learner: bool = False
    life: int | None = None


@attrs.define
class Model:
    """One group, from before its first broker to after its last."""

    brokers: dict[int, Broker] = attrs.field(factory=dict)
    next_id: int = 1
    in_sync: set[int] = attrs.field(factory=set)
    set_epoch: int = 0
    master: int | None = None
    epoch: int = 0
    eligible: set[int] = attrs.field(factory=set)
    vacant: bool = False

    def alive(self, i: int | None, live: Live) -> bool:
        if i is None or i not in live or i not in self.brokers:
            return False
        broker, seen = self.brokers[i], live[i]
        if seen.address is None:
            return True
        return seen.address == broker.address if broker.life is None else seen.life == broker.life

    def state(self) -> tuple[object, ...]:
        return (
            {i: (b.code, b.address, b.learner, b.life) for i, b in self.brokers.items()}, self.next_id, self.in_sync,
            self.set_epoch, self.master, self.epoch, self.eligible, self.vacant,
        )

    def apply_id(self, i: int, code: str) -> int:
        if i in self.brokers:
            return 0 if self.brokers[i].code == code else 2014
        if i != self.next_id:
            return 2014
        self.brokers[i] = Broker(code, code.partition(";")[0])
        self.next_id += 1
        return 0

    def register(self, i: int, address: str, learner: bool, life: int | None, running: bool, dead: bool) -> int:
        if i not in self.brokers:
            return 2010
        broker = self.brokers[i]
        mine = broker.address == address if broker.life is None else broker.life == life
        if not mine and not dead:
            return 2014
        if i == self.master:
            if not mine:
                self.vacant = True
            elif not running and (life is None or life != broker.life):
                self.eligible = set()
        broker.address, broker.learner, broker.life = address, learner, life
        return 0

    def alter(self, i: int, epoch: int, members: set[int], set_epoch: int, live: Live) -> int:
        if not self.brokers:
            return 2013
        if self.master is None or self.master != i or self.vacant:
            return 2002
        if epoch != self.epoch:
            return 2000
        if set_epoch != self.set_epoch:
            return 2001
        if members == self.in_sync:
            return 0
        for j in sorted(members):
            if j not in self.brokers:
                return 2003
            if j != i and (self.brokers[j].learner or (j in live and live[j].learner)):
                return 2003
            if not self.alive(j, live):
                return 2006
        if i not in members:
            return 2013
        self.in_sync, self.set_epoch, self.eligible = set(members), self.set_epoch + 1, set()
        return 0

    def elect(self, trigger: Trigger, i: int | None, designate: bool, unclean: bool, live: Live) -> int:
        if trigger == Trigger.CONTROLLER:
            i = None
        if not self.brokers:
            return 2010
        if trigger == Trigger.BROKER and i is not None and i not in self.brokers:
            return 2010
        if designate and i is None:
            return 2005
        fit = {j for j in self.brokers if self.alive(j, live) and not live[j].learner and not self.brokers[j].learner}
        if not self.in_sync:
            if i is None:
                return 2004
            winners = fit & {i}
        else:
            if not self.vacant and self.alive(self.master, live) and (not designate or i == self.master):
                return 2011
            winners = fit & (self.in_sync | self.eligible)
            if designate:
                winners &= {i}
            if not winners and unclean:
                winners = fit & {i} if designate else fit
        if winners:
            best = max(winners, key=lambda j: (live[j].epoch, live[j].max_offset, -live[j].priority, -j))
            safe = (live[best].min_in_sync_replicas or 0) > 1
            self.eligible = (self.in_sync | self.eligible) - {best} if safe else set()
            self.master, self.epoch, self.in_sync, self.set_epoch = best, self.epoch + 1, {best}, self.set_epoch + 1
            self.vacant = False
            return 0
        if i is not None:
            return 2012
        if trigger == Trigger.CONTROLLER and self.master is not None:
            self.master, self.epoch, self.vacant = None, self.epoch + 1, False
        return 2004

    def drop(self, i: int, epoch: int) -> int:
        if self.master == i and self.epoch == epoch:
            self.eligible = set()
        return 0

    def clean(self, ids: set[int] | None, force: bool, live: Live) -> int:
        if not self.brokers:
            return 2009
        gone = set(self.brokers) if ids is None else ids
        if any(i < 1 or i >= self.next_id for i in gone):
            return 2009
        if not force and ((ids is None and self.master is not None) or gone & set(self.brokers) & set(live)):
            return 2009
        if self.in_sync and not self.in_sync - gone and set(self.brokers) - gone:
            return 2009
        if self.in_sync & gone:
            self.set_epoch += 1
        if self.master in gone:
            self.master, self.epoch, self.vacant = None, self.epoch + 1, False
        for i in gone:
            self.brokers.pop(i, None)
        self.in_sync -= gone
        self.eligible -= gone
        return 0
