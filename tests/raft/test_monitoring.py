"""Metrics, health and readiness over HTTP, on a real socket of this machine."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio

from raft.monitoring import Exposed, serve_monitoring


class Counted:
    """Metrics alone."""

    def exposition(self) -> bytes:
        return b"answers 42.0\n"


@attrs.define
class Watched(Counted):
    ill: str = ""
    busy: str = ""

    def unhealthy(self) -> str:
        return self.ill

    def unready(self) -> str:
        return self.busy


@attrs.define
class Led(Watched):
    follows: str = ""

    def unwritable(self) -> str:
        return self.follows


@asynccontextmanager
async def served(shown: Exposed) -> AsyncGenerator[int, None]:
    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(partial(serve_monitoring, shown, "127.0.0.1:0"))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def ask(port: int, request: bytes) -> tuple[int, bytes, bytes]:
    """Status, head and body."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(request)
        answer = b"".join([piece async for piece in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head, body


async def get(port: int, path: str) -> tuple[int, str]:
    status, head, body = await ask(port, f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert b"Content-Length: %d" % len(body) in head
    assert b"Connection: close" in head
    return status, body.decode()


async def test_the_three_pages() -> None:
    shown = Watched()
    async with served(shown) as port:
        assert await get(port, "/metrics?x=1") == (200, "answers 42.0\n")
        assert await get(port, "/healthz") == (200, "ok\n")
        assert await get(port, "/readyz") == (200, "ok\n")
        shown.ill, shown.busy = "the disk failed", "no leader is known"
        assert await get(port, "/healthz") == (503, "the disk failed\n")
        assert await get(port, "/readyz") == (503, "no leader is known\n")
        assert await get(port, "/else") == (404, "there are /metrics, /healthz and /readyz\n")
        assert (await get(port, "/writable"))[0] == 404


async def test_one_of_a_group_says_whether_it_takes_writes() -> None:
    """A follower is healthy and ready, and takes none."""
    shown = Led()
    async with served(shown) as port:
        assert await get(port, "/writable") == (200, "ok\n")
        shown.follows = "n2 leads"
        assert await get(port, "/writable") == (503, "n2 leads\n")
        assert await get(port, "/readyz") == (200, "ok\n")
        assert await get(port, "/else") == (404, "there are /metrics, /healthz, /readyz and /writable\n")


async def test_who_knows_nothing_of_its_health_is_not_judged() -> None:
    async with served(Counted()) as port:
        assert (await get(port, "/metrics"))[0] == 200
        assert await get(port, "/healthz") == (404, "there is /metrics\n")
        assert await get(port, "/readyz") == (404, "there is /metrics\n")


async def test_the_page_of_metrics_is_of_prometheus_kind() -> None:
    async with served(Counted()) as port:
        _, head, _ = await ask(port, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"Content-Type: text/plain; version=0.0.4" in head


async def test_a_head_has_no_body() -> None:
    async with served(Watched()) as port:
        status, head, body = await ask(port, b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (status, body) == (200, b"")
        assert b"Content-Length: 13" in head


@pytest.mark.parametrize(("request_", "status"), [
    (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 404),
    (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 405),
    (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
    (b"nonsense\r\n\r\n", 400),
    (b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 4_000 + b"\r\n", 431),
    (b"x" * 8_193, 431),
])
async def test_other_requests_get_no_page(request_: bytes, status: int) -> None:
    async with served(Watched()) as port:
        found, _, body = await ask(port, request_)
    assert found == status
    assert b"answers" not in body


async def test_who_hangs_up_takes_nobody_along() -> None:
    async with served(Watched()) as port:
        for request in (b"", b"GET /met"):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(request)
            await stream.aclose()
        assert (await get(port, "/metrics"))[0] == 200


async def test_slow_connections_keep_nobody_from_the_pages() -> None:
    """Four times as many as have a place, each in the middle of its request."""
    async with served(Watched()) as port:
        slow = []
        for _ in range(256):
            slow.append(await trio.open_tcp_stream("127.0.0.1", port))
            await slow[-1].send_all(b"GET /metrics HTT")
        for _ in range(3):
            with trio.fail_after(3):  # less than the time that a slow one has
                assert (await get(port, "/metrics"))[0] == 200
        assert await slow[0].receive_some(1) == b"", "who came first had time enough"
        for stream in slow:
            await stream.aclose()


async def test_a_port_in_use_is_told_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot show metrics at 127.0.0.1:{port}: .*; choose another"):
            await serve_monitoring(Counted(), f"127.0.0.1:{port}", advice="choose another")
