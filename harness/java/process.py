"""One Java process: started until it is ready, killed, stopped, frozen, looked at. It knows nothing of RocketMQ.

Standard output and error go to ``out.log`` in the process's directory. Its standard input is a leash: when this
program dies, however it dies, the pipe ends and so does the Java process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio
from attrs import define, field, frozen

from harness.java.errors import NotRunning, StartFailed
from harness.java.jars import Release

READY_S: Final = 60.0
STOP_S: Final = 20.0
POLL_S: Final = 0.02
LOG: Final = "peer.log"
"""Where ``rmq.logback.xml`` puts the log, below ``user.home``."""


@frozen
class JVM:
    """How a Java virtual machine is run."""

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


@define
class JavaProcess:
    """A process and its directory. The directory outlives the process, so ``start`` after ``kill`` is a restart."""

    name: str
    directory: Path
    command: Sequence[str]
    address: str
    """``host:port`` at which it listens; empty for one that does not."""
    ready_text: str
    """What it prints when it is up."""
    _process: trio.Process | None = field(default=None, init=False)
    _printed_before: int = field(default=0, init=False)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Raises ``NotRunning``."""
        if self._process is None or not self.running:
            raise NotRunning(f"{self.name} does not run")
        return self._process.pid

    @property
    def out(self) -> Path:
        return self.directory / "out.log"

    async def start(self, *, timeout_s: float = READY_S) -> None:
        """Start it, and wait until it says that it is up and its port is open.

        Raises:
            StartFailed: it ended first, or was not ready in time (it is killed then).
        """
        await self.launch()
        await self.wait_ready(timeout_s=timeout_s)

    async def launch(self) -> None:
        """Start it and wait for nothing; it may be one that cannot be ready yet.

        Raises:
            StartFailed: it runs already.
        """
        if self.running:
            raise StartFailed(f"{self.name} runs already")
        (self.directory / "tmp").mkdir(parents=True, exist_ok=True)
        self._printed_before = self.out.stat().st_size if self.out.exists() else 0
        with self.out.open("ab") as out:
            self._process = await trio.lowlevel.open_process(
                self.command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, cwd=self.directory,
                start_new_session=True,  # an interrupt at the terminal is for us: we end it in order
                env={key: value for key, value in os.environ.items() if key != "JAVA_TOOL_OPTIONS"},
            )

    async def wait_ready(self, *, timeout_s: float = READY_S) -> None:
        """Raises ``StartFailed``."""
        with trio.move_on_after(timeout_s):
            while self.running:
                if self.ready_text in self.printed() and await self._listens():
                    return
                await trio.sleep(POLL_S)
            assert self._process is not None
            raise StartFailed(
                f"{self.name} ended with exit code {self._process.returncode} before it was ready\n{self.tail()}")
        await self.kill()
        raise StartFailed(f"{self.name} was not ready within {timeout_s:.0f} s\n{self.tail()}")

    async def _listens(self) -> bool:
        if not self.address:
            return True
        host, _, port = self.address.rpartition(":")
        try:
            stream = await trio.open_tcp_stream(host, int(port))
        except OSError:
            return False
        await stream.aclose()
        return True

    async def kill(self) -> None:
        """SIGKILL, and wait for the end. Nothing happens when it does not run."""
        await self._end(signal.SIGKILL)

    async def stop(self, *, timeout_s: float = STOP_S) -> None:
        """SIGTERM, so that it says goodbye to its peers; SIGKILL when that takes too long."""
        with trio.move_on_after(timeout_s):
            await self._end(signal.SIGTERM)
        await self.kill()

    async def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        await process.wait()
        if process.stdin is not None:
            await process.stdin.aclose()

    async def wait(self) -> int:
        """Wait until it ends by itself; its exit code. Raises ``NotRunning`` when it was never started."""
        if self._process is None:
            raise NotRunning(f"{self.name} was never started")
        return await self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: it holds its sockets and falls silent. Raises ``NotRunning``."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT. Raises ``NotRunning``."""
        os.kill(self.pid, signal.SIGCONT)

    # --- what it wrote ---------------------------------------------------------------------------------------

    def printed(self) -> str:
        """What it printed since the last start."""
        if not self.out.exists():
            return ""
        with self.out.open("rb") as out:
            out.seek(self._printed_before)
            return out.read().decode(errors="replace")

    def tail(self, lines: int = 30) -> str:
        """The end of what it printed."""
        return "\n".join(self.printed().splitlines()[-lines:])

    def log(self) -> str:
        """Its whole log, of all starts; empty when there is none yet."""
        path = self.directory / LOG
        return path.read_text(errors="replace") if path.exists() else ""

    async def wait_log(self, pattern: str, *, timeout_s: float = READY_S) -> re.Match[str]:
        """Wait until the pattern is found in the log, which is searched as a whole.

        Raises:
            trio.TooSlowError: it was not there in time.
        """
        with trio.fail_after(timeout_s):
            while not (found := re.search(pattern, self.log(), re.MULTILINE)):
                await trio.sleep(POLL_S)
        return found


def command(release: Release, main: str, arguments: Sequence[str], directory: Path, jvm: JVM) -> list[str]:
    """The command line of a leashed ``main`` class."""
    return [release.java, *jvm.options(directory), "-cp", release.classpath, "Leash", main, *arguments]


@asynccontextmanager
async def running(process: JavaProcess, *, start: bool = True) -> AsyncIterator[JavaProcess]:
    """The process, started at the beginning (unless told otherwise) and killed at the end."""
    try:
        if start:
            await process.start()
        yield process
    finally:
        with trio.CancelScope(shield=True):
            await process.kill()
