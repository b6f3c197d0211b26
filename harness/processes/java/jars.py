"""RocketMQ's published jars, in a cache folder: which to ask Maven for, and whether Java and Maven are here at all.

Knows Maven, javac and the cache; starts no server. A release is complete once its stamp is written, so an interrupted
fetch is done again, and two fetches at once do not mix.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio
from attrs import frozen

from harness.processes.java.errors import FetchFailed, JavaMissing

CURRENT: Final = "5.5.0"
OLDER: Final = "5.3.3"
"""The release before, for the compatibility table."""

ARTIFACTS: Final = ("broker", "namesrv", "controller", "tools", "client")
JAVA_MIN: Final = 11
TRIES: Final = 3
RETRY_PAUSE_S = 2.0
MAVEN_TIMEOUT_S: Final = 480.0
CACHE_VARIABLE: Final = "QUORATE_CACHE"
HOW_TO_GET: Final = (
    f"install a JDK of version {JAVA_MIN} or later and Maven 3, or put their `bin` folders on PATH "
    "(on Debian: apt-get install openjdk-17-jdk-headless maven)"
)
PROGRAMS: Final = Path(__file__).parent / "src"
"""Our own small Java programs, compiled against each release, and what is logged."""
NO_PROGRAMS: Final = (
    "this installation has no sources of the programs that run beside Java; install from a checkout with "
    "`pip install -e ./raft -e .`, or with HATCH_BUILD_HOOK_ENABLE_CUSTOM=true in the environment")
COMPLETE: Final = "complete"
"""The stamp in a folder of jars that has them all."""
LOG_SETTINGS: Final = "rmq.logback.xml"
GRPC_PROGRAMS: Final = frozenset(("Distant.java", "Remote.java"))
"""Compiled against the gRPC client, which has jars of its own."""

OLD_PROGRAMS: Final = frozenset((
    "Ask.java", "Leash.java", "Line.java", "Main.java", "Receive.java", "Send.java", "Transact.java"))
"""They ask for nothing that a client of 4.9 lacks."""

LEASH: Final = frozenset(("Leash.java", "Main.java"))
"""What runs a server, and ends it with its parent."""

Say = Callable[[str], None]


def _silent(_: str) -> None:
    return


@frozen
class Tools:
    """Absolute paths of what was found on this machine, and the major version of that Java."""

    java: str
    javac: str
    maven: str
    version: int


@frozen
class Release:
    """One RocketMQ version, ready to run: the jars, and our programs compiled against them."""

    version: str
    java: str
    jars: Path
    classes: Path

    @property
    def classpath(self) -> str:
        return f"{self.classes}{os.pathsep}{self.jars}/*"


def cache_folder() -> Path:
    """Return the folder of releases: ``$QUORATE_CACHE/rocketmq``, else ``~/.cache/quorate/rocketmq``."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return (Path(chosen) if chosen else Path.home() / ".cache" / "quorate") / "rocketmq"


def java_version(text: str) -> int:
    """The major version in what ``java -version`` prints; 0 when none is recognised. Java 8 calls itself 1.8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def pom(version: str, artifacts: Sequence[str] = ARTIFACTS) -> str:
    """A Maven project that depends on the artifacts of one RocketMQ release and does nothing else."""
    dependencies = "".join(
        "    <dependency><groupId>org.apache.rocketmq</groupId>"
        f"<artifactId>rocketmq-{artifact}</artifactId><version>{version}</version></dependency>\n"
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "  <modelVersion>4.0.0</modelVersion>\n"
        f"  <groupId>quorate</groupId><artifactId>rocketmq-peer</artifactId><version>{version}</version>\n"
        f"  <dependencies>\n{dependencies}  </dependencies>\n"
        "</project>\n"
    )


def cached(version: str = CURRENT, cache: Path | None = None) -> bool:
    """Return whether ``fetch`` would need no network."""
    return (_folder(version, cache) / "jars" / COMPLETE).exists()


def _folder(version: str, cache: Path | None) -> Path:
    return (cache or cache_folder()) / version


async def find_tools() -> Tools:
    """Java, javac and Maven of this machine.

    Raises:
        JavaMissing: one of them is not on PATH, or Java is older than ``JAVA_MIN``.
    """
    found = {name: shutil.which(name) for name in ("java", "javac", "mvn")}
    if absent := [name for name, path in found.items() if path is None]:
        raise JavaMissing(f"{', '.join(absent)} not found; {HOW_TO_GET}")
    asked = await trio.run_process([str(found["java"]), "-version"], capture_stderr=True, check=False)
    version = java_version(asked.stderr.decode(errors="replace"))
    if version < JAVA_MIN:
        raise JavaMissing(f"{found['java']} is Java {version or 'of an unknown version'}; {HOW_TO_GET}")
    return Tools(str(found["java"]), str(found["javac"]), str(found["mvn"]), version)


async def fetch(version: str = CURRENT, *, say: Say = _silent, cache: Path | None = None) -> Release:
    """The release from the cache, brought by Maven first if need be; our programs compiled against it.

    ``say`` is told, in one line each, what is going on.

    Raises:
        JavaMissing: Java or Maven is not here.
        FetchFailed: Maven or javac failed.
    """
    tools = await find_tools()
    folder = _folder(version, cache)
    jars = folder / "jars"
    if not cached(version, cache):
        await _fetch_jars(tools, version, jars, say)
    classes = await _compile(tools, folder, jars, say, lambda name: name not in GRPC_PROGRAMS)
    return Release(version, tools.java, jars, classes)


async def fetch_part(
    version: str, artifact: str, *, say: Say = _silent, cache: Path | None = None,
    programs: frozenset[str] = frozenset(),
) -> Release:
    """One further artifact with all that it needs, in a folder of its own; ``programs`` compiled against it.

    Raises as ``fetch``.
    """
    tools = await find_tools()
    folder = _folder(f"{artifact}-{version}", cache)
    jars = folder / "jars"
    if not (jars / COMPLETE).exists():
        await _fetch_jars(tools, version, jars, say, (artifact,))
    classes = await _compile(tools, folder, jars, say, programs.__contains__) if programs else jars
    return Release(version, tools.java, jars, classes)


async def fetch_client(version: str, beside: Release, *, say: Say = _silent, cache: Path | None = None) -> Release:
    """An old client, and those of our programs that it knows enough for; ``beside`` lends what they write JSON with.

    Raises as ``fetch``.
    """
    tools = await find_tools()
    folder = _folder(f"client-{version}", cache)
    jars = folder / "jars"
    if not (jars / COMPLETE).exists():
        await _fetch_jars(tools, version, jars, say, ("client",))
    for jar in beside.jars.glob("gson-*.jar"):
        if not (jars / jar.name).exists():
            shutil.copy(jar, jars)
    classes = await _compile(tools, folder, jars, say, OLD_PROGRAMS.__contains__)
    return Release(version, tools.java, jars, classes)


async def fetch_namesrv(version: str, *, say: Say = _silent, cache: Path | None = None) -> Release:
    """An old name server, with nothing but the programs that run it. Raises as ``fetch``."""
    return await fetch_part(version, "namesrv", say=say, cache=cache, programs=LEASH)


async def _fetch_jars(
    tools: Tools, version: str, jars: Path, say: Say, artifacts: Sequence[str] = ARTIFACTS,
) -> None:
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix="fetch-") as work:
        (Path(work) / "pom.xml").write_text(pom(version, artifacts))
        incoming = Path(work) / "jars"
        command = [
            tools.maven, "--batch-mode", "--quiet", "-Dstyle.color=never",
            "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={incoming}",
        ]
        said = ""
        for attempt in range(1, TRIES + 1):
            say(f"fetching the jars of RocketMQ {version} with Maven (attempt {attempt} of {TRIES})")
            with trio.move_on_after(MAVEN_TIMEOUT_S):
                run = await trio.run_process(
                    command, cwd=work, check=False, capture_stdout=True, stderr=subprocess.STDOUT)
                if run.returncode == 0:
                    break
                said = run.stdout.decode(errors="replace")[-2_000:]
                say(f"Maven failed with exit code {run.returncode}")
                await trio.sleep(RETRY_PAUSE_S)
                continue
            said = f"no end within {MAVEN_TIMEOUT_S:.0f} s"
        else:
            raise FetchFailed(f"RocketMQ {version} could not be fetched in {TRIES} tries; the last said:\n{said}")
        (incoming / COMPLETE).touch()
        say(f"{sum(1 for _ in incoming.glob('*.jar'))} jars")
        shutil.rmtree(jars, ignore_errors=True)  # an interrupted fetch leaves it
        incoming.rename(jars)


async def _compile(tools: Tools, folder: Path, jars: Path, say: Say, wanted: Callable[[str], bool]) -> Path:
    """The folder with our compiled programs; its name is the digest of their sources, so it is never stale."""
    sources = sorted(path for path in PROGRAMS.glob("*.java") if wanted(path.name))
    if not sources:
        raise JavaMissing(NO_PROGRAMS)
    settings = PROGRAMS / LOG_SETTINGS
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in (*sources, settings))).hexdigest()[:16]
    classes = folder / f"programs-{digest}"
    if classes.exists():
        return classes
    say("compiling the programs")
    with tempfile.TemporaryDirectory(dir=folder, prefix="compile-") as work:
        out = Path(work) / "classes"
        out.mkdir()
        command = [tools.javac, "-nowarn", "-proc:none", "-cp", f"{jars}/*", "-d", str(out), *map(str, sources)]
        run = await trio.run_process(command, check=False, capture_stdout=True, stderr=subprocess.STDOUT)
        if run.returncode:
            raise FetchFailed(f"javac failed:\n{run.stdout.decode(errors='replace')[-2_000:]}")
        shutil.copy(settings, out)
        try:
            await trio.to_thread.run_sync(partial(os.rename, out, classes))
        except OSError:
            if not classes.exists():  # another process may have compiled the same sources
                raise
    return classes
