"""The manual's page about popping, run block by block against brokers in memory."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import broker.client
from broker.client import Message, Start
from broker.client.popping import BACK_OFF_S, INVISIBLE_MS
from tests.broker.client.cluster import cluster
from tests.broker.client.popped import PoppingBroker

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "pop.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
async def test_every_block_of_the_page_runs(
        autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], block: str) -> None:
    async with cluster(topics=()) as made:
        popped = PoppingBroker("a")
        await made.start("a:1", popped)
        made.name_server.set("orders", {"a": {0: "a:1"}})
        async with made.client() as client:
            for number in range(8):
                await client.send(Message("orders", b"%d apples" % number, tag="new"))
            names = {"client": client, "Message": Message, "Start": Start, "broker": broker, "trio": trio}
            code = compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)  # noqa: S307  # the manual's own programs
            if inspect.isawaitable(running):
                await running
        printed = [line for line in capsys.readouterr().out.splitlines() if "apples" in line]
        expected = {"archive": 8, "shipping": 8, "billing": 1, "ledger": 1}
        group = next(name for name in expected if f'client.pop("{name}"' in block)
        assert len([each for each in popped.given.values() if each.acked]) == expected[group]
        assert len(printed) == (group == "billing")


def test_the_page_knows_the_times_of_the_code() -> None:
    assert (BACK_OFF_S[:3], INVISIBLE_MS) == ((10, 30, 60), 60_000)
    assert len(BLOCKS) == 4
