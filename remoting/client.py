"""The client: a connection per address, made when it is needed and made anew when it is gone.

Deadlines of calls include connecting. A call is sent once: whoever gets an error other than ``ConnectFailed`` cannot
know whether it was carried out, and decides for itself. Knows addresses and connections; nothing of codes but GO_AWAY.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from remoting import streams
from remoting.background import background
from remoting.codes import ResponseCode
from remoting.command import ONEWAY, Command
from remoting.config import ClientConfig
from remoting.connection import Connection, OnResult
from remoting.endpoint import Counters, Endpoint, Handler
from remoting.errors import ConnectFailed, RemotingError, ResponseError
from remoting.streams import Connector, TLSContext, connect_tcp


def checked(answer: Command, address: str | None = None) -> Command:
    """``answer``, if its code is SUCCESS; else raises ``ResponseError``."""
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark, address)
    return answer


@asynccontextmanager
async def open_client(
    config: ClientConfig | None = None, *, connector: Connector = connect_tcp, tls: TLSContext | None = None,
    handlers: Mapping[int, Handler] | None = None, on_close: Callable[[Connection, str], None] | None = None,
) -> AsyncIterator[Client]:
    """A client for as long as the block runs; its connections close with it.

    ``handlers`` serve requests that servers send over these connections. With ``tls`` every connection is under TLS.
    """
    client = Client(config or ClientConfig(), connector, tls, handlers or {}, on_close)
    lasting = trio.CancelScope(shield=True)  # a cancelled block may still say goodbye

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        with lasting:
            await client._endpoint.run(task_status=task_status)

    async with background() as nursery:
        try:
            with trio.CancelScope(shield=True):  # a cancelled start would never end `lasting`
                await nursery.start(run)
            yield client
        finally:
            client._close()
            lasting.cancel()


@attrs.define(eq=False)
class _Dial:
    """An attempt to connect, shared by all who want that address."""

    done: trio.Event = attrs.field(factory=trio.Event)
    connection: Connection | None = None
    failure: str = ""


class Client:
    """Made by ``open_client``. Any number of tasks may call at once."""

    def __init__(
        self, config: ClientConfig, connector: Connector, tls: TLSContext | None, handlers: Mapping[int, Handler],
        on_close: Callable[[Connection, str], None] | None,
    ) -> None:
        self.config = config
        self._connector, self._tls, self._on_close = connector, tls, on_close
        self._endpoint = Endpoint(handlers, config, on_close=self._closed)
        self._connections: dict[str, Connection] = {}
        self._dials: dict[str, _Dial] = {}

    @property
    def counters(self) -> Counters:
        return self._endpoint.counters

    # --- calling ---------------------------------------------------------------------------------------------

    async def call(self, address: str, command: Command, timeout_ms: float | None = None) -> Command:
        """The answer of ``address``, whatever its code (``checked`` raises unless it is SUCCESS).

        Raises ``ConnectFailed`` and ``NotEncodable`` (nothing was sent), ``ConnectionClosed``, ``RequestTimeout``. A
        server that is going away is left for a new connection, and asked once more.
        """
        if timeout_ms is None:
            timeout_ms = self.config.call_timeout_ms
        deadline = trio.current_time() + timeout_ms / 1e3
        connection = self._connections.get(address)
        if connection is None:
            connection = await self._connect_by(address, deadline)
            timeout_ms = (deadline - trio.current_time()) * 1e3
        answer = await connection.call(command, timeout_ms)
        if answer.code != ResponseCode.GO_AWAY:
            return answer
        self._leave(address, connection)
        connection = self._connections.get(address) or await self._connect_by(address, deadline)
        answer = await connection.call(command, (deadline - trio.current_time()) * 1e3)
        if answer.code == ResponseCode.GO_AWAY:
            self._leave(address, connection)
        return answer

    def call_nowait(
        self, address: str, command: Command, on_result: OnResult, timeout_ms: float | None = None
    ) -> None:
        """As ``call``, without a task where a connection stands: ``on_result`` gets the answer, or the error."""
        connection = self._connections.get(address)
        if connection is None:
            self._call_later(address, command, on_result, timeout_ms)
            return

        def answered(result: Command | RemotingError) -> None:
            if isinstance(result, Command) and result.code == ResponseCode.GO_AWAY:
                self._leave(address, connection)
                self._call_later(address, command, on_result, timeout_ms)
            else:
                on_result(result)

        try:
            connection.call_nowait(command, answered, timeout_ms)
        except RemotingError as error:
            on_result(error)

    def _call_later(
        self, address: str, command: Command, on_result: OnResult, timeout_ms: float | None
    ) -> None:
        async def call() -> None:
            try:
                result: Command | RemotingError = await self.call(address, command, timeout_ms)
            except RemotingError as error:
                result = error
            on_result(result)

        if self._endpoint.running:
            self._endpoint.start_soon(call, name=f"calling {address}")
        else:
            on_result(ConnectFailed(address, "the client was closed"))

    async def send_oneway(self, address: str, command: Command) -> None:
        """Send a request that gets no answer; connects first if need be. ``ONEWAY`` is set for the caller.

        Returning says that it was queued, no more. Raises ``ConnectFailed``, ``ConnectionClosed``, ``NotEncodable``.
        """
        command.flag |= ONEWAY
        (await self.connect(address)).send(command)

    # --- connections -----------------------------------------------------------------------------------------

    def connection(self, address: str) -> Connection | None:
        """The connection to ``address``, if there is one now."""
        return self._connections.get(address)

    async def connect(self, address: str) -> Connection:
        """The connection to ``address``, made if there is none. Raises ``ConnectFailed``."""
        found = self._connections.get(address)
        if found is not None:
            await trio.lowlevel.checkpoint()
            return found
        return await self._connect_by(address, trio.current_time() + self.config.connect_timeout_ms / 1e3)

    async def _connect_by(self, address: str, deadline: float) -> Connection:
        dial = self._dials.get(address)
        if dial is None:
            if not self._endpoint.running:
                raise ConnectFailed(address, "the client was closed")
            dial = self._dials[address] = _Dial()
            self._endpoint.start_soon(self._dial, address, dial, name=f"connecting to {address}")
        started = trio.current_time()
        with trio.move_on_at(deadline):
            await dial.done.wait()
        if dial.connection is None:
            passed_ms = (trio.current_time() - started) * 1e3
            raise ConnectFailed(address, dial.failure or f"no answer within {passed_ms:.0f} ms")
        if dial.connection.closed:
            raise ConnectFailed(address, "the connection was closed at once")
        return dial.connection

    async def _dial(self, address: str, dial: _Dial) -> None:
        """One attempt; then the connection, to its end."""
        self.counters.dialled += 1
        try:
            stream, own = await streams.dial(
                address, self._connector, self._tls, timeout_ms=self.config.connect_timeout_ms,
                unacknowledged_timeout_ms=self.config.unacknowledged_timeout_ms)
            dial.connection = self._connections[address] = Connection(self._endpoint, stream, address, own)
        except OSError as error:
            dial.failure = str(error)
        finally:
            del self._dials[address]
            dial.done.set()
            if dial.connection is None:
                self.counters.dials_failed += 1
        if dial.connection is not None:
            await dial.connection.run()

    def _leave(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
        connection.retire()

    def _closed(self, connection: Connection, reason: str) -> None:
        if self._connections.get(connection.peer) is connection:
            del self._connections[connection.peer]
        if self._on_close is not None:
            self._on_close(connection, reason)

    def _close(self) -> None:
        for connection in list(self._endpoint.connections):
            connection.close("the client was closed")
