"""Processes, started until ready, killed, frozen and looked at: small Python programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import trio

from harness.processes.errors import NotRunning, StartFailed
from harness.processes.handle import Handle, running

SERVER = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("boot", "success", flush=True)
while sys.stdin.read(1):
    pass
"""
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"


def process(
    directory: Path, script: str, *arguments: str, address: str = "", ready: str = "boot success",
) -> Handle:
    return Handle("a peer", directory, [sys.executable, "-c", script, *arguments], address, ready)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_started_killed_and_started_again(tmp_path: Path, free_port: int) -> None:
    peer = process(tmp_path / "peer", SERVER, str(free_port), address=f"127.0.0.1:{free_port}")
    async with running(peer):
        first = peer.pid
        await peer.kill()
        assert gone(first)
        await peer.kill()  # nothing happens

        await peer.start()
        assert peer.pid != first
        assert peer.printed() == "boot success\n", "of this start alone"
        assert peer.out.read_text() == "boot success\n" * 2
        second = peer.pid
    assert gone(second), "killed at the end of the context"


async def test_the_leash(tmp_path: Path, free_port: int) -> None:
    """A process sees its standard input end when whoever started it is gone."""
    peer = process(tmp_path, SERVER, str(free_port), address=f"127.0.0.1:{free_port}")
    async with running(peer):
        assert peer._process is not None
        assert peer._process.stdin is not None
        await peer._process.stdin.aclose()
        assert await peer.wait() == 0


async def test_one_that_ends_is_quoted(tmp_path: Path) -> None:
    peer = process(tmp_path, "print('the port is taken'); raise SystemExit(3)")
    with pytest.raises(StartFailed, match=r"a peer ended with exit code 3 before it was ready\nthe port is taken"):
        await peer.start()


async def test_one_that_is_never_ready_is_killed(tmp_path: Path) -> None:
    peer = process(tmp_path, DEAF, ready="never said")
    await peer.launch()
    pid = peer.pid
    with pytest.raises(StartFailed, match="a peer was not ready within 0 s"):
        await peer.wait_ready(timeout_s=0.01)
    assert gone(pid)


async def test_stop_asks_first_and_kills_the_deaf(tmp_path: Path) -> None:
    polite, deaf = process(tmp_path / "1", "input()"), process(tmp_path / "2", DEAF, ready="up")
    await polite.launch()
    await polite.stop()
    assert await polite.wait() == -15
    await deaf.start()
    await deaf.stop(timeout_s=0.01)
    assert await deaf.wait() == -9


async def test_frozen_and_thawed(tmp_path: Path) -> None:
    peer = process(tmp_path, DEAF, ready="up")
    async with running(peer):
        def state() -> str:
            return Path(f"/proc/{peer.pid}/stat").read_text().rpartition(")")[2].split()[0]

        peer.pause()
        while state() != "T":
            await trio.lowlevel.checkpoint()
        peer.resume()
        while state() == "T":
            await trio.lowlevel.checkpoint()
        peer.pause()
    assert not peer.running, "one that is frozen is killed as well"


async def test_what_needs_a_running_process_says_so(tmp_path: Path) -> None:
    peer = process(tmp_path, "")
    for ask in (peer.pause, peer.resume, lambda: peer.pid):
        with pytest.raises(NotRunning, match="a peer does not run"):
            ask()
    with pytest.raises(NotRunning, match="never started"):
        await peer.wait()
    assert peer.printed() == ""


async def test_a_second_start_is_refused(tmp_path: Path) -> None:
    async with running(process(tmp_path, DEAF, ready="up")) as peer:
        with pytest.raises(StartFailed, match="a peer runs already"):
            await peer.launch()
