"""A whole broker of ours and a name server in memory, on virtual time, with ``mqadmin`` beside them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from controller.admin.cli import DONE, parser, run
from harness.simulation.worlds.brokers import NAMESRV, Cluster, Node, cluster
from remoting.codes import ResponseCode

TOPIC, GROUP = "Orders", "readers"


class Place:
    """``a`` is the broker; ``mqadmin`` gives what was printed."""

    def __init__(self, made: Cluster, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
        self.made, self.node, self._capsys = made, node, capsys
        self.a = node.address

    async def mqadmin(self, *arguments: str, code: int = DONE, namesrv: str = NAMESRV) -> str:
        options = parser().parse_args([*arguments, "-n", namesrv])
        assert await run(options, self.made.network.connector("10.0.8.8:1")) == code, self._capsys.readouterr()
        out, err = self._capsys.readouterr()
        return out if code == DONE else err

    async def lines(self, *arguments: str) -> list[str]:
        return (await self.mqadmin(*arguments)).splitlines()

    async def data(self, *arguments: str) -> Any:
        return json.loads(await self.mqadmin(*arguments, "--json"))

    async def each(self, *arguments: str) -> list[Any]:
        """Of a command that says several things."""
        return [json.loads(line) for line in (await self.mqadmin(*arguments, "--json")).splitlines()]

    async def some(self, seconds: float, *arguments: str) -> list[str]:
        """The lines of a command that goes on until it is interrupted."""
        options = parser().parse_args([*arguments, "-n", NAMESRV])
        with trio.move_on_after(seconds) as scope:
            await run(options, self.made.network.connector("10.0.8.8:1"))
        assert scope.cancelled_caught
        return self._capsys.readouterr().out.splitlines()

    async def topic(self, name: str = TOPIC, queues: int = 2) -> None:
        await self.mqadmin("updateTopic", "-b", self.a, "-t", name, "-r", str(queues), "-w", str(queues))
        await self.made.wait_route(name, {0: self.a})

    async def send(self, *bodies: str, topic: str = TOPIC, queue: int = 0, tag: str = "", key: str = "") -> None:
        for body in bodies:
            given = {"TAGS": tag, "KEYS": key, "UNIQ_KEY": f"ID{body}"}
            properties = "".join(f"{name}\x01{value}\x02" for name, value in given.items() if value)
            answer = await self.made.send(self.a, body.encode(), topic, queue, properties)
            assert answer.code == ResponseCode.SUCCESS, answer
        await trio.sleep(1)


@asynccontextmanager
async def place(capsys: pytest.CaptureFixture[str], **settings: str) -> AsyncGenerator[Place, None]:
    async with cluster() as made:
        node = await made.node(**settings)
        await made.wait_route("TBW102", {0: node.address})
        yield Place(made, node, capsys)
