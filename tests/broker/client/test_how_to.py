"""The manual's page about the client, run block by block against a broker in memory."""

from __future__ import annotations

import ast
import inspect
import re
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import broker.client
from broker.client import ClientSettings, ConsumerSettings, FlowLimits, Message, Start
from harness.simulation.worlds.brokers import cluster as brokers
from tests.broker.client.cluster import cluster
from tests.broker.client.test_ours import created

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "use-the-client.md"
ALL = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
(ASKING,) = (block for block in ALL if "client.request" in block)
"""It needs somebody who answers."""
BLOCKS = [block for block in ALL if block != ASKING]


async def test_every_block_of_the_page_runs(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(BLOCKS) == 9
    async with cluster("a", topics=("orders", "returns")) as made:
        monkeypatch.setattr(broker.client, "connect", partial(
            broker.client.connect, connector=made.net.connect, host="127.0.0.1", client_id="reader"))
        made.net.servers["127.0.0.1:9876"] = made.net.servers["ns:9876"]
        made.net.servers["127.0.0.1:0"] = made.net.servers["a:1"]  # what ids of messages say
        first = BLOCKS[0].replace("trio.run(main)", "await main()")
        async with made.client() as client:
            names = {"client": client, "Message": Message, "Start": Start}
            names["sent"] = await client.send(Message("orders", b"2 apples", tag="new", keys=["42"]))
            for block in (first, *BLOCKS[1:]):
                code = compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                running = eval(code, names)  # noqa: S307  # the manual's own programs
                if inspect.isawaitable(running):
                    await running
    assert "new ['42'] b'2 apples'" in capsys.readouterr().out


async def test_the_page_asks_and_is_answered(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with brokers() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        async with made.connect("asker") as client, made.connect("answerer") as other, trio.open_nursery() as nursery:
            await created(client, "prices")

            async def answer() -> None:
                async with other.consume("sellers", "prices", start=Start.FIRST) as messages:
                    message = await anext(messages)
                    await other.reply(message, b"2.10")

            nursery.start_soon(answer)
            asked = ASKING.replace("timeout_ms=3_000", "timeout_ms=60_000")
            code = compile(asked, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            await eval(code, {"client": client, "Message": Message})  # noqa: S307  # the manual's own program
    assert capsys.readouterr().out.startswith("b'2.10' {")


def test_the_defaults_on_the_page_are_those_of_the_code() -> None:
    table = PAGE.read_text().split("## What may be set")[1]
    rows = dict(re.findall(r"^\| `([\w`, ]+)` \| ([^|]+) \|", table, re.MULTILINE))
    assert set(rows) == {"send_timeout_ms", "retries`, `resend_unknown", "answer_patience_ms", "in_flight_bytes_max",
                         "route_poll_ms", "flow", "consume_timeout_ms", "commit_ms"}
    client, consumer, flow = ClientSettings(), ConsumerSettings(), FlowLimits()
    assert rows["send_timeout_ms"] == f"{client.send_timeout_ms:,}"
    assert rows["retries`, `resend_unknown"] == f"{client.retries}, {'yes' if client.resend_unknown else 'no'}"
    assert rows["answer_patience_ms"] == f"{client.answer_patience_ms:,}"
    assert rows["in_flight_bytes_max"] == f"{client.in_flight_bytes_max >> 20} MiB"
    assert rows["route_poll_ms"] == f"{client.route_poll_ms:,}"
    assert rows["flow"] == f"{flow.messages:,} messages, {flow.size_bytes >> 20} MiB, a span of {flow.span:,}"
    assert rows["consume_timeout_ms"] == f"{consumer.consume_timeout_ms // 60_000} min"
    assert rows["commit_ms"] == f"{consumer.commit_ms:,}"
