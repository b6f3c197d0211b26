"""The manual's page about delays and transactions: its blocks are one program. tests/docs checks its types."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import broker.client
from broker.client import ClientSettings, errors
from remoting import record as codec
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.record import Message
from tests.broker.client.cluster import SILENCE, Cluster, cluster
from tests.broker.client.delaying import DelayingBroker
from tests.broker.client.halves import HalfBroker

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "delay-and-transactions.md"
PROGRAM = "\n\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))


class Serving(HalfBroker, DelayingBroker):
    """Both features of the page."""


async def started(made: Cluster) -> Serving:
    made.kill("a:1")
    serving = Serving("a")
    await made.start("a:1", serving)
    return serving


@pytest.fixture
def program() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(PROGRAM, str(PAGE), "exec"), names)  # the manual's own program
    return names


async def test_the_program_of_the_page_runs(
    program: dict[str, Any], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with cluster("a", topics=("orders", "reminders")) as made:
        serving = await started(made)
        made.net.servers["127.0.0.1:9876"] = made.net.servers["ns:9876"]
        connect = broker.client.connect
        monkeypatch.setattr(broker.client, "connect", lambda *arguments, **more: connect(
            *arguments, connector=made.net.connect, host="127.0.0.1", **more))
        await program["main"]()
        assert capsys.readouterr().out.splitlines() == [
            "taken back: True", "42 Outcome.CONFIRMED", "43 Outcome.CONFIRMED"]
        assert len(serving.waiting) == 2 and len(serving.halves.finals) == 2


async def test_the_checker_of_the_page_decides_what_an_earlier_life_left(
    program: dict[str, Any], autojump_clock: MockClock,
) -> None:
    """Written down: committed. Young: another block may run. Else rolled back. A number that is there rolls back."""
    async with cluster("a") as made, made.client(settings=ClientSettings(send_timeout_ms=500)) as client:
        serving = await started(made)
        young = int(program["now_ms"]()) + 10_000_000
        for message_id, born_ms in (("WRITTEN", 0), ("YOUNG", young), ("LOST", 0)):
            serving.halves.put(Message(b"orders", b"x", 0, codec.encode_properties({
                "UNIQ_KEY": message_id, "PGROUP": "producers", "TRAN_MSG": "true"}), born_time_ms=born_ms))
        serving.refuse = _deaf  # it stays for half a second
        async with trio.open_nursery() as nursery:
            nursery.start_soon(program["serve"], client, {"WRITTEN": "committed"})
            await trio.sleep(0.2)
            serving.ask()
            await wait_all_tasks_blocked()
            assert {message_id: decision.name for message_id, decision in serving.halves.ended} == {
                "WRITTEN": "COMMIT", "LOST": "ROLLBACK"}
        async with client.transactions(_never) as transactions:
            with pytest.raises(KeyError):
                await program["order"](transactions, {"order 42": "placed"}, 42)
        assert serving.halves.finals == ["WRITTEN"]


def _deaf(command: Command) -> Command | None:
    direct = command.code == RequestCode.END_TRANSACTION and command.ext["fromTransactionCheck"] == "false"
    return SILENCE if direct else None


async def _never(_: broker.client.Received) -> broker.client.Decision:
    raise AssertionError("its block decides")


def test_what_is_raised_is_in_the_reference() -> None:
    page = (PAGE.parents[1] / "reference" / "errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page.split("## Of the client of brokers")[1], re.MULTILINE)
    classes = [(name, kind.__bases__[0].__name__) for name, kind in vars(errors).items()
               if isinstance(kind, type) and issubclass(kind, errors.ClientError) and not name.startswith("_")]
    assert rows == [(name, base.replace("_NotSent", "ClientError")) for name, base in classes]
