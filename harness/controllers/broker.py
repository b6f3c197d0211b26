"""A model broker: identity, heartbeats, role, SyncStateSet, and a log whose acknowledgements must never be lost.

As ``ReplicasManager`` does it, with what the defects found there ask for: an application for an id is repeated with its
check code until it is answered, the highest epoch outlives the process, and a gate or lease is announced and kept. A
Java broker announces nothing and beats one-way. Each write to its disk is a place where it may crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.metadata.groups import GroupKey
from harness.controllers.messages import Pull, Push
from harness.controllers.replication import Disk, Mastership, agreement
from raft.config import MS
from remoting.bodies.controller import ElectMasterResponseBody, SyncStateSet
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.header import Header
from remoting.headers.controller import (
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    BrokerHeartbeatRequest,
    ElectMasterRequest,
    ElectMasterResponse,
    GetNextBrokerIdRequest,
    GetNextBrokerIdResponse,
    GetReplicaInfoRequest,
    GetReplicaInfoResponse,
    NotifyBrokerRoleChangedRequest,
    RegisterBrokerToControllerRequest,
    RegisterBrokerToControllerResponse,
)

if TYPE_CHECKING:
    from harness.controllers.host import Answered, Host

LEADER_ADDRESS = "controllerLeaderAddress"
TRY_NS = 700 * MS
PUSH_MAX = 64
ENTRY_BYTES = 100 << 20
"""As heartbeats tell it: logs are far longer than 32 bits count."""
LAG_NS = 1_200 * MS


class Broker:
    """One broker of one group on one host."""

    def __init__(self, host: Host, key: GroupKey, disk: Disk) -> None:
        self.host, self.key, self.disk = host, key, disk
        self.scene = host.scene
        self.gate = self.enforced = self.scene.plan.gate
        """``minInSyncReplicas`` as announced, and as kept: lowered only when that can do no harm."""
        self.leader = self.turn = 0
        self.hinted = False
        self.stop()

    def stop(self) -> None:
        """All that a process forgets."""
        self.running = self.registered = False
        self.master: int | None = None
        """Whom it follows; itself."""
        self.mastership: Mastership | None = None
        self.version = 0
        self.lease_ns = 0
        self.busy: set[str] = set()
        self.due: dict[str, int] = {}

    def start(self) -> None:
        self.stop()
        self.enforced = max(self.enforced, self.gate)

    @property
    def now(self) -> int:
        return self.host.now

    @property
    def fences(self) -> bool:
        """Whether it stops acknowledging when nobody renews its lease."""
        plan = self.scene.plan
        return bool(plan.lease_ms) and not plan.java and not plan.all_ack

    # --- asking ----------------------------------------------------------------------------------------------

    def _due(self, what: str, every_ns: int) -> bool:
        """Whether it is time for this again; once asked, not before ``every_ns``."""
        now = self.now
        if what in self.busy or self.due.get(what, 0) > now:
            return False
        self.due[what] = now + every_ns
        return True

    def _ask(self, what: str, code: int, header: Header, then: Answered, body: bytes = b"") -> None:
        """One request of a kind at a time, to whom it takes for the active controller."""
        names = self.scene.controllers.names
        self.busy.add(what)
        life = self.host.life

        def answered(command: Command | None) -> None:
            if self.host.life != life:
                return
            self.busy.discard(what)
            if command is None:
                self._ask_another(None)
            elif command.code == ResponseCode.CONTROLLER_NOT_LEADER:
                self._ask_another(command.ext.get(LEADER_ADDRESS))
            then(command)

        self.host.ask(names[self.leader % len(names)], request(code, header, body), answered)

    def _ask_another(self, hint: str | None) -> None:
        """Whoever it is said to be, or the next in turn: those that left the controller group hint at each other."""
        names = self.scene.controllers.names
        if hint in names and not self.hinted:
            self.hinted, self.leader = True, names.index(hint)
        else:
            self.hinted, self.turn = False, self.turn + 1
            self.leader = self.turn % len(names)

    # --- timers ----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        if not self.registered:
            if self._due("register", TRY_NS):
                self._register()
            return
        plan = self.scene.plan
        if not self.running:
            if self._due("elect", TRY_NS):
                self._elect()
        elif self._due("poll", plan.poll_ms * MS):
            self._poll()
        if self.mastership is not None and self.running:
            self._put(self.mastership)
            if self._due("check", plan.check_ms * MS):
                self._check(self.mastership)
        elif self.master is not None and self.mastership is None:
            self._pull()

    def beat(self) -> None:
        if not self.registered or self.disk.broker_id is None:
            return
        plan, log, sent = self.scene.plan, self.disk.log, self.now
        mastership = self.mastership
        announced = self.gate
        java = plan.java
        header = BrokerHeartbeatRequest(
            self.key.cluster, self.host.address, self.key.name, self.disk.broker_id,
            log[-1][0] if log else -1, len(log) * ENTRY_BYTES,
            (mastership.confirmed(len(log)) if mastership else len(log)) * ENTRY_BYTES,
            plan.timeout_ms, plan.priority(self.disk.broker_id),
            None if java or not plan.lease_ms else plan.lease_ms,
            None if java else plan.all_ack, None if java else announced)
        for name in self.scene.controllers.names:
            if name not in self.scene.controllers.nodes:
                continue

            def answered(command: Command | None, epoch: int = self.disk.epoch) -> None:
                if command is not None and command.ext.get("masterLeaseRenewed") == "true" and self.disk.epoch == epoch:
                    self._renewed(sent, announced)

            command = request(RequestCode.BROKER_HEARTBEAT, header, oneway=java)
            self.host.ask(name, command, None if java else answered)

    def _renewed(self, sent: int, announced: int) -> None:
        """The active controller holds this broker for the master, and nobody is eligible that the gate would harm."""
        self.lease_ns = max(self.lease_ns, sent + self.scene.plan.lease_ms * MS)
        self.scene.watch.renewed(self, sent)
        if announced == self.gate < self.enforced:
            self.enforced = self.gate
            self.scene.counts["gate lowered"] += 1

    # --- identity --------------------------------------------------------------------------------------------

    def _register(self) -> None:
        """The next step of a registration; each can be repeated."""
        disk, key = self.disk, self.key
        if disk.broker_id is not None:
            self._ask("register", RequestCode.CONTROLLER_REGISTER_BROKER, RegisterBrokerToControllerRequest(
                key.cluster, key.name, disk.broker_id, self.host.address), self._registered)
        elif disk.applying is not None:
            self._ask("register", RequestCode.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequest(
                key.cluster, key.name, *disk.applying), self._applied)
        else:
            self._ask("register", RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequest(
                key.cluster, key.name), self._offered)

    def _offered(self, answer: Command | None) -> None:
        if answer is not None and answer.code == ResponseCode.SUCCESS and not self._crashes("before temp file"):
            offered = GetNextBrokerIdResponse.from_ext(answer.ext).next_broker_id
            assert offered is not None
            self.disk.applying = offered, f"{self.host.address};{self.scene.serial()}"
            if not self._crashes("after temp file"):
                self._register()

    def _applied(self, answer: Command | None) -> None:
        applying = self.disk.applying
        if answer is None or applying is None or self._crashes("before identity file"):
            return
        if answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            self.disk.applying = None
            self.scene.counts["id refused"] += 1
        elif answer.code == ResponseCode.SUCCESS:
            self.disk.broker_id = applying[0]
            self.scene.watch.identified(self)
            if not self._crashes("after identity file"):
                self.disk.applying = None
                if not self._crashes("after temp file is gone"):
                    self._register()

    def _registered(self, answer: Command | None) -> None:
        if answer is None or self._crashes("after registration"):
            return
        if answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self.disk.broker_id = None  # its operator clears the identity of a broker that was cleaned away
            self.scene.counts["identity given up"] += 1
        elif answer.code == ResponseCode.SUCCESS:
            header = RegisterBrokerToControllerResponse.from_ext(answer.ext)
            self.registered = True
            self.beat()
            if header.master_broker_id is not None and header.master_epoch is not None:
                known = SyncStateSet.from_json(answer.body)
                self._change(header.master_broker_id, header.master_epoch, known)
                self.running = self.master is not None

    def _crashes(self, site: str) -> bool:
        """Whether the process dies right here."""
        if self.scene.crash_site(self.host):
            self.scene.counts[f"crash {site}"] += 1
            return True
        return False

    # --- role ------------------------------------------------------------------------------------------------

    def _elect(self) -> None:
        broker_id = self.disk.broker_id
        self._ask("elect", RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequest(
            self.key.cluster, self.key.name, broker_id), self._elected)

    def _elected(self, answer: Command | None) -> None:
        if answer is None:
            return
        if answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self.registered = False
        elif answer.code in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            header = ElectMasterResponse.from_ext(answer.ext)
            assert header.master_broker_id is not None and header.master_epoch is not None
            body = ElectMasterResponseBody.from_json(answer.body)
            self._change(header.master_broker_id, header.master_epoch,
                         SyncStateSet(body.sync_state_set, header.sync_state_set_epoch or 0))
            self.running = self.master is not None

    def _poll(self) -> None:
        floor = self.scene.watch.read_begins(self.key)

        def answered(answer: Command | None) -> None:
            if answer is None:
                return
            if answer.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                self.registered = False
            elif answer.code == ResponseCode.SUCCESS:
                header, known = GetReplicaInfoResponse.from_ext(answer.ext), SyncStateSet.from_json(answer.body)
                self.scene.watch.read_ends(
                    self.key, floor, (header.master_epoch, known.sync_state_set_epoch), self.scene.reads_are_sound)
                if header.master_broker_id is not None:
                    self._change(header.master_broker_id, header.master_epoch, known)
                elif header.master_epoch >= self.disk.epoch:
                    self._bereave(header.master_epoch)

        self._ask("poll", RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(
            self.key.name, self.key.cluster), answered)

    def told(self, command: Command) -> None:
        """1008."""
        header = NotifyBrokerRoleChangedRequest.from_ext(command.ext)
        assert header.master_broker_id is not None and header.master_epoch is not None
        if self.registered:
            self._change(header.master_broker_id, header.master_epoch, SyncStateSet.from_json(command.body))

    def _change(self, master: int, epoch: int, known: SyncStateSet) -> None:
        """What some controller said of this group; old news change nothing."""
        disk = self.disk
        if disk.broker_id is None:
            return
        self.scene.watch.learned(self, epoch)
        again = epoch == disk.epoch and self.master is None
        if epoch > disk.epoch or again:
            self.scene.watch.adopts(self, master, epoch, known.sync_state_set_epoch)
            disk.epoch, self.master, self.mastership = epoch, master, None
            self.lease_ns = 0
            if master == disk.broker_id:
                self.mastership = Mastership(
                    master, epoch, known.sync_state_set, known.sync_state_set_epoch, sure=not again,
                    acknowledged=len(disk.log))
                self.scene.watch.leads(self)
        elif epoch == disk.epoch and self.mastership is not None:
            self.mastership.adopt(known.sync_state_set, known.sync_state_set_epoch)

    def _bereave(self, epoch: int) -> None:
        """The group has no master: nobody acknowledges, and this broker stands for election."""
        if epoch > self.disk.epoch:
            self.scene.watch.learned(self, epoch)
            self.scene.watch.adopts(self, None, epoch, 0)
            self.disk.epoch, self.master, self.mastership = epoch, None, None
        if "elect" not in self.busy:
            self._elect()

    # --- master ----------------------------------------------------------------------------------------------

    def _put(self, mastership: Mastership) -> None:
        """A client writes; what all that count hold is acknowledged."""
        plan, log = self.scene.plan, self.disk.log
        if self.writable(mastership) and len(log) < plan.log_max and self.scene.puts.chance(plan.put_chance):
            self.scene.watch.accepts(self, mastership)
            log.append((mastership.epoch, self.scene.serial()))
            self.version += 1
            if not plan.all_ack:
                self.scene.counts["acknowledged at once"] += 1
        self._acknowledge(mastership)

    def _acknowledge(self, mastership: Mastership) -> None:
        if not (self.scene.plan.all_ack and mastership.sure):
            return
        confirmed = mastership.confirmed(len(self.disk.log))
        if confirmed > mastership.acknowledged and len(mastership.accepted) >= self.enforced:
            self.scene.watch.acknowledges(self, mastership, confirmed)
            mastership.acknowledged = confirmed

    def writable(self, mastership: Mastership) -> bool:
        if len(mastership.accepted) < self.enforced:
            self.scene.counts["gate held"] += 1
            return False
        return not self.fences or self.now < self.lease_ns

    def _check(self, mastership: Mastership) -> None:
        """Who is in sync by now, for the controller."""
        now, log = self.now, self.disk.log
        confirmed = mastership.confirmed(len(log))
        inside = {mastership.me} | {
            each for each, end in mastership.held.items()
            if now - mastership.heard_ns[each] < LAG_NS and (end >= confirmed or each in mastership.accepted)}
        wanted = frozenset(inside)
        if wanted == mastership.accepted and mastership.sure:
            return
        mastership.want(wanted)
        self.scene.counts["alter"] += 1

        def answered(answer: Command | None) -> None:
            if answer is not None and answer.code == ResponseCode.SUCCESS and self.mastership is mastership:
                known = SyncStateSet.from_json(answer.body)
                mastership.adopt(known.sync_state_set, known.sync_state_set_epoch, mine=known.sync_state_set == wanted)

        self._ask("check", RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, AlterSyncStateSetRequest(
            self.key.name, mastership.me, mastership.epoch, 0, self.key.cluster), answered,
            SyncStateSet(wanted, mastership.set_epoch).to_json())

    def pulled(self, pull: Pull) -> None:
        """A slave of this epoch acknowledges, and wants more."""
        mastership = self.mastership
        if mastership is None or pull.epoch != mastership.epoch or pull.broker_id == mastership.me:
            return
        log = self.disk.log
        keep = agreement(self.disk.starts(), len(log), pull.starts, pull.end)
        if keep == pull.end:
            self.scene.watch.counted(self, pull)
            mastership.held[pull.broker_id] = max(mastership.held.get(pull.broker_id, 0), keep)
            mastership.heard_ns[pull.broker_id] = self.now
            self._acknowledge(mastership)
        if keep < max(pull.end, len(log)):
            self.scene.send(self.host.name, pull.host, "ha", Push(
                self.key, mastership.epoch, mastership.me, pull.version, keep, tuple(log[keep : keep + PUSH_MAX]),
                mastership.acknowledged))

    # --- slave -----------------------------------------------------------------------------------------------

    def _pull(self) -> None:
        disk = self.disk
        master = self.scene.broker_of(self.key, self.master)
        if master is None or disk.broker_id is None:
            return
        self.scene.send(self.host.name, master.host.name, "ha", Pull(
            self.key, disk.broker_id, self.host.name, disk.epoch, disk.starts(), len(disk.log), self.version,
            self.scene.watch.moved(disk)))

    def pushed(self, push: Push) -> None:
        if push.epoch != self.disk.epoch or push.master != self.master or push.version != self.version or (
                self.mastership is not None):
            return
        log = self.disk.log
        if push.keep < len(log):
            self.scene.counts["truncated"] += 1
        del log[push.keep :]
        log.extend(push.entries)
        self.version += 1
        self._pull()
