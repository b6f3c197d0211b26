"""Who stays in the SyncStateSet of a busy master, who joins it, and who is waited for meanwhile."""

from __future__ import annotations

import attrs
import pytest

from broker.ha.config import NS_PER_MS
from broker.ha.insync import DEPARTED_MAX, InSync
from tests.broker.ha.group import ALL_ACK, in_sync

MS = NS_PER_MS


def test_who_is_sent_all_and_acknowledges_nothing_has_not_caught_up() -> None:
    held = in_sync({1, 2}, end=10)
    held.opened(2, False, 0)
    held.acked(2, 10, 0)
    for second in range(1, 15):
        held.advanced(10 + second, 10 + second)
        held.sent(2, second * 1_000 * MS)
    assert held.wanted(14_999 * MS) is None
    assert held.wanted(15_000 * MS) == frozenset({1})


@pytest.mark.parametrize(("behind_ms", "joins"), [(3, True), (400, True), (5_000, False)])
def test_who_is_always_a_little_behind_a_busy_master_stays_and_joins(behind_ms: int, joins: bool) -> None:
    """More is sent while acknowledgements of what was sent before travel, so none ever tells of the last send."""
    member, comer = in_sync({1, 2}), in_sync({1})
    joined = False
    for held in (member, comer):
        held.opened(2, False, 0)
    for now in range(1, 20_000):
        for held in (member, comer):
            held.advanced(1_000 + now, 1_000 + now)
            if now > behind_ms:
                held.acked(2, 1_000 + now - behind_ms, now * MS)
            held.sent(2, now * MS)
        comer.tick(now * MS)
        joined = joined or comer.wanted(now * MS) == frozenset({1, 2})
        assert member.wanted(now * MS) is None
    assert joined == joins


def test_nothing_is_confirmed_without_a_member_that_is_asked_for() -> None:
    """The request may have been carried out, and its answer lost: then that member may be elected."""
    held = in_sync({1}, end=10)
    held.opened(2, False, 0)
    held.acked(2, 10, 0)
    assert held.wanted(0) == frozenset({1, 2})
    held.ask(1, frozenset({1, 2}), 0)
    held.advanced(20, 20)
    assert held.confirm == 10 and not held.holds_all(20)
    held.acked(2, 20, 0)
    assert held.confirm == 20 and held.holds_all(20)


def test_a_set_that_is_asked_for_in_vain_for_hours_is_kept_once() -> None:
    """While controllers stand still a request leaves every second, and none is ever answered."""
    held, hour = in_sync({1, 2, 3}, end=10), 3_600
    for second in range(hour):
        held.ask(second, frozenset({1, 2} if second % 2 else {1, 3}), second * 1_000 * MS)
    assert len(held.asked) == 2 and held.members == {1, 2, 3}
    now = hour * 1_000 * MS
    held.ask(hour, frozenset({1, 2}), now)
    held.refused(hour, now, epoch_stands=True)
    assert frozenset({1, 2}) in held.asked.values(), "the one of a second ago may still be carried out"
    later = now + ALL_ACK.asked_void_ms * MS
    held.ask(hour + 1, frozenset({1, 2}), later)
    held.refused(hour + 1, later, epoch_stands=True)
    assert not held.asked, "none of them was, in all that time"


def test_a_refusal_says_nothing_of_an_earlier_request_for_the_same_set() -> None:
    held = in_sync({1, 2, 3}, end=10)
    for request in (1, 2):
        held.ask(request, frozenset({1, 2}), request * MS)
    held.refused(2, 3 * MS, epoch_stands=False)
    assert [*held.asked.values()] == [{1, 2}]
    assert held.accept({1, 3}, 2) and not held.asked
    held.ask(4, frozenset({1, 2}), 4 * MS)
    held.refused(4, 5 * MS, epoch_stands=True)
    assert not held.asked, "of the epoch before nothing is remembered"


def in_vain(held: InSync, now: int) -> None:
    """Slave 2, always near the end, is waited for in vain, as soon as that may be; ``held.log_end`` is ``now``, ms."""
    while not held.joining:
        now += 100
        held.advanced(now, now)
        held.acked(2, now - 50, now * MS)
        held.sent(2, now * MS)
    held.tick((now + 1_000) * MS)
    assert not held.joining


def waited_for(held: InSync, began: int, ended: int) -> int:
    """Milliseconds out of these in which puts wait for slave 2, which is almost as fast as the master while it is
    waited for, and faster where it is not."""
    behind, waited = 900.0, 0
    for now in range(began, ended, 10):
        held.advanced(now, now)
        held.tick(now * MS)
        waited += 10 * held.joining
        behind = min(max(behind + (1 if held.joining else -1), 900), 1_200)
        held.acked(2, int(now - behind), now * MS)
        held.sent(2, now * MS)
        assert held.wanted(now * MS) is None
    return waited


def test_who_cannot_keep_up_is_waited_for_ever_more_seldom() -> None:
    held = in_sync({1}, end=2_000)
    held.opened(2, False, 2_000 * MS)
    held.acked(2, 1_100, 2_000 * MS)
    waited_for(held, 2_000, 130_000)
    assert 2_000 <= waited_for(held, 130_000, 330_000) <= 4_000, "a second in each minute or so"
    held.closed(2)
    held.opened(2, False, 330_000 * MS)
    held.acked(2, 329_100, 330_000 * MS)
    assert waited_for(held, 330_000, 342_000) >= 1_000, "on a new connection it may be another matter"


def test_who_kept_up_while_no_controller_was_there_is_not_waited_for_more_seldom() -> None:
    held, joined = in_sync({1}, end=2_000), []
    held.opened(2, False, 2_000 * MS)
    for now in range(2_000, 62_000, 10):
        held.advanced(now, now)
        before = held.joining
        held.acked(2, now - 20, now * MS)
        if held.joining and not before:
            joined.append(now)
        held.sent(2, now * MS)
        held.tick(now * MS)
    assert len(joined) >= 11, "each 5 s"


def test_who_holds_all_joins_soon_however_often_it_was_waited_for_in_vain() -> None:
    """As where nothing is written without it."""
    held = in_sync({1}, end=2_000)
    held.opened(2, False, 0)
    held.acked(2, 1_950, 0)
    for _ in range(6):
        in_vain(held, held.log_end)
    end = held.log_end
    held.acked(2, end, (end + 4_000) * MS)
    assert held.wanted((end + 4_000) * MS) is None, "it rests"
    held.acked(2, end, (end + 5_000) * MS)
    assert held.wanted((end + 5_000) * MS) == frozenset({1, 2})
    held.ask(1, frozenset({1, 2}), (end + 5_000) * MS)
    held.accept({1, 2}, 2)
    held.accept({1}, 3)
    in_vain(held, end + 6_000)
    end = held.log_end
    in_vain(held, end)
    assert held.log_end - end == 5_000, "what was before it joined is forgotten"


def test_a_member_never_seen_has_its_time_and_a_closed_one_leaves_at_once() -> None:
    held = in_sync({1, 2, 3})
    assert held.wanted(14_999 * MS) is None
    held.opened(2, False, 0)
    held.acked(2, 0, 1)
    held.closed(2)
    assert held.wanted(2) == frozenset({1, 3})


def test_a_busy_master_waits_a_moment_for_who_is_about_to_join() -> None:
    held = in_sync({1}, end=100)
    held.opened(2, False, 0)
    held.acked(2, 60, 0)
    held.sent(2, 0)
    held.advanced(150, 150)
    held.acked(2, 100, 1)
    assert held.wanted(1) is None, "it lacks what was confirmed meanwhile"
    held.advanced(200, 200)
    assert held.confirm == 150, "and no more is confirmed without it"
    held.acked(2, 150, 2)
    assert held.wanted(2) == frozenset({1, 2})


def test_who_does_not_come_up_in_time_is_waited_for_no_longer() -> None:
    held = in_sync({1}, end=100)
    held.opened(2, False, 0)
    held.acked(2, 100, 0)
    held.advanced(200, 200)
    assert held.confirm == 100
    held.tick(1_000 * MS)
    assert held.confirm == 200
    held.sent(2, 1_000 * MS)
    held.acked(2, 200, 1_001 * MS)
    assert held.members == {1}, "nor at once again"


def test_a_set_that_shrank_below_what_is_demanded_confirms_nothing() -> None:
    """Nor does it go on when somebody is asked for, or about to join: only what controllers accepted counts."""
    held = in_sync({1, 2}, end=100)
    held.demand(2)
    held.opened(2, False, 0)
    held.acked(2, 100, 0)
    held.advanced(200, 200)
    held.closed(2)
    held.accept({1}, 2)
    assert held.confirm == 100 and held.holds_all(200) and not held.enough(2)
    held.opened(2, False, 1)
    held.acked(2, 200, 1)
    held.ask(1, frozenset({1, 2}), 1)
    assert held.joining or held.asked
    assert held.confirm == 100 and held.holds_all(200) and not held.enough(2) and held.enough(1) is False
    held.accept({1, 2}, 3)
    assert held.confirm == 200 and held.enough(2) and not held.enough(3)
    held.demand(3)
    held.advanced(300, 300)
    held.acked(2, 300, 2)
    assert held.confirm == 200, "more is demanded now"
    held.demand(1)
    assert held.confirm == 300


@pytest.mark.parametrize(("shows_all", "least", "begins_at"), [
    (False, 2, 60), (False, 1, 100), (True, 2, 100), (True, 1, 100)])
def test_a_new_master_confirms_what_it_was_told_until_as_many_as_demanded_are_in_sync(
    shows_all: bool, least: int, begins_at: int,
) -> None:
    held = InSync(1, attrs.evolve(ALL_ACK, young_master_shows_all=shows_all), frozenset({1}), 1, 100, 60, 100, 100, 0,
                  least)
    assert held.confirm == begins_at
    held.opened(2, False, 0)
    held.acked(2, 100, 0)
    assert held.confirm == begins_at
    held.accept({1, 2}, 2)
    assert held.confirm == 100


def test_of_who_is_gone_only_members_and_the_latest_are_remembered() -> None:
    """Anybody may say any id, again and again; each look walks through those that are remembered."""
    held = in_sync({1, 2, 3}, end=10)
    held.opened(2, False, 0)
    held.closed(2)
    for stranger in range(1_000, 2_000):
        held.opened(stranger, False, 0)
        if stranger % 2:
            held.acked(stranger, 10, 0)
        held.closed(stranger)
    assert held._slaves.keys() <= {2, 3, *range(2_000 - DEPARTED_MAX, 2_000)}
    assert held.members == {1, 2, 3} and held.wanted(0) == frozenset({1, 3}), "2 is gone, as it was"
    held.opened(1_999, False, 0)
    for stranger in range(3_000, 3_000 + 2 * DEPARTED_MAX):
        held.opened(stranger, False, 0)
        held.closed(stranger)
    assert 1_999 in held._slaves, "it is here"


def test_who_was_asked_for_is_remembered_though_it_is_gone() -> None:
    held = in_sync({1}, end=10)
    held.opened(2, False, 0)
    held.acked(2, 10, 0)
    held.ask(1, frozenset({1, 2}), 0)
    held.closed(2)
    for stranger in range(1_000, 1_000 + 2 * DEPARTED_MAX):
        held.opened(stranger, False, 0)
        held.closed(stranger)
    held.advanced(20, 20)
    assert held.members == {1, 2} and held.confirm == 10 and held._slaves[2].gone
