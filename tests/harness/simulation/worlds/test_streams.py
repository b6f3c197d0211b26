"""The network in memory: who listens is reached, others are refused, and bare ends see what a client does not show."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from harness.simulation.worlds.streams import ECHO, NEVER, Wire, ask, body_of, client_and_server, echo, net, wire_to
from remoting.codes import ResponseCode
from remoting.command import response
from remoting.server import Server


async def test_a_client_reaches_the_server_that_listens(autojump_clock: MockClock) -> None:
    async with client_and_server() as (client, server, made):
        assert body_of(await client.call("s:1", ask(body=b"hello"))) == b"hello"
        assert made.dialled == ["s:1"] and len(server.connections) == 1


async def test_nobody_is_reached_where_nobody_listens(autojump_clock: MockClock) -> None:
    async with net() as made:
        with pytest.raises(ConnectionRefusedError, match="nobody listens at s:2"):
            await made.connect("s:2")
        assert made.dialled == ["s:2"] and made.streams == []


async def test_an_answer_that_is_no_success_has_no_body_to_look_at(autojump_clock: MockClock) -> None:
    async with client_and_server() as (client, _, _):
        answer = await client.call("s:1", ask(NEVER))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        with pytest.raises(AssertionError):
            body_of(answer)


async def test_a_bare_end_sees_each_frame_in_turn_and_then_the_end(autojump_clock: MockClock) -> None:
    async with wire_to(Server({ECHO: echo})) as wire:
        await wire.send(ask(body=b"1"), ask(body=b"2", oneway=True), ask(body=b"3"))
        found = [await wire.receive() for _ in range(2)]
        assert [answer and answer.body for answer in found] == [b"1", b"3"], "a oneway request has no answer"
        answer = await wire.ask(ask(body=b"4"))
        assert answer is not None and body_of(answer) == b"4"


async def test_a_bare_end_is_told_nothing_more_once_the_other_end_has_gone(autojump_clock: MockClock) -> None:
    async with net() as made:
        server = await made.serve("s:1", Server({ECHO: lambda _, asked: response(asked)}))
        wires = [Wire(await made.connect("s:1")) for _ in range(2)]
        for wire in wires:
            assert await wire.ask(ask()) is not None
        for connection in list(server.connections):
            connection.close("enough")
        with trio.fail_after(5):
            assert [await wire.receive() for wire in wires] == [None, None]
