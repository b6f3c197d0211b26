"""A machine under test with all invariants on, and short ways to ask it things. Everything goes through bytes."""

from __future__ import annotations

from typing import Any, TypeVar

from controller.metadata.codec import FORMAT, encode
from controller.metadata.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    DropEligible,
    ElectMaster,
    LiveReplica,
    Observation,
    RaiseFormat,
    RegisterBroker,
    Trigger,
)
from controller.metadata.events import Applied, Change, changes
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.invariants import Checker
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Outcome

KEY = GroupKey("DefaultCluster", "broker-a")
BROKER, CONTROLLER, ADMIN = Trigger.BROKER, Trigger.CONTROLLER, Trigger.ADMIN
GATED = LiveReplica(min_in_sync_replicas=2)
"""A broker that acknowledges nothing alone."""

Kind = TypeVar("Kind", bound=Outcome)


def seen(*ids: int, **others: LiveReplica) -> Observation:
    """These are alive; ``b3=LiveReplica(...)`` says more of one."""
    live = {broker_id: LiveReplica() for broker_id in ids}
    return Observation(live | {int(name[1:]): replica for name, replica in others.items()})


class Bytes:
    """A sink."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)


def snapshot_of(machine: MetadataMachine) -> bytes:
    sink = Bytes()
    machine.write(machine.capture(), sink)
    return b"".join(sink.pieces)


def restored(data: bytes, cut: int = 1000) -> MetadataMachine:
    machine = MetadataMachine()
    machine.restore_from(data[start : start + cut] for start in range(0, len(data), cut))
    return machine


Machine = TypeVar("Machine", bound=MetadataMachine)


def raised(machine: Machine, to: int = FORMAT) -> Machine:
    """The same machine, in this format by now."""
    while machine.format < to:
        machine.apply_at(encode(RaiseFormat(term=0, format=machine.format + 1), machine.format), 0)
    return machine


class Fleet:
    """One machine, and a second that is fed the same bytes and restored from the first's snapshot now and then."""

    def __init__(self, key: GroupKey = KEY, in_format: int = FORMAT) -> None:
        self.key, self.term = key, 1
        self.checker = Checker()
        self.events: list[Change] = []
        self.machine = raised(MetadataMachine(self._observe), in_format)
        self.shadow = raised(MetadataMachine(), in_format)
        self.steps = 0

    def _observe(self, applied: Applied) -> None:
        self.checker(applied)
        self.events.extend(changes(applied))

    def do(self, command: Command) -> Outcome:
        data = encode(command, self.machine.format)
        outcome = self.machine.apply_at(data, self.term)
        assert self.shadow.apply_at(data, self.term) == outcome
        self.steps += 1
        if self.steps % 5 == 0:
            self.shadow = restored(snapshot_of(self.machine))
        assert self.machine.state_hash() == self.shadow.state_hash(), command
        return outcome

    @property
    def group(self) -> BrokerGroup:
        group = self.machine.group(self.key)
        assert group is not None
        return group

    def state(self) -> tuple[int | None, int, set[int], int]:
        """Master, master epoch, SyncStateSet, its epoch."""
        group = self.group
        return group.master, group.master_epoch, set(group.sync_state_set), group.sync_state_set_epoch

    # --- commands --------------------------------------------------------------------------------------------

    def apply_id(self, broker_id: int, code: str | None = None, key: GroupKey | None = None) -> Outcome:
        return self.do(ApplyBrokerId(
            term=self.term, key=key or self.key, broker_id=broker_id, check_code=code or f"10.0.0.{broker_id}:10911;1"))

    def register(self, broker_id: int, address: str | None = None, learner: bool = False,
                 observed: Observation | None = None, *, life: int | None = None, running: bool = False,
                 dead: bool = True) -> Outcome:
        """``dead``: the process on record is judged so."""
        group = self.machine.group(self.key)
        known = group.replicas.get(broker_id) if group is not None else None
        return self.do(RegisterBroker(
            term=self.term, key=self.key, broker_id=broker_id, address=address or f"10.0.0.{broker_id}:10911",
            learner=learner, life=life, running=running,
            instead_of=(known.address, known.life) if known is not None and dead else None,
            observation=observed or Observation()))

    def elect(self, trigger: Trigger, broker_id: int | None, observed: Observation, **more: Any) -> Outcome:
        return self.do(ElectMaster(
            term=self.term, key=self.key, trigger=trigger, broker_id=broker_id, observation=observed, **more))

    def lost(self, *living: int, **more: Any) -> Outcome:
        """The active controller takes the master for lost; these are alive."""
        return self.elect(CONTROLLER, None, seen(*living), **more)

    def alter(self, broker_id: int, members: set[int], *, master_epoch: int | None = None, epoch: int | None = None,
              observed: Observation | None = None, least: int | None = None) -> Outcome:
        """Epochs that are not given are the current ones; members are alive unless told otherwise."""
        group = self.machine.group(self.key) or BrokerGroup()
        return self.do(AlterSyncStateSet(
            term=self.term, key=self.key, broker_id=broker_id,
            master_epoch=group.master_epoch if master_epoch is None else master_epoch,
            sync_state_set=frozenset(members),
            sync_state_set_epoch=group.sync_state_set_epoch if epoch is None else epoch,
            observation=seen(*members) if observed is None else observed, least=least))

    def clean(self, ids: set[int] | None, *living: int, force: bool = False) -> Outcome:
        return self.do(CleanBrokerData(
            term=self.term, key=self.key, broker_ids=None if ids is None else frozenset(ids), clean_living=force,
            observation=seen(*living)))

    def drop_eligible(self, broker_id: int, master_epoch: int) -> Outcome:
        return self.do(DropEligible(term=self.term, key=self.key, broker_id=broker_id, master_epoch=master_epoch))


def of(outcome: Outcome, kind: type[Kind]) -> Kind:
    """The outcome, which must be of this kind."""
    assert isinstance(outcome, kind), outcome
    return outcome


def registered(*ids: int, key: GroupKey = KEY, in_format: int = FORMAT) -> Fleet:
    """A group with these members, in order, and no master yet."""
    fleet = Fleet(key, in_format)
    for broker_id in ids:
        fleet.apply_id(broker_id)
        fleet.register(broker_id)
    return fleet


def led(*members: int, observed: Observation | None = None, in_format: int = FORMAT) -> Fleet:
    """Members 1 to 3, broker 1 master in epoch 1, these (or all) in sync: SyncStateSet epoch 1 for 1 alone, else 2."""
    fleet = registered(1, 2, 3, in_format=in_format)
    fleet.elect(BROKER, 1, observed or seen(1, 2, 3))
    if members != (1,):
        fleet.alter(1, set(members or (1, 2, 3)))
    return fleet
