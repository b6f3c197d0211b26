"""TLS on the shared port: modes, certificates of either end, ALPN, handshakes that fail, files that change."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

from harness.simulation.worlds.streams import ECHO, Net, Wire, ask, body_of, echo, net
from remoting.client import open_client
from remoting.command import Command, response
from remoting.config import ServerConfig, TLSMode
from remoting.connection import Connection
from remoting.errors import ConnectFailed, ConnectionClosed
from remoting.server import FALLBACK_ALPN, Server
from remoting.streams import TLSContext, start_tls
from remoting.tls import ClientAuth, ContextSource, client_context, server_context


class Authority:
    """Signs certificates and keeps them as PEM files."""

    def __init__(self, folder: Path) -> None:
        self._ca, self._folder = trustme.CA(), folder
        self.ca = str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, name: str) -> tuple[str, str]:
        """Paths of a certificate and its key, made anew each time."""
        made = self._ca.issue_cert("localhost")
        cert, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        self.put(cert, b"".join(one.bytes() for one in made.cert_chain_pems))
        self.put(key, made.private_key_pem.bytes())
        return str(cert), str(key)

    def put(self, path: Path, data: bytes) -> None:
        """Replace a file in one step, as certificates should be."""
        fresh = path.with_suffix(".new")
        fresh.write_bytes(data)
        fresh.replace(path)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def served(
    context: TLSContext | None, mode: TLSMode = TLSMode.PERMISSIVE, **options: object
) -> AsyncGenerator[tuple[Net, Server], None]:
    async with net() as made:
        server = Server({ECHO: echo}, config=ServerConfig(tls_mode=mode), tls=context, **options)  # type: ignore[arg-type]
        yield made, await made.serve("s:1", server)


async def answered(made: Net, tls: TLSContext | None) -> bytes:
    async with open_client(connector=made.connect, tls=tls) as client:
        return body_of(await client.call("s:1", ask(ECHO, b"x")))


async def test_permissive_takes_both_on_one_port(authority: Authority) -> None:
    async with served(server_context(*authority.issue("server"))) as (made, server):
        assert await answered(made, None) == b"x"
        assert await answered(made, client_context()) == b"x"
        assert await answered(made, client_context(ca=authority.ca)) == b"x"
        assert server.counters.opened == 3 and not server.counters.tls_failures


async def test_enforcing_refuses_plain_connections(authority: Authority) -> None:
    async with served(server_context(*authority.issue("server")), TLSMode.ENFORCING) as (made, server):
        assert await answered(made, client_context()) == b"x"
        with pytest.raises(ConnectionClosed):
            await answered(made, None)
        assert server.counters.unknown_protocol == 1


@pytest.mark.parametrize("mode", [TLSMode.DISABLED, TLSMode.PERMISSIVE])
async def test_without_certificates_or_when_disabled_there_is_no_tls(authority: Authority, mode: TLSMode) -> None:
    context = server_context(*authority.issue("server")) if mode is TLSMode.DISABLED else None
    async with served(context, mode) as (made, server):
        assert await answered(made, None) == b"x"
        with pytest.raises(ConnectFailed):
            await answered(made, client_context())
        assert server.counters.unknown_protocol == 1


async def test_large_bodies_and_many_requests_under_tls(authority: Authority) -> None:
    async with served(server_context(*authority.issue("server"))) as (made, _):
        async with open_client(connector=made.connect, tls=client_context()) as client:
            bodies = [bytes([number]) * (number << 14) for number in range(40)]
            got: dict[int, bytes] = {}

            async def caller(number: int) -> None:
                got[number] = body_of(await client.call("s:1", ask(ECHO, bodies[number]), 60_000))

            async with trio.open_nursery() as nursery:
                for number in range(40):
                    nursery.start_soon(caller, number)
            assert [got[number] for number in range(40)] == bodies


async def test_a_connection_under_tls_ends_like_any_other(authority: Authority) -> None:
    async with served(server_context(*authority.issue("server"))) as (made, server):
        async with open_client(connector=made.connect, tls=client_context()) as client:
            for _ in range(2):
                await client.call("s:1", ask())
                (connection,) = server.connections
                connection.close("enough")
                await wait_all_tasks_blocked()
                assert client.connection("s:1") is None
        await wait_all_tasks_blocked()
        assert not server.connections and not server._streams


@pytest.mark.parametrize(("auth", "shown", "let_in"), [
    (ClientAuth.NONE, "none", True), (ClientAuth.NONE, "foreign", True), (ClientAuth.OPTIONAL, "none", True),
    (ClientAuth.OPTIONAL, "good", True), (ClientAuth.OPTIONAL, "foreign", False), (ClientAuth.REQUIRE, "none", False),
    (ClientAuth.REQUIRE, "good", True), (ClientAuth.REQUIRE, "foreign", False),
])
async def test_certificates_of_clients(
    authority: Authority, tmp_path: Path, auth: ClientAuth, shown: str, let_in: bool
) -> None:
    (tmp_path / "foreign").mkdir()
    issuers = {"good": authority, "foreign": Authority(tmp_path / "foreign")}
    cert, key = issuers[shown].issue("client") if shown in issuers else (None, None)
    context = server_context(*authority.issue("server"), ca=authority.ca, client_auth=auth)
    async with served(context) as (made, server):
        if let_in:
            assert await answered(made, client_context(cert=cert, key=key)) == b"x"
            return
        # Under TLS 1.3 a client is done with its handshake before the server judges it.
        with pytest.raises((ConnectFailed, ConnectionClosed)):
            await answered(made, client_context(cert=cert, key=key))
        await wait_all_tasks_blocked()
        assert server.counters.tls_failures == 1 and not server.counters.opened


async def test_a_client_may_verify_the_server(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    foreign = Authority(tmp_path / "foreign")
    async with served(server_context(*foreign.issue("server"))) as (made, _):
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            await answered(made, client_context(ca=authority.ca))
        assert await answered(made, client_context(ca=foreign.ca)) == b"x"


async def test_a_context_of_ones_own_may_check_names(authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.ca)
    async with served(server_context(*authority.issue("server"))) as (made, server):
        made.servers["localhost:1"] = server
        async with open_client(connector=made.connect, tls=lambda: context) as client:
            assert body_of(await client.call("localhost:1", ask(ECHO, b"x"))) == b"x"
            with pytest.raises(ConnectFailed, match="Hostname mismatch"):
                await client.call("s:1", ask())


async def test_who_agrees_on_alpn_goes_to_the_fallback(authority: Authority) -> None:
    got: list[tuple[bool, bytes]] = []

    async def other(stream: trio.abc.Stream, received: bytes) -> None:
        got.append((isinstance(stream, trio.SSLStream), received or bytes(await stream.receive_some())))
        await stream.send_all(b"bye")

    context = server_context(*authority.issue("server"), alpn=[FALLBACK_ALPN])
    async with served(context, fallback=other) as (made, server):
        for offered in ([FALLBACK_ALPN], ["h2"], []):
            plain = client_context()()
            if offered:
                plain.set_alpn_protocols(offered)
            stream = await start_tls(await made.connect("s:1"), plain, server=False)
            await stream.send_all(b"\x99hello")
            assert await stream.receive_some() == b"bye"
            await trio.aclose_forcefully(stream)
        assert got == [(True, b"\x99hello")] * 3
        assert await answered(made, client_context()) == b"x"
        assert server.counters.handed_over == 3


async def test_tls_comes_behind_a_proxy_header_and_not_within_tls(authority: Authority) -> None:
    def who(connection: Connection, request: Command) -> Command:
        return response(request, body=connection.peer.encode())

    context, client = server_context(*authority.issue("server")), client_context()()
    async with net() as made:
        server = await made.serve("s:1", Server({ECHO: who}, tls=context))
        plain = await made.connect("s:1")
        await plain.send_all(b"PROXY TCP4 10.1.2.3 10.9.9.9 4711 9876\r\n")
        answer = await Wire(await start_tls(plain, client, server=False)).ask(ask())
        assert answer is not None and answer.body == b"10.1.2.3:4711"
        for inside in (b"\x16\x03\x01", b"PROXY UNKNOWN\r\n"):
            stream = await start_tls(await made.connect("s:1"), client, server=False)
            await stream.send_all(inside)
            assert await Wire(stream).receive() is None
        assert server.counters.unknown_protocol == 2


async def test_a_handshake_that_stalls_or_breaks_is_given_up(authority: Authority, autojump_clock: MockClock) -> None:
    async with served(server_context(*authority.issue("server"))) as (made, server):
        start = trio.current_time()
        stalled = Wire(await made.connect("s:1"))
        await stalled.stream.send_all(bytes.fromhex("1603010200010001fc0303"))
        assert await stalled.stream.receive_some() == b""
        assert trio.current_time() - start == pytest.approx(10) and server.counters.tls_failures == 1
        broken = Wire(await made.connect("s:1"))
        await broken.stream.send_all(bytes.fromhex("160301000401000000") + b"rubbish" * 30)
        while await broken.stream.receive_some():
            pass  # an alert
        gone = Wire(await made.connect("s:1"))
        await gone.stream.send_all(b"\x16\x03")
        await gone.stream.aclose()
        await wait_all_tasks_blocked()
        assert server.counters.tls_failures == 3 and not server._streams
        assert await answered(made, client_context()) == b"x"


# --- files ---------------------------------------------------------------------------------------------------


async def test_new_certificates_are_used_without_restart_and_old_connections_go_on(authority: Authority) -> None:
    source = server_context(*authority.issue("server"))

    async def shown(made: Net) -> object:
        stream = await start_tls(await made.connect("s:1"), client_context(ca=authority.ca)(), server=False)
        number = stream.getpeercert()["serialNumber"]
        await trio.aclose_forcefully(stream)
        return number

    async with served(source) as (made, _), open_client(connector=made.connect, tls=client_context()) as client:
        await client.call("s:1", ask())
        before = await shown(made)
        assert await shown(made) == before
        authority.issue("server")
        assert await shown(made) != before and source.reloads == 1
        assert body_of(await client.call("s:1", ask(ECHO, b"x"))) == b"x" and made.dialled[0] == "s:1"
        assert client.counters.dialled == 1


def test_half_written_files_leave_the_former_certificate_in_use(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = authority.issue("server")
    source = server_context(cert, key)
    first, good = source(), Path(key).read_bytes()
    assert source() is first
    authority.put(Path(key), good[:100])
    assert source() is first and source.reload_error
    assert "the former certificate stays in use" in caplog.text
    authority.put(Path(key), good)
    assert source() is not first and source.reloads == 1
    assert not source.reload_error
    Path(cert).unlink()
    second = source()
    assert source() is second and source.reload_error


@pytest.mark.parametrize("make", [
    lambda: server_context("missing.pem", "missing.key"),
    lambda: client_context(ca="missing.pem"),
    lambda: client_context(cert="missing.pem", key="missing.key"),
])
def test_files_that_never_worked_are_named(make: type[ContextSource]) -> None:
    with pytest.raises(ValueError, match=r"missing\.pem.* must be usable PEM files"):
        make()  # type: ignore[call-arg]


def test_combinations_that_make_no_sense_are_refused(authority: Authority) -> None:
    cert, key = authority.issue("server")
    with pytest.raises(ValueError, match="needs a ca"):
        server_context(cert, key, client_auth=ClientAuth.REQUIRE)
    with pytest.raises(ValueError, match="come together"):
        client_context(cert=cert)
    with pytest.raises(ValueError, match="usable PEM files"):
        server_context(cert, authority.ca)


def test_a_key_may_have_a_password(authority: Authority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    cert, key = authority.issue("server")
    loaded = serialization.load_pem_private_key(Path(key).read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(loaded.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret"),
    ))
    assert isinstance(server_context(cert, str(locked), key_password="secret")(), ssl.SSLContext)
    for wrong in (None, "wrong"):
        with pytest.raises(ValueError, match="usable PEM files"):
            server_context(cert, str(locked), key_password=wrong)
