"""The program in Go: kept by what its sources say, and missing in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.processes.go import GoMissing, build
from harness.processes.go.programs import SOURCES, binary_of


def test_other_sources_are_another_program(tmp_path: Path) -> None:
    source = tmp_path / "one.go"
    source.write_text("package main")
    before = binary_of([source], tmp_path)
    source.write_text("package main // again")
    assert before != binary_of([source], tmp_path)


def test_the_client_is_pinned() -> None:
    manifest = (SOURCES / "go.mod").read_text()
    assert re.search(r"^require github.com/apache/rocketmq-client-go/v2 v2\.1\.2$", manifest, re.MULTILINE)


async def test_without_go_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("harness.processes.go.programs.ELSEWHERE", str(tmp_path))
    with pytest.raises(GoMissing, match="go not found; install"):
        await build(cache=tmp_path)


async def test_what_is_in_the_cache_is_not_built_and_a_failure_is_quoted(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "go").write_text("#!/bin/sh\necho no network\nexit 1\n")
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GoMissing, match="no network"):
        await build(cache=tmp_path)
    kept = binary_of(sorted(SOURCES.glob("*")), tmp_path)
    kept.touch()
    assert await build(cache=tmp_path) == kept
