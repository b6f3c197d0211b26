"""A guardian with a real child that is killed, on real sockets: the address answers all the time."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from broker.relay.finding import MasterFinder
from broker.relay.forwarding import Forwarder
from broker.relay.guardian import Guardian, GuardianConfig, Leashed, StandIn
from broker.relay.lingering import send_away
from broker.relay.lives import HANDED_OVER, Lives
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.errors import RemotingError
from remoting.headers.controller import GetReplicaInfoResponse
from remoting.server import Server

SEND = RequestCode.SEND_MESSAGE_V2
CHILD = """
import os, sys, threading, trio
from broker.relay.guardian import inherited_sockets, tell_ready
from remoting.command import response
from remoting.server import Server

if {exit_code} >= 0:
    sys.exit({exit_code})
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()

async def main():
    server = Server({{code: lambda connection, command: response(command, remark="child") for code in (310, 25)}})
    listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in inherited_sockets()]
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, listeners)
        with trio.open_signal_receiver(2, 15) as signals:
            tell_ready()
            async for _ in signals:
                nursery.cancel_scope.cancel()

trio.run(main)
sys.exit({stopped})
"""


@attrs.define(eq=False)
class World:
    """``master`` is what the controller names; ``address`` is the guardian's."""

    nursery: trio.Nursery
    guardian: Guardian
    client: Client
    address: str
    other: str
    master: str
    ended: list[int | None] = attrs.field(factory=list)

    async def ask(self, code: int = SEND) -> Command:
        """Again until there is an answer: a connection may have died with the child."""
        while True:
            try:
                return await self.client.call(self.address, request(code), 5_000)
            except RemotingError:
                await trio.sleep(0.01)

    async def until_ended(self) -> None:
        with trio.fail_after(60):
            while not self.ended:
                await trio.sleep(0.01)

    async def until_said(self, by: str) -> None:
        with trio.fail_after(60):
            while (await self.ask()).remark != by:
                await trio.sleep(0.01)


def _listening() -> tuple[socket.socket, str]:
    made = socket.create_server(("127.0.0.1", 0))
    return made, f"127.0.0.1:{made.getsockname()[1]}"


async def _serve(nursery: trio.Nursery, server: Server) -> str:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    await nursery.start(server.run, [listener])
    return f"127.0.0.1:{listener.socket.getsockname()[1]}"


@asynccontextmanager
async def world(
    exit_code: int = -1, *, stopped: int = 0, stop_forward_ms: int = 60_000, linger_path: Path | None = None,
) -> AsyncGenerator[World, None]:
    """``exit_code``: of a child that ends before it serves; ``stopped``: of one that was told to stop."""
    listening, address = _listening()
    async with trio.open_nursery() as nursery, open_client() as client, open_client() as asking:
        other = await _serve(nursery, Server({SEND: lambda _, command: response(command, remark="master")}))

        def info(_: Connection, command: Command) -> Command:
            return response(command, header=GetReplicaInfoResponse(2, made.master, 7))

        controller = await _serve(nursery, Server({RequestCode.CONTROLLER_GET_REPLICA_INFO: info}))
        guardian = Guardian(
            GuardianConfig(address, forward_ms=200, stop_forward_ms=stop_forward_ms, linger_path=linger_path),
            Leashed([sys.executable, "-c", CHILD.format(exit_code=exit_code, stopped=stopped)],
                    {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}),
            StandIn(sockets=[listening], forwarder=Forwarder(),
                    finder=MasterFinder(asking, [controller], "broker-a")),
            lives=Lives(restart_ms=1_000))
        made = World(nursery, guardian, client, address, other, master=address)

        async def serve(*, task_status: trio.TaskStatus[None]) -> None:
            made.ended.append(await guardian.run(task_status=task_status))

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            async with trio.open_nursery() as inner:
                with suppress(RuntimeError):  # it ended without having served
                    await inner.start(serve)
                task_status.started()

        try:
            with trio.fail_after(60):
                await nursery.start(run)
            yield made
        finally:
            guardian.stop(signal.SIGKILL)
            listening.close()
            nursery.cancel_scope.cancel()


async def test_the_address_answers_while_the_child_is_dead_and_the_child_comes_back() -> None:
    async with world() as w:
        assert (await w.ask()).remark == "child"
        assert w.guardian.child is not None
        w.guardian.child.send_signal(signal.SIGKILL)
        w.master = w.other
        await w.until_said("master")
        refused = await w.ask(RequestCode.UPDATE_BROKER_CONFIG)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE  # it means that very broker
        await w.until_said("child")
        assert (await w.ask(RequestCode.UPDATE_BROKER_CONFIG)).remark == "child"
        assert w.guardian.starts == 2


def refused_by_guardian(answer: Command) -> bool:
    return answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and "its guardian serves clients" in str(answer.remark)


@pytest.mark.parametrize("asks_meanwhile", [True, False])
async def test_who_means_the_broker_finds_it_when_it_is_back(asks_meanwhile: bool) -> None:
    """Another member of the group keeps its connections; one that the guardian kept would answer for the broker."""
    async with world() as w, open_client() as member:
        assert w.guardian.child is not None
        w.guardian.child.send_signal(signal.SIGKILL)
        w.master = w.other
        await w.until_said("master")
        await member.connect(w.address)
        if not asks_meanwhile:
            await w.until_said("child")
        first = await member.call(w.address, request(RequestCode.UPDATE_BROKER_CONFIG))
        await w.until_said("child")
        assert refused_by_guardian(first) or first.remark == "child", "a slow machine may have been too late to connect"
        assert (await member.call(w.address, request(RequestCode.UPDATE_BROKER_CONFIG))).remark == "child"


async def test_a_client_that_said_nothing_before_the_broker_was_back_finds_it() -> None:
    async with world() as w, open_client() as late:
        assert w.guardian.child is not None
        w.guardian.child.send_signal(signal.SIGKILL)
        w.master = w.other
        await w.until_said("master")
        await late.connect(w.address)
        await w.until_said("child")  # when nobody is forwarded any more
        first = await late.call(w.address, request(SEND))
        assert first.code == ResponseCode.SERVICE_NOT_AVAILABLE or first.remark == "child"
        await w.until_said("child")  # the end of the connection is read by then
        assert (await late.call(w.address, request(SEND))).remark == "child"


async def test_it_ends_with_a_child_that_was_told_to_stop() -> None:
    async with world() as w:
        w.guardian.stop()
        await w.until_ended()
        assert w.ended == [0]


async def test_after_a_stop_that_handed_mastership_over_the_master_answers_until_nobody_is_to(tmp_path: Path) -> None:
    path = tmp_path / "lingers"
    async with world(stopped=HANDED_OVER, linger_path=path) as w:
        assert (await w.ask()).remark == "child"
        assert not send_away(path), "its broker runs"
        w.master = w.other
        w.guardian.stop()
        await w.until_said("master")
        assert w.guardian.child is not None and w.guardian.child.returncode == HANDED_OVER and not w.ended
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "kill", lambda pid, number: w.guardian.stop(number) if pid == os.getpid() else None)
            assert send_away(path), "a broker wants the port"
        await w.until_ended()
        assert w.ended == [0] and w.guardian.starts == 1
        assert not send_away(path)


@pytest.mark.parametrize(("number", "stop_forward_ms"), [
    (signal.SIGTERM, 0), (signal.SIGTERM, 100), (signal.SIGINT, 60_000)])
async def test_it_does_not_stay_where_that_is_off_or_over_or_after_an_interrupt(
    number: int, stop_forward_ms: int,
) -> None:
    async with world(stopped=HANDED_OVER, stop_forward_ms=stop_forward_ms) as w:
        w.master = w.other
        w.guardian.stop(number)
        await w.until_ended()
        assert w.ended == [0]


async def test_a_broker_is_restarted_on_request_and_its_clients_are_served_meanwhile() -> None:
    async with world(stopped=HANDED_OVER) as w:
        assert (await w.ask()).remark == "child"
        first = w.guardian.child
        w.master = w.other
        w.guardian.restart()
        await w.until_said("master")
        await w.until_said("child")
        assert w.guardian.starts == 2 and w.guardian.child is not first
        assert not w.ended


@pytest.mark.parametrize("exit_code", [0, 1, 2])
async def test_a_child_that_ended_in_order_or_never_served_is_not_started_again(exit_code: int) -> None:
    async with world(exit_code) as w:
        assert w.ended == [exit_code]
        assert w.guardian.starts == 1


async def test_a_stop_while_the_child_is_being_started_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    listening, address = _listening()
    start = trio.lowlevel.open_process

    async with open_client() as asking:
        guardian = Guardian(
            GuardianConfig(address), Leashed([sys.executable, "-c", "import time; time.sleep(60)"], os.environ),
            StandIn(sockets=[listening], forwarder=Forwarder(), finder=MasterFinder(asking, [], "broker-a")))

        async def slow(*args: Any, **rest: Any) -> trio.Process:
            child = await start(*args, **rest)
            guardian.stop()
            return child

        monkeypatch.setattr(trio.lowlevel, "open_process", slow)
        with listening, trio.fail_after(20):
            assert await guardian.run() == -signal.SIGTERM
