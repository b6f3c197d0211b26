"""The manual's page about popping, run block by block against a broker in memory."""

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
from broker.pop.part import PopPart
from harness.simulation.worlds.brokers import cluster
from tests.broker.client.test_ours import created

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "pop.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("block", "group", "acked"), list(zip(
    BLOCKS, ("billing", "shipping", "archive", "ledger"), (1, 8, 8, 1), strict=True)))
async def test_every_block_of_the_page_runs(
        autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], block: str, group: str, acked: int) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        async with made.connect("reader") as client:
            await created(client, "orders")
            for number in range(8):
                await client.send(Message("orders", b"%d apples" % number, tag="new"))
            names = {"client": client, "Message": Message, "Start": Start, "broker": broker, "trio": trio}
            code = compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            with trio.fail_after(60):
                running = eval(code, names)  # noqa: S307  # the manual's own programs
                if inspect.isawaitable(running):
                    await running
        assert f'client.pop("{group}"' in block
        assert node.broker.parts[PopPart].acking.counters.acked == acked
        printed = [line for line in capsys.readouterr().out.splitlines() if "apples" in line]
        assert len(printed) == (group == "billing")


def test_the_page_knows_the_times_of_the_code() -> None:
    assert (BACK_OFF_S[:3], INVISIBLE_MS) == ((10, 30, 60), 60_000)
    assert len(BLOCKS) == 4
