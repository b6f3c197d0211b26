"""A simulated slave that begins late joins when it knows where queues end, and as master goes on with their numbers."""

from __future__ import annotations

from collections import Counter

import pytest

from broker.ha.taking import BecomeMaster
from broker.queueends.ends import ends_before
from harness.simulation.brokers.client import TOPIC
from harness.simulation.brokers.plan import BrokerPlan
from harness.simulation.brokers.scene import BrokerScene
from raft.config import MS
from raft.sim.tape import Tape


def late(*, until_ms: int = 9_000, unclean: bool = False) -> BrokerScene:
    """A scene whose third machine starts when the log of the others has more than three files."""
    scene = BrokerScene(Tape(1), BrokerPlan(
        from_last_file=True, body_max=1_500, late_ms=4_000, seldom_ms=20_000, min_in_sync=2,
        unclean=unclean))
    scene.world.run(until_ms * MS)
    return scene


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
def test_who_began_late_goes_on_with_the_numbers_of_a_queue_as_master(power: bool) -> None:
    scene = late()
    last = scene.hosts[2]
    assert last.process is not None and last.process.journal.begin > 0
    assert scene.counts["queue ends told"] >= 1 <= scene.counts["log that began behind messages"]
    for host in scene.hosts[:2]:
        host.crash(power=power)
    scene.world.run(scene.world.now + 4_000 * MS)
    assert scene.counts["master whose log begins behind messages"] == 1
    before = Counter(scene.watch.counts)
    scene.hosts[0].start()
    scene.world.run(scene.world.now + 3_000 * MS)
    assert (scene.watch.counts - before)["INV_B18"], "it goes on, and is judged"
    assert not scene.watch.history.void
    assert scene.consumer.offsets[scene.plan.queues] > 0


def test_who_is_not_told_has_no_log_and_is_in_no_set() -> None:
    scene = late(until_ms=3_900)
    for host in scene.hosts[:2]:
        scene.network.cut(host.name, "b2", "ends")
    scene.world.run(8_000 * MS)
    last, group = scene.hosts[2].process, scene.group()
    assert last is not None and group is not None
    assert last.journal.end == 0 and last.member.manager.broker_id not in group.sync_state_set
    assert not last.switch.master_silent, "it has no connection, and is to blame for that itself"
    scene.network.heal()
    scene.world.run(10_000 * MS)
    group = scene.group()
    assert group is not None and last.member.manager.broker_id in group.sync_state_set
    assert last.journal.begin > 0


def test_who_is_elected_though_it_copied_next_to_nothing_goes_on_with_the_numbers_of_all_queues() -> None:
    scene = late(until_ms=3_900, unclean=True)
    last = scene.hosts[2]
    assert scene.world.run_while(lambda: last.process is None or not last.process.journal.end, 9_000 * MS)
    master = scene.hosts[0].process
    assert master is not None and last.process is not None and last.process.journal.begin > 0
    due = dict(ends_before(master.journal.messages, master.journal.visible.offset, last.process.journal.begin))
    assert min(due.values()) > 0
    for host in scene.hosts[:2]:
        host.crash(power=False)
    scene.world.run(scene.world.now + 6_000 * MS)
    assert scene.watch.unclean and isinstance(last.process.switch.role, BecomeMaster)
    assert {queue: last.process.journal.messages.min_offset(*queue) for queue in due} == due
    assert last.process.journal.messages.max_offset(TOPIC, 0) > due[TOPIC, 0], "it is written to"
