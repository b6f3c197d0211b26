"""What callers pass: a wrong type is refused in the call, in words, and what callers change later changes nothing."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import raft
from harness.simulation.worlds.nodes import Counter, network, one
from raft import Access, ConfigError, LocalError, Read, UsageError
from raft.arguments import a_name, own_address, timeout
from raft.clientwire import Request, encode_request
from raft.host import Host
from raft.node import Node
from tests.raft.served import FakeNode, Network

ANYWHERE = "127.0.0.1:0"
NO_TEXT = (None, 5, b"n0", ["n0"], "", "n\n0", "n" * 300)
NO_MAP = (["n0"], "n0", 5, {"n0"}, [("n0", "h:1")])
NO_BOOK = (*NO_MAP, {"n0": 5}, {5: "h:1"}, {"": "h:1"})
NO_TIMEOUT = (0, -1, "5", 1.5, True, float("nan"), float("inf"))
NO_LEVEL: tuple[Any, ...] = ("index", 5, [], None)
NO_COMMAND = (None, "text", 5, bytearray(b"x"), memoryview(b"x"), [b"x"])
NO_COMMANDS: tuple[Any, ...] = (None, "text", b"ab", 5, {b"x": 1}, {b"x"}, [b"x", 1], [[b"x"]], b"", "", {})
NO_ADDRESS = (5, b"h:1", ["h:1"], "", "h")


class Asked(Counter):
    """A counter that answers questions."""

    def query(self, data: bytes) -> int:
        return self.n


Calls = list[tuple[str, Callable[[], object]]]


async def refused(calls: Calls) -> None:
    """Each call raises an error of the caller's, in words, before it waits for anything."""
    for name, call in calls:
        with trio.fail_after(5), contextlib.suppress(LocalError):
            found = call()
            if inspect.isawaitable(found):
                await found
            raise AssertionError(f"{name} is taken")


def each(name: str, call: Callable[[Any], object], values: tuple[Any, ...]) -> Calls:
    return [(f"{name}({value!r})", lambda value=value: call(value)) for value in values]  # type: ignore[misc]


@asynccontextmanager
async def alone(path: Path) -> AsyncIterator[tuple[Host, Node[bytes, Any, Any]]]:
    async with raft.open_host(path / "n0", node_id="n0", listen=ANYWHERE, create=True) as host:
        node: Node[bytes, Any, Any] = await host.open_group(
            state_machine=Asked(), peers={"n0": host.address}, bootstrap=True)
        await node.wait_leader()
        yield host, node


async def test_a_node_refuses_wrong_types_in_the_call(tmp_path: Path) -> None:
    async with alone(tmp_path) as (host, node):
        group = {"n0": host.address}
        await refused([
            *each("propose", node.propose, NO_COMMAND), *each("propose_nowait", node.propose_nowait, NO_COMMAND),
            *each("propose_many", node.propose_many, NO_COMMANDS),
            *each("propose, timeout_ms", lambda value: node.propose(b"1", value), NO_TIMEOUT),
            *each("propose_many, timeout_ms", lambda value: node.propose_many([b"1"], value), NO_TIMEOUT),
            *each("read_barrier, timeout_ms", lambda value: node.read_barrier(timeout_ms=value), NO_TIMEOUT),
            *each("unsafe, timeout_ms", lambda value: node.read_barrier(Read.UNSAFE, timeout_ms=value), NO_TIMEOUT),
            *each("query, timeout_ms", lambda value: node.query(b"", timeout_ms=value), NO_TIMEOUT),
            *each("read_barrier", node.read_barrier, NO_LEVEL),
            *each("query, level", lambda value: node.query(b"", level=value), NO_LEVEL),
            *each("query", node.query, (None, "text", 5)),
            *each("transfer_leadership", node.transfer_leadership, NO_TEXT[1:]),
            *each("reconfigure", node.reconfigure, (*NO_MAP, None)),
            *each("reconfigure, learners", lambda value: node.reconfigure(group, value), NO_MAP),
            *each("reconfigure, priorities", lambda value: node.reconfigure(group, priorities=value), NO_MAP),
        ])
        assert await node.propose(b"7") == 7
        assert await node.propose_many(iter([b"1", b"2"])) == [8, 10]  # type: ignore[arg-type]  # any order is one


async def test_a_host_refuses_wrong_types_in_the_call_and_lives_on(tmp_path: Path) -> None:
    async with alone(tmp_path) as (host, node):
        group = {"n0": host.address}

        def opens(**wrong: Any) -> Callable[[], object]:
            return lambda: host.open_group(wrong.pop("name", "other"), **{
                "state_machine": Asked(), "peers": group, "bootstrap": True, **wrong})

        await refused([
            *[(f"open_group({value!r})", opens(name=value)) for value in (None, 5, b"x", ["d"], "", "\ud800")],
            *[(f"peers={value!r}", opens(peers=value)) for value in (*NO_BOOK, None, {}, {"n0": ""}, {"n1": "h:1"})],
            *[(f"joins, peers={value!r}", opens(peers=value, bootstrap=False, join=True)) for value in NO_BOOK],
            *[(f"state_machine={value!r}", opens(state_machine=value)) for value in (None, Asked, object(), 5)],
            *[(f"config={value!r}", opens(config=value)) for value in ({"rules": 1}, "x")],
            ("trace", opens(trace=5)), ("bootstrap", opens(bootstrap="no")), ("both", opens(join=True)),
            *each("close_group", host.close_group, (None, 5, b"x", "")),
            *each("remove_group", host.remove_group, (None, 5, b"x", "")),
        ])
        assert await node.propose(b"7") == 7
        again = await host.open_group("other", state_machine=Asked(), peers=group, bootstrap=True)
        await again.wait_leader()
        assert await again.propose(b"1") == 1


@pytest.mark.parametrize(("name", "values"), [
    ("node_id", NO_TEXT), ("cluster", NO_TEXT), ("listen", NO_ADDRESS), ("address", (5, b"h:1", "t" * 256, "h\n:1")),
    ("config", (5, "x")), ("tls", (5, "x")), ("limits", (5, "x")), ("access", (5, "x")), ("rng", (5, "x")),
    ("clock", (5, "x")), ("wall_ms", (5, None)), ("connect", (5, None)), ("storage", (5, None)), ("listeners", (5,)),
    ("create", ("no",)), ("data_dir", (None, 5, "", b"d", "a\0b", ["d"])),
])
async def test_nothing_is_written_where_a_host_is_opened_with_what_it_does_not_take(
    name: str, values: tuple[Any, ...], tmp_path: Path
) -> None:
    for value in values:
        given: dict[str, Any] = {
            "data_dir": tmp_path / "n0", "node_id": "n0", "listen": ANYWHERE, "create": True, name: value}
        with pytest.raises(LocalError, match=r"must be|is a"):
            async with raft.open_host(given.pop("data_dir"), **given):
                raise AssertionError(f"opened with {name}={value!r}")
        assert not (tmp_path / "n0").exists(), value


@pytest.mark.parametrize("peers", [*NO_BOOK, None, {}, {"n0": ""}])
async def test_a_node_is_not_opened_among_peers_that_are_none(peers: Any, tmp_path: Path) -> None:
    with pytest.raises(LocalError):
        async with raft.open_node("n0", peers, tmp_path, Asked(), bootstrap=True, listen=ANYWHERE):
            raise AssertionError(f"opened among {peers!r}")


async def test_a_client_refuses_wrong_types_before_it_dials() -> None:
    async def dial(address: str) -> trio.abc.Stream:
        raise AssertionError("dialled")

    async with raft.connect(["h:1"], dial=dial) as client:
        await refused([
            *each("propose", client.propose, NO_COMMAND), *each("query", client.query, NO_COMMAND),
            *each("propose_many", client.propose_many, NO_COMMANDS),
            *each("propose, timeout_ms", lambda value: client.propose(b"1", timeout_ms=value), NO_TIMEOUT),
            *each("query, timeout_ms", lambda value: client.query(b"1", timeout_ms=value), NO_TIMEOUT),
            *each("status, timeout_ms", lambda value: client.status(timeout_ms=value), NO_TIMEOUT),
            *each("query, level", lambda value: client.query(b"", level=value), NO_LEVEL),
            *each("transfer_leadership", client.transfer_leadership, NO_TEXT[1:]),
            *each("reconfigure", client.reconfigure, (*NO_MAP, None)),
            *each("reconfigure, learners", lambda value: client.reconfigure({"n0": "h:1"}, value), NO_MAP),
            *each("reconfigure, priorities", lambda value: client.reconfigure({"n0": "h:1"}, priorities=value), NO_MAP),
            *each("status", client.status, NO_ADDRESS), *each("take_snapshot", client.take_snapshot, NO_ADDRESS),
            *each("accept_loss", client.accept_loss, (*NO_ADDRESS, None)),
            *each("query, address", lambda value: client.query(b"", address=value), NO_ADDRESS),
        ])
        illegal: tuple[Any, ...] = ({"n0": 5}, {5: "h:1"}, {"": "h:1"}, {"n0": ""}, {})
        for membership in illegal:
            with pytest.raises(raft.Rejected) as caught:
                await client.reconfigure(membership)
            assert caught.value.reason is raft.RejectReason.ILLEGAL_CHANGE


@pytest.mark.parametrize("wrong", [
    *[{"addresses": value} for value in (None, "h:1", b"h:1", 5, [5], ["h:1", None], [], [b"h:1"], ["h"], iter(()))],
    *[{"timeout_ms": value} for value in (*NO_TIMEOUT, None)], *[{"group": value} for value in (None, 5, b"x", "")],
    *[{"cluster": value} for value in NO_TEXT], {"tls": 5}, {"tls": "x"}, {"machine": 5}, {"machine": "Asked"},
    {"dial": 5},
])
async def test_no_client_is_made_of_wrong_types(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(LocalError):
        async with raft.connect(**{"addresses": ["h:1"], **wrong}):
            raise AssertionError(f"connected with {wrong}")


@pytest.mark.parametrize("wrong", [
    {"networks": "10.0.0.0/8"}, {"networks": 5}, {"peer_networks": "10.0.0.0/8"}, {"admins": "ops"}, {"admins": 5},
    {"admins": [5]}, {"client_proposals": "no"},
])
def test_nobody_is_let_in_by_a_rule_that_is_none(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        Access(**wrong)


@pytest.mark.parametrize(("name", "taken"), [
    ("n", True), ("n" * 255, True), ("n" * 256, False), ("é" * 127 + "n", True), ("é" * 128, False), ("", False),
    ("n\t", False), ("\ud800" * 3, False)])
def test_a_name_is_as_long_as_a_hello_can_carry(name: str, taken: bool) -> None:
    with contextlib.nullcontext() if taken else pytest.raises(UsageError, match="printable text of 1 to 255 bytes"):
        assert a_name("node_id", name) == name
    with contextlib.nullcontext() if taken or not name else pytest.raises(UsageError, match="1 to 255 bytes"):
        assert own_address(name) == name, "none is allowed"


def test_the_shortest_timeout_is_one() -> None:
    assert timeout(1) == 1


# --- what callers change later -----------------------------------------------------------------------------------


async def test_a_list_that_its_caller_changes_while_it_waits_gives_the_results_of_the_call(
    autojump_clock: MockClock,
) -> None:
    async with network() as net:
        node = await one(net)
        results: list[list[object]] = []

        async def propose(commands: list[bytes]) -> None:
            results.append(await node.propose_many(commands))

        first, second = [b"1", b"1"], [b"1", b"1"]
        net.disks["n0"].stalled = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(propose, first)
            nursery.start_soon(propose, second)
            await trio.testing.wait_all_tasks_blocked()
            first += [b"1"] * 2
            second.clear()
            net.disks["n0"].stalled = False
            net.disks["n0"].bell.ring()
        assert sorted(results, key=str) == [[1, 2], [3, 4]]


async def test_a_client_asks_again_for_the_membership_of_the_call(autojump_clock: MockClock) -> None:
    asked: list[object] = []
    wanted = {"n0": "h:1"}

    class Later(FakeNode):
        async def reconfigure(self, voters: Any, learners: Any = None, *, priorities: Any = None) -> None:
            asked.append((dict(voters), dict(learners)))
            wanted["n1"] = "h:2"
            if len(asked) == 1:
                raise raft.NotLeader(None, None)

    async with trio.open_nursery() as nursery:
        net = Network(nursery, {"a:1": Later()})
        async with raft.connect(["a:1"], dial=net.dial) as client:
            await client.reconfigure(wanted, wanted and {})
        nursery.cancel_scope.cancel()
    assert asked == [({"n0": "h:1"}, {})] * 2


async def test_a_group_begins_with_the_peers_of_the_call(tmp_path: Path) -> None:
    async with raft.open_host(tmp_path / "n0", node_id="n0", listen=ANYWHERE, create=True) as host:
        peers = {"n0": host.address}
        opened: list[Node[Any, Any, Any]] = []

        async def open_group() -> None:
            opened.append(await host.open_group(state_machine=Asked(), peers=peers, bootstrap=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_group)
            while not host._taken:  # it has been called
                await trio.lowlevel.checkpoint()
            peers["n9"] = "h:9"
        assert opened[0].membership.voters == ("n0",)


async def test_a_machine_may_use_up_the_list_of_commands_that_it_is_given(autojump_clock: MockClock) -> None:
    class Popping(Counter):
        def apply_batch(self, commands: list[bytes]) -> list[int]:
            results = []
            while commands:
                results.append(self.apply(commands.pop(0)))
            return results

    async with network() as net:
        node = await one(net, machine=Popping())
        assert await node.propose_many([b"1", b"10"]) == [1, 11]


def test_a_timeout_beyond_what_a_request_can_say_is_no_error() -> None:
    assert encode_request(Request(0, raft.clientwire.Op.STATUS, timeout_ms=raft.client.TIMEOUT_MS_MAX))
