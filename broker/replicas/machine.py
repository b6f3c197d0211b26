"""The state machine of a broker in its group: states, and a table of the moves that each event makes.

*The idea.* Two tables, whose states stand side by side. ``MOVES`` leads from a broker without an id to a master or a
slave: an id is applied for, this process is registered with it, and replication takes each role, one at a time, while
writes are closed. ``RETREATS`` says how a broker gives mastership up: it *resigns* where its machine lost what others
may hold, *yields* where its members or its disk fail it, and *hands over* where it is about to stop. ``WRITES`` says in
which states writes are open. Whoever has read the tables has read the rules: the methods below only say which event
something is, and keep the roles.

*Rejected.*

- A flag *slave* beside other flags and due times. Nobody can say which of their combinations exist,
  and each reader of a flag decides anew what the others mean.
- One table of all pairs of a state and a retreat. Most of its rows would repeat each other: a retreat changes what a
  broker asks for, not what role replication is in.
- To break off a role that is being taken when a newer one is named. Each step would need its undoing. The newer role
  waits for the end of the older one, which is at most some steps away (``OUTRUN``).
- Writes that are opened and closed by events. One that is forgotten leaves them open. They follow from the state.

*Why it is right.*

- *Writes are open only in a role that was taken.* They may be open in ``SLAVE``, where puts find no master, and in
  ``MASTER`` while the lease holds. Only ``TAKEN_SLAVE`` and ``TAKEN_MASTER`` lead there, and ``taken`` says so only of
  the role that is wanted at that moment.
- *One role at a time.* ``TAKE`` goes out only if none is under way, and each end of a role says what follows.
- *No role outlives its registration.* ``DISPLACED`` (another process has this broker's id) leads out of every
  registered state. A role under way is *stale* from then on: its end leads nowhere, or to the same role taken anew.
  Nothing is served or copied before the broker is ``REGISTERED`` again.
- *No epoch is taken after a newer one*: ``named`` accepts no older epoch than the greatest that it knows, and a role
  of an epoch that is over (``MASTERLESS``) leads nowhere, though it is being taken.
- *A retreat does no harm.* A broker that hands over never writes again: that row is empty. One that resigns takes the
  next epoch that it hears of. One that yields goes on where nobody follows; if it acknowledges what not all members
  hold, it writes nothing meanwhile.

Pure: it knows roles, and neither requests nor who answers them. ``docs/reference/replication.md`` shows the tables and
a diagram of them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from broker.ha.taking import Become, BecomeMaster, BecomeSlave


class State(enum.Enum):
    """States of a broker, from none to a role taken. The values are words for the reference."""

    NAMELESS = "it has no id, and asks which one is free"
    APPLYING = "it has applied for an id, and asks whether it may have it"
    UNREGISTERED = "it has an id, and no controller counts this process as who has it"
    IDLE = "it is registered, and has had no role since"
    ENTERING = "it takes its first role since it registered"
    MASTER = "it is master of its epoch"
    SLAVE = "it copies the master of its epoch"
    CHANGING = "it takes another role, and has left the one before"
    VACANT = "it has had a role, and knows of no master now"
    STOPPED = "it is about to end"

    __hash__ = object.__hash__  # each turn of a broker looks its state up; that of enumerations is not C


class Retreat(enum.Enum):
    """Ways in which a broker gives mastership up, beside its state."""

    NONE = "it may be elected, and beats"
    RESIGNING = "it was elected, may lack what others hold, asks for another election, and does not beat"
    YIELDING = "it asks for a successor while it lives, and goes on where there is none"
    HANDING_OVER = "it stops: another one is to be master, and it writes nothing again"


class Event(enum.Enum):
    """Events that move the machine, and who reports them."""

    NUMBERED = "a controller tells an id that is free"
    GRANTED = "a controller grants the id"
    ID_IS_ANOTHERS = "a controller has given that id to another broker"
    REGISTERED = "a controller registers this process"
    NAMED_MASTER = "a controller names this broker master of a newer epoch"
    NAMED_SLAVE = "a controller names another broker master of a newer epoch, or another address of the master"
    TAKEN_MASTER = "replication is master, as it was asked for last"
    TAKEN_SLAVE = "replication is slave, as it was asked for last"
    OUTRUN = "replication has taken a role, and another one is wanted by now"
    LATE = "replication has taken a role, which is not wanted any more"
    REFUSED = "replication could not take the role"
    MASTERLESS = "a controller tells of a newer epoch, which has no master"
    DISPLACED = "a controller says that another process has this broker's id"
    DOUBTED = "a controller names this broker master of an epoch of which it may lack something"
    REPLACED = "the epoch that it resigned from is over"
    HINDERED = "a master hears too few members, or its disk is full or stalled, and another one may do better"
    RELIEVED = "that is over, or nobody follows"
    HAND_OVER = "the operator stops this broker, a master"
    STOP = "the process ends"


class Action(enum.Enum):
    """Actions that a move asks for, in order; the manager makes outputs and due times of them."""

    WRITE_APPLICATION = "write the application for the id"
    WRITE_IDENTITY = "write the identity, remove the application"
    REMOVE_APPLICATION = "remove the application"
    TAKE = "take the role that is wanted, behind one that is being taken"
    LEAVE = "leave any role"
    FORGET = "forget what was asked"
    BEAT = "send a heartbeat now"
    ELECT = "ask for an election now"
    ELECT_BY_POLL = "ask for an election no later than who is master is asked next"
    POLL = "ask who is master now"


S, R, E, A = State, Retreat, Event, Action

_STAYS: Final[tuple[Action, ...]] = ()
_DISPLACED: Final = (S.UNREGISTERED, (A.FORGET, A.LEAVE))

MOVES: Final[Mapping[State, Mapping[Event, tuple[State, tuple[Action, ...]]]]] = {
    S.NAMELESS: {
        E.NUMBERED: (S.APPLYING, (A.WRITE_APPLICATION,)),
    },
    S.APPLYING: {
        E.GRANTED: (S.UNREGISTERED, (A.WRITE_IDENTITY,)),
        E.ID_IS_ANOTHERS: (S.NAMELESS, (A.REMOVE_APPLICATION,)),
    },
    S.UNREGISTERED: {
        E.REGISTERED: (S.IDLE, (A.BEAT,)),
        E.LATE: (S.UNREGISTERED, (A.LEAVE,)),
        E.REFUSED: (S.UNREGISTERED, _STAYS),
    },
    S.IDLE: {
        E.NAMED_MASTER: (S.ENTERING, (A.BEAT, A.TAKE)),
        E.NAMED_SLAVE: (S.ENTERING, (A.TAKE,)),
        E.MASTERLESS: (S.IDLE, (A.ELECT_BY_POLL,)),
        E.LATE: (S.IDLE, (A.LEAVE,)),
        E.REFUSED: (S.IDLE, _STAYS),
        E.DISPLACED: _DISPLACED,
    },
    S.ENTERING: {
        E.TAKEN_MASTER: (S.MASTER, _STAYS),
        E.TAKEN_SLAVE: (S.SLAVE, _STAYS),
        E.NAMED_MASTER: (S.ENTERING, (A.BEAT, A.TAKE)),
        E.NAMED_SLAVE: (S.ENTERING, (A.TAKE,)),
        E.OUTRUN: (S.ENTERING, (A.TAKE,)),
        E.LATE: (S.IDLE, (A.LEAVE,)),
        E.REFUSED: (S.IDLE, _STAYS),
        E.MASTERLESS: (S.IDLE, (A.ELECT_BY_POLL,)),
        E.DISPLACED: _DISPLACED,
    },
    S.MASTER: {
        E.NAMED_MASTER: (S.CHANGING, (A.BEAT, A.TAKE)),
        E.NAMED_SLAVE: (S.CHANGING, (A.TAKE,)),
        E.MASTERLESS: (S.VACANT, (A.ELECT_BY_POLL,)),
        E.DISPLACED: _DISPLACED,
    },
    S.SLAVE: {
        E.NAMED_MASTER: (S.CHANGING, (A.BEAT, A.TAKE)),
        E.NAMED_SLAVE: (S.CHANGING, (A.TAKE,)),
        E.MASTERLESS: (S.VACANT, (A.ELECT_BY_POLL,)),
        E.DISPLACED: _DISPLACED,
    },
    S.CHANGING: {
        E.TAKEN_MASTER: (S.MASTER, _STAYS),
        E.TAKEN_SLAVE: (S.SLAVE, _STAYS),
        E.NAMED_MASTER: (S.CHANGING, (A.BEAT, A.TAKE)),
        E.NAMED_SLAVE: (S.CHANGING, (A.TAKE,)),
        E.OUTRUN: (S.CHANGING, (A.TAKE,)),
        E.LATE: (S.VACANT, (A.LEAVE,)),
        E.REFUSED: (S.VACANT, _STAYS),
        E.MASTERLESS: (S.VACANT, (A.ELECT_BY_POLL,)),
        E.DISPLACED: _DISPLACED,
    },
    S.VACANT: {
        E.NAMED_MASTER: (S.CHANGING, (A.BEAT, A.TAKE)),
        E.NAMED_SLAVE: (S.CHANGING, (A.TAKE,)),
        E.LATE: (S.VACANT, (A.LEAVE,)),
        E.REFUSED: (S.VACANT, _STAYS),
        E.MASTERLESS: (S.VACANT, (A.ELECT_BY_POLL,)),
        E.DISPLACED: _DISPLACED,
    },
    S.STOPPED: {},
}
"""``STOP`` leads to ``STOPPED`` from everywhere, and nothing leads on from there. What is in no row cannot happen."""

RETREATS: Final[Mapping[Retreat, Mapping[Event, tuple[Retreat, tuple[Action, ...]]]]] = {
    R.NONE: {
        E.DOUBTED: (R.RESIGNING, (A.ELECT, A.POLL)),
        E.HINDERED: (R.YIELDING, ()),
        E.HAND_OVER: (R.HANDING_OVER, ()),
    },
    R.RESIGNING: {
        E.NAMED_MASTER: (R.NONE, ()),
        E.NAMED_SLAVE: (R.NONE, ()),
        E.REPLACED: (R.NONE, (A.BEAT, A.ELECT)),
        E.DISPLACED: (R.NONE, ()),
        E.HAND_OVER: (R.HANDING_OVER, ()),
    },
    R.YIELDING: {
        E.RELIEVED: (R.NONE, (A.BEAT,)),
        E.DOUBTED: (R.RESIGNING, (A.ELECT, A.POLL)),
        E.NAMED_MASTER: (R.NONE, ()),
        E.NAMED_SLAVE: (R.NONE, ()),
        E.MASTERLESS: (R.NONE, ()),
        E.DISPLACED: (R.NONE, ()),
        E.HAND_OVER: (R.HANDING_OVER, ()),
    },
    R.HANDING_OVER: {},
}
"""Moves of a retreat. An event without a row changes nothing."""
assert MOVES.keys() == {*State} and RETREATS.keys() == {*Retreat}, "each has a row"


class Writes(enum.Enum):
    """Says whether writes are open in a state."""

    CLOSED = "no"
    LEASED = "while the lease holds, and it neither hands over nor, where it acknowledges alone, yields"
    OPEN = "yes; puts find no master here"


WRITES: Final[Mapping[State, Writes]] = {
    state: {S.MASTER: Writes.LEASED, S.SLAVE: Writes.OPEN}.get(state, Writes.CLOSED) for state in State}

REGISTERED: Final = frozenset({S.IDLE, S.ENTERING, S.MASTER, S.SLAVE, S.CHANGING, S.VACANT})
"""Controllers count this process as a replica of its group."""
ROLELESS: Final = frozenset({S.IDLE, S.VACANT})
"""Registered, and neither in a role nor about to be."""
TAKING: Final = frozenset({S.ENTERING, S.CHANGING})
SEASONED: Final = frozenset({S.MASTER, S.SLAVE, S.CHANGING, S.VACANT})
"""It has had a role since it registered."""


class RoleMachine:
    """One broker's. Each method says what happened and returns what is to be done."""

    def __init__(self, state: State, *, alone: bool = False) -> None:
        """``alone``: it acknowledges what not all members of its SyncStateSet hold."""
        self.state = state
        self._alone = alone
        self.retreat = Retreat.NONE
        self.role: Become | None = None
        """The role that replication has taken last; None while it counts no more."""
        self.target: Become | None = None
        """The role that replication is to take."""
        self._under_way: Become | None = None
        """The role that replication is taking now: ``target``, or one that is no longer wanted."""
        self._stale = False
        """This broker left its group since that began: the same role has to be taken anew."""

    def named(self, role: Become) -> tuple[Action, ...]:
        assert role.epoch >= self.epoch, "older news is no news"
        self.target = role
        return self.happened(Event.NAMED_MASTER if isinstance(role, BecomeMaster) else Event.NAMED_SLAVE)

    def taken(self, role: Become, *, doubtful: bool = False) -> tuple[Action, ...]:
        """``doubtful``: by now it is known that this broker may not lead that epoch."""
        if self.state is State.STOPPED:
            return ()
        assert role == self._under_way, "replication takes what it was asked for"
        wanted, stale, self._under_way, self._stale = self.target, self._stale, None, False
        if wanted is None or (doubtful and wanted == role):
            self.role = self.target = None
            return self.happened(Event.LATE)
        if wanted != role or stale:
            self.role = None if stale else role
            return self.happened(Event.OUTRUN)
        self.role, self.target = role, None
        return self.happened(Event.TAKEN_MASTER if isinstance(role, BecomeMaster) else Event.TAKEN_SLAVE)

    def refused(self) -> tuple[Action, ...]:
        if self.state is State.STOPPED:
            return ()
        assert self._under_way is not None, "replication takes what it was asked for"
        stale, self._under_way, self._stale = self._stale, None, False
        if stale and self.target is not None:
            return self.happened(Event.OUTRUN)
        self.role = self.target = None
        return self.happened(Event.REFUSED)

    def masterless(self) -> tuple[Action, ...]:
        self.role = self.target = None
        return self.happened(Event.MASTERLESS)

    def displaced(self) -> tuple[Action, ...]:
        self.role = self.target = None
        self._stale = self._under_way is not None
        return self.happened(Event.DISPLACED)

    def doubted(self) -> tuple[Action, ...]:
        return self._retreats(Event.DOUBTED)

    def replaced(self) -> tuple[Action, ...]:
        return self._retreats(Event.REPLACED)

    def hindered(self) -> tuple[Action, ...]:
        """Only a master ever is."""
        return self._retreats(Event.HINDERED) if self.state is State.MASTER else ()

    def relieved(self) -> tuple[Action, ...]:
        return self._retreats(Event.RELIEVED)

    def hand_over(self) -> None:
        self._retreats(Event.HAND_OVER)
        assert self.retreat is Retreat.HANDING_OVER, "whatever it was about before"

    def stop(self) -> None:
        self.state = State.STOPPED

    def happened(self, event: Event) -> tuple[Action, ...]:
        """Move by both tables. An event that its state has no row for is a defect of the caller."""
        if self.state is State.STOPPED:
            return ()
        move = MOVES[self.state].get(event)
        assert move is not None, f"{event.name} cannot happen in {self.state.name}"
        self.state, actions = move
        actions += self._retreats(event)
        assert not self.yielding or self.state is State.MASTER, "nobody else has anything to yield"
        assert self.state is not State.MASTER or isinstance(self.role, BecomeMaster), "a state tells of its role"
        assert self.state is not State.SLAVE or isinstance(self.role, BecomeSlave), "a state tells of its role"
        assert self.state in REGISTERED or self.role is None, "who is not registered has no role"
        assert self.state not in TAKING or self.target is not None, "who takes a role knows which one"
        if Action.TAKE in actions:
            if self._under_way is not None:  # replication takes one at a time; the end of that one leads to this one
                return tuple(action for action in actions if action is not Action.TAKE)
            self._under_way = self.target
        return actions

    def _retreats(self, event: Event) -> tuple[Action, ...]:
        self.retreat, actions = RETREATS[self.retreat].get(event, (self.retreat, ()))
        return actions

    @property
    def resigning(self) -> bool:
        return self.retreat is Retreat.RESIGNING

    @property
    def yielding(self) -> bool:
        return self.retreat is Retreat.YIELDING

    @property
    def writes(self) -> Writes:
        """Return whether writes may be open now."""
        writes = WRITES[self.state]
        assert writes is Writes.CLOSED or self.role is not None, "only a role that was taken opens writes"
        if writes is Writes.LEASED and (self.retreat is Retreat.HANDING_OVER or (self._alone and self.yielding)):
            return Writes.CLOSED
        return writes

    @property
    def epoch(self) -> int:
        """The greatest master epoch known, taken or under way."""
        return max((role.epoch for role in (self.role, self.target) if role is not None), default=0)
