"""The runner of scenarios: what is tried again, what is not run, and what the last line counts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes import java
from harness.scenarios.interop import __main__ as runner
from harness.scenarios.interop.scenario import SCENARIOS, Lost, NotRun, Play, Scenario, Stage

played: list[str] = []


async def good(_: Stage) -> None:
    played.append("good")


async def bad_once(_: Stage) -> None:
    played.append("bad_once")
    assert played.count("bad_once") > 1


async def without(_: Stage) -> None:
    raise NotRun("no such tool")


async def losing(_: Stage) -> None:
    played.append("losing")
    raise Lost("message 7 is gone")


@pytest.fixture(autouse=True)
def scenarios(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    async def fetch(version: str) -> java.Release:
        return java.Release(version, "java", tmp_path, tmp_path)

    async def find_tools() -> java.Tools:
        return java.Tools("java", "javac", "mvn", 17)

    monkeypatch.setattr(java, "fetch", fetch)
    monkeypatch.setattr(java, "find_tools", find_tools)
    real = list(SCENARIOS)
    played.clear()
    yield
    SCENARIOS[:] = real


def run(monkeypatch: pytest.MonkeyPatch, *plays: Play, arguments: tuple[str, ...] = ()) -> int:
    SCENARIOS[:] = [Scenario(each.__name__, "", each, ("5.5.0",), True, 5.0) for each in plays]
    monkeypatch.setattr(sys, "argv", ["interop", *arguments])
    return runner.main()


def test_a_name_that_no_scenario_has_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, good, losing, arguments=("-k", "good", "-k", "losing")) == 2 and played == []
    assert capsys.readouterr().err == (
        "no scenario has good and losing in its name; --list tells all names\n")
    assert run(monkeypatch, good, losing, arguments=("-k", "good")) == 0 and played == ["good"]


def test_what_passes_when_tried_again_is_good(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, good, bad_once) == 0
    assert "2 passed, 0 failed, 0 not run" in capsys.readouterr().out


def test_what_else_is_missing_is_said_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, without, good) == 0
    said = capsys.readouterr().out
    assert "not run  without [5.5.0]: no such tool" in said
    assert "1 passed, 0 failed, 1 not run" in said


def test_a_loss_is_never_tried_away(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, losing) == 1
    assert played == ["losing"]
    assert "message 7 is gone" in capsys.readouterr().out
