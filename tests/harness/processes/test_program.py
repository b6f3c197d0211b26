"""What a program printed, as reports; what is not there yet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from harness.processes.handle import running
from harness.processes.program import Program

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
