"""``mqbroker``: run a broker, with RocketMQ's configuration file and flags.

Knows the command line and this machine: its name, its address, its sockets and its disk.
"""

from __future__ import annotations

import argparse
import errno
import gc
import logging
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from broker.config import BrokerConfig, check, from_properties, listing
from broker.ha.epochfile import EpochFile
from broker.idle_keys import FEATURES, IDLE
from broker.important import IMPORTANT
from broker.parts import configuration, passed_on
from broker.place import log_paths, store_files
from broker.relay.finding import Listed, MasterFinder
from broker.relay.forwarding import Forwarder
from broker.relay.guardian import (
    CONTAINED,
    Guardian,
    GuardianConfig,
    Leashed,
    StandIn,
    inherited_sockets,
    tell_ready,
)
from broker.relay.lingering import send_away
from broker.relay.lives import HANDED_OVER
from broker.replicas.identity import IdentityError
from broker.roles import Roles
from broker.server import RunningBroker, World, serve_broker
from broker.siblings.sockets import SIBLINGS, Siblings, open_siblings
from broker.store.errors import StoreError
from raft.loglimit import RepeatLimit
from remoting.address import is_ip
from remoting.client import Client, open_client
from remoting.config import ServerConfig, TLSMode
from remoting.daemon.child import child
from remoting.daemon.files import DiskFiles
from remoting.daemon.keys import ConfigError, names
from remoting.daemon.notify import READY, SOCKET, STOPPING, notify
from remoting.daemon.process import (
    FAILED,
    STOPPED,
    Stoppable,
    check_exporter,
    given_and_unknown,
    is_printed,
    listen,
    piped,
    run_server,
    run_until_stopped,
    say,
    server_parser,
    start_logs,
    tell_of_idle_keys,
    tell_of_readable_keys,
)
from remoting.daemon.tls import client_tls_of, tls_of
from remoting.errors import DamagedRecord
from remoting.streams import TLSContext

GARBAGE_OBJECTS: Final = 20_000
"""Objects after which Python looks for cycles, more than by default: records make many tuples, and no cycles."""
EXAMPLES: Final = """\
examples:
  mqbroker -n 10.0.0.9:9876                  a single master, its store in ~/store
  mqbroker -c broker.conf                    a RocketMQ file: lines of key=value
  mqbroker -n 10.0.0.9:9876 -D brokerName=broker-a -D enableControllerMode=true \\
           -D 'controllerAddr=10.0.0.1:9877;10.0.0.2:9877;10.0.0.3:9877' -D allAckInSyncStateSet=true
  mqbroker -c broker.conf -p                 print what would be used, and exit; -m: what matters most of it

Under controllers, run as many as there are to be replicas, with the same brokerName, each on a machine of its own or
with its own storePathRootDir, listenPort and haListenPort. Whatever -D says wins over the file, the file over defaults.
"""


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = server_parser(
        "mqbroker",
        "Run a RocketMQ broker: it stores messages, replicates them, and serves producers and consumers.",
        EXAMPLES, configuration(), namesrv="name servers: host:port;host:port; wins over namesrvAddr of the file")
    made.add_argument("-m", "--printImportantConfig", action="store_true", help="as -p, those that matter most")
    return made


logger = logging.getLogger("broker")

_PORTS_WAIT_S: Final = 2.0
_ANYWHERE: Final = ("192.0.2.1", 9)
"""An address that nobody has; the system says which of this machine's addresses it would use towards it."""


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    given_arguments = sys.argv[1:] if arguments is None else arguments
    return run_server(
        "mqbroker", partial(_prepare, parser().parse_args(arguments), given_arguments),
        (OSError, ConfigError, StoreError, DamagedRecord, IdentityError, ModuleNotFoundError))


def _prepare(options: argparse.Namespace, arguments: Sequence[str]) -> Callable[[], int] | None:
    given, strange = given_and_unknown(options, DiskFiles(), {*names(configuration()), *IDLE})
    if options.namesrvAddr:
        given["namesrvAddr"] = options.namesrvAddr
    config = here(from_properties(given, start=configuration()()))
    if is_printed(options, listing(config), IMPORTANT):
        return None
    check(config)
    config = resolved(config)
    check_exporter(config)
    tls = tls_of(config)
    client_tls_of(config)
    inherited = inherited_sockets()
    contained = CONTAINED in os.environ
    guards = is_guarded(config) and not inherited and not contained
    start_logs(options, "guardian" if guards else "mqbroker", RepeatLimit())
    if contained or not inherited:
        tell_of_idle_keys(config.without_meaning, strange, FEATURES, config, None)
        _tell_of(config, given)
        tell_of_readable_keys(config.tls_server_key_path, config.tls_client_key_path)
        if config.tls_enable and not config.tls_client_trust_cert_path:
            logger.warning("nobody's certificate is checked: tls.client.trustCertPath is not set")
    if guards:
        return partial(trio.run, guard, config, tls, arguments)
    gc.freeze()  # imported objects stay for ever, and to look through them takes long
    gc.set_threshold(GARBAGE_OBJECTS)
    return partial(trio.run, run, config, tls, inherited)


def _tell_of(config: BrokerConfig, given: Mapping[str, str]) -> None:
    """Log which effects of these keys an operator of Java's brokers may not expect."""
    if config.skip_pre_online and not config.enable_slave_acting_master:
        logger.warning("it says nothing without enableSlaveActingMaster: no member asks others first", extra={
            "key": "skipPreOnline", "value": "true"})
    if config.read_only_commit_log_store_paths and not config.read_only_log_paths:
        logger.warning("read only directories of the log count where storePathCommitLog names several, as in Java",
                       extra={"key": "readOnlyCommitLogStorePaths"})
    if config.detection_profile == "quick" and config.enable_controller_mode:
        logger.info("silence of members of ours is noticed sooner; Java's, and older ones, are judged as ever",
                    extra={"detection_profile": config.detection_profile})
    if not config.clean_file_forcibly_enable and "cleanFileForciblyEnable" not in given:
        logger.info("a full disk refuses sends and deletes nothing younger than fileReservedTime; RocketMQ's way is "
                    "cleanFileForciblyEnable = true", extra={"file_reserved_time": config.file_reserved_time})


def here(config: BrokerConfig) -> BrokerConfig:
    """Return the configuration with this machine's name and address where none is configured."""
    address = config.broker_ip1 or own_address()
    return attrs.evolve(
        config, broker_name=config.broker_name or socket.gethostname(), broker_ip1=address,
        broker_ip2=config.broker_ip2 or address, store_path_root_dir=str(Path(config.store_path_root_dir).expanduser()))


def resolved(config: BrokerConfig) -> BrokerConfig:
    """Return the configuration with the IP address that messages carry, where ``brokerIP1`` is a host name. Raises
    ``ConfigError``."""
    if is_ip(config.broker_ip1):
        return config
    try:
        found = socket.getaddrinfo(config.broker_ip1, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError("brokerIP1", config.broker_ip1, f"has no address: {error}") from None
    ips = sorted((str(address[0]) for *_, address in found), key=lambda ip: ":" in ip)
    return attrs.evolve(config, resolved_ip=ips[0])


def own_address() -> str:
    """Return the address by which others reach this machine, as its routes say; 127.0.0.1 without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ANYWHERE)  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


async def run(config: BrokerConfig, tls: TLSContext | None, inherited: Sequence[socket.socket]) -> int:
    """Serve on the sockets and disks of this machine until told to stop. Returns the exit code.

    ``inherited``: a guardian's sockets."""
    async with AsyncExitStack() as stack:
        ha_listeners = await opened(stack, config, config.ha_listen_port)
        if inherited:
            if CONTAINED not in os.environ:
                live_with_guardian()
            listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in inherited]
        else:
            listeners = await client_ports(stack, config)
        config = attrs.evolve(config, listen_port=_port(listeners), ha_listen_port=_port(ha_listeners))
        handed_over = await _serve(config, tls, listeners, ha_listeners, _beside())
    return HANDED_OVER if inherited and handed_over else STOPPED


async def _serve(
    config: BrokerConfig, tls: TLSContext | None, listeners: Sequence[trio.SocketListener],
    ha_listeners: Sequence[trio.SocketListener], siblings: Siblings | None,
) -> bool:
    """Run the broker to its end. Returns whether mastership was handed over."""
    root = config.store_path_root_dir
    world = World(
        DiskFiles(), store_files(config), tls=tls, client_tls=client_tls_of(config), disk_used=lambda: _used(root),
        log_used=lambda: {str(path): _used(str(path)) for path in log_paths(config)}, ram_bytes=_ram_bytes(),
        siblings=siblings)

    roles: list[Roles] = []

    async def serve(task_status: trio.TaskStatus[Stoppable]) -> None:
        async with trio.open_nursery() as nursery:
            running: RunningBroker = await nursery.start(partial(
                serve_broker, config, world, listeners, ha_listeners=ha_listeners))
            roles.append(running.roles)
            task_status.started(running)

    def started() -> None:
        servers = f" and name server is {config.namesrv_addr}" if config.namesrv_addr else ""
        say(f"The broker[{config.broker_name}, {config.address}] boot success. serializeType=JSON{servers}")
        tell_ready()

    await run_until_stopped(serve, started)
    return any(each.handed_over for each in roles)


def _beside() -> Siblings | None:
    """The way to the other brokers of the container that this one is in."""
    broker, directory = os.environ.get(CONTAINED, ""), os.environ.get(SIBLINGS, "")
    try:
        return open_siblings(Path(directory), broker) if broker and directory else None
    except OSError as error:
        logger.error("brokers of this container cannot hand messages over to each other", extra={"why": str(error)})
        return None


async def opened(stack: AsyncExitStack, config: BrokerConfig, port: int) -> list[trio.SocketListener]:
    """Open listeners at that port; they are closed with ``stack`` if not before."""
    listeners = await listen(config.bind_address, port, config.server_socket_backlog)
    for listener in listeners:
        stack.push_async_callback(listener.aclose)
    return listeners


async def client_ports(stack: AsyncExitStack, config: BrokerConfig) -> list[trio.SocketListener]:
    """Open ``listenPort``, and the port two below it if that is wanted."""
    listeners = await opened(stack, config, config.listen_port)
    if config.fast_listen and _port(listeners) > 2:
        listeners += await opened(stack, config, _port(listeners) - 2)
    return listeners


# --- the guardian ----------------------------------------------------------------------------------------------------


def is_guarded(config: BrokerConfig) -> bool:
    """Return whether a guardian holds the clients' ports beyond this broker's death.

    Without controllers nobody names another master, so there is none."""
    return config.enable_controller_mode and config.enable_guardian


async def guard(config: BrokerConfig, tls: TLSContext | None, arguments: Sequence[str]) -> int:
    """Hold the clients' ports and keep a broker running that serves them. Returns its exit code."""
    sockets = await free_ports(config)
    port = int(sockets[0].getsockname()[1])
    environment = {name: text for name, text in os.environ.items() if name != SOCKET}  # systemd watches this process
    launch = Leashed([*child("broker.cli"), *arguments, "-D", f"listenPort={port}"], environment)
    async with open_client(tls=client_tls_of(config)) as client, trio.open_nursery() as nursery:
        held = attrs.evolve(config, listen_port=port)
        guardian = Guardian(guardian_config(held, _linger_path(config)), launch, stand_in(held, tls, client, sockets),
                            serves=partial(notify, READY))

        async def obey() -> None:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
                async for number in signals:
                    if number == signal.SIGHUP:
                        guardian.restart()
                    else:
                        notify(STOPPING)
                        guardian.stop(number)

        nursery.start_soon(obey)
        code = await guardian.run()
        nursery.cancel_scope.cancel()
    for each in sockets:
        each.close()
    return FAILED if code is None else code


def guardian_config(config: BrokerConfig, linger_path: Path | None) -> GuardianConfig:
    return GuardianConfig(config.address, config.forward_ms, config.stop_forward_ms, linger_path)


def stand_in(
    config: BrokerConfig, tls: TLSContext | None, client: Client, sockets: list[socket.socket], *,
    reopen: Callable[[], Awaitable[list[socket.socket]]] | None = None,
) -> StandIn:
    """Return the stand-in that answers while this broker is down, with its certificate."""
    listed = Listed(config.name_servers, config.broker_cluster_name, config.address, partial(last_epoch, config))
    return StandIn(
        sockets=sockets, forwarder=Forwarder(tls=client_tls_of(config), codes=passed_on()),
        finder=MasterFinder(client, config.controllers, config.broker_name, listed), reopen=reopen,
        server=ServerConfig(tls_mode=TLSMode(config.tls_server_mode)), tls=tls)


async def free_ports(config: BrokerConfig) -> list[socket.socket]:
    """Open the clients' ports, and wait a moment if they are still taken. Raises ``OSError``.

    A killed guardian takes its broker along, and a lingering guardian ends; either may take a moment."""
    deadline = trio.current_time() + _PORTS_WAIT_S
    while True:
        try:
            async with AsyncExitStack() as stack:
                listeners = await client_ports(stack, config)
                return [socket.socket(fileno=each.socket.detach()) for each in listeners]
        except OSError as error:
            inner = error.__cause__
            if trio.current_time() >= deadline or not isinstance(inner, OSError) or inner.errno != errno.EADDRINUSE:
                raise
        send_away(_linger_path(config))
        await trio.sleep(0.05)


def last_epoch(config: BrokerConfig) -> int | None:
    """Return the last epoch of the broker that is down, from its files; None: they do not tell it."""
    try:
        found = EpochFile(store_files(config)).read()
    except OSError:
        return None
    return None if found.damaged or found.epochs.last is None else found.epochs.last.epoch


def _linger_path(config: BrokerConfig) -> Path:
    return Path(config.store_path_root_dir) / "guardian.lingers"


def live_with_guardian() -> None:
    """End when the guardian ends, in whatever way, or says so. A terminal's interrupt is for the guardian."""
    os.setsid()
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(FAILED)), daemon=True).start()


def _port(listeners: Sequence[trio.SocketListener]) -> int:
    """Return the port of these listeners; the system may have chosen it."""
    return int(listeners[0].socket.getsockname()[1])


def _ram_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _used(root: str) -> float:
    try:
        usage = shutil.disk_usage(root)
    except OSError:
        return -1.0
    return usage.used / usage.total
