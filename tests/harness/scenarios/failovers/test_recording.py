"""What a campaign writes is a history like any other; each group is judged apart, by what its mode promises."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.checkers.queues import READ_ALL
from harness.histories.events import FAIL, INFO, OK
from harness.histories.reading import open_history
from harness.scenarios.failovers.campaign import Promise, broken
from harness.scenarios.failovers.recording import JudgedHistory, judged

KEY = "broker-a/0"
AT: dict[str, Any] = {"body": "a", "offset": 7}
B_THERE: dict[str, Any] = {"body": "b", "offset": 7}


def send(recording: JudgedHistory, body: str, kind: str, value: Any = None, key: str = KEY) -> None:
    recording.begin(f"of-{body}", "send", key, body)
    recording.add(kind, f"of-{body}", "send", key, value)


def read(recording: JudgedHistory, f: str, found: Sequence[Any], key: str = KEY) -> None:
    recording.begin("reader", f, key)
    recording.add(OK, "reader", f, key, found)


def lost(recording: JudgedHistory) -> None:
    send(recording, "a", OK, AT)
    read(recording, READ_ALL, [])


def twice(recording: JudgedHistory) -> None:
    send(recording, "a", OK, AT)
    send(recording, "b", OK, B_THERE)
    read(recording, READ_ALL, [B_THERE])


def unseen(recording: JudgedHistory) -> None:
    send(recording, "a", INFO)
    send(recording, "c", OK, {"body": "c", "offset": 6})
    read(recording, "receive", [AT])
    read(recording, READ_ALL, [{"body": "c", "offset": 6}])


def denied(recording: JudgedHistory) -> None:
    send(recording, "a", FAIL)
    read(recording, READ_ALL, [AT])


def phantom(recording: JudgedHistory) -> None:
    read(recording, READ_ALL, [AT])


BREAKING = {Promise.LOST: lost, Promise.TWICE: twice, Promise.UNSEEN: unseen, Promise.DENIED: denied,
            Promise.PHANTOM: phantom}


@pytest.mark.parametrize("promise", Promise)
def test_each_promise_is_broken_where_it_is_made(promise: Promise) -> None:
    recording = JudgedHistory(io.BytesIO())
    BREAKING[promise](recording)
    verdicts = recording.judges.verdicts()
    assert promise.value in {each.promise for each in verdicts["broker-a"].broken}
    assert broken(verdicts, {"broker-a": "safe"})
    everywhere = promise in (Promise.DENIED, Promise.PHANTOM)
    assert bool(broken(verdicts, {"broker-a": "default"})) == everywhere


def test_a_history_is_judged_again_from_its_file_group_by_group(tmp_path: Path) -> None:
    file = io.BytesIO()
    recording = JudgedHistory(file)
    lost(recording)
    send(recording, "x", OK, {"body": "x", "offset": 7}, "broker-b/0")
    read(recording, READ_ALL, [{"body": "x", "offset": 7}], "broker-b/0")
    (tmp_path / "history.jsonl").write_bytes(file.getvalue())
    verdicts = judged(open_history(tmp_path).events)
    assert verdicts == recording.judges.verdicts()
    [words] = broken(verdicts, {"broker-a": "safe", "broker-b": "safe"})
    assert words.startswith("broker-a: lost: a was acknowledged at broker-a/0, offset 7")
    assert recording.judges.counts["acknowledged"] == 2


def test_what_nobody_can_tell_is_not_kept() -> None:
    recording = JudgedHistory(io.BytesIO())
    send(recording, "a", INFO)
    [words] = broken(recording.judges.verdicts(), {"broker-a": "default"})
    assert "nobody can tell: no send was ever acknowledged" in words
