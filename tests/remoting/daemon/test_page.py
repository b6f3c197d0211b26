"""A page of metrics over HTTP, on a real socket of this machine."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from remoting.daemon.page import Metric, Page, serve_page


class Numbers(Page):
    def collect(self) -> Iterator[Metric]:
        yield self.gauge("answers", "How many.", [((), 42)])


@asynccontextmanager
async def served() -> AsyncGenerator[int, None]:
    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(
            partial(serve_page, Numbers({"cluster": "c"}), "127.0.0.1:0"))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def ask(port: int, request: bytes) -> bytes:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(request)
        answer = b""
        async for piece in stream:
            answer += piece
        return answer


async def test_the_page_has_the_labels_on_its_lines() -> None:
    async with served() as port:
        answer = await ask(port, b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"Content-Length: %d" % len(body) in head
    assert b'answers{cluster="c"} 42.0' in body


async def test_slow_connections_keep_nobody_from_the_page() -> None:
    """Four times as many as have a place, each in the middle of its request."""
    async with served() as port:
        slow = []
        for _ in range(256):
            slow.append(await trio.open_tcp_stream("127.0.0.1", port))
            await slow[-1].send_all(b"GET /metrics HTT")
        for _ in range(3):
            with trio.fail_after(3):  # less than the time that a slow one has
                assert b"200 OK" in await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert await slow[0].receive_some(1) == b"", "who came first had time enough"
        for stream in slow:
            await stream.aclose()


@pytest.mark.parametrize(("request_", "status"), [
    (b"GET / HTTP/1.1\r\n\r\n", b"404"),
    (b"POST /metrics HTTP/1.1\r\n\r\n", b"400"),
    (b"nonsense\r\n\r\n", b"400"),
    (b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 2_000 + b"\r\n", b"400"),
    (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200"),
])
async def test_other_requests_get_no_page(request_: bytes, status: bytes) -> None:
    async with served() as port:
        answer = await ask(port, request_)
    assert answer.split(b" ")[1] == status
    assert b"answers" not in answer


async def test_a_port_in_use_is_told_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot show metrics at 127.0.0.1:{port}.*metricsPromExporterPort"):
            await serve_page(Numbers({}), f"127.0.0.1:{port}")
