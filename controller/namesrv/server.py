"""A whole name server: the core, a remoting server around it, the files it keeps and the brokers it tells.

Everything that is not the core comes in as a parameter, so a server runs on virtual time, memory streams and a disk in
a dict as well as on the real ones. Decides nothing about brokers or routes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import attrs
import trio
from trio.abc import Listener, Stream

from controller.namesrv.config import NamesrvConfig
from controller.namesrv.effects import BrokerCame, BrokerLeft, Close, MinIdChanged, RegistrationRefused, Save
from controller.namesrv.kvconfig import KVConfig
from controller.namesrv.notices import Notifier
from controller.namesrv.requests import NameServer
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.config import ServerConfig, TLSMode
from remoting.connection import Connection
from remoting.daemon.edits import Edit
from remoting.daemon.exporter import Way
from remoting.daemon.exports import start_exports
from remoting.daemon.files import Files
from remoting.daemon.logs import of_peer
from remoting.daemon.process import Stoppable
from remoting.errors import BodyError
from remoting.server import Server
from remoting.streams import Connector, TLSContext, connect_tcp
from remoting.wakeup import Bell

logger = logging.getLogger("controller.namesrv")

Clock = Callable[[], int]
"""Monotonic, ns."""


class ControllerBeside(Protocol):
    """Runs a controller beside the name server, until cancelled or stopped: ``serve_controller`` but for its status."""

    def __call__(self, *, task_status: trio.TaskStatus[Stoppable]) -> Awaitable[None]: ...


STOP_GRACE_MS: Final = 1_000
"""Grace for answers under way at a stop without ``enableShutdownGracefully``."""
CONNECTIONS_MAX: Final = 100_000
"""Every client of every broker has one."""
_LOGGED: Final = {
    RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG, RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER, RequestCode.REGISTER_TOPIC_IN_NAMESRV, RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.UNREGISTER_BROKER,
}
"""Requests of operators and leaving brokers that are logged."""


@attrs.frozen
class RunningNamesrv:
    """A name server that accepts connections: its core and its remoting server, to look at, and ``stop``."""

    core: NameServer
    server: Server
    _config: NamesrvConfig
    _shell: _Shell
    _controller: Stoppable | None

    async def stop(self) -> None:
        """Stop in order, ``controller`` first; with ``enableShutdownGracefully`` clients have time to go elsewhere."""
        self._shell.stopping = True
        if self._controller is not None:
            await self._controller.stop()
        patience_ms = self._config.shutdown_wait_time_seconds * 1e3
        await self.server.stop(patience_ms if self._config.enable_shutdown_gracefully else STOP_GRACE_MS)


async def serve_namesrv(
    config: NamesrvConfig, *, clock: Clock, files: Files, listeners: Sequence[Listener[Stream]],
    connector: Connector = connect_tcp, tls: TLSContext | None = None, controller: ControllerBeside | None = None,
    task_status: trio.TaskStatus[RunningNamesrv] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled or stopped; closes ``listeners``.

    Raises ``BodyError`` when the key-value file is damaged and ``OSError`` when it cannot be read, before anything is
    served. A controller that ends takes the name server along, and the other way round.
    """
    core = NameServer(config, _load_kv(config, files), clock())
    async with open_client(connector=connector) as client, trio.open_nursery() as nursery:
        notifier = Notifier(client, core.counters)
        await nursery.start(notifier.run)
        shell = _Shell(core, clock, files, notifier)
        server = Server(
            dict.fromkeys(core.codes, shell.handle), on_close=shell.closed, tls=tls,
            config=ServerConfig(
                connections_max=CONNECTIONS_MAX,
                idle_timeout_ms=config.server_channel_max_idle_time_seconds * 1_000,
                tls_mode=TLSMode(config.tls_server_mode)))
        nursery.start_soon(shell.judge_silence)
        async with trio.open_nursery() as serving:
            await serving.start(server.run, listeners)
            if config.metrics_way is not Way.DISABLE:
                await _export(core, config, server, shell, nursery)
            beside = None if controller is None else await serving.start(_run_beside, controller, shell, server)
            task_status.started(RunningNamesrv(core, server, config, shell, beside))
        nursery.cancel_scope.cancel()


async def _export(
    core: NameServer, config: NamesrvConfig, server: Server, shell: _Shell, nursery: trio.Nursery,
) -> None:
    """Raises ``ModuleNotFoundError``, ``OSError`` in words."""
    from controller.namesrv.metrics import NamesrvMetrics
    from raft.monitoring import serve_monitoring

    page = NamesrvMetrics(core, config, server.counters, shell.unready)
    await start_exports(page, config, config.bind_address, serve_monitoring, nursery)


async def _run_beside(
    controller: ControllerBeside, shell: _Shell, server: Server, *, task_status: trio.TaskStatus[Stoppable],
) -> None:
    """Should it end of its own accord, the name server ends too."""
    await controller(task_status=task_status)
    if not shell.stopping:
        shell.stopping = True
        await server.stop(STOP_GRACE_MS)


def _load_kv(config: NamesrvConfig, files: Files) -> KVConfig:
    content = files.read(config.kv_config_path)
    if content is None:
        return KVConfig()
    try:
        return KVConfig.decode(content)
    except BodyError as error:
        raise BodyError(f"kvConfigPath = {config.kv_config_path}: {error}; mend or remove the file") from None


class _Shell:
    """Connects the remoting server and the core: gives the core time, carries out its effects."""

    def __init__(self, core: NameServer, clock: Clock, files: Files, notifier: Notifier) -> None:
        self._core, self._clock, self._files, self._notifier = core, clock, files, notifier
        self._bell = Bell()
        self._awaited: int | None = None
        """The deadline that ``judge_silence`` sleeps for."""
        self.stopping = False
        """Brokers whose connections this end closes are no news, for people or for the others of their groups."""

    def unready(self) -> str:
        """Return why routes are not answered now; "" if they are."""
        return "the name server stops" if self.stopping else self._core.unready(self._clock())

    def handle(self, connection: Connection, command: Command) -> Command:
        """Answers requests of every code."""
        core = self._core
        answer = core.handle(self._clock(), connection, command)
        if core.outbox:
            failure = self._carry_out()
            if failure is not None:
                answer = response(command, ResponseCode.SYSTEM_ERROR, remark=failure)
        if command.code == RequestCode.REGISTER_BROKER and core.next_deadline() != self._awaited:
            self._bell.ring()
        elif command.code in _LOGGED and not answer.code:
            logger.info("request", extra={"code": command.code, "peer": connection.peer, **of_peer(command.ext)})
        return answer

    def closed(self, connection: Connection, reason: str) -> None:
        """Remove the brokers that registered over this connection from the routes, at once."""
        self._core.closed(connection, reason)
        self._carry_out()

    async def judge_silence(self) -> None:
        """Takes silent brokers out of the routes, until cancelled."""
        while True:
            self._awaited = due = self._core.next_deadline()
            if due is None:
                await self._bell.wait()
                continue
            with trio.move_on_after(max(due - self._clock(), 0) / 1e9):
                await self._bell.wait()
            self._core.expire(self._clock())
            self._carry_out()

    # --- effects ---------------------------------------------------------------------------------------------

    def _carry_out(self) -> str | None:
        """Carry out the core's effects. Returns what could not be written to disk, in words; None: all was."""
        failure = None
        outbox = self._core.outbox
        while outbox:  # closing a connection adds effects
            effect = outbox.pop(0)
            if isinstance(effect, Save):
                failure = self._save(effect) or failure
            elif isinstance(effect, Close):
                assert isinstance(effect.connection, Connection)
                effect.connection.close("its brokers said nothing for too long")
            elif self.stopping:
                continue
            elif isinstance(effect, MinIdChanged):
                self._notifier.tell(effect)
            else:
                _log(effect)
        return failure

    def _save(self, save: Save) -> str | None:
        try:
            content = save.content
            self._files.replace(
                save.path, content.of(self._files.read(save.path)) if isinstance(content, Edit) else content)
        except OSError as error:
            self._core.counters.saves_failed += 1
            logger.error("%s could not be written: %s", save.path, error, extra={"path": save.path})
            return f"in effect until the next start, for {save.path} could not be written: {error}"
        return None


def _log(event: BrokerCame | BrokerLeft | RegistrationRefused) -> None:
    fields = attrs.asdict(event)
    if isinstance(event, BrokerCame):
        logger.info("broker registered", extra=fields)
    elif isinstance(event, BrokerLeft):
        logger.log(logging.INFO if event.orderly else logging.WARNING, "broker left the routes", extra=fields)
    else:
        logger.warning("registration refused", extra=fields)
