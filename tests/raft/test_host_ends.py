"""Snapshots that are under way, or not yet, when their host ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from harness.simulation.worlds.nodes import Counter
from raft.errors import Rejected
from raft.host import open_host
from raft.node import Node
from raft.sim.disk import VirtualDisk
from tests.raft.test_host import ALONE, FAST, until_leads
from tests.raft.test_host_groups import SMALL


async def test_a_directory_is_let_go_when_nobody_writes_into_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A snapshot that was under way when the host ended came into the directory when another process may have had
    it."""
    order, ended, let_go = list[str](), trio.Event(), threading.Event()
    async with trio.open_nursery() as nursery:
        async with open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", create=True, config=FAST) as host:
            node = await host.open_group("a", state_machine=Counter(), peers=ALONE, bootstrap=True)
            await until_leads(node)
            write, close, close_disk = node._driver.snapshots._write, host.close, host.close_disk

            def write_slowly(*args: Any) -> Any:
                trio.from_thread.run(ended.wait)
                let_go.wait(0.2)
                order.append("written")
                return write(*args)

            def say_that_it_ends() -> None:
                close()
                ended.set()

            def say_that_it_is_let_go() -> None:
                close_disk()
                order.append("let go")
                let_go.set()

            monkeypatch.setattr(node._driver.snapshots, "_write", write_slowly)
            monkeypatch.setattr(host, "close", say_that_it_ends)
            monkeypatch.setattr(host, "close_disk", say_that_it_is_let_go)
            await node.propose(b"1")
            nursery.start_soon(node.take_snapshot)
            while not node._driver.snapshots.taking:
                await trio.lowlevel.checkpoint()
    assert order == ["written", "let go"]
    assert await trio.to_thread.run_sync(list, (tmp_path / "snapshots").iterdir())


async def test_a_snapshot_that_has_not_begun_when_the_host_ends_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = VirtualDisk()
    async with trio.open_nursery() as nursery:
        async with open_host("unused", node_id="n0", listen=None, create=True, files=disk,
                             config=SMALL) as host:
            node = await host.open_group("a", state_machine=Counter(), peers=ALONE, bootstrap=True)
            await until_leads(node)
            await node.propose(b"1")
            async with node._driver.applier._lock:
                nursery.start_soon(_refused, node)
                await trio.testing.wait_all_tasks_blocked()
                node._driver.close()
    assert not disk.list("snapshots")


async def _refused(node: Node[bytes, Any, Any]) -> None:
    with pytest.raises(Rejected, match="stopping"):
        await node.take_snapshot()
