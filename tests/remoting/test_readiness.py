"""One task that reads for many sockets: who is called, who no longer, and what stands in where there is no epoll."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from remoting.readiness import Readiness, readiness

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    made = [socket.socketpair() for _ in range(100)]
    yield made
    for pair in made:
        for each in pair:
            each.close()


async def test_each_is_called_while_there_is_something_to_read(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    table = readiness()
    assert table is not None
    heard: list[bytes] = []
    for _, ours in pairs:
        table.add(ours.fileno(), lambda ours=ours: heard.append(ours.recv(1)))  # type: ignore[misc]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.run)
        for number, (theirs, _) in enumerate(pairs):
            theirs.send(bytes([number, number]))
        with trio.fail_after(5):
            while len(heard) < 2 * len(pairs):
                await trio.lowlevel.checkpoint()
        assert sorted(heard) == sorted(bytes([number]) for number in range(len(pairs)) for _ in range(2))
        nursery.cancel_scope.cancel()
    table.add(pairs[0][1].fileno(), pytest.fail)
    table.remove(pairs[0][1].fileno())


async def test_who_was_removed_is_not_called_not_even_in_the_same_turn(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    table = Readiness()
    called: list[int] = []

    def remove_all(number: int) -> None:
        called.append(number)
        for _, ours in pairs:
            table.remove(ours.fileno())

    for number, (theirs, ours) in enumerate(pairs):
        table.add(ours.fileno(), lambda number=number: remove_all(number))  # type: ignore[misc]
        theirs.send(b"x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.run)
        await wait_all_tasks_blocked(0.01)
        assert len(called) == 1
        nursery.cancel_scope.cancel()
