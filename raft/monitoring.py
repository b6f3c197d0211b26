"""A small HTTP server for monitoring: it shows a process's metrics, and whether it is healthy, ready, and writable.

h11 does the protocol; this module has the pages, and keeps slow connections from blocking them. It is a trio task
and starts no thread. Needs the extra ``metrics``. Knows nothing of what it shows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol, runtime_checkable

import attrs
import trio

from raft.handshake import STREAM_ERRORS, split_address

try:
    import h11
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("raft.monitoring needs h11: pip install 'quorate-raft[metrics]'") from missing

_REQUEST_BYTES_MAX: Final = 8 << 10
_REQUEST_TIMEOUT_S: Final = 5.0
_CONNECTIONS_MAX: Final = 64
"""Most connections at a time; one more ends the oldest, so that slow clients block nobody."""
_TEXT: Final = "text/plain; charset=utf-8"
_EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"


class Exposed(Protocol):
    """An object that has metrics for a page."""

    def exposition(self) -> bytes: ...


@runtime_checkable
class Judged(Protocol):
    """An object that knows its health. Both answers are words for an operator, "" if all is well."""

    def unhealthy(self) -> str:
        """Return the reason why it will not work again before the process is restarted."""

    def unready(self) -> str:
        """Return the reason why it does not serve now."""


@runtime_checkable
class Writable(Judged, Protocol):
    """An object that also knows whether it takes writes: one of a group does, and a balancer asks often which."""

    def unwritable(self) -> str:
        """Return the reason why it takes no writes now, "" if it takes them."""


@attrs.frozen
class _Page:
    status: HTTPStatus
    text: bytes
    kind: str = _TEXT


async def serve_monitoring(
    shown: Exposed, listen: str, *, advice: str = "",
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer ``GET`` of ``/metrics`` and of its verdicts at ``listen`` (``host:port``) until cancelled.

    Reports its listeners. ``shown`` is asked at each request. ``Judged`` objects have ``/healthz`` and ``/readyz``,
    ``Writable`` ones ``/writable`` beside them: 200 and ``ok``, or 503 and the reason.

    Raises ``ConfigError`` for a bad address, and ``OSError``, with ``advice``, for one that cannot be used.
    """
    host, port = split_address(listen)
    open_since: dict[trio.CancelScope, None] = {}

    async def answer(stream: trio.SocketStream) -> None:
        if len(open_since) >= _CONNECTIONS_MAX:  # the oldest had time enough
            oldest = next(iter(open_since))
            del open_since[oldest]
            oldest.cancel()
        with trio.move_on_after(_REQUEST_TIMEOUT_S) as scope:
            open_since[scope] = None
            with contextlib.suppress(*STREAM_ERRORS):  # the client may be gone
                await _converse(stream, shown)
        open_since.pop(scope, None)

    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise OSError(f"cannot show metrics at {listen}: {error.strerror or error}{advice and '; '}{advice}") from error
    await trio.serve_listeners(answer, listeners, task_status=task_status)


async def _converse(stream: trio.SocketStream, shown: Exposed) -> None:
    """Take one request and answer it. Ends when the client has read the answer and closes."""
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=_REQUEST_BYTES_MAX)
    method = b""
    try:
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(_REQUEST_BYTES_MAX)))
        if not isinstance(event, h11.Request):
            return  # the client left
        method = event.method
        page = _page(method, event.target, shown)
    except h11.RemoteProtocolError as error:
        page = _Page(HTTPStatus(error.error_status_hint), f"{error}\n".encode())
    head = h11.Response(status_code=page.status, reason=page.status.phrase, headers=[
        ("Content-Type", page.kind), ("Content-Length", str(len(page.text))), ("Connection", "close")])
    parts: list[h11.Event] = [head, h11.EndOfMessage()]
    if method != b"HEAD":
        parts.insert(1, h11.Data(page.text))
    await stream.send_all(b"".join(http.send(part) or b"" for part in parts))
    await stream.send_eof()
    while await stream.receive_some(_REQUEST_BYTES_MAX):
        pass  # closing over unread bytes would reset the connection, and the answer might be lost with it


def _page(method: bytes, target: bytes, shown: Exposed) -> _Page:
    path = target.partition(b"?")[0]
    if method not in (b"GET", b"HEAD"):
        return _Page(HTTPStatus.METHOD_NOT_ALLOWED, b"GET and HEAD alone are answered\n")
    if path == b"/metrics":
        return _Page(HTTPStatus.OK, shown.exposition(), _EXPOSITION)
    verdicts: dict[bytes, Callable[[], str]] = {}
    if isinstance(shown, Judged):
        verdicts = {b"/healthz": shown.unhealthy, b"/readyz": shown.unready}
    if isinstance(shown, Writable):
        verdicts[b"/writable"] = shown.unwritable
    if path in verdicts:
        return _verdict(verdicts[path]())
    if not verdicts:
        return _Page(HTTPStatus.NOT_FOUND, b"there is /metrics\n")
    *front, last = b"/metrics", *verdicts
    return _Page(HTTPStatus.NOT_FOUND, b"there are %b and %b\n" % (b", ".join(front), last))


def _verdict(why_not: str) -> _Page:
    if why_not:
        return _Page(HTTPStatus.SERVICE_UNAVAILABLE, f"{why_not}\n".encode())
    return _Page(HTTPStatus.OK, b"ok\n")
