"""Three controllers under simulated raft with crashes, partitions and snapshots: one metadata, all invariants on.

Each node's machine answers with a hash of its state, so the simulator's own checker compares the states of all nodes
after every entry, restored snapshots included (C13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from controller.metadata.codec import FORMAT, encode
from controller.metadata.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    LiveReplica,
    Observation,
    RaiseFormat,
    RegisterBroker,
    Trigger,
)
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.invariants import INVARIANTS, Checker
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Elected, Outcome
from raft.config import Config
from raft.errors import NotLeader, Rejected, Unknown
from raft.invariants import InvariantViolation
from raft.sim import Cluster
from raft.statemachine import Entries

KEYS = [GroupKey("c", "a"), GroupKey("c", "b"), GroupKey("d", "a")]


class Watched(MetadataMachine):
    """Answers with what came of each command and the state after it, as text."""

    def __init__(self, counts: Counter[str]) -> None:
        checker = Checker()
        checker.counts = counts
        super().__init__(checker)
        self.counts = counts

    def apply_entries(self, entries: Entries) -> list[object]:
        results: list[object] = []
        for command in entries.commands:
            outcome = self.apply_at(command, entries.term)
            self.counts[type(outcome).__name__] += 1
            results.append(f"{type(outcome).__name__} {outcome.code} {self.state_hash().hex()}")
        return results

    def restore_from(self, chunks: Iterator[bytes]) -> None:
        self.counts["restored"] += 1
        super().restore_from(chunks)


def command(random: Random, machine: MetadataMachine, term: int) -> Command:
    """Something that brokers, people or the leader of this term may ask for, mostly sensible."""
    key = random.choice(KEYS)
    group = machine.group(key) or BrokerGroup()
    members = sorted(group.replicas) or [1]
    live = {i: LiveReplica(random.randrange(2), random.randrange(3), min_in_sync_replicas=random.choice((None, 2)))
            for i in members if random.random() < 0.7}
    observed = Observation(live)
    some = random.choice(members)
    kind = random.randrange(10)
    if kind < 2 and len(members) < 5:
        code = f"h{random.random()}"
        return ApplyBrokerId(term=term, key=key, broker_id=machine.next_broker_id(key), check_code=code)
    if kind == 2:
        address = f"h{random.randrange(3)}"
        known = group.replicas.get(some)
        judged = (known.address, known.life) if known is not None and random.random() < 0.7 else None
        return RegisterBroker(term=term, key=key, broker_id=some, address=address, life=random.choice((None, 1, 2)),
                              running=random.random() < 0.3, instead_of=judged, observation=observed)
    if kind == 3:
        return CleanBrokerData(term=term, key=key, broker_ids=random.choice((None, frozenset({some}))),
                               clean_living=random.random() < 0.2, observation=observed)
    if kind < 7:
        master = group.master or some
        return AlterSyncStateSet(
            term=term, key=key, broker_id=master, master_epoch=group.master_epoch,
            sync_state_set=frozenset({master, *live}), sync_state_set_epoch=group.sync_state_set_epoch,
            observation=Observation({**live, master: LiveReplica()}))
    trigger = random.choice(list(Trigger))
    return ElectMaster(
        term=term, key=key, trigger=trigger, broker_id=None if trigger is Trigger.CONTROLLER else some,
        designate=trigger is Trigger.ADMIN, unclean=random.random() < 0.2, observation=observed)


def disturb(cluster: Cluster, random: Random) -> None:
    """One fault, or the end of all of them."""
    down = [name for name in cluster.nodes if name not in cluster.running]
    match random.randrange(5):
        case 0 if len(cluster.running) > 1:
            cluster.crash(random.choice(cluster.running))
        case 1 if cluster.leader:
            cluster.partition([cluster.leader])
        case 2:
            cluster.heal()
        case _:
            for name in down:
                cluster.start(name)


def play(seed: int, counts: Counter[str]) -> None:
    """Fails when two controllers differ, or a property does not hold."""
    random = Random(seed)
    config = Config(snapshot_log_bytes=2_000, snapshot_tail_entries=5)
    with Cluster(3, lambda: Watched(counts), seed=seed, config=config) as cluster:
        for step in range(250):
            leader = cluster.leader
            if leader is None:
                cluster.run_ms(200)
                continue
            term = cluster.life(leader).replica.term - (random.random() < 0.05)
            with suppress(NotLeader, Rejected, Unknown):
                machine = cluster.machine(leader)
                wanted: Command = RaiseFormat(term=term, format=machine.format + 1)
                if machine.format == FORMAT or random.random() < 0.9:
                    wanted = command(random, machine, term)
                cluster.life(leader).propose([encode(wanted, machine.format)])
            cluster.run_ms(random.choice((0, 1, 5, 50)))
            if step % 20 == 19:
                disturb(cluster, random)
        cluster.heal()
        for name in cluster.nodes:
            if name not in cluster.running:
                cluster.start(name)

        def level() -> bool:
            lives = [cluster.life(name) for name in cluster.nodes]
            return len({(life.machine.index, life.replica.commit_index) for life in lives}) == 1

        assert cluster.run_until(level)
        assert len({cluster.machine(name).state_hash() for name in cluster.nodes}) == 1


def test_every_controller_has_the_same_metadata() -> None:
    counts = Counter[str]()
    for seed in range(10):
        play(seed, counts)
    assert {name for name in INVARIANTS if counts[name]} == set(INVARIANTS)
    for happened in ("Elected", "NotElected", "Altered", "Superseded", "Cleaned", "restored"):
        assert counts[happened] > 10, f"{happened} hardly ever happened: {counts}"


def test_a_controller_that_looks_at_its_own_table_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the decision to depend on anything beside the log, the simulator would say so."""
    tables = iter(range(10**6))
    real = MetadataMachine.apply_at

    def with_a_table_of_its_own(self: MetadataMachine, data: bytes, term: int) -> Outcome:
        outcome = real(self, data, term)
        if isinstance(outcome, Elected):
            self._state.put(outcome.key, BrokerGroup(next_broker_id=2 + next(tables)))
        return outcome

    monkeypatch.setattr(MetadataMachine, "apply_at", with_a_table_of_its_own)
    monkeypatch.setattr(Checker, "__call__", lambda self, applied: None)
    with pytest.raises(InvariantViolation):
        play(0, Counter())
