"""Real processes to be tortured: each echoes what it is sent, writes, syncs and says the time, and keeps its data."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import attrs
import trio

from harness.nemesis.disks import Disk, empty
from harness.nemesis.network import Network
from harness.processes.handle import Handle

PORT = 7_000
SERVER = """
import os, socket, sys, threading, time
host, port, data = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.makedirs(data, exist_ok=True)
with open(data + "/lives", "a") as lives:
    lives.write("x")
listener = socket.create_server((host, port))
print("up", flush=True)
def write(name):
    with open(data + "/" + name, "w") as file:
        file.write(name)
def sync(name):
    for path in (data + "/" + name, data):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
def clock(_):
    return time.time_ns()
done = {b"write": write, b"sync": sync, b"clock": clock}
def answer(said):
    what, _, name = said.partition(b" ")
    if what not in done:
        return said
    try:
        return str(done[what](name.decode())).encode()
    except OSError as error:
        return error.strerror.encode()
def serve(peer):
    with peer:
        while said := peer.recv(1 << 16):
            peer.sendall(answer(said))
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
    upgrades: int = -1
    """How often it was upgraded; below 0: it has one version."""

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
    def ports(self) -> Mapping[str, str]:
        return {"echo": self.handle.address}

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
        await trio.to_thread.run_sync(empty, self.data)

    def upgrade(self) -> bool:
        assert not self.running
        self.upgrades += self.upgrades >= 0
        return self.upgrades >= 0


@attrs.define
class Place:
    """A scene. Selectors are lists of names, or ``all``."""

    nodes: Mapping[str, Echo]
    network: Network
    disks: Mapping[str, Disk] = attrs.field(factory=dict)
    chance: Random = attrs.field(factory=lambda: Random(7))

    async def chosen(self, selector: str | Sequence[str]) -> list[str]:
        await trio.lowlevel.checkpoint()
        return list(self.nodes) if selector == "all" else [selector] if isinstance(selector, str) else list(selector)


def echoes(root: Path, network: Network, names: Sequence[str], port: int = PORT,
           disks: Mapping[str, Disk] | None = None) -> dict[str, Echo]:
    """They are not started yet; their data is ``root/NAME/store``."""
    def echo(name: str) -> Echo:
        data = root / name / "store"
        variables = disks[name].environment if disks else {}
        command = [*network.prefix(name), "env", *(f"{key}={value}" for key, value in variables.items()),
                   sys.executable, "-c", SERVER, network.bind(name), str(port), str(data)]
        return Echo(Handle(name, root / name, command, "", "up"), data)

    return {name: echo(name) for name in names}


async def asked(address: str, question: str, port: int = PORT, within_s: float = 0.5) -> str:
    """What a server there answers on a new connection; empty if it says nothing in time."""
    with trio.move_on_after(within_s):
        try:
            async with await trio.open_tcp_stream(address, port) as stream:
                await stream.send_all(question.encode())
                return (await stream.receive_some()).decode()
        except (OSError, trio.BrokenResourceError):
            return ""
    return ""


async def answers(address: str, port: int = PORT, within_s: float = 0.5) -> bool:
    """Whether a server there echoes."""
    return await asked(address, "hello", port, within_s) == "hello"
