"""Cold data: thresholds are kept and told, and the log is read as it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from broker.query import colddata
from broker.store.commitlog import CommitLog
from broker.store.directory import DirectoryFiles
from broker.store.files import MemoryFiles
from harness.simulation.worlds.brokers import cluster
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.fastjson import loads
from remoting.headers.broker import SetReadAheadRequest
from remoting.record import Message

SET, FORGET, TELL, MODE = (
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, RequestCode.SET_COMMITLOG_READ_MODE)


async def test_thresholds_are_kept_and_told(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        a = (await made.node()).address
        assert (await made.ask(a, SET, body=properties.encode({"g": "7", "h": "8"}).encode())).code == 0
        assert (await made.ask(a, FORGET, body=b"h")).code == 0
        assert (await made.ask(a, FORGET, body=b"nobody")).code == 0
        assert loads((await made.ask(a, TELL)).body) == {
            "runtimeTable": {}, "configTable": {"g": 7}, "cgColdReadThreshold": 3145728,
            "globalColdReadThreshold": 104857600, "globalAcc": 0}
        for body, words in ((b"g=many", "no number"), (b"x" * 70_000, "more than")):
            answer = await made.ask(a, SET, body=body)
            assert words in (answer.remark or "") and answer.code == ResponseCode.SYSTEM_ERROR


async def test_thresholds_of_too_many_groups_are_refused(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(colddata, "GROUPS_MAX", 3)
    async with cluster() as made:
        a = (await made.node()).address
        assert (await made.ask(a, SET, body=b"a=1\nb=1\nc=1")).code == 0
        answer = await made.ask(a, SET, body=b"c=2\nd=2")
        assert "for 3 groups at most" in (answer.remark or "")
        assert loads((await made.ask(a, TELL)).body)["configTable"] == {"a": 1, "b": 1, "c": 1}


async def test_how_the_log_is_read(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.send(node.address, b"x" * 100)

        def reads_ahead() -> set[bool]:
            return {file.reads_ahead for path, file in node.store.content.items() if path.startswith("commitlog/")}

        answer = await made.ask(node.address, MODE, SetReadAheadRequest(1))
        assert answer.remark == "set commitlog readahead mode success, mode: 1" and reads_ahead() == {False}
        answer = await made.ask(node.address, MODE, SetReadAheadRequest(0))
        assert answer.code == 0 and reads_ahead() == {True}
        assert (await made.ask(node.address, MODE, SetReadAheadRequest(4))).code == ResponseCode.INVALID_PARAMETER
        assert (await made.ask(node.address, MODE)).code == ResponseCode.SYSTEM_ERROR


def test_files_that_come_later_are_read_so_too() -> None:
    files = MemoryFiles()
    log = CommitLog(files, file_bytes=1_000)
    log.open()
    log.read_ahead(False)
    for number in range(4):
        log.append(Message(b"t", b"x" * 600), number, 1)
    log.write()
    found = {path: file.reads_ahead for path, file in files.content.items() if path.startswith("commitlog/")}
    assert len(found) == 4 and not any(found.values())


def test_a_real_file_takes_the_advice(tmp_path: Path) -> None:
    file = DirectoryFiles(tmp_path).open("log", create=True)
    file.pwrite(b"abc", 0)
    for wanted in (False, True):
        file.read_ahead(wanted)
        assert file.pread(3, 0) == b"abc"
    file.close()
    file.read_ahead(True)
