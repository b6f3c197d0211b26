"""A real process on a real directory is killed again and again: what it acknowledged is there, seen, and found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from broker.store.directory import DirectoryFiles
from broker.store.errors import WrongStore
from broker.store.store import MessageStore
from remoting.record import decode
from tests.broker.store.killed import CONFIG

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_a_killed_process_acknowledged_is_there(flush: str, tmp_path: Path) -> None:
    acknowledged: dict[int, tuple[int, int]] = {}
    for lives in range(3):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.broker.store.killed", str(tmp_path), flush], cwd=ROOT,
            stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as said:
            lines = [said.readline() for _ in range(400 * (lives + 1))]
            if lives == 0:
                with pytest.raises(WrongStore, match="in use"):
                    MessageStore(DirectoryFiles(tmp_path), CONFIG).open()
            process.kill()
            lines += said.read().splitlines(keepends=True)
        process.wait()
        for line in lines:
            if line.endswith(b"\n"):  # the last one may be cut off
                number, offset, queue_offset = map(int, line.split())
                assert number not in acknowledged
                acknowledged[number] = offset, queue_offset
        store = MessageStore(DirectoryFiles(tmp_path), CONFIG)
        store.open()
        store.visible.advance()
        for number, (offset, queue_offset) in acknowledged.items():
            assert store.log.record(offset).message.body == b"m%d" % number
            queue = store.messages.queue(b"t", number % 3)
            assert queue is not None and queue.entry(queue_offset)[0] == offset
        for number in list(acknowledged)[::50]:
            found = store.messages.get_by_key(b"t", f"k{number}")
            assert [record.offset for record in found] == [acknowledged[number][0]]
        for queue_id in range(3):
            at = 0
            while records := store.messages.get(b"t", queue_id, at):
                assert [decode(raw).queue_offset for raw in records] == list(range(at, at + len(records)))
                at += len(records)
            assert at == store.messages.max_offset(b"t", queue_id)
        store.abandon()
    assert len(acknowledged) >= 2_400


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_process_whose_store_is_deleted_ends_instead_of_acknowledging(flush: str, tmp_path: Path) -> None:
    """It would go on with files that have no name, and the next process would find nothing."""
    store, told = tmp_path / "store", tmp_path / "told"
    with told.open("wb") as errors, subprocess.Popen(
            [sys.executable, "-m", "tests.broker.store.killed", str(store), flush], cwd=ROOT,
            stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        for _ in range(400):
            process.stdout.readline()
        while store.exists():
            shutil.rmtree(store, ignore_errors=True)  # again, where it made a file meanwhile
        while process.stdout.readline():
            pass
    assert process.returncode != 0
    assert "deleted while its broker runs; leave the store alone" in told.read_text(encoding="utf-8")
