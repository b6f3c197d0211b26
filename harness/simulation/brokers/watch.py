"""Checks a broker group with a view of every disk, every role and the controllers' decisions.

It has one method per event and one name per property; ``counts`` says how often each property was evaluated. It never
relies on the bookkeeping that it checks: it reads the data that brokers hold from journals and disks, and the members
in sync from the controllers' commits. ``contract`` says what a mode may lose; after such a loss, properties that
promise the contrary are no longer checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from broker.ha.acks import PutStatus
from broker.ha.insync import InSync
from broker.ha.tail import undispatched
from broker.ha.taking import Become, BecomeMaster
from broker.puts import LEASE_OVER, PutResult
from broker.replicas.lease import CLOCK_DRIFT_PERCENT
from broker.replicas.manager import REFUSALS
from controller.metadata.commands import AlterSyncStateSet, CleanBrokerData, ElectMaster, Trigger
from controller.metadata.events import Applied
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.invariants import Checker
from controller.metadata.outcomes import Elected
from harness.simulation.brokers.client import TOPIC
from harness.simulation.brokers.contract import Excuse, Loss, excuse
from harness.simulation.brokers.copies import Copies
from harness.simulation.brokers.delays import Delays
from harness.simulation.brokers.deletions import Deletions
from harness.simulation.brokers.demands import Demands
from harness.simulation.brokers.doubts import Doubts
from harness.simulation.brokers.hindrances import Hindrances, is_yield
from harness.simulation.brokers.history import ConsumerHistory
from harness.simulation.brokers.judging import Judge
from harness.simulation.brokers.plan import CLUSTER, GROUP
from harness.simulation.brokers.popped import Pops
from harness.simulation.brokers.runs import Runs
from harness.simulation.brokers.sizes import Sizes
from harness.simulation.brokers.timers import Timers
from harness.simulation.brokers.transactions import Transactions
from raft.config import MS
from raft.invariants import InvariantViolation, require
from remoting.bodies.controller import SyncStateSet
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.errors import DamagedRecord
from remoting.record import Message, Outline, Record

if TYPE_CHECKING:
    from harness.simulation.brokers.group import Group
    from harness.simulation.brokers.host import Host
    from harness.simulation.brokers.process import BrokerProcess

NOBODY: Final = 0
KEY: Final = GroupKey(CLUSTER, GROUP)


class BrokerWatch:
    """Judges one scene by all properties."""

    def __init__(self, scene: Group, checker: Checker | None = None) -> None:
        """``checker`` checks the controllers' metadata, if another watch feeds it."""
        self.scene = scene
        self.checker = checker or Checker()
        self.counts = self.checker.counts
        self.history = ConsumerHistory(self)
        self.doubts, self.demands, self.copies, self.runs = Doubts(self), Demands(self), Copies(self), Runs(self)
        self.hindrances, self.sizes = Hindrances(self), Sizes(self)
        self.delays, self.timers, self.transactions, self.pops, self.deletions = (
            Delays(self), Timers(self), Transactions(self), Pops(self), Deletions(self))
        self.judges: tuple[Judge, ...] = (self.delays, self.timers, self.transactions, self.pops, self.deletions)
        self._judges_of = {topic: tuple(judge for judge in self.judges if topic in judge.topics)
                           for judge in self.judges for topic in judge.topics}
        self.in_doubt = self.history.in_doubt
        self.lossless = scene.plan.all_ack
        """No message was lost so far, and none may be."""
        self.unclean = False
        self.confirmed = 0
        """End of the last message that any replica confirmed, while nothing may be lost."""
        self._beside: frozenset[int] = frozenset()
        """The brokers that are eligible beside the SyncStateSet."""
        self._shown_beside: int | None = None
        """``confirmed`` before a master showed more while others were eligible beside its set. These hold all
        acknowledged messages and may lack the ones shown since."""
        self.shown = bytearray()
        """The log up to ``confirmed``."""
        self._shown_before: dict[BrokerProcess, int] = {}
        """Run -> what consumers had seen when it became master."""
        self.acknowledged = bytearray()
        """The log up to the last acknowledged message."""
        self.committed: dict[int, frozenset[int]] = {}
        """SyncStateSets by their epoch."""
        self._sets: dict[int, frozenset[int]] = {}
        """Master epoch -> the last SyncStateSet that was committed in it."""
        self._elections: dict[int, tuple[int, bool]] = {}
        """Epoch -> its master, or ``NOBODY``, and whether it began without an operator."""
        self._masters: dict[int, BrokerProcess] = {}
        self._owners: dict[int, Host] = {}
        self._acker: Host | None = None
        self._latest = 0
        self._again = False
        """True: the latest master went on with an epoch that it had led before."""
        self._adopted: dict[Host, tuple[int, object]] = {}
        self._learned: dict[BrokerProcess, int] = {}
        self._renewed: dict[BrokerProcess, int] = {}
        self._confirm: dict[BrokerProcess, int] = {}
        self._whole: dict[BrokerProcess, int] = {}
        """Run -> end of the last whole message below its confirm offset."""
        self._asked: dict[BrokerProcess, list[tuple[int, frozenset[int]]]] = {}

    # --- looking ---------------------------------------------------------------------------------------------

    def _all_hold(self, members: frozenset[int], end: int) -> list[tuple[int, int]]:
        """Members that do not hold the log up to ``end``. Lost members are not asked."""
        lacking = []
        for member in sorted(members - self.scene.lost):
            host = self.scene.host_of(member)
            held = self.runs.held(host) if host is not None else -1
            if held is not None and held < end:
                lacking.append((member, held))
        return lacking

    @staticmethod
    def log(process: BrokerProcess, begin: int, end: int) -> bytes:
        parts = []
        while begin < end and (part := process.journal.read(begin, end - begin)):
            parts.append(part)
            begin += len(part)
        return b"".join(parts)

    @staticmethod
    def boundary(process: BrokerProcess, upto: int, since: int = 0) -> int:
        """End of the last message at or below ``upto``; ``since`` is the end of an earlier one."""
        log = process.journal.log
        at = max(log.min_offset, since)
        try:
            for offset, size, *_ in log.scan(at, upto, check_crc=False):
                at = offset + size
        except DamagedRecord:
            pass
        return at

    @staticmethod
    def leads_in(process: BrokerProcess | None) -> int | None:
        """The epoch in which this run is master, as replication sees it."""
        if process is None or process.dead or process.switch.in_sync is None:
            return None
        role = process.switch.role
        return role.epoch if isinstance(role, BecomeMaster) else None

    def broken(self, id: str, message: str, process: BrokerProcess, *facts: object) -> None:  # noqa: A002
        require(False, id, message, f"{process.host.name} at {self.scene.world.now / MS:.1f} ms", *facts)

    # --- controllers -----------------------------------------------------------------------------------------

    def applied(self, applied: Applied) -> None:
        self.checker(applied)
        self.decided(applied)

    def decided(self, applied: Applied) -> None:
        """Check a change of this group that controllers committed."""
        self.hindrances.decided(applied)
        if isinstance(applied.outcome, Elected):
            self.scene.counts["election"] += 1
            if not applied.outcome.clean:
                self.forgiven()
            command = applied.command
            self.doubts.chosen(applied.outcome, applied.command, applied.groups)
            self._elections[applied.outcome.master_epoch] = (
                applied.outcome.master, isinstance(command, ElectMaster) and command.trigger is not Trigger.ADMIN)
        for _, before, after in applied.groups:
            if before.master is not None and after.master is None and isinstance(applied.command, CleanBrokerData):
                self._elections[after.master_epoch] = (NOBODY, False)  # an operator removed a living master
            if after.sync_state_set_epoch != before.sync_state_set_epoch:
                self.committed[after.sync_state_set_epoch] = after.sync_state_set
            self._beside = after.eligible
            self.scene.counts["eligible beside a set that shrank"] += (
                isinstance(applied.command, AlterSyncStateSet) and bool(after.eligible - before.eligible))
            if after.eligible and self.lossless:
                self.counts["INV_C25"] += 1
                lacking = self._all_hold(after.eligible, len(self.acknowledged))
                require(not lacking, "INV_C25", "eligible without what was acknowledged", lacking, before, after)
            self.demands.decided(after)
            if after.master is not None:
                self._sets[after.master_epoch] = after.sync_state_set
                if not after.eligible and after.master_epoch == before.master_epoch:
                    self._shown_beside = None  # all candidates now hold what was shown
            if isinstance(applied.command, AlterSyncStateSet):
                self._altered(before, after)

    def _altered(self, before: BrokerGroup, after: BrokerGroup) -> None:
        """Check INV_B13: new members of the SyncStateSet hold all confirmed bytes."""
        joined = after.sync_state_set - before.sync_state_set
        self.scene.counts["set shrunk"] += bool(before.sync_state_set - after.sync_state_set)
        self.scene.counts["set grown"] += bool(joined)
        if not joined or not self.lossless:
            return
        self.counts["INV_B13"] += 1
        master = self._masters.get(after.master_epoch)
        start = master.switch.epochs.start_of(after.master_epoch) if master is not None else None
        lacking = self._all_hold(joined, max(self.confirmed, start or 0))
        require(not lacking, "INV_B13", "joined without what was confirmed", lacking, self.confirmed, start)

    def forgiven(self) -> None:
        """Note that an operator accepted loss: the next master may lack anything."""
        self.unclean, self.lossless = True, False

    def asks(self, process: BrokerProcess, wanted: SyncStateSet) -> None:
        self.scene.counts["alter asked"] += 1
        self.hindrances.look(process)
        self.hindrances.asks(process, wanted)
        known, each = self._asked.setdefault(process, []), (wanted.sync_state_set_epoch, wanted.sync_state_set)
        self.sizes.asks(again=each in known)
        known.append(each)

    def answered(self, process: BrokerProcess, command: Command, answer: Command | None, sent_ns: int) -> None:
        """Note a controller's answer to a run."""
        if answer is None:
            return
        if command.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET and answer.code in REFUSALS:
            wanted = SyncStateSet.from_json(command.body)
            known = self._asked[process]
            if (each := (wanted.sync_state_set_epoch, wanted.sync_state_set)) in known:
                known.remove(each)  # the list has no requests of earlier epochs
        if is_yield(command):
            self.hindrances.told_of_a_successor(process, answer)
        if command.code == RequestCode.BROKER_HEARTBEAT and answer.ext.get("masterLeaseRenewed") == "true":
            self._renewed[process] = max(self._renewed.get(process, 0), sent_ns)
        if "masterEpoch" in answer.ext:
            self.learned(process, int(answer.ext["masterEpoch"]))

    def learned(self, process: BrokerProcess, epoch: int | None) -> None:
        if process.member.manager.broker_id is not None:
            self._learned[process] = max(self._learned.get(process, 0), epoch or 0)

    # --- roles -----------------------------------------------------------------------------------------------

    def adopts(self, process: BrokerProcess, role: Become) -> None:
        """Check INV_C15 when a broker adopts a role."""
        host = process.host
        master: object = (process.member.manager.broker_id if isinstance(role, BecomeMaster) else role.master_id)
        epoch, of = self._adopted.get(host, (0, None))
        self.counts["INV_C15"] += 1
        if role.epoch < epoch or (role.epoch == epoch and master != of):
            self.broken("INV_C15", "back to an older epoch", process, (epoch, of), (role.epoch, master))
        decided = self.checker.history.masters.get((self.scene.key, role.epoch), "nobody")
        if decided != master:
            self.broken("INV_C15", "a master that nobody elected", process, role, decided)
        self._adopted[host] = role.epoch, master

    def leads(self, process: BrokerProcess, role: BecomeMaster) -> None:
        """Check a broker that has become master, before its writes open."""
        host, epoch, journal = process.host, role.epoch, process.journal
        owner = self._owners.setdefault(epoch, host)
        again = epoch in self._masters
        self.scene.counts["same epoch again"] += again
        self.scene.counts["became master with a longer log"] += journal.end > len(self.acknowledged) > 0
        others = [other for other in (*self.scene.hosts, *self.scene.copies) if other is not host]
        self.counts["INV_B27"] += any(other.process is not None for other in others)
        for other in others:
            if self.leads_in(other.process) == epoch:
                self.broken("INV_B27", "two masters of one epoch live", process, epoch, other.name)
        if owner is not host:
            self.broken("INV_C14", "two masters of one epoch", process, epoch, owner.name)
        self._masters[epoch] = process
        self._again = again
        self._asked[process] = []
        self._confirm.pop(process, None)
        self._whole.pop(process, None)
        self.doubts.leads(process, epoch, again=again, unclean=self.unclean)
        newest = epoch >= self._latest
        self._latest = max(self._latest, epoch)
        if newest:
            self._holds_all(process)
        if self.lossless and newest:
            self._shows_again(process)
        self.scene.counts["master whose log begins behind messages"] += process.journal.begin > 0
        if newest:
            host.caught_up()  # others are compared with its log from now on
        self.demands.stands(process)
        self.confirms(process)

    def _shows_again(self, process: BrokerProcess) -> None:
        """Check INV_B24 when a master begins: it shows no less than was seen."""
        shown, begin = self.shown, process.journal.begin
        self._shown_before[process] = len(shown)
        self.counts["INV_B24"] += bool(shown)
        self.scene.counts["young master"] += process.journal.veil.on
        if self.log(process, begin, len(shown)) == shown[begin:]:
            if not process.journal.veil.on and process.journal.confirm_offset < len(shown) and not self._again:
                self.broken("INV_B24", "a new master shows less, and no veil", process, len(shown))
            return
        early = (self.scene.plan.shows_all and self._shown_beside is not None
                 and process.journal.end >= self._shown_beside)
        why = self._excuse(process.host, shown_early=early)
        if why is None:
            self.broken("INV_B24", "a new master lacks what consumers saw", process, f"epoch {self._latest}",
                         f"log ends at {process.journal.end}", f"seen up to {len(shown)}", self._shown_beside)
        self._lost(why)  # confirmed bytes are gone, acknowledged ones are not

    def unveiled(self, process: BrokerProcess) -> None:
        """Check INV_B24: a master shows all that it held at its begin, and so all that was seen."""
        if self.lossless and self.leads_in(process) == self._latest:
            self.counts["INV_B24"] += 1
            self.scene.counts["unveiled"] += 1
            seen, before = process.journal.visible.offset, self._shown_before.get(process, 0)
            if seen < before:
                self.broken("INV_B24", "unveiled, and less is seen than was", process, seen, before)
            self._nobody_is_ahead(process)

    def _excuse(self, host: Host, *, shown_early: bool = False) -> Excuse | None:
        plan = self.scene.plan
        return excuse(Loss(plan.all_ack, plan.sync_flush, self.unclean, host.unsafe, self._acker is host, host.older,
                           shown_early))

    def _lost(self, why: Excuse | None) -> None:
        """Note a loss that the mode allows: its promises hold no longer."""
        assert why is not None
        self.scene.counts[why.value] += 1
        self.lossless = False
        self.history.void = True

    def _holds_all(self, process: BrokerProcess) -> None:
        """Check INV_B1 when a master begins."""
        promised = self.acknowledged
        if not promised:
            return
        journal = process.journal
        self.counts["INV_B1"] += 1
        begin = journal.begin
        if self.log(process, begin, len(promised)) == promised[begin:]:
            return
        why = self._excuse(process.host)
        if why is None:
            self.broken("INV_B1", "a new master lacks what was acknowledged", process, f"epoch {self._latest}",
                         f"log ends at {journal.end}", f"acknowledged up to {len(promised)}", process.host.lacks)
        self._lost(why)
        here = self.log(process, 0, len(promised)) if not begin else b""
        same = next((at for at, (one, other) in enumerate(zip(here, promised, strict=False)) if one != other),
                    min(len(here), len(promised)))
        del promised[same:]

    def serves(self, process: BrokerProcess) -> None:
        """Check INV_B20 when a master's writes open. After a restart in its epoch it waits for its slaves instead."""
        role = process.switch.role
        if self.lossless and not self._again and role is not None and role.epoch == self._latest:
            if process.journal.veil.on:
                self.scene.counts["writes open behind a veil"] += 1
            else:
                self._nobody_is_ahead(process)

    def _nobody_is_ahead(self, process: BrokerProcess) -> None:
        """Check INV_B20: no consumer is ahead of a new master's queues."""
        for queue, offset in self.scene.consumer.offsets.items():
            self.counts["INV_B20"] += offset > 0
            end = process.journal.messages.max_offset(TOPIC, queue)
            if offset > end:
                self.broken("INV_B20", "a consumer is ahead of the queue", process, queue, offset, end)

    # --- writing ---------------------------------------------------------------------------------------------

    @property
    def latest(self) -> int:
        """The newest epoch that has a master."""
        return self._latest

    def puts(self, process: BrokerProcess, messages: Sequence[Message]) -> None:
        """Pass messages to the judges right before a client or a part puts them."""
        self.sizes.puts(process, messages)
        for judge in self._judges(messages):
            judge.puts(process, messages)

    def _judges(self, messages: Sequence[Message]) -> Iterable[Judge]:
        """The judges of these topics, each once."""
        return dict.fromkeys(judge for message in messages for judge in self._judges_of.get(message.topic, ()))

    def put(self, process: BrokerProcess, call: Callable[[], None]) -> None:
        """Put by ``call``, and check INV_B16, INV_C16 and INV_LEASE if it wrote."""
        log, before = process.journal.log, process.journal.log.max_offset
        call()
        if log.max_offset == before:
            return
        in_sync, role = process.switch.in_sync, process.switch.role
        if in_sync is None or role is None:
            self.counts["INV_C16"] += 1
            raise InvariantViolation("INV_C16", f"written on {process.host.name}, which is no master")
        self.demands.written(process)
        self._goes_by_a_committed_set(process)
        self._is_rightful(process, role.epoch, "writes")

    def _is_rightful(self, process: BrokerProcess, epoch: int, what: str) -> None:
        """Check INV_C16 and INV_LEASE: a master may write or acknowledge in this epoch."""
        plan = self.scene.plan
        self.counts["INV_C16"] += 1
        learned = self._learned.get(process, 0)
        if learned > epoch:
            self.broken("INV_C16", f"a deposed master knows it and {what}", process, epoch, learned)
        renewed = self._renewed.get(process)
        if plan.lease_ms and renewed is not None:
            self.scene.counts[f"{what} under a lease"] += 1
            if process.now - renewed > plan.lease_ms * MS * (100 - CLOCK_DRIFT_PERCENT) // 100:
                self.broken("INV_C16", f"it {what} without a lease", process, (process.now - renewed) / MS)
            if plan.wait_master_lease and not plan.all_ack:
                self.counts["INV_LEASE"] += 1
                later = {later: how for later, how in self._elections.items() if later > epoch}
                if later and all(by_controller for _, by_controller in later.values()) and any(
                        master != process.switch.broker_id for master, _ in later.values()):
                    self.broken("INV_LEASE", f"it {what} beside another master", process, epoch, later)

    def _goes_by_a_committed_set(self, process: BrokerProcess) -> None:
        """Check INV_B16: controllers committed the set that a master uses."""
        in_sync = process.switch.in_sync
        assert in_sync is not None
        self.counts["INV_B16"] += 1
        if self.committed.get(in_sync.accepted_epoch) != in_sync.accepted:
            self.broken("INV_B16", "a set that was not committed", process, in_sync.accepted, in_sync.accepted_epoch,
                         self.committed.get(in_sync.accepted_epoch))

    def _as_many_as_demanded(self, process: BrokerProcess, end: int) -> None:
        """Check INV_B23: an acknowledged put has as many copies as demanded."""
        in_sync = process.switch.in_sync
        assert in_sync is not None
        members = self.committed.get(in_sync.accepted_epoch, frozenset())
        self.demands.acknowledged(process, end, members)
        group = self.scene.group()
        if not self.scene.plan.all_ack or self.unclean or not self.lossless or group is None:
            return
        lacking = self._all_hold(members, end)
        if group.master_epoch == self.leads_in(process):  # INV_B1 checks a master that was replaced
            self.counts["INV_B23"] += bool(group.electable)
            lacking += self._all_hold(group.electable, end)
        if lacking:
            self.broken("INV_B23", "acknowledged, and one that may be elected lacks it", process, end, lacking, group)

    def answered_put(self, process: BrokerProcess, messages: Sequence[Message], result: PutResult) -> None:
        """Check the outcome of a put."""
        self.sizes.answered(process, messages)
        scene, plan = self.scene, self.scene.plan
        for judge in self._judges(messages):
            judge.answered(process, messages, result)
        status = result.status
        if status is not PutStatus.PUT_OK:
            known = {PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "put refused by the gate",
                     PutStatus.SERVICE_NOT_AVAILABLE: "put without a master"}
            scene.counts[known.get(status, "put in doubt")] += 1
            scene.counts["not acknowledged for want of a lease"] += bool(result.puts) and result.remark == LEASE_OVER
            return
        end = result.end
        epoch, in_sync = self.leads_in(process), process.switch.in_sync
        assert epoch is not None and in_sync is not None, "a master acknowledges"
        self._is_rightful(process, epoch, "acknowledges")
        if plan.sync_flush:
            self.counts["INV_B12"] += 1
            if process.journal.log.flushed_offset < end:
                self.broken("INV_B12", "acknowledged before it was flushed", process, end)
        self._as_many_as_demanded(process, end)
        if plan.all_ack and not self.unclean:
            self._goes_by_a_committed_set(process)
            self.counts["INV_B15"] += 1
            lacking = self._all_hold(self._sets.get(epoch, frozenset()), end)
            if lacking:
                self.broken("INV_B15", "acknowledged without a member of the SyncStateSet", process, epoch, lacking,
                             end, in_sync)
            for set_epoch, members in self._asked.get(process, ()):
                if set_epoch >= in_sync.accepted_epoch:
                    self.counts["INV_B14"] += 1
                    lacking = self._all_hold(members, end)
                    if lacking:
                        self.broken("INV_B14", "acknowledged without a member of a set that is asked for", process,
                                     lacking, end)
        elif not plan.all_ack and plan.in_sync_replicas > 1:
            self.counts["INV_B15"] += 1
            holding = [host for host in (*scene.hosts, *scene.copies)
                       if not host.learner and (self.runs.held(host) or 0) >= end]
            if len(holding) < plan.in_sync_replicas and not self._some_unsafe():
                self.broken("INV_B15", "acknowledged by too few", process, end, [host.name for host in holding])
        self._remember(process, epoch, end)

    def _some_unsafe(self) -> bool:
        return any(host.unsafe or host.older for host in self.scene.hosts)

    def _remember(self, process: BrokerProcess, epoch: int, end: int) -> None:
        """Note the acknowledged bytes that later masters must hold, for INV_B1."""
        promised = self.acknowledged
        if epoch < self._latest:
            latest = self._masters[self._latest]
            begin = process.journal.begin
            if self.lossless and self.leads_in(latest) == self._latest and latest.journal.begin <= begin:
                self.counts["INV_B1"] += 1
                if self.log(latest, begin, end) != self.log(process, begin, end):
                    self.broken("INV_B1", "acknowledged although a later master lacks it", process, epoch, end)
            self.scene.counts["acknowledged by a deposed master"] += 1
            if not self.lossless:
                return
        self._acker = process.host
        if end > len(promised) >= process.journal.begin:  # a log that begins later leaves a gap of unknown bytes
            promised += self.log(process, len(promised), end)

    # --- replication -----------------------------------------------------------------------------------------

    def confirms(self, process: BrokerProcess) -> None:
        """Check INV_B3 and INV_B4 after the confirm offset may have moved."""
        journal = process.journal
        confirm, before = journal.confirm_offset, self._confirm.get(process, 0)
        if confirm == before:
            return
        self.counts["INV_B4"] += 1
        if confirm < before:
            self.broken("INV_B4", "the confirm offset fell", process, before, confirm)
        self._confirm[process] = confirm
        epoch = self.leads_in(process)
        if not self.lossless or epoch is None or process.switch.is_taking:
            return  # ``leads`` checks a role's first confirm offset, with its own epoch
        self.counts["INV_B3"] += 1
        whole = self._whole[process] = self.boundary(process, confirm, self._whole.get(process, 0))
        lacking = self._all_hold(self._sets.get(epoch, frozenset()), whole)
        if lacking:
            self.broken("INV_B3", "confirmed, and a member of the SyncStateSet lacks it", process, epoch, confirm,
                         lacking)
        if whole > self.confirmed:
            if self._beside and self._shown_beside is None:
                self._shown_beside = self.confirmed
            self.confirmed = whole
            if len(self.shown) >= process.journal.begin:  # a log that begins later leaves a gap of unknown bytes
                self.shown += self.log(process, len(self.shown), whole)

    def forget(self, process: BrokerProcess) -> None:
        """Forget a run that is over."""
        for known in (self._learned, self._renewed, self._confirm, self._asked):
            known.pop(process, None)
        self.demands.ended(process)
        self.hindrances.ended(process)
        self.sizes.ended(process)
        self.history.forget(process)

    def cut_off(self, process: BrokerProcess) -> None:
        """Note a cut: a partial message may have been confirmed before it was cut off."""
        self._confirm.pop(process, None)

    # --- consumers -------------------------------------------------------------------------------------------

    def arrived(self, process: BrokerProcess, queue: int, queue_offset: int, outline: Outline) -> None:
        """Check INV_B5 when a message becomes visible."""
        self.counts["INV_B5"] += 1
        offset, size = outline[0], outline[1]
        if offset + size > process.journal.confirm_offset:
            self.broken("INV_B5", "seen though not confirmed", process, offset, size, process.journal.confirm_offset)
        topic = outline[6]
        if topic not in Deletions.topics:  # queues of a topic made again begin anew
            self.history.arrived(process, topic, queue, queue_offset, offset, size)
        for judge in self._judges_of.get(topic, ()):
            judge.arrived(process, queue_offset, outline)

    def consumed(self, process: BrokerProcess, queue: int, record: Record) -> None:
        self.history.consumed(process, queue, record)

    # --- the end ---------------------------------------------------------------------------------------------

    def agreed(self) -> bool:
        """Return whether every broker has the role that the controllers gave it."""
        group = self.scene.group()
        if group is None or (master := self.scene.host_of(group.master)) is None or master.process is None:
            return False
        for host in self.scene.hosts:
            process = host.process
            if process is None or process.member.manager.role is None:
                return False
            role = process.switch.role
            if role is None or role.epoch != group.master_epoch:
                return False
        return True

    def level(self) -> bool:
        """Return whether all replicas hold the master's whole log and are in sync."""
        group = self.scene.group()
        if not self.agreed() or group is None:
            return False
        master = self.scene.host_of(group.master)
        assert master is not None and master.process is not None
        ids = {host.process.switch.broker_id for host in self.scene.hosts
               if host.process is not None and not host.learner}
        end, enough = master.process.journal.durable_end, len(ids) >= master.min_in_sync or not self.scene.plan.all_ack
        settled = self.demands.agreed(master.process) and end == master.process.journal.log.max_offset
        return settled and group.sync_state_set == ids and all(
            host.process is not None and host.process.journal.durable_end == end
            and (host.process.journal.confirm_offset == end or not enough)
            and not undispatched(host.process.journal) for host in self.scene.hosts)

    def waits_for_cleaned_ms(self) -> int:
        """Return how long the master may still count a member that was cleaned while its request was unanswered."""
        group, held = self.scene.group(), self._held()
        if group is None or held is None or held.members <= group.replicas.keys():
            return 0
        return held.config.asked_void_ms

    def asked_for(self) -> bool:
        """Return whether a request of the master on record is under way."""
        held = self._held()
        return held is not None and bool(held.asked)

    def _held(self) -> InSync | None:
        master = self._master()
        return None if master is None else master.switch.in_sync

    def _master(self) -> BrokerProcess | None:
        """The run of the master on record; None if it is down."""
        group = self.scene.group()
        host = None if group is None else self.scene.host_of(group.master)
        return None if host is None else host.process

    def idle(self) -> bool:
        """Return whether the master has delivered all that is due."""
        master = self._master()
        return master is not None and not any(judge.waits(master) for judge in self.judges)

    def settled(self) -> None:
        """Check INV_C17, INV_B22 and INV_B2 at the end, and the messages of each feature."""
        scene, master = self.scene, self._master()
        self.counts["INV_C17"] += 1
        require(self.agreed() and master is not None, "INV_C17", "healed, and brokers do not agree with the "
                "controllers", scene.group(), [self._state(host) for host in scene.hosts])
        assert master is not None
        for judge in self.judges:
            judge.settled(master)
        self.counts["INV_B22"] += 1
        require(self.level(), "INV_B22", "healed, and not level", scene.group(),
                [self._state(host) for host in scene.hosts])
        self.counts["INV_B2"] += 1
        processes = [host.process for host in scene.hosts if host.process is not None]
        begin = max(process.journal.begin for process in processes)
        logs = {self.log(process, begin, process.journal.end) for process in processes}
        require(len(logs) == 1, "INV_B2", "healed, and the logs differ", [self._state(host) for host in scene.hosts])
        if self.acknowledged:
            self.counts["INV_B1"] += 1
            require(logs.pop().startswith(bytes(self.acknowledged[begin:])), "INV_B1",
                    "healed, and something acknowledged is lost", len(self.acknowledged))

    @staticmethod
    def _state(host: Host) -> object:
        process = host.process
        if process is None:
            return host.name, "down"
        journal, manager, switch = process.journal, process.member.manager, process.switch
        copying = "" if switch.following is None else switch.following.core.state.name
        return (host.name, manager.broker_id, manager.machine.state.name, switch.role, f"from {journal.begin}",
                f"to {journal.end}", f"flushed {journal.durable_end}", f"confirmed {journal.confirm_offset}",
                f"seen {journal.visible.offset}", copying, switch.in_sync)
