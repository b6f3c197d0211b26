"""Who may change the controller group: judged by the connection's own socket and certificate, over real sockets too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme
from trio.testing import MockClock

from controller.config import ControllerConfig, check, from_properties
from controller.metadata.codec import encode
from controller.metadata.commands import RaiseFormat
from controller.own_codes import ChangeControllerGroupRequest, OwnCode
from controller.server import RunningController, serve_controller
from harness.simulation.worlds.controllers import World, world
from raft.access import Access, Caller
from raft.client import connect
from raft.errors import NotAllowed
from raft.handshake import greet, start_tls
from raft.hello import Hello, Lane, Refused
from raft.tls import ALPN, Contexts, TLSConfig
from remoting import properties
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.config import ClientConfig
from remoting.daemon.files import MemoryFiles
from remoting.daemon.keys import ConfigError
from remoting.daemon.tls import tls_of
from remoting.tls import client_context
from tests.raft.test_access import dial

STRANGER, OPERATOR = "127.0.0.3", "127.0.0.2"
REMOVE = ChangeControllerGroupRequest(remove="n1;n2")
NETWORKS = {"adminNetworks": "127.0.0.2;10.0.0.0/8"}


# --- whole groups, on memory streams -------------------------------------------------------------------------


async def from_afar(made: World, code: int, header: ChangeControllerGroupRequest | None = None) -> Command:
    """Asked of the active controller from 192.0.2.7."""
    async with open_client(ClientConfig(), connector=made.network.connector("stranger")) as client:
        return await client.call(f"{await made.active()}:1", request(code, header))


async def test_a_stranger_does_not_shrink_the_group(autojump_clock: MockClock) -> None:
    async with world() as made:
        for code, header in ((OwnCode.CHANGE_CONTROLLER_GROUP, REMOVE), (OwnCode.IMPORT_METADATA, None)):
            answer = await from_afar(made, code, header)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert answer.remark == (
                "192.0.2.7 may look, but change nothing: that is for the loopback and for certificates of members and "
                "admins")
        assert len(made.running[await made.active()].core.node.status().membership.voters) == 3
        assert b"All is well" in (await from_afar(made, OwnCode.EXPLAIN)).body
        assert (await from_afar(made, RequestCode.CONTROLLER_GET_METADATA_INFO)).code == ResponseCode.SUCCESS


async def test_listed_networks_and_the_loopback_may(autojump_clock: MockClock) -> None:
    async with world(adminNetworks="192.0.2.0/24") as made:
        assert (await from_afar(made, OwnCode.CHANGE_CONTROLLER_GROUP)).code == ResponseCode.SUCCESS
        assert (await made.ask_active(OwnCode.CHANGE_CONTROLLER_GROUP)).code == ResponseCode.SUCCESS


async def test_nobody_makes_himself_an_operator(autojump_clock: MockClock) -> None:
    async with world() as made:
        name = await made.active()
        for key in ("adminNetworks", "adminCertificates", "controllerNetworks", "checkNodeId"):
            answer = await made.ask(
                name, RequestCode.UPDATE_CONTROLLER_CONFIG, body=properties.encode({key: "0.0.0.0/0"}).encode())
            assert answer.code == ResponseCode.NO_PERMISSION, key
        assert made.running[name].core.config.access == Access(client_proposals=False)


@pytest.mark.parametrize("key", ["adminNetworks", "controllerNetworks"])
def test_a_network_that_is_none_is_said_at_the_start(key: str) -> None:
    given = {"controllerDLegerGroup": "g", "controllerDLegerPeers": "n0-h:1", "controllerDLegerSelfId": "n0",
             key: "10.0.0.0/8;here"}
    with pytest.raises(ConfigError, match=f"{key}.*must be networks such as 10.0.0.0/24"):
        check(from_properties(given))


# --- real sockets --------------------------------------------------------------------------------------------


@pytest.fixture
def _nobody_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Caller, "is_local", False)


@asynccontextmanager
async def alone(directory: Path, **given: str) -> AsyncIterator[tuple[RunningController, str]]:
    """The only controller of its group, and its address."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    config: ControllerConfig = from_properties({
        "controllerDLegerGroup": "g", "controllerDLegerPeers": f"n0-{address}", "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(directory / "n0"), "segmentBytes": str(1 << 20), **given})
    check(config)

    async def run(*, task_status: trio.TaskStatus[RunningController]) -> None:
        await serve_controller(config, files=MemoryFiles(), listeners=[listener],
                               tls=tls_of(config, raft_alpn=ALPN), task_status=task_status)

    async with trio.open_nursery() as nursery:
        running: RunningController = await nursery.start(run)
        with trio.fail_after(10):
            while not running.core.active.active:
                await trio.sleep(0.01)
        yield running, address
        nursery.cancel_scope.cancel()


async def ask(client: Client, address: str) -> Command:
    return await client.call(address, request(OwnCode.CHANGE_CONTROLLER_GROUP, ChangeControllerGroupRequest()))


async def behind_a_proxy(source: str, said: str, address: str) -> trio.SocketStream:
    """As a balancer at ``source`` that says whom it speaks for, or a liar."""
    stream = await dial(source, address)
    await stream.send_all(f"PROXY TCP4 {said} 127.0.0.1 5000 {address.partition(':')[2]}\r\n".encode())
    return stream


@pytest.mark.usefixtures("_nobody_is_local")
@pytest.mark.parametrize(("source", "said", "code"), [
    (STRANGER, None, ResponseCode.NO_PERMISSION), (OPERATOR, None, ResponseCode.SUCCESS),
    (STRANGER, OPERATOR, ResponseCode.NO_PERMISSION), (STRANGER, "10.0.0.1", ResponseCode.NO_PERMISSION),
    (OPERATOR, STRANGER, ResponseCode.SUCCESS)])
async def test_the_sockets_own_peer_counts(tmp_path: Path, source: str, said: str | None, code: int) -> None:
    dialled = partial(dial, source) if said is None else partial(behind_a_proxy, source, said)
    async with alone(tmp_path, **NETWORKS) as (_, address), open_client(ClientConfig(), connector=dialled) as client:
        answer = await ask(client, address)
        assert answer.code == code, answer.remark
        assert code == ResponseCode.SUCCESS or "127.0.0.3 may look, but change nothing" in (answer.remark or "")


async def test_a_header_does_not_make_this_machine_of_a_stranger(tmp_path: Path) -> None:
    """Nor a stranger of this machine: 127.0.0.1 is what the socket says."""
    async with alone(tmp_path) as (_, address), open_client(
            ClientConfig(), connector=partial(behind_a_proxy, "127.0.0.1", "192.0.2.7")) as client:
        assert (await ask(client, address)).code == ResponseCode.SUCCESS


@pytest.mark.usefixtures("_nobody_is_local")
async def test_raft_clients_change_nothing_from_afar_and_propose_from_nowhere(tmp_path: Path) -> None:
    async with alone(tmp_path, **NETWORKS) as (running, address):
        core = running.core
        raising = encode(RaiseFormat(term=core.active.term, format=core.machine.format), core.machine.format)
        for source in (STRANGER, OPERATOR):
            async with connect([address], cluster="g", group="g", dial=partial(dial, source)) as client:
                with pytest.raises(NotAllowed, match="takes commands from its own process alone"):
                    await client.propose(raising)
                assert (await client.status())["node_id"] == "n0"
                if source == OPERATOR:
                    assert await client.take_snapshot() > 0
                    continue
                with pytest.raises(NotAllowed, match="may look, but change nothing"):
                    await client.reconfigure({"x": "192.0.2.7:1"})
        assert core.node.status().membership.voters == ("n0",)


@pytest.mark.usefixtures("_nobody_is_local")
async def test_certificates_of_controllers_and_admins_count_and_no_others(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name in ("n0", "ops", "broker-a", "n7"):
        issued = authority.issue_cert("127.0.0.1", common_name=name)
        issued.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.pem"))

    def files(name: str) -> dict[str, str]:
        return {"cert": str(tmp_path / f"{name}.pem"), "key": str(tmp_path / f"{name}.key")}

    ca = str(tmp_path / "ca.pem")
    keys = {"tls.server.certPath": files("n0")["cert"], "tls.server.keyPath": files("n0")["key"],
            "tls.server.trustCertPath": ca, "adminCertificates": "ops"}
    async with alone(tmp_path, **keys) as (running, address):
        for name, code in (("n0", ResponseCode.SUCCESS), ("ops", ResponseCode.SUCCESS),
                           ("broker-a", ResponseCode.NO_PERMISSION), ("n7", ResponseCode.NO_PERMISSION)):
            async with open_client(ClientConfig(), tls=client_context(ca=ca, **files(name))) as client:
                answer = await ask(client, address)
                assert answer.code == code, (name, answer.remark)
        async with open_client(ClientConfig(), tls=client_context(ca=ca)) as client:
            assert (await ask(client, address)).code == ResponseCode.NO_PERMISSION
        membership = running.core.node.status().membership
        for name, claimed, why in (
                ("broker-a", "n1", r"the certificate of node 'n1' names \['broker-a'\], not that id"),
                ("n7", "n7", "node 'n7' from this machine is no member here")):
            with pytest.raises(Refused, match=why):
                await knock(address, claimed, TLSConfig(ca=ca, cert=files(name)["cert"], key=files(name)["key"]))
        assert running.core.node.status().membership == membership


async def knock(address: str, node: str, tls: TLSConfig) -> Hello:
    """As a controller of that id would, with these files."""
    async with await start_tls(await dial("127.0.0.1", address), Contexts(tls).client, server=False) as stream:
        hello = Hello(cluster="g", node=node, incarnation=bytes(16), lane=Lane.CONTROL)
        with trio.fail_after(5):
            return await greet(stream, hello, bytearray())
