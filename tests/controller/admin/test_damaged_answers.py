"""A broker whose answers are no answers: ``mqadmin`` fails in words, and writes no file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from controller.admin.cli import DONE, FAILED, parser, run
from controller.own_codes import OwnCode
from harness.simulation.worlds.streams import net
from remoting.codes import RequestCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.server import Server

BROKER = "10.0.0.5:1"
NO_TOPICS = {RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: b'{"topicList":[]}'}


@pytest.mark.parametrize(("line", "answers"), [
    (["getColdDataFlowCtrInfo"], {RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: body}) for body in (
        b"[]", b"{", b'{"runtimeTable":{"g":7}}', b'{"runtimeTable":{"g":{"createTimeMills":"soon"}}}',
        b'{"runtimeTable":{"g":{"createTimeMills":9e99}}}', b'{"runtimeTable":{"g":{"createTimeMills":[7]}}}')
] + [
    (["exportMetadata", "-t"], {**NO_TOPICS, RequestCode.GET_ALL_TOPIC_CONFIG: body}) for body in (
        b"[]", b"{}", b'{"topicConfigTable":7}', b'{"topicConfigTable":{"t":7}}',
        b'{"topicConfigTable":{"t":{"perm":"all"}}}', b'{"topicConfigTable":{"t":{"perm":null}}}')
] + [
    (["exportMetadata", "-g"], {RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: body}) for body in (
        b"7", b'{"subscriptionGroupTable":[]}', b'{"subscriptionGroupTable":{"g":"h"}}')
])
async def test_what_is_no_answer_is_told(
    tmp_path: Path, autojump_clock: trio.abc.Clock, capsys: pytest.CaptureFixture[str], line: list[str],
    answers: dict[int, bytes],
) -> None:
    def answer(_: Connection, command: Command) -> Command:
        return response(command, body=answers[command.code])

    folder = ["-f", str(tmp_path)] if line[0] == "exportMetadata" else []
    async with net() as made:
        await made.serve(BROKER, Server(dict.fromkeys(answers, answer)))
        assert await run(parser().parse_args([*line, "-b", BROKER, *folder]), made.connect) == FAILED
    assert capsys.readouterr().err.startswith(f"mqadmin {line[0]}: ") and not os.listdir(tmp_path)


TEXTS = {
    ("getBrokerConfig", "-b", BROKER): RequestCode.GET_BROKER_CONFIG,
    ("getNamesrvConfig", "-n", BROKER): RequestCode.GET_NAMESRV_CONFIG,
    ("getControllerConfig", "-a", BROKER): RequestCode.GET_CONTROLLER_CONFIG,
    ("explainController", "-a", BROKER): OwnCode.EXPLAIN,
}


async def told(line: tuple[str, ...], code: int, body: bytes) -> int:
    async with net() as made:
        await made.serve(BROKER, Server({code: lambda _, command: response(command, body=body)}))
        return await run(parser().parse_args([*line]), made.connect)


@pytest.mark.parametrize(("line", "code"), TEXTS.items())
async def test_a_text_that_is_none_is_told(
    autojump_clock: trio.abc.Clock, capsys: pytest.CaptureFixture[str], line: tuple[str, ...], code: int,
) -> None:
    assert await told(line, code, b"storePathRootDir=\xff") == FAILED
    assert capsys.readouterr().err.startswith(f"mqadmin {line[0]}: ")


@pytest.mark.parametrize(("line", "code"), [each for each in TEXTS.items() if each[1] != OwnCode.EXPLAIN])
async def test_a_java_servers_path_on_windows_is_printed(
    autojump_clock: trio.abc.Clock, capsys: pytest.CaptureFixture[str], line: tuple[str, ...], code: int,
) -> None:
    """Java writes values as they are, and a backslash of a path is none of an escape."""
    assert await told(line, code, b"a=1\nstorePathRootDir=D:\\usr\\store\n") == DONE
    assert "storePathRootDir                                  =  D:\\usr\\store" in capsys.readouterr().out
