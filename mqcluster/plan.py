"""Which servers a cluster has, and what is in their configuration files. Values only: no file, no process, no socket.

Names are what people type: controllers ``n0`` and on, the name server ``namesrv``, brokers ``broker-a-0`` and on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import attrs

from remoting import properties
from remoting.daemon.keys import written

HOST: Final = "127.0.0.1"
GROUPS_MAX: Final = 26
PORTS_PER_BROKER: Final = 10
"""A broker listens at its port, at the next one for slaves, and two below it for old clients."""
ROOM: Final[Mapping[str, int]] = {
    "diskMaxUsedSpaceRatio": 95, "diskSpaceCleanForciblyRatio": 99, "diskSpaceWarningLevelRatio": 99}
"""Percents of the disk: a cluster that is tried out needs little, and serves on a host whose disk is nearly full."""
_CONTROLLERS_AT: Final = 10
_BROKERS_AT: Final = 50


class Kind(Enum):
    """Kinds of servers; the value is the module of the command."""

    NAMESRV = "controller.namesrv.cli"
    CONTROLLER = "controller.cli"
    BROKER = "broker.cli"


@attrs.frozen
class Durability:
    """Copies that a master waits for before it answers a send."""

    all_ack: bool = True
    min_in_sync: int = 2

    @property
    def settings(self) -> dict[str, object]:
        return {"allAckInSyncStateSet": self.all_ack, "minInSyncReplicas": self.min_in_sync}

    def __str__(self) -> str:
        return f"allAckInSyncStateSet={str(self.all_ack).lower()}, minInSyncReplicas={self.min_in_sync}"


DEFAULT_MODE: Final = Durability(all_ack=False, min_in_sync=1)
"""RocketMQ's own defaults: the master alone holds what was acknowledged, until its slaves have copied it."""


@attrs.frozen
class Size:
    """Numbers of controllers, groups and replicas of a cluster."""

    controllers: int = 3
    groups: int = 2
    replicas: int = 3

    def __attrs_post_init__(self) -> None:
        for name, least, most in (("controllers", 1, 9), ("groups", 1, GROUPS_MAX), ("replicas", 1, 9)):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} = {getattr(self, name)}: must be from {least} to {most}")


@attrs.frozen
class Planned:
    """One server: where it listens, and the keys of its configuration."""

    name: str
    kind: Kind
    address: str
    settings: Mapping[str, object]
    group: str = ""
    mode: str = ""
    """Name of the ``Durability`` that a broker was planned with."""

    @property
    def file(self) -> str:
        """Its configuration as a properties file."""
        return properties.encode({key: written(value) for key, value in self.settings.items()})


def _loopback(name: str) -> str:
    return HOST


@attrs.frozen
class Hosts:
    """Addresses by the names of servers; by default all share one host."""

    address: Callable[[str], str] = _loopback
    """Address at which other servers find a server."""
    bind: Callable[[str], str] = _loopback
    """Address at which a server listens."""


def cluster(root: Path, size: Size, first_port: int, durability: Durability,
            extra: Mapping[str, object] | None = None, hosts: Hosts | None = None, *,
            quick: bool = False) -> list[Planned]:
    """All servers, in the order in which they are started. Directories lie below ``root``; ``extra`` is for brokers.

    ``quick`` gives all of them ``detectionProfile=quick``.

    Raises:
        ValueError: the ports do not fit above ``first_port``.
    """
    last = first_port + _BROKERS_AT + size.groups * size.replicas * PORTS_PER_BROKER
    if not 1_024 <= first_port or last > 65_535:
        raise ValueError(f"port {first_port}: this cluster needs {first_port} to {last}, within 1024 to 65535")
    hosts = hosts or Hosts()
    made = [_namesrv(root, first_port, hosts), *_controllers(root, size, first_port, hosts),
            *_brokers(root, size, first_port, durability, extra or {}, hosts)]
    return [_quick(each) if quick else each for each in made]


def _quick(server: Planned) -> Planned:
    if server.kind is Kind.NAMESRV:
        return server
    key, value = "detectionProfile", "quick"
    mode = f"{server.mode}, {key}={value}" if server.mode else ""
    return attrs.evolve(server, settings={**server.settings, key: value}, mode=mode)


def _namesrv(root: Path, port: int, hosts: Hosts) -> Planned:
    name = "namesrv"
    return Planned(name, Kind.NAMESRV, f"{hosts.address(name)}:{port}", {
        "listenPort": port, "bindAddress": hosts.bind(name), "kvConfigPath": root / name / "kvConfig.json",
        "configStorePath": root / name / "namesrv.properties"})


def _controllers(root: Path, size: Size, first_port: int, hosts: Hosts) -> Iterator[Planned]:
    addresses = [f"{hosts.address(f'n{number}')}:{first_port + _CONTROLLERS_AT + number}"
                 for number in range(size.controllers)]
    peers = ";".join(f"n{number}-{address}" for number, address in enumerate(addresses))
    for number, address in enumerate(addresses):
        home = root / f"n{number}"
        yield Planned(f"n{number}", Kind.CONTROLLER, address, {
            "controllerDLegerGroup": "mqcluster", "controllerDLegerPeers": peers,
            "controllerDLegerSelfId": f"n{number}", "controllerStorePath": home / "store",
            "configStorePath": home / "controller.properties", "bindAddress": hosts.bind(f"n{number}")})


def _brokers(root: Path, size: Size, first_port: int, durability: Durability,
             extra: Mapping[str, object], hosts: Hosts) -> Iterator[Planned]:
    controllers = ";".join(each.address for each in _controllers(root, size, first_port, hosts))
    port = first_port + _BROKERS_AT
    for letter in "abcdefghijklmnopqrstuvwxyz"[:size.groups]:
        for number in range(size.replicas):
            name = f"broker-{letter}-{number}"
            yield Planned(name, Kind.BROKER, f"{hosts.address(name)}:{port}", {
                "brokerName": f"broker-{letter}", "brokerClusterName": "DefaultCluster",
                "brokerIP1": hosts.address(name), "bindAddress": hosts.bind(name),
                "listenPort": port, "haListenPort": port + 1,
                "namesrvAddr": f"{hosts.address('namesrv')}:{first_port}", "enableControllerMode": True,
                "controllerAddr": controllers,
                "enableGuardian": False,  # a signal must reach the broker, not a guardian
                "storePathRootDir": root / name / "store", "configStorePath": root / name / "broker.properties",
                "totalReplicas": size.replicas, "mappedFileSizeCommitLog": 64 << 20, **ROOM,
                **durability.settings, **extra,
            }, group=f"broker-{letter}", mode=str(durability))
            port += PORTS_PER_BROKER


def to_json(servers: list[Planned]) -> list[dict[str, Any]]:
    """Return the content of the file that later commands read."""
    return [{"name": each.name, "kind": each.kind.name, "address": each.address, "group": each.group, "mode": each.mode}
            for each in servers]


def from_json(data: Any) -> list[Planned]:
    """Read what ``to_json`` wrote. Settings lie in the servers' own files. Raises ``ValueError``."""
    try:
        found = [Planned(item["name"], Kind[item["kind"]], item["address"], {}, item["group"], item.get("mode", ""))
                 for item in data]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it describes no cluster: {error!r}") from None
    if not found:
        raise ValueError("it describes no cluster: it has no servers")
    return found
