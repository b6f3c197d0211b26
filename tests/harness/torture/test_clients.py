"""Clients as programs: whatever they answer, or do not, becomes ok, fail or unknown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from harness.torture.clients import ClassClient, Failed, ProgramClient, class_of
from harness.torture.words import RunFailed
from harness.workloads.workload import LoadOp, LoadOutcome

BEGIN = """\
import json, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    a = json.loads(line)
"""
ECHO = BEGIN + """\
    print(json.dumps({"id": a["id"], "type": a["f"], "value": a["value"], "error": a["key"]}), flush=True)
"""


def client(folder: Path, text: str) -> ProgramClient:
    (folder / "client.py").write_text(text)
    return ProgramClient([sys.executable, "client.py"], folder, "client-0")


async def test_what_it_answers_is_told(tmp_path: Path) -> None:
    made = client(tmp_path, ECHO)
    await made.open()
    try:
        assert await made.ask(LoadOp("ok", "why", [3]), 2_000) == LoadOutcome("ok", [3], "why")
        assert await made.ask(LoadOp("fail", None, None), 2_000) == LoadOutcome("fail")
        assert await made.ask(LoadOp("info", None, None), 2_000) == LoadOutcome("info")
    finally:
        await made.aclose()


@pytest.mark.parametrize(("then", "words"), [
    ("    print('no JSON', flush=True)\n", "no answer: b'no JSON'"),
    ("    print(json.dumps({'id': 99, 'type': 'ok'}), flush=True)\n", "no answer: {'id': 99"),
    ("    print(json.dumps({'id': a['id'], 'type': 'maybe'}), flush=True)\n", "no answer"),
    ("    print('[' * 5_000, flush=True)\n", "no answer: b'[[["),
    ("    print(json.dumps({'id': a['id'], 'type': 'ok', 'value': float('nan')}), flush=True)\n", "no answer: b'{"),
    ("    print('{\"id\": 1, \"type\": \"ok\", \"value\": 1e999}', flush=True)\n", "no answer: b'{"),
    ("    print('{\"id\": 1, \"type\": \"ok\", \"value\": \"\\\\ud800\"}', flush=True)\n", "no answer: b'{"),
    ("    sys.exit(3)\n", "the client has ended"),
])
async def test_what_is_no_answer_is_unknown_and_it_is_started_anew(tmp_path: Path, then: str, words: str) -> None:
    made = client(tmp_path, BEGIN + then)
    await made.open()
    try:
        told = await made.ask(LoadOp("read"), 2_000)
        assert told.type == "info" and words in str(told.error)
        again = client(tmp_path, ECHO)  # the same file, which is another program now
        assert (await made.ask(LoadOp("ok"), 2_000)).type == "ok"
        await again.aclose()
    finally:
        await made.aclose()


async def test_who_is_late_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.torture.clients.LATE_MS", 10)
    made = client(tmp_path, BEGIN + "    time.sleep(60)\n")
    await made.open()
    assert await made.ask(LoadOp("write"), 10) == LoadOutcome("info", None, "no answer in time")
    await made.aclose()


@pytest.mark.parametrize(("text", "words"), [
    ("print('hello')", "does not begin with"), ("", "does not begin with .* but with None")])
async def test_who_does_not_begin_as_it_must(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RunFailed, match=words):
        await client(tmp_path, text).open()


async def test_a_command_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"cannot be started: .*no-such"):
        await ProgramClient([str(tmp_path / "no-such")], tmp_path, "client-0").open()


async def test_a_class() -> None:
    class Mine:
        async def do(self, f: str, key: Any, value: Any) -> Any:
            if f == "read":
                return 7
            raise Failed("nobody heard it") if f == "cas" else OSError("cut")

    made = ClassClient(Mine())
    assert await made.ask(LoadOp("read"), 1_000) == LoadOutcome("ok", 7)
    assert await made.ask(LoadOp("cas"), 1_000) == LoadOutcome("fail", None, "nobody heard it")
    assert await made.ask(LoadOp("write"), 1_000) == LoadOutcome("info", None, "OSError: cut")
    await made.aclose()


def test_a_class_is_found_beside_its_target_or_in_a_package(tmp_path: Path) -> None:
    assert class_of("harness.torture.clients:ClassClient", tmp_path) is ClassClient
    (tmp_path / "mine.py").write_text("class Mine:\n    pass\n")
    assert class_of("mine.py:Mine", tmp_path).__name__ == "Mine"
    for name in ("harness.torture.clients:None_", "mine.py:Other", "none.py:Mine", "mine:Mine"):
        with pytest.raises(RunFailed, match=r"cannot be loaded: .*a class beside the target is FILE.py:CLASS"):
            class_of(name, tmp_path)
    with pytest.raises(RunFailed, match="'Mine' is nothing"):
        class_of("Mine", tmp_path)
