"""A node of a run: a process group on a host of its own, whose data outlives it. Knows no fault and no scenario."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Final

import trio
from attrs import define, field, frozen

from harness.nemesis.disks import empty
from harness.processes.errors import StartFailed
from harness.processes.handle import POLL_S, Handle
from harness.targets.target import Ready

PAGE_S: Final = 1.0
"""Time that a page or a command may take to tell of readiness."""


@frozen
class NodeVersion:
    """The version that a node is started with. ``files``: their content by their names in its directory."""

    command: Sequence[str]
    variables: Mapping[str, str]
    files: Mapping[str, str]


@define(eq=False)
class RunNode(Handle):
    """A node that a target's command starts. ``expected``: it should run now, so an end is its own doing."""

    kind: str = field(kw_only=True)
    data: Path = field(kw_only=True)
    ports: Mapping[str, str] = field(kw_only=True, factory=dict)
    """Addresses where others find it: ``host:port`` by the port's name."""
    ready: Ready = field(kw_only=True)
    stop_signal: signal.Signals = field(kw_only=True, default=signal.SIGTERM)
    started: Callable[[int], None] = field(kw_only=True, default=lambda pid: None)
    """Called with each process that is started, which leads a process group."""
    versions: Sequence[NodeVersion] = field(kw_only=True, default=())
    """The one of the beginning, and the one of an upgrade if there is one."""
    expected: bool = field(default=False, init=False)
    starting: bool = field(default=False, init=False)
    """Whether a caller waits until it is up, and is told if it ends first."""

    def become(self, number: int) -> bool:
        """Is started with this version from now on; False where it has no such version."""
        if number >= len(self.versions):
            return False
        version = self.versions[number]
        self.command, self.variables = version.command, version.variables
        for name, content in version.files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return True

    def upgrade(self) -> bool:
        return self.become(1)

    @property
    def pid(self) -> int:
        """0 while it does not run."""
        return self._process.pid if self._process is not None and self.running else 0

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that has ended."""
        return None if self._process is None else self._process.poll()

    async def launch(self) -> None:
        """Starts it unless it runs. Raises ``StartFailed`` where the command cannot be run at all."""
        if self.running:
            return
        self.data.mkdir(parents=True, exist_ok=True)
        try:
            await super().launch()
        except OSError as error:
            raise StartFailed(f"{self.name} cannot be started: {self.command[0]}: {error.strerror}") from None
        assert self._process is not None
        self.started(self._process.pid)  # even if it has ended, its children are in its group
        self.expected = True

    async def start(self, *, timeout_s: float | None = None) -> None:
        """Starts it, and waits until it is up. Raises ``StartFailed`` where it ends first, or is not up in time."""
        patience_s = self.ready.timeout_s if timeout_s is None else timeout_s
        self.starting = True
        try:
            await self.launch()
            with trio.move_on_after(patience_s):
                while not await self.is_up():
                    if not self.running and self.expected:
                        self.expected = False
                        raise StartFailed(f"{self.name} ended with exit code {self.exit_code} before it was up\n"
                                          f"{self.tail()}")
                    await trio.sleep(POLL_S)
                return
        finally:
            self.starting = False
        raise StartFailed(f"{self.name} was not up within {patience_s:g} s ({self.ready.words})\n{self.tail()}")

    async def is_up(self) -> bool:
        what = self.ready.what
        if not self.running:
            return False
        if self.ready.how == "line":
            return str(what) in self.printed()
        elif self.ready.how == "tcp":
            return await self._listens()
        elif self.ready.how == "http":
            return await trio.to_thread.run_sync(_answers, str(what))
        with trio.move_on_after(PAGE_S):
            try:
                done = await trio.run_process(list(what), check=False, capture_stdout=True, capture_stderr=True)
            except OSError as error:
                raise StartFailed(f"{self.name}: [ready] command: {what[0]}: {error.strerror}") from None
            return not done.returncode
        return False

    async def kill(self) -> None:
        """Sends SIGKILL to the whole group; returns when the process is gone."""
        self.expected = False
        self.send(signal.SIGKILL)
        await super().kill()

    async def stop(self, *, timeout_s: float = 20.0) -> None:
        """Stops it as its target says, and with SIGKILL where that takes too long."""
        self.expected = False
        with trio.move_on_after(timeout_s):
            self.send(self.stop_signal)
            if self._process is not None:
                await self._process.wait()
        await self.kill()

    def pause(self) -> None:
        """Sends SIGSTOP to the whole group, if it runs."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Sends SIGCONT to the whole group, if it runs."""
        self.send(signal.SIGCONT)

    def send(self, which: signal.Signals) -> None:
        """Sends a signal to all processes of the node, if any runs."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, which)

    async def wipe(self) -> None:
        """Removes its data, but not the directory, which may be a disk of its own."""
        assert not self.running
        await trio.to_thread.run_sync(empty, self.data)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PAGE_S) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError, HTTPException):
        return False
