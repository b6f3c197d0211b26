"""A whole broker: slow writes turn sends away for a moment, keys change while it runs, a stopped process catches up."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from broker.overload.keys import OverloadKeys
from broker.overload.part import CALM_MS, OverloadPart
from harness.processes import ours
from harness.simulation.worlds.brokers import cluster
from harness.simulation.worlds.sending import SendMessageRequest
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request

WAIT_MS = OverloadKeys().wait_time_mills_in_send_queue


async def test_a_slow_write_is_noticed_and_forgotten(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as made:
        node = await made.node()
        late, log = node.broker.parts[OverloadPart].late, node.broker.journal.log
        assert late.after_s == 0.2
        write = log.write

        def slowly() -> None:
            monkeypatch.setattr(log, "write", write)
            autojump_clock.jump(2)
            write()

        monkeypatch.setattr(log, "write", slowly)
        assert (await made.send(node.address, b"m")).code == ResponseCode.SUCCESS, "who came before is served"
        assert late.after_s == 0
        answer = late.answer(request(RequestCode.SEND_MESSAGE), trio.current_time() - 1.5, 1.5, 0)
        assert answer is not None
        assert answer.code == ResponseCode.SYSTEM_BUSY
        await trio.sleep(CALM_MS / 1e3 + 0.2)
        assert late.after_s == 0.2


async def test_the_keys_change_while_it_runs(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(waitTimeMillsInSendQueue="700")
        late = node.broker.parts[OverloadPart].late
        assert late.after_s == 0.7
        for text, after_s in ((b"waitTimeMillsInSendQueue=50\n", 0.05), (b"brokerFastFailureEnable=false\n", math.inf)):
            answer = await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=text)
            assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
            assert late.after_s == after_s


@pytest.mark.slow
async def test_what_came_to_a_stopped_process_is_not_carried_out_late(tmp_path: Path) -> None:
    """As clients meet it: the answer is Java's, and nothing is stored for who has long asked elsewhere."""
    header = SendMessageRequest("T", -1, default_topic="TBW102")
    answers: list[Command] = []
    async with ours.broker(tmp_path) as broker, open_client() as client:

        async def send(body: bytes) -> None:
            answers.append(await client.call(broker.address, request(RequestCode.SEND_MESSAGE, header, body)))

        await send(b"first")
        broker.pause()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, b"second")
            await trio.sleep(WAIT_MS * 2 / 1e3)  # it is about time that passes in another process
            broker.resume()
        await send(b"third")
    assert [answer.code for answer in answers] == [
        ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY, ResponseCode.SUCCESS]
    assert (answers[1].remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, ")
