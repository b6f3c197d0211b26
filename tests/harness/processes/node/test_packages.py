"""Packages of Node.js: kept by what ``package.json`` says, and missing in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.processes.node import NodeMissing, Packages, fetch
from harness.processes.node.packages import HERE, folder_of


def test_other_versions_are_another_folder(tmp_path: Path) -> None:
    manifest = (HERE / "package.json").read_bytes()
    assert folder_of(manifest, tmp_path).parent == tmp_path
    assert folder_of(manifest, tmp_path) != folder_of(manifest.replace(b"3.12", b"3.11"), tmp_path)


def test_every_version_is_pinned() -> None:
    versions = json.loads((HERE / "package.json").read_text())["dependencies"].values()
    assert versions
    assert all(part.isdecimal() for version in versions for part in version.split("."))


async def test_without_node_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NodeMissing, match="node not found; install"):
        await fetch(cache=tmp_path)


async def test_what_is_in_the_cache_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("node", "npm"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    kept = folder_of((HERE / "package.json").read_bytes(), tmp_path)
    kept.mkdir()
    assert await fetch(cache=tmp_path) == Packages(str(tmp_path / "node"), kept)


async def test_npm_that_fails_is_tried_again_and_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = tmp_path / "tries"
    (tmp_path / "node").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "npm").write_text(f"#!/bin/sh\necho again >> {tries}\necho no network\nexit 1\n")
    for name in ("node", "npm"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("harness.processes.node.packages.RETRY_PAUSE_S", 0)
    with pytest.raises(NodeMissing, match="no network"):
        await fetch(cache=tmp_path / "cache")
    assert len(tries.read_text().splitlines()) == 3
    assert not list((tmp_path / "cache").glob("node-*")), "what was not fetched is not kept"
