"""Java's client, unmodified, with timers of ours: one broker, one program, all of it at once.

Real time passes here: nothing is asserted of how late a message is, and that none is early.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.processes import java, ours
from harness.processes.program import Program
from tests.harness.processes.rocketmq import current_release


@pytest.fixture
def rocketmq() -> java.Release:
    return current_release()


SMALL = {"maxHashSlotNum": "1000", "maxIndexNum": "4000", "mappedFileSizeTimerLog": str(1 << 20)}


def received(program: Program) -> list[str]:
    return [report["name"] for report in program.reports("received")]


@pytest.mark.java
@pytest.mark.slow
async def test_javas_client_sends_rolls_and_recalls_timers(rocketmq: java.Release, tmp_path: Path) -> None:
    async with (
        ours.namesrv(tmp_path / "namesrv") as namesrv,
        ours.broker(tmp_path / "broker", "a", namesrv=[namesrv.address], extra={
            **SMALL, "timerRollWindowSlot": "4", "recallMessageEnable": "true",
            "messageDelayLevel": "1s 1s 1s 1s"}),
        java.later(rocketmq, tmp_path / "later", namesrv=[namesrv.address], topic="Later") as program,
    ):
        await program.tell("first 0")
        await program.wait_for("received", timeout_s=60)  # its consumer has its queues
        exact_ms = (time.time_ns() // 1_000_000_000 + 4) * 1_000
        for line in ("soon 3300", f"exact @{exact_ms}", "rolled 6000", "taken 5500", "rolled-taken 7000",
                     "again-retry 2000", "past -5000", f"limit {259_200_000 - 10_000}", "far 259201000"):
            await program.tell(line)
        sent = {report["name"]: report for report in await program.wait_for("sent", lambda found: len(found) == 10)}
        assert (sent["far"]["ok"], sent["far"]["code"]) == (False, 13)
        assert all(report["ok"] for name, report in sent.items() if name != "far"), sent
        assert {name for name, report in sent.items() if report.get("handle")} == sent.keys() - {"first", "past", "far"}
        for line in ("wrong soon", "recall taken", "recall rolled-taken"):
            await program.tell(line)
        wrong, *taken = await program.wait_for("recalled", lambda found: len(found) == 3)
        assert not wrong["ok"]
        assert all(report["ok"] for report in taken), taken
        wanted = {"first", "soon", "exact", "rolled", "again-retry", "past"}
        await program.wait_for("received", lambda found: wanted <= {one["name"] for one in found} and len(found) >= 7)
        await program.tell("last 3000")  # behind the time of those that were taken back
        await program.wait_for("received", lambda found: "last" in {one["name"] for one in found})
        came = program.reports("received")
        assert sorted(received(program)) == sorted([*wanted, "again-retry", "last"])
        for report in came:
            assert report["name"] in ("first", "past") or report["at_ms"] >= sent.get(report["name"], report).get(
                "due_ms", 0), report
        assert next(report for report in came if report["name"] == "rolled")["rolls"] in ("1", "2")
        first, again = (report for report in came if report["name"] == "again-retry")
        assert (first["again"], again["again"]) == (0, 1)
