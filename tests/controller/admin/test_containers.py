"""``mqadmin`` asks a container, which is a handler here: what it sends, and which identities it does not send."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from controller.admin.cli import DONE, FAILED, parser, run
from harness.simulation.worlds.streams import net
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.server import Server

CONTAINER = "10.0.0.5:1"


async def mqadmin(*arguments: str) -> tuple[int, list[tuple[int, dict[str, Any]]]]:
    """The exit code, and what the container was asked. It has no broker of the name ``gone``."""
    heard: list[tuple[int, dict[str, Any]]] = []

    def hear(_: Connection, command: Command) -> Command:
        heard.append((command.code, dict(command.ext)))
        gone = command.ext.get("brokerName") == "gone"
        return response(command, ResponseCode.BROKER_NOT_EXIST if gone else ResponseCode.SUCCESS, remark="said")

    async with net() as made:
        await made.serve(CONTAINER, Server({RequestCode.ADD_BROKER: hear, RequestCode.REMOVE_BROKER: hear}))
        return await run(parser().parse_args([*arguments, "-c", CONTAINER]), made.connect), heard


async def test_a_container_is_asked_for_one_broker_more(
    autojump_clock: trio.abc.Clock, capsys: pytest.CaptureFixture[str],
) -> None:
    assert await mqadmin("addBroker", "-b", " /etc/b.conf ") == (
        DONE, [(RequestCode.ADD_BROKER, {"configPath": "/etc/b.conf"})])
    assert capsys.readouterr().out == f"add broker to {CONTAINER} success\n"


async def test_a_container_is_asked_for_one_broker_less(
    autojump_clock: trio.abc.Clock, capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = {"brokerClusterName": "c", "brokerName": "a", "brokerId": "0"}
    for given in ("c:a:0", " c : a : 0 "):
        assert await mqadmin("removeBroker", "-b", given) == (DONE, [(RequestCode.REMOVE_BROKER, wanted)])
    code, heard = await mqadmin("removeBroker", "-b", "c:gone:2")
    assert code == FAILED and len(heard) == 1 and "said" in capsys.readouterr().err


@pytest.mark.parametrize("given", [
    "", "a", "c:a", "c:a:0:1", ":a:0", "c::0", "c:a:", " : : ", "c:a:-1", "c:a:1.0", "c:a:x"])
async def test_what_names_no_broker_is_not_sent(
    autojump_clock: trio.abc.Clock, capsys: pytest.CaptureFixture[str], given: str,
) -> None:
    assert await mqadmin("removeBroker", "-b", given) == (FAILED, [])
    assert "must be cluster:name:id" in capsys.readouterr().err
