"""Requests that change a configuration: what is refused, and that what is refused changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from harness.simulation.worlds.streams import ask, client_and_server
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.daemon.changing import change_config
from remoting.daemon.files import DiskFiles
from remoting.daemon.keys import ConfigError

CHANGE = 25
Config = Mapping[str, str]


class Changed:
    """A server's configuration, of which ``size`` is live and ``secret`` is on the black list."""

    def __init__(self, path: Path) -> None:
        self.path, self.config = path, {"size": "1", "name": "a"}

    def handle(self, connection: Connection, request: Command) -> Command:
        return change_config(
            connection, request, self.config, bytes_max=64, barred=("secret",), live=("size",), made=self._made,
            text=lambda config: config, files=DiskFiles(), path=str(self.path), use=self._use,
            logger=logging.getLogger("changed"))

    def _made(self, given: Mapping[str, str]) -> dict[str, str]:
        if not given.get("size", "1").isdecimal():
            raise ConfigError("size", given["size"], "must be a number")
        return {**self.config, **given}

    def _use(self, changed: dict[str, str]) -> None:
        self.config = changed

    async def ask(self, body: bytes) -> tuple[int, str]:
        async with client_and_server({CHANGE: self.handle}) as (client, _, _):
            answer = await client.call("s:1", ask(CHANGE, body))
            return answer.code, answer.remark or ""


@pytest.mark.parametrize(("body", "code", "words"), [
    (b"name=" + b"b" * 60, ResponseCode.SYSTEM_ERROR, "a body of 65 bytes; at most 64 are taken"),
    (b"name=\xff", ResponseCode.SYSTEM_ERROR, "not properties"),
    (b"size=2\nname=\\u12", ResponseCode.SYSTEM_ERROR, "not properties: line 2"),
    (b"size=2\nsecret=b", ResponseCode.NO_PERMISSION, "Can not update config in black list: secret"),
    (b"size=2\n\\u0073ecret=b", ResponseCode.NO_PERMISSION, "Can not update config in black list: secret"),
    (b"name=b\nsize=two", ResponseCode.SYSTEM_ERROR, "size = two: must be a number"),
    (b"# nothing", ResponseCode.SUCCESS, ""),
])
async def test_what_is_refused_changes_nothing(
    tmp_path: Path, autojump_clock: trio.abc.Clock, body: bytes, code: int, words: str,
) -> None:
    server = Changed(tmp_path / "conf")
    server.path.write_text("size=1\n")
    answered, remark = await server.ask(body)
    assert answered == code and words in remark
    assert server.config == {"size": "1", "name": "a"} and server.path.read_text() == "size=1\n"


@pytest.mark.parametrize("spoil", [
    lambda path: path.mkdir(), lambda path: path.write_bytes(b"size=\\u1"),
    lambda path: path.symlink_to(path), lambda path: path.write_bytes(b"\xff")])
async def test_what_cannot_be_written_down_is_not_used(
    tmp_path: Path, autojump_clock: trio.abc.Clock, spoil: Any,
) -> None:
    server = Changed(tmp_path / "conf")
    spoil(server.path)
    code, remark = await server.ask(b"size=2")
    assert code == ResponseCode.SYSTEM_ERROR and remark.startswith(f"cannot write {server.path}: ")
    assert server.config["size"] == "1"


async def test_what_waits_for_the_next_start_is_said(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    server = Changed(tmp_path / "conf")
    assert await server.ask(b"size=2\nname=b") == (ResponseCode.SUCCESS, "at the next start: name")
    assert server.path.read_text() == "name=b\nsize=2\n" and server.config == {"size": "2", "name": "b"}
    assert await server.ask(b"size=3") == (ResponseCode.SUCCESS, "")
