"""Signals and sockets of the servers' commands."""

from __future__ import annotations

import signal

import pytest
import trio

from remoting.daemon.process import Stoppable, listen, run_until_stopped


class Server:
    """Stops when it is told to."""

    def __init__(self) -> None:
        self.told = trio.Event()

    async def stop(self) -> None:
        self.told.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_start_that_does_not_end(number: signal.Signals) -> None:
    async def serve(task_status: trio.TaskStatus[Stoppable]) -> None:
        signal.raise_signal(number)
        await trio.sleep_forever()

    with trio.fail_after(10):
        await run_until_stopped(serve, lambda: pytest.fail("it has not started"))


async def test_a_signal_stops_a_server_in_order() -> None:
    server, said = Server(), []

    async def serve(task_status: trio.TaskStatus[Stoppable]) -> None:
        task_status.started(server)
        await server.told.wait()

    def started() -> None:
        said.append("started")
        signal.raise_signal(signal.SIGTERM)

    with trio.fail_after(10):
        await run_until_stopped(serve, started)
    assert said == ["started"] and server.told.is_set()


@pytest.mark.parametrize("host", ["a..b", "\udcff"])
async def test_an_address_that_no_host_can_have_is_said(host: str) -> None:
    with pytest.raises(OSError, match=r"cannot listen at .*choose another listenPort or bindAddress"):
        await listen(host, 0)
