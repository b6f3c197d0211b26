"""What a machine cannot do is said in words, before a fault is tried. In sandboxes: test_faults_*.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.nemesis import abilities, sandbox, shim
from harness.nemesis.fault import Ability
from harness.nemesis.faults import FAULTS


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sandbox.INSIDE, raising=False)


def test_without_a_sandbox_links_and_power_are_what_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "impossible", lambda: "")
    able = abilities.probe(tmp_path)
    assert set(able.why_not) == {Ability.LINKS, Ability.POWER}
    assert able.as_json()["sandbox"] == "none"
    assert "network namespaces" in able.missing(FAULTS["slow"])
    assert "a directory" in able.missing(FAULTS["power-cut"])
    assert [able.missing(FAULTS[name]) for name in ("kill", "cut", "lie-disk", "stall-disk", "step-clock")] == [""] * 5
    assert len(able.cannot) == 2 and able.cannot[0].startswith("cannot shape links")


def test_without_a_compiler_the_shim_s_faults_cannot_be_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "impossible", lambda: "there is no C compiler")
    able = abilities.probe(tmp_path)
    for name in ("stall-disk", "stall-syncs", "fill-disk", "fail-disk", "slow-disk", "step-clock", "drift-clock"):
        assert "there is no C compiler" in able.missing(FAULTS[name])
    assert able.missing(FAULTS["lie-disk"]) == ""
