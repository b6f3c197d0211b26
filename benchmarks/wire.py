"""What the wire of shaped links carries, and how much later: ``python -m benchmarks.wire``.

Two hosts of a sandbox, one TCP connection: round trips of 100 bytes, and bytes one way. It knows the network of
``harness.nemesis``, and no server.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import trio

from harness.nemesis import sandbox
from harness.nemesis.network import namespaces
from harness.nemesis.shaping import Shape

SINK = """
import socket, threading
listener = socket.create_server(("0.0.0.0", 7000))
print("up", flush=True)
def serve(peer):
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    echoes = peer.recv(1) == b"e"
    while said := peer.recv(1 << 18):
        if echoes:
            peer.sendall(said)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
SOURCE = """
import socket, sys, time
host, seconds = sys.argv[1], float(sys.argv[2])
with socket.create_connection((host, 7000)) as peer:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(b"e")
    took = []
    for _ in range(3000):
        began = time.perf_counter()
        peer.sendall(b"x" * 100)
        peer.recv(1 << 16)
        took.append(time.perf_counter() - began)
took.sort()
with socket.create_connection((host, 7000)) as peer:
    peer.sendall(b"s")
    sent, began, piece = 0, time.perf_counter(), b"x" * 65536
    while time.perf_counter() - began < seconds:
        peer.sendall(piece)
        sent += len(piece)
    rate = sent / (time.perf_counter() - began)
print(f"round trip p50 {took[1500] * 1e6:.0f} us, p99 {took[2970] * 1e6:.0f} us; one way {rate / 1e6:.0f} MB/s")
"""


async def run(seconds: float) -> None:
    """Print a line for each shape of the link."""
    plain: list[tuple[str, str, Shape]] = []
    out, back = ("a", "b", Shape()), ("b", "a", Shape())
    async with namespaces(["a", "b"]) as network:
        sink = await trio.lowlevel.open_process(
            [*network.prefix("b"), sys.executable, "-c", SINK], stdout=subprocess.PIPE)
        assert sink.stdout is not None
        await sink.stdout.receive_some()
        for words, shapes in (("no wire", plain), ("wire one way", [out]), ("wire both ways", [out, back])):
            for shape in shapes:
                await network.shape(*shape)
            ran = await trio.run_process([*network.prefix("a"), sys.executable, "-c", SOURCE, network.address("b"),
                                          str(seconds)], capture_stdout=True)
            print(f"{words}: {ran.stdout.decode().strip()}")
            for shape in shapes:
                await network.unshape(*shape)
        sink.kill()
    print(f"load of this machine: {os.getloadavg()[0]:.1f}")


def main() -> None:
    """Enter a sandbox, and measure there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of bytes one way, for each line")
    options = parser.parse_args()
    if not sandbox.inside():
        if why := sandbox.impossible():
            sys.exit(why)
        sandbox.enter("benchmarks.wire", sys.argv[1:])
    trio.run(run, options.seconds)


if __name__ == "__main__":
    main()
