"""Needed acknowledgements, by enumeration and by the table of RIP-34; and the queue of puts that wait."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ha.acks import (
    ALL,
    BrokerRole,
    Deny,
    Mode,
    Need,
    PutQueue,
    PutStatus,
    QuorumConfig,
    Replicas,
    in_sync_count,
    needed_acks,
)

PLAIN, CONTROLLER, ACTING = Mode(), Mode(controller=True), Mode(slave_acting_master=True)
AUTO = QuorumConfig(3, 2, 1, enable_auto_in_sync_replicas=True)


@pytest.mark.parametrize(("mode", "config", "replicas", "expected"), [
    # RIP-34: three replicas, two in sync, one at least
    (PLAIN, AUTO, Replicas(alive=3, in_sync=3), Need(2)),
    (PLAIN, AUTO, Replicas(alive=1, in_sync=1), Need(1)),
    (PLAIN, AUTO, Replicas(alive=3, in_sync=1), Need(1)),  # alive but far behind
    (PLAIN, AUTO, Replicas(alive=1, in_sync=3), Need(1)),  # connected but gone from the name server
    (PLAIN, attrs.evolve(AUTO, min_in_sync_replicas=2), Replicas(alive=1, in_sync=1), Deny(1, 2)),
    (ACTING, QuorumConfig(3, 2), Replicas(alive=1, in_sync=1), Deny(1, 2)),
    (ACTING, QuorumConfig(3, 2), Replicas(alive=2, in_sync=2), Need(2)),
    (PLAIN, QuorumConfig(3, 2), Replicas(alive=1, in_sync=1), Need(2)),  # waits, then FLUSH_SLAVE_TIMEOUT
    (PLAIN, QuorumConfig(5, 4, 2, True), Replicas(alive=3, in_sync=5), Need(3)),  # degrades step by step
    (PLAIN, QuorumConfig(), Replicas(), Need(1)),  # the defaults wait for nobody, as RIP-34 warns
    # a group under a controller
    (CONTROLLER, QuorumConfig(3, 2), Replicas(accepted=1), Need(2)),  # not clamped to the set, as in Java
    (CONTROLLER, QuorumConfig(3, 1, 2), Replicas(accepted=1), Deny(1, 2)),
    (CONTROLLER, QuorumConfig(3, 1, 2, all_ack_in_sync_state_set=True), Replicas(accepted=2), Need(ALL, 2)),
    (CONTROLLER, QuorumConfig(3, 1, 2, all_ack_in_sync_state_set=True), Replicas(accepted=1), Deny(1, 2)),
    (CONTROLLER, AUTO, Replicas(accepted=1, alive=1, in_sync=1), Need(2)),  # auto-degradation is the controller's
])
def test_table(mode: Mode, config: QuorumConfig, replicas: Replicas, expected: Need | Deny) -> None:
    assert needed_acks(mode, config, replicas) == expected


def test_every_combination() -> None:
    seen: set[type[Need | Deny]] = set()
    flags, few = (False, True), (1, 2, 3)
    modes = [Mode(*given_) for given_ in itertools.product(BrokerRole, flags, flags)]
    configs = [QuorumConfig(3, in_sync, least, auto, all_ack_in_sync_state_set=all_ack)
               for in_sync, least, auto, all_ack in itertools.product(few, few, flags, flags)]
    groups = [Replicas(*given_) for given_ in itertools.product(few, few, few)]
    for mode, config, group, wait in itertools.product(modes, configs, groups, flags):
        got = needed_acks(mode, config, group, wait)
        seen.add(type(got))
        if mode.role is not BrokerRole.SYNC_MASTER or not wait:
            assert got == Need(1)
        elif mode.controller:
            assert isinstance(got, Deny) == (group.accepted < config.min_in_sync_replicas)
            if isinstance(got, Need):
                assert got.acks == (ALL if config.all_ack_in_sync_state_set else config.in_sync_replicas)
                assert got.least == config.min_in_sync_replicas
        elif mode.slave_acting_master or config.enable_auto_in_sync_replicas:
            have = min(group.alive, group.in_sync)
            if isinstance(got, Deny):
                assert got.have == have < got.need
            else:
                assert got.acks <= have, "what was let through can be held by enough"
                assert not config.enable_auto_in_sync_replicas or got.acks >= config.min_in_sync_replicas
                assert config.enable_auto_in_sync_replicas or got.acks == config.in_sync_replicas
        else:
            assert got == Need(config.in_sync_replicas)
    assert seen == {Need, Deny}


@pytest.mark.parametrize(("fields", "words"), [
    ({"in_sync_replicas": 0}, "in_sync_replicas is 0"),
    ({"total_replicas": 2, "in_sync_replicas": 3}, "in_sync_replicas is 3, total_replicas 2"),
    ({"total_replicas": 2, "min_in_sync_replicas": 3}, "min_in_sync_replicas is 3"),
])
def test_contradictions_are_refused(fields: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        QuorumConfig(**fields)  # type: ignore[arg-type]


def test_in_sync_count() -> None:
    config = QuorumConfig(ha_max_gap_not_in_sync=100)
    assert in_sync_count(config, 1000, {2: 901, 3: 900}) == 2
    assert in_sync_count(config, 50, {2: None}) == 2, "a slave that has just connected, while the log is short"
    assert in_sync_count(config, 99, {2: None}) == 1


@attrs.define
class Held:
    """Replicas by id and how far each holds the log; ``members`` is the SyncStateSet."""

    acks: dict[int, int]
    members: set[int]
    least: int = 1

    def holds_all(self, end: int) -> bool:
        return all(self.acks.get(m, 0) >= end for m in self.members)

    def holders(self, end: int) -> int:
        return sum(ack >= end for ack in self.acks.values())

    def enough(self, least: int) -> bool:
        return len(self.members) >= max(least, self.least)


def test_puts_are_released_as_their_ends_are_held() -> None:
    done: list[tuple[str, PutStatus]] = []
    queue = PutQueue[str](lambda put, status: done.append((put, status)))
    queue.add("every", 100, Need(ALL), 50)
    queue.add("two", 100, Need(2), 60)
    queue.add("late", 200, Need(ALL), 40)
    held = Held({1: 200, 2: 100, 3: 99}, {1, 2, 3})
    queue.advanced(held)
    assert done == [("two", PutStatus.PUT_OK)], "a number does not wait for all"
    held.acks[3] = 100
    queue.advanced(held)
    assert done[1:] == [("every", PutStatus.PUT_OK)]
    queue.expire(39)
    assert len(queue) == 1
    queue.expire(40)
    assert done[2:] == [("late", PutStatus.FLUSH_SLAVE_TIMEOUT)]
    assert len(queue) == 0
    held.acks = {1: 300, 2: 300, 3: 300}
    queue.advanced(held)
    assert len(done) == 3, "an expired put is answered once"


@pytest.mark.parametrize("acks", [ALL, 1, 2])
def test_a_set_that_shrank_below_what_was_demanded_releases_nothing(acks: int) -> None:
    done: list[tuple[str, PutStatus]] = []
    queue = PutQueue[str](lambda put, status: done.append((put, status)))
    held = Held({1: 100, 2: 100, 3: 100}, {1})
    queue.add("demanded", 100, Need(acks, 2), 50)
    queue.add("before", 100, Need(acks), 60)
    queue.advanced(held)
    assert done == [("before", PutStatus.PUT_OK)], "one of before the minimum was raised, or after it was lowered"
    queue.add("raised", 100, Need(ALL if acks == 1 else acks), 70)
    held.least = 2
    queue.advanced(held)
    assert len(done) == 1, "what is demanded now counts, where it is more"
    held.members |= {3}
    queue.advanced(held)
    assert {put for put, _ in done[1:]} == {"demanded", "raised"}


def test_puts_end_in_the_order_of_the_log_and_of_their_deadlines() -> None:
    done: list[str] = []
    queue = PutQueue[str](lambda put, status: done.append(put))
    for put, end, deadline_ns in (("c", 300, 30), ("a", 100, 70), ("b", 200, 60), ("d", 400, 50), ("e", 500, 40)):
        queue.add(put, end, Need(ALL), deadline_ns)
    queue.advanced(Held({1: 250}, {1}))
    assert done == ["a", "b"], "one that waited for its flush in vain comes behind later ones"
    queue.expire(50)
    assert done[2:] == ["c", "e", "d"]
    assert len(queue) == 0


def test_the_queue_has_a_limit_and_a_deposed_master_answers_all() -> None:
    done: list[tuple[str, PutStatus]] = []
    queue = PutQueue[str](lambda put, status: done.append((put, status)), waiting_max=2)
    assert queue.add("first", 2, Need(2), 9)
    assert queue.add("second", 1, Need(ALL), 9)
    assert not queue.add("third", 3, Need(2), 9)
    queue.fail_all()
    assert done == [("first", PutStatus.FLUSH_SLAVE_TIMEOUT), ("second", PutStatus.FLUSH_SLAVE_TIMEOUT)]
    queue.expire(10)
    queue.advanced(Held({1: 3, 2: 3}, {1, 2}))
    assert len(done) == 2


@given(st.lists(st.one_of(
    st.tuples(st.just("put"), st.integers(1, 40), st.sampled_from([ALL, 2, 3])),
    st.tuples(st.just("ack"), st.integers(2, 3), st.integers(0, 600)),
    st.tuples(st.just("time"), st.integers(1, 30), st.just(0)),
), max_size=60))
def test_nothing_is_acknowledged_that_is_not_held(script: list[tuple[str, int, int]]) -> None:
    held, log_end, now = Held({1: 0, 2: 0, 3: 0}, {1, 2, 3}), 0, 0
    puts: list[tuple[int, int, int]] = []
    released: set[tuple[int, int, int]] = set()

    def release(put: tuple[int, int, int], status: PutStatus) -> None:
        assert put not in released
        released.add(put)
        end, acks, deadline = put
        if status is PutStatus.PUT_OK:
            assert held.holders(end) >= (3 if acks == ALL else acks)
        else:
            assert deadline <= now

    queue = PutQueue(release)
    for kind, a, b in script:
        if kind == "put":
            log_end += a
            held.acks[1] = log_end
            puts.append((log_end, b, now + 20))
            assert queue.add(puts[-1], log_end, Need(b), now + 20)
        elif kind == "ack":
            held.acks[a] = max(held.acks[a], min(b, log_end))
            queue.advanced(held)
        else:
            now += a
            queue.expire(now)
        for put in puts:
            end, acks, deadline = put
            if put not in released:
                assert deadline > now
                assert held.holders(end) < (3 if acks == ALL else acks) or kind == "put"
