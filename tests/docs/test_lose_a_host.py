"""The how-to on losing a host, done as it says: its files and commands, and a host that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from harness.processes.balanced import balanced, missing
from harness.simulation.worlds.sending import SendMessageRequest
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import RemotingError


async def send(client: Client, address: str) -> None:
    """Until it is acknowledged, as a client that knows no other address."""
    header = SendMessageRequest("T", 0, producer_group="P", default_topic="TBW102", properties="", batch=False)
    with trio.fail_after(120):
        while True:
            try:
                answer = await client.call(address, request(RequestCode.SEND_MESSAGE, header, b"m"), timeout_ms=3_000)
                if answer.code == ResponseCode.SUCCESS:
                    return
            except RemotingError:
                pass
            await trio.sleep(0.05)


@pytest.mark.slow
async def test_clients_of_a_lost_host_are_served_at_its_address(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(f"not run: {reason}")
    async with balanced(tmp_path) as made, open_client() as client:
        lost = await made.master(client, 3)
        await send(client, lost)
        await made.namesrv.kill()  # nobody can look for routes
        made.at(lost).lose()
        await send(client, lost)
        second = await made.master(client, 2, lost)
        made.at(second).lose()
        last = await made.master(client, 1, lost, second)
        await made.at(lost).broker.start()
        await send(client, second)
        await send(client, last)
