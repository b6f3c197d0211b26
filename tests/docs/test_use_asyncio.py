"""The page about asyncio: its blocks are one program, run as it is against a name server and a broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from harness.processes import ours

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "use-asyncio.md"


def printed(page: Path) -> str:
    """Its blocks."""
    return "\n\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL))


PROGRAM = printed(PAGE)


@pytest.mark.slow
async def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    async with ours.namesrv(tmp_path / "n") as namesrv, ours.broker(
            tmp_path / "b", "a", namesrv=[namesrv.address], controllers=[],
            extra={"brokerRole": "ASYNC_MASTER", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}):
        program = tmp_path / "program.py"
        assert PROGRAM.count("127.0.0.1:9876") == 3
        program.write_text(PROGRAM.replace("127.0.0.1:9876", namesrv.address))
        with trio.fail_after(90):
            ran = await trio.run_process(
                [sys.executable, "-X", "dev", program], capture_stdout=True, capture_stderr=True, check=False,
                env={**os.environ, "PYTHONPATH": str(ROOT)})
    said = ran.stderr.decode().replace("topic 'prices' has no route: no name server knows it\n", "")
    said = re.sub(r"^Executing <Handle .*> took \S+ seconds\n", "", said, flags=re.MULTILINE)  # of a slow machine
    assert ran.returncode == 0 and not said, said
    first, *others = ran.stdout.decode().splitlines()
    assert re.fullmatch(r"orders \d+", first)
    assert others == ["b'2 apples'", "Outcome.CONFIRMED", "archived", "b'2.10'"]


@pytest.mark.slow
def test_type_checkers_accept_the_programs(tmp_path: Path) -> None:
    """Of this page and of that on delays, together: most of the time goes into the packages that both import."""
    (tmp_path / "page.py").write_text(PROGRAM)
    (tmp_path / "delays.py").write_text(printed(PAGE.with_name("delay-and-transactions.md")))
    (tmp_path / "pyright.json").write_text(json.dumps(
        {"typeCheckingMode": "strict", "include": ["page.py", "delays.py"], "extraPaths": [str(ROOT)]}))
    for command in (["mypy", "--strict", "--cache-dir", ".mypy_cache", "page.py", "delays.py"],
                    ["basedpyright", "--project", "pyright.json", "--pythonpath", sys.executable]):
        done = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True,
                              timeout=300, check=False, env={"MYPYPATH": str(ROOT), "PATH": "/usr/bin:/bin"})
        assert done.returncode == 0, done.stdout + done.stderr
