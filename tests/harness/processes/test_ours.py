"""Our servers as processes: at one address across restarts, and gone with whoever started them."""

from __future__ import annotations

import json
from pathlib import Path

from harness.processes import ours
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request


async def test_a_restart_is_at_the_same_address(tmp_path: Path) -> None:
    async with ours.namesrv(tmp_path) as namesrv, open_client() as client:
        first = namesrv.pid
        await namesrv.kill()
        await namesrv.start()
        assert namesrv.pid != first
        answer = await client.call(namesrv.address, request(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert answer.code == ResponseCode.SUCCESS


async def test_a_server_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """A dead starter's end of the pipe is closed by the system."""
    async with ours.namesrv(tmp_path) as namesrv:
        assert namesrv._process is not None
        assert namesrv._process.stdin is not None
        await namesrv._process.stdin.aclose()
        assert await namesrv.wait() == 1


async def test_a_container_runs_without_brokers(tmp_path: Path) -> None:
    async with ours.namesrv(tmp_path / "namesrv") as namesrv, open_client() as client:
        async with ours.container(tmp_path / "container", namesrv=[namesrv.address]) as container:
            answer = await client.call(container.address, request(RequestCode.GET_BROKER_CONFIG))
            assert answer.code == ResponseCode.SUCCESS and b"containerStorePath" in answer.body
            listed = await client.call(namesrv.address, request(RequestCode.GET_BROKER_CLUSTER_INFO))
            assert json.loads(listed.body)["brokerAddrTable"] == {}, "it has no broker"
        assert not container.running
