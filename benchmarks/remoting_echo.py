"""Echo requests through ``remoting``: two processes, one connection, a JSON header of 344 bytes, answered in kind.

Knows remoting's client and server and how rows are measured; nothing of other systems. Windows: one caller that awaits
answer after answer, a thousand tasks that do, and a thousand requests in flight without tasks (``call_nowait``). Each
row is followed by what a request cost either process of its processor, which other load on the machine changes less.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable

import attrs
import trio

from benchmarks.measure import Row, load, row
from remoting.client import Client, open_client
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.errors import RemotingError
from remoting.server import Server

CODE, SPENT = 310, 1
WINDOW = 1_000
EXT = {
    "a": "benchmark-producers", "b": "BenchmarkTopic", "c": "TBW102", "d": "4", "e": "3", "f": "0",
    "g": "1700000000000", "h": "0", "i": "UNIQ_KEY\x01C0A8000100002A139A5F1B2C3D4E5F60\x02TAGS\x01TagA",
    "j": "0", "k": "false", "l": "0", "m": "false",
}
"""What a producer sends with a message."""


@attrs.frozen
class Cost:
    """Microseconds of processor time for each request of a case."""

    case: str
    width: int
    client_us: float
    server_us: float

    def line(self) -> str:
        return json.dumps(attrs.asdict(self))


def _echo(_: Connection, request: Command) -> Command:
    answer = response(request, body=request.body)
    answer.ext = request.ext
    return answer


def _spent(_: Connection, request: Command) -> Command:
    return response(request, body=repr(time.process_time()).encode())


async def _serve() -> None:
    server = Server({CODE: _echo, SPENT: _spent})
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listeners[0].socket.getsockname()[1], flush=True)
    await server.run(listeners)


async def _measure(address: str, size_bytes: int, seconds: float, report: Callable[[Row | Cost], None]) -> None:
    async with open_client() as client:
        asked = 0

        async def call(data: bytes) -> None:
            nonlocal asked
            asked += 1
            await client.call(address, Command(CODE, ext=EXT, body=data))

        async def spent() -> tuple[float, float]:
            return time.process_time(), float((await client.call(address, Command(SPENT))).body)

        for width in (1, WINDOW, None):
            asked, before = 0, await spent()
            if width:
                made = await load("echo", call, width=width, size_bytes=size_bytes, seconds=seconds)
            else:
                made, asked = await _pipelined(client, address, size_bytes, seconds)
            ours, theirs = (1e6 * (now - then) / asked for now, then in zip(await spent(), before, strict=True))
            report(made)
            report(Cost(made.case, made.width, round(ours, 2), round(theirs, 2)))


async def _pipelined(client: Client, address: str, size_bytes: int, seconds: float) -> tuple[Row, int]:
    """``WINDOW`` requests in flight, each answer sends the next request; and how many there were."""
    connection = await client.connect(address)
    clock, data, done = time.perf_counter, bytes(size_bytes), trio.Event()
    latencies: list[float] = []
    begin = clock()
    stop, left = begin + seconds, WINDOW

    def send() -> None:
        start = clock()

        def on_answer(answer: Command | RemotingError) -> None:
            nonlocal left
            if isinstance(answer, RemotingError):
                raise answer
            now = clock()
            latencies.append(now - start)
            if now < stop:
                send()
            else:
                left -= 1
                if not left:
                    done.set()

        connection.call_nowait(Command(CODE, ext=EXT, body=data), on_answer)

    for _ in range(WINDOW):
        send()
    await done.wait()
    return row("echo without tasks", WINDOW, size_bytes, latencies, clock() - begin), len(latencies)


def run(size_bytes: int, seconds: float, report: Callable[[Row | Cost], None]) -> None:
    """Measure all windows against a server in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.remoting_echo", "--serve"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = f"127.0.0.1:{int(server.stdout.readline())}"
            trio.run(_measure, address, size_bytes, seconds, report)
        finally:
            server.kill()


def main() -> None:
    parser = argparse.ArgumentParser("benchmarks.remoting_echo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="per row (default: 5)")
    parser.add_argument("--bytes", type=int, default=128, help="of body (default: 128)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        trio.run(_serve)
    else:
        run(args.bytes, args.seconds, lambda made: print(made.line(), flush=True))


if __name__ == "__main__":
    main()
