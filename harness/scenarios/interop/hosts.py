"""An unmodified Java client whose broker's host is lost: it goes on at the address that it knows.

The group stands behind a balancer, as the how-to on losing a host has it.
"""

from __future__ import annotations

from harness.processes import java
from harness.processes.balanced import balanced, missing
from harness.scenarios.interop.scenario import NotRun, Stage, scenario
from harness.scenarios.interop.watch import create_topic
from remoting.client import open_client

TOPIC = "Orders"
FEW = 20


@scenario("5.5.0", timeout_s=300)
async def a_java_producer_goes_on_when_its_brokers_host_is_lost(stage: Stage) -> None:
    """Guardian and broker of the master are killed together, with no name server left to ask for routes."""
    if reason := missing():
        raise NotRun(reason)
    async with balanced(stage.here / "group") as made, open_client() as client:
        master = await made.master(client, 3)
        await create_topic(stage, made.namesrv.address, TOPIC)
        async with java.sender(stage.release, stage.here / "sender", namesrv=[made.namesrv.address],
                               topic=TOPIC) as sender:
            before = await sender.wait_for("sent", lambda found: sum(each["ok"] for each in found) >= FEW)
            await made.namesrv.kill()
            made.at(master).lose()
            after = await sender.wait_for(
                "sent", lambda found: sum(each["ok"] for each in found[len(before):]) >= 5 * FEW, timeout_s=120)
            refused = sum(not each["ok"] for each in after)
            stage.say(f"{len(after)} sends, {refused} of them failed after all retries; the master was {master}")
