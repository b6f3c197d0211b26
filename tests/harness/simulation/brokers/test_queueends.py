"""A simulated slave that begins late is told where queues end, and asks again after a power cut."""

from __future__ import annotations

from harness.simulation.brokers.plan import BrokerPlan
from harness.simulation.brokers.scene import BrokerScene
from raft.config import MS
from raft.sim.tape import Tape


def test_who_begins_late_is_told_where_queues_end() -> None:
    scene = BrokerScene(Tape(1), BrokerPlan(from_last_file=True, body_max=1_500))
    late = scene.hosts[2]
    scene.world.run(30 * MS)
    late.crash(power=True)  # it has nothing yet
    while (master := scene.hosts[0].process) is None or master.journal.end < 3 << 14:
        scene.world.run(scene.world.now + 50 * MS)
    late.start()
    scene.world.run(scene.world.now + 2_000 * MS)
    assert late.process is not None and late.process.journal.begin > 0
    told = [(late.ends_told, scene.counts["queue ends told"])]
    late.crash(power=True)
    late.start()
    told.append((late.ends_told, scene.counts["queue ends told"]))
    scene.world.run(scene.world.now + 2_000 * MS)
    told.append((late.ends_told, scene.counts["queue ends told"]))
    assert told == [(True, 1), (False, 1), (True, 2)]
