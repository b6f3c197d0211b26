"""A simulated machine whose broker stands still: what it finds when it goes on."""

from __future__ import annotations

import pytest

from harness.simulation.brokers.scene import make
from raft.sim.tape import Tape


@pytest.mark.parametrize(("first", "order"), [
    (0, ["heard", "timer", "heard again"]), (1, ["timer", "heard", "heard again"]),
    (2, ["heard", "heard again", "timer"])])
def test_a_process_that_stood_still_finds_what_came_and_what_is_due_in_any_order(first: int, order: list[str]) -> None:
    scene = make(Tape(1, {"resumes": {0: first}}), "calm")
    host, found = scene.hosts[0], list[str]()
    host.start()
    host.pause()
    host.pause("its disk hangs")
    host.do(host.process, 0, lambda: found.append("heard"))
    assert host.process is not None
    host.later(host.process, 0, 0, lambda: found.append("timer"))
    scene.play(1)
    host.do(host.process, 0, lambda: found.append("heard again"))
    host.resume("its disk hangs")
    assert found == [], "it is stopped for another reason, too"
    host.resume()
    assert [each for each in found if each in order] == order
