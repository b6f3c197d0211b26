"""The key-value store that is tortured: each of its commands, and a process that ends in order and begins again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.processes.ports import reserved
from harness.targets.library.raftkv import client, node
from harness.targets.library.raftkv.client import leader
from harness.targets.library.raftkv.node import Keys


def did(keys: Keys, f: str, key: str, value: Any = None) -> Any:
    return keys.apply(json.dumps([f, key, value]).encode())


def test_each_command_does_what_its_name_says() -> None:
    keys = Keys()
    found = [did(keys, f, "a", value) for f, value in (
        ("put", 1), ("get", None), ("cas", [2, 3]), ("cas", [1, 3]), ("r", None), ("w", 4))]
    assert found == [1, 1, False, True, 3, 4]
    assert did(keys, "txn", "a", [["r", "a", None], ["w", "b", 5], ["r", "b", None]]) == [
        ["r", "a", 4], ["w", "b", 5], ["r", "b", 5]]
    assert did(keys, "delete", "a") is None and did(keys, "delete", "a") is None
    assert keys.query(b'["get", "a", null]') is None
    assert did(keys, "increment", "b") == "no such command: increment"


def test_a_snapshot_holds_all_keys() -> None:
    keys, other = Keys(), Keys()
    did(keys, "put", "a", [1])
    other.restore(keys.snapshot())
    assert other.query(b'["get", "a", null]') == [1]


def test_who_leads_in_the_newest_term_leads() -> None:
    assert leader({"n0": {"term": 3, "role": "leader"}, "n1": {"term": 4, "role": "leader"},
                   "n2": {"term": 5, "role": "follower"}}) == "n1"
    assert leader({"n0": {"term": 3, "role": "candidate"}}) is None


@contextmanager
def running(data: Path, address: str) -> Iterator[None]:
    """One node alone, until its block ends: then it must end in order."""
    line = [sys.executable, "-P", node.__file__, "--id", "kv-1", "--nodes", "kv-1", "--addresses", address,
            "--listen", address, "--data", str(data)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"kv-1 listens at {address}\n"
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


def asked(address: str, *commands: tuple[str, str, Any]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps({"id": number, "f": f, "key": key, "value": value, "timeout_ms": 20_000}) + "\n"
                    for number, (f, key, value) in enumerate(commands))
    done = subprocess.run([sys.executable, "-P", client.__file__, "work", "--nodes", "kv-1", "--addresses", address],
                          input=lines, capture_output=True, text=True, check=True, timeout=60)
    ready, *answers = map(json.loads, done.stdout.splitlines())
    assert ready == {"ready": True}
    return answers


@pytest.mark.slow
def test_what_was_put_is_there_when_the_process_begins_again(tmp_path: Path) -> None:
    with reserved() as port:
        address = f"127.0.0.1:{port}"
        with running(tmp_path, address):
            assert asked(address, ("put", "a", 7), ("get", "a", None)) == [
                {"id": 0, "type": "ok", "value": 7}, {"id": 1, "type": "ok", "value": 7}]
        with running(tmp_path, address):
            assert asked(address, ("cas", "a", [7, 8]), ("read", "a", None)) == [
                {"id": 0, "type": "ok", "value": True}, {"id": 1, "type": "ok", "value": 8}]
            well = subprocess.run([sys.executable, "-P", client.__file__, "well", "--nodes", "kv-1", "--addresses",
                                   address], check=False, timeout=60)
            assert well.returncode == 0
