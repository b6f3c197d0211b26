"""Clocks, chance and threads on virtual time: from the run, refused in words, and as before afterwards."""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
import uuid
from typing import Any

import pytest
import trio

from raft.errors import UsageError
from raft.virtual import VirtualWorld, run_on_virtual_time
from raft.virtual.replacing import EPOCH_S


def drawn() -> list[Any]:
    return [os.urandom(4), random.random(), uuid.uuid4(), secrets.token_hex(4), random.SystemRandom().random(),
            time.time_ns(), time.monotonic()]


async def draws(world: VirtualWorld) -> list[Any]:
    await trio.sleep(2.5)
    return drawn()


def test_chance_and_time_come_from_the_seed() -> None:
    one, two = (run_on_virtual_time(draws, seed=seed).value for seed in (1, 2))
    assert run_on_virtual_time(draws, seed=1).value == one
    assert not set(map(str, one[:5])) & set(map(str, two[:5]))
    assert one[5:] == [EPOCH_S * 10**9 + 2_500_000_000, 2.5]


def test_all_is_as_before_afterwards() -> None:
    names = [(time, "time"), (time, "monotonic_ns"), (os, "urandom"), (threading.Thread, "start"),
             (trio.to_thread, "run_sync")]
    before, state = [getattr(owner, name) for owner, name in names], random.getstate()
    run_on_virtual_time(draws)
    assert [getattr(owner, name) for owner, name in names] == before
    assert random.getstate() == state
    assert abs(time.time() - EPOCH_S) > 10**6


def test_what_would_go_to_a_thread_runs_at_once() -> None:
    async def main(world: VirtualWorld) -> tuple[int, float]:
        ident = await trio.to_thread.run_sync(threading.get_ident, abandon_on_cancel=True)
        return ident, trio.current_time()

    assert run_on_virtual_time(main).value == (threading.get_ident(), 0.0)


async def a_thread(world: VirtualWorld) -> None:
    threading.Thread(target=print, name="mine").start()


async def a_socket(world: VirtualWorld) -> None:
    await trio.open_tcp_listeners(0, host="127.0.0.1")


async def a_name(world: VirtualWorld) -> None:
    await trio.open_tcp_stream("somewhere.example", 80)


@pytest.mark.parametrize(("main", "words"), [
    (a_thread, "mine is a thread"), (a_socket, "a real socket has no place"), (a_name, "is looked up")])
def test_what_no_seed_decides_is_refused_in_words(main: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run_on_virtual_time(main)
