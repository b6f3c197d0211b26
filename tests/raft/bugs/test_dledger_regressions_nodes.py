"""Schedules that DLedger 0.4.0 gets wrong, on whole nodes: machines that raise, wall clocks, callers of a batch."""

from __future__ import annotations

import time

import pytest
import trio
import trio.testing

from harness.simulation.worlds.nodes import Counter, Nodes
from raft.config import Config
from raft.errors import Faulted, Unknown

VOTERS = {"n0": "h:1", "n1": "h:2", "n2": "h:3"}


class Hiccup(Counter):
    """Raises once; would succeed if asked again."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[bytes] = []

    def apply(self, command: bytes) -> int:
        self.asked.append(command)
        if command == b"13" and self.asked.count(command) == 1:
            raise ValueError("once")
        return super().apply(command)


async def test_DL_R17_a_machine_that_raises_stops_its_node_and_is_not_asked_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """DLedger F15: the entry was applied again, and the callers heard nothing.

    Guards that the first exception is the last thing a machine does; the others go on.
    """
    async with trio.open_nursery() as nursery:
        net = Nodes(nursery)
        for name in VOTERS:
            await net.start(name, VOTERS, Hiccup() if name == "n0" else Counter())
        leader = await net.leader()
        if leader.node_id != "n0":
            await leader.transfer_leadership("n0")
        node = net.nodes["n0"]
        assert await node.propose(b"1") == 1
        with pytest.raises(Faulted, match="ValueError: once"):
            await node.propose(b"13")
        with pytest.raises(Faulted):
            await node.propose(b"2")
        await trio.sleep(5)
        machine = node.state_machine
        assert isinstance(machine, Hiccup) and machine.asked == [b"1", b"13"]
        assert node.status().applied_index < node.status().commit_index and "once" in (node.status().faulted or "")
        other = await net.leader()
        assert other.node_id != "n0" and await other.propose(b"2") == 16
        nursery.cancel_scope.cancel()


async def test_DL_R18_a_wall_clock_that_jumps_changes_nothing(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DLedger F33: timers on the wall clock: one hour forward is an election storm, one back a frozen timeout.

    Guards that deadlines come from the monotonic clock.
    """
    offset_ns = 10**18

    def wall_ns() -> int:
        return offset_ns + int(trio.current_time() * 1e9)

    monkeypatch.setattr(time, "time_ns", wall_ns)
    monkeypatch.setattr(time, "time", lambda: wall_ns() / 1e9)
    async with trio.open_nursery() as nursery:
        net = Nodes(nursery)
        for name in VOTERS:
            await net.start(name, VOTERS, Counter())
        leader = await net.leader()
        term = leader.status().term
        for number, hours in enumerate((1, -1, -1, 1), 1):
            offset_ns += hours * 3_600 * 10**9
            with trio.fail_after(1):
                assert await leader.propose(b"1") == number
            await trio.sleep(3)
            assert leader.is_leader and {node.status().term for node in net.nodes.values()} == {term}
        offset_ns -= 3_600 * 10**9
        net.isolate(leader.node_id)
        with trio.fail_after(5):
            while not any(node.is_leader for node in net.nodes.values() if node is not leader):
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


async def test_DL_R20_a_batch_that_was_cut_by_a_step_down_has_an_unknown_result(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """DLedger F14, F16: a prefix was committed and the client was told of an error.

    Guards that a call some of whose commands took effect is neither done nor failed: its outcome is unknown.
    """
    config = Config(frame_bytes_max=4_096, append_bytes_max=4_096, inflight_messages_max=1)
    commands = [b"1".rjust(3_000, b"0")] * 6
    async with trio.open_nursery() as nursery:
        net = Nodes(nursery, config)
        for name in VOTERS:
            await net.start(name, VOTERS, Counter())
        old = await net.leader()
        others = [node for node in net.nodes.values() if node is not old]
        await old.propose(b"0")
        await trio.sleep(1)
        start, outcome = old._driver.replica.log.last_index, list[BaseException | object]()

        async def call() -> None:
            try:
                outcome.append(await old.propose_many(commands, timeout_ms=60_000))
            except Exception as error:  # noqa: BLE001 (whatever it is, the test looks at it)
                outcome.append(error)

        nursery.start_soon(call)
        while all(node._driver.replica.log.last_index == start for node in others):
            await trio.lowlevel.checkpoint()
        net.isolate(old.node_id)
        while not any(node.is_leader for node in others):
            await trio.sleep(0.01)
        new = next(node for node in others if node.is_leader)
        await new.propose(b"0")
        applied = new.state_machine
        assert isinstance(applied, Counter) and 0 < applied.n < len(commands), "a prefix took effect"
        net.heal()
        while not outcome:
            await trio.sleep(0.1)
        assert isinstance(outcome[0], Unknown), outcome
        assert (outcome[0].first, outcome[0].last) == (start + 1, start + 6)
        nursery.cancel_scope.cancel()
