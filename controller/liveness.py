"""Keeps which brokers live, as this controller saw it itself: heartbeats (code 904) and the connections that carried
them.

*The idea.* There are two signs of death. A connection that *closes* is a sign at once, for every controller, active or
not. *Silence* is a sign only to a controller that listened, so it is judged one timeout after the latest of these: the
last heartbeat, the moment from which this controller is active, and the end of its last pause. A process that stood
still did not listen, so it looks each ``LOOK_NS``, and notices by a late look that it was paused (``Attention``).
All controllers keep this table, and the active one judges by it.

*A wrong judgement is survived.* It costs an election, and loses no more than an election of this mode may: the
replicated metadata says who may be elected, and the deposed master is stopped by its epoch and, where it has them, by
its gate or its lease. So the table may guess, and is not replicated.

*Rejected.*

- Heartbeats in the log, as a fact that all controllers share. Each would be a write to most disks, and after a replay
  they would tell of brokers that are long gone. Commands carry what the proposer observed instead.
- The time of the last heartbeat alone, as a new active controller finds it. It would find all masters silent to which
  another controller listened, and depose them together.
- A detector that learns how regular heartbeats are. A new active controller has learnt nothing, and a broker knows its
  own timeout: it announces it.
- A deadline that is looked at late, as the only sign of a pause. A pause that ends just after a deadline shows none.
- One scan every few seconds, as in ``DefaultBrokerHeartbeatManager``. It adds its period to each outage. A queue of
  deadlines costs one place for each broker, and a heartbeat does not move it.

*Why it is right.*

- *Nobody is judged silent unheard.* A deadline lies a whole timeout after ``active_since``, and after each pause that
  is longer than a quarter of this timeout, or than ``HELD_UP_NS``. So this controller read heartbeats for all of the
  timeout but for shorter pauses.
- *Nobody is forgotten.* While this controller is active, each broker that is neither closed nor silent stands in the
  queue, at its deadline or earlier. A heartbeat only makes the deadline later. ``expire`` puts a broker whose turn
  came too early in again, and a shorter timeout takes a second, earlier place.
- *A connection closes only for those that use it.* A broker belongs to the connection of its latest heartbeat. What
  comes by one that it has left, or by an older one, says nothing before the newest one has closed, or was silent for a
  timeout: the older one is about to close. A process that stood still reads both, in any order, after any time. One
  connection may carry many brokers.
- *A change of the active controller deposes nobody.* ``observe`` takes the recorded master to be alive until it is
  judged dead, and ``expect`` gives a master that was never heard its time to beat.
- *A stranger keeps nobody alive.* A process that is not the one on record under its id is a *rival*. It is kept apart
  until its connection closes or it is put on record. ``STRANGERS_MAX`` and ``RIVALS_MAX`` bound what it can cost.

Sans-IO: time is a number (ns), a connection any object.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from enum import Enum

import attrs

from controller.metadata.commands import LiveReplica, Observation
from controller.metadata.groups import GroupKey, Replica

MS = 1_000_000
STRANGERS_MAX = 256
"""Brokers that one group may have beside its members: those that just got their ids."""
RIVALS_MAX = 4
"""Rivals of one member."""
SWEPT_FROM = 1_000
"""A shorter queue is not swept."""
LOOK_NS = 100 * MS
"""Interval at which a judge of silence looks, so that a pause of its own shows."""
HELD_UP_NS = 1_000 * MS
"""A look that comes so late means for every broker that this process stood still, and read nothing."""
AHEAD_NS = 100 * MS
"""Brokers that went on beating move back in the queue so long before their turn: many in one turn of the loop."""


class Attention:
    """Remembers when this process last stood still, by looks that came late. What was said meanwhile waits unread."""

    def __init__(self) -> None:
        self._planned = self._looked = 0
        """Times of the next look and of the last."""
        self._resumed = [0] * (HELD_UP_NS // LOOK_NS)
        """When the last pause ended that made a look late by one interval or more, by two or more, and so on."""

    def look(self, now: int) -> bool:
        """Note that this process runs; returns whether it stood still for any time that counts."""
        late = min(max(now - self._planned, 0) // LOOK_NS, len(self._resumed))
        self._resumed[:late] = [now] * late
        self._planned, self._looked = now + LOOK_NS, now
        return late > 0

    def plan(self, deadline: int) -> int:
        """Return when to look next if no silence is judged before ``deadline``. A pause that ends earlier than the
        looks begin leaves a second for what waits unread."""
        self._planned = max(self._looked + LOOK_NS, deadline - 2 * HELD_UP_NS)
        return min(self._planned, deadline)

    def since(self, timeout_ns: int) -> int:
        """Return when the last pause ended that counts for a silence of this length: a quarter of it, or a second."""
        return self._resumed[min(timeout_ns // 4, HELD_UP_NS - 1) // LOOK_NS]

    @property
    def next_look(self) -> int:
        return self._planned


class Life(Enum):
    """The states of a broker, as far as this controller knows."""

    ALIVE = "alive"
    CLOSED = "closed"
    """Its connection closed, and no heartbeat came since."""
    SILENT = "silent"
    """No heartbeat came for its timeout, and this controller was active."""
    UNKNOWN = "unknown"
    """It was not heard, and not for long enough to judge."""


@attrs.define(frozen=True)
class Heartbeat:
    """The content of one heartbeat. ``timeout_ms`` None: the controller's default."""

    key: GroupKey
    broker_id: int
    address: str
    replica: LiveReplica
    timeout_ms: int | None = None
    master_lease_ms: int = 0
    """0: this broker never fences itself."""
    all_ack_in_sync_state_set: bool = False
    log_in_doubt: bool = False
    """Its machine went down, and it may lack what it acknowledged."""
    doubt_epoch: int = -1
    """The master epoch that it knew when it said so; -1: none."""
    silent_epoch: int | None = None
    """The epoch whose master it does not hear."""
    reaches: frozenset[int] = frozenset()
    """Members that it reaches, while it does not hear its master."""
    disk_trouble: bool = False
    interval_ms: int | None = None
    """Interval of its heartbeats. None: the broker does not announce it, and would not tell of a silent master."""


@attrs.define(eq=False)
class _Broker:
    key: GroupKey
    broker_id: int
    beat: Heartbeat | None
    """None: it was never heard, and is expected to beat."""
    connection: object | None
    heard_ns: int
    timeout_ns: int
    closed: bool = False
    silent: bool = False
    renewed_ns: int | None = None
    """Time when this controller last renewed its lease as a master."""
    opened: int = 0
    """Number of its connection: a later one has a higher number."""
    left: set[object] = attrs.field(factory=set)
    """Open connections that it used before this one."""
    due_ns: int = -1
    """Its place in the queue, as a deadline; -1: it has none."""
    rival: bool = False
    """Another process is on record under its id."""


@attrs.define(frozen=True)
class Gone:
    """A broker that has just been judged dead."""

    key: GroupKey
    broker_id: int
    life: Life


class Liveness:
    """The table of brokers. Members always have a place; ``brokers_max`` bounds how many strangers get one."""

    def __init__(self, *, default_timeout_ms: int = 10_000, brokers_max: int = 200_000) -> None:
        self.default_ns = default_timeout_ms * MS
        """Timeout of a broker that announces none."""
        self._max = brokers_max
        self._groups: dict[GroupKey, dict[int, _Broker]] = {}
        self._by_connection: dict[object, set[_Broker]] = {}
        self._left: dict[object, set[_Broker]] = {}
        self._rivals: dict[tuple[GroupKey, int], list[_Broker]] = {}
        """Rivals by group and id on record; the rival heard last stands at the end."""
        self._queue: list[tuple[int, int, _Broker]] = []
        """Brokers by deadline. Empty where this controller is not active."""
        self._pushes = 0
        self._count = 0
        self.attention = Attention()
        """To be asked for a look while there is a deadline, and right before each ``expire``."""
        self.active_since: int | None = None
        self.refused = 0
        """Heartbeats of strangers beyond ``brokers_max``, or ``STRANGERS_MAX`` in one group."""

    # --- inputs ----------------------------------------------------------------------------------------------

    def heartbeat(
        self, now: int, beat: Heartbeat, connection: object, *, members: Collection[int] = (), opened: int = 0
    ) -> bool:
        """Takes a heartbeat of a process on record; returns whether this broker was not alive before.

        ``members``: the ids of its group. ``opened`` rises with each connection that is accepted.
        """
        broker = self._find(beat.key, beat.broker_id)
        if broker is None:
            heard = len(self._groups.get(beat.key, ()))
            if beat.broker_id not in members and (
                    self._count >= self._max or heard >= len(members) + STRANGERS_MAX):
                self.refused += 1
                return False
            broker = self._add(beat.key, beat.broker_id, now)
        elif (connection in broker.left or opened < broker.opened) and not (broker.closed or broker.silent):
            return False
        fresh = broker.beat is None or broker.closed or broker.silent or broker.heard_ns + broker.timeout_ns < now
        if broker.connection != connection:
            broker.opened = opened
            if broker.connection is not None:
                broker.left.add(broker.connection)
                self._left.setdefault(broker.connection, set()).add(broker)
            self._leave(broker)
            broker.connection = connection
            self._by_connection.setdefault(connection, set()).add(broker)
        broker.beat, broker.heard_ns, broker.closed, broker.silent = beat, now, False, False
        broker.timeout_ns = self.default_ns if beat.timeout_ms is None else max(beat.timeout_ms, 1) * MS
        self._enqueue(broker)
        return fresh

    def rival(self, now: int, beat: Heartbeat, connection: object, *, opened: int = 0) -> None:
        """Takes a heartbeat of a process that is not the one on record for this member."""
        rivals = self._rivals.setdefault((beat.key, beat.broker_id), [])
        same = [each for each in rivals if _process(each) == (beat.address, beat.replica.life)]
        for each in same or rivals[: max(1 + len(rivals) - RIVALS_MAX, 0)]:
            self._leave(each)
            rivals.remove(each)
        timeout_ns = self.default_ns if beat.timeout_ms is None else max(beat.timeout_ms, 1) * MS
        broker = _Broker(beat.key, beat.broker_id, beat, connection, now, timeout_ns, opened=opened, rival=True)
        rivals.append(broker)
        self._by_connection.setdefault(connection, set()).add(broker)

    def registered(self, now: int, key: GroupKey, broker_id: int, replica: Replica) -> None:
        """This process is on record now: any other is forgotten, and this one has a timeout to beat."""
        known = self._find(key, broker_id)
        if known is not None and known.beat is not None and replica.is_process(*_process(known)):
            return
        rivals = self._rivals.get((key, broker_id), [])
        found = [each for each in rivals if replica.is_process(*_process(each))]
        if found:
            rivals.remove(found[-1])
        self._forget(key, broker_id)
        broker = self._add(key, broker_id, now, found[-1] if found else None)
        self._enqueue(broker)

    def closed(self, connection: object) -> list[Gone]:
        """A connection closed: brokers whose latest heartbeat came by it are dead."""
        gone = []
        for broker in self._left.pop(connection, ()):
            broker.left.discard(connection)
        for broker in self._by_connection.pop(connection, ()):
            broker.connection = None
            if broker.rival:
                self._part(broker)
                continue
            if not broker.silent:
                gone.append(Gone(broker.key, broker.broker_id, Life.CLOSED))
            broker.closed = True
        gone.sort(key=lambda one: (one.key, one.broker_id))
        return gone

    def activate(self, now: int) -> None:
        """This controller is active from now on, and judges silence."""
        self.active_since = now
        self.attention.look(now)
        for broker in self._brokers():
            broker.silent = False
            self._enqueue(broker)

    def deactivate(self) -> None:
        self.active_since = None
        self._queue.clear()
        for broker in self._brokers():
            broker.due_ns = -1

    def expect(self, now: int, key: GroupKey, broker_id: int) -> None:
        """Gives a member that was never heard the default timeout to beat."""
        if self._find(key, broker_id) is None:
            self._enqueue(self._add(key, broker_id, now))

    def expire(self, now: int) -> list[Gone]:
        """Judges silence: returns who is dead now. Nobody is where this controller is not active."""
        gone = []
        queue = self._queue
        while queue and queue[0][0] <= now + AHEAD_NS:
            due, _, broker = queue[0]
            current = due == broker.due_ns and not broker.closed and not broker.silent
            deadline = self._deadline(broker)
            if current and now < deadline <= due:
                break
            heapq.heappop(queue)
            if due == broker.due_ns:
                broker.due_ns = -1
            if not current:
                continue
            if deadline > now:
                self._enqueue(broker)
            else:
                broker.silent = True
                gone.append(Gone(broker.key, broker.broker_id, Life.SILENT))
        return gone

    def forget(self, key: GroupKey, broker_id: int) -> None:
        """Drops a broker that is not, or no longer, a member of its group."""
        self._forget(key, broker_id)
        for rival in self._rivals.pop((key, broker_id), ()):
            self._leave(rival)

    def _forget(self, key: GroupKey, broker_id: int) -> None:
        members = self._groups.get(key)
        broker = members.pop(broker_id, None) if members else None
        if broker is not None:
            self._leave(broker)
            for connection in broker.left:
                others = self._left[connection]
                others.discard(broker)
                if not others:
                    del self._left[connection]
            broker.due_ns = -1
            self._count -= 1
            if not members:
                del self._groups[key]

    def renew_lease(self, now: int, key: GroupKey, broker_id: int) -> None:
        """Notes that the answer to this master's heartbeat, received at ``now``, renews its lease."""
        broker = self._find(key, broker_id)
        if broker is not None:
            broker.renewed_ns = now

    # --- questions -------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """Return when to call ``expire``: perhaps too early, never too late."""
        return self._queue[0][0] if self._queue and self.active_since is not None else None

    def listens_since(self, timeout_ns: int) -> int:
        """Return since when this controller has listened without a pause that counts for a silence of this length."""
        return max(self.active_since or 0, self.attention.since(timeout_ns))

    def life(self, now: int, key: GroupKey, broker_id: int) -> Life:
        broker = self._find(key, broker_id)
        if broker is None:
            return Life.UNKNOWN
        if broker.closed:
            return Life.CLOSED
        if broker.silent:
            return Life.SILENT
        return Life.ALIVE if broker.beat is not None and broker.heard_ns + broker.timeout_ns >= now else Life.UNKNOWN

    def dead(self, now: int, key: GroupKey, broker_id: int) -> bool:
        """Return whether it is judged dead: its connection closed, or it was silent for its timeout."""
        return self.life(now, key, broker_id) in (Life.CLOSED, Life.SILENT)

    def beat(self, key: GroupKey, broker_id: int) -> Heartbeat | None:
        """The latest heartbeat, however old."""
        broker = self._find(key, broker_id)
        return broker.beat if broker is not None else None

    def heard_ns(self, key: GroupKey, broker_id: int) -> int | None:
        """Return when its latest heartbeat came, by this controller's clock."""
        broker = self._find(key, broker_id)
        return broker.heard_ns if broker is not None and broker.beat is not None else None

    def rivals(self, now: int, key: GroupKey, members: Iterable[int]) -> list[Heartbeat]:
        """The latest heartbeat of each member's rivals, of those that still beat."""
        if not self._rivals:
            return []
        latest = [rivals[-1] for broker_id in members if (rivals := self._rivals.get((key, broker_id)))]
        return [each.beat for each in latest if each.beat is not None and each.heard_ns + each.timeout_ns >= now]

    def observe(self, now: int, key: GroupKey, master: int | None) -> Observation:
        """Return which brokers of this group are alive, for a command to decide from.

        A master that is not judged dead is taken to be alive: a change of the active controller alone must not depose
        it.
        """
        live = {}
        for broker_id, broker in self._groups.get(key, {}).items():
            if broker.beat is not None and not broker.closed and not broker.silent \
                    and broker.heard_ns + broker.timeout_ns >= now:
                live[broker_id] = broker.beat.replica
        if master is not None and master not in live and not self.dead(now, key, master):
            beat = self.beat(key, master)
            live[master] = beat.replica if beat is not None else LiveReplica()
        return Observation(live)

    def lease_until(self, key: GroupKey, broker_id: int) -> int | None:
        """Return when the last lease of this master ends, whichever controller gave it; None: it has no lease.

        Another controller may have renewed it until this one became active. A lease longer than the heartbeat's
        timeout is cut to that: silence would be judged by then.
        """
        broker = self._find(key, broker_id)
        beat = broker.beat if broker is not None else None
        if broker is None or beat is None or not beat.master_lease_ms or beat.all_ack_in_sync_state_set:
            return None
        start = max(broker.renewed_ns or 0, self.active_since or 0)
        return start + min(beat.master_lease_ms * MS, broker.timeout_ns)

    def __len__(self) -> int:
        return self._count

    def alive_count(self, now: int) -> dict[GroupKey, int]:
        """Live brokers by group, for metrics."""
        counts = {}
        for key, members in self._groups.items():
            counts[key] = sum(self.life(now, key, broker_id) is Life.ALIVE for broker_id in members)
        return counts

    # --- inside ----------------------------------------------------------------------------------------------

    def _brokers(self) -> Iterator[_Broker]:
        for members in self._groups.values():
            yield from members.values()

    def _find(self, key: GroupKey, broker_id: int) -> _Broker | None:
        members = self._groups.get(key)
        return members.get(broker_id) if members is not None else None

    def _add(self, key: GroupKey, broker_id: int, now: int, rival: _Broker | None = None) -> _Broker:
        """Puts a broker into the table: this former rival, or a new one."""
        broker = rival or _Broker(key, broker_id, None, None, now, self.default_ns)
        broker.rival = False
        self._groups.setdefault(key, {})[broker_id] = broker
        self._count += 1
        return broker

    def _part(self, rival: _Broker) -> None:
        """Drops a rival that is gone."""
        rivals = self._rivals[rival.key, rival.broker_id]
        rivals.remove(rival)
        if not rivals:
            del self._rivals[rival.key, rival.broker_id]

    def _leave(self, broker: _Broker) -> None:
        """Takes it off its connection, which may then close without it."""
        if broker.connection is not None:
            others = self._by_connection.get(broker.connection)
            if others is not None:
                others.discard(broker)
                if not others:
                    del self._by_connection[broker.connection]
            broker.connection = None

    def _deadline(self, broker: _Broker) -> int:
        return max(broker.heard_ns, self.listens_since(broker.timeout_ns)) + broker.timeout_ns + 1

    def _enqueue(self, broker: _Broker) -> None:
        """Puts a broker into the queue once; one that goes on beating moves only when its turn comes.

        It takes an earlier place only if its timeout was shortened. Places that were given up are swept away before
        they outnumber the brokers, so that brokers that come and go do not make the queue grow.
        """
        deadline = self._deadline(broker)
        if self.active_since is not None and (broker.due_ns < 0 or deadline < broker.due_ns):
            self._pushes += 1
            broker.due_ns = deadline
            heapq.heappush(self._queue, (deadline, self._pushes, broker))
            if len(self._queue) > 2 * self._count + SWEPT_FROM:
                self._queue = [place for place in self._queue if place[0] == place[2].due_ns]
                heapq.heapify(self._queue)


def _process(broker: _Broker) -> tuple[str, int | None]:
    """Address and life of the process that was heard."""
    assert broker.beat is not None
    return broker.beat.address, broker.beat.replica.life
