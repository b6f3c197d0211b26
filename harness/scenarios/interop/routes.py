"""Java brokers and a Java client with our name server.

No controller takes part; what routes hold is asserted by the Java side.
"""

from __future__ import annotations

import trio

from harness.processes import java, ours
from harness.scenarios.interop.scenario import Stage, scenario
from harness.scenarios.interop.watch import create_topic, tool


@scenario("5.5.0", "5.3.3", smoke=True)
async def a_java_client_finds_routes_through_our_name_server(stage: Stage) -> None:
    """A Java broker registers with our name server; a Java producer sends through the route it finds there."""
    async with (
        ours.namesrv(stage.here / "namesrv") as namesrv,
        java.broker(stage.release, stage.here / "b", namesrv=[namesrv.address]),
    ):
        with trio.fail_after(120):  # a broker registers within 10 s, its topics within 30 s
            await create_topic(stage, namesrv.address, "orders")
            while True:
                run = await tool(stage, "topicRoute", "-n", namesrv.address, "-t", "orders")
                if run.ok and '"brokerName":"broker-a"' in run.stdout.replace(" ", ""):
                    break
        client = java.sender(stage.release, stage.here / "sender", namesrv=[namesrv.address], topic="orders")
        async with client as sender:
            sent = await sender.wait_for("sent")
            stage.say(f"sent: {sent[0]}")
