"""A whole controller: a raft node with the metadata as its state machine, and remoting, on one port.

Everything that is not a core comes in as a parameter, so that a whole server runs on virtual time, memory streams and
a disk in a dict as well as on the real ones. It decides nothing: the cores say what to do, and here it is done.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random

import attrs
import trio
from trio.abc import Listener, Stream

from controller.active import ActiveController
from controller.actor import PROBE_TIMEOUT_MS, Actor, Clock
from controller.config import ControllerConfig, check
from controller.handlers import Controller, election_settings
from controller.liveness import Liveness
from controller.metadata.codec import FORMAT
from controller.metadata.events import Applied
from controller.metadata.machine import MetadataMachine
from raft.handshake import connect_tcp as raft_connect_tcp
from raft.host import monotonic_ns, open_host, wall_clock_ms
from raft.storage.identity import NAME
from raft.storage.interface import Files as RaftFiles
from raft.tls import TLSConfig
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.config import ClientConfig, ServerConfig, TLSMode
from remoting.daemon.exporter import Way
from remoting.daemon.exports import start_exports
from remoting.daemon.files import Files
from remoting.daemon.keys import ConfigError
from remoting.errors import HeaderError, RemotingError
from remoting.headers.controller import GetMetadataResponse
from remoting.server import Server
from remoting.streams import Connector, TLSContext, connect_tcp
from remoting.tls import client_context

logger = logging.getLogger("controller")

STOP_GRACE_MS = 1_000


@attrs.frozen
class RunningController:
    """A controller that accepts connections, to look at, and ``stop``."""

    core: Controller
    server: Server
    address: str
    _stopped: trio.Event

    async def stop(self) -> None:
        """Hand leadership over, answer what is under way, close. Ends the server."""
        self._stopped.set()
        await self.server.stop(STOP_GRACE_MS)


async def serve_controller(
    config: ControllerConfig, *, files: Files, listeners: Sequence[Listener[Stream]], clock: Clock = monotonic_ns,
    wall_ms: Callable[[], int] = wall_clock_ms, connector: Connector = connect_tcp, raft_files: RaftFiles | None = None,
    rng: Random | None = None, tls: TLSContext | None = None, config_path: str = "",
    on_applied: Callable[[Applied], None] | None = None, reads: int = FORMAT,
    task_status: trio.TaskStatus[RunningController] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled or stopped; closes ``listeners``. ``reads``: lower it only to play an old controller.

    Raises ``ConfigError``, ``raft.WrongDirectory``, ``raft.DamagedLog``, and ``raft.Faulted`` when the disk or the
    state machine fails while it runs: nothing is skipped, the process has to be restarted.
    """
    check(config)
    stopped = trio.Event()
    async with (
        _closing(listeners), open_client(ClientConfig(), connector=connector) as client,
        open_client(ClientConfig(), connector=connector, tls=_peers_tls(config)) as peers,
    ):
        data_dir = Path(config.store_path).expanduser()  # noqa: ASYNC240  reads at most the home's name
        asking = (peers, client) if raft_tls(config) else (client,)
        join = not _formatted(data_dir, raft_files) and await _begun_elsewhere(config, asking)
        async with open_host(
            data_dir, node_id=config.self_id, listen=None, address=config.address, cluster=config.group, create=True,
            config=config.raft(), rng=rng, clock=clock, wall_ms=wall_ms, files=raft_files,
            connect=raft_connect_tcp if connector is connect_tcp else connector, tls=raft_tls(config),
            access=config.access,
        ) as host, trio.open_nursery() as nursery:
            machine = MetadataMachine(reads=reads)
            active = ActiveController(machine, Liveness(default_timeout_ms=config.broker_heartbeat_timeout_ms),
                                      election_settings(config))
            actor = Actor(machine, active, client, peers, clock)
            machine.observer = partial(_observe, actor, on_applied)
            node = actor.node = await host.open_group(
                config.group, state_machine=machine, peers=config.peers, bootstrap=not join, join=join)
            core = Controller(node, machine, active, config, clock, files, config_path or config.config_store_path,
                              actor.bell.ring)
            actor.controller = core
            server = Server(
                core.handlers(), on_close=actor.closed, on_answer=core.recorder.answered, tls=tls,
                fallback=host.transport.serve_stream,
                config=ServerConfig(
                    idle_timeout_ms=config.server_channel_max_idle_time_seconds * 1_000,
                    outgoing_bytes_budget=config.outgoing_bytes_budget, outgoing_stall_ms=config.outgoing_stall_timeout,
                    tls_mode=TLSMode(config.tls_server_mode)))
            for task in (actor.follow_role, actor.act, actor.readmit, actor.raise_format):
                nursery.start_soon(task)
            await nursery.start(server.run, listeners)
            if config.metrics_way is not Way.DISABLE:
                await _export(core, server, stopped, nursery)
            logger.info("controller serves", extra={
                "controller_group": config.group, "node": config.self_id, "address": config.address})
            task_status.started(RunningController(core, server, config.address, stopped))
            await stopped.wait()
            await node.stop(transfer=True)
            await server.stop(STOP_GRACE_MS)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _closing(listeners: Sequence[Listener[Stream]]) -> AsyncGenerator[None, None]:
    """Also when nothing came to serve them."""
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            for listener in listeners:
                await trio.aclose_forcefully(listener)


async def _export(core: Controller, server: Server, stopped: trio.Event, nursery: trio.Nursery) -> None:
    """Raises ``ModuleNotFoundError``, ``OSError`` in words."""
    from controller.metrics import ControllerMetrics
    from raft.monitoring import serve_monitoring

    config = core.config
    page = ControllerMetrics(
        core, core.recorder, server.counters, Path(config.store_path).expanduser(), stopped.is_set)  # noqa: ASYNC240
    await start_exports(page, config, config.bind_address, serve_monitoring, nursery)


def raft_tls(config: ControllerConfig) -> TLSConfig | None:
    """Return raft's TLS. With a certificate and the authority of the others', controllers talk under mutual TLS."""
    given = config.tls_server_cert_path and config.tls_server_trust_cert_path
    if not given or config.tls_server_mode == "disabled":
        return None
    return TLSConfig(
        cert=config.tls_server_cert_path, key=config.tls_server_key_path, ca=config.tls_server_trust_cert_path,
        check_node_id=config.check_node_id)


def _peers_tls(config: ControllerConfig) -> TLSContext | None:
    """Return the TLS context for asking peers.

    Where raft speaks TLS, questions do too: peers may refuse plain connections.
    """
    tls = raft_tls(config)
    return None if tls is None else client_context(ca=tls.ca, cert=tls.cert, key=tls.key)


def _formatted(data_dir: Path, files: RaftFiles | None) -> bool:
    """Return whether the directory has been used by raft before."""
    return NAME in files.list("") if files is not None else (data_dir / NAME).exists()


async def _begun_elsewhere(config: ControllerConfig, clients: Sequence[Client]) -> bool:
    """Return whether the group has committed something already.

    If so, an empty directory joins that group instead of beginning a second one.

    Each is asked by the first of ``clients`` that gets an answer: TLS comes to a group one controller after another.
    Raises ``ConfigError`` for a peer that is none: its group would not take this controller, nor this one it.
    """
    begun = False

    async def ask(node: str, address: str, scope: trio.CancelScope) -> None:
        nonlocal begun
        for client in clients:
            with suppress(RemotingError):
                answer = await client.call(
                    address, request(RequestCode.CONTROLLER_GET_METADATA_INFO), timeout_ms=PROBE_TIMEOUT_MS)
                break
        else:
            return
        wrong = disagreement(config, node, answer)
        if wrong:
            raise ConfigError(config.peers_key, f"{node}-{address}", wrong)
        if _told(answer).committed_index:
            begun = True
            scope.cancel()

    async with trio.open_nursery() as nursery:
        for node, address in config.peers.items():
            if node != config.self_id:
                nursery.start_soon(ask, node, address, nursery.cancel_scope)
    return begun


def _told(answer: Command) -> GetMetadataResponse:
    """What an answer to 1005 tells: nothing, if no controller of ours would write it."""
    try:
        return GetMetadataResponse.from_ext(answer.ext)
    except HeaderError:
        return GetMetadataResponse()


def disagreement(config: ControllerConfig, node: str, answer: Command) -> str | None:
    """Return why the sender of this answer to 1005 cannot be the peer ``node`` of a new controller; None if it can."""
    if answer.code not in (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
        return None  # an error of the peer is no disagreement
    told = _told(answer)
    if told.committed_index is None:
        return "is no controller of this kind, such as each of the group must be"
    if told.group != config.group:
        return f"is a controller of group {told.group}; this one is of group {config.group}"
    there = dict(item.split(":", 1) for item in (told.peers or "").split(";") if ":" in item)
    for name, address in ((config.self_id, config.address), (node, config.peers[node])):
        if there.get(name, address) != address:
            return f"has {name} at {there[name]}, not at {address}: write it as the others do"
    taken = [name for name, address in there.items() if address == config.address and name != config.self_id]
    return f"has {taken[0]} at {config.address}; here that is {config.self_id}" if taken else None


def _observe(actor: Actor, on_applied: Callable[[Applied], None] | None, applied: Applied) -> None:
    actor.applied(applied.outcome)
    if on_applied is not None:
        on_applied(applied)
