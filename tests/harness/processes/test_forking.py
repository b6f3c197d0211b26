"""Programs that are forked: they are what they would be if an interpreter had been started for each."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from harness.processes import forking
from harness.processes.handle import Handle, running
from remoting.daemon.child import child

TELLS = """
import json, os, sys
def main():
    print(json.dumps([os.getcwd(), sys.argv, os.environ.get("ASKED"), os.getsid(0) == os.getpid()]), flush=True)
    if sys.argv[1] == "stays":
        sys.stdin.read()
    return int(sys.argv[2])
"""




def can(command: list[str], monkeypatch: pytest.MonkeyPatch, **variables: str) -> bool:
    for name in (forking.FORKS, forking.COVERAGE):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return forking.can_fork(command)


def test_what_can_be_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [*child("broker.cli"), "-h"]
    assert can(ours, monkeypatch, QUORATE_FORKS="1")
    assert not can(ours, monkeypatch)
    assert not can(ours, monkeypatch, QUORATE_FORKS="1", COVERAGE_PROCESS_START="x")
    assert not can(["java", "-jar", "x"], monkeypatch, QUORATE_FORKS="1")
    assert not can([sys.executable, "-P", "-c", "print('x')"], monkeypatch, QUORATE_FORKS="1")


@pytest.fixture(autouse=True)
def _forks_though_coverage_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(forking.COVERAGE, raising=False)


def told(folder: Path, *arguments: str) -> Handle:
    (folder / "told.py").write_text(TELLS)
    path = f"sys.path.insert(0, {str(folder)!r})"
    return Handle("told", folder / "here", [sys.executable, "-P", "-c", (
        f"import sys; {path}; from told import main; sys.exit(main())"), *arguments], "", "[",
        variables={"ASKED": "yes", "PYTHONPATH": str(folder)})


async def test_it_has_its_own_folder_arguments_environment_and_session(tmp_path: Path) -> None:
    handle = told(tmp_path, "ends", "7")
    await handle.launch()
    assert isinstance(handle._process, forking.Forked)
    assert await handle.wait() == 7 == await handle.wait()
    assert json.loads(handle.printed()) == [str(tmp_path / "here"), ["-c", "ends", "7"], "yes", True]
    await handle.kill()


async def test_one_that_is_killed_is_gone_and_its_code_says_how(tmp_path: Path) -> None:
    handle = told(tmp_path, "stays", "0")
    async with running(handle):
        codes: list[int] = []
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(append, codes, handle)
            await trio.testing.wait_all_tasks_blocked()
            os.kill(handle.pid, signal.SIGKILL)
        assert codes == [-signal.SIGKILL] * 2 and not handle.running


async def append(codes: list[int], handle: Handle) -> None:
    codes.append(await handle.wait())


async def test_it_ends_with_its_standard_input(tmp_path: Path) -> None:
    async with running(told(tmp_path, "stays", "3")) as handle:
        assert handle._process is not None
        assert handle._process.stdin is not None
        await handle._process.stdin.aclose()
        assert await handle.wait() == 3


async def test_what_raises_says_so_where_it_prints(tmp_path: Path) -> None:
    handle = told(tmp_path, "ends", "nothing")
    await handle.launch()
    assert await handle.wait() == 1
    assert "ValueError: invalid literal for int()" in handle.printed()


async def test_it_is_waited_for_where_many_files_are_open(tmp_path: Path) -> None:
    """``select`` raises ``ValueError`` for the 1,025th file of a process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    held: list[int] = []
    try:
        while not held or held[-1] < 1_100:
            held.append(os.dup(0))
        async with running(told(tmp_path, "stays", "3")) as handle:
            assert isinstance(handle._process, forking.Forked) and handle._process._handle > 1_100
            assert handle.running and handle._process.stdin is not None
            await handle._process.stdin.aclose()
            assert await handle.wait() == 3
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
