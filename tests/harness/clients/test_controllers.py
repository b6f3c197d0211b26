"""The client of controllers alone: what it asks, what answers mean, against whole controllers on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from harness.checkers.controllers import FUNCTIONS
from harness.clients.controllers import ControllerWork, active_of, command_of, outcome_of
from harness.simulation.worlds.controllers import World, world
from remoting.client import open_client
from remoting.codes import ResponseCode
from remoting.command import response

GROUP = {"master", "master_epoch", "set", "set_epoch"}


@asynccontextmanager
async def working() -> AsyncIterator[tuple[World, list[ControllerWork]]]:
    """Two clients that beat."""
    async with world() as made, open_client(connector=made.network.connector("10.0.8.8:1")) as client, \
            trio.open_nursery() as nursery:
        await made.active()
        controllers = [f"{name}:1" for name in made.names]
        works = [ControllerWork(client, controllers, number) for number in range(2)]
        for work in works:
            for address in controllers:
                nursery.start_soon(work.beat, address)
        yield made, works
        nursery.cancel_scope.cancel()


async def asked(work: ControllerWork, f: str, value: Any = None, key: str | None = "g0") -> dict[str, Any]:
    return await work.do({"f": f, "key": key, "value": value, "timeout_ms": 2_000})


async def begun(works: list[ControllerWork]) -> None:
    """Both are members, and the first is master."""
    for number, work in enumerate(works, 1):
        address = f"10.79.0.{number}:10911"
        assert (await asked(work, "apply-id", {"id": number, "code": f"{address};{number}"}))["type"] == "ok"
        told = await asked(work, "register", {"broker": number, "address": address})
        assert told["type"] == "ok" and told["value"].keys() == GROUP
    await trio.sleep(1)
    told = await asked(works[0], "elect", {"broker": 1, "designate": False})
    assert told == {"type": "ok", "value": {"master": 1, "master_epoch": 1, "set": [1], "set_epoch": 1}}


async def test_each_operation_is_done_and_told(autojump_clock: MockClock) -> None:
    async with working() as (made, works):
        assert await asked(works[0], "next-id") == {"type": "ok", "value": {"next": 1}}
        await begun(works)
        told = await asked(works[0], "alter", {"broker": 1, "master_epoch": 1, "set": [1, 2], "set_epoch": 1})
        assert told == {"type": "ok", "value": {"set": [1, 2], "set_epoch": 2}}
        now = {"type": "ok", "value": {"master": 1, "master_epoch": 1, "set": [1, 2], "set_epoch": 2}}
        assert await asked(works[1], "replica-info") == await asked(works[1], "sync-state") == now
        assert await asked(works[1], "elect", {"broker": 2, "designate": False}) == now, "2011 tells who stays"
        assert (await asked(works[1], "elect", {"broker": 2, "designate": True}))["value"]["master"] == 2
        views = [(await asked(works[0], "metadata", None, None))["value"] for _ in made.names]
        assert sorted(each["node"] for each in views) == made.names
        assert [each["leader"] for each in views if each["leads"]] == [
            each["node"] for each in views if each["leads"]]


async def test_some_reads_are_asked_of_each_controller_in_turn(autojump_clock: MockClock) -> None:
    async with working() as (_, works):
        await begun(works)
        told = [await asked(works[1], "replica-info") for _ in range(24)]
        strays = [each for number, each in enumerate(told, 1) if number % 4 == 0]
        assert [each["type"] for number, each in enumerate(told, 1) if number % 4] == ["ok"] * 18
        assert sorted(each["type"] for each in strays) == ["fail"] * 4 + ["ok"] * 2
        assert all(each["value"] == {"refused": 2007} for each in strays if each["type"] == "fail")


async def test_refusals_are_told_as_such(autojump_clock: MockClock) -> None:
    async with working() as (_, works):
        await begun(works)
        told = await asked(works[0], "apply-id", {"id": 1, "code": "10.79.0.9:10911;9"})
        assert (told["type"], told["value"]) == ("fail", {"refused": 2014, "next": 3})
        told = await asked(works[0], "alter", {"broker": 1, "master_epoch": 0, "set": [1, 2], "set_epoch": 1})
        assert (told["type"], told["value"]) == ("fail", {"refused": 2000})
        told = await asked(works[0], "register", {"broker": 8, "address": "10.79.0.8:10911"})
        assert (told["type"], told["value"]) == ("fail", {"refused": 2010})


async def test_who_rests_is_replaced(autojump_clock: MockClock) -> None:
    async with working() as (_, works):
        await begun(works)
        await asked(works[0], "alter", {"broker": 1, "master_epoch": 1, "set": [1, 2], "set_epoch": 1})
        await asked(works[0], "rest", {"broker": 1, "rest_ms": 4_000})
        await trio.sleep(3)
        told = (await asked(works[1], "replica-info"))["value"]
        assert (told["master"], told["set"]) == (2, [2])


async def test_without_an_active_controller_nothing_was_sent(autojump_clock: MockClock) -> None:
    async with working() as (made, works):
        await begun(works)
        for name in made.names:
            await made.kill(name)
        first = await asked(works[0], "alter", {"broker": 1, "master_epoch": 1, "set": [1, 2], "set_epoch": 1})
        assert first["type"] in {"fail", "info"}  # it still has the address of who was active
        told = await asked(works[0], "alter", {"broker": 1, "master_epoch": 1, "set": [1, 2], "set_epoch": 1})
        assert told == {"type": "fail", "error": "no controller says that it is active"}
        assert await active_of(works[0].client, works[0].controllers) is None


@pytest.mark.parametrize(("f", "code", "kind"), [
    ("alter", ResponseCode.CONTROLLER_NOT_LEADER, "info"), ("alter", ResponseCode.SYSTEM_ERROR, "info"),
    ("replica-info", ResponseCode.CONTROLLER_NOT_LEADER, "fail"), ("elect", ResponseCode.SYSTEM_ERROR, "info"),
    ("elect", ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "fail"),
    ("alter", ResponseCode.CONTROLLER_MASTER_STILL_EXIST, "fail"),
])
def test_what_may_have_been_proposed_is_unknown(f: str, code: ResponseCode, kind: str) -> None:
    """A leader that loses its lead while a proposal waits says NOT_LEADER, and the entry may be committed yet."""
    value = {"broker": 1, "master_epoch": 1, "set": [1], "set_epoch": 1, "designate": False}
    assert outcome_of(f, "g0", value, response(command_of(f, "g0", value), code, remark="x"))["type"] == kind


def test_each_function_of_a_group_is_a_request() -> None:
    value = {"broker": 1, "master_epoch": 1, "set": [1], "set_epoch": 1, "designate": False, "id": 1, "code": "c",
             "address": "a:1"}
    made: Callable[[str], int] = lambda f: command_of(f, "g0", value).code  # noqa: E731
    assert sorted(made(f) for f in FUNCTIONS - {"metadata", "rest"}) == [1001, 1002, 1003, 1004, 1006, 1012, 1013]
    with pytest.raises(KeyError):
        made("metadata")
