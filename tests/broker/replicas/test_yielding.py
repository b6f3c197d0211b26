"""A living master that asks for a successor, against a controller of a few lines: when, how often, and what follows."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ha.insync import InSync
from broker.ha.taking import BecomeMaster, BecomeSlave
from broker.replicas.machine import Retreat, State
from broker.replicas.manager import LogState
from broker.replicas.yielding import REST_ALONE_NS, REST_LEAST_NS, REST_MOST_NS, Reason, Sight, Told, Yielding
from broker.store.health import DiskHealth
from remoting.bodies.controller import ElectMasterResponseBody, SyncStateSet
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.headers.controller import (
    ElectMasterRequest,
    ElectMasterResponse,
)
from tests.broker.replicas.test_manager import CONFIG, HA, MS, Broker, Controller

ELECT, ALTER = RequestCode.CONTROLLER_ELECT_MASTER, RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
ALL = frozenset({1, 2, 3})
WAIT_MS = CONFIG.yield_wait_ms
LEASE_MS = CONFIG.master_lease_ms


@attrs.define
class Judge(Controller):
    """Answers a yield as ``says``: wait, nobody, elected (broker 2), or nothing at all."""

    says: str = "nobody"
    yields: list[ElectMasterRequest] = attrs.field(factory=list)
    alters: list[frozenset[int]] = attrs.field(factory=list)
    asked: list[int] = attrs.field(factory=list)

    def answer(self, address: str, command: Command) -> Command | None:
        if command.code != RequestCode.BROKER_HEARTBEAT:
            self.asked.append(command.code)
        if command.code == ALTER and not self.down:
            self.alters.append(SyncStateSet.from_json(command.body).sync_state_set)
        if command.code == ELECT and not self.down:
            elect = ElectMasterRequest.from_ext(command.ext)
            if elect.yield_epoch is not None:
                self.yields.append(elect)
                return self._yielded(command)
        return Controller.answer(self, address, command)

    def _yielded(self, command: Command) -> Command | None:
        if self.says in ("wait", "nobody"):
            return response(command, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
                            ElectMasterResponse(yield_wait=True if self.says == "wait" else None))
        if self.says != "elected":
            return None
        self.master, self.epoch, self.set_epoch, self.members = 2, self.epoch + 1, self.set_epoch + 1, frozenset({2})
        return response(command, header=ElectMasterResponse(2, self.addresses[2], self.epoch, self.set_epoch),
                        body=ElectMasterResponseBody(self.members).to_json())


class Quiet(InSync):
    """``mute`` are silent, as its connections would say."""

    mute: frozenset[int] = frozenset()

    def wanted(self, now_ns: int) -> frozenset[int] | None:
        wanted = (super().wanted(now_ns) or self.accepted) - self.mute
        return None if wanted == self.accepted else wanted

    def heard(self, now_ns: int) -> dict[int, int | None]:
        return {member: ack for member, ack in self.acks.items() if member not in self.mute}


def master(*, all_ack: bool = True, least: int = 2, **judge: object) -> tuple[Broker, Judge, Quiet]:
    """In sync with 2 and 3; it has led for a while."""
    made = Judge(addresses={2: "m2:1", 3: "m3:1"}, **judge)  # type: ignore[arg-type]
    broker = Broker(made, attrs.evolve(CONFIG, all_ack_in_sync_state_set=all_ack, min_in_sync_replicas=least))
    broker.run(100)
    broker.manager.log = LogState(1, 100, 100)
    held = Quiet(1, HA, ALL, 5, 0, 100, 100, 100, broker.now)
    made.members, made.set_epoch = ALL, 5
    broker.manager.in_sync = held
    for slave in (2, 3):
        held.opened(slave, False, broker.now)
        held.acked(slave, 100, broker.now)
    broker.run(5_000)
    assert serves(broker) and isinstance(broker.manager.role, BecomeMaster) and not made.yields
    made.alters.clear()
    made.asked.clear()
    return broker, made, held


def yields(broker: Broker) -> bool:
    return broker.manager.machine.yielding


def serves(broker: Broker) -> bool:
    return broker.manager.serving


def cut(broker: Broker, held: Quiet) -> None:
    """Its slaves are silent, all of them at once."""
    held.mute = frozenset({2, 3})
    broker.do(broker.manager.tick(broker.now))


# --- silence -------------------------------------------------------------------------------------------------


def test_a_master_whose_members_reach_each_other_is_replaced() -> None:
    broker, judge, held = master(says="elected")
    cut(broker, held)
    assert broker.manager.role == BecomeSlave(judge.epoch, 2, "m2:1")
    (asked,) = judge.yields
    assert (asked.yield_epoch, asked.yield_reason, asked.holders, asked.broker_id) == (1, "silence", None, 1)
    assert not asked.designate_elect and not judge.alters
    assert broker.manager.machine.retreat is Retreat.NONE


def test_where_nobody_follows_the_set_shrinks_at_once() -> None:
    broker, judge, held = master(says="nobody")
    cut(broker, held)
    assert judge.asked[:2] == [ELECT, ALTER] and judge.alters[0] == {1}
    assert serves(broker) and not yields(broker)


def test_members_have_their_time_to_say_whom_they_reach() -> None:
    broker, judge, held = master(says="wait")
    cut(broker, held)
    broker.run(WAIT_MS - 1)
    assert yields(broker) and not judge.alters, "not yet"
    assert len(judge.yields) == 1 + (WAIT_MS - 1) // 100
    broker.run(1)
    assert judge.alters[0] == {1} and not yields(broker)


def test_members_that_say_it_in_time_are_heard() -> None:
    broker, judge, held = master(says="wait")
    cut(broker, held)
    broker.run(250)
    judge.says = "elected"
    broker.run(60)
    assert isinstance(broker.manager.role, BecomeSlave) and not judge.alters


def test_a_master_that_waits_for_its_members_serves() -> None:
    """It acknowledges nothing that they lack, and may hear of them again."""
    broker, judge, held = master(says="wait")
    cut(broker, held)
    assert yields(broker) and serves(broker)
    held.mute = frozenset()
    broker.run(1)
    assert not yields(broker) and not judge.alters and serves(broker)


def test_controllers_that_are_away_hold_no_shrink_up_for_longer() -> None:
    broker, judge, held = master()
    judge.says = "nothing"
    broker.lose = {ELECT}
    cut(broker, held)
    broker.run(WAIT_MS - 1)
    assert not judge.alters
    broker.run(1)
    assert judge.alters[0] == {1}


def test_another_active_controller_is_asked_anew() -> None:
    broker, judge, held = master(says="wait")
    broker.lose = {ELECT}
    cut(broker, held)
    broker.run(110)
    assert not judge.yields, "the one that led answers nothing"
    broker.lose = set()
    judge.says = "elected"
    broker.manager._search._lead_by("ctl2")
    broker.run(1)
    assert len(judge.yields) == 1 and isinstance(broker.manager.role, BecomeSlave)


def test_a_set_that_keeps_enough_members_shrinks_unasked() -> None:
    broker, judge, held = master()
    held.mute = frozenset({3})
    held.closed(3)
    broker.run(1)
    assert judge.alters == [{1, 2}] and not judge.yields


def test_who_demands_nobody_shrinks_unasked() -> None:
    broker, judge, held = master(least=1)
    held.closed(2)
    held.closed(3)
    broker.run(1)
    assert judge.alters == [{1}] and not judge.yields


def test_before_each_shrink_members_are_asked() -> None:
    """However short ago they were."""
    broker, judge, held = master(says="nobody")
    cut(broker, held)
    assert len(judge.yields) == 1 and held.accepted == {1}
    held.mute = frozenset()
    held.accept(ALL, held.accepted_epoch + 1)
    judge.members, judge.set_epoch = ALL, held.accepted_epoch
    broker.run(1_000)
    judge.asked.clear()
    cut(broker, held)
    broker.run(1)
    assert judge.asked[:2] == [ELECT, ALTER]


def test_a_request_that_nobody_answers_holds_up_none_of_the_next_attempt() -> None:
    broker, judge, held = master()
    broker.lose = {ELECT}
    cut(broker, held)
    assert yields(broker)
    broker.lose, held.mute = set(), frozenset()
    broker.run(50)
    broker.do(broker.manager.tick(broker.now))
    assert not judge.yields and not yields(broker), "its members are heard again"
    cut(broker, held)
    broker.run(1)
    assert len(judge.yields) == 1


def test_a_master_that_is_left_alone_asks_again_ever_more_seldom() -> None:
    broker, judge, held = master(says="nobody")
    cut(broker, held)
    broker.run(600_000)
    assert 60 <= len(judge.yields) <= 80, "1 s, 2 s, 4 s, 8 s, 8 s ..."
    before = len(judge.yields)
    judge.says = "elected"
    broker.run(9_000)
    assert len(judge.yields) == before + 1 and isinstance(broker.manager.role, BecomeSlave)


def test_a_new_master_waits_for_its_members_before_it_asks() -> None:
    made = Judge(addresses={2: "m2:1"}, says="nobody")
    broker = Broker(made, attrs.evolve(CONFIG, all_ack_in_sync_state_set=True, min_in_sync_replicas=2))
    broker.run(900)
    assert serves(broker) and not made.yields
    broker.run(1_000)
    assert made.yields


def test_java_controllers_are_asked_nothing_new() -> None:
    broker, judge, held = master(java=True)
    cut(broker, held)
    broker.run(2_000)
    assert judge.alters[0] == {1} and not judge.yields
    assert broker.manager.machine.retreat is Retreat.NONE and serves(broker)


def test_a_controller_of_before_answers_as_if_nobody_followed() -> None:
    """It says that the master is alive."""
    broker, judge, held = master()
    judge.answers[ELECT] = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    cut(broker, held)
    broker.run(1)
    assert judge.alters[0] == {1}


def test_who_hands_over_yields_nothing() -> None:
    broker, _, held = master(says="wait")
    cut(broker, held)
    broker.do(broker.manager.hand_over(broker.now))
    broker.run(WAIT_MS)
    assert broker.manager.machine.retreat is Retreat.HANDING_OVER and not serves(broker)


def test_who_is_displaced_while_it_yields_has_no_role() -> None:
    broker, judge, held = master(says="wait")
    cut(broker, held)
    assert yields(broker)
    broker.do(broker.manager._give_way(broker.manager.epoch))
    assert broker.manager.machine.state is State.UNREGISTERED and not yields(broker)
    judge.says = "elected"
    broker.run(50)
    assert len(judge.yields) == 1, "nobody asks for it any more"


def test_who_may_lack_something_resigns_rather_than_yields() -> None:
    broker, judge, held = master(says="wait")
    cut(broker, held)
    broker.manager._doubtful_epoch = 1
    broker.do(broker.manager._begin_to_resign(ALL))
    assert broker.manager.machine.resigning
    broker.run(WAIT_MS)
    assert all(asked.yield_epoch is None for asked in judge.elections)


# --- where it acknowledges what not all members hold ---------------------------------------------------------


def test_a_master_that_acknowledges_alone_asks_until_its_lease_is_over() -> None:
    """Controllers elect nobody before, whatever they know."""
    broker, judge, held = master(all_ack=False, says="wait")
    cut(broker, held)
    assert not serves(broker) and len(judge.yields) == 1, "it writes nothing from now on"
    until, beats = broker.manager.lease.until_ns, len(judge.heartbeats)
    assert until is not None
    for _ in range((until - broker.now) // (1_000 * MS)):
        asked = len(judge.yields)
        broker.run(1_000)
        assert len(judge.yields) >= asked + 2, "more often than controllers renew leases behind it"
    broker.run((until - broker.now) // MS + WAIT_MS - 300)
    assert len(judge.heartbeats) > beats and broker.manager.lease.until_ns == until, "it beats, and takes no renewal"
    assert yields(broker) and not judge.alters
    judge.says = "elected"
    broker.run(100)
    assert isinstance(broker.manager.role, BecomeSlave) and not judge.alters


def test_members_of_a_master_that_acknowledges_alone_have_their_time_behind_the_lease() -> None:
    broker, judge, held = master(all_ack=False, says="wait")
    cut(broker, held)
    until = broker.manager.lease.until_ns
    assert until is not None and until < broker.now + LEASE_MS * MS
    broker.run(LEASE_MS + WAIT_MS - 1)
    assert yields(broker) and not judge.alters, "controllers may have renewed it as the first request left"
    broker.run(2)
    assert judge.alters[0] == {1}


def test_a_master_that_acknowledges_alone_writes_again_where_nobody_follows() -> None:
    broker, judge, held = master(all_ack=False, says="nobody")
    cut(broker, held)
    while not judge.yields:
        broker.run(10)
    assert judge.asked.index(ELECT) < judge.asked.index(ALTER) and judge.alters[0] == {1}
    assert serves(broker), "as far as it is concerned: the set has too few members"


def test_members_that_are_heard_again_open_the_writes_at_once() -> None:
    broker, judge, held = master(all_ack=False, says="wait")
    cut(broker, held)
    assert not serves(broker)
    held.mute = frozenset()
    broker.run(1)
    assert serves(broker) and not judge.alters


def test_while_another_one_may_have_been_elected_it_writes_nothing() -> None:
    """The answer is lost: nobody knows whether the request was carried out, or will be."""
    broker, judge, held = master(all_ack=False)
    judge.says = "nothing"
    cut(broker, held)
    broker.run(LEASE_MS + 100)
    assert judge.yields and not serves(broker)
    judge.says, held.mute = "nobody", frozenset()
    broker.run(2 * CONFIG.request_timeout_ms)
    assert not serves(broker)
    broker.run(CONFIG.request_timeout_ms + 1_000)
    assert serves(broker), "by now it is carried out by nobody"


def test_who_has_no_lease_is_not_judged_by_silence() -> None:
    made = Judge(addresses={2: "m2:1", 3: "m3:1"})
    broker = Broker(made, attrs.evolve(CONFIG, min_in_sync_replicas=2, master_lease_ms=0))
    broker.run(100)
    held = Quiet(1, HA, ALL, 5, 0, 100, 100, 100, broker.now)
    made.members, made.set_epoch = ALL, 5
    broker.manager.in_sync = held
    for slave in (2, 3):
        held.opened(slave, False, broker.now)
    cut(broker, held)
    broker.run(1)
    assert serves(broker) and not made.yields and made.alters[0] == {1}


# --- its disk ------------------------------------------------------------------------------------------------


def trouble(broker: Broker, disk: DiskHealth, end: int = 100) -> None:
    broker.manager.log = LogState(1, end, 100, disk=disk)
    broker.do(broker.manager.tick(broker.now))


@pytest.mark.parametrize("disk", [DiskHealth.FULL, DiskHealth.STALLED])
def test_a_master_with_a_bad_disk_asks_for_one_that_has_room(disk: DiskHealth) -> None:
    broker, judge, _ = master(says="elected")
    trouble(broker, disk)
    (asked,) = judge.yields
    assert (asked.yield_reason, asked.holders, asked.yield_epoch) == ("disk", "2,3", 1)
    assert isinstance(broker.manager.role, BecomeSlave)


def test_the_disk_is_told_by_the_next_heartbeat_which_leaves_at_once() -> None:
    broker, judge, held = master()
    held.closed(2)
    held.closed(3)
    broker.run(3_000)
    before = len(judge.heartbeats)
    trouble(broker, DiskHealth.FULL)
    assert [beat.disk_trouble for beat in judge.heartbeats[before:]] == ["full"] * 2, "one to each controller"
    trouble(broker, DiskHealth.WELL)
    assert judge.heartbeats[-1].disk_trouble is None and len(judge.heartbeats) == before + 4


def test_who_acknowledges_alone_waits_for_a_member_that_holds_its_whole_log() -> None:
    broker, judge, held = master(all_ack=False, least=1, says="elected")
    trouble(broker, DiskHealth.STALLED, end=140)
    assert not serves(broker), "what it would write now would be lost"
    broker.run(50)
    assert not judge.yields
    held.advanced(140, 140)
    held.acked(3, 139, broker.now)
    broker.run(50)
    assert not judge.yields, "a message too few"
    held.acked(3, 140, broker.now)
    broker.run(20)
    assert [asked.holders for asked in judge.yields] == ["3"] and isinstance(broker.manager.role, BecomeSlave)


def test_who_finds_no_successor_serves_and_asks_again_ever_more_seldom() -> None:
    broker, judge, held = master(all_ack=False, least=1, says="nobody")
    trouble(broker, DiskHealth.STALLED)
    broker.run(20)
    assert len(judge.yields) == 1 and serves(broker)
    for _ in range(600):
        broker.run(1_000)
        for slave in (2, 3):
            held.acked(slave, 100, broker.now)
    assert 9 <= len(judge.yields) <= 18


def test_a_master_without_slaves_asks_nobody() -> None:
    broker, judge, held = master(all_ack=False, least=1)
    held.closed(2)
    held.closed(3)
    trouble(broker, DiskHealth.STALLED)
    broker.run(5_000)
    assert not judge.yields and serves(broker)


def test_a_disk_that_is_well_again_ends_it() -> None:
    broker, judge, _ = master(all_ack=False, least=1)
    trouble(broker, DiskHealth.STALLED, end=140)
    assert not serves(broker)
    trouble(broker, DiskHealth.WELL, end=140)
    assert serves(broker) and not judge.yields


# --- the core ------------------------------------------------------------------------------------------------


def core(*, alone: bool = False) -> Yielding:
    return Yielding(750 * MS, 30_000 * MS, alone)


LONELY = Sight(shrinks=True, too_few=True)
SHRUNK = Sight(too_few=True)
FULL = Sight(trouble=True, heirs=True, holders=frozenset({2}))


@pytest.mark.parametrize(("sight", "expected"), [
    (SHRUNK, [1, 2, 4, 8, 8, 8, 8, 8, 8]), (FULL, [1, 2, 4, 8, 16, 32, 60, 60, 60])], ids=["alone", "disk"])
def test_the_rest_doubles_and_is_forgotten_after_a_quiet_time(sight: Sight, expected: list[int]) -> None:
    yielding, now, rests = core(), 0, []
    for _ in range(9):
        while not yielding.look(now, sight):
            now = yielding.deadline_ns(now) or now
        assert yielding.asks(now, sight)
        yielding.told(now, Told.NOBODY)
        assert not yielding.look(now, sight)
        due = yielding.deadline_ns(now)
        assert due is not None
        rests.append((due - now) // REST_LEAST_NS)
    assert rests == expected
    yielding.look(now + 2 * REST_MOST_NS, Sight())
    assert yielding.look(now + 2 * REST_MOST_NS, sight)
    yielding.told(now + 2 * REST_MOST_NS, Told.NOBODY)
    yielding.look(now + 2 * REST_MOST_NS, sight)
    assert yielding.deadline_ns(now + 2 * REST_MOST_NS) == now + 2 * REST_MOST_NS + REST_LEAST_NS


def test_a_master_that_is_alone_does_not_rest_as_long_as_its_disk_did() -> None:
    yielding, now = core(), 0
    for _ in range(9):
        while not yielding.look(now, FULL):
            now = yielding.deadline_ns(now) or now
        yielding.told(now, Told.NOBODY)
        yielding.look(now, FULL)
    assert yielding.deadline_ns(now) == now + REST_MOST_NS
    assert yielding.look(now, LONELY), "before the set shrinks it asks at once"
    yielding.told(now, Told.NOBODY)
    yielding.look(now, SHRUNK)
    assert yielding.deadline_ns(now) == now + REST_ALONE_NS


SIGHTS = st.builds(
    Sight, shrinks=st.booleans(), too_few=st.booleans(), trouble=st.booleans(), heirs=st.booleans(),
    holders=st.sampled_from([frozenset[int](), frozenset({2})]), leased=st.booleans())
STEPS = st.lists(st.tuples(st.integers(0, 400), SIGHTS, st.sampled_from([*Told, None])), max_size=60)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.booleans())
def test_whatever_it_sees_an_attempt_ends_and_asks_only_when_it_may(
        steps: list[tuple[int, Sight, Told | None]], alone: bool) -> None:
    yielding, now = core(alone=alone), 0
    doubtful: dict[int, int] = {}
    for wait_ms, sight, said in steps:
        now += wait_ms * MS
        before, asks = yielding.reason, yielding.look(now, sight)
        assert asks == (yielding.reason is not None)
        open_still = [sent for sent in doubtful if now < sent + yielding.void_ns]
        if before is not None and not asks:
            assert not (alone and open_still), "it may have a successor, and would write"
            doubtful.clear()
        if yielding.asks(now, sight):
            assert yielding.reason is not Reason.DISK or sight.holders
            if said is not None:
                yielding.told(now, said)
            if said in (None, Told.UNKNOWN):
                doubtful[now] = now
        if asks:
            assert (yielding.deadline_ns(now) or 0) > now, "nobody waits for ever"


def test_what_is_said_of_an_earlier_attempt_ends_no_later_one() -> None:
    yielding = core()
    assert yielding.look(0, LONELY) and yielding.asks(0, LONELY)
    assert not yielding.look(50 * MS, Sight())
    yielding.look(80 * MS, Sight())
    assert yielding.look(100 * MS, LONELY)
    yielding.told(0, Told.NOBODY)
    assert yielding.look(101 * MS, LONELY) and yielding.holds_back(LONELY)


@pytest.mark.parametrize("sight", [Sight(), Sight(shrinks=True)], ids=["all are heard", "some are"])
def test_an_attempt_that_its_members_ended_permits_no_shrink(sight: Sight) -> None:
    yielding = core()
    assert yielding.look(0, LONELY) and not yielding.look(50 * MS, sight)
    assert yielding.look(100 * MS, LONELY) and yielding.holds_back(LONELY)


def test_an_attempt_for_silence_permits_one_shrink() -> None:
    yielding = core()
    assert yielding.look(0, LONELY) and yielding.holds_back(LONELY)
    assert yielding.look(749 * MS, LONELY) and not yielding.look(750 * MS, LONELY)
    assert not yielding.holds_back(LONELY)
    yielding.look(800 * MS, Sight())
    assert yielding.look(900 * MS, LONELY) and yielding.holds_back(LONELY), "it has enough again, and loses them again"


def test_members_have_their_time_behind_a_lease_that_is_renewed_during_the_attempt() -> None:
    yielding, leased = core(alone=True), Sight(too_few=True, leased=True, lease_ns=LEASE_MS * MS)
    over = attrs.evolve(leased, leased=False)
    renewed_ns = (LEASE_MS + WAIT_MS) * MS
    assert yielding.look(0, leased) and yielding.look(renewed_ns, leased)
    assert yielding.look(renewed_ns + MS, over)
    assert yielding.look(renewed_ns + WAIT_MS * MS, over)
    assert not yielding.look(renewed_ns + (1 + WAIT_MS) * MS, over)


def test_members_that_come_back_during_an_attempt_leave_no_shrink_unasked() -> None:
    yielding = core()
    assert yielding.look(0, LONELY)
    assert not yielding.look(300 * MS, Sight()), "they are heard again"
    assert yielding.look(310 * MS, LONELY) and yielding.holds_back(LONELY)


def test_what_a_small_set_asked_in_vain_permits_no_shrink_of_one_that_grew() -> None:
    """Its controllers may not have known yet what it demands: "it can go on alone" was said of another demand."""
    yielding = core()
    assert yielding.look(0, SHRUNK) and not yielding.look(750 * MS, SHRUNK)
    assert yielding.look(760 * MS, LONELY) and yielding.holds_back(LONELY), "asked in vain, and then it grew"


def test_a_set_that_grows_during_an_attempt_is_asked_about_anew() -> None:
    yielding = core()
    assert yielding.look(0, SHRUNK) and yielding.look(100 * MS, LONELY)
    assert not yielding.look(750 * MS, LONELY) and yielding.holds_back(LONELY)
    assert yielding.look(751 * MS, LONELY) and yielding.attempt == 2
    assert not yielding.look(1_501 * MS, LONELY) and not yielding.holds_back(LONELY)
