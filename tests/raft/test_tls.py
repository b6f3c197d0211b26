"""Mutual TLS over real loopback sockets: who gets in, who is refused in which words, and certificates that change."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
import trio
import trustme
from trio.abc import Stream

from raft import frame
from raft.config import Config
from raft.errors import ConfigError
from raft.handshake import connect_tcp, greet, read_greeting, split_address, start_tls
from raft.hello import Hello, HelloRefusal, Lane, Refused, encode_greeting
from raft.messages import Append, PeerMessage, Vote
from raft.status import RefusalKind
from raft.tls import ALPN, Contexts, TLSConfig, certificate_names, check_certificate
from raft.transport import Transport, TransportLimits


class Authority:
    """A certificate authority that writes PEM files, each in one rename as a careful operator would."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder, self.ca = folder, trustme.CA(organization_name=name)
        self.ca_file = folder / f"{name}.pem"
        self.ca.cert_pem.write_to_path(str(self.ca_file))

    def issue(self, node: str, *, named: str | None = None) -> None:
        """(Re)write certificate and key of ``node``."""
        made = self.ca.issue_cert(named or node, common_name=named or node)
        self.put(f"{node}.cert", made.cert_chain_pems[0].bytes())
        self.put(f"{node}.key", made.private_key_pem.bytes())

    def put(self, name: str, data: bytes) -> None:
        fresh = self.folder / f"{name}.new"
        fresh.write_bytes(data)
        fresh.rename(self.folder / name)

    def config(self, node: str, *, named: str | None = None, **options: Any) -> TLSConfig:
        self.issue(node, named=named)
        cert, key = self.folder / f"{node}.cert", self.folder / f"{node}.key"
        return TLSConfig(cert=str(cert), key=str(key), ca=str(self.ca_file), **options)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def hello_of(node: str, **changes: Any) -> Hello:
    made = Hello(cluster="c", node=node, incarnation=node.encode().ljust(16, b"."), lane=Lane.CONTROL)
    return attrs.evolve(made, **changes)


CLIENT = Hello(cluster="c", node="", incarnation=b"", lane=Lane.CLIENT)


class Node:
    def __init__(self, node: str, tls: TLSConfig | None) -> None:
        self.got: list[tuple[str, PeerMessage]] = []
        self.clients = 0
        self.transport = Transport(
            hello_of(node), config=Config(), rng=Random(node), tls=tls, on_client=self._serve_client,
            on_message=lambda peer, message: self.got.append((peer, message)),
            limits=TransportLimits(connect_timeout_ms=20_000),
        )

    async def _serve_client(self, stream: Stream, hello: Hello, received: bytes, hold: object) -> None:
        self.clients += 1

    @property
    def address(self) -> str:
        return self.transport.hello.address

    def say(self, peer: str, message: PeerMessage) -> None:
        self.transport.send(peer, message)
        self.transport.flush()

    def meet(self, other: Node) -> None:
        self.transport.set_address(other.transport.hello.node, other.address)
        self.transport.set_peers([other.transport.hello.node])


@asynccontextmanager
async def running(*nodes: Node) -> AsyncGenerator[None, None]:
    async with trio.open_nursery() as nursery:
        for node in nodes:
            await nursery.start(node.transport.run, "127.0.0.1:0")
        yield
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not condition():
            await trio.sleep(0.001)


def lanes_up(one: Node, other: Node) -> bool:
    peer = one.transport._peers.get(other.transport.hello.node)
    return peer is not None and len(peer.connections) == 4


def vote(term: int) -> Vote:
    return Vote(1, term, 1, 0, 0)


async def greeted(address: str, hello: Hello, context: ssl.SSLContext | None) -> object:
    """What a stranger gets to hear: a hello, a refusal, or the error of its stream."""
    stream = await connect_tcp(address)
    try:
        if context is not None:
            stream = await start_tls(stream, context, server=False)
        await stream.send_all(encode_greeting(hello))
        return await read_greeting(stream, bytearray())
    except (trio.BrokenResourceError, OSError) as error:
        return error
    finally:
        await trio.aclose_forcefully(stream)


def stranger_context(authority: Authority, *, alpn: str | None = ALPN) -> ssl.SSLContext:
    """Trusts the cluster, shows no certificate."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.check_hostname = False
    if alpn:
        context.set_alpn_protocols([alpn])
    return context


async def test_nodes_talk_over_mutual_tls(authority: Authority) -> None:
    n0, n1 = Node("n0", authority.config("n0")), Node("n1", authority.config("n1"))
    async with running(n0, n1):
        n0.meet(n1)
        n1.meet(n0)
        await until(lambda: lanes_up(n0, n1) and lanes_up(n1, n0))
        big = frame.build(kind=1, group=1, term=1, first=1, payloads=[bytes(range(256)) * 8000], wall_ms=0, chain=0)
        n0.say("n1", Append(1, 1, 1, 1, 0, 0, 0, 0, [big]))
        n0.say("n1", vote(1))
        n1.say("n0", vote(2))
        await until(lambda: len(n1.got) == 2 and len(n0.got) == 1)
        assert n0.got == [("n1", vote(2))]
        (received,) = [m for _, m in n1.got if isinstance(m, Append)]
        assert received.frames[0].data == big.data
        for node in (n0, n1):
            for connection in node.transport._inbound:
                assert isinstance(connection.stream, trio.SSLStream)
                assert connection.stream.selected_alpn_protocol() == ALPN


async def test_a_node_without_a_certificate_is_refused_in_words(authority: Authority) -> None:
    n0 = Node("n0", authority.config("n0"))
    async with running(n0):
        answer = await greeted(n0.address, hello_of("n1"), stranger_context(authority))
        assert answer == HelloRefusal(
            RefusalKind.CERTIFICATE, "node 'n1' showed no certificate; this cluster wants one, signed by its CA"
        )
        await until(lambda: "n1" in n0.transport.refusals)
        assert not n0.transport._peers and not n0.got


async def test_a_plain_hello_to_a_tls_port_is_refused_in_words(authority: Authority) -> None:
    n0 = Node("n0", authority.config("n0"))
    async with running(n0):
        for hello in (hello_of("n1"), CLIENT):
            answer = await greeted(n0.address, hello, None)
            assert answer == HelloRefusal(RefusalKind.CERTIFICATE, "node 'n0' takes connections over TLS only")
        assert n0.clients == 0


async def test_a_certificate_of_another_authority_does_not_get_in(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    foreign = Authority(tmp_path / "b", "foreign")
    n0 = Node("n0", authority.config("n0"))
    n1 = Node("n1", foreign.config("n1"))
    async with running(n0, n1):
        n1.meet(n0)
        await until(lambda: "n0" in n1.transport.refusals)
        seen = n1.transport.refusals["n0"]
        assert seen.kind is RefusalKind.CERTIFICATE and "certificate verify failed" in seen.reason
        await until(lambda: bool(n0.transport.refusals))
        # One that trusts us but whom we do not trust.
        half = Contexts(attrs.evolve(foreign.config("n2"), ca=str(authority.ca_file)))
        assert isinstance(await greeted(n0.address, hello_of("n2"), half.client), Exception)
        assert not n0.transport._peers
        assert {refusal.kind for refusal in n0.transport.refusals.values()} == {RefusalKind.CERTIFICATE}


async def test_a_node_must_agree_on_our_alpn(authority: Authority) -> None:
    n0 = Node("n0", authority.config("n0"))
    config = authority.config("n1")
    context = stranger_context(authority, alpn=None)
    context.load_cert_chain(config.cert, config.key)
    async with running(n0):
        answer = await greeted(n0.address, hello_of("n1"), context)
        assert answer == HelloRefusal(RefusalKind.CERTIFICATE, f"node 'n1' agreed on ALPN None, not on {ALPN!r}")


async def test_the_certificate_may_have_to_name_the_node(authority: Authority) -> None:
    n0 = Node("n0", authority.config("n0", check_node_id=True))
    n1 = Node("n1", authority.config("n1", check_node_id=True))
    wrong = Contexts(authority.config("n2", named="somebody"))
    async with running(n0, n1):
        n0.meet(n1)
        n1.meet(n0)
        await until(lambda: lanes_up(n0, n1) and lanes_up(n1, n0))
        answer = await greeted(n0.address, hello_of("n2"), wrong.client)
        words = "the certificate of node 'n2' names ['somebody'], not that id"
        assert answer == HelloRefusal(RefusalKind.CERTIFICATE, words)


async def test_a_dialler_checks_the_name_too_and_says_so(authority: Authority) -> None:
    n0 = Node("n0", authority.config("n0", check_node_id=True))
    n1 = Node("n1", authority.config("n1", named="somebody"))
    async with running(n0, n1):
        n0.meet(n1)
        await until(lambda: "n1" in n0.transport.refusals and "n0" in n1.transport.refusals)
        for refusal in (n0.transport.refusals["n1"], n1.transport.refusals["n0"]):
            assert refusal.reason == "the certificate of node 'n1' names ['somebody'], not that id"


async def test_clients_need_a_certificate_unless_told_otherwise(authority: Authority) -> None:
    strict = Node("n0", authority.config("n0"))
    open_door = Node("n1", authority.config("n1", clients_need_certificate=False))
    async with running(strict, open_door):
        answer = await greeted(strict.address, CLIENT, stranger_context(authority))
        assert isinstance(answer, HelloRefusal) and answer.reason.startswith("the client showed no certificate")
        assert isinstance(await greeted(open_door.address, CLIENT, stranger_context(authority)), Hello)
        assert isinstance(await greeted(strict.address, CLIENT, Contexts(authority.config("client")).client), Hello)
        await until(lambda: (strict.clients, open_door.clients) == (1, 1))


# --- shared ports --------------------------------------------------------------------------------------------


async def test_a_server_may_do_the_tls_itself_and_share_its_port(authority: Authority) -> None:
    n0, n1 = Node("n0", authority.config("n0")), Node("n1", authority.config("n1"))
    contexts = Contexts(authority.config("n0"), alpn=(ALPN, "http/1.1"))

    async def serve(plain: trio.SocketStream) -> None:
        secure = await start_tls(plain, contexts.server, server=True)
        assert secure.selected_alpn_protocol() == ALPN
        await n0.transport.serve_stream(secure, await secure.receive_some(1))

    async with running(n0, n1), trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        n1.transport.set_address("n0", f"127.0.0.1:{listener.socket.getsockname()[1]}")
        n1.transport.set_peers(["n0"])
        await until(lambda: n1.transport.connected("n0"))
        n1.say("n0", vote(3))
        await until(lambda: n0.got == [("n1", vote(3))])
        nursery.cancel_scope.cancel()


async def test_a_node_behind_a_sharing_server_needs_a_certificate_there_too(authority: Authority) -> None:
    n0 = Node("n0", None)
    contexts = Contexts(authority.config("n0"))

    async def serve(plain: trio.SocketStream) -> None:
        await n0.transport.serve_stream(await start_tls(plain, contexts.server, server=True))

    async with running(n0), trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        answer = await greeted(address, hello_of("n1"), stranger_context(authority))
        assert isinstance(answer, HelloRefusal) and answer.kind is RefusalKind.CERTIFICATE
        assert isinstance(await greeted(address, CLIENT, stranger_context(authority)), Hello)
        nursery.cancel_scope.cancel()


# --- certificates that change --------------------------------------------------------------------------------


def served_serial(stream: Stream) -> str:
    assert isinstance(stream, trio.SSLStream)
    return str(stream.getpeercert()["serialNumber"])


async def test_new_certificates_are_used_without_restart_and_old_connections_go_on(authority: Authority) -> None:
    n0, n1 = Node("n0", authority.config("n0")), Node("n1", authority.config("n1"))
    probe = Contexts(authority.config("n2"))

    async def serial() -> str:
        stream = await start_tls(await connect_tcp(n0.address), probe.client, server=False)
        await greet(stream, hello_of("n2"), bytearray())
        found = served_serial(stream)
        await trio.aclose_forcefully(stream)
        return found

    def serials_of_n1() -> set[str]:
        connections = n0.transport._inbound
        return {served_serial(one.stream) for one in connections if one.hello and one.hello.node == "n1"}

    async with running(n0, n1):
        n1.meet(n0)
        await until(lambda: lanes_up(n0, n1) and lanes_up(n1, n0))
        before = await serial()
        assert await serial() == before
        shown = serials_of_n1()
        dialled = n1.transport.counters.dialled
        authority.issue("n0")
        authority.issue("n1")
        assert await serial() != before
        n1.say("n0", vote(1))
        await until(lambda: n0.got == [("n1", vote(1))])
        assert n1.transport.counters.dialled == dialled, "the old connections go on"
        for connection in list(n0.transport._inbound):
            connection.scope.cancel()
        await until(lambda: n1.transport.counters.dialled > dialled and lanes_up(n0, n1))
        renewed = serials_of_n1()
        assert renewed and not renewed & shown, "the dialler shows its new certificate"


def test_half_written_files_leave_the_former_certificate_in_use(authority: Authority) -> None:
    contexts = Contexts(authority.config("n0"))
    first = contexts.server
    assert contexts.server is first and contexts.reloads == 0
    key = Path(contexts.config.key).read_bytes()
    authority.put("n0.key", key[:100])
    assert contexts.server is first
    assert contexts.reload_error is not None
    authority.put("n0.key", key)
    assert contexts.server is not first
    assert contexts.reloads == 1
    assert not contexts.reload_error
    Path(contexts.config.cert).unlink()
    second = contexts.client
    assert contexts.client is second and contexts.reload_error is not None


def test_files_that_never_worked_are_a_config_error(authority: Authority, tmp_path: Path) -> None:
    good = authority.config("n0")
    for field in ("cert", "key", "ca"):
        with pytest.raises(ConfigError, match="must be usable PEM files"):
            Contexts(attrs.evolve(good, **{field: str(tmp_path / "missing")}))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="PEM"):
        Contexts(attrs.evolve(good, key=good.ca))


def test_which_names_a_certificate_gives() -> None:
    certificate = {
        "subject": ((("organizationName", "o"),), (("commonName", "n1"),)),
        "subjectAltName": (("DNS", "n2"), ("IP Address", "1.2.3.4"), ("DNS", "n3")),
    }
    assert certificate_names(certificate) == {"n1", "n2", "n3"}
    assert certificate_names(None) == certificate_names({}) == set()
    config = TLSConfig(cert="", key="", ca="", check_node_id=True)
    for node in ("n1", "n2", "n3", ""):
        check_certificate(config, certificate, ALPN, node)
    with pytest.raises(Refused, match="not that id"):
        check_certificate(config, certificate, ALPN, "o")


def test_addresses_of_either_family() -> None:
    assert split_address("127.0.0.1:7") == ("127.0.0.1", 7)
    assert split_address("[fe80::1]:7") == ("fe80::1", 7)
