"""INV_R37: a group without a better leader does not elect for ever, and the property notices one that does."""

from __future__ import annotations

import pytest

from raft.config import Rules
from raft.invariants import InvariantViolation
from raft.messages import Append, AppendReply, SnapshotChunk
from raft.sim.campaign import Scene
from raft.sim.narrows import large
from raft.sim.swarm import Plan
from raft.sim.tape import Tape
from raft.standstill import Standstill
from tests.raft.script import frame


def scene(rules: Rules, size: int = 3) -> Scene:
    return Scene(Tape(1), Plan(rules=rules, size=size, duration_ms=1_000, narrows=True))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("rules", list(Rules))
def test_while_nothing_large_passes_a_group_elects_a_few_times_and_goes_on_afterwards(rules: Rules, size: int) -> None:
    played = scene(rules, size)
    played.play(None)
    assert played.happened["narrow ways"] == 1 and (size == 1 or played.happened["cut"] > 0)
    assert size == 1 or played.evaluated["INV_R37"] > 0


@pytest.mark.parametrize("rules", list(Rules))
def test_the_property_notices_a_group_that_elects_for_ever(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each leader gives way to another that can do no better, without a doubled wait: planted."""
    def judge(self: Standstill, judged: object = Standstill.judge) -> object:
        self.leadership.core.gave_way = 0
        return judged(self)  # type: ignore[operator]

    monkeypatch.setattr(Standstill, "judge", judge)
    with pytest.raises(InvariantViolation, match="INV_R37"):
        scene(rules, 2).play(None)


def test_what_is_large() -> None:
    beat = Append(1, 1, 1, 1, 0, 0, 0, 0)
    assert not large(beat) and not large(AppendReply(1, 1, 1, 1, 200, 0, 0, 0, 0, 0))
    assert large(Append(1, 1, 1, 1, 0, 0, 0, 0, (frame(1, 1, b"x"),)))
    assert large(SnapshotChunk(1, 1, 1, 1, b"", 0, b""))
