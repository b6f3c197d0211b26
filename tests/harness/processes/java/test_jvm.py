"""Options of a Java virtual machine, and the log of its process: a small Python program stands for it."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.processes.handle import Handle, running
from harness.processes.java.jvm import JVM, LOG, log, wait_log

WRITER = f"""
import sys
open({LOG!r}, "a").write("role changed to MASTER\\n")
print("boot success", flush=True)
sys.stdin.read(1)
"""


async def test_the_log_is_of_all_starts(tmp_path: Path) -> None:
    peer = Handle("a peer", tmp_path / "peer", [sys.executable, "-c", WRITER], "", "boot success")
    assert log(peer) == ""
    async with running(peer):
        assert (await wait_log(peer, r"changed to (\w+)"))[1] == "MASTER"
        await peer.kill()
        await peer.start()
        assert log(peer) == "role changed to MASTER\n" * 2


def test_nothing_is_written_outside_the_directory() -> None:
    options = JVM(heap_mb=64, system={"a": "b"}).options(Path("/d"))
    assert {"-Xmx64m", "-XX:TieredStopAtLevel=1", "-Duser.home=/d", "-Djava.io.tmpdir=/d/tmp", "-Da=b",
            "-Drocketmq.home.dir=/d"} <= set(options)
    assert not any("Tiered" in option or "tls" in option for option in JVM(quick_start=False).options(Path("/d")))
