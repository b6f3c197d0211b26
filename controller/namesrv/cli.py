"""``mqnamesrv``: run a name server, with RocketMQ's configuration file and flags.

Knows the command line and this machine's sockets and files. Exit codes are those of ``remoting.daemon.process``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs
import trio

import controller.config as controllers
from controller.namesrv.config import FEATURES, WITHOUT_MEANING, NamesrvConfig, from_properties, listing, to_properties
from controller.namesrv.one_file import BOTH, CONTROLLERS, SharedFile
from controller.namesrv.server import serve_namesrv
from controller.server import serve_controller
from raft.errors import RaftError
from raft.host import monotonic_ns
from raft.loglimit import RepeatLimit
from raft.tls import ALPN
from remoting.address import join_address, split_address
from remoting.daemon.files import DiskFiles, Files
from remoting.daemon.keys import ConfigError, names
from remoting.daemon.process import (
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
from remoting.daemon.tls import tls_of
from remoting.errors import BodyError
from remoting.streams import TLSContext

EXAMPLES: Final = """\
examples:
  mqnamesrv                                  listen at 0.0.0.0:9876, nothing else to decide
  mqnamesrv -c namesrv.conf                  a RocketMQ file: lines of key=value
  mqnamesrv -c namesrv.conf -D listenPort=9877 -D supportActingMaster=true
  mqnamesrv -c namesrv.conf -p               print what would be used, and exit

Brokers find it by namesrvAddr=host:9876, clients by NAMESRV_ADDR or their own setting. Run two or three: they know
nothing of each other, brokers register with all of them. Whatever -D says wins over the file, the file over defaults.
With enableControllerInNamesrv=true the keys of mqcontroller are read from the same file, and a controller runs in this
process at its own address among controllerDLegerPeers.
"""

KNOWN: Final = CONTROLLERS.union(names(NamesrvConfig), WITHOUT_MEANING)
"""Keys that its file may have."""

parser = partial(
    server_parser, "mqnamesrv",
    "Run a RocketMQ name server: brokers register with it, clients ask it where topics are.", EXAMPLES, NamesrvConfig)
"""The command line."""


@attrs.frozen
class Configured:
    """The configuration of a name server to run."""

    namesrv: NamesrvConfig
    controller: controllers.ControllerConfig | None

    @property
    def idle(self) -> dict[str, str]:
        """Given keys on which neither depends."""
        others = names(controllers.ControllerConfig).keys() | {"processReadEvent"} if self.controller else ()
        return {name: text for name, text in self.namesrv.kept.items() if name not in others}


def configure(given: Mapping[str, str]) -> Configured:
    """Both configurations of one file. Raises ``ConfigError``."""
    config = from_properties(given, others=CONTROLLERS)
    if not config.enable_controller_in_namesrv:
        return Configured(config, None)
    # The controller listens at its port in the peers; listenPort is the name server's.
    shared = {name: value for name, value in given.items() if name != "listenPort"}
    # The name server owns a key that both read: code 318 changes it in the file.
    shared["configBlackList"] = ";".join((config.config_black_list, *sorted(BOTH)))
    if config.serves_metrics and config.metrics_prom_exporter_port:
        shared["metricsPromExporterPort"] = str(config.metrics_prom_exporter_port + 1)
    embedded = controllers.from_properties(shared, others={*names(NamesrvConfig), *WITHOUT_MEANING})
    controllers.check(embedded)
    return Configured(config, embedded)


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return run_server("mqnamesrv", partial(_prepare, parser().parse_args(arguments)),
                      (OSError, BodyError, ConfigError, RaftError, ModuleNotFoundError))


def _prepare(options: argparse.Namespace) -> Callable[[], None] | None:
    given, strange = given_and_unknown(options, DiskFiles(), KNOWN)
    config = configure(given)
    of_controller = {} if config.controller is None else controllers.listing(config.controller)
    if is_printed(options, dict(sorted({**of_controller, **listing(config.namesrv)}.items()))):
        return None
    check_exporter(config.namesrv)
    tls = tls_of(config.namesrv)
    controllers_tls = None if config.controller is None else tls_of(config.controller, raft_alpn=ALPN)
    start_logs(options, "mqnamesrv", RepeatLimit())
    tell_of_idle_keys(config.idle, strange, FEATURES, config.namesrv, options.namesrvAddr)
    tell_of_readable_keys(config.namesrv.tls_server_key_path)
    return partial(trio.run, run, config, tls, controllers_tls)


async def run(config: Configured, tls: TLSContext | None, controllers_tls: TLSContext | None) -> None:
    """Serve on the sockets and files of this machine, until told to stop."""
    namesrv, embedded = config.namesrv, config.controller
    listeners = await listen(namesrv.bind_address, namesrv.listen_port, namesrv.server_socket_backlog)
    files: Files = DiskFiles()
    beside = None
    if embedded is not None:
        share = partial(SharedFile, files, namesrv.config_store_path, to_properties(namesrv))
        files = share(CONTROLLERS.__contains__)
        beside = partial(
            serve_controller, embedded, files=share(lambda key: key not in CONTROLLERS), tls=controllers_tls,
            listeners=await listen(*split_address(embedded.listen)), config_path=namesrv.config_store_path)

    async def serve(task_status: trio.TaskStatus[Stoppable]) -> None:
        await serve_namesrv(
            namesrv, clock=monotonic_ns, files=files, listeners=listeners, tls=tls, controller=beside,
            task_status=task_status)

    def started() -> None:
        for listener in listeners:
            host, port = listener.socket.getsockname()[:2]
            say(f"The Name Server boot success. address {join_address(host, port)}")
        if embedded is not None:
            say(f"The ControllerManager boot success. address {embedded.address}")

    await run_until_stopped(serve, started)
