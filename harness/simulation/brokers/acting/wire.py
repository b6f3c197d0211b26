"""Requests and answers between machines: over connections to name servers, which close, and to brokers.

A machine whose process is down refuses; one that is cut off, or stands still, says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from harness.simulation.brokers.tasks import Resume, Wait
from raft.config import MS
from remoting.command import Command
from remoting.connection import Connection
from remoting.errors import ConnectFailed, ConnectionClosed, RequestTimeout

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.machine import MemberHost, MemberProcess
    from harness.simulation.brokers.acting.nameserver import ServerHost

(E_ASKED, E_ANSWER, E_TIMEOUT, E_LOST) = range(71, 75)
CALL_TIMEOUT_MS: Final = 3_000


@attrs.define(eq=False)
class ServerLink:
    """A connection of one run to a name server, by which that knows whom it serves."""

    process: MemberProcess
    server: ServerHost
    life: int = 0
    """Number of the name server's life; 0: nothing has reached it yet."""
    open_here: bool = True
    open_there: bool = True
    waiting: dict[Resume, None] = attrs.field(factory=dict)
    """Requests under way, in the order in which they were sent."""

    def ends(self) -> None:
        """Fail all requests under way, as this end hears that the other one closed the connection."""
        self.open_here = False
        waiting, self.waiting = self.waiting, {}
        for resume in waiting:
            resume(ConnectionClosed(self.server.address, "closed by the other end"))

    @property
    def peer(self) -> str:
        return f"{self.process.host.ip}:1"


class Requester:
    """The sender of a request, as a broker's handlers know it."""

    congested = closed = False

    def __init__(self, peer: str, answered: Callable[[Command], None]) -> None:
        self.peer, self._answered = peer, answered

    def reply(self, to: Command, answer: Command) -> None:
        """Pass on the answer to a request that had to wait."""
        self._answered(answer)

    def send(self, command: Command) -> None:
        """Send nothing: no client here waits for requests of a broker."""

    def as_connection(self) -> Connection:
        return cast(Connection, self)


class SimulatedClient:
    """``remoting.client.Client``, as far as shells of a broker use it."""

    def __init__(self, process: MemberProcess) -> None:
        self._process = process

    async def call(self, address: str, command: Command, timeout_ms: float | None = None) -> Command:
        answer = await Wait(lambda resume: self._ask(address, command, timeout_ms or CALL_TIMEOUT_MS, resume))
        return cast(Command, answer)

    async def send_oneway(self, address: str, command: Command) -> None:
        self._ask(address, command, 0, _nothing)

    def connection(self, address: str) -> Connection | None:
        channel = self._process.servers.get(address)
        return cast(Connection, channel) if channel is not None and channel.open_here else None

    def _ask(self, address: str, command: Command, timeout_ms: float, resume: Resume) -> None:
        process, town = self._process, self._process.town
        host = process.host
        done = [False]

        def once(result: Any) -> None:
            if not done[0]:
                done[0] = True
                resume(result)

        def hears(result: Any) -> None:
            host.do(process, E_ANSWER, lambda: once(result))

        server = town.server_at(address)
        if server is not None:
            self._ask_server(server, command, once)
        else:
            other = town.machine_at(address)
            back = town.network.link(other.name, host.name, "rpc")
            town.network.link(host.name, other.name, "rpc").send(
                lambda: ask_broker(other, f"{host.ip}:1", command, lambda result: back.send(lambda: hears(result))))
        if timeout_ms:
            process.later(round(timeout_ms * MS), E_TIMEOUT, lambda: once(
                RequestTimeout(address, command.code, timeout_ms)))

    def _ask_server(self, server: ServerHost, command: Command, resume: Resume) -> None:
        process, town = self._process, self._process.town
        host, address = process.host, server.address
        channel = process.servers.get(address)
        if channel is None or not channel.open_here:
            channel = process.servers[address] = ServerLink(process, server)
        channel.waiting[resume] = None
        back = town.network.link(server.name, host.name, "rpc")

        def hears(result: Any) -> None:
            host.do(process, E_ANSWER, lambda: answers(result))

        def answers(result: Any) -> None:
            channel.waiting.pop(resume, None)
            resume(result)

        def arrived() -> None:
            if server.core is None:
                back.send(lambda: hears(ConnectFailed(address, "refused")))
                return
            if not channel.life:
                channel.life = server.life
            if channel.life != server.life or not channel.open_there:
                back.send(lambda: host.do(process, E_LOST, channel.ends))
                return
            server.do(answered)

        def answered() -> None:
            answer = server.handle(channel, command)
            back.send(lambda: hears(answer))

        town.network.link(host.name, server.name, "rpc").send(arrived)


def ask_broker(other: MemberHost, peer: str, command: Command, answered: Callable[[Any], None]) -> None:
    """A request arrives at a machine."""
    there = other.member
    if there is None or not there.opened:
        answered(ConnectFailed(other.address, "refused"))
    else:
        asked_ns = there.town.world.now

        def replied(answer: Command) -> None:
            there.town.answers.answered(there, command, answer, asked_ns)
            answered(answer)

        other.do(there, E_ASKED, lambda: there.handle(Requester(peer, replied), command))


def _nothing(result: Any) -> None:
    """Drop the answer: nobody waits for it."""
