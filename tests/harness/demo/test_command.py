"""What a demo leaves of its directory. Knows the frame of both demos, and none of what they play."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from harness.demo.command import parser, play
from harness.demo.reporting import Reporter


def kept(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())


@pytest.mark.parametrize(("code", "own", "left"), [
    (0, False, ["broker-a-0/log", "controllers/n0/log"]),
    (0, True, ["broker-a-0/device/image", "broker-a-0/log", "broker-a-0/store/commitlog/0", "controllers/n0/log",
               "store/broker.conf/commitlog/0"]),
    (1, False, ["broker-a-0/device/image", "broker-a-0/log", "broker-a-0/store/commitlog/0", "controllers/n0/log",
                "store/broker.conf/commitlog/0"]),
])
def test_stores_of_a_run_that_lost_nothing_go(
    code: int, own: bool, left: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless they lie in a directory that the user named: a run in a new one left 400 MB for ever."""
    async def run(arguments: object, data: Path, reporter: Reporter) -> int:
        for file in ("broker-a-0/device/image", "broker-a-0/store/commitlog/0", "broker-a-0/log", "controllers/n0/log",
                     "store/broker.conf/commitlog/0"):
            (data / file).parent.mkdir(parents=True, exist_ok=True)
            (data / file).write_bytes(b"x")
        return code

    data = tmp_path / "data"
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: str(data))
    arguments = parser("demo", "", seconds=1).parse_args(["--without-report", *(["--data", str(data)] if own else [])])
    assert play(run, arguments) == code and kept(data) == left
