"""A run in words: each fault and each kind of decision has some."""

from __future__ import annotations

from typing import Any

import pytest

from raft.sim.script import fault_words, stream_words
from raft.sim.swarm import NEMESES


@pytest.mark.parametrize("what", [*NEMESES, "bounce", "rot", "copy", "damage", "hang"])
def test_every_fault_has_words(what: str) -> None:
    rest: dict[str, list[Any]] = {
        "partition": [300, ["n1"]], "cut": [300, "n2"], "hold": [300, "n2"], "rate": [300, 1_020_000],
        "drift": [300, 600_000], "transfer": ["n2"], "reconfigure": [["n0", "n1"], []], "snapshot": [],
    }
    said = fault_words([what, "n1", *rest.get(what, [300, 1, 2])], "n0")
    assert not said.startswith(f"{what} n1 3")
    assert "n1" in said or what in ("transfer", "reconfigure")
    assert "n0, the leader," in fault_words(["crash", "leader", 30], "n0")


def test_decisions_of_other_streams_have_words() -> None:
    assert stream_words("link/raft/n0>n1", ["delay", 2_000_000]) == "message n0 → n1: delay, 2.000 ms"
    assert stream_words("link/raft/n0>n1", ["loss", 0]) == "message n0 → n1: loss"
    assert stream_words("timeouts/n2", 0.25) == "election timeout of n2: 0.25 of its range"
    assert "n1" in stream_words("disk/n1/sync", 5_000_000)
