"""Runs a Java virtual machine, and names the log that its process keeps. It knows options and a file, and no server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import trio
from attrs import frozen

from harness.processes.handle import POLL_S, READY_S, Handle
from harness.processes.java.jars import Release

LOG: Final = "peer.log"
"""Place of the log below ``user.home``, as ``rmq.logback.xml`` sets it."""


@frozen
class JVM:
    """Options of a Java virtual machine."""

    heap_mb: int = 128
    heap_first_mb: int | None = None
    quick_start: bool = True
    """Trades peak speed for an early start, and does without TLS, whose key pair takes long. Off for measurements."""
    system: Mapping[str, str] = {}
    """System properties, such as ``rocketmq.serialize.type``."""

    def options(self, directory: Path) -> list[str]:
        """Command line options; everything the process writes of its own accord goes below ``directory``."""
        return [
            f"-Xms{self.heap_first_mb or self.heap_mb}m", f"-Xmx{self.heap_mb}m", "-XX:+UseSerialGC",
            "-XX:-UsePerfData", "-Xshare:auto",
            *(["-XX:TieredStopAtLevel=1", "-Dtls.server.mode=disabled"] if self.quick_start else []),
            "--add-opens=java.base/java.lang=ALL-UNNAMED",  # else fastjson prints a stack trace on Java 17
            f"-Duser.home={directory}", f"-Djava.io.tmpdir={directory / 'tmp'}", f"-Drocketmq.home.dir={directory}",
            *(f"-D{key}={value}" for key, value in self.system.items()),
        ]


def command(release: Release, main: str, arguments: Sequence[str], directory: Path, jvm: JVM) -> list[str]:
    """The command line of a leashed ``main`` class."""
    return [release.java, *jvm.options(directory), "-cp", release.classpath, "Leash", main, *arguments]


def log(process: Handle) -> str:
    """Its whole log, of all starts; empty when there is none yet."""
    path = process.directory / LOG
    return path.read_text(errors="replace") if path.exists() else ""


async def wait_log(process: Handle, pattern: str, *, timeout_s: float = READY_S) -> re.Match[str]:
    """Wait until the pattern is found in the log, which is searched as a whole.

    Raises:
        trio.TooSlowError: it was not there in time.
    """
    with trio.fail_after(timeout_s):
        while not (found := re.search(pattern, log(process), re.MULTILINE)):
            await trio.sleep(POLL_S)
    return found
