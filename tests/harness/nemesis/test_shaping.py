"""What a bad link does to packets, on a clock of integers: each shape, all together, and the same again by the seed."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from harness.nemesis.shaping import MS, OVERTAKEN_NS, QUEUE_NS, Link, Shape, together

PACKETS = 2_000
GAP_NS = 100_000


def link(**shape: float) -> Link:
    return Link(Shape(**shape), Random(7))


def arrivals(through: Link, size: int = 1_000) -> list[tuple[int, ...]]:
    """By packet, one sent each 100 µs: how long it took, in ns."""
    sent = ((number * GAP_NS, through.sent(number * GAP_NS, size)) for number in range(PACKETS))
    return [tuple(at - now for at in came) for now, came in sent]


def test_a_link_without_a_shape_is_at_once() -> None:
    assert set(arrivals(link())) == {(0,)}


def test_a_slow_link_delays_each_packet_alike() -> None:
    assert set(arrivals(link(delay_ms=5))) == {(5 * MS,)}


def test_jitter_stays_in_its_bounds_and_in_order() -> None:
    through = link(delay_ms=5, jitter_ms=2)
    came = [number * GAP_NS + took for number, [took] in enumerate(arrivals(through))]
    assert came == sorted(came)
    took = [at - number * GAP_NS for number, at in enumerate(came)]
    assert 3 * MS <= min(took) < 4.2 * MS and 6 * MS < max(took) <= 7 * MS


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_share_is_lost_or_comes_twice(share: float) -> None:
    lost = sum(not came for came in arrivals(link(loss=share)))
    twice = sum(len(came) == 2 for came in arrivals(link(duplicate=share)))
    assert lost == pytest.approx(share * PACKETS, rel=0.2)
    assert twice == pytest.approx(share * PACKETS, rel=0.2)


def test_others_overtake_what_is_held_back() -> None:
    took = [each for [each] in arrivals(link(reorder=0.2))]
    assert set(took) == {0, OVERTAKEN_NS}
    assert took.count(OVERTAKEN_NS) == pytest.approx(0.2 * PACKETS, rel=0.2)


def test_a_narrow_link_passes_its_rate_and_drops_what_waits_too_long() -> None:
    """10 MB/s are sent for 0.2 s into one of 1 MB/s: what passes comes 1 ms apart."""
    narrow = link(bytes_per_s=1e6)
    came = [number * GAP_NS + each for number, took in enumerate(arrivals(narrow)) for each in took]
    assert {later - sooner for sooner, later in pairwise(came)} == {MS}
    assert len(came) == pytest.approx((PACKETS * GAP_NS + QUEUE_NS) / MS, abs=2)


def test_a_link_is_the_same_again_by_its_seed() -> None:
    bad = Shape(3, 3, 0.1, 0.1, 0.1)
    assert arrivals(Link(bad, Random(7))) == arrivals(Link(bad, Random(7)))
    assert arrivals(Link(bad, Random(7))) != arrivals(Link(bad, Random(8)))


def test_shapes_of_one_link_add_up() -> None:
    both = together([Shape(delay_ms=5, loss=0.5, bytes_per_s=100), Shape(delay_ms=1, jitter_ms=2, loss=0.5),
                     Shape(bytes_per_s=50, reorder=0.1)])
    assert both == Shape(6, 2, 0.75, 0.0, 1 - 0.9, 50)
    assert together([]) == Shape()
