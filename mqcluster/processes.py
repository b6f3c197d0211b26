"""Servers that live on after the command that started them: files, processes, signals.

A cluster is a directory with ``cluster.json``, which remembers who was started as which process. It knows processes
and files, and nothing of what the servers say.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from mqcluster.plan import Kind, Planned, from_json, to_json
from remoting.daemon.child import child
from remoting.daemon.identity import born

FILE: Final = "cluster.json"
READY: Final = "boot success"
"""Text that every server prints when it serves."""
POLL_S: Final = 0.02


class ClusterError(Exception):
    """The command could not do what was asked; the message says why and what to do."""


@attrs.define(eq=False)
class Server:
    """One server and its process, if it has one."""

    plan: Planned
    home: Path
    prefix: Sequence[str] = ()
    """Words before its command that start it on another host, such as ``ip netns exec``. They end in its exec."""
    pid: int = 0
    born: str = ""
    """When the system says that process began: another one may have its number by now."""
    printed: int = 0
    """Bytes of ``out.log`` from earlier starts."""

    @property
    def out(self) -> Path:
        return self.home / "out.log"

    @property
    def running(self) -> bool:
        return self.born != "" and born(self.pid) == self.born

    @property
    def command(self) -> Sequence[str]:
        """Command that starts it on its host."""
        return [*child(self.plan.kind.value), "-c", str(self.file)]

    @property
    def file(self) -> Path:
        """Path of its configuration file."""
        return self.home / "server.conf"

    def start(self) -> None:
        """Launch it, detached. Raises ``ClusterError`` when it runs."""
        if self.running:
            raise ClusterError(f"{self.plan.name} runs already, as process {self.pid}")
        self.home.mkdir(parents=True, exist_ok=True)
        self.printed = self.out.stat().st_size if self.out.exists() else 0
        with self.out.open("ab") as out:
            process = subprocess.Popen(
                [*self.prefix, *self.command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=self.home, start_new_session=True)
        self.pid, self.born = process.pid, born(process.pid)
        _reap_later(process)

    @property
    def ready(self) -> bool:
        """Return whether it has said since its start that it serves."""
        with self.out.open("rb") as out:
            out.seek(self.printed)
            return READY in out.read().decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Returns when it is gone, if that is SIGKILL. Raises ``ClusterError`` when it does not run."""
        if not self.running:
            raise ClusterError(f"{self.plan.name} does not run")
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            raise ClusterError(f"{self.plan.name} has just ended") from None
        while number == signal.SIGKILL and self.running:  # wait until the system has freed its files and ports
            time.sleep(POLL_S)

    def tail(self, lines: int = 10) -> str:
        """Return the last lines that it said since its start."""
        if not self.out.exists():
            return ""
        return "\n".join(self.out.read_bytes()[self.printed :].decode(errors="replace").splitlines()[-lines:])


@attrs.define(eq=False)
class Cluster:
    """The servers of one directory."""

    root: Path
    servers: dict[str, Server]

    @classmethod
    def create(cls, root: Path, planned: list[Planned]) -> Cluster:
        """Write the configuration of each server."""
        for each in planned:
            server = Server(each, root / each.name)
            server.home.mkdir(parents=True, exist_ok=True)
            server.file.write_text(each.file)
        made = cls(root, {each.name: Server(each, root / each.name) for each in planned})
        made.save()
        return made

    @classmethod
    def load(cls, root: Path) -> Cluster:
        """Raises ``ClusterError`` when there is none."""
        try:
            data = json.loads((root / FILE).read_text())
            planned = from_json(data["servers"])
            ran: dict[str, Any] = data["processes"]
            return cls(root, {each.name: Server(each, root / each.name, **ran.get(each.name, {})) for each in planned})
        except FileNotFoundError:
            raise ClusterError(f"{root} holds no cluster: `mqcluster up` makes one, --dir names another") from None
        except (AttributeError, ValueError, KeyError, TypeError) as error:
            raise ClusterError(f"{root / FILE} cannot be read: {error}; `mqcluster up --dir` makes another") from None

    def save(self) -> None:
        """Write down which processes run."""
        text = json.dumps({
            "servers": to_json(self.plan),
            "processes": {name: {"pid": each.pid, "born": each.born, "printed": each.printed}
                          for name, each in self.servers.items()}}, indent=1)
        draft = self.root / f"{FILE}.{threading.get_ident()}.new"  # threads may save at the same time
        draft.write_text(text)
        draft.replace(self.root / FILE)

    @property
    def plan(self) -> list[Planned]:
        """Plans of all servers in order."""
        return [each.plan for each in self.servers.values()]

    def of_kind(self, kind: Kind) -> list[Server]:
        return [each for each in self.servers.values() if each.plan.kind is kind]

    def start(self, servers: Iterable[Server], patience_s: float = 60.0) -> None:
        """Start those that do not run, and wait until all serve. Raises ``ClusterError``, with what one said last."""
        started = [each for each in servers if not each.running]
        for each in started:
            each.start()
        self.save()
        until = time.monotonic() + patience_s
        for each in started:
            while not each.ready:
                if not each.running:
                    raise ClusterError(f"{each.plan.name} ended before it served:\n{each.tail()}")
                if time.monotonic() > until:
                    raise ClusterError(f"{each.plan.name} does not serve after {patience_s:g} s:\n{each.tail()}")
                time.sleep(POLL_S)

    def stop(self, servers: Iterable[Server], patience_s: float = 20.0) -> None:
        """End them in order (SIGTERM), and with SIGKILL who takes too long."""
        ending = [each for each in servers if each.running]
        for each in ending:
            with suppress(ClusterError):  # it may have ended by itself
                each.signal(signal.SIGCONT)  # a process under SIGSTOP takes no SIGTERM
                each.signal(signal.SIGTERM)
        until = time.monotonic() + patience_s
        for each in ending:
            while each.running and time.monotonic() < until:
                time.sleep(POLL_S)
            with suppress(ClusterError):
                each.signal(signal.SIGKILL)


def _reap_later(process: subprocess.Popen[bytes]) -> None:
    """Nobody waits for a server that is to outlive this program."""
    process.returncode = 0
