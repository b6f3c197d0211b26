"""Fetching: Maven, javac and Java are shell scripts here, so it runs anywhere and asks no network."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from harness.processes.java import FetchFailed, JavaMissing, fetch, find_tools, jars

MAVEN = """\
echo ran >> "$0.runs"
for argument; do case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac; done
test -f pom.xml || exit 7
mkdir -p "$out" && touch "$out/rocketmq-broker.jar"
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH besides those of the shell; what is in it is all that this machine has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("mkdir", "touch", "cat"):
        (folder / name).symlink_to(next(Path(p) / name for p in os.get_exec_path() if (Path(p) / name).exists()))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(jars, "RETRY_PAUSE_S", 0)
    return folder


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text("#!/bin/sh\n" + script)
    (folder / name).chmod(0o755)


def put_all(folder: Path, *, maven: str = MAVEN, version: str = "17.0.15") -> None:
    put(folder, "java", f"""echo 'openjdk version "{version}" 2025-04-15' >&2\n""")
    put(folder, "javac", "exit 0\n")
    put(folder, "mvn", maven)


@pytest.mark.parametrize(("printed", "version"), [
    ('openjdk version "17.0.15" 2025-04-15', 17),
    ('java version "1.8.0_402"', 8),
    ('openjdk version "21" 2023-09-19', 21),
    ('openjdk version "11.0.2-ea"', 11),
    ("no such thing", 0),
])
def test_java_version(printed: str, version: int) -> None:
    assert jars.java_version(printed) == version


def test_pom_asks_for_the_five_parts_of_one_release() -> None:
    tree = ET.fromstring(jars.pom("5.3.3"))
    namespace = {"m": "http://maven.apache.org/POM/4.0.0"}
    asked = [
        tuple(dependency.findtext(f"m:{part}", namespaces=namespace) for part in ("groupId", "artifactId", "version"))
        for dependency in tree.findall("m:dependencies/m:dependency", namespace)
    ]
    assert asked == [
        ("org.apache.rocketmq", f"rocketmq-{part}", "5.3.3")
        for part in ("broker", "namesrv", "controller", "tools", "client")
    ]


async def test_what_is_missing_is_named_with_how_to_get_it(tools: Path) -> None:
    put(tools, "java", "exit 0\n")
    with pytest.raises(JavaMissing, match=r"^javac, mvn not found; install a JDK of version 11 .*apt-get install"):
        await find_tools()


async def test_java_too_old_is_missing_java(tools: Path) -> None:
    put_all(tools, version="1.8.0_402")
    with pytest.raises(JavaMissing, match=r"java is Java 8; install a JDK of version 11"):
        await fetch("5.5.0")


async def test_fetched_once_and_kept(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_all(tools)
    monkeypatch.setenv("QUORATE_CACHE", str(tmp_path / "cache"))
    assert not jars.cached("5.5.0")
    said: list[str] = []
    release = await fetch("5.5.0", say=said.append)
    assert release.jars == tmp_path / "cache" / "rocketmq" / "5.5.0" / "jars"
    assert (release.jars / "rocketmq-broker.jar").exists()
    assert (release.classes / "rmq.logback.xml").exists()
    assert release.classpath == f"{release.classes}:{release.jars}/*", "ours first: its log settings must win"
    assert said == [
        "fetching the jars of RocketMQ 5.5.0 with Maven (attempt 1 of 3)", "1 jars", "compiling the programs"]
    assert jars.cached("5.5.0")

    again = await fetch("5.5.0", say=said.append)
    assert again == release
    assert len(said) == 3
    assert (tools / "mvn.runs").read_text() == "ran\n"


async def test_a_fetch_that_was_cut_off_is_done_again(tools: Path, tmp_path: Path) -> None:
    put_all(tools)
    half = tmp_path / "cache" / "5.5.0" / "jars" / "half.jar"
    half.parent.mkdir(parents=True)
    half.touch()
    release = await fetch("5.5.0", cache=tmp_path / "cache")
    assert sorted(path.name for path in release.jars.iterdir()) == ["complete", "rocketmq-broker.jar"]


async def test_maven_is_tried_three_times_then_quoted(tools: Path, tmp_path: Path) -> None:
    put_all(tools, maven='echo "no route to the repository"; echo ran >> "$0.runs"; exit 1\n')
    with pytest.raises(FetchFailed, match=r"5\.5\.0 could not be fetched in 3 tries.*\nno route to the repository"):
        await fetch("5.5.0", cache=tmp_path / "cache")
    assert (tools / "mvn.runs").read_text() == "ran\n" * 3
    assert list((tmp_path / "cache" / "5.5.0").iterdir()) == [], "nothing half done is left behind"


async def test_maven_may_fail_twice(tools: Path, tmp_path: Path) -> None:
    put_all(tools, maven=f'case "$(cat "$0.runs")" in *ran*ran*) ;; *) echo ran >> "$0.runs"; exit 1;; esac\n{MAVEN}')
    (tools / "mvn.runs").touch()
    release = await fetch("5.5.0", cache=tmp_path / "cache")
    assert (release.jars / "complete").exists()


async def test_javac_that_fails_is_quoted(tools: Path, tmp_path: Path) -> None:
    put_all(tools)
    put(tools, "javac", "echo 'Send.java:3: error'; exit 1\n")
    with pytest.raises(FetchFailed, match=r"javac failed:\nSend\.java:3: error"):
        await fetch("5.5.0", cache=tmp_path / "cache")
