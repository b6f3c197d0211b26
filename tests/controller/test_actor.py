"""The active controller's shell: when it looks, with a node and brokers that are not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from controller.active import Todo
from controller.actor import Actor
from raft.host import monotonic_ns
from tests.controller.test_active import Stage


async def test_a_closed_channel_is_looked_at_once(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the turn in which it closed; the task that waits for deadlines need not look, too: none came nearer."""
    stage, looks = Stage().form(1, 2), 0
    shell: Any = SimpleNamespace(config=SimpleNamespace(notify_broker_role_changed=False))
    actor = Actor(stage.machine, stage.active, shell, shell, monotonic_ns)
    poll = stage.active.poll

    def look(now: int) -> Todo:
        nonlocal looks
        looks += 1
        return poll(now)

    async def propose(_: bytes) -> object:
        return await trio.sleep_forever()

    monkeypatch.setattr(stage.active, "poll", look)
    actor.controller = shell
    node: Any = SimpleNamespace(propose=propose)
    actor.node = node
    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.act)
        await wait_all_tasks_blocked()
        looks, channel = 0, "a 1"
        assert channel in stage.active.liveness._by_connection
        closed: Any = channel
        actor.closed(closed, "broke")
        await wait_all_tasks_blocked()
        assert looks == 1
        nursery.cancel_scope.cancel()
