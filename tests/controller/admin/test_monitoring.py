"""``mqadmin`` watches the groups of a broker of ours."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.client import Start
from tests.controller.admin.place import GROUP, TOPIC, place


async def test_what_is_not_consumed_is_told_each_minute(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.send("1", "2", "3")
        async with asked.made.connect() as client, client.consume(GROUP, TOPIC, start=Start.FIRST) as messages:
            (await anext(messages)).ack()
            await trio.sleep(10)
            await asked.send("4")
            lines = await asked.some(70, "startMonitoring")
        rule = "[MONITOR] " + "=" * 41
        assert lines.count(f"{rule}beginRound") == lines.count(f"{rule}endRound") == 2
        told = [line for line in lines if f"topic={TOPIC}," in line]
        assert told[0].startswith(
            f"[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup={GROUP}, topic={TOPIC}, undoneMsgsTotal=3, "
            "undoneMsgsSingleMQ=3, undoneMsgsDelayTimeMills=")
        assert int(told[0].rpartition("=")[2].rstrip("]")) >= 10_000
