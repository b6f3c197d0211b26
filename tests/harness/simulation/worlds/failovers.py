"""A cluster of RocketMQ's protocol in a seeded world: controllers, a name server, three brokers and our client."""

from __future__ import annotations

import trio

from broker.client import Message, Start
from harness.simulation.worlds.brokers import cluster, new_master, three
from raft.virtual import VirtualWorld


async def failovers(world: VirtualWorld) -> list[str]:
    """A master without a silent slave, then dead, then an active controller dead; nothing acknowledged is lost."""
    chance, sent = world.stream("failovers"), []
    async with cluster(controllers=3, network=world.network) as made, made.connect() as client:
        master, *slaves = await three(made, allAckInSyncStateSet="true", minInSyncReplicas="2")
        for number in range(5):
            sent.append((await client.send(Message("orders", b"%d" % number))).message_id)
        await trio.sleep(chance.between(0, 2_000) / 1e3)
        await master.kill()
        world.note("the master is dead")
        master = await new_master(*slaves)
        assert made.controllers is not None
        await made.controllers.kill(await made.controllers.active())
        world.note("the active controller is dead")
        sent.append((await client.send(Message("orders", b"5"))).message_id)
        missing = set(range(6))
        async with client.consume("bar", "orders", start=Start.FIRST) as messages:
            while missing:
                message = await anext(messages)
                missing.discard(int(message.body))
                message.ack()
    return sent
