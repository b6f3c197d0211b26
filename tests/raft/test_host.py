"""Hosts on real directories and real sockets: starting, refusing, surviving kill -9, groups, joining, stopping."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial, partialmethod
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
import trio
import trio.testing

import raft
from harness.simulation.worlds.nodes import Counter
from raft.errors import DamagedLog, Faulted, NotLeader, Rejected, RejectReason, Unknown, UsageError, WrongDirectory
from raft.groups import group_number
from raft.handshake import Connector
from raft.host import Host, open_host, open_node
from raft.node import Node
from raft.sim.disk import VirtualDisk
from raft.storage import inlining
from raft.storage.writer import LogWriter
from raft.trace import Event, StorageTrouble

FAST = raft.Config(election_timeout_ms=300, heartbeat_interval_ms=50, segment_bytes=16 << 20)
ALONE = {"n0": "127.0.0.1:0"}


def n(node: Node) -> int:
    assert isinstance(node.state_machine, Counter)
    return node.state_machine.n


async def until_leads(node: Node) -> None:
    async for event in node.events():
        if isinstance(event, raft.RoleChanged) and event.role is raft.Role.LEADER:
            return


@asynccontextmanager
async def alone(directory: Path, **kwargs: Any) -> AsyncIterator[Node]:
    async with open_node("n0", ALONE, directory, Counter(), config=FAST, **kwargs) as node:
        await until_leads(node)
        yield node


class Three:
    """Three nodes in one program, over TCP. Ports are reserved by listening before anybody is told of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.listeners: dict[str, list[trio.SocketListener]] = {}
        self.peers: dict[str, str] = {}
        self.nodes: dict[str, Node] = {}

    async def reserve(self, *names: str) -> None:
        for name in names:
            self.listeners[name] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self.peers[name] = f"127.0.0.1:{self.listeners[name][0].socket.getsockname()[1]}"

    @asynccontextmanager
    async def open(self, name: str, *, config: raft.Config = FAST, **kwargs: Any) -> AsyncIterator[Node]:
        kwargs = {"bootstrap": True, "peers": dict(self.peers), "listeners": self.listeners.pop(name, ()), **kwargs}
        if not kwargs["listeners"]:
            kwargs["listen"] = self.peers[name]
        async with open_node(
            name, data_dir=self.root / name, state_machine=Counter(), config=config, **kwargs,
        ) as node:
            self.nodes[name] = node
            yield node
        del self.nodes[name]

    async def leader(self) -> Node:
        while True:
            for node in self.nodes.values():
                if node.is_leader:
                    return node
            async with trio.open_nursery() as nursery:
                for node in self.nodes.values():
                    async def wait(node: Node = node, scope: trio.CancelScope = nursery.cancel_scope) -> None:
                        await until_leads(node)
                        scope.cancel()
                    nursery.start_soon(wait)


@asynccontextmanager
async def three(root: Path, config: raft.Config = FAST, **kwargs: object) -> AsyncIterator[Three]:
    cluster = Three(root)
    await cluster.reserve("n0", "n1", "n2")
    async with AsyncExitStack() as stack:
        for name in list(cluster.peers):
            await stack.enter_async_context(cluster.open(name, config=config, **kwargs))
        yield cluster


async def test_a_group_is_closed_before_it_ever_wrote(tmp_path: Path) -> None:
    """One that joined, and was not taken in."""
    with trio.fail_after(30):
        async with open_host(tmp_path, node_id="n9", listen="127.0.0.1:0", create=True) as host:
            for _ in range(2):
                await host.open_group("late", state_machine=Counter(), join=True)
                await host.close_group("late")


# --- one voter ---------------------------------------------------------------------------------------------------


async def test_a_group_of_one_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    async with alone(tmp_path, bootstrap=True) as node:
        assert await node.propose_many([b"1"] * 100) == list(range(1, 101))
        term = node.status().term
    async with alone(tmp_path) as node:
        await node.read_barrier()
        assert n(node) == 100
        assert node.status().term > term
        assert node.status().membership.voters == ("n0",)


CHILD = """
import sys, trio, raft
from raft.trace import Event, StorageTrouble
from harness.simulation.worlds.nodes import Counter
async def main():
    config = raft.Config(election_timeout_ms=300, heartbeat_interval_ms=50, segment_bytes=16 << 20)
    peers = {"n0": "127.0.0.1:0"}
    async with raft.open_node("n0", peers, sys.argv[1], Counter(), bootstrap=True, config=config) as node:
        while not node.is_leader:
            await trio.sleep(0.01)
        async def call():
            while True:
                print(await node.propose(b"1"), flush=True)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(call)
trio.run(main)
"""


async def acknowledged_by_the_killed(child: str, directory: Path) -> int:
    """Start this program three times, kill it each time; the highest result that it told."""
    highest, root = 0, Path(__file__).parents[2]
    for _ in range(3):
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", child, str(directory)], stdout=subprocess.PIPE, cwd=root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "docs" / "examples")))})
        assert process.stdout is not None
        try:
            received = b""
            with trio.fail_after(60):
                while received.count(b"\n") < 500:
                    received += await process.stdout.receive_some()
        finally:
            process.send_signal(signal.SIGKILL)
            while rest := await process.stdout.receive_some():
                received += rest
            await process.wait()
            await process.stdout.aclose()
        acknowledged = max(int(line) for line in received.split(b"\n")[:-1])
        assert acknowledged > highest
        highest = acknowledged
    return highest


async def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path: Path) -> None:
    highest = await acknowledged_by_the_killed(CHILD, tmp_path)
    async with alone(tmp_path) as node:
        await node.read_barrier()
        assert n(node) >= highest


async def test_a_process_whose_data_directory_is_deleted_ends_instead_of_acknowledging(tmp_path: Path) -> None:
    """It would go on with files that have no name, and the next process would find nothing."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", CHILD, str(tmp_path / "n0")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2])
    assert process.stdout is not None and process.stderr is not None
    try:
        with trio.fail_after(60):
            received = b""
            while received.count(b"\n") < 100:
                received += await process.stdout.receive_some()
            await trio.to_thread.run_sync(shutil.rmtree, tmp_path / "n0")
            while await process.stdout.receive_some():
                pass
            said = b""
            while more := await process.stderr.receive_some():
                said += more
            assert await process.wait() != 0
    finally:
        process.kill()
        await process.wait()
        await process.stdout.aclose()
        await process.stderr.aclose()
    assert b"was deleted while its node runs" in said, said.decode()
    assert not (tmp_path / "n0").exists()


async def test_a_snapshot_survives_and_spares_the_log(tmp_path: Path) -> None:
    async with alone(tmp_path, bootstrap=True) as node:
        await node.propose_many([b"1"] * 1_000)
        meta = await node.take_snapshot()
        await node.propose(b"1")
    async with alone(tmp_path) as node:
        await node.read_barrier()
        assert n(node) == 1_001
        assert isinstance(node.state_machine, Counter) and len(node.state_machine.log) == 1
        assert node.status().snapshot_index == meta.index

    class Bare:
        def apply(self, command: bytes) -> None: ...

    with pytest.raises(UsageError, match="no restore"):
        async with open_node("n0", ALONE, tmp_path, Bare(), config=FAST):
            pass

    class Picky(Counter):
        def restore(self, data: bytes) -> None:
            raise KeyError("no such format")

    with pytest.raises(Faulted, match="refused the snapshot") as caught:
        async with open_node("n0", ALONE, tmp_path, Picky(), config=FAST):
            pass
    assert isinstance(caught.value.__cause__, KeyError)
    async with alone(tmp_path) as node:  # neither refusal left a lock behind
        await node.read_barrier()
        assert n(node) == 1_001


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "changes"), [
    ("empty or not formatted.*bootstrap=True.*join=True", {}),
    ("bootstrap makes a new group, join enters", {"bootstrap": True, "join": True}),
    ("peers must name all first voters: 'n0' is not in",
     {"bootstrap": True, "peers": {"n1": "h:1"}, "listen": "127.0.0.1:0"}),
    ("say where to listen", {"bootstrap": True, "peers": {"n1": "h:1"}}),
])
async def test_an_empty_directory_needs_to_be_told(words: str, changes: dict[str, object], tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"peers": ALONE, "data_dir": tmp_path, "state_machine": Counter(), **changes}
    with pytest.raises((WrongDirectory, UsageError), match=words):
        async with open_node("n0", **arguments):
            pytest.fail("it opened")
    async with alone(tmp_path, bootstrap=True) as node:  # and nothing was spoilt by the refusal
        assert await node.propose(b"1") == 1


async def test_the_wrong_directory_is_refused_in_words(tmp_path: Path) -> None:
    async with alone(tmp_path / "n0", bootstrap=True) as node:
        await node.propose(b"1")
        with pytest.raises(WrongDirectory, match="in use"):
            async with alone(tmp_path / "n0"):
                pytest.fail("two processes, one directory")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letters.txt").write_text("dear diary")
    cases = [
        ("n1", "default", tmp_path / "n0", "belongs to node 'n0', not 'n1'"),
        ("n0", "other", tmp_path / "n0", "belongs to cluster 'default', not 'other'"),
        ("n0", "default", foreign, "neither empty nor formatted; it holds letters.txt"),
    ]
    for node_id, cluster, directory, words in cases:
        with pytest.raises(WrongDirectory, match=words):
            async with open_node(node_id, {node_id: ALONE["n0"]}, directory, Counter(), cluster=cluster, join=True):
                pytest.fail("it opened")


async def test_a_log_whose_beginning_is_missing_is_not_begun_anew(tmp_path: Path) -> None:
    async with alone(tmp_path, bootstrap=True) as node:
        await node.propose(b"1")
    (tmp_path / f"group-{1:016x}").unlink()
    with pytest.raises(DamagedLog, match="how it began is missing"):
        async with alone(tmp_path, bootstrap=True):
            pytest.fail("it opened")


async def test_what_the_block_raises_comes_out_as_it_was(tmp_path: Path) -> None:
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with alone(tmp_path, bootstrap=True):
            raise error
    assert caught.value is error
    with trio.move_on_after(0.01) as scope:
        async with alone(tmp_path):
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_everybody_who_waits_is_answered_when_the_block_ends(tmp_path: Path) -> None:
    answers: list[raft.RaftError] = []

    async def call(node: Node) -> None:
        try:
            while True:
                await node.propose(b"1")
        except raft.RaftError as error:
            answers.append(error)

    async with trio.open_nursery() as nursery:
        async with alone(tmp_path, bootstrap=True) as node:
            for _ in range(10):
                nursery.start_soon(call, node)
            while n(node) < 100:
                await trio.lowlevel.checkpoint()
    assert len(answers) == 10
    assert all(isinstance(error, raft.Unknown | Rejected) for error in answers)


# --- three voters ------------------------------------------------------------------------------------------------


async def test_three_nodes_agree_over_tcp(tmp_path: Path) -> None:
    async with three(tmp_path) as cluster:
        leader = await cluster.leader()
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(leader.propose, b"1")
        for node in cluster.nodes.values():
            await node.wait_leader()
            await node.read_barrier()
            assert n(node) == 100
        for name, node in cluster.nodes.items():
            assert node.status().membership.members[name].incarnation  # the leader has met everybody
            assert all(peer.connected for peer in node.status().peers)


async def test_a_leader_that_leaves_hands_over_and_comes_back_to_the_same_log(tmp_path: Path) -> None:
    cluster = Three(tmp_path)
    await cluster.reserve("n0", "n1", "n2")
    leaving = {name: trio.Event() for name in cluster.peers}
    left = {name: trio.Event() for name in cluster.peers}

    async def run(name: str) -> None:
        async with cluster.open(name):
            await leaving[name].wait()
        left[name].set()

    async with trio.open_nursery() as nursery:
        for name in cluster.peers:
            nursery.start_soon(run, name)
        while len(cluster.nodes) < 3:
            await trio.sleep(0.01)
        leader = await cluster.leader()
        assert await leader.propose(b"5") == 5
        leaving[leader.node_id].set()
        await left[leader.node_id].wait()
        second = await cluster.leader()  # at once: no election timeout passes
        assert await second.propose(b"1") == 6
        async with cluster.open(leader.node_id, bootstrap=False) as back:
            await back.wait_leader()
            await back.read_barrier()
            assert n(back) == 6
        for event in leaving.values():
            event.set()


async def test_dledger_rules_elect_and_replicate_too(tmp_path: Path) -> None:
    timers = raft.DLedgerTimers(heart_beat_time_interval_ms=50, min_vote_interval_ms=20, max_vote_interval_ms=80)
    async with three(tmp_path, raft.Config(rules=raft.Rules.DLEDGER, dledger=timers)) as cluster:
        leader = await cluster.leader()
        assert await leader.propose_many([b"1", b"2"]) == [1, 3]


async def test_a_joiner_is_taken_in_and_catches_up(tmp_path: Path) -> None:
    async with three(tmp_path) as cluster:
        leader = await cluster.leader()
        await leader.propose_many([b"1"] * 1_000)
        await cluster.reserve("n3")
        async with cluster.open("n3", bootstrap=False, join=True) as joiner:
            with pytest.raises(NotLeader):
                await joiner.propose(b"1")
            while leader.status().membership.voters != ("n0", "n1", "n2", "n3"):
                leader = await cluster.leader()
                with contextlib.suppress(Unknown, NotLeader):  # a busy machine may change its leader meanwhile
                    await leader.reconfigure(cluster.peers)
            await joiner.read_barrier()
            assert n(joiner) == 1_000
            while not joiner.is_leader:
                try:
                    await leader.transfer_leadership("n3")
                except Rejected as refused:
                    if refused.reason is not RejectReason.NOT_CAUGHT_UP:
                        raise
                    await trio.sleep(0.01)  # its own promotion is still on its way to it
            assert await joiner.propose(b"1") == 1_001
            smaller = {name: address for name, address in cluster.peers.items() if name != "n3"}
            await joiner.reconfigure(smaller)
            remaining = await cluster.leader()
            while remaining is joiner:
                await trio.sleep(0.01)
                remaining = await cluster.leader()
        assert await (await cluster.leader()).propose(b"1") == 1_002


async def test_a_wiped_voter_counts_for_nothing(tmp_path: Path) -> None:
    """It comes back with another incarnation: the group goes on without it, and says so."""
    cluster = Three(tmp_path)
    await cluster.reserve("n0", "n1", "n2")
    async with cluster.open("n0"), cluster.open("n1"):
        async with cluster.open("n2"):
            leader = await cluster.leader()
            await leader.propose(b"1")
            while not leader.status().membership.members["n2"].incarnation:
                await trio.sleep(0.01)
            if leader.node_id == "n2":
                await leader.transfer_leadership("n1")
        leader = await cluster.leader()
        await trio.to_thread.run_sync(lambda: os.rename(tmp_path / "n2", tmp_path / "lost"))
        async with cluster.open("n2"):
            while "n2" not in leader.status().strangers:
                await trio.sleep(0.01)
            assert await leader.propose(b"1") == 2
            assert any("n2" in sentence for sentence in leader.explain())


# --- many groups -------------------------------------------------------------------------------------------------


async def test_groups_share_directory_port_and_writer(tmp_path: Path) -> None:
    names = ("red", "green", "blue")

    async def open_all(host: Host, bootstrap: bool = False) -> dict[str, Node]:
        return {name: await host.open_group(name, state_machine=Counter(), peers=ALONE, bootstrap=bootstrap)
                for name in names}

    async with open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", create=True, config=FAST) as host:
        assert not host.address.endswith(":0")
        nodes = await open_all(host, bootstrap=True)
        with pytest.raises(UsageError, match="open already"):
            await host.open_group("red", state_machine=Counter())
        for number, node in enumerate(nodes.values(), 1):
            await until_leads(node)
            await node.propose_many([b"1"] * number)
    async with open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", config=FAST) as host:
        with pytest.raises(WrongDirectory, match="'violet' has not begun"):
            await host.open_group("violet", state_machine=Counter(), peers=ALONE)
        nodes = await open_all(host)
        for number, node in enumerate(nodes.values(), 1):
            await until_leads(node)
            await node.read_barrier()
            assert n(node) == number


@pytest.mark.parametrize(("groups", "loop_sync_max_ms"), [(1, 60_000), (1, 0), (2, 60_000)])
async def test_a_lone_caller_of_the_only_group_costs_no_other_thread(
    groups: int, loop_sync_max_ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inlining, "USUAL_S", 60.0)  # whatever else this machine does
    used: list[str] = []
    for name in ("write_inline", "submit", "submit_with_ack"):
        def noted(method: Callable[..., object], name: str, *args: object) -> object:
            used.append(name)
            return method(*args)
        monkeypatch.setattr(LogWriter, name, partialmethod(partial(noted, getattr(LogWriter, name), name)))
    config = attrs.evolve(FAST, loop_sync_max_ms=loop_sync_max_ms)
    async with open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", create=True, config=config) as host:
        nodes = [await host.open_group(f"g{number}", state_machine=Counter(), peers=ALONE, bootstrap=True)
                 for number in range(groups)]
        for node in nodes:
            await until_leads(node)
        await nodes[0].propose(b"1")
        writer = host._writer
        assert isinstance(writer, LogWriter)
        while writer._handed != writer._done:  # the thread has said what it did, but not come to rest
            await trio.lowlevel.checkpoint()
        used.clear()
        for expected in range(2, 7):
            assert await nodes[0].propose(b"1") == expected
        assert set(used) == ({"write_inline"} if (groups, loop_sync_max_ms) == (1, 60_000) else {"submit_with_ack"})


async def test_a_group_opened_on_a_disk_that_failed_says_so(autojump_clock: trio.testing.MockClock) -> None:
    """Nobody writes there any more: without a word it would wait for ever. What the scrub finds comes early, too."""
    disk = VirtualDisk()
    async with open_host("unused", node_id="n0", listen=None, create=True, files=disk, connect=_no_network) as host:
        first = await host.open_group("first", state_machine=Counter(), peers=ALONE, bootstrap=True)
        await until_leads(first)
        disk.fail("sync")
        with pytest.raises(Faulted):
            await first.propose(b"1")
        second = await host.open_group("second", state_machine=Counter(), peers=ALONE, bootstrap=True)
        assert second.status().storage == "failed"
        with pytest.raises(Faulted):
            await second.propose(b"1")


class Threaded(Counter):
    threaded = True


async def test_a_program_whose_threads_all_wait_for_the_node_is_answered(tmp_path: Path) -> None:
    """Its commands are applied in a thread, too: that one must not be among those that wait for it."""
    tokens = int(trio.to_thread.current_default_thread_limiter().total_tokens)
    async with open_node("n0", ALONE, tmp_path, Threaded(), bootstrap=True, config=FAST) as node:
        await until_leads(node)
        begun = threading.Barrier(tokens)

        def call() -> object:
            begun.wait(30)
            return trio.from_thread.run(node.propose, b"1")

        async with trio.open_nursery() as nursery:
            for _ in range(tokens):
                nursery.start_soon(trio.to_thread.run_sync, call)
        assert n(node) == tokens


async def test_groups_of_a_host_share_what_their_connections_name(tmp_path: Path) -> None:
    async with open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", create=True, config=FAST) as host:
        for other in (attrs.evolve(FAST, rules=raft.Rules.DLEDGER), attrs.evolve(FAST, election_timeout_ms=2_000)):
            with pytest.raises(raft.ConfigError, match=r"(rules|election_timeout_ms)=.*must be the host's"):
                await host.open_group("b", state_machine=Counter(), peers=ALONE, bootstrap=True, config=other)
        await host.open_group("b", state_machine=Counter(), peers=ALONE, bootstrap=True,
                              config=attrs.evolve(FAST, propose_timeout_ms=1_000))


async def test_a_group_has_no_larger_messages_than_its_host(tmp_path: Path) -> None:
    """Its entry was larger than the host's segments hold, and that ended all groups."""
    large = attrs.evolve(FAST, entry_bytes_max=12 << 20, message_bytes_max=16 << 20, segment_bytes=64 << 20)
    async with open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", create=True, config=FAST) as host:
        with pytest.raises(raft.ConfigError, match=r"message_bytes_max=16777216: must not exceed the host's, 8388608"):
            await host.open_group("b", state_machine=Counter(), peers=ALONE, bootstrap=True, config=large)
        node = await host.open_group("b", state_machine=Counter(), peers=ALONE, bootstrap=True, config=attrs.evolve(
            FAST, entry_bytes_max=4 << 20, segment_bytes=64 << 20))
        await until_leads(node)
        assert await node.propose(b"1".rjust(4 << 20, b"0")) == 1


async def test_a_host_that_has_ended_takes_no_calls(tmp_path: Path) -> None:
    """It wrote into a directory that another process may have by now, or waited for ever."""
    async with open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", create=True, config=FAST) as host:
        await host.open_group("a", state_machine=Counter(), peers=ALONE, bootstrap=True)
        await host.close_group("a")
        await host.open_group("b", state_machine=Counter(), peers=ALONE, bootstrap=True)
    before = await trio.to_thread.run_sync(_names_in, tmp_path)
    for call in (partial(host.open_group, "c", state_machine=Counter(), peers=ALONE, bootstrap=True),
                 partial(host.open_group, "a", state_machine=Counter()), partial(host.remove_group, "a"),
                 partial(host.close_group, "b")):
        with pytest.raises(UsageError, match="this host has ended"):
            await call()
    assert await trio.to_thread.run_sync(_names_in, tmp_path) == before


def _names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*"))


async def test_an_address_that_no_hello_can_carry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="to 255 bytes"):
        async with open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", address="h" * 256, create=True):
            pass


async def test_nodes_with_other_timers_refuse_each_other(tmp_path: Path) -> None:
    """Each would count on a silence that the other does not keep."""
    cluster = Three(tmp_path)
    await cluster.reserve("n0", "n1", "n2")
    async with cluster.open("n0"), cluster.open("n1"):
        leader = await cluster.leader()
        async with cluster.open("n2", config=attrs.evolve(FAST, election_timeout_ms=2_000)) as odd:
            with trio.fail_after(30):
                while not any("election_timeout_ms=2000" in line for line in leader.explain()):
                    await trio.sleep(0.01)
                while not any("timers" in line for line in odd.explain()):
                    await trio.sleep(0.01)
            assert await leader.propose(b"1") == 1
            assert odd.leader is None and n(odd) == 0


def test_group_numbers_are_stable_and_never_collide_with_the_default() -> None:
    assert group_number("default") == 1
    assert group_number("orders") == int.from_bytes(sha256(b"orders").digest()[:8], "little") & (1 << 63) - 1
    assert len({group_number(f"g{i}") for i in range(1_000)}) == 1_000
    with pytest.raises(UsageError):
        group_number("")


# --- replaced surroundings ---------------------------------------------------------------------------------------


async def test_on_simulated_files_and_a_virtual_clock_every_run_is_the_same(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def run() -> tuple[int, int, bytes]:
        files = VirtualDisk()
        machine = Counter()
        async with open_node(
            "n0", ALONE, "unused", machine, bootstrap=True, config=FAST, rng=Random(7), files=files,
            wall_ms=lambda: 1_700_000_000_000, listeners=(), connect=_no_network,
        ) as node:
            start = trio.current_time()
            await until_leads(node)
            await node.propose_many([b"1"] * 10)
            frames = node._driver.replica.log.cached(1, 1 << 20) or []
            return round((trio.current_time() - start) * 1e6), machine.n, b"".join(frame.data for frame in frames)

    assert await run() == await run()


def wires(nursery: trio.Nursery, hosts: dict[str, Host]) -> Connector:
    """Streams in memory to the hosts at these addresses."""
    async def connect(address: str) -> trio.abc.Stream:
        host = hosts.get(address)
        if host is None:
            raise OSError("nobody there")
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(host.transport.serve_stream, theirs)
        await trio.lowlevel.checkpoint()
        return ours
    return connect


async def test_three_hosts_on_memory_streams_and_simulated_disks(autojump_clock: trio.testing.MockClock) -> None:
    """The whole stack without a socket, a file or a thread, faster than time."""
    peers = {f"n{number}": f"h{number}:1" for number in range(3)}
    hosts: dict[str, Host] = {}
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        connect = wires(nursery, hosts)
        async with AsyncExitStack() as stack:
            nodes = []
            for name, address in peers.items():
                host = await stack.enter_async_context(open_host(
                    "unused", node_id=name, listen=None, address=address, create=True, rng=Random(name),
                    files=VirtualDisk(), connect=connect))
                hosts[address] = host
                stack.callback(hosts.pop, address)
                nodes.append(await host.open_group(state_machine=Counter(), peers=peers, bootstrap=True))
            await nodes[0].wait_leader()
            leader = next(node for node in nodes if node.node_id == nodes[0].leader)
            assert await leader.propose_many([b"1"] * 500) == list(range(1, 501))
            for node in nodes:
                await node.read_barrier()
                assert n(node) == 500
            assert trio.current_time() - start < 3
        nursery.cancel_scope.cancel()


async def test_BUG_M12_a_wiped_voter_that_greets_while_a_snapshot_is_restored_counts_for_nothing(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Own: its hello reached only nodes that were open already. Together the two lost what was acknowledged."""
    peers = {f"n{number}": f"h{number}:1" for number in range(3)}
    hosts: dict[str, Host] = {}
    disks, rng = {name: VirtualDisk() for name in peers}, Random(7)
    async with trio.open_nursery() as nursery:
        @asynccontextmanager
        async def opened(*names: str) -> AsyncIterator[list[Node]]:
            async with AsyncExitStack() as stack:
                nodes = []
                for name in names:
                    host = await stack.enter_async_context(open_host(
                        "unused", node_id=name, listen=None, address=peers[name], create=True, rng=rng,
                        files=disks[name], connect=wires(nursery, hosts)))
                    hosts[peers[name]] = host
                    stack.callback(hosts.pop, peers[name])
                    nodes.append(await host.open_group(state_machine=Counter(), peers=peers, bootstrap=True))
                yield nodes

        async with opened(*peers) as nodes:
            await nodes[0].wait_leader()
            await next(node for node in nodes if node.is_leader).propose(b"1")
            while not all(member.incarnation for member in nodes[0].status().membership.members.values()):
                await trio.sleep(0.01)
            await nodes[0].take_snapshot()
        disks["n1"] = VirtualDisk()
        async with opened("n1"):
            monkeypatch.setattr("raft.host.run_inline", _slow_to_restore)
            async with opened("n0") as (survivor,):
                assert n(survivor) == 1
                await trio.sleep(10)
                assert survivor.status().strangers == ("n1",) and not survivor.is_leader
                with pytest.raises(NotLeader):
                    await survivor.propose(b"1")
        nursery.cancel_scope.cancel()


async def _slow_to_restore(function: Callable[..., Any], *args: Any) -> Any:
    await trio.sleep(3 if function is list else 0)  # it reads the snapshot
    return function(*args)


async def test_a_full_disk_is_survived_without_losing_an_answer(autojump_clock: trio.testing.MockClock) -> None:
    """The log needs a next segment and cannot have it for a while: the node says so, and goes on when there is room."""
    disk, events = VirtualDisk(), list[Event]()
    small = raft.Config(
        segment_bytes=32 << 10, message_bytes_max=16 << 10, append_bytes_max=4_096, frame_bytes_max=4_096,
        entry_bytes_max=2_048, snapshot_chunk_bytes=4_096, propose_timeout_ms=60_000)
    async with open_node(
        "n0", ALONE, "unused", Counter(), bootstrap=True, config=small, rng=Random(7), files=disk, connect=_no_network,
        trace=events.append,
    ) as node:
        await until_leads(node)
        for _ in range(3):
            disk.fail("allocate", errno.ENOSPC)
        acknowledged = 0
        while acknowledged < 100:
            try:
                await node.propose(b"1".rjust(1_000, b"0"))
                acknowledged += 1
            except (NotLeader, Rejected):
                await trio.sleep(0.1)
        assert [event.kind for event in events if isinstance(event, StorageTrouble)][:2] == ["full", "room"]
        assert node.status().storage == "ok"
        assert acknowledged <= n(node)
    async with open_node("n0", ALONE, "unused", Counter(), config=small, files=disk, connect=_no_network) as node:
        await until_leads(node)
        await node.read_barrier()
        assert n(node) >= acknowledged


async def _no_network(address: str) -> trio.abc.Stream:
    raise OSError("there is no network")


async def test_who_connects_in_a_way_of_his_own_says_where_to_listen() -> None:
    with pytest.raises(UsageError, match="with connect= give listen or listeners as well"):
        async with open_node("n0", {"n0": "a:1", "n1": "b:1"}, "unused", Counter(), bootstrap=True,
                             files=VirtualDisk(), connect=_no_network):
            pass
