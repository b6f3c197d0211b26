"""The part's key, in a running broker."""

from __future__ import annotations

from trio.testing import MockClock

from broker.schedule.part import DelaysPart
from harness.simulation.worlds.brokers import cluster
from remoting.codes import RequestCode


async def test_the_versions_step_is_a_key_that_may_change_while_it_runs(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(delayOffsetUpdateVersionStep="3")
        machine = node.broker.parts[DelaysPart]._delivery.machine
        assert machine.version_step == 3
        answer = await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"delayOffsetUpdateVersionStep=5")
        assert (answer.code, answer.remark) == (0, None)
        assert machine.version_step == 5
