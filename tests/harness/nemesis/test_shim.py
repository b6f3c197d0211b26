"""The shim, in real processes of Python and Java; and whom it does not concern."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

from harness.nemesis import compiling, shim
from harness.nemesis.errors import NotHere
from harness.nemesis.shim import Shim, Trouble, WrongBy, bypassed

HOUR_NS = 3_600 * 10**9
NEAR_NS = 60 * 10**9
"""A busy machine answers within this."""
PYTHON = """
import os, sys, threading, time
data = sys.argv[1]
fd, event = os.open(data + "/f", os.O_CREAT | os.O_RDWR), threading.Event()
def outside():
    with open(data + "/../outside", "w") as file:
        file.write("x")
        file.flush()
        os.fsync(file.fileno())
what = {"write": lambda: os.pwrite(fd, b"x", 0), "sync": lambda: os.fsync(fd), "outside": outside,
        "clock": time.time_ns, "wait": lambda: event.wait(0.1)}
print("up", flush=True)
for line in sys.stdin:
    try:
        print(what[line.strip()](), flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""
JAVA = """
import java.io.*; import java.nio.*; import java.nio.channels.*; import java.nio.file.*;
public class Served {
    public static void main(String[] args) throws Exception {
        Path data = Path.of(args[0]);
        FileChannel file = FileChannel.open(data.resolve("f"), StandardOpenOption.CREATE, StandardOpenOption.READ,
            StandardOpenOption.WRITE);
        MappedByteBuffer mapped = file.map(FileChannel.MapMode.READ_WRITE, 0, 4096);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Object lock = new Object();
        System.out.println("up");
        for (String line; (line = in.readLine()) != null;) {
            try {
                Object said = "None";
                switch (line) {
                    case "write": said = file.write(ByteBuffer.wrap(new byte[] {1}), 0); break;
                    case "sync": file.force(true); break;
                    case "map": mapped.put(0, (byte) 2); mapped.force(); break;
                    case "clock": said = System.currentTimeMillis() * 1000000; break;
                    case "wait": synchronized (lock) { lock.wait(100); } break;
                    case "outside": Files.write(data.resolve("../outside"), new byte[] {1}); break;
                }
                System.out.println(said);
            } catch (IOException | UncheckedIOException error) {
                System.out.println(error.getMessage());
            }
        }
    }
}
"""


@pytest.fixture
def made(tmp_path: Path) -> Shim:
    if why := shim.impossible():
        pytest.skip(f"NOT RUN: {why}")
    (tmp_path / "data").mkdir()
    return Shim.made(tmp_path / "page", tmp_path / "data")


@contextmanager
def asking(command: Sequence[str], made: Shim) -> Iterator[tuple[Callable[[str], str], int]]:
    with subprocess.Popen([*command, str(made.data)], env=os.environ | made.environment, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        def ask(what: str) -> str:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f"{what}\n")
            return process.stdout.readline().strip()

        assert process.stdout is not None and process.stdout.readline() == "up\n"
        try:
            yield ask, process.pid
        finally:
            process.kill()


def holds(made: Shim, ask: Callable[[str], str], syncs: Sequence[str]) -> None:
    """All that the shim does, in one process, begun and ended while it runs."""
    assert ask("write") == "1"
    full, broken = Trouble(writes_errno=errno.ENOSPC), Trouble(syncs_errno=errno.EIO)
    made.begin(full)
    assert "No space left on device" in ask("write")
    assert all(ask(sync) == "None" for sync in syncs)
    made.begin(broken)
    assert all("Input/output error" in ask(sync) for sync in syncs)
    assert ask("outside") == "None", "files elsewhere are not concerned"
    made.end(full)
    made.end(full)
    assert (ask("write"), ask("sync")) == ("1", "Input/output error")
    made.end(broken)
    slow = Trouble(write_ms=30, sync_ms=60)
    made.begin(slow)
    for sync in ("write", *syncs):
        began = time.monotonic()
        ask(sync)
        assert time.monotonic() - began >= (0.03 if sync == "write" else 0.06)
    made.end(slow)
    for trouble, what in ((Trouble(writes_wait=True), "write"), *((Trouble(syncs_wait=True), sync) for sync in syncs)):
        made.begin(trouble)
        ended: list[Trouble] = []

        def end(trouble: Trouble = trouble, ended: list[Trouble] = ended) -> None:
            ended.append(trouble)
            made.end(trouble)

        Timer(0.1, end).start()
        assert ask(what) in ("1", "None")
        assert ended, "it waited for the end"
    for ahead_ns in (HOUR_NS, -HOUR_NS):
        step = WrongBy(ahead_ns=ahead_ns)
        made.set_wrong(step)
        assert abs(int(ask("clock")) - time.time_ns() - ahead_ns) < NEAR_NS
        began = time.monotonic()
        ask("wait")
        assert 0.09 <= time.monotonic() - began < 60, "who waits waits as long as ever"
        made.set_right(step)
    drift = WrongBy(gains_ppm=1e6, since_ns=time.time_ns() - HOUR_NS)
    made.set_wrong(drift)
    assert abs(int(ask("clock")) - time.time_ns() - HOUR_NS) < NEAR_NS
    made.set_right(drift)
    made.set_right(drift)
    assert abs(int(ask("clock")) - time.time_ns()) < NEAR_NS


def test_python_s_disk_fails_and_its_clock_is_wrong(made: Shim) -> None:
    with asking([sys.executable, "-c", PYTHON], made) as (ask, pid):
        holds(made, ask, ["sync"])
        assert bypassed(pid) == ""


@pytest.mark.java
@pytest.mark.slow
def test_java_s_disk_fails_and_its_clock_is_wrong(made: Shim, tmp_path: Path) -> None:
    """What it maps fails when it is synced."""
    if shutil.which("java") is None:
        pytest.skip("NOT RUN: Java missing")
    (tmp_path / "Served.java").write_text(JAVA)
    with asking(["java", str(tmp_path / "Served.java")], made) as (ask, pid):
        holds(made, ask, ["sync", "map"])
        assert bypassed(pid) == ""


def test_whom_it_does_not_concern_is_said(made: Shim) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as without:
        assert "cat does not load the shim" in bypassed(without.pid)
    gofmt = shutil.which("gofmt")
    if gofmt is None:
        pytest.skip("NOT RUN in part: no Go program here")
    with subprocess.Popen([gofmt], stdin=subprocess.PIPE, env=os.environ | made.environment) as go:
        assert "gofmt" in bypassed(go.pid)
    assert bypassed(0) == ""


def test_without_a_compiler_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no C compiler (cc, gcc, clang)" in shim.impossible()


def test_a_source_that_does_not_compile_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "broken.c"
    source.write_text("int main(")
    if not any(map(shutil.which, compiling.COMPILERS)):
        pytest.skip("NOT RUN: no C compiler")
    with pytest.raises(NotHere, match=r"broken.c cannot be built: .*broken.c"):
        compiling.library(source)
