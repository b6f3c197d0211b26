"""The page on ready machines: its functions, as printed, against a real node of each."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import raft
from raft.examples import Dictionary, Locks, Queue, locks

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "use-ready-machines.md").read_text()


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    names: dict[str, Any] = {"trio": trio}
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    exec(compile(f"from __future__ import annotations\n{code}", "page", "exec"), names)
    return names


@asynccontextmanager
async def client_of(machine: Any, directory: Path) -> AsyncIterator[raft.Client[Any, Any, Any]]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    at = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    with trio.fail_after(30):
        async with raft.open_node("n0", {"n0": at}, directory, machine(), bootstrap=True, listeners=listeners):
            async with raft.connect([at], machine=machine) as client:
                yield client


async def test_the_dictionary(printed: dict[str, Any], tmp_path: Path) -> None:
    async with client_of(Dictionary, tmp_path) as client:
        counts = list[int]()

        async def count() -> None:
            counts.append(await printed["count_up"](client))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(count)
        assert sorted(counts) == [1, 2, 3, 4, 5]


async def test_the_locks(printed: dict[str, Any], tmp_path: Path) -> None:
    async with client_of(Locks, tmp_path) as client:
        first = await printed["take"](client, "me", 0.01)
        assert await printed["take"](client, "me", 0.01) == first
        second = await printed["take"](client, "you", 0.01)
        assert second > first
        assert (await client.propose(locks.Renew("store", first)))["owner"] == "you"


async def test_the_queue(printed: dict[str, Any], tmp_path: Path) -> None:
    async with client_of(Queue, tmp_path) as client:
        assert await printed["put_and_take"](client) == b"first"
