"""Floods of the ports of real processes: memory stays within what the limits say, and an honest client is served.

Real time passes here, so nothing is asserted about how much.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio

from harness.processes import ours
from harness.processes.handle import Handle, running
from harness.processes.ports import reserved
from harness.simulation.worlds.sending import SendMessageRequest
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.frame import encode
from remoting.headers.pulling import SUBSCRIPTION, PullMessageRequest
from remoting.server import Server
from remoting.streams import STREAM_ERRORS, connect_tcp
from tests.broker.test_bad_input import BODIES, WHOLE, garbage

pytestmark = pytest.mark.slow
MIB = 1 << 20
SMALL = {"maxHashSlotNum": "1000", "maxIndexNum": "4000", "waitTimeMillsInSendQueue": "100000"}
"""A machine that is busy itself makes sends wait for longer than Java lets them."""
UNFINISHED_MAX = 256 * MIB
"""``receive_bytes_max``: of frames that are not whole, over all connections."""
OUTGOING_MAX = 256 * MIB
"""``outgoingBytesBudget``."""
SLACK = 160 * MIB
"""For connections themselves, what is read and written at the moment, and an allocator that keeps pages."""
FORWARDER = """
import sys, trio
from broker.relay.forwarding import Forwarder
from remoting.server import Server

async def main():
    forwarder = Forwarder()
    server = Server(forwarder.handlers(), on_close=lambda connection, _: forwarder.closed(connection))
    async with trio.open_nursery() as nursery:
        await nursery.start(forwarder.run)
        forwarder.begin(sys.argv[2])
        await nursery.start(server.run, await trio.open_tcp_listeners(int(sys.argv[1]), host="127.0.0.1"))
        print("forwards", flush=True)

trio.run(main)
"""


def memory(process: Handle, what: str) -> int:
    """Bytes: ``VmRSS`` now, ``VmHWM`` at most so far."""
    found = re.search(rf"^{what}:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


# --- floods ----------------------------------------------------------------------------------------------------------


async def pour(address: str, data: bytes, times: int, held: trio.Event) -> None:
    """Send it so often, or until the other end has enough; read nothing, and stay."""
    try:
        stream = await connect_tcp(address)
    except OSError:
        return
    async with stream:
        try:
            for _ in range(times):
                await stream.send_all(data)
        except STREAM_ERRORS:
            return
        await held.wait()


async def half_frames(address: str, nursery: trio.Nursery, held: trio.Event) -> None:
    """900 MiB of frames whose ends never come."""
    for _ in range(60):
        nursery.start_soon(_half_frame, address, held)


async def _half_frame(address: str, held: trio.Event) -> None:
    try:
        stream = await connect_tcp(address)
        async with stream:
            await stream.send_all(struct.pack(">i", 16 * MIB - 4))
            for _ in range(15):
                await stream.send_all(bytes(MIB))
            await held.wait()
    except STREAM_ERRORS:
        return


async def odd_bytes(address: str, nursery: trio.Nursery, held: trio.Event) -> None:
    """Lengths below nothing and beyond all, headers of any bytes, frames with flipped bits."""
    rng = Random(7)
    frames = [encode(Command(code, 1, 0, WHOLE, rng.choice(BODIES))) for code in (10, 11, 14, 34)]
    for _ in range(300):
        nursery.start_soon(pour, address, garbage(rng, frames), 1, held)


async def deaf_ears(address: str, nursery: trio.Nursery, held: trio.Event) -> None:
    """Requests with unknown codes and with large answers, none of which is ever read."""
    for code, ext in ((9_999, {}), (RequestCode.GET_BROKER_CONFIG, {}), (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
                      (RequestCode.HEART_BEAT, dict.fromkeys("abcdefgh", "x" * 10_000))):
        frame = encode(Command(code, ext=ext)) * 200
        for _ in range(10):
            nursery.start_soon(pour, address, frame, 8, held)


async def crowd(address: str, nursery: trio.Nursery, held: trio.Event) -> None:
    """Connections that say nothing."""
    for _ in range(1_500):
        nursery.start_soon(pour, address, b"", 0, held)
        await trio.lowlevel.checkpoint()


FLOODS = (half_frames, odd_bytes, deaf_ears, crowd)


@asynccontextmanager
async def flooded(address: str, honest: Client) -> AsyncIterator[None]:
    """All of it at once. An honest client sends, and each of its messages is stored."""
    held = trio.Event()
    async with trio.open_nursery() as nursery:
        with trio.fail_after(200):
            for flood in FLOODS:
                await flood(address, nursery, held)
                for _ in range(20):
                    await send(honest, address)
            yield
            held.set()


async def send(client: Client, address: str, body: bytes = b"m") -> None:
    header = SendMessageRequest("T", 0, producer_group="P", default_topic="TBW102", properties="", batch=False)
    answer = await client.call(address, request(RequestCode.SEND_MESSAGE, header, body), timeout_ms=100_000)
    assert answer.code == ResponseCode.SUCCESS, answer


async def test_a_broker_under_flood_takes_bounded_memory_and_serves(tmp_path: Path) -> None:
    async with ours.broker(tmp_path, extra=SMALL) as broker, open_client() as client:
        await send(client, broker.address)
        before = memory(broker, "VmRSS")
        async with flooded(broker.address, client):
            for _ in range(100):
                await send(client, broker.address)
        assert memory(broker, "VmHWM") - before < UNFINISHED_MAX + SLACK
        await send(client, broker.address)


async def test_consumers_that_do_not_read_fill_a_budget_and_others_are_served(tmp_path: Path) -> None:
    """300 connections that ask for 4 MiB a hundred times each: without a budget that is more than 1 GiB."""
    async with ours.broker(tmp_path, extra={**SMALL, "maxTransferBytesOnMessageInMemory": str(8 * MIB)}) as broker, \
            open_client() as client:
        for _ in range(3):
            await send(client, broker.address, bytes(3 * MIB))
        header = PullMessageRequest("G", "T", 0, 0, 32, SUBSCRIPTION, 0, 0, "*", 0)
        pull = request(RequestCode.PULL_MESSAGE, header)
        whole = await client.call(broker.address, pull, timeout_ms=100_000)
        assert whole.code == ResponseCode.SUCCESS and len(whole.body) >= 3 * MIB, whole
        before, held = memory(broker, "VmRSS"), trio.Event()
        async with trio.open_nursery() as nursery:
            with trio.fail_after(200):
                for _ in range(300):
                    nursery.start_soon(pour, broker.address, encode(pull) * 100, 1, held)
                    await trio.lowlevel.checkpoint()
                for _ in range(50):
                    assert (await client.call(broker.address, pull, timeout_ms=100_000)).body == whole.body
                    await send(client, broker.address)
                held.set()
        assert memory(broker, "VmHWM") - before < OUTGOING_MAX + SLACK


async def test_a_forwarder_under_flood_takes_bounded_memory_and_serves(tmp_path: Path) -> None:
    """As the guardian runs it. The master answers sends, and never what the flood asks for with large bodies."""

    def master(_: Connection, command: Command) -> Command | None:
        return response(command) if command.code == RequestCode.SEND_MESSAGE else None

    async with trio.open_nursery() as nursery, open_client() as client:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await nursery.start(Server(dict.fromkeys((
            RequestCode.SEND_MESSAGE, RequestCode.QUERY_MESSAGE, RequestCode.HEART_BEAT), master)).run, [listener])
        target = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        with reserved() as port:
            process = Handle("forwarder", tmp_path, [sys.executable, "-c", FORWARDER, str(port), target],
                                  f"127.0.0.1:{port}", "forwards")
            async with running(process):
                await send(client, process.address)
                before = memory(process, "VmRSS")
                async with flooded(process.address, client):
                    held = trio.Event()
                    frame = encode(request(RequestCode.QUERY_MESSAGE, body=bytes(MIB)))
                    for _ in range(20):
                        nursery.start_soon(pour, process.address, frame, 30, held)
                    for _ in range(100):
                        await send(client, process.address)
                    held.set()
                assert memory(process, "VmHWM") - before < UNFINISHED_MAX + 2 * 128 * MIB + SLACK
                await send(client, process.address)
        nursery.cancel_scope.cancel()
