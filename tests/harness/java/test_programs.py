"""Our Java programs from the outside: what a program printed, as reports; what it may not print yet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from harness.java import Program, programs
from harness.java.process import JVM, running

PRINTED = """\
SLF4J: No SLF4J providers were found.
{"event":"started","at_us":5}
{"event":"sent","sequence":0,"ok":true}
{"event":"sent","sequence":1,"ok":false,"error":"it said {\\"no\\"}"}
{"event":"sent","seque"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    script = f"print({PRINTED!r}, end='', flush=True); input()"
    return Program("send", tmp_path, [sys.executable, "-c", script], "", '"started"')


async def test_reports(program: Program) -> None:
    async with running(program):
        sent = await program.wait_for("sent", lambda found: len(found) == 2)
        assert sent == [
            {"event": "sent", "sequence": 0, "ok": True},
            {"event": "sent", "sequence": 1, "ok": False, "error": 'it said {"no"}'},
        ], "a line that is not complete yet is not there yet"
        assert program.reports() == [{"event": "started", "at_us": 5}, *sent]
        assert program.reports("ended") == []
        await program.kill()
        await program.start()
        assert program.reports()[0] == {"event": "started", "at_us": 5}, "of this start alone"
        assert len(program.reports()) == len(program.reports()) == 3


async def test_waiting_for_what_never_comes_ends(program: Program) -> None:
    async with running(program):
        with pytest.raises(trio.TooSlowError):
            await program.wait_for("ended", timeout_s=0.01)


def test_settings_become_system_properties() -> None:
    jvm = programs.with_settings(JVM(heap_mb=64, system={"a": "b"}), {"count": 5, "topic": "t"})
    assert (jvm.heap_mb, jvm.system) == (64, {"a": "b", "count": "5", "topic": "t"})


def test_every_program_is_run_and_every_setting_read() -> None:
    """The Java sources and their callers are kept in step: each setting that is given is one that is read."""
    python = Path(programs.__file__).read_text()
    source = {path.stem: path.read_text() for path in (Path(programs.__file__).parent / "src").glob("*.java")}
    for main, given in {
        "Send": ("namesrv", "topic", "count", "interval_ms", "timeout_ms", "retries", "body_bytes", "group"),
        "Exercise": ("namesrv", "rounds", "interval_ms", "patience_s"),
        "Receive": ("namesrv", "topic", "group"),
        "Route": ("namesrv", "topic", "interval_ms", "timeout_ms"),
        "Operate": ("namesrv", "broker", "topic", "cluster", "replica", "controllers"),
    }.items():
        assert f'"{main}"' in python
        for name in given:
            assert f'"{name}"' in python
            assert f'"{name}"' in source[main]
