"""RocketMQ's own ``mqadmin``, as an operator would run it: the arguments in, what it printed and its exit code out.

It knows how to start the tool and how the tool fails; what a command's output means is for the caller to say.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Final

import trio
from attrs import frozen

from harness.processes.handle import environment
from harness.processes.java.jars import Release
from harness.processes.java.jvm import JVM

TOOL: Final = JVM(heap_mb=128)
TIMEOUT_S: Final = 60.0
_EXCEPTION: Final = re.compile(r"\.\w*Exception\b")
"""A class with its package, as traces name it: keys of clients end so, too."""


@frozen
class AdminRun:
    """One run of the tool."""

    arguments: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """It did what was asked: exit code 0, and no exception in words, for mqadmin exits with 0 even then."""
        return self.exit_code == 0 and not _EXCEPTION.search(self.stdout + self.stderr)

    def __str__(self) -> str:
        return f"mqadmin {' '.join(self.arguments)}: exit code {self.exit_code}\n{self.stdout}{self.stderr}"


async def mqadmin(release: Release, *arguments: str, jvm: JVM = TOOL, timeout_s: float = TIMEOUT_S) -> AdminRun:
    """Run ``mqadmin`` with these arguments.

    Raises:
        trio.TooSlowError: it did not end in time; it is killed then.
    """
    with tempfile.TemporaryDirectory(prefix="mqadmin-") as home, trio.fail_after(timeout_s):
        (Path(home) / "tmp").mkdir()
        run = await trio.run_process(
            [release.java, *jvm.options(Path(home)), "-cp", release.classpath,
             "Once", "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments],
            stdin=b"", capture_stdout=True, capture_stderr=True, check=False, cwd=home,
            env=environment(),
        )
    return AdminRun(
        arguments, run.returncode, run.stdout.decode(errors="replace"), run.stderr.decode(errors="replace"))
