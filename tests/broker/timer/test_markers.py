"""A marker takes back a message that rolled and was stored behind it, though the slot of both is done by then."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.timer import delivery
from broker.timer.part import TimersPart
from broker.topics.names import TIMER
from harness.simulation.worlds.brokers import Cluster, Node, cluster, until
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.transactions import RecallMessageRequest
from remoting.record import Record, decode, decode_properties, encode_properties


def records(node: Node, topic: str) -> list[Record]:
    return [decode(raw) for raw in node.broker.journal.messages.get(topic.encode(), 0, 0, bytes_max=1 << 24)]


def bodies(node: Node) -> list[bytes]:
    return [record.message.body for record in records(node, "T")]


def recalled(node: Node) -> int:
    return node.broker.parts[TimersPart].counters.recalled


async def timer(made: Cluster, node: Node, number: int, *, recall: bool) -> None:
    properties = encode_properties({"UNIQ_KEY": f"U{number}", "TIMER_DELAY_SEC": str(5 + number)}).decode()
    sent = await made.send(node.address, b"%d" % number, properties=properties)
    assert sent.code == ResponseCode.SUCCESS
    if recall:
        wish = RecallMessageRequest("T", sent.ext["recallHandle"], "P")
        assert (await made.ask(node.address, RequestCode.RECALL_MESSAGE, wish)).code == ResponseCode.SUCCESS


def roll(node: Node, waited: Record) -> None:
    """As a master that could not store it before."""
    values = decode_properties(waited.message.properties)
    message = attrs.evolve(waited.message, properties=encode_properties({**values, "TIMER_ROLL_TIMES": "1"}))
    node.broker.puts.put([message], lambda result: None)


@pytest.mark.parametrize("step", [1, 5, 1_000])
async def test_who_rolls_behind_its_marker_is_taken_back(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Which knows of the marker what wheel and log say."""
    monkeypatch.setattr(delivery, "EMPTY_MAX", step)
    async with cluster() as made:
        node = await made.node(recallMessageEnable="true")
        for number in range(4):
            await timer(made, node, number, recall=number % 2 == 0)
        await trio.sleep(30)
        assert (bodies(node), recalled(node)) == ([b"1", b"3"], 2)
        waited = [record for record in records(node, TIMER)
                  if "TIMER_DEL_UNIQKEY" not in decode_properties(record.message.properties)]
        await node.stop()
        await node.start()
        await until(lambda: node.serves)
        for record in waited:
            roll(node, record)
        await until(lambda: recalled(node) == 2, within_s=10)
        await trio.sleep(10)
        assert sorted(bodies(node)) == [b"1", b"1", b"3", b"3"], "each that nobody took back, once more"
