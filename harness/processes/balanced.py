"""A group of three brokers behind a balancer, with the files and commands of the how-to on losing a host.

Each host is an address of the loopback network. Knows the page and processes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import SystemRandom
from typing import Final

import attrs
import trio

from harness.processes import ours
from harness.processes.handle import Handle, running
from mqcluster.plan import ROOM
from remoting.bodies.controller import BrokerReplicasInfo
from remoting.client import Client
from remoting.codes import RequestCode
from remoting.command import request
from remoting.daemon.child import child
from remoting.errors import RemotingError

HOW_TO: Final = Path(__file__).parents[2] / "docs" / "how-to" / "lose-a-host.md"
PROGRAM: Final = "haproxy"
GROUP: Final = "broker-a"
_NETWORK: Final = "10.0.0."
_PORTS: Final = (10_911, 10_921, 10_931)


def missing() -> str:
    """The missing program, in words; empty if there is none."""
    return "" if shutil.which(PROGRAM) else f"{PROGRAM} is missing: apt-get install {PROGRAM}"


def block(language: str) -> str:
    """The page's first code block in that language."""
    found = re.search(rf"^```{language}\n(.*?)^```$", HOW_TO.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{HOW_TO} has no block of {language}"
    return found[1]


def commands(program: str) -> list[list[str]]:
    """The page's commands of that program."""
    found = re.findall(rf"^({program} .*)$", HOW_TO.read_text(), re.MULTILINE)
    return [shlex.split(each) for each in found]


@attrs.define
class BrokerHost:
    """A machine with one broker."""

    broker: Handle
    announced: str
    """The address that clients use: the balancer's."""

    def lose(self) -> None:
        """Kill guardian and broker at once."""
        guardian = self.broker.pid
        for pid in (*children(guardian), guardian):
            os.kill(pid, signal.SIGKILL)


@attrs.define
class Balanced:
    namesrv: Handle
    controllers: Sequence[Handle]
    hosts: list[BrokerHost]
    balancer: Handle

    def at(self, announced: str) -> BrokerHost:
        return next(host for host in self.hosts if host.announced == announced)

    async def master(self, client: Client, in_sync: int, *former: str) -> str:
        """Wait for a master not in ``former`` with so many in sync; returns its address."""
        with trio.fail_after(120):
            while True:
                for controller in self.controllers:
                    try:
                        answer = await client.call(controller.address, request(
                            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=f'["{GROUP}"]'.encode()))
                        found = BrokerReplicasInfo.from_json(answer.body).replicas_info_table.get(GROUP)
                    except RemotingError:
                        continue
                    if found is not None and found.master_address and found.master_address not in former and len(
                            found.in_sync_replicas) >= in_sync:
                        return found.master_address
                await trio.sleep(0.05)


def children(pid: int) -> list[int]:
    """The child processes of all threads of a process."""
    return [int(each) for task in Path(f"/proc/{pid}/task").glob("*/children") for each in task.read_text().split()]


@asynccontextmanager
async def balanced(here: Path) -> AsyncIterator[Balanced]:
    """Run three controllers, a name server, three hosts and the balancer."""
    here = here.absolute()
    chance = SystemRandom()
    network = f"127.{chance.randrange(1, 255)}.{chance.randrange(256)}."
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(ours.namesrv(here / "namesrv"))
        controllers = await stack.enter_async_context(ours.controllers(here / "controllers"))
        hosts = []
        for number, port in enumerate(_PORTS, 1):
            text = block("properties").replace("10.0.0.11", f"10.0.0.1{number}")
            text = text.replace(str(_PORTS[0]), str(port)).replace(str(_PORTS[0] + 1), str(port + 1))
            for key, value in (("namesrvAddr", namesrv.address), ("storePathRootDir", str(here / f"store{number}")),
                               ("controllerAddr", ";".join(ours.addresses(controllers)))):
                text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
            text += "".join(f"\n{key} = {value}" for key, value in ROOM.items())
            [line] = commands("mqbroker")
            broker = Handle(
                f"broker {number}", _folder(here / f"b{number}", "broker.conf", text.replace(_NETWORK, network)),
                [*child("broker.cli"), *line[1:]], f"{network}1{number}:{port}", "boot success")
            hosts.append(BrokerHost(await stack.enter_async_context(running(broker)), f"{network}100:{port}"))
        folder = _folder(here / "balancer", "haproxy.cfg", block("haproxy").replace(_NETWORK, network))
        check, run = commands(PROGRAM)
        checked = Handle("the balancer's check", folder, check, "", "")
        await checked.launch()
        code = await checked.wait()
        assert code == 0, checked.tail()
        balancer = Handle("balancer", folder, run, hosts[0].announced, "")
        yield Balanced(namesrv, controllers, hosts, await stack.enter_async_context(running(balancer)))


def _folder(path: Path, name: str, text: str) -> Path:
    path.mkdir(parents=True)
    (path / name).write_text(text)
    return path
