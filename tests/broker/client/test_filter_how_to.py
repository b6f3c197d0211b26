"""The manual's page about filters, run block by block against a broker in memory."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import broker.client
from broker.client import Message, Sql, Start
from harness.simulation.worlds.brokers import cluster
from tests.broker.client.test_ours import created

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "filter-messages.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


async def test_every_block_of_the_page_runs(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, as a reader does."""
    async with cluster() as made:
        node = await made.node(enablePropertyFilter="true")
        await made.wait_route("TBW102", {0: node.address})
        async with made.connect("reader") as client:
            for topic in ("orders", "prices"):
                await created(client, topic)
            names = {"client": client, "broker": broker, "trio": trio, "Message": Message, "Sql": Sql, "Start": Start}
            for block in BLOCKS:
                code = compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                with trio.fail_after(60):
                    running = eval(code, names)  # noqa: S307  # the manual's own programs
                    if inspect.isawaitable(running):
                        await running
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "new b'pears'"
    assert sorted(others) == ["b'0' 0", "b'1' 5", "dear b'2'", "dear b'3'", "dear b'free'"]
