"""The brokers of a group ask each other: whom they take for living, and what comes of it when nobody knows."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio

from broker.fellows import FRESH_S, Alone, GroupFellows
from harness.simulation.worlds.streams import ECHO, NEVER, ask, client_and_server
from remoting.codes import ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.errors import RemotingError, ResponseError

OURS = "10.0.0.1:1"
Answer = Mapping[int, str] | None


class NameServers:
    """Answers of name servers, the last of which is repeated."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.asked = list(answers), 0

    async def __call__(self) -> Answer:
        self.asked += 1
        await trio.sleep(0.1)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def test_a_broker_is_no_fellow_of_itself_and_answers_are_used_for_a_second(
    autojump_clock: trio.abc.Clock,
) -> None:
    names = NameServers({0: "10.0.0.2:1", 1: OURS, 2: "10.0.0.3:1"}, {1: OURS})
    async with client_and_server() as (client, _, _):
        fellows = GroupFellows(client, OURS, names)
        found: list[Mapping[int, str]] = []
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(lambda: _kept(found, fellows))
        assert found == [{0: "10.0.0.2:1", 2: "10.0.0.3:1"}] * 5
        assert names.asked == 1, "who asks at the same time waits for one answer"
        await trio.sleep(FRESH_S)
        assert await fellows.living() == {}
        assert names.asked == 2


async def _kept(found: list[Mapping[int, str]], fellows: GroupFellows) -> None:
    found.append(await fellows.living())


async def test_while_no_name_server_answers_the_brokers_that_lived_are_the_best_guess(
    autojump_clock: trio.abc.Clock,
) -> None:
    names = NameServers(None, {0: "10.0.0.2:1"}, None)
    async with client_and_server() as (client, _, _):
        fellows = GroupFellows(client, OURS, names)
        assert await fellows.living() == {}
        assert await fellows.living() == {} and names.asked == 1, "nor is nobody asked in a hurry"
        for _ in range(3):
            await trio.sleep(FRESH_S)
            assert await fellows.living() == {0: "10.0.0.2:1"}
        assert names.asked == 4


async def test_who_was_cancelled_while_it_asked_leaves_the_next_to_ask(autojump_clock: trio.abc.Clock) -> None:
    names = NameServers({0: "10.0.0.2:1"})
    async with client_and_server() as (client, _, _):
        fellows = GroupFellows(client, OURS, names)
        with trio.move_on_after(0.05):
            await fellows.living()
        assert await fellows.living() == {0: "10.0.0.2:1"}
        assert names.asked == 2


async def test_a_refusal_is_raised_with_the_fellows_address(autojump_clock: trio.abc.Clock) -> None:
    heard: list[bytes] = []

    def refuse(_: Connection, request: Command) -> Command:
        return response(request, ResponseCode.NO_PERMISSION, remark="not you")

    def hear(_: Connection, request: Command) -> Command:
        heard.append(request.body)
        return response(request)

    async with client_and_server({ECHO: hear, NEVER: refuse}) as (client, _, _):
        fellows = GroupFellows(client, OURS, NameServers({}))
        assert (await fellows.ask("s:1", ask(body=b"asked"), 100)).code == ResponseCode.SUCCESS
        await fellows.tell("s:1", ask(body=b"told", oneway=True))
        with pytest.raises(ResponseError, match=r"not you") as raised:
            await fellows.ask("s:1", ask(NEVER), 100)
        assert raised.value.code == ResponseCode.NO_PERMISSION and "s:1" in str(raised.value)
        for call in (fellows.ask("s:2", ask(), 100), fellows.tell("s:2", ask(oneway=True))):
            with pytest.raises(RemotingError):
                await call
    assert heard == [b"asked", b"told"]


async def test_a_broker_alone_has_no_fellows() -> None:
    assert await Alone().living() == {}
