"""The small store that is tortured: what it acknowledged is there when it begins again, unless its bug is planted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.processes.ports import reserved
from harness.targets.library.store import client, server
from harness.targets.library.store.server import Store


@contextmanager
def running(data: Path, port: int) -> Iterator[None]:
    line = [sys.executable, "-P", server.__file__, "--listen", f"127.0.0.1:{port}", "--data", str(data)]
    with subprocess.Popen(line, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def asked(port: int, *commands: tuple[str, Any]) -> list[dict[str, Any]]:
    """Ask for one key, each again until the server is up."""
    lines = "".join(json.dumps({"id": number, "f": f, "key": "a", "value": value, "timeout_ms": 20_000}) + "\n"
                    for number, (f, value) in enumerate(commands))
    while True:
        done = subprocess.run([sys.executable, "-P", client.__file__, f"127.0.0.1:{port}"], input=lines,
                              capture_output=True, text=True, check=True, timeout=60)
        ready, *answers = map(json.loads, done.stdout.splitlines())
        assert ready == {"ready": True}
        if all(answer["type"] == "ok" for answer in answers):
            return answers


@pytest.mark.slow
def test_what_was_written_is_there_when_it_begins_again(tmp_path: Path) -> None:
    with reserved() as port:
        with running(tmp_path, port):
            written, read = asked(port, ("write", 7), ("read", None))
            assert written["type"] == "ok" and read == {"id": 1, "type": "ok", "value": 7}
        with running(tmp_path, port):
            assert asked(port, ("read", None)) == [{"id": 0, "type": "ok", "value": 7}]


@contextmanager
def opened(directory: Path, *, lazy: bool = False) -> Iterator[Store]:
    store = Store(directory, lazy)
    with store._log:
        yield store


def test_with_its_bug_it_has_in_its_log_nothing_of_what_it_acknowledged(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{server.__name__}.threading.Thread", lambda **_: SimpleNamespace(start=lambda: None))
    for lazy, left in ((True, None), (False, 7)):
        with opened(tmp_path / str(lazy), lazy=lazy) as store:
            store.put("/a", 7)
            assert store.get("/a") == 7
            with opened(tmp_path / str(lazy)) as after:
                assert after.get("/a") == left, "what a kill leaves"


def test_a_line_that_a_kill_cut_was_not_acknowledged_and_goes(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.put("/a", 1)
    with (tmp_path / "log").open("ab") as log:
        log.write(b'["/a", 2')
    with opened(tmp_path) as store:
        assert store.get("/a") == 1
        store.put("/b", 3)
    assert (tmp_path / "log").read_bytes() == b'["/a", 1]\n["/b", 3]\n'


def test_whom_nobody_answers_is_told_that_nothing_happened(monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    with reserved() as port:
        monkeypatch.setattr(sys, "argv", ["client.py", f"127.0.0.1:{port}"])
        monkeypatch.setattr(sys, "stdin", [json.dumps({"id": 3, "f": "write", "key": "a", "value": 1,
                                                       "timeout_ms": 1_000})])
        client.main()
    ready, answer = map(json.loads, capsys.readouterr().out.splitlines())
    assert ready == {"ready": True} and (answer["id"], answer["type"]) == (3, "fail")
