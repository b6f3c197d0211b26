"""The tutorial, done as it says: its files, its commands, its output. Only ports and directories are our own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "replicated-counter.md"
STEP = re.compile(
    r"^<!-- (?P<verb>\w+)(?:: (?P<what>[^>]*?))? -->\n(?:```\w+\n(?P<code>.*?)^```$)?", re.MULTILINE | re.DOTALL)


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@attrs.define
class Reader:
    """Somebody who follows the page in an empty directory."""

    folder: Path
    ports: dict[str, str]
    nodes: dict[str, subprocess.Popen[bytes]] = attrs.Factory(dict)
    steps: list[str] = attrs.Factory(list)

    def do(self, verb: str, what: str, code: str) -> None:
        self.steps.append(verb)
        for written, here in self.ports.items():
            code = code.replace(written, here)
        getattr(self, verb)(what, code)

    def file(self, name: str, code: str) -> None:
        (self.folder / name).write_text(code)

    def run(self, name: str, output: str) -> None:
        assert self.python(name) == output

    def start(self, names: str, code: str) -> None:
        shutil.rmtree(self.folder / "data-n0")  # as the page says
        commands = code.splitlines()
        assert len(commands) == len(names.split())
        for name, command in zip(names.split(), commands, strict=True):
            python, script, argument = command.split()
            assert (python, argument) == ("python", name)
            with (self.folder / f"{name}.log").open("wb") as log:
                self.nodes[name] = subprocess.Popen(
                    [sys.executable, script, argument], cwd=self.folder, env=self.environment, stdout=log,
                    stderr=subprocess.STDOUT)

    def kill(self, what: str, code: str) -> None:
        assert what == "leader"
        text = subprocess.run(
            [sys.executable, "-m", "raft.cli", "--addresses", ",".join(self.ports.values()), "status"],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=30, check=True).stdout
        leader = next(line.split()[1] for line in text.splitlines() if line.split()[2] == "leader")
        self.nodes[leader].send_signal(signal.SIGKILL)
        self.nodes.pop(leader).wait()

    def test(self, what: str, code: str) -> None:
        (self.folder / "test_counter.py").write_text(code)
        self.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_counter.py")

    def python(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def leave(self) -> None:
        for node in self.nodes.values():
            node.kill()
            node.wait()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    ports = {f"127.0.0.1:{7000 + n}": f"127.0.0.1:{port}" for n, port in enumerate(free_ports(3))}
    someone = Reader(tmp_path, ports)
    yield someone
    someone.leave()


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(reader: Reader) -> None:
    started = time.monotonic()
    for step in STEP.finditer(PAGE.read_text()):
        reader.do(step["verb"], step["what"] or "", step["code"] or "")
    assert reader.steps == ["file", "run", "run", "file", "file", "start", "file", "run", "kill", "run", "test"]
    assert time.monotonic() - started < 60


def test_the_first_program_is_twelve_lines() -> None:
    code = next(step["code"] for step in STEP.finditer(PAGE.read_text()) if step["what"] == "counter.py")
    assert len([line for line in code.splitlines() if line.strip()]) == 12


def test_the_simulated_cluster_is_six_lines() -> None:
    code = next(step["code"] for step in STEP.finditer(PAGE.read_text()) if step["verb"] == "test")
    body = code[code.index("def test"):]
    assert len(body.splitlines()) <= 6
