"""A handle that starts, kills, stops, pauses and watches one process, of any program.

Standard output and error go to ``out.log`` in the process's directory. Its standard input is a leash: when this program
dies in any way, the pipe closes, and a process that reads it ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio
from attrs import define, field

from harness.processes.errors import NotRunning, StartFailed
from harness.processes.forking import Forked, can_fork, fork

READY_S: Final = 60.0
STOP_S: Final = 20.0
POLL_S: Final = 0.02


def environment() -> dict[str, str]:
    """Our environment, without the variable that adds options to every Java virtual machine."""
    return {key: value for key, value in os.environ.items() if key != "JAVA_TOOL_OPTIONS"}


@define
class Handle:
    """A process and its directory. The directory outlives the process, so ``start`` after ``kill`` is a restart."""

    name: str
    directory: Path
    command: Sequence[str]
    address: str
    """``host:port`` at which it listens; empty for one that does not."""
    ready_text: str
    """Text that it prints when it is ready."""
    variables: Mapping[str, str] = field(factory=dict, kw_only=True)
    """Environment variables besides our own."""
    _process: trio.Process | Forked | None = field(default=None, init=False)
    _printed_before: int = field(default=0, init=False)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises ``NotRunning`` if there is no process."""
        if self._process is None or not self.running:
            raise NotRunning(f"{self.name} does not run")
        return self._process.pid

    @property
    def out(self) -> Path:
        return self.directory / "out.log"

    async def start(self, *, timeout_s: float = READY_S) -> None:
        """Start it, and wait until it prints that it is ready and its port is open.

        Raises:
            StartFailed: it ended first, or was not ready in time (it is killed then).
        """
        await self.launch()
        await self.wait_ready(timeout_s=timeout_s)

    async def launch(self) -> None:
        """Start it without waiting until it is ready.

        Raises:
            StartFailed: it runs already.
        """
        if self.running:
            raise StartFailed(f"{self.name} runs already")
        (self.directory / "tmp").mkdir(parents=True, exist_ok=True)
        self._printed_before = self.out.stat().st_size if self.out.exists() else 0
        env = environment() | dict(self.variables)
        with self.out.open("ab") as out:
            if can_fork(self.command):
                self._process = fork(self.command, cwd=self.directory, env=env, out=out.fileno())
                return
            self._process = await trio.lowlevel.open_process(
                self.command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, cwd=self.directory, env=env,
                start_new_session=True,  # Ctrl-C reaches only us: we stop the process in order
            )

    async def wait_ready(self, *, timeout_s: float = READY_S) -> None:
        """Wait until the process is ready. Raises ``StartFailed``."""
        with trio.move_on_after(timeout_s):
            while self.running:
                if await self.is_up():
                    return
                await trio.sleep(POLL_S)
            assert self._process is not None
            raise StartFailed(
                f"{self.name} ended with exit code {self._process.returncode} before it was ready\n{self.tail()}")
        await self.kill()
        raise StartFailed(f"{self.name} was not ready within {timeout_s:.0f} s\n{self.tail()}")

    async def is_up(self) -> bool:
        """Return whether it printed that it is ready and its port is open."""
        return self.ready_text in self.printed() and await self._listens()

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
        """Send SIGKILL, and wait for the end. Does nothing if it does not run."""
        await self._end(signal.SIGKILL)

    async def stop(self, *, timeout_s: float = STOP_S) -> None:
        """Send SIGTERM, for an orderly stop, and SIGKILL if that takes too long."""
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
        """Wait until it ends by itself; returns its exit code. Raises ``NotRunning`` if it was never started."""
        if self._process is None:
            raise NotRunning(f"{self.name} was never started")
        return await self._process.wait()

    def pause(self) -> None:
        """Send SIGSTOP: it keeps its sockets but does not answer. Raises ``NotRunning``."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT to the process. Raises ``NotRunning``."""
        os.kill(self.pid, signal.SIGCONT)

    # --- output ----------------------------------------------------------------------------------------------

    def printed(self) -> str:
        """The output since the last start."""
        if not self.out.exists():
            return ""
        with self.out.open("rb") as out:
            out.seek(self._printed_before)
            return out.read().decode(errors="replace")

    def tail(self, lines: int = 30) -> str:
        """The last lines of its output."""
        return "\n".join(self.printed().splitlines()[-lines:])


@asynccontextmanager
async def running(process: Handle, *, start: bool = True) -> AsyncIterator[Handle]:
    """Start the process (unless ``start`` is false), and kill it at the end."""
    try:
        if start:
            await process.start()
        yield process
    finally:
        with trio.CancelScope(shield=True):
            await process.kill()


async def start_all(processes: Sequence[Handle]) -> None:
    """Start several at once, and wait until all are ready. Raises ``StartFailed`` (in a group)."""
    async with trio.open_nursery() as nursery:
        for process in processes:
            nursery.start_soon(process.start)
