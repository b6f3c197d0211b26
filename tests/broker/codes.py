"""What each server of ours answers to each request code of RocketMQ 5.5.0, asked without any field.

``python -m tests.broker.codes`` writes ``docs/reference/codes.json``, from which the page of all codes is made. Real
servers on virtual time and memory streams; the container without a broker, the client as a member of a group.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from broker.container.config import from_properties
from broker.container.supervisor import Supervisor
from harness.scenarios.interop.codes import CODES
from harness.simulation.worlds.brokers import NAMESRV, Cluster, cluster, controlled, until
from harness.simulation.worlds.streams import wire_to
from remoting.codes import ResponseCode
from remoting.command import Command, request
from remoting.daemon.files import DiskFiles
from remoting.errors import RemotingError
from remoting.server import Server

RECORDED: Final = Path(__file__).parents[2] / "docs" / "reference" / "codes.json"
TOPIC: Final = "T"
Ask = Callable[[int], Awaitable[Command]]
Answers = dict[str, dict[int, int]]
"""By seat and code: the code of the answer, where that is not 3."""


async def answers() -> Answers:
    """Of each seat."""
    found: Answers = {}
    async with seats() as asks:
        for seat, ask in asks.items():
            found[seat] = {}
            for code in CODES:
                try:
                    answer = await ask(code)
                except RemotingError as error:
                    raise AssertionError(f"{seat} {code}: {error}") from error
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    found[seat][code] = answer.code
    return found


@asynccontextmanager
async def seats() -> AsyncGenerator[dict[str, Ask], None]:
    """How each server is asked."""
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(cluster(controllers=1))
        node = await made.node(**controlled(1))
        await until(lambda: node.serves)

        def at(address: str) -> Ask:
            return lambda code: made.ask(address, code)

        here = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        container = await stack.enter_async_context(_container(here))
        yield {"broker": at(node.address), "name server": at(NAMESRV), "controller": at("n0:1"),
               "container": container, "client": await _client(stack, made)}


@asynccontextmanager
async def _container(here: Path) -> AsyncGenerator[Ask, None]:
    config = from_properties({"containerStorePath": str(here), "configStorePath": str(here / "container.conf")})
    supervisor = Supervisor(config, DiskFiles(), here, {}, here, (), lambda line: None)
    async with wire_to(Server(supervisor.handlers())) as wire:
        async def ask(code: int) -> Command:
            answer = await wire.ask(request(code))
            assert answer is not None, "it closes no connection"
            return answer

        yield ask


async def _client(stack: AsyncExitStack, made: Cluster) -> Ask:
    """As the broker whose group it is a member of asks it."""
    (node,) = made.nodes
    await made.send(node.address, b"x", TOPIC)
    client = await stack.enter_async_context(made.connect())
    await stack.enter_async_context(client.consume("G", TOPIC))
    await until(lambda: "G" in node.clients.consumers.groups)
    (member,) = node.clients.consumers.groups["G"].members.values()
    return lambda code: member.connection.call(request(code), 30_000)


def recorded() -> Answers:
    """As the file has it."""
    found: dict[str, dict[str, int]] = json.loads(RECORDED.read_text(encoding="utf-8"))["here"]
    return {seat: {int(code): answer for code, answer in codes.items()} for seat, codes in found.items()}


def main() -> int:
    """Write what was answered; of Java's servers the file keeps what it has."""
    found = trio.run(answers, clock=trio.testing.MockClock(autojump_threshold=0))
    kept = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    RECORDED.write_text(json.dumps({**kept, "here": found}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
