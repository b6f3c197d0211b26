"""Real processes to be tortured: each answers at its address what it is sent, and keeps a file in its data."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import attrs
import trio

from harness.nemesis.clocks import Clock
from harness.nemesis.disks import Disk
from harness.nemesis.network import Network
from harness.processes.handle import Handle

PORT = 7_000
SERVER = """
import os, socket, sys, threading
host, port, data = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.makedirs(data, exist_ok=True)
with open(data + "/lives", "a") as lives:
    lives.write("x")
listener = socket.create_server((host, port))
print("up", flush=True)
def serve(peer):
    with peer:
        while said := peer.recv(1 << 16):
            peer.sendall(said)
def leash():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=leash, daemon=True).start()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@attrs.define
class Echo:
    """A node of a scene."""

    handle: Handle
    data: Path
    kind: str = "echo"

    @property
    def name(self) -> str:
        return self.handle.name

    @property
    def running(self) -> bool:
        return self.handle.running

    @property
    def pid(self) -> int:
        return self.handle.pid if self.running else 0

    @property
    def lives(self) -> int:
        """How often it was started since its data was empty."""
        return len((self.data / "lives").read_text())

    async def start(self) -> None:
        await self.handle.start()

    async def kill(self) -> None:
        await self.handle.kill()

    async def stop(self) -> None:
        await self.handle.stop()

    def pause(self) -> None:
        self.handle.pause()

    def resume(self) -> None:
        if self.running:
            self.handle.resume()

    async def wipe(self) -> None:
        await trio.to_thread.run_sync(shutil.rmtree, self.data)


@attrs.define
class Place:
    """A scene. Selectors are lists of names, or ``all``."""

    nodes: Mapping[str, Echo]
    network: Network
    disks: Mapping[str, Disk] = attrs.field(factory=dict)
    clocks: Mapping[str, Clock] = attrs.field(factory=dict)
    chance: Random = attrs.field(factory=lambda: Random(7))

    async def chosen(self, selector: str | Sequence[str]) -> list[str]:
        await trio.lowlevel.checkpoint()
        return list(self.nodes) if selector == "all" else [selector] if isinstance(selector, str) else list(selector)


def echoes(root: Path, network: Network, names: Sequence[str], port: int = PORT) -> dict[str, Echo]:
    """They are not started yet; their data is ``root/NAME/store``."""
    def echo(name: str) -> Echo:
        data = root / name / "store"
        command = [*network.prefix(name), sys.executable, "-c", SERVER, network.bind(name), str(port), str(data)]
        return Echo(Handle(name, root / name, command, "", "up"), data)

    return {name: echo(name) for name in names}


async def answers(address: str, port: int = PORT, within_s: float = 0.5) -> bool:
    """Whether a server there echoes on a new connection."""
    with trio.move_on_after(within_s):
        try:
            async with await trio.open_tcp_stream(address, port) as stream:
                await stream.send_all(b"hello")
                return await stream.receive_some() == b"hello"
        except (OSError, trio.BrokenResourceError):
            return False
    return False
