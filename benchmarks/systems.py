"""The systems that stand side by side, each as three processes behind one small interface: ``prepare``, then ``run``.

Knows how to start them and where their rows come out; knows nothing of what the figures mean. A system that cannot
run here says why, and the report repeats it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Protocol

import attrs
import trio

from benchmarks.cluster import free_ports, open_cluster
from benchmarks.measure import Row

HERE = Path(__file__).parent
START_S = 60.0
"""Longest time from start to the first row, elections and warm-up included."""


@attrs.frozen
class Load:
    """What a run measures: proposals of ``size_bytes`` by each width of callers, for ``seconds`` each."""

    widths: tuple[int, ...]
    size_bytes: int
    seconds: float

    def flags(self) -> list[str]:
        return ["--widths", ",".join(map(str, self.widths)), "--size", str(self.size_bytes),
                "--seconds", str(self.seconds)]


class System(Protocol):
    """One of the columns of the table."""

    name: str
    note: str
    """What a reader of its figures must know."""

    def prepare(self) -> str | None:
        """Build what is needed; returns why this system cannot run here, or None."""

    def run(self, directory: Path, load: Load) -> list[Row]:
        """Start it on an empty directory, measure, end it."""


@attrs.define
class Floor:
    """Our own pipeline without Raft."""

    name: str = "floor"
    note: str = "three processes, fdatasync on each, no Raft: the most that trio and this disk allow"

    def prepare(self) -> str | None:
        return None

    def run(self, directory: Path, load: Load) -> list[Row]:
        command = [sys.executable, "-m", "benchmarks.floor", "--dir", str(directory), *load.flags()]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return [Row.read(line) for line in output.splitlines()]


@attrs.define
class Ours:
    """This library through its public API."""

    name: str = "ours"
    note: str = "sync=always on all three voters, StrictRules, default configuration"

    def prepare(self) -> str | None:
        return None

    def run(self, directory: Path, load: Load) -> list[Row]:
        return trio.run(self._run, directory, load)

    async def _run(self, directory: Path, load: Load) -> list[Row]:
        async with open_cluster(directory) as cluster:
            leader = await cluster.leader()
            return [
                Row(**await leader.ask("propose", width=width, size_bytes=load.size_bytes, seconds=load.seconds))
                for width in load.widths
            ]


@attrs.define
class ThreeProcesses:
    """A program of which three copies form a group; it takes the flags of ``Load`` and prints rows, then ``done``."""

    name: str
    note: str
    command: tuple[str, ...]
    widths_max: int = 1 << 30
    complaints: int = 0
    """Lines it wrote to stderr, over all runs."""

    def prepare(self) -> str | None:
        return None

    def run(self, directory: Path, load: Load) -> list[Row]:
        load = attrs.evolve(load, widths=tuple(width for width in load.widths if width <= self.widths_max))
        if not load.widths:
            return []
        ports = ",".join(map(str, free_ports(3)))
        rows: list[Row] = []
        done = threading.Event()
        processes = []
        for number in range(3):
            own = directory / str(number)
            own.mkdir()
            processes.append(subprocess.Popen(
                [*self.command, "--id", str(number), "--ports", ports, "--dir", str(own), *load.flags()],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            ))
        readers = [threading.Thread(target=self._read, args=(process, rows, done)) for process in processes]
        readers += [threading.Thread(target=self._count, args=(process,)) for process in processes]
        for reader in readers:
            reader.start()
        done.wait(START_S + 2 * len(load.widths) * load.seconds)
        for process in processes:
            process.kill()
            process.wait()
        for reader in readers:
            reader.join()
        return rows

    @staticmethod
    def _read(process: subprocess.Popen[str], rows: list[Row], done: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                rows.append(Row.read(line))
            elif line.startswith("done"):
                done.set()

    def _count(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for _ in process.stderr:
            self.complaints += 1


@attrs.define
class GoProgram(ThreeProcesses):
    """The same, built from ``benchmarks/go`` first."""

    def prepare(self) -> str | None:
        go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
        if go is None:
            return "Go is not installed here"
        source = HERE / "go" / self.name
        built = subprocess.run(
            [go, "build", "-o", "bin/peer", "."], cwd=source, check=False, capture_output=True, text=True
        )
        self.command = (str(source / "bin" / "peer"),)
        return f"go build failed: {built.stderr.strip()[-300:]}" if built.returncode else None


@attrs.define
class PySyncObj(ThreeProcesses):
    """One documented mode of it."""

    def prepare(self) -> str | None:
        found = subprocess.run([sys.executable, "-c", "import pysyncobj"], check=False, capture_output=True)
        return "PySyncObj is not installed here" if found.returncode else None


def pysyncobj(mode: str, note: str, widths_max: int = 1 << 30) -> PySyncObj:
    command = (sys.executable, "-m", "benchmarks.pysyncobj_node", "--mode", mode)
    return PySyncObj(f"pysyncobj-{mode}", note, command, widths_max)


def every_system() -> list[System]:
    """All columns, in the order of the table."""
    return [
        Floor(),
        Ours(),
        GoProgram("hashicorp", "hashicorp/raft 1.7.3 with raft-wal 0.4.2, fsync on", ()),
        GoProgram("dragonboat", "dragonboat v4, its default log store, fsync on", ()),
        pysyncobj("batch", "PySyncObj 0.3.17 as it comes (batching), callbacks, nothing on disk"),
        pysyncobj("single", "PySyncObj 0.3.17 with appendEntriesUseBatch=False, callbacks, nothing on disk", 1),
        pysyncobj("quick", "PySyncObj 0.3.17, batching with 2 ms ticks: not a documented mode; its warnings say "
                           "that replicas may have diverged"),
    ]


def run_once(system: System, root: Path, load: Load) -> list[Row]:
    """One run on a directory of its own, removed afterwards."""
    directory = root / f"{system.name}-{time.monotonic_ns()}"
    directory.mkdir(parents=True)
    try:
        return system.run(directory, load)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
