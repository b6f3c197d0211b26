"""Starts our programs as forks of a process that has imported them: a start takes a twentieth of the processor time.

    python -P -c CODE ARGUMENTS     runs as this would, in a session of its own

Each process has one fork server, made when it is first needed. The server has one thread and no event loop, and reaps a
child only on request, so that a process id is not reused. It ends with the connection; its children live on. ``FORKS``
in the environment turns it on, for tests, which start hundreds of servers.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import trio

from remoting.daemon.child import child, live

FORKS: Final = "QUORATE_FORKS"
COVERAGE: Final = "COVERAGE_PROCESS_START"
_START: Final = [sys.executable, "-P", "-c"]
_MODULE: Final = re.compile(r"from ([\w.]+) import main")
"""Finds the module in the code that ``remoting.daemon.child`` makes."""
_MESSAGE_MAX: Final = 64 << 10


def can_fork(command: Sequence[str]) -> bool:
    """Return whether forks are turned on and the command is our program. Coverage needs a new interpreter."""
    return (bool(os.environ.get(FORKS)) and COVERAGE not in os.environ and len(command) > len(_START)
            and [*command[:len(_START)]] == _START and _MODULE.search(command[len(_START)]) is not None)


# --- the client ------------------------------------------------------------------------------------------------------


class Forked:
    """The part of ``trio.Process`` that a handle needs, for a child of the fork server."""

    def __init__(self, server: _Server, pid: int, stdin: trio.lowlevel.FdStream) -> None:
        self.pid = pid
        self.stdin: trio.lowlevel.FdStream | None = stdin
        self.returncode: int | None = None
        self._server = server
        self._handle = os.pidfd_open(pid)  # the pid cannot be reused: the server reaps only on request

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        if self.returncode is None and _ended(self._handle):
            os.close(self._handle)
            self.returncode = self._server.ask({"reap": self.pid})
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    async def wait(self) -> int:
        """Wait for its end; returns its exit code, below 0 after a signal. Several tasks may wait."""
        while (code := self.poll()) is None:
            watched = os.dup(self._handle)
            try:
                await trio.lowlevel.wait_readable(watched)
            finally:
                os.close(watched)
        return code


def _ended(handle: int) -> bool:
    """Return whether the process of a handle has ended. ``poll``, as ``select`` takes no handle above 1,023."""
    asked = select.poll()
    asked.register(handle, select.POLLIN)
    return bool(asked.poll(0))


class _Server:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*child("harness.processes.forking"), str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, start_new_session=True)
        atexit.register(self._end)

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> int:
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        answer = self._socket.recv(_MESSAGE_MAX)
        if not answer:
            raise OSError("the process that starts others has ended")
        return int(json.loads(answer))

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


_servers: dict[int, _Server] = {}
"""Id of this process -> its fork server: a forked process does not share its parent's."""


def fork(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: int,
) -> Forked:
    """Run a command that ``can_fork``, with ``out`` as standard output and error. Raises ``OSError``."""
    server = _servers.get(os.getpid()) or _servers.setdefault(os.getpid(), _Server())
    reads, writes = os.pipe()
    try:
        pid = server.ask({"code": command[len(_START)], "arguments": [*command[len(_START) + 1:]], "cwd": str(cwd),
                          "env": {**env}}, [reads, out])
    finally:
        os.close(reads)
    return Forked(server, pid, trio.lowlevel.FdStream(writes))


# --- the server ------------------------------------------------------------------------------------------------------


def main() -> int:
    """Serve requests for forks on the socket whose number is the argument, until it closes."""
    with socket.socket(fileno=int(sys.argv[1])) as control:
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_MAX, 2)
            if not data:
                return 0
            request = json.loads(data)
            if "reap" in request:
                answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
            else:
                answer = _forked(control, request, descriptors)
            control.send(json.dumps(answer).encode())
            for each in descriptors:
                os.close(each)


def _forked(control: socket.socket, request: dict[str, Any], descriptors: Sequence[int]) -> int:
    found = _MODULE.search(request["code"])
    assert found is not None
    with contextlib.suppress(Exception):  # the child reports the error
        importlib.import_module(found[1])
    gc.collect()
    gc.freeze()  # a collection would write to pages shared with children
    pid = os.fork()
    if not pid:
        control.close()
        live(lambda: _live(request, descriptors))
    return pid


def _live(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Become the requested program, in the forked child."""
    os.setsid()
    for number, each in zip((0, 1, 2), (descriptors[0], descriptors[1], descriptors[1]), strict=True):
        os.dup2(each, number)
    for each in descriptors:
        os.close(each)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["-c", *request["arguments"]]
    exec(request["code"], {"__name__": "__main__"})  # noqa: S102  as ``python -c`` does
