"""A client of a run: a program that speaks lines of JSON, or a Python class. It knows no workload.

    to it    {"id": 1, "f": "write", "key": "k1", "value": 3, "timeout_ms": 2000}
    from it  {"id": 1, "type": "ok", "value": null}        or fail, or info, with "error" in words

It says ``{"ready": true}`` first, does one thing at a time, and ends when its standard input does. What it prints as an
error goes to its log. A program that answers too late, not in JSON or not at all leaves the outcome unknown, and is
started anew.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import attrs
import trio

from harness.checkers.chosen import NotChosen, beside, loaded
from harness.histories.jsonlines import exact
from harness.processes.handle import environment
from harness.torture.words import RunFailed
from harness.workloads.workload import LoadOp, LoadOutcome

READY_S: Final = 60.0
GROUP: Final = "quorate.clients"
"""Name of the entry points of users' classes."""
LATE_MS: Final = 1_000
"""Time that an answer may come later than its operation's own time-out."""
LINE_BYTES_MAX: Final = 64 << 20
_TYPES: Final = ("ok", "fail", "info")


class Failed(Exception):
    """A class's way to say that an operation surely did not happen. Any other error leaves it unknown."""


class RunClient(Protocol):
    """Does one operation at a time."""

    async def ask(self, op: LoadOp, timeout_ms: int) -> LoadOutcome:
        """Does one operation, and returns its outcome."""
        ...

    async def aclose(self) -> None:
        """Ends the client for good."""
        ...


@attrs.define(eq=False)
class ProgramClient:
    """A process. It is started when it is first asked, and again after it left an outcome unknown."""

    command: Sequence[str]
    directory: Path
    name: str
    variables: Mapping[str, str] = attrs.field(factory=dict)
    _process: trio.Process | None = attrs.field(default=None, init=False)
    _read: bytearray = attrs.field(factory=bytearray, init=False)
    _asked: int = attrs.field(default=0, init=False)

    async def open(self) -> None:
        """Starts the process, and waits until it is ready. Raises ``RunFailed``."""
        with (self.directory / f"{self.name}.log").open("ab") as log:
            try:
                self._process = await trio.lowlevel.open_process(
                    list(self.command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=self.directory,
                    env=environment() | dict(self.variables), start_new_session=True)
            except OSError as error:
                raise RunFailed(f"the client cannot be started: {self.command[0]}: {error.strerror}") from None
        self._read.clear()
        with trio.move_on_after(READY_S):
            said = await self._line()
            if isinstance(said, dict) and said.get("ready") is True:
                return
            await self.aclose()
            raise RunFailed(f'the client does not begin with {{"ready": true}} but with {said!r}; see {self.name}.log')
        await self.aclose()
        raise RunFailed(f"the client was not ready within {READY_S:g} s; see {self.name}.log")

    async def ask(self, op: LoadOp, timeout_ms: int) -> LoadOutcome:
        if self._process is None:
            try:
                await self.open()
            except RunFailed as error:
                return LoadOutcome("fail", None, str(error))
        self._asked += 1
        asked = {"id": self._asked, "f": op.f, "key": op.key, "value": op.value, "timeout_ms": timeout_ms}
        process = self._process
        assert process is not None and process.stdin is not None
        why = "no answer in time"
        with trio.move_on_after((timeout_ms + LATE_MS) / 1e3):
            try:
                await process.stdin.send_all(json.dumps(asked).encode() + b"\n")
                while True:
                    said = await self._line()
                    if isinstance(said, dict) and said.get("id") == self._asked and said.get("type") in _TYPES:
                        return LoadOutcome(said["type"], said.get("value"), said.get("error"))
                    if said is None:
                        why = "the client has ended"
                        break
                    why = f"no answer: {said!r}"
                    break
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                why = "the client has ended"
        await self.aclose()
        return LoadOutcome("info", None, why)

    async def _line(self) -> Any:
        """The next line as JSON; as bytes where it is none; None at the end."""
        assert self._process is not None and self._process.stdout is not None
        while (end := self._read.find(b"\n")) < 0:
            some = await self._process.stdout.receive_some(1 << 16)
            if not some or len(self._read) > LINE_BYTES_MAX:
                return None
            self._read += some
        line = bytes(self._read[:end])
        del self._read[:end + 1]
        try:
            return exact(line)
        except (ValueError, RecursionError):
            return line[:200]

    async def aclose(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with trio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()


@attrs.define(eq=False)
class ClassClient:
    """An object whose ``async do(f, key, value)`` gives a value, or raises ``Failed`` or anything else."""

    made: Any

    async def ask(self, op: LoadOp, timeout_ms: int) -> LoadOutcome:
        with trio.move_on_after(timeout_ms / 1e3):
            try:
                return LoadOutcome("ok", await self.made.do(op.f, op.key, op.value))
            except Failed as error:
                return LoadOutcome("fail", None, str(error))
            except Exception as error:  # noqa: BLE001 - any error of a user's code leaves the outcome unknown
                return LoadOutcome("info", None, f"{type(error).__name__}: {error}")
        return LoadOutcome("info", None, "no answer in time")

    async def aclose(self) -> None:
        if hasattr(self.made, "aclose"):
            await self.made.aclose()


def class_of(made_by: str, here: Path) -> Any:
    """Return the class that ``FILE.py:CLASS`` (a path below ``here``), ``module:Class`` or an entry point names.

    Raises ``RunFailed``.
    """
    try:
        made = loaded(beside(made_by, here), GROUP)
    except NotChosen as error:
        raise RunFailed(f"[client] class = {made_by!r}: {error}; a class beside the target is FILE.py:CLASS") from None
    if made is None:
        raise RunFailed(f"[client] class = {made_by!r} is nothing: FILE.py:CLASS beside the target, or module:Class")
    return made
