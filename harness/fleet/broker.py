"""One simulated broker: what it knows of itself and of its group, and what follows from that. No I/O and no clock.

What survives its death is what a broker keeps on disk: its id, the check code it applied with, the largest master epoch
it followed and how long its log is.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class View:
    """A broker's knowledge of its group. ``master`` None: it has none, as far as this broker knows."""

    master: int | None = None
    master_epoch: int = 0
    in_sync: frozenset[int] = frozenset()
    in_sync_epoch: int = 0

    def newer_than(self, other: View) -> bool:
        """Return whether this answer is newer than another: both epochs only rise, the set's across masters, too."""
        return (self.master_epoch, self.in_sync_epoch) > (other.master_epoch, other.in_sync_epoch)


@attrs.define(eq=False)
class SimulatedBroker:
    """``number`` is its place in its group, from 0; ``broker_id`` what the controllers gave it."""

    group: BrokerGroup
    number: int
    address: str
    """Address where controllers reach it."""
    broker_id: int | None = None
    check_code: str = ""
    """Check code of the id that it applied for; kept until the application is answered."""
    view: View = View()
    max_offset: int = 0
    running: bool = False
    silent: bool = False
    """It holds its connections and says nothing, as a process that was stopped."""
    registered: bool = False
    """True once it registered since its start."""
    announced: tuple[int, int] | None = None
    """Master epoch and id under which the name servers have it."""
    lives: int = 0
    notified: int = 0
    """Notifications (1008) received."""

    @property
    def is_master(self) -> bool:
        return self.view.master is not None and self.view.master == self.broker_id

    def learn(self, told: View) -> bool:
        """Adopt what a controller said, if it is news. Returns whether there is another master or epoch."""
        if not told.newer_than(self.view):
            return False
        switched = (told.master, told.master_epoch) != (self.view.master, self.view.master_epoch)
        self.view = told
        return switched

    def die(self) -> None:
        """Stop, and forget what was in memory."""
        self.running = self.registered = False
        self.view = View(None, self.view.master_epoch)
        self.announced = None


@attrs.define(eq=False)
class BrokerGroup:
    """A group's brokers, and what a master would know of its replicas from their connections to it."""

    cluster: str
    name: str
    brokers: list[SimulatedBroker] = attrs.field(factory=list)
    following: dict[int, int] = attrs.field(factory=dict)
    """Master epoch in which a replica caught up, by broker id."""
    missing_since: dict[int, float] = attrs.field(factory=dict)
    """Time when a replica left its master, by broker id."""

    def broker(self, broker_id: int | None) -> SimulatedBroker | None:
        return next((each for each in self.brokers if broker_id is not None and each.broker_id == broker_id), None)

    @property
    def newest(self) -> View:
        """The view of the best informed of its living brokers."""
        views = [each.view for each in self.brokers if each.running]
        return max(views, key=lambda view: (view.master_epoch, view.in_sync_epoch), default=View())

    @property
    def master(self) -> SimulatedBroker | None:
        """The living broker that leads, by its own knowledge and by that of the best informed."""
        found = self.broker(self.newest.master)
        return found if found is not None and found.running and found.is_master else None

    def settled(self) -> bool:
        """True if exactly the living brokers are in sync with a living master."""
        view, living = self.newest, {each.broker_id for each in self.brokers if each.running}
        return self.master is not None and view.in_sync == living

    def wanted_in_sync(self, master: SimulatedBroker, now: float, allowed_s: float) -> frozenset[int]:
        """Return the set that ``master`` has to report; a replica that is away for ``allowed_s`` drops out."""
        epoch = master.view.master_epoch
        caught_up = {broker_id for broker_id, in_epoch in self.following.items()
                     if in_epoch == epoch and broker_id not in self.missing_since}
        kept = {broker_id for broker_id in master.view.in_sync
                if now - self.missing_since.get(broker_id, now) < allowed_s}
        assert master.broker_id is not None
        return frozenset({*caught_up, *kept, master.broker_id})
