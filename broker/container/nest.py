"""The nest: a small process that has imported the whole program, and forks the brokers' processes.

So the brokers share the program's memory, and start quickly. The nest has one thread and no event loop, since a fork
copies only the thread that calls it. It ends with the supervisor; the brokers do not.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from broker.boot import boot_id
from broker.container.records import Record
from broker.relay.guardian import CONTAINED, Child, told
from broker.siblings.sockets import SIBLINGS
from remoting.daemon.child import child, live
from remoting.daemon.files import DiskFiles
from remoting.daemon.identity import born

logger = logging.getLogger("broker.container")

_MESSAGE_MAX: Final = 64 << 10
_DESCRIPTORS_MAX: Final = 16
_CODE_WAIT_S: Final = 1.0
"""Longest wait for the exit code after the end of a process is known."""
_AGAIN_S: Final = 1.0
_NAME_MAX: Final = 15
"""Characters that the system keeps of a process's name."""


@attrs.frozen
class Birth:
    """The order to start one broker's process."""

    broker: str
    title: str
    """Name of the process; only its last 15 characters are used."""
    path: str
    """Path of its configuration file."""
    arguments: Sequence[str]
    """Arguments of the command ``mqbroker``."""
    record: str
    """Path of its record, see ``records``."""
    out: str
    """Path of the file for its standard output and error."""
    siblings: str
    """Path of the directory of the container's sockets."""


# --- the supervisor's side -------------------------------------------------------------------------------------------


class Process:
    """Implements ``Child`` for any process, by a pidfd: that never refers to another process with the same id."""

    def __init__(self, pid: int, handle: int, exit_code: _ExitCode | None = None) -> None:
        """Takes ownership of ``handle``, a pidfd. ``exit_code`` will hold the code if the nest forked the process."""
        self._pid, self._handle, self._exit_code = pid, handle, exit_code
        self._gone = trio.Event()
        self._code: int | None = None
        self._waits = False

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def returncode(self) -> int | None:
        return self._code

    def poll(self) -> int | None:
        return self._code

    def send_signal(self, number: int, /) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._handle >= 0:
                signal.pidfd_send_signal(self._handle, number)

    async def wait(self) -> int | None:
        """Wait for the end, as ``Child`` says; several tasks may wait."""
        if self._waits:
            await self._gone.wait()
            return self._code
        self._waits = True
        await trio.lowlevel.wait_readable(self._handle)
        if self._exit_code is not None:
            with trio.move_on_after(_CODE_WAIT_S):
                await self._exit_code.known.wait()
            self._code = self._exit_code.code
        self._gone.set()
        return self._code

    def close(self) -> None:
        os.close(self._handle)
        self._handle = -1


@attrs.define
class _ExitCode:
    known: trio.Event = attrs.field(factory=trio.Event)
    code: int | None = None


@attrs.define
class _Asked:
    answered: trio.Event = attrs.field(factory=trio.Event)
    process: Process | None = None


@asynccontextmanager
async def adopted(process: Process) -> AsyncGenerator[Child]:
    try:
        yield process
    finally:
        process.close()


def found(record: Record) -> Process | None:
    """The process of a record; None: it has ended."""
    try:
        handle = os.pidfd_open(record.pid)
    except OSError:
        return None
    if record.means(born(record.pid), boot_id()):  # compared after the open, so the handle is of that process
        return Process(record.pid, handle)
    os.close(handle)
    return None


class Nest:
    """The supervisor's side of the nest: keeps its process running, and asks it for new ones."""

    def __init__(self) -> None:
        self._socket: trio.socket.SocketType | None = None
        self._there = trio.Event()
        self._asked: dict[int, _Asked] = {}
        self._codes: dict[int, _ExitCode] = {}
        self._count = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the nest's process running until cancelled. ``started`` is called at once."""
        task_status.started()
        while True:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours:
                with theirs:
                    process = await trio.lowlevel.open_process(
                        [*child("broker.container.nest"), str(theirs.fileno())], pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL)
                self._socket = trio.socket.from_stdlib_socket(ours)
                self._there.set()
                try:
                    await self._listen(self._socket)
                finally:
                    self._socket, self._there = None, trio.Event()
                    asked, self._asked = self._asked, {}
                    for each in asked.values():
                        each.answered.set()
            logger.error("the process that starts brokers ended; another one is started, and brokers run on",
                         extra={"exit_code": await process.wait()})
            await trio.sleep(_AGAIN_S)

    async def _listen(self, sock: trio.socket.SocketType) -> None:
        while True:
            try:
                data, ancillary, _, _ = await sock.recvmsg(_MESSAGE_MAX, socket.CMSG_SPACE(4))
            except OSError:
                return
            if not data:
                return
            said = json.loads(data)
            if "code" in said:
                if (exit_code := self._codes.pop(said["pid"], None)) is not None:
                    exit_code.code = said["code"]
                    exit_code.known.set()
                continue
            asked = self._asked.pop(said["number"], None)
            handles = _descriptors(ancillary)
            if asked is None or not handles:
                for handle in handles:
                    os.close(handle)
            else:
                exit_code = self._codes[said["pid"]] = _ExitCode()
                asked.process = Process(said["pid"], handles[0], exit_code)
            if asked is not None:
                asked.answered.set()

    @asynccontextmanager
    async def launched(self, start: Birth, ready: int, sockets: Sequence[int]) -> AsyncGenerator[Child]:
        """Start a broker's process, which survives the supervisor. Raises ``OSError``."""
        await self._there.wait()
        assert self._socket is not None
        self._count += 1
        number, asked = self._count, _Asked()
        self._asked[number] = asked
        request = json.dumps({"number": number, **attrs.asdict(start)}).encode()
        await self._socket.sendmsg([request], [(
            socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [ready, *sockets]).tobytes())])
        try:
            await asked.answered.wait()
        finally:
            self._asked.pop(number, None)
        if asked.process is None:
            raise OSError(f"no process for {start.broker}: the nest has ended, or the system cannot fork")
        try:
            yield asked.process
        finally:
            asked.process.close()


def _descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    found: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers = array.array("i")
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
            found += numbers
    return found


# --- the nest's side -------------------------------------------------------------------------------------------------


def main() -> int:
    """Run the nest: fork for each request on the socket whose number is the argument, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's interrupt is for the supervisor
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _import_all()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.collect()
    gc.freeze()  # a garbage collection would write to memory that all processes share, and so copy it
    with socket.socket(fileno=int(sys.argv[1])) as control:
        ends = select.poll()  # the number of an end may be above 1,023, which select does not take
        ends.register(control, select.POLLIN)
        ends.register(wake, select.POLLIN)
        while True:
            ready = {number for number, _ in ends.poll()}
            if wake in ready:
                os.read(wake, 4096)
                _tell_of_ends(control)
            if control.fileno() in ready and not _answer(control, (wake, woken)):
                return 0


def _import_all() -> None:
    """Import all modules that a broker may need, and build its command line once."""
    import broker.cli
    import broker.metrics

    with contextlib.suppress(ModuleNotFoundError):  # the extra for metrics
        import raft.monitoring  # noqa: F401
    broker.cli.parser()


def _tell_of_ends(control: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with contextlib.suppress(BrokenPipeError):
                control.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _answer(control: socket.socket, others: Sequence[int]) -> bool:
    """Answer one request. False: the socket is closed."""
    data, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_MAX, _DESCRIPTORS_MAX)
    if not data:
        return False
    request: dict[str, Any] = json.loads(data)
    number = request.pop("number")
    try:
        pid = os.fork()
    except OSError as error:
        traceback.print_exception(error)
        control.send(json.dumps({"number": number, "pid": 0}).encode())
    else:
        if not pid:
            signal.set_wakeup_fd(-1)
            for each in (control.detach(), *others):
                os.close(each)
            live(lambda: _live(Birth(**request), descriptors))
        handle = os.pidfd_open(pid)  # only this thread waits for children, so the pid cannot be reused yet
        socket.send_fds(control, [json.dumps({"number": number, "pid": pid}).encode()], [handle])
        os.close(handle)
    for each in descriptors:
        os.close(each)
    return True


def _live(start: Birth, descriptors: Sequence[int]) -> int:
    """Become a broker; returns its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    _redirect(Path(start.out))
    pid = os.getpid()
    DiskFiles().replace(start.record, Record(start.path, start.broker, pid, born(pid), boot_id()).to_json())
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(start.title[-_NAME_MAX:])
    os.environ[CONTAINED] = start.broker
    os.environ[SIBLINGS] = start.siblings
    os.environ.update(told(descriptors[0], descriptors[1:]))
    import broker.cli

    return broker.cli.main(list(start.arguments))


def _redirect(out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    os.dup2(nothing, 0)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(nothing)
    os.close(written)
