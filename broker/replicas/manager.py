"""The replicas manager: heartbeats, elections, polling, role changes, SyncStateSet reports and self-fencing.

Source: ``ReplicasManager`` of RocketMQ. What differs from the original: elections wait for an answered heartbeat; a
role is taken when replication says so; a lost controller is looked for at once; a master whose lease ended fences
itself; one whose machine lost power does not go on with its epoch. One event goes in, outputs come out; the caller
carries them out in order.
This module knows codes, answers and the SyncStateSet's bookkeeping, and neither connections nor the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

import attrs

from broker.ha.config import NS_PER_MS
from broker.ha.insync import InSync
from broker.ha.taking import Become, BecomeMaster, BecomeSlave
from broker.replicas.config import ManagerConfig
from broker.replicas.identity import Application, Identity
from broker.replicas.leader import LeaderSearch
from broker.replicas.lease import Gate, Lease
from broker.replicas.machine import (
    REGISTERED,
    ROLELESS,
    SEASONED,
    TAKING,
    Action,
    Event,
    Retreat,
    RoleMachine,
    State,
    Writes,
)
from broker.replicas.outputs import (
    Fence,
    Leave,
    Output,
    Report,
    Serve,
)
from broker.replicas.probing import Probing
from broker.replicas.registering import Registering
from broker.replicas.timetable import Kind
from broker.replicas.underway import OnAnswer, UnderWay
from broker.replicas.yielding import Reason, Sight, Told, Yielding, sight_of
from broker.store.health import DiskHealth
from remoting.bodies.controller import ElectMasterResponseBody, SyncStateSet
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import BodyError, HeaderError
from remoting.header import Header
from remoting.headers.controller import (
    AlterSyncStateSetRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    ElectMasterRequest,
    ElectMasterResponse,
    GetReplicaInfoRequest,
    GetReplicaInfoResponse,
    NotifyBrokerRoleChangedRequest,
    RegisterBrokerToControllerResponse,
)

UNFIT: Final = frozenset({ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE})
"""Answers to 1001 that controllers, ours and Java's, give only to a master that knows the accepted set by its epoch."""
REFUSALS: Final = UNFIT | {ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED}
"""Codes that say for certain that this request changed nothing. After any other failure it may have changed something,
or this master knows too little to judge."""
NOT_ELECTED: Final = frozenset({
    ResponseCode.CONTROLLER_MASTER_STILL_EXIST, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
    ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
})
"""Answers to 1002 that say for certain that it elected nobody."""
OUTDATED: Final = frozenset({
    ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
    ResponseCode.CONTROLLER_INVALID_MASTER,
})
"""Answers that say that this broker is outdated: a request of its own may have ended its epoch. The poll decides."""

UNLEASED_BEAT_MS: Final = 200
"""Time between heartbeats of a master that was never granted a lease, and so serves nobody."""

VOID: Final = 3
"""A request for a successor without an answer is carried out no more after so many times ``request_timeout_ms``."""
UNSETTLED: Final = -1
"""Generation of a heartbeat that leaves while a change of the SyncStateSet is under way: its answer settles nothing,
since the change may have said that more is demanded, and made other replicas eligible."""
_NOW: Final[Mapping[Action, Kind]] = {Action.BEAT: Kind.BEAT, Action.ELECT: Kind.ELECT, Action.POLL: Kind.POLL}
_HANDED_OVER: Final = "mastership is handed over"
_ANOTHER: Final = "another process is registered under this broker's id"


@attrs.frozen
class LogState:
    """A broker's report of its log, and of the disk below it."""

    epoch: int = -1
    max_offset: int = 0
    confirm_offset: int = 0
    in_doubt: bool = False
    """This replica's machine went down, and it may lack what it acknowledged."""
    master_silent: bool = False
    """A slave's master said nothing for so long that it counts as silent."""
    disk: DiskHealth = DiskHealth.WELL


@attrs.frozen
class _Troubles:
    """A heartbeat's report of other brokers, and of the disk."""

    silent_epoch: int | None = None
    reaches: str = ""
    disk: str = ""


class ReplicasManager:
    """One broker in its group. The caller sets ``log``, and ``in_sync`` when mastership begins (None at its end)."""

    def __init__(self, config: ManagerConfig, found: Identity | Application | None, check_code: str,
                 doubtful_epoch: int = -1, *, life: int | None = None, lives: tuple[int, ...] | None = None) -> None:
        """``found`` is what ``identity.load`` gave; ``check_code`` is new and nobody else's, for a new application.

        ``doubtful_epoch``: the last that this broker may have led and lost something of, -1 if it lost nothing. Others
        may hold what it lost; bytes that it wrote in their place would pass for the same. So it resigns: it sends no
        heartbeats, so that any controller gives it up in time, and asks for an election, so that one comes at once.

        ``life``: a number of this process's life, above 0. Of two processes with one id the controllers know one, and
        the other has no role until that is dead.

        ``lives``: those that the store knows, as ``StoreLives`` reads them; None: nobody keeps them.
        """
        alone = not config.all_ack_in_sync_state_set
        self.machine = RoleMachine(State.NAMELESS if found is None else State.APPLYING if isinstance(found, Application)
                                   else State.UNREGISTERED, alone=alone)
        self.log = LogState()
        self.in_sync: InSync | None = None
        self.lease = Lease(config.master_lease_ms * NS_PER_MS)
        self.gate = Gate(config.min_in_sync_replicas)
        self.serving = False
        self._yielding = Yielding(config.yield_wait_ms * NS_PER_MS, VOID * config.request_timeout_ms * NS_PER_MS, alone)
        self._said = _Troubles()
        """The troubles that the last heartbeat told."""
        self._config = config
        self._doubtful_epoch = doubtful_epoch
        self._gave_way = False
        self._life = life
        self._told = self._refused = False
        """While the log is in doubt: the active controller heard of it; a mastership was refused for that."""
        self._said_doubt = False
        """The last heartbeat told of the doubt."""
        self._doubt_epoch: int | None = None
        """The group's epoch as the active controller said it after it was told: later elections know of the doubt."""
        self._successors: list[int] = []
        """Members to ask for as successors, one by one, at a controller that does not know how to resign."""
        self._heard = False
        self._seen = 0
        self._noticed, self._noticed_at = 0, 0
        """The greatest epoch of a notice that came while this broker had no role, and the number of the last request
        before it: what that is answered may be older news."""
        self._under_way = UnderWay(config.request_timeout_ms)
        self._times = self._under_way.times
        self._registering = Registering(config, found, check_code, life, lives, self.machine, self.gate,
                                        self._under_way, self._happened, self._registered)
        self._probing = Probing(config.cluster_name, config.broker_name, self._under_way, silence_ms=config.silence_ms,
                                interval_ms=config.probe_interval_ms, members_ms=config.retry_ms)
        self._search = LeaderSearch(config.controllers, self._under_way, retry_ms=config.retry_ms,
                                    period_ms=config.sync_controller_metadata_period_ms)

    # --- what happens ----------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> list[Output]:
        """Time passed, or anything that ``log`` and ``in_sync`` tell changed. Does all that is due."""
        if self.machine.state is State.STOPPED:
            return []
        outputs = self._search.look(now_ns)
        sight, hindered = self._look(now_ns)
        outputs += hindered + self._fence(now_ns)
        if self.leader is not None:
            outputs += self._registering.look(now_ns, self.leader)
            self._judge_master()
            outputs += self._beat(now_ns) + self._probe(now_ns)
            outputs += self._elect_or_poll(now_ns)
            outputs += self._yield(now_ns, sight) + self._report(now_ns, sight)
        return outputs + self._fence(now_ns)

    def answered(self, number: int, answer: Command | None, now_ns: int) -> list[Output]:
        """Take the answer to a ``SendCommand``; None: the connection failed, or the time was over."""
        asked = self._under_way.ended(number)
        if asked is None or self.machine.state is State.STOPPED:
            return []
        try:
            outputs = asked.on_answer(answer, number)
        except (HeaderError, BodyError) as wrong:
            outputs = [Report(f"controller {asked.address} gave an answer that cannot be read: {wrong}")]
        if answer is None or answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._search.failed(asked.address, now_ns)
        return outputs + self.tick(now_ns)

    def written(self, now_ns: int) -> list[Output]:
        """The file of the last output is durable, or removed."""
        self._registering.written()
        return self.tick(now_ns)

    def notified(self, header: NotifyBrokerRoleChangedRequest, members: SyncStateSet, now_ns: int, *,
                 known: bool = True) -> list[Output]:
        """Take a notice (1008), which may be of any age. ``known``: it comes from where a controller runs.

        Else it makes this broker ask the active controller, and nothing more, as each notice does after a start: an
        invented epoch would depose it until the controllers get there."""
        times, machine = self._times, self.machine
        if machine.role is None and machine.target is None:
            times.put(Kind.POLL if self._config.learner or machine.resigning else Kind.ELECT)
            if known and (header.master_epoch or 0) > self._noticed:
                self._noticed, self._noticed_at = header.master_epoch or 0, self._under_way.number
            return self.tick(now_ns)
        if not known:
            if header.master_epoch is not None and header.master_epoch > self.epoch:
                times.put(Kind.POLL)
                self._search.look_at_once(now_ns)
            return self.tick(now_ns)
        if self._another(header.master_broker_id, header.master_address, header.master_life):
            times.put(Kind.POLL)  # the active controller knows
            return self.tick(now_ns)
        return self._master_is(header.master_broker_id, header.master_address, header.master_epoch, header.master_life,
                               members.sync_state_set, members.sync_state_set_epoch) + self.tick(now_ns)

    def role_taken(self, role: Become, now_ns: int) -> list[Output]:
        """Replication has taken that role."""
        doubtful = isinstance(role, BecomeMaster) and role.epoch <= self._doubtful_epoch
        self._yielding.begins(now_ns)
        return self._act(self.machine.taken(role, doubtful=doubtful)) + self.tick(now_ns)

    def role_failed(self, role: Become, reason: str, now_ns: int) -> list[Output]:
        """Replication refused the role. The old role is over as well; the next poll tries again."""
        outputs = [Report(f"cannot take the role of epoch {role.epoch}: {reason}"), *self._act(self.machine.refused()),
                   *self._fence(now_ns)]
        assert not self.serving, "the role before is over as well"
        return outputs

    def hand_over(self, now_ns: int) -> list[Output]:
        """Close writes for good, whatever is renewed or elected: the next master may have been chosen already."""
        self.machine.hand_over()
        outputs = self._fence(now_ns) or [Fence(_HANDED_OVER)]
        assert not (self.serving and self.machine.state is State.MASTER), "its successor may have been chosen"
        return outputs

    def shutdown(self, now_ns: int) -> list[Output]:
        self.machine.stop()
        self._under_way.forget()
        outputs = self._fence(now_ns)
        assert not self.serving, "a broker that stops writes nothing"
        return outputs

    def next_deadline(self, now_ns: int) -> int | None:
        """Return when to tick next even if nothing happens. Work that is overdue waits for an event."""
        in_sync = None if self.in_sync is None else self.in_sync.deadline_after(now_ns)
        return min((at_ns for at_ns in (self._times.next_after(now_ns), self.lease.until_ns, in_sync,
                                        self._yielding.deadline_ns(now_ns), self._probing.deadline_ns(now_ns))
                    if at_ns is not None and at_ns > now_ns), default=None)

    @property
    def role(self) -> Become | None:
        """The role that replication has taken last, if it still counts."""
        return self.machine.role

    @property
    def leader(self) -> str | None:
        """Address where the active controller is asked."""
        return self._search.address

    @property
    def controllers(self) -> tuple[str, ...]:
        """Addresses of all controllers that are known."""
        return self._search.addresses

    @property
    def broker_id(self) -> int | None:
        return self._registering.broker_id

    @property
    def epoch(self) -> int:
        """The greatest master epoch known, taken or under way."""
        return self.machine.epoch

    @property
    def _counted(self) -> bool:
        """Return whether controllers count this process as one of its group."""
        return self.machine.state in REGISTERED

    def _happened(self, event: Event) -> list[Output]:
        return self._act(self.machine.happened(event))

    def _act(self, actions: Iterable[Action]) -> list[Output]:
        """Carry out the machine's actions, in order; return the outputs."""
        outputs: list[Output] = []
        for action in actions:
            match action:
                case Action.TAKE:
                    assert self.machine.target is not None
                    outputs.append(self.machine.target)
                case Action.LEAVE:
                    outputs.append(Leave(_ANOTHER))
                case Action.FORGET:
                    self._heard = self._registering.unrecorded = self._told = False
                    self._doubt_epoch = None
                    self._under_way.forget()
                    self._times.keep((Kind.REGISTER, Kind.DISCOVER))
                case Action.BEAT | Action.ELECT | Action.POLL:
                    self._times.put(_NOW[action])
                case Action.ELECT_BY_POLL:
                    self._times.put_by(Kind.ELECT, self._times.at(Kind.POLL))
                case Action.WRITE_APPLICATION | Action.WRITE_IDENTITY | Action.REMOVE_APPLICATION:
                    outputs.append(self._registering.write())
        return outputs

    # --- heartbeats, elections, polls ------------------------------------------------------------------------

    def _beat(self, now_ns: int) -> list[Output]:
        config, broker_id = self._config, self.broker_id
        trusted = self._said_doubt and not self._in_doubt  # controllers that still doubt would not elect this broker
        troubles = self._troubles(now_ns)
        if broker_id is None or not self._counted or self.machine.resigning \
                or not (trusted or troubles != self._said or self._times.due(Kind.BEAT, now_ns)):
            return []
        self._said_doubt, self._said = self._in_doubt, troubles
        waits = isinstance(self.machine.target or self.role, BecomeMaster) and (
            not self.lease.began or self.gate.shut)
        self._times.put(Kind.BEAT, now_ns + NS_PER_MS * (
            min(config.heartbeat_interval_ms, UNLEASED_BEAT_MS) if waits else config.heartbeat_interval_ms))
        header = BrokerHeartbeatRequest(
            config.cluster_name, config.address, config.broker_name, broker_id, self.log.epoch, self.log.max_offset,
            self.log.confirm_offset, config.heartbeat_timeout_ms, config.election_priority,
            log_in_doubt=True if self._in_doubt else None, doubt_epoch=self._doubt_epoch if self._in_doubt else None,
            broker_life=self._life, heartbeat_interval_ms=config.heartbeat_interval_ms,
            silent_epoch=troubles.silent_epoch, reaches=troubles.reaches or None, disk_trouble=troubles.disk or None,
            **self._registering.announced())
        held = self.in_sync
        generation = UNSETTLED if held is not None and held.asked else self.gate.generation

        outputs: list[Output] = []
        for address in self._search.addresses:
            outputs += self._under_way.send(None, address, RequestCode.BROKER_HEARTBEAT, header, now_ns,
                                            partial(self._beat_answered, address, generation, now_ns))
        return outputs

    def _beat_answered(self, asked: str, generation: int, sent_ns: int, answer: Command | None, _: int) -> list[Output]:
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return []
        header = BrokerHeartbeatResponse.from_ext(answer.ext)
        renewed = header.master_lease_renewed
        if header.registered_life is not None and self._life is not None and header.registered_life != self._life:
            if header.registered_life:
                return self._give_way(self.epoch)
            self._registering.unrecorded = True
        mine = renewed and header.lease_epoch in (None, self.epoch)  # None: a controller that does not say
        if (header.lease_epoch or 0) > self.epoch:
            self._times.put(Kind.POLL)
        if self.machine.writes is not Writes.CLOSED or not self.machine.yielding:  # else it asks when its lease is over
            self.lease.answered(sent_ns, mine)
        leads = self._search.leads(asked)
        self._told = self._told or bool(leads and header.log_in_doubt)
        if (renewed or leads) and not self.machine.resigning:
            self._heard = True
        if mine or (leads and not self.lease.granted):
            self.gate.answered(generation)
        if renewed:
            self._search.renewed(asked, sent_ns)
        elif leads and self.lease.granted and self.machine.writes is Writes.LEASED:
            self._search.failed(asked, sent_ns)  # another one may lead by now
        return []

    def _elect_or_poll(self, now_ns: int) -> list[Output]:
        config, broker_id, state, times = self._config, self.broker_id, self.machine.state, self._times
        if self.machine.resigning:
            return self._resign(now_ns)
        if broker_id is None or not self._heard or state in TAKING:
            return []
        if self._in_doubt and self._told:
            if times.due(Kind.POLL, now_ns):
                times.put(Kind.POLL, now_ns + config.retry_ms * NS_PER_MS)
                return self._poll(now_ns, self._settle)
            if self._doubt_epoch is None:
                return []
        if state in ROLELESS and not config.learner and times.due(Kind.ELECT, now_ns):
            times.put(Kind.ELECT, now_ns + config.elect_retry_ms * NS_PER_MS)
            elect = ElectMasterRequest(config.cluster_name, config.broker_name, broker_id)
            return self._ask(Kind.ELECT, RequestCode.CONTROLLER_ELECT_MASTER, elect, now_ns, self._elected)
        if (state in SEASONED or config.learner) and times.due(Kind.POLL, now_ns):
            times.put(Kind.POLL, now_ns + config.sync_broker_metadata_period_ms * NS_PER_MS)
            return self._poll(now_ns)
        return []

    def _poll(self, now_ns: int, on_answer: OnAnswer | None = None) -> list[Output]:
        poll = GetReplicaInfoRequest(self._config.broker_name, self._config.cluster_name)
        return self._ask(Kind.POLL, RequestCode.CONTROLLER_GET_REPLICA_INFO, poll, now_ns, on_answer or self._polled)

    @property
    def _in_doubt(self) -> bool:
        """Return whether this log is in doubt and that counts: only where a master does not acknowledge alone."""
        return self.log.in_doubt and self._config.all_ack_in_sync_state_set

    def _settle(self, answer: Command | None, number: int) -> list[Output]:
        """Note the epoch up to which elections may not have known that this log is in doubt. Later ones choose among
        those in doubt, when all of them have said that they know of the epoch without a master."""
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            epoch = GetReplicaInfoResponse.from_ext(answer.ext).master_epoch or 0
            if self._doubt_epoch is None:
                self._doubtful_epoch = max(self._doubtful_epoch, epoch)
            if self._doubt_epoch is None or epoch > self._doubt_epoch:
                self._doubt_epoch = epoch
                self._times.put(Kind.BEAT)
        return self._polled(answer, number)

    def _knew_of_doubt(self) -> bool:
        """Return whether the election told now knew of the doubt. Java's: whether a better one was asked for."""
        return not self._in_doubt or self._doubt_epoch is not None or (
            self._refused and self._heard and not self._told)

    def _resign(self, now_ns: int) -> list[Output]:
        """Ask to be replaced; a controller that does not know how is asked for each other member instead. If members
        may lack what was acknowledged, the controller chooses the longest log."""
        config, times, wait_ns = self._config, self._times, self._config.retry_ms * NS_PER_MS
        assert self._doubtful_epoch >= 0, "nobody resigns who lost nothing"
        outputs: list[Output] = []
        if times.due(Kind.ELECT, now_ns):
            other = self._successors.pop() if self._successors else None
            elect = ElectMasterRequest(
                config.cluster_name, config.broker_name, self.broker_id if other is None else other, other is not None,
                lost_epoch=self._doubtful_epoch if other is None else None)
            times.put(Kind.ELECT, now_ns + (0 if self._successors else wait_ns))
            outputs += self._ask(Kind.ELECT, RequestCode.CONTROLLER_ELECT_MASTER, elect, now_ns, self._resigned)
        if not times.waits(Kind.ELECT) and times.due(Kind.POLL, now_ns):
            times.put(Kind.POLL, now_ns + wait_ns)
            outputs += self._poll(now_ns)
        return outputs

    def _resigned(self, answer: Command | None, number: int) -> list[Output]:
        self._times.put(Kind.POLL)
        outputs = self._elected(answer, number)
        if answer is not None and answer.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST and self._successors:
            self._times.put(Kind.ELECT)
        return outputs

    def _elected(self, answer: Command | None, number: int) -> list[Output]:
        if answer is not None and answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            return [self._registering.unknown()]
        if answer is None or answer.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            return []
        header, body = ElectMasterResponse.from_ext(answer.ext), ElectMasterResponseBody.from_json(answer.body)
        return self._hear_of(header.master_broker_id, header.master_address, header.master_epoch, header.master_life,
                             body.sync_state_set, header.sync_state_set_epoch or 0, number)

    def _registered(self, answer: Command | None, number: int) -> list[Output]:
        """Learn what a registration tells of the master."""
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return []
        header, members = RegisterBrokerToControllerResponse.from_ext(answer.ext), SyncStateSet.from_json(answer.body)
        return self._hear_of(header.master_broker_id, header.master_address, header.master_epoch, header.master_life,
                             members.sync_state_set, members.sync_state_set_epoch, number)

    def _polled(self, answer: Command | None, number: int) -> list[Output]:
        if answer is None:
            return []
        if answer.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
            return [Report(f"the controller knows no group {self._config.broker_name!r}: its data was lost")]
        if answer.code != ResponseCode.SUCCESS:
            return []
        header, members = GetReplicaInfoResponse.from_ext(answer.ext), SyncStateSet.from_json(answer.body)
        if header.master_broker_id is None and header.master_epoch > self.epoch:
            self._seen = max(self._seen, header.master_epoch)
            actions = self.machine.masterless()
            if header.master_epoch > self._doubtful_epoch:
                actions += self.machine.replaced()
            return self._act(actions)
        return self._hear_of(header.master_broker_id, header.master_address, header.master_epoch, header.master_life,
                             members.sync_state_set, members.sync_state_set_epoch, number)

    # --- another process of this id --------------------------------------------------------------------------

    def _another(self, master: int | None, address: str | None, life: int | None) -> bool:
        """Return whether another process is master under this broker's id: by its life, else by its address."""
        if master is None or master != self.broker_id or not address:
            return False
        return address != self._config.address if life is None or self._life is None else life != self._life

    def _hear_of(self, master: int | None, address: str | None, epoch: int | None, life: int | None,
                 members: frozenset[int], members_epoch: int, number: int) -> list[Output]:
        """Learn who is master by the active controller's answer to the request of that number."""
        if (epoch or 0) < self._noticed and number <= self._noticed_at:
            return []  # it asks again
        if self._another(master, address, life):
            return self._give_way(epoch or 0)
        return self._master_is(master, address, epoch, life, members, members_epoch)

    def _give_way(self, epoch: int) -> list[Output]:
        """Give up the role: another process is registered under this id. This one has none until it is registered
        again, and never leads an epoch that the other one may lead."""
        if epoch > self._doubtful_epoch:
            self._doubtful_epoch = epoch
            self._gave_way = True
        actions = self.machine.displaced()
        assert self.role is None and self.machine.target is None, "only one of two processes has a role"
        return [*self._act(actions),
                Report(f"{_ANOTHER}: this one has no role, and asks until that one is gone")]

    # --- silence, disks and the yield ------------------------------------------------------------------------

    def _troubles(self, now_ns: int) -> _Troubles:
        return _Troubles(self._probing.silent_epoch, self._probing.reaches(now_ns), self.log.disk.value)

    def _judge_master(self) -> None:
        """Judge, as a slave, whether the master is silent. Java's controllers ignore what it says of that."""
        role, state = self.role, self.machine.state
        silent = self.log.master_silent and self.lease.granted and not self._config.learner
        self._probing.judge(role if silent and state is State.SLAVE and isinstance(role, BecomeSlave) else None)

    def _probe(self, now_ns: int) -> list[Output]:
        assert self.leader is not None
        return [] if self.broker_id is None else self._probing.look(now_ns, self.leader, self.broker_id)

    def _look(self, now_ns: int) -> tuple[Sight, list[Output]]:
        """Return a master's view of itself, and outputs of yielding. Java's controllers replace no living master."""
        machine, held, config, yielding = self.machine, self.in_sync, self._config, self._yielding
        if (held is None or machine.state is not State.MASTER or not self.lease.granted
                or machine.retreat not in (Retreat.NONE, Retreat.YIELDING)):
            yielding.over()
            return Sight(), []
        sight = sight_of(held, self.lease, self.gate.announced, end=self.log.max_offset, disk=self.log.disk,
                         alone=not config.all_ack_in_sync_state_set, now_ns=now_ns)
        asks = yielding.look(now_ns, sight)
        if asks == machine.yielding:
            return sight, []
        outputs = self._act(machine.hindered() if asks else machine.relieved())
        return sight, [*outputs, Report(self._why_it_yields())] if asks else outputs

    def _why_it_yields(self) -> str:
        what = (f"its disk is {self.log.disk.value}" if self._yielding.reason is Reason.DISK
                else "it hears fewer members than minInSyncReplicas demands")
        return f"this master asks for a successor: {what}"

    def _yield(self, now_ns: int, sight: Sight) -> list[Output]:
        config, broker_id, reason = self._config, self.broker_id, self._yielding.reason
        slot = str(self._yielding.attempt)
        if (reason is None or broker_id is None or self._times.waits(Kind.YIELD, slot)
                or not self._yielding.asks(now_ns, sight)):
            return []
        assert self.machine.yielding, "a master asks for a successor while it yields"
        holders = ",".join(map(str, sorted(sight.holders))) if reason is Reason.DISK else None
        elect = ElectMasterRequest(config.cluster_name, config.broker_name, broker_id, yield_epoch=self.epoch,
                                   yield_reason=reason.value, holders=holders)
        return self._ask(Kind.YIELD, RequestCode.CONTROLLER_ELECT_MASTER, elect, now_ns, partial(self._yielded, now_ns),
                         slot=slot)

    def _yielded(self, sent_ns: int, answer: Command | None, number: int) -> list[Output]:
        said = Told.UNKNOWN
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            said = Told.ELECTED
        elif answer is not None and answer.code in NOT_ELECTED:
            said = Told.WAIT if ElectMasterResponse.from_ext(answer.ext).yield_wait else Told.NOBODY
        self._yielding.told(sent_ns, said)
        return self._elected(answer, number)

    # --- roles, the SyncStateSet and the fence ---------------------------------------------------------------

    def _master_is(self, master: int | None, address: str | None, epoch: int | None, life: int | None,
                   members: frozenset[int], members_epoch: int) -> list[Output]:
        """Learn who is master by any answer of a controller; only a newer one counts."""
        if master is None or not address or epoch is None or self.broker_id is None or epoch < self._seen:
            return []
        mine = self.role
        if master == self.broker_id and epoch > max(self.epoch, self._doubtful_epoch) and not self._knew_of_doubt():
            self._doubtful_epoch, self._refused = epoch, True
        if master == self.broker_id and epoch <= self._doubtful_epoch:
            return self._begin_to_resign(members)
        if epoch == self.epoch and self.machine.target is None and mine is not None:
            if isinstance(mine, BecomeMaster):
                if self.in_sync is not None:
                    self.in_sync.accept(members, members_epoch)
                return []
            if mine.master_id != master or mine.master_address == address:
                return []
        elif epoch <= self.epoch:
            return []
        role: Become = (BecomeMaster(epoch, members, members_epoch) if master == self.broker_id
                      else BecomeSlave(epoch, master, address))
        if isinstance(role, BecomeMaster):
            assert epoch > self._doubtful_epoch, "nobody leads an epoch of which it may lack something"
            by_life = life is not None and self._life is not None
            self.gate.begin(own=self._heard and (by_life or not self.lease.granted))  # Java's elect by none
        self._seen = epoch
        return self._act(self.machine.named(role))

    def _begin_to_resign(self, members: frozenset[int]) -> list[Output]:
        if self.machine.resigning:
            if not self._successors and self._config.all_ack_in_sync_state_set:
                self._successors = sorted(members - {self.broker_id}, reverse=True)
            assert self.broker_id not in self._successors, "others are asked for"
            return []
        actions = self.machine.doubted()
        if not actions:
            return []  # it hands over, so another broker is to be master anyway
        self._heard = False
        what = f"this machine went down while this broker was master in epoch {self._doubtful_epoch}: it may lack what "
        if self._refused:
            what = (f"this machine went down, and who chose this broker for epoch {self._doubtful_epoch} may not have "
                    "known: it may lack what ")
        elif self._gave_way:
            what = "another process was, or may have been, master under this broker's id: this one may lack what "
        return [*self._act(actions), Report(f"{what}others hold, and asks for another election")]

    def _report(self, now_ns: int, sight: Sight) -> list[Output]:
        held = self.in_sync
        if (held is None or self.machine.state is not State.MASTER or not isinstance(self.role, BecomeMaster)
                or not self._times.due(Kind.ALTER, now_ns)):
            return []
        members = None if self._yielding.holds_back(sight) else held.wanted(now_ns)
        if members is None:
            held.tick(now_ns)
            return []
        assert self.broker_id in members, "a master is in its own set"
        self._times.put(Kind.ALTER, now_ns + self._config.retry_ms * NS_PER_MS)
        if not held.may_ask(members):
            return []
        least = self.gate.announced if self._config.all_ack_in_sync_state_set and self.gate.announced > 1 else None
        header = AlterSyncStateSetRequest(self._config.broker_name, held.self_id, self.role.epoch,
                                          cluster_name=self._config.cluster_name, min_in_sync_replicas=least)

        def on_answer(answer: Command | None, number: int) -> list[Output]:
            return self._altered(held, answer, number, now_ns)

        outputs = self._ask(Kind.ALTER, RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, now_ns, on_answer,
                            SyncStateSet(members, held.accepted_epoch).to_json())
        assert held.self_id == self.broker_id, "a master keeps the books of its own group"
        if outputs:
            held.ask(self._under_way.number, members, now_ns)
        return outputs

    def _altered(self, held: InSync, answer: Command | None, number: int, sent_ns: int) -> list[Output]:
        if answer is None:
            return []
        if answer.code == ResponseCode.SUCCESS:
            told = SyncStateSet.from_json(answer.body)
            if held.accept(told.sync_state_set, told.sync_state_set_epoch):
                self._times.put(Kind.ALTER)
            return []
        if answer.code in REFUSALS:
            held.refused(number, sent_ns, epoch_stands=answer.code in UNFIT)
        if answer.code in REFUSALS | OUTDATED:
            self._times.put(Kind.POLL)  # this broker's knowledge may be old
        return []

    def _fence(self, now_ns: int) -> list[Output]:
        why = self._closed(now_ns)
        if self.serving == (not why):
            return []
        self.serving = not why
        assert not self.serving or (self._counted and self.role is not None), "only who has a role serves"
        return [Fence(why)] if why else [Serve()]

    def _closed(self, now_ns: int) -> str:
        """Return why writes are closed; "" where they are open."""
        machine, writes = self.machine, self.machine.writes
        if writes is Writes.OPEN or (writes is Writes.LEASED and self.lease.holds(now_ns) and not self.gate.shut):
            return ""
        if writes is Writes.LEASED:
            return (f"no active controller has renewed the lease for {self.lease.lasts_ns // NS_PER_MS} ms"
                    if self.lease.until_ns is not None and not self.gate.shut
                    else "no active controller has heard this master yet")
        if machine.state is State.MASTER:
            return self._why_it_yields() if machine.yielding else _HANDED_OVER
        if machine.state in TAKING and machine.target is not None:
            return f"the role of epoch {machine.target.epoch} is being taken"
        return f"the broker has no role: {machine.state.value}"

    # --- requests --------------------------------------------------------------------------------------------

    def _ask(self, kind: Kind, code: RequestCode, header: Header | None, now_ns: int, on_answer: OnAnswer,
             body: bytes = b"", *, slot: str = "") -> list[Output]:
        """Ask the active controller, as far as it is known."""
        assert self.leader is not None
        return self._under_way.send(kind, self.leader, code, header, now_ns, on_answer, body, slot=slot)
