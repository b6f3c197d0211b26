"""Any sequence of requests: the machine does what a naive model does, and every invariant holds after every step."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controller.metadata.commands import ElectMaster, LiveReplica, Observation, Trigger
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.outcomes import Superseded
from tests.controller.metadata.fleet import KEY, Fleet, restored, snapshot_of
from tests.controller.metadata.model import Model

KEYS = st.sampled_from([KEY, KEY, KEY, GroupKey("OtherCluster", KEY.name)])
IDS = st.integers(1, 5)
SETS = st.frozensets(IDS, max_size=4).map(set)
REPLICAS = st.builds(
    LiveReplica, st.integers(0, 2), st.sampled_from([0, 1, 2**31, 2**33]), st.integers(-1, 1), st.integers(-1, 1),
    st.sampled_from([False, False, False, True]), st.sampled_from([None, 1, 2, 2, 3]),
    st.sampled_from([None, None, 1, 2]), st.sampled_from([None, None, "a:1", "a:2"]))
LIVE = st.dictionaries(IDS, REPLICAS, max_size=5)
EPOCHS = st.sampled_from([0, 0, 0, 0, -1, 1])
"""Off the right one by so much."""


class Metadata(RuleBasedStateMachine):
    """Two groups of one broker name; ids and epochs that mostly fit."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.models: dict[GroupKey, Model] = {}

    def use(self, key: GroupKey) -> Model:
        self.fleet.key = key
        return self.models.setdefault(key, Model())

    @initialize(count=st.integers(0, 3), master=st.booleans(), live=LIVE)
    def begin(self, count: int, master: bool, live: dict[int, LiveReplica]) -> None:
        """Most interesting things begin with a group that has some members."""
        for broker_id in range(1, count + 1):
            self.apply_id(KEY, 0, f"a:{broker_id};1")
        if master and count:
            everyone = {i: LiveReplica(min_in_sync_replicas=2) for i in range(1, count + 1)}
            self.elect(KEY, Trigger.BROKER, 1, False, False, everyone)
            self.alter(KEY, None, 0, set(everyone), 0, everyone)

    @rule(key=KEYS, off=st.sampled_from([0, 0, 0, -1, 1, -2]), code=st.sampled_from(["a:1;1", "a:2;1", "b:1;1", "c"]))
    def apply_id(self, key: GroupKey, off: int, code: str) -> None:
        model = self.use(key)
        broker_id = model.next_id + off
        assert self.fleet.apply_id(broker_id, code).code == model.apply_id(broker_id, code)

    @rule(key=KEYS, broker_id=IDS, address=st.sampled_from(["a:1", "a:2"]), learner=st.booleans(), live=LIVE,
          life=st.sampled_from([None, 1, 2]), running=st.booleans(), dead=st.booleans())
    def register(self, key: GroupKey, broker_id: int, address: str, learner: bool,
                 live: dict[int, LiveReplica], life: int | None, running: bool, dead: bool) -> None:
        model = self.use(key)
        outcome: Any = self.fleet.register(
            broker_id, address, learner, Observation(live), life=life, running=running, dead=dead)
        assert outcome.code == model.register(broker_id, address, learner, life, running, dead)
        if not outcome.code:
            assert outcome.master == (
                model.master if model.alive(model.master, live) and not model.vacant else None)
            assert outcome.sync_state_set == model.in_sync and outcome.sync_state_set_epoch == model.set_epoch

    @rule(key=KEYS, broker_id=st.none() | IDS, epoch=EPOCHS, members=SETS, set_epoch=EPOCHS, live=LIVE)
    def alter(self, key: GroupKey, broker_id: int | None, epoch: int, members: set[int], set_epoch: int,
              live: dict[int, LiveReplica]) -> None:
        model = self.use(key)
        sender = broker_id or model.master or 1
        epoch, set_epoch = model.epoch + epoch, model.set_epoch + set_epoch
        outcome = self.fleet.alter(
            sender, members, master_epoch=epoch, epoch=set_epoch, observed=Observation(live))
        assert outcome.code == model.alter(sender, epoch, members, set_epoch, live)

    @rule(key=KEYS, trigger=st.sampled_from(Trigger), broker_id=st.none() | IDS, designate=st.booleans(),
          unclean=st.booleans(), live=LIVE)
    def elect(self, key: GroupKey, trigger: Trigger, broker_id: int | None, designate: bool, unclean: bool,
              live: dict[int, LiveReplica]) -> None:
        model = self.use(key)
        designate = designate and trigger == Trigger.ADMIN
        outcome = self.fleet.elect(trigger, broker_id, Observation(live), designate=designate, unclean=unclean)
        assert outcome.code == model.elect(trigger, broker_id, designate, unclean, live)

    @rule(key=KEYS, data=st.data())
    def fail_over(self, key: GroupKey, data: st.DataObject) -> None:
        """What happens most: the master is gone, the others are there."""
        model = self.use(key)
        live = {i: data.draw(REPLICAS) for i in model.brokers if i != model.master}
        self.elect(key, Trigger.CONTROLLER, None, False, False, live)

    @rule(key=KEYS, broker_id=IDS, epoch=EPOCHS)
    def drop(self, key: GroupKey, broker_id: int, epoch: int) -> None:
        model = self.use(key)
        epoch += model.epoch
        assert self.fleet.drop_eligible(broker_id, epoch).code == model.drop(broker_id, epoch)

    @rule(key=KEYS, ids=st.none() | SETS.filter(bool), force=st.booleans(), live=LIVE)
    def clean(self, key: GroupKey, ids: set[int] | None, force: bool, live: dict[int, LiveReplica]) -> None:
        model = self.use(key)
        assert self.fleet.clean(ids, *live, force=force).code == model.clean(ids, force, live)

    @rule(key=KEYS, broker_id=IDS, live=LIVE)
    def another_leader(self, key: GroupKey, broker_id: int, live: dict[int, LiveReplica]) -> None:
        """What the former one proposed is void, however well it would do."""
        self.use(key)
        late = ElectMaster(term=self.fleet.term, key=key, trigger=Trigger.BROKER, broker_id=broker_id, unclean=True,
                           observation=Observation(live))
        self.fleet.term += 1
        assert isinstance(self.fleet.do(late), Superseded)

    @rule()
    def restart(self) -> None:
        again = restored(snapshot_of(self.fleet.machine), cut=13)
        assert again.state_hash() == self.fleet.machine.state_hash()
        assert again.groups == self.fleet.machine.groups
        again.observer = self.fleet.machine.observer
        self.fleet.machine = again

    @invariant()
    def as_the_model(self) -> None:
        for key, model in self.models.items():
            group = self.fleet.machine.groups.get(key, BrokerGroup())
            assert model.state() == (
                {i: (r.check_code, r.address, r.learner, r.life) for i, r in group.replicas.items()},
                group.next_broker_id, group.sync_state_set, group.sync_state_set_epoch, group.master,
                group.master_epoch, group.eligible, group.vacant)
            assert (key in self.fleet.machine.named(key.name)) == bool(model.brokers)


TestMetadata = Metadata.TestCase
TestMetadata.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
