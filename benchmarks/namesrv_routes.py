"""How many route requests a name server answers: one process serves, this one asks, over loopback TCP.

After the loss of a master every client asks once for each send it attempts, so this is the load of that moment.

    python -m benchmarks.namesrv_routes --seconds 5 --connections 50 --window 1

Knows the command's first line of output and raw frames; nothing of the server's insides.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import trio

from remoting.bodies.namesrv import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.frame import FrameReader, encode
from remoting.headers.namesrv import GetRouteInfoRequest, RegisterBrokerRequest

ROOT = Path(__file__).parents[1]


def registration(broker_id: int, topics: int) -> bytes:
    table = {f"T{number}": TopicConfig(f"T{number}", 8, 8) for number in range(topics)}
    body = RegisterBrokerBody(TopicConfigSerializeWrapper(table, DataVersion(1, 1, 1))).encode()
    command = request(RequestCode.REGISTER_BROKER, RegisterBrokerRequest(
        broker_name="a", broker_addr=f"10.0.0.{broker_id}:10911", cluster_name="C", broker_id=broker_id,
        ha_server_addr=f"10.0.0.{broker_id}:10912", enable_acting_master=False), body)
    return encode(command)


async def ask_once(stream: trio.SocketStream, data: bytes) -> Command:
    reader = FrameReader()
    await stream.send_all(data)
    while True:
        for command in reader.feed(bytes(await stream.receive_some(1 << 16))):
            return command


async def ask(
    port: int, window: int, go: trio.Event, seconds: float, counts: list[int],
    *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """``window`` requests, and as many again for each that is answered. Answers are counted by their length alone."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    frame = encode(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest("T0")))
    first = await ask_once(stream, frame)
    assert first.code == 0, first
    size = len(encode(first))
    task_status.started()
    await go.wait()
    until = time.perf_counter() + seconds
    await stream.send_all(frame * window)
    received = done = 0
    while time.perf_counter() < until:
        received += len(await stream.receive_some(1 << 18))
        answered = received // size - done
        if answered:
            done += answered
            await stream.send_all(frame * answered)
    counts.append(done)
    await trio.aclose_forcefully(stream)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(pid: int, port: int, seconds: float, connections: int, window: int, topics: int) -> None:
    brokers = []
    for broker_id in range(3):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        brokers.append(stream)  # a broker whose connection closes leaves the routes
        assert (await ask_once(stream, registration(broker_id, topics))).code == 0
    counts: list[int] = []
    go = trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(connections):
            await nursery.start(ask, port, window, go, seconds, counts)
        begun, busy = time.perf_counter(), cpu_s(pid)
        go.set()
    took, busy = time.perf_counter() - begun, cpu_s(pid) - busy
    total = sum(counts)
    print(f"{connections} connections, {window} in flight on each: {total / took:,.0f} routes/s; the server had "
          f"{busy / took:.0%} of a core, so {total / busy:,.0f} with one of its own")
    for stream in brokers:
        await stream.aclose()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--window", type=int, default=1)
    parser.add_argument("--topics", type=int, default=100)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(
        [sys.executable, "-c", "import sys; from controller.namesrv.cli import main; sys.exit(main())",
         "-D", "listenPort=0", "-D", "bindAddress=127.0.0.1", "-D", f"kvConfigPath={folder}/kv",
         "--log-level", "error"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline().rpartition(":")[2])
        try:
            trio.run(measure, server.pid, port, options.seconds, options.connections, options.window, options.topics)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
