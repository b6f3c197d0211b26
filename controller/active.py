"""The active controller's own work: it looks at each group where something happened, and proposes what is missing.

An event only marks a group. ``_wanted`` then decides from the group as it is, whatever the event was (this is called
level-triggered). So an election that was lost on the way, overtaken or never answered is proposed again, and a group
whose last member died gets a master when an electable one comes back. RocketMQ never looks again at a group without a
master (apache/rocketmq#5009, #6382, #6383). All groups that are marked in one turn are proposed for in one batch.

Every controller feeds this class, so a controller that becomes active knows what it saw itself. Only the active one
decides.
Sans-IO: time is a number (ns); ``poll`` answers with commands to propose and notifications to send.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import attrs

from controller.liveness import Heartbeat, Life, Liveness
from controller.looks import Looks
from controller.metadata.commands import AnyCommand, DropEligible, ElectMaster, Observation, RegisterBroker, Trigger
from controller.metadata.eligible import announces_gate
from controller.metadata.groups import BrokerGroup, GroupKey, Replica
from controller.metadata.outcomes import Cleaned, Elected, Imported, NotElected, Outcome, Registered
from controller.notifications import Notification, Notifications
from controller.yielding import Ask, NoSuccessor, Successors, Yielding, names

MS = 1_000_000
LONGEST = "default"
RETRY_MS = 100
"""Wait after a proposal whose fate is unknown."""
LIVES_FROM = 2
"""The format of the metadata from which brokers have lives."""


class Groups(Protocol):
    """The replicated metadata, as its readers see it."""

    @property
    def groups(self) -> Mapping[GroupKey, BrokerGroup]: ...

    @property
    def format(self) -> int: ...


@attrs.frozen
class ElectionSettings:
    """Settings of elections. Commands carry them, so all controllers decide alike."""

    unclean: bool = False
    policy: str = "default"
    preferred: Mapping[GroupKey, int] = attrs.field(factory=dict)
    wait_master_lease: bool = False
    """True: when a master's connection closes, wait for the end of the lease that it announced."""


@attrs.define
class Todo:
    """Commands to propose and notifications to send.

    The shell reports each command to ``answered``, each notification to ``notifications``.
    """

    commands: list[AnyCommand] = attrs.field(factory=list)
    notifications: list[Notification] = attrs.field(factory=list)
    replaced: list[tuple[GroupKey, int, str]] = attrs.field(factory=list)
    """Living masters that are to be replaced, and why, for the server's log."""


class ActiveController:
    """Decides for the groups of all brokers while ``active``, in raft's ``term``."""

    def __init__(self, metadata: Groups, liveness: Liveness, settings: ElectionSettings) -> None:
        self.liveness, self.settings = liveness, settings
        self.notifications = Notifications()
        self.active = False
        self.term = 0
        self._metadata = metadata
        self._yielding = Yielding(liveness)
        self._marked: dict[GroupKey, None] = {}
        """Groups to look at, in the order in which things happened to them."""
        self._asked: dict[GroupKey, list[AnyCommand]] = {}
        """Commands under way by group: one of this controller's own, and elections that others asked for."""
        self._doubted: dict[GroupKey, AnyCommand | None] = {}
        """Groups with an election that may be in the log or not, and the later command that will tell."""
        self.later = Looks()
        self._due: int | None = None
        """Deadline that ``next_deadline`` gave at the last ``poll``."""
        self._replaced: list[tuple[GroupKey, int, str]] = []

    # --- inputs ----------------------------------------------------------------------------------------------

    def activate(self, now: int, term: int) -> None:
        """This controller leads ``term``, and has applied all that was committed before."""
        self.active, self.term = True, term
        self.liveness.activate(now)
        self.notifications.activate(now)
        self._asked.clear()
        self._doubted.clear()
        for key, group in self._metadata.groups.items():
            _put_on_record(self.liveness, now, key, group)  # a snapshot tells of no registration that it holds
            self._expect(now, key, group)
            self._marked[key] = None

    def deactivate(self) -> None:
        """Another controller may lead by now."""
        self.active = False
        self.liveness.deactivate()
        self.notifications.deactivate()
        self._marked.clear()
        self._asked.clear()
        self._doubted.clear()
        self.later.clear()
        self._yielding.clear()
        self._replaced.clear()

    def heartbeat(
        self, now: int, beat: Heartbeat, connection: object, *, raft_lease: bool = False, opened: int = 0
    ) -> bool:
        """Takes a heartbeat; returns whether the answer may renew the sender's lease as a master.

        It may where all of this holds. With ``raft_lease`` no other controller can be active now. The sender is the
        recorded master. No election of its group is under way or in doubt. The sender did not ask to be replaced. No
        broker is eligible that its announced gate does not protect: so a master that announced a lower gate may lower
        it once the answer renews its lease. ``opened``: see ``Liveness.heartbeat``.
        """
        key, broker_id = beat.key, beat.broker_id
        group = self._metadata.groups.get(key)
        members: Mapping[int, Replica] = group.replicas if group is not None else {}
        member = members.get(broker_id)
        if beat.reaches:  # only members count; strangers are many
            beat = attrs.evolve(beat, reaches=beat.reaches & members.keys() if member is not None else frozenset())
        if member is not None and not member.is_process(beat.address, beat.replica.life):
            self.liveness.rival(now, beat, connection, opened=opened)
            if self.active and (beat.replica.life is None or self._metadata.format < LIVES_FROM):
                self._marked[key] = None  # a process without a life cannot be told: it is not on record
            return False
        fresh = self.liveness.heartbeat(now, beat, connection, members=members, opened=opened)
        if fresh:
            self.notifications.came_alive(now, key, broker_id)
        if not self.active or group is None:
            return False
        if group.leader is None:
            self._marked[key] = None
        if self._yielding.accuses(group, beat):
            self._marked[key] = None
        if group.leader != broker_id:
            return False
        if group.eligible and not announces_gate(beat.replica, len(group.sync_state_set)):
            self._marked[key] = None
            return False
        if not raft_lease or key in self._asked or key in self._doubted:
            return False
        if self._yielding.holds_back(now, key, group):
            return False
        self.liveness.renew_lease(now, key, broker_id)
        return True

    def closed(self, connection: object) -> None:
        """A closed connection may have carried a master."""
        for gone in self.liveness.closed(connection):
            self._lost(gone.key, gone.broker_id)

    def asked(self, command: AnyCommand) -> None:
        """A command that somebody else asked for is being proposed here; it counts if it elects."""
        if isinstance(command, ElectMaster):
            self._asked.setdefault(command.key, []).append(command)

    def answered(self, now: int, command: AnyCommand, outcome: Outcome | None) -> None:
        """Takes the outcome of a command of ``poll`` or ``asked``; None: it is unknown, or the command never left."""
        if isinstance(command, ElectMaster | DropEligible | RegisterBroker) and self._forget(command.key, command):
            if outcome is not None and self._doubted.get(command.key) is command:
                del self._doubted[command.key]
            if outcome is None and self.active:
                self._doubted[command.key] = None
                self.later.put(now + RETRY_MS * MS, command.key)

    def applied(self, now: int, outcome: Outcome) -> None:
        """Takes the outcome of a command that was applied here, whoever proposed it."""
        match outcome:
            case Elected(key=key):
                self.notifications.elected(now, outcome)
                self._changed(now, (key,))
            case Cleaned(key=key, removed_ids=ids):
                for broker_id in ids:
                    self.liveness.forget(key, broker_id)
                    self.notifications.forget(key, broker_id)
                if outcome.group_removed:
                    self._yielding.forget(key)
                self._changed(now, (key,))
            case Registered(key=key, broker_id=broker_id, changed=True):
                self.liveness.registered(now, key, broker_id, self._metadata.groups[key].replicas[broker_id])
                self._changed(now, (key,))
            case NotElected(key=key, changed=True):
                self._changed(now, (key,))
            case Imported(keys=keys):
                for key in keys:
                    _put_on_record(self.liveness, now, key, self._metadata.groups[key])
                self._changed(now, keys)

    def poll(self, now: int) -> Todo:
        """Return the commands and notifications that are due now."""
        todo = Todo()
        if not self.active:
            return todo
        self.liveness.attention.look(now)
        for gone in self.liveness.expire(now):
            self._lost(gone.key, gone.broker_id)
        for key in self.later.due(now):
            self._marked[key] = None
        for key in list(self._marked):
            if key not in self._asked:
                del self._marked[key]
                command = self._wanted(now, key) or self._comer(now, key) or self._marker(key)
                if command is not None:
                    if key in self._doubted:
                        self._doubted[key] = command
                    self._asked[key] = [command]
                    todo.commands.append(command)
        todo.notifications = self.notifications.due(now, self._reachable_at(now))
        todo.replaced, self._replaced = self._replaced, []
        self._due = self.next_deadline()
        return todo

    @property
    def stirred(self) -> bool:
        """The next ``poll`` has something new to look at or to wait for.

        Most heartbeats change nothing, and a turn for each of them would cost more than they do.
        """
        if not self.active:
            return False
        if self._marked or self._replaced:
            return True
        due = self.next_deadline()
        return due is not None and (self._due is None or due < self._due)

    def next_deadline(self) -> int | None:
        """Return when to call ``poll`` even if nothing happens: perhaps too early, never too late."""
        if not self.active:
            return None
        soonest = self.liveness.next_deadline()
        if soonest is not None:
            soonest = min(soonest, self.liveness.attention.next_look)
        others = self.notifications.next_deadline(), self.later.next_deadline()
        for due in others:
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    # --- questions -------------------------------------------------------------------------------------------

    def observe(self, now: int, key: GroupKey) -> Observation:
        """Return which brokers of this group are alive, for a command about it.

        A master counts as alive while an election waits for its lease.
        """
        group = self._metadata.groups.get(key)
        master = group.leader if group is not None else None
        observation = self.liveness.observe(now, key, master)
        if master is not None and master not in observation.live and self._lease_until(now, key, master) is not None:
            beat = self.liveness.beat(key, master)
            assert beat is not None  # a master with a lease has announced it
            return Observation({**observation.live, master: beat.replica})
        return observation

    def candidates(self, key: GroupKey, observation: Observation) -> tuple[Observation, str]:
        """Return the brokers that an election may choose from, and the policy to choose by.

        A replica whose machine went down has a log *in doubt*: it may lack what it acknowledged, until it is level
        with a master. It is left out while an electable broker without doubt is here, or is away and may come back.
        Where all the electable are in doubt, no broker has more than they: the latest epoch and the longest log win.

        A heartbeat may tell of a doubt that is over, because a master made the log level since. It counts as present
        only if the sender knew the epoch in which there is no master. With ``unclean`` elections no broker is waited
        for. A living master is in no doubt, as it is not replaced. A broker with a failing disk is passed over where
        others may win and hold as much.
        """
        group, settings = self._metadata.groups.get(key), self.settings
        if group is None or not group.sync_state_set:
            return observation, settings.policy
        without_trouble = self._yielding.without_trouble
        doubted = {broker_id: beat.doubt_epoch for broker_id in observation.live.keys() - {group.leader}
                   if (beat := self.liveness.beat(key, broker_id)) is not None and beat.log_in_doubt}
        if not doubted:
            return without_trouble(key, group, observation), settings.policy
        still = {broker_id for broker_id, epoch in doubted.items()
                 if group.master is None and epoch >= group.master_epoch}
        among = {broker_id for broker_id in group.electable
                 if broker_id in group.replicas and not group.replicas[broker_id].learner}
        if among <= still or (settings.unclean and not among & observation.live.keys() - doubted.keys()):
            return observation, LONGEST
        trusted = {broker_id: replica for broker_id, replica in observation.live.items() if broker_id not in doubted}
        return without_trouble(key, group, Observation(trusted)), settings.policy

    def yields(self, now: int, key: GroupKey, ask: Ask) -> ElectMaster | NoSuccessor:
        """Answers a living master that asks for a successor in its own epoch."""
        if key in self._asked or key in self._doubted:
            return NoSuccessor(remark=f"an election of {key} is under way", wait=True)
        found = self._yielding.asked(now, key, self._metadata.groups[key], ask)
        if isinstance(found, Successors):
            return self._follows(now, key, ask.broker_id, found)
        if found.wait:
            self._marked[key] = None
        return found

    def on_record(self, beat: Heartbeat) -> int | None:
        """The life on record under this id, 0 for none. None: it is the sender's, or the sender could not tell.

        Only a controller that is certain to be the active one may tell it.
        """
        group = self._metadata.groups.get(beat.key)
        member = group.replicas.get(beat.broker_id) if group is not None else None
        if member is None or beat.replica.life in (None, member.life) or self._metadata.format < LIVES_FROM:
            return None
        return member.life or 0

    def instead_of(
        self, now: int, key: GroupKey, broker_id: int, address: str, life: int | None
    ) -> tuple[str, int | None] | None:
        """Address and life of the dead process on record that this one may replace; None: it may replace none.

        A process that this controller never heard counts as dead to a process that serves at its very address. A
        master whose lease is waited for is not dead yet. In a format without lives a master is not replaced until the
        next one is elected, and no broker is while an election is under way or in doubt: both processes could be
        master of one epoch.
        """
        group = self._metadata.groups.get(key)
        member = group.replicas.get(broker_id) if group is not None else None
        if group is None or member is None or member.is_process(address, life):
            return None
        unheard = self.liveness.beat(key, broker_id) is None
        if unheard and address != member.address:
            self.liveness.expect(now, key, broker_id)
        dead = self.liveness.dead(now, key, broker_id) or (unheard and address == member.address)
        if self._metadata.format < LIVES_FROM:
            waited_for = group.leader == broker_id or key in self._asked or key in self._doubted
        else:
            waited_for = group.leader == broker_id and self._lease_until(now, key, broker_id) is not None
        return (member.address, member.life) if dead and not waited_for else None

    def explain(self, now: int) -> list[str]:
        """Sentences on groups without a master, members never heard, failing disks, and elections that wait."""
        if not self.active:
            return []
        return [*_unled(now, self._metadata.groups, self.liveness), *self._yielding.explain(now, self._metadata.groups)]

    def owed(self, now: int) -> int:
        """Return how many living brokers the active controller has not yet told of their master."""
        alive = self.liveness.life
        return sum(alive(now, *each) is Life.ALIVE for each in self.notifications) if self.active else 0

    # --- the decision ----------------------------------------------------------------------------------------

    def _wanted(self, now: int, key: GroupKey) -> AnyCommand | None:
        """The command that this group lacks, as it is now."""
        group = self._metadata.groups.get(key)
        if group is None or not group.sync_state_set:
            return None  # the first master is elected when a broker asks
        if group.master is None:
            observation, policy = self.candidates(key, self.liveness.observe(now, key, None))
            return self._election(key, observation, policy) if self._somebody(group, observation) else None
        life = self.liveness.life(now, key, group.master)
        if group.vacant and life in (Life.ALIVE, Life.UNKNOWN):  # elect once the new process is heard
            observation, policy = self.candidates(key, self.liveness.observe(now, key, None))
            return self._election(key, observation, policy) if life is Life.ALIVE else None
        until = self._lease_until(now, key, group.master)
        if until is not None:
            self.later.put(until, key)
            return None
        if life in (Life.CLOSED, Life.SILENT):
            return self._election(key, *self.candidates(key, self.liveness.observe(now, key, group.leader)))
        found = self._yielding.silent(now, key, group) if key not in self._doubted else None
        if isinstance(found, Successors):
            return self._follows(now, key, group.master, found)
        if found is not None:
            self.later.put(found, key)
        beat = self.liveness.beat(key, group.master)
        if group.eligible and beat is not None and not announces_gate(beat.replica, len(group.sync_state_set)):
            return DropEligible(term=self.term, key=key, broker_id=group.master, master_epoch=group.master_epoch)
        return None

    def _comer(self, now: int, key: GroupKey) -> AnyCommand | None:
        """Puts a process without a life on record in place of a dead one. It beats, and will not register again."""
        group = self._metadata.groups.get(key)
        for beat in self.liveness.rivals(now, key, group.replicas) if group is not None else ():
            life = beat.replica.life if self._metadata.format >= LIVES_FROM else None
            if life is None and (over := self.instead_of(now, key, beat.broker_id, beat.address, life)) is not None:
                return RegisterBroker(
                    term=self.term, key=key, broker_id=beat.broker_id, address=beat.address,
                    learner=beat.replica.learner, instead_of=over, observation=self.observe(now, key))
        return None

    def _marker(self, key: GroupKey) -> AnyCommand | None:
        """A command that changes nothing. Once it is applied, the election in doubt was applied before, or never is."""
        if key not in self._doubted:
            return None
        return DropEligible(term=self.term, key=key, broker_id=0, master_epoch=0)

    def _election(self, key: GroupKey, observation: Observation, policy: str) -> ElectMaster:
        settings = self.settings
        return ElectMaster(
            term=self.term, key=key, trigger=Trigger.CONTROLLER, broker_id=None, unclean=settings.unclean,
            policy=policy, preferred=settings.preferred.get(key), observation=observation)

    def _follows(self, now: int, key: GroupKey, master: int, found: Successors) -> ElectMaster:
        """An election as if a successor had asked for it: where it fails, the group keeps its master."""
        settings = self.settings
        self._yielding.decided(now, key)
        self._replaced.append((key, master, found.why))
        return ElectMaster(
            term=self.term, key=key, trigger=Trigger.BROKER, broker_id=min(found.among),
            policy=LONGEST if found.by_length else settings.policy, preferred=settings.preferred.get(key),
            observation=Observation(found.among))

    def _somebody(self, group: BrokerGroup, observation: Observation) -> bool:
        """Return whether an election could succeed. One that cannot would write nothing, and cost a round."""
        among = group.replicas.keys() if self.settings.unclean else group.electable
        return any(broker_id in among and not replica.learner for broker_id, replica in observation.live.items())

    def _lease_until(self, now: int, key: GroupKey, master: int) -> int | None:
        """Return the end of the lease that an election must wait for; None: it need not wait.

        It waits only after the master's connection closed.
        """
        if not self.settings.wait_master_lease or self.liveness.life(now, key, master) is not Life.CLOSED:
            return None
        until = self.liveness.lease_until(key, master)
        return until if until is not None and until > now else None

    # --- inside ----------------------------------------------------------------------------------------------

    def _forget(self, key: GroupKey, command: AnyCommand) -> bool:
        """Takes this very command off those under way; returns whether it was one, in this leadership."""
        under_way = self._asked.get(key, [])
        left = [each for each in under_way if each is not command]
        if left:
            self._asked[key] = left
        else:
            self._asked.pop(key, None)
        return len(left) < len(under_way)

    def _lost(self, key: GroupKey, broker_id: int) -> None:
        """A broker died. A slave's death changes nothing here: its master takes it out of the SyncStateSet."""
        group = self._metadata.groups.get(key)
        if group is None or broker_id not in group.replicas:
            self.liveness.forget(key, broker_id)
        elif self.active and group.master == broker_id:
            self._marked[key] = None

    def _changed(self, now: int, keys: Iterable[GroupKey]) -> None:
        if self.active:
            for key in keys:
                group = self._metadata.groups.get(key)
                if group is not None:
                    self._expect(now, key, group)
                    self._marked[key] = None

    def _expect(self, now: int, key: GroupKey, group: BrokerGroup) -> None:
        if group.master is not None:
            self.liveness.expect(now, key, group.master)

    def _reachable_at(self, now: int) -> _Reachable:
        return _Reachable(now, self._metadata, self.liveness)


@attrs.frozen
class _Reachable:
    """Finds the address of a living broker."""

    now: int
    metadata: Groups
    liveness: Liveness

    def __call__(self, key: GroupKey, broker_id: int) -> str | None:
        group = self.metadata.groups.get(key)
        if group is None or self.liveness.life(self.now, key, broker_id) is not Life.ALIVE:
            return None
        return group.address_of(broker_id)


def _put_on_record(liveness: Liveness, now: int, key: GroupKey, group: BrokerGroup) -> None:
    """Tell which processes are the members, of those that were heard under their ids."""
    for broker_id, replica in group.replicas.items():
        if liveness.beat(key, broker_id) is not None or liveness.rivals(now, key, (broker_id,)):
            liveness.registered(now, key, broker_id, replica)


def _unled(now: int, groups: Mapping[GroupKey, BrokerGroup], liveness: Liveness) -> Iterator[str]:
    """Yield sentences about groups without a master, and members that had their time to beat here and did not."""
    listened = now - liveness.listens_since(liveness.default_ns) > liveness.default_ns
    for key, group in groups.items():
        unheard = [each for each in group.replicas if liveness.beat(key, each) is None]
        alive = [each for each in group.replicas if liveness.life(now, key, each) is Life.ALIVE]
        if group.leader is None and group.replicas:
            yield f"{key}: no master. Electable are {names(group.electable)}; alive are {names(alive)}."
        if listened and unheard:
            yield (f"{key}: this controller has never heard {names(unheard)}: they are down, or beat at other "
                   "addresses (their controllerAddr).")
