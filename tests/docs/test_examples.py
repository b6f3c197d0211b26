"""The examples: the key-value store as a state machine, and the demo as `make demo-raft` runs it, with one kill."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def load(name: str) -> Any:
    sys.path.insert(0, str(EXAMPLES))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def kv() -> Any:
    return load("kv")


class Holding:
    """A client of a store that holds this."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    async def query(self, data: bytes, *, address: str, timeout_ms: int) -> dict[str, str]:
        (_, prefix) = cbor2.loads(data)
        return {key: value for key, value in self.values.items() if key.startswith(prefix)}


@pytest.mark.parametrize(("values", "bad"), [
    ({"0/1": "1", "0/2": "4", "0/3": "9"}, 0), ({"0/1": "1", "0/2": "4"}, 0), ({"0/1": "1"}, 1),
    ({"0/1": "1", "0/2": "5"}, 1), ({"0/1": "1", "0/2": "4", "0/4": "16"}, 1),
], ids=["all", "an unknown one missing", "one lost", "one changed", "a refused one done"])
async def test_the_demo_tells_when_something_is_lost(values: dict[str, str], bad: int, tmp_path: Path) -> None:
    demo = load("demo")
    tally = demo.Tally(acknowledged={"0/1": "1", "0/2": "4"}, unknown={"0/3": "9"}, refused={"0/4": "16"})
    found = await demo.verify(Holding(values), demo.Cluster(tmp_path, "strict"), demo.Display(), tally)
    assert found == 3 * bad


def test_the_store_does_what_its_commands_say(kv: Any) -> None:
    store = kv.KeyValueStore()
    assert store.apply(kv.put("a", "1")) is None
    assert store.apply(kv.put("a", "2")) == "1"
    assert store.apply(kv.compare_and_put("a", "1", "3")) is False
    assert store.apply(kv.compare_and_put("a", "2", "3")) is True
    assert store.apply(kv.compare_and_put("b", None, "4")) is True
    assert store.query(kv.get("a")) == "3"
    assert store.query(kv.get("c")) is None
    assert store.query(kv.count()) == 2
    assert store.query(kv.everything("b")) == {"b": "4"}
    assert store.apply(kv.delete("a")) == "3"
    assert store.query(kv.count()) == 1


def test_a_snapshot_holds_everything(kv: Any) -> None:
    store, other = kv.KeyValueStore(), kv.KeyValueStore()
    store.apply(kv.put("a", "1"))
    other.apply(kv.put("b", "2"))
    other.restore(store.snapshot())
    assert other.query(kv.everything()) == {"a": "1"}


@given(st.binary(max_size=64))
def test_rubbish_is_answered_and_changes_nothing(kv: Any, data: bytes) -> None:
    store = kv.KeyValueStore()
    assert store.apply(data) == "no such command"
    assert store.query(data) == "no such query"
    assert store.values == {}


def test_the_state_machine_is_under_forty_lines(kv: Any) -> None:
    assert len(inspect.getsource(kv.KeyValueStore).splitlines()) < 40


def test_the_live_display_shows_lines_and_nodes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = load("demo")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    display = demo.Display()
    with display.running():
        display.say("kill 1: [n0] killed")
        display.show([("n0", "down", "", ""), ("n1", "leader", "4", "17")], demo.Tally(acknowledged={"0/1": "1"}))
    said = capsys.readouterr().out
    assert "kill 1: [n0] killed" in said
    assert "leader" in said and "17" in said
    assert "1 acknowledged, 0 unknown, 0 refused" in re.sub(r"\x1b\[[0-9;]*m", "", said)


@pytest.mark.slow
def test_the_demo_loses_nothing(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "demo.py"), "--kills", "1", "--data", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        said, _ = demo.communicate(timeout=110)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGKILL)  # its nodes too, should it not have stopped them itself
    assert demo.returncode == 0, said
    assert re.search(r"kill 1: n\d \(leader\) killed with -9; n\d leads in term \d+; \d+ ms without", said)
    assert "NOTHING ACKNOWLEDGED WAS LOST" in said
    acknowledged = re.search(r"writes: (\d+) acknowledged", said)
    assert acknowledged is not None
    assert int(acknowledged[1]) > 50
