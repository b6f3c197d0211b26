"""The supervisor: keeps the brokers of a container running, and adds and removes them by request.

It is the guardian of each broker. Brokers survive a kill of the supervisor; its next start finds them by their records.
Codes 902, 903, 25 and 26 are those of ``BrokerContainerProcessor`` of RocketMQ 5.5.0; code 28, the state of each
broker, is ours.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from broker.cli import free_ports, guardian_config, here, is_guarded, resolved, stand_in
from broker.config import BrokerConfig, from_properties
from broker.container import config as settings
from broker.container.config import ContainerConfig
from broker.container.hosting import (
    NO_PATH,
    NO_PROPERTIES,
    NO_SUCH_BROKER,
    Hosted,
    HostedName,
    NotAdmitted,
    Roster,
    admit,
    hosted,
)
from broker.container.nest import Birth, Nest, Process, adopted, found
from broker.container.records import Record, file_name
from broker.idle_keys import IDLE
from broker.parts import configuration
from broker.place import log_paths
from broker.relay.guardian import Guardian
from broker.relay.lives import Lives
from broker.siblings.sockets import make_directory
from remoting import properties
from remoting.bodies.namesrv import KVTable
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.daemon.changing import change_config
from remoting.daemon.files import Files
from remoting.daemon.keys import ConfigError, names
from remoting.daemon.process import FAILED, STOPPED
from remoting.daemon.tls import tls_of
from remoting.endpoint import Handler
from remoting.headers.broker import AddBrokerRequest, GetBrokerConfigResponse, RemoveBrokerRequest

logger = logging.getLogger("broker.container")

ROSTER: Final = "brokers.json"
RECORDS: Final = "processes"
SOCKETS: Final = "siblings"
LOGS: Final = "logs"
CONFIG_BYTES_MAX: Final = 1 << 20
_SAID_BYTES: Final = 1_000
"""Bytes that are read of the last output of a broker that could not start."""
_NO_VERSION: Final = '{"counter":0,"stateVersion":0,"timestamp":0}'


@attrs.define(eq=False)
class Inner:
    """One broker and its guardian."""

    hosted: Hosted
    guardian: Guardian
    sockets: Sequence[socket.socket]
    """Its listening sockets for clients, if the guardian holds them."""
    served: trio.Event
    over: trio.Event = attrs.field(factory=trio.Event)
    failure: str = ""

    @property
    def state(self) -> str:
        child = self.guardian.child
        if self.over.is_set():
            return f"down: {self.failure or 'stopped'}"
        word = "serves" if self.guardian.serves else "starts"
        return f"{word}, process {child.pid if child is not None else 'none yet'}, starts {self.guardian.starts}"


@attrs.frozen(eq=False)
class _Found:
    """A broker of an earlier supervisor that still runs. ``file`` has its record."""

    process: Process
    record: Record
    file: Path

    async def end(self) -> None:
        """End it in order. Its record goes then, unless another process has written one there."""
        async with adopted(self.process) as process:
            process.send_signal(signal.SIGTERM)
            await process.wait()
        with contextlib.suppress(OSError, ValueError):
            if Record.from_json(self.file.read_bytes()) == self.record:
                self.file.unlink()


@attrs.define(eq=False)
class Supervisor:
    """All brokers of a container. ``directory`` is locked, and no other container uses it. ``log_arguments`` are added
    to each broker's command line."""

    config: ContainerConfig
    files: Files
    directory: Path
    own_ports: Mapping[int, str]
    log_directory: Path
    log_arguments: tuple[str, ...]
    say: Callable[[str], None]
    brokers: dict[HostedName, Inner] = attrs.field(factory=dict)
    _roster: Roster = attrs.field(factory=lambda: Roster(()))
    _nest: Nest = attrs.field(factory=Nest)
    _changing: trio.Lock = attrs.field(factory=trio.Lock)
    _stopping: bool = False
    _nursery: trio.Nursery | None = None
    _client: Client | None = None
    _leaving: dict[HostedName, Inner] = attrs.field(factory=dict)
    """Removed brokers whose guardians still pass clients on to the next master."""

    # --- life ------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until stopped or cancelled; only ``stop`` ends the brokers. ``started`` is called when each broker is
        found or is starting. Raises ``ConfigError`` if its own files are damaged."""
        path = str(self.directory / ROSTER)
        try:
            self._roster = Roster.from_json(tuple(map(absolute, self.config.paths)), self.files.read(path))
        except ValueError as error:
            raise ConfigError("containerStorePath", path, f"cannot be read: {error}; mend or remove the file") from None
        make_directory(self.directory / SOCKETS)
        async with open_client() as self._client, trio.open_nursery() as self._nursery:
            await self._nursery.start(self._nest.run)
            left = self._found()
            for each in sorted(self._roster.removed):
                logger.warning("a listed broker is not started: it was removed by request; addBroker brings it back",
                               extra={"path": each})
            for each in self._roster:
                self.say(f"Start broker from config file path {each}")
                try:
                    there = left.pop(each, None)
                    await self._begin(self._judged(each), None if there is None else there.process, tries=True)
                except (NotAdmitted, OSError) as error:
                    logger.error("a broker cannot be started; the others are", extra={"path": each, "why": str(error)})
            for path, there in left.items():
                logger.warning("a broker is stopped: it is no longer listed",
                               extra={"path": path, "pid": there.record.pid})
                self._nursery.start_soon(there.end)
            task_status.started()
            await trio.sleep_forever()

    async def stop(self) -> None:
        """Stop all brokers at once and in order, then end ``run``. A second call also ends what guardians still do for
        their clients."""
        self._stopping = True
        inner = [*self.brokers.values(), *self._leaving.values()]
        for each in inner:
            each.guardian.stop()
        for each in inner:
            await each.over.wait()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def _found(self) -> dict[str, _Found]:
        """Brokers of an earlier supervisor that still run, by the paths of their files."""
        running = {}
        for each in sorted((self.directory / RECORDS).glob("*.json")):
            try:
                record = Record.from_json(each.read_bytes())
            except (OSError, ValueError) as error:
                logger.warning("a record of a process cannot be read, and is ignored",
                               extra={"path": str(each), "why": str(error)})
                continue
            process = found(record)
            if process is None:
                each.unlink(missing_ok=True)
            elif record.path in running:
                process.close()
            else:
                running[record.path] = _Found(process, record, each)
        return running

    # --- one broker ------------------------------------------------------------------------------------------

    def _judged(self, path: str) -> Hosted:
        """The broker of that file, if it may run here. Raises ``NotAdmitted``."""
        try:
            content = self.files.read(path)
        except OSError as error:
            raise NotAdmitted(f"{NO_PROPERTIES}: {path}: {error.strerror or error}") from None
        if content is None:
            raise NotAdmitted(f"{NO_PROPERTIES}: there is no file {path}")
        try:
            given = properties.parse(content.decode())
        except ValueError as error:
            raise NotAdmitted(f"{NO_PROPERTIES}: {path}: {error}") from None
        new = hosted(path, given, self.config.handed_on, _configured, _places)
        admit(new, (each.hosted for each in self.brokers.values() if not each.over.is_set()), self.own_ports)
        return new

    async def _begin(self, new: Hosted, process: Process | None, *, tries: bool) -> Inner:
        """Start a broker's guardian. ``process``: it runs already. Raises ``OSError``, ``NotAdmitted``."""
        assert self._client is not None and self._nursery is not None
        leaving = self._leaving.get(new.identity)
        if leaving is not None:
            leaving.guardian.stop(signal.SIGINT)
            await leaving.over.wait()
        guarded, config, by = is_guarded(new.config), new.config, None
        if guarded:
            try:
                config = resolved(config)
                tls = tls_of(config)
            except ConfigError as error:
                raise NotAdmitted(str(error)) from None
            sockets = [] if process is not None else await free_ports(config)
            by = stand_in(config, tls, self._client, sockets,
                          reopen=None if process is None else partial(free_ports, config))
        served = trio.Event()
        guardian = Guardian(
            guardian_config(config, None), partial(self._nest.launched, self._start_of(new)), by,
            lives=Lives(tries=tries), running=None if process is None else adopted(process),
            serves=partial(self._serves, new, served, process))
        inner = Inner(new, guardian, () if by is None else by.sockets, served)
        self.brokers[new.identity] = inner
        self._nursery.start_soon(self._keep, inner)
        return inner

    def _serves(self, new: Hosted, served: trio.Event, process: Process | None) -> None:
        served.set()
        if process is None:
            self.say(f"Broker [{new.identity.name}-{new.identity.broker_id}] boot success. serializeType=JSON")
        else:
            logger.info("a broker of an earlier container is still running", extra={
                "broker": str(new.identity), "pid": process.pid})

    async def _keep(self, inner: Inner) -> None:
        """Run a broker's guardian until the broker has ended for good, then clean up."""
        code, why = FAILED, ""
        try:
            code = await inner.guardian.run() or STOPPED
        except OSError as error:
            why = str(error)
        for each in inner.sockets:
            each.close()
        if code:
            inner.failure = why or self._last_words(inner.hosted) or f"exit code {code}"
            logger.error("a broker failed and is not started again", extra={
                "broker": str(inner.hosted.identity), "exit_code": code, "said": inner.failure})
        self._record(inner.hosted).unlink(missing_ok=True)
        inner.over.set()
        if self._leaving.get(inner.hosted.identity) is inner:
            del self._leaving[inner.hosted.identity]

    def _start_of(self, new: Hosted) -> Birth:
        logs, who = self._logs(new), new.identity
        arguments = ["-c", new.path, *self.log_arguments, "--log-dir", str(logs)]
        for name, text in new.settings.items():
            arguments += ["-D", f"{name}={text}"]
        return Birth(str(who), f"{who.name}-{who.broker_id}", new.path, arguments, str(self._record(new)),
                     str(logs / "out.log"), str(self.directory / SOCKETS))

    def _logs(self, new: Hosted) -> Path:
        return self.log_directory / file_name(str(new.identity)).removesuffix(".json")

    def _record(self, new: Hosted) -> Path:
        return self.directory / RECORDS / file_name(str(new.identity))

    def _last_words(self, new: Hosted) -> str:
        try:
            lines = (self._logs(new) / "out.log").read_bytes()[-_SAID_BYTES:].decode(errors="replace").splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    # --- requests --------------------------------------------------------------------------------------------

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.ADD_BROKER: self.add, RequestCode.REMOVE_BROKER: self.remove,
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config, RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.state}

    async def add(self, connection: Connection, request: Command) -> Command:
        """Add a broker (902); answered when it serves."""
        path = AddBrokerRequest.from_ext(request.ext).config_path
        logger.info("addBroker", extra={"peer": connection.peer, "path": path})
        async with self._changing:
            try:
                await self._add(path)
            except NotAdmitted as refused:
                logger.error("addBroker was refused", extra={"path": path, "why": str(refused)})
                return response(request, ResponseCode.SYSTEM_ERROR, remark=str(refused))
        return response(request)

    async def _add(self, given: str) -> None:
        if not given.strip():
            raise NotAdmitted(NO_PATH)
        if self._stopping:
            raise NotAdmitted("start broker failed: the container stops")
        path = absolute(given.strip())
        new = self._judged(path)
        before, roster = self._roster, self._roster.with_one(path)
        self._write(roster)  # first, so that a crash leaves no running broker that is not listed
        try:
            inner = await self._begin(new, None, tries=False)
            await _first(inner.served.wait, inner.over.wait)
        except OSError as error:
            self._write(before)
            raise NotAdmitted(f"start broker failed: {error}") from None
        if not inner.served.is_set():
            del self.brokers[new.identity]
            self._write(before)
            raise NotAdmitted(f"start broker failed: {inner.failure or 'it ended before it served'}")

    async def remove(self, connection: Connection, request: Command) -> Command:
        """Remove a broker (903); answered when it has ended."""
        header = RemoveBrokerRequest.from_ext(request.ext)
        identity = HostedName(header.broker_cluster_name, header.broker_name, header.broker_id)
        logger.info("removeBroker", extra={"peer": connection.peer, "broker": str(identity)})
        async with self._changing:
            inner = self.brokers.get(identity)
            if inner is None:
                return response(request, ResponseCode.BROKER_NOT_EXIST, remark=NO_SUCH_BROKER)
            try:
                self._write(self._roster.without(inner.hosted.path))
            except NotAdmitted as refused:
                return response(request, ResponseCode.SYSTEM_ERROR, remark=str(refused))
            del self.brokers[identity]
            if not inner.over.is_set():
                self._leaving[identity] = inner
                inner.guardian.stop()
                await inner.guardian.ended.wait()
        return response(request)

    def _write(self, roster: Roster) -> None:
        """Store a new roster, then use it. Raises ``NotAdmitted``."""
        try:
            self.files.replace(str(self.directory / ROSTER), roster.to_json())
        except OSError as error:
            raise NotAdmitted(f"cannot write {self.directory / ROSTER}: {error.strerror or error}") from None
        self._roster = roster

    def get_config(self, _: Connection, request: Command) -> Command:
        """Answer 26 with all keys and their values."""
        return response(request, header=GetBrokerConfigResponse(_NO_VERSION),
                        body=properties.encode(settings.listing(self.config)).encode())

    def update_config(self, connection: Connection, request: Command) -> Command:
        """Change keys (25). A change that a running container cannot follow is stored for its next start."""
        return change_config(
            connection, request, self.config, bytes_max=CONFIG_BYTES_MAX, barred=self.config.black_list,
            live=settings.live_keys(), made=lambda given: settings.from_properties(given, start=self.config),
            text=settings.to_properties, files=self.files, path=self.config.config_store_path, use=self._use,
            logger=logger)

    def _use(self, changed: ContainerConfig) -> None:
        self.config = changed

    def state(self, _: Connection, request: Command) -> Command:
        """Answer 28 with the state, port and file of each broker."""
        return response(request, body=KVTable({
            str(identity): f"{inner.state}, listenPort {inner.hosted.config.listen_port}, file {inner.hosted.path}"
            for identity, inner in sorted(self.brokers.items())}).to_json())


def absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _configured(given: Mapping[str, str]) -> BrokerConfig:
    known = {*names(configuration()), *IDLE}
    return here(from_properties({name: text for name, text in given.items() if name in known},
                                start=configuration()()))


def _places(config: BrokerConfig) -> dict[str, str]:
    places = {"storePathRootDir": config.store_path_root_dir}
    return {key: os.path.realpath(place) for key, place in (
        *places.items(), *(("storePathCommitLog", str(path)) for path in log_paths(config)))}


async def _first(*waits: Callable[[], Awaitable[object]]) -> None:
    """Wait until one of these returns, and cancel the others."""
    async with trio.open_nursery() as nursery:

        async def one(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            nursery.cancel_scope.cancel()

        for each in waits:
            nursery.start_soon(one, each)
