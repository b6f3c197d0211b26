"""How long a consumer that reads waits beside many that do not, and what those cost the broker: one real process.

Each of the others asks for messages of some MiB a hundred times at once and reads nothing. ``--budget`` sets
``outgoingBytesBudget``, so that a very large one shows the broker without it. Knows a broker's port and /proc.
"""

from __future__ import annotations

import argparse
import re
import resource
import sys
import tempfile
from pathlib import Path

import trio

from benchmarks.measure import quantile
from harness.processes import ours
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.frame import encode
from remoting.headers.pulling import SUBSCRIPTION, PullMessageRequest
from remoting.headers.sending import SendMessageRequestV2
from remoting.streams import STREAM_ERRORS, connect_tcp

MIB = 1 << 20
PIPELINED = 100


def _memory(pid: int, what: str) -> float:
    found = re.search(rf"^{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def _pull(topic: str) -> Command:
    return request(RequestCode.PULL_MESSAGE, PullMessageRequest("G", topic, 0, 0, 32, SUBSCRIPTION, 0, 0, "*", 0))


async def _send(client: Client, address: str, topic: str, body: bytes) -> None:
    header = SendMessageRequestV2(topic, 0, producer_group="P", default_topic="TBW102", properties="", batch=False)
    answer = await client.call(address, request(RequestCode.SEND_MESSAGE_V2, header, body), timeout_ms=60_000)
    assert answer.code == ResponseCode.SUCCESS, answer


async def _consume(client: Client, address: str, count: int) -> list[float]:
    """Milliseconds from each request to its whole answer, one after the other."""
    took = []
    for _ in range(count):
        began = trio.current_time()
        answer = await client.call(address, _pull("small"), timeout_ms=60_000)
        took.append((trio.current_time() - began) * 1e3)
        assert answer.code == ResponseCode.SUCCESS
        await trio.sleep(0.002)
    return took


async def _deaf(address: str) -> None:
    try:
        async with await connect_tcp(address) as stream:
            await stream.send_all(encode(_pull("large")) * PIPELINED)
            await trio.sleep_forever()
    except STREAM_ERRORS:
        return


def _row(name: str, took: list[float], grown: float) -> str:
    took = sorted(took)
    return (f"{name:<24} p50 {quantile(took, 0.5):8.2f} ms   p99 {quantile(took, 0.99):8.2f} ms   "
            f"max {took[-1]:8.2f} ms   memory {grown:+6.0f} MiB")


async def run(connections: int, pulls: int, budget: int) -> None:
    """Print a row for the consumer alone, one while the others come, one when they are there."""
    extra = {"maxTransferBytesOnMessageInMemory": str(8 * MIB), "outgoingBytesBudget": str(budget),
             "maxHashSlotNum": "1000", "maxIndexNum": "4000"}
    with tempfile.TemporaryDirectory() as folder:
        async with ours.broker(Path(folder), extra=extra) as broker, open_client() as client:
            await _send(client, broker.address, "large", bytes(4 * MIB - 1_024))
            for _ in range(10):
                await _send(client, broker.address, "small", bytes(1_024))
            await _consume(client, broker.address, 100)
            before = _memory(broker.pid, "VmRSS")
            print(_row("alone", await _consume(client, broker.address, pulls), 0.0))
            async with trio.open_nursery() as nursery:
                for _ in range(connections):
                    nursery.start_soon(_deaf, broker.address)
                for name in (f"while {connections:,} come", "when they are there"):
                    took = await _consume(client, broker.address, pulls)
                    print(_row(name, took, _memory(broker.pid, "VmHWM") - before))
                nursery.cancel_scope.cancel()


def main() -> int:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--pulls", type=int, default=1_000)
    parser.add_argument("--budget", type=int, default=256 * MIB, help="outgoingBytesBudget, default: the broker's")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    trio.run(run, options.connections, options.pulls, options.budget)
    return 0


if __name__ == "__main__":
    sys.exit(main())
