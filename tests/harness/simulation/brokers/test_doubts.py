"""The judge of logs in doubt knows what was copied again, and what was not."""

from __future__ import annotations

from functools import partial

import pytest

from broker.ha.slave import LogTrusted
from broker.store.trust import LogTrust
from harness.simulation.brokers.host import Killed
from harness.simulation.brokers.scene import make
from raft.config import MS
from raft.invariants import InvariantViolation
from raft.sim.tape import Tape


@pytest.mark.parametrize(("copied_from", "is_new"), [(0, True), (1, False), (None, False)])
def test_what_was_copied_where_trust_ended_is_trusted_as_far_as_it_was_synced(
    copied_from: int | None, is_new: bool,
) -> None:
    """Machines lose power twice before a slow copy is level: the second time it is the copy that was synced."""
    scene = make(Tape(1), "calm")
    scene.play(3_000 * MS)
    process, doubts = scene.hosts[1].process, scene.watch.doubts
    assert process is not None and process.switch.following is not None
    log = process.journal.log
    begins = [offset for offset, *_ in log.scan(0)]
    doubts.cut(process.host, 0)
    if copied_from is not None:
        begin = begins[copied_from]
        doubts.appends(process, begin, scene.watch.log(process, begin, log.max_offset))
    doubts.cut(process.host, log.max_offset)
    if is_new:
        doubts.acknowledges(process, log.max_offset)
    else:
        with pytest.raises(InvariantViolation, match="INV_B30: acknowledged what was neither synced nor copied again"):
            doubts.acknowledges(process, log.max_offset)


def test_a_cut_that_was_under_way_leaves_trusted_what_was_synced() -> None:
    """The disk may have heard nothing of it: the next master's log may have those very bytes."""
    scene = make(Tape(1), "calm")
    scene.play(3_000 * MS)
    process, watch = scene.hosts[1].process, scene.watch
    assert process is not None
    log = process.journal.log
    synced = log.flushed_offset
    watch.copies._cuts_at[process.host] = next(log.scan(0))[0]
    watch.runs.ended(process, power=True)
    watch.runs.doubted(process.host)
    watch.doubts.acknowledges(process, synced)
    with pytest.raises(InvariantViolation, match="INV_B30"):
        watch.doubts.acknowledges(process, log.next_offset(synced) + 1)


@pytest.mark.parametrize("elected", [True, False])
def test_who_is_killed_behind_the_note_that_its_log_is_trusted_doubts_no_more(
    elected: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = make(Tape(1), "calm")
    scene.play(3_000 * MS)
    process, doubts = scene.hosts[1].process, scene.watch.doubts
    assert process is not None and process.switch.following is not None
    doubts.cut(process.host, 0)
    regained = LogTrust.regained

    def killed(trust: LogTrust) -> None:
        regained(trust)
        raise Killed

    monkeypatch.setattr(LogTrust, "regained", killed)
    switch, following = process.switch, process.switch.following
    note = partial(switch._record, switch.epochs, []) if elected else partial(following._one, LogTrusted())
    with pytest.raises(Killed):
        note()
    doubts.acknowledges(process, process.journal.log.max_offset)
