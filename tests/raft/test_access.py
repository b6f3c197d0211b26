"""Who may do what: the rule as a function, and the same over real sockets, each refusal in words.

Callers of this machine may always; so here none is of this machine, and all of 127.0.0.0/8 are addresses to call from.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import memory_stream_pair

from harness.simulation.worlds.nodes import Counter
from raft.access import LOCAL, Access, Caller, networks_of
from raft.client import connect
from raft.errors import ConfigError, NotAllowed, RejectReason
from raft.handshake import caller_of, greet, split_address
from raft.hello import Hello, Lane, Refused
from raft.host import open_host, open_node
from raft.lives import NONE_MET, Met
from raft.node import Node
from raft.status import RefusalKind
from tests.raft.test_host import ALONE, FAST, three, until_leads

STRANGER, OPERATOR, PEER = "127.0.0.3", "127.0.0.2", "127.0.0.4"
ADMIN = Access(networks=[f"{OPERATOR}/32"], client_proposals=False)


# --- the rule ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("caller", "may"), [
    (Caller("127.0.0.1"), True), (Caller("::1"), True), (Caller("::ffff:127.0.0.1"), True), (Caller(LOCAL), True),
    (Caller("10.0.0.9"), True), (Caller("::ffff:10.0.0.9"), True), (Caller("10.0.1.9"), False), (Caller(""), False),
    (Caller("fd00::7"), True), (Caller("fe80::7%eth0"), False), (Caller("localhost"), False),
    (Caller("192.0.2.1", frozenset({"n1"})), True), (Caller("192.0.2.1", frozenset({"ops", "x"})), True),
    (Caller("192.0.2.1", frozenset({"n7"})), False), (Caller("", frozenset({"n0"})), True),
], ids=str)
def test_BUG_W1_who_may_change_a_group(caller: Caller, may: bool) -> None:
    """Without credentials raftctl shrank a group to one voter: who may is judged by socket and certificate."""
    access = Access(networks=["10.0.0.0/24", "fd00::/8"], admins=["ops"])
    assert (access.change_refused(caller, ["n0", "n1"]) is None) is may


def test_a_refusal_says_who_and_who_may() -> None:
    access = Access(networks=["10.0.0.0/24"])
    assert access.change_refused(Caller("192.0.2.1", frozenset({"b", "a"})), ["n0"]) == (
        "192.0.2.1 with a certificate of a, b may look, but change nothing: that is for the loopback, 10.0.0.0/24 and "
        "for certificates of members and admins")
    assert "an unknown address may look" in (Access().change_refused(Caller(""), []) or "")


@pytest.mark.parametrize(("host", "let_in"), [
    ("10.0.0.9", True), ("10.0.1.9", False), ("127.0.0.1", True), (LOCAL, True), ("", False)])
def test_where_nodes_come_from(host: str, let_in: bool) -> None:
    assert Access().peer_refused(Caller(host)) is None
    refused = Access(peer_networks=["10.0.0.0/24"]).peer_refused(Caller(host, frozenset({"n1"})))
    assert refused is None if let_in else refused == (
        f"nodes come from the loopback, 10.0.0.0/24, not from {Caller(host)}")


@pytest.mark.parametrize("wrong", ["10.0.0.0/33", "10.0.0.1/24", "here", ""])
def test_a_network_that_is_none_is_a_config_error(wrong: str) -> None:
    with pytest.raises(ConfigError, match="must be networks such as"):
        networks_of([wrong])


def test_a_stream_without_a_socket_is_nobodys() -> None:
    assert caller_of(memory_stream_pair()[0]) == Caller("")


# --- over real sockets ---------------------------------------------------------------------------------------


@pytest.fixture
def _nobody_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Caller, "is_local", False)


async def dial(source: str, address: str) -> trio.SocketStream:
    host, port = split_address(address)
    return await trio.open_tcp_stream(host, port, local_address=source)


@asynccontextmanager
async def guarded(directory: Path, access: Access | None = ADMIN) -> AsyncIterator[tuple[Node, str]]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    async with open_node("n0", ALONE, directory, Counter(), config=FAST, bootstrap=True, listeners=listeners,
                         access=access) as node:
        await until_leads(node)
        await node.propose(b"0")
        yield node, address


@pytest.mark.usefixtures("_nobody_is_local")
async def test_BUG_W1_a_stranger_looks_and_changes_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, address), connect([address], dial=partial(dial, STRANGER)) as asking:
        before = node.status().membership
        for change in (partial(asking.reconfigure, {"x": "192.0.2.1:1"}, timeout_ms=3_000),
                       asking.transfer_leadership, asking.take_snapshot, partial(asking.accept_loss, address)):
            with pytest.raises(NotAllowed, match=r"127\.0\.0\.3 may look, but change nothing: .* 127\.0\.0\.2/32 and") \
                    as refused:
                await change()
            assert refused.value.reason is RejectReason.NOT_ALLOWED
        assert node.status().membership == before
        assert (await asking.status())["node_id"] == "n0" and await asking.diagnose(address)


@pytest.mark.usefixtures("_nobody_is_local")
async def test_a_listed_network_may_change_the_group(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, address), connect([address], dial=partial(dial, OPERATOR)) as asking:
        assert await asking.take_snapshot() > 0
        await asking.reconfigure({"n0": address}, priorities={"n0": 7})
        assert node.status().membership.members["n0"].priority == 7


async def test_this_machine_may_change_the_group(tmp_path: Path) -> None:
    async with guarded(tmp_path, Access()) as (_, address), connect([address]) as asking:
        assert await asking.take_snapshot() > 0


@pytest.mark.parametrize("source", [STRANGER, OPERATOR])
async def test_BUG_W2_commands_of_clients_are_refused_where_the_process_alone_proposes(
        tmp_path: Path, source: str) -> None:
    """A raft client proposed to a machine whose commands only its own process knows to make."""
    async with guarded(tmp_path) as (node, address), connect([address], dial=partial(dial, source)) as asking:
        for propose in (partial(asking.propose, b"1"), partial(asking.propose, b"1", timeout_ms=100),
                        partial(asking.propose_many, [b"1", b"2"])):
            with pytest.raises(NotAllowed, match="takes commands from its own process alone"):
                await propose()
        assert await node.propose(b"5") == 5


@pytest.mark.usefixtures("_nobody_is_local")
@pytest.mark.parametrize("access", [None, Access()])
async def test_clients_propose_unless_told_otherwise(tmp_path: Path, access: Access | None) -> None:
    async with guarded(tmp_path, access) as (_, address), connect([address], dial=partial(dial, STRANGER)) as asking:
        assert await asking.propose(b"1") == 1


async def knock(address: str, node: str, source: str = PEER, met: Met = NONE_MET) -> Hello:
    """As a node would."""
    async with await dial(source, address) as stream:
        hello = Hello(cluster="default", node=node, incarnation=bytes(16), lane=Lane.CONTROL, met=met)
        with trio.fail_after(5):
            return await greet(stream, hello, bytearray())


@pytest.mark.usefixtures("_nobody_is_local")
async def test_BUG_W3_a_node_that_is_no_member_is_not_let_in(tmp_path: Path) -> None:
    """Whoever greeted as a node of any name was taken for one."""
    async with guarded(tmp_path) as (node, address):
        with pytest.raises(Refused, match=r"node 'x' from 127\.0\.0\.4 is no member here, and node 'n0' needs"):
            await knock(address, "x")
        (refusal,) = node.status().refusals
        assert refusal.kind is RefusalKind.STRANGER and "x is not let in" in " ".join(node.explain())


@pytest.mark.usefixtures("_nobody_is_local")
async def test_BUG_F23_a_node_that_is_let_in_as_no_member_takes_no_vote_away(tmp_path: Path) -> None:
    """A group that waits to be joined lets any node in. One greeting ended the other groups of its host for good."""
    async with open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", create=True, config=FAST,
                         access=Access()) as host:
        node = await host.open_group("a", state_machine=Counter(), peers=ALONE, bootstrap=True)
        await until_leads(node)
        await host.open_group("b", state_machine=Counter(), join=True)
        theirs = await knock(host.address, "x")
        told = host._links.missing
        await knock(host.address, "x", met=Met(theirs.incarnation, (1 << 62,)))
        while "x" not in told:
            await trio.sleep(0.01)
        assert await node.propose(b"1") == 1 and not node.status().lapse_index


@pytest.mark.usefixtures("_nobody_is_local")
async def test_without_a_rule_any_node_is_let_in(tmp_path: Path) -> None:
    async with guarded(tmp_path, None) as (_, address):
        assert (await knock(address, "x")).node == "n0"


@pytest.mark.usefixtures("_nobody_is_local")
async def test_BUG_W3_nodes_come_from_where_they_may(tmp_path: Path) -> None:
    async with open_node("n0", {"n0": "127.0.0.1:0"}, tmp_path, Counter(), config=FAST, join=True, listeners=(
            listeners := await trio.open_tcp_listeners(0, host="127.0.0.1")),
            access=Access(peer_networks=[f"{PEER}/32"])):
        address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        with pytest.raises(Refused, match=r"nodes come from the loopback, 127\.0\.0\.4/32, not from 127\.0\.0\.3"):
            await knock(address, "x", STRANGER)
        assert (await knock(address, "x")).node == "n0"  # it knows no member yet, and takes whoever may lead it


async def test_members_come_and_go_where_strangers_are_kept_out(tmp_path: Path) -> None:
    """A node that waits to be added takes its leader, and is let in by all once it is a member."""
    async with three(tmp_path, access=Access()) as cluster:
        await cluster.reserve("n3")
        voters = {name: cluster.peers[name] for name in ("n0", "n1", "n2", "n3")}
        async with cluster.open("n3", bootstrap=False, join=True, access=Access()) as fourth:
            leader = await cluster.leader()
            await leader.reconfigure(voters)
            assert await leader.propose(b"5") == 5
            with trio.fail_after(10):
                while fourth.status().applied_index < leader.status().commit_index:
                    await trio.sleep(0.01)
                await leader.transfer_leadership("n3")
            await until_leads(fourth)
            assert await fourth.propose(b"6") == 11
            await fourth.reconfigure({name: voters[name] for name in ("n0", "n1", "n2")})
            leader = await cluster.leader()
            assert await leader.propose(b"7") == 18


@pytest.mark.usefixtures("_nobody_is_local")
async def test_a_node_that_hears_no_leader_lets_its_next_one_in(tmp_path: Path) -> None:
    """Its membership may be the older one."""
    async with three(tmp_path, access=Access()) as cluster:
        leader = await cluster.leader()
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        with trio.fail_after(10):
            while follower.leader is None:
                await trio.sleep(0.01)
            with pytest.raises(Refused, match="no member here"):
                await knock(cluster.peers[follower.node_id], "x")
            while True:
                follower._driver.replica.leader = None  # until the next heartbeat
                with suppress(Refused):
                    assert (await knock(cluster.peers[follower.node_id], "x")).node == follower.node_id
                    break
