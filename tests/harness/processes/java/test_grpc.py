"""The proxy and the gRPC client from the outside: their jars stay apart, and every setting is one that is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.processes.java import grpc, jars


async def test_an_artifact_of_its_own_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What Maven is asked for is that artifact alone; only the programs that want it are compiled against it."""
    asked: list[tuple[str, tuple[str, ...]]] = []

    async def found() -> jars.Tools:
        return jars.Tools("java", "javac", "mvn", 17)

    async def fetched(_: jars.Tools, version: str, folder: Path, __: jars.Say, artifacts: tuple[str, ...]) -> None:
        asked.append((version, artifacts))
        complete(folder)

    def complete(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / jars.COMPLETE).touch()

    monkeypatch.setattr(jars, "find_tools", found)
    monkeypatch.setattr(jars, "_fetch_jars", fetched)
    release = await jars.fetch_part("5.5.0", "proxy", cache=tmp_path)
    assert await jars.fetch_part("5.5.0", "proxy", cache=tmp_path) == release
    assert asked == [("5.5.0", ("proxy",))]
    assert release.jars == tmp_path / "proxy-5.5.0" / "jars"
    assert "<artifactId>rocketmq-proxy</artifactId><version>5.5.0</version>" in jars.pom("5.5.0", ("proxy",))


def test_programs_of_the_grpc_client_are_there_and_read_their_settings() -> None:
    assert {path.name for path in jars.PROGRAMS.glob("*.java")} > jars.GRPC_PROGRAMS
    source, python = (jars.PROGRAMS / "Remote.java").read_text(), Path(grpc.__file__).read_text()
    for name in ("endpoints", "plain", "delayed", "pairs"):
        assert f'"{name}"' in python and f'need("{name}")' in source
