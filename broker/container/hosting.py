"""The brokers of a container: which it has, how each is started, and which it refuses. Values and decisions: no
process.

Source: ``BrokerContainerProcessor`` and ``BrokerContainer`` of RocketMQ 5.5.0, from which the refusals' texts are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from broker.config import MASTER_ID, BrokerConfig, check
from broker.ha.acks import BrokerRole
from remoting.daemon.keys import ConfigError

NO_PATH: Final = "addBroker config path is empty"
NO_PROPERTIES: Final = "addBroker properties empty"
NO_SUCH_BROKER: Final = "Broker not exist"
_NAMES_SERVERS: Final = frozenset({"namesrvAddr", "fetchNamesrvAddrByAddressServer"})


class NotAdmitted(Exception):
    """The container refuses a broker; the message says why."""


@attrs.frozen(order=True)
class HostedName:
    """A broker's identity: cluster, name and id."""

    cluster: str
    name: str
    broker_id: int

    def __str__(self) -> str:
        return f"{self.cluster}_{self.name}_{self.broker_id}"


@attrs.frozen
class Hosted:
    """One broker of a container."""

    path: str
    """Absolute path of its configuration file."""
    identity: HostedName
    config: BrokerConfig
    """The configuration with which the broker runs."""
    settings: Mapping[str, str]
    """Properties that override those of its file."""
    places: Mapping[str, str]
    """Absolute paths of directories that no other broker may use, by key."""

    @property
    def ports(self) -> dict[int, str]:
        """Its ports with their keys; without those that the system chooses."""
        config = self.config
        ports = {config.listen_port: "listenPort", config.ha_listen_port: "haListenPort"}
        if config.fast_listen and config.listen_port:
            ports[config.listen_port - 2] = "listenPort - 2"
        if config.serves_metrics:
            ports[config.metrics_prom_exporter_port] = "metricsPromExporterPort"
        ports.pop(0, None)
        return ports


def hosted(
    path: str, given: Mapping[str, str], handed_on: Mapping[str, str],
    configure: Callable[[Mapping[str, str]], BrokerConfig], places: Callable[[BrokerConfig], Mapping[str, str]],
) -> Hosted:
    """A broker from the properties of its file. ``handed_on`` is added if the file names no name servers. ``configure``
    makes a configuration for this machine, and may raise ``ConfigError``. Raises ``NotAdmitted``."""
    if not given:
        raise NotAdmitted(NO_PROPERTIES)
    settings = {} if _NAMES_SERVERS & given.keys() else dict(handed_on)
    try:
        found = configure({**given, **settings})
        settings["haListenPort"] = str(found.listen_port + 1 if found.listen_port else 0)
        if not found.enable_controller_mode and BrokerRole(found.broker_role) is not BrokerRole.SLAVE:
            settings["brokerId"] = str(MASTER_ID)
        elif not found.enable_controller_mode and found.broker_id <= MASTER_ID:
            raise NotAdmitted("slave broker id must be > 0")
        if not found.total_replicas >= found.in_sync_replicas >= found.min_in_sync_replicas:
            raise NotAdmitted("invalid replicas number")
        if given.get("duplicationEnable", "").strip().lower() == "true":
            raise NotAdmitted("Can not add broker to container when duplicationEnable is true currently")
        config = configure({**given, **settings})
        check(config)
    except ConfigError as error:
        raise NotAdmitted(str(error)) from None
    identity = HostedName(config.broker_cluster_name, config.broker_name, config.broker_id)
    return Hosted(path, identity, config, settings, places(config))


def admit(new: Hosted, others: Iterable[Hosted], own_ports: Mapping[int, str]) -> None:
    """Raise ``NotAdmitted`` if a broker cannot run beside the others. ``own_ports`` are the container's."""
    for port, key in new.ports.items():
        if port in own_ports:
            raise NotAdmitted(f"{key} = {port}: is the container's {own_ports[port]}; choose another listenPort")
    for other in others:
        if other.identity == new.identity:
            raise NotAdmitted(f"{new.identity} has already been added to current broker container")
        for port, key in new.ports.items():
            if port in other.ports:
                another = "" if key == "metricsPromExporterPort" else " listenPort"
                raise NotAdmitted(
                    f"{key} = {port}: is {other.ports[port]} of {other.identity}; choose another{another}")
        for key, place in new.places.items():
            for theirs in other.places.values():
                if place == theirs:
                    raise NotAdmitted(f"{key} = {place}: is a directory of {other.identity}; give each broker its own")


@attrs.frozen
class Roster:
    """Paths of the container's brokers: those of ``brokerConfigPaths`` plus added and minus removed ones."""

    configured: tuple[str, ...]
    added: tuple[str, ...] = ()
    removed: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[str]:
        return (path for path in dict.fromkeys((*self.configured, *self.added)) if path not in self.removed)

    def with_one(self, path: str) -> Roster:
        added = self.added if path in (*self.configured, *self.added) else (*self.added, path)
        return attrs.evolve(self, added=added, removed=self.removed - {path})

    def without(self, path: str) -> Roster:
        removed = self.removed | {path} if path in self.configured else self.removed
        return attrs.evolve(self, added=tuple(each for each in self.added if each != path), removed=removed)

    def to_json(self) -> bytes:
        return json.dumps({"added": list(self.added), "removed": sorted(self.removed)}, indent=1).encode()

    @classmethod
    def from_json(cls, configured: tuple[str, ...], content: bytes | None) -> Roster:
        """The roster in a file; ``content`` None: there is no file yet. Raises ``ValueError``."""
        if content is None:
            return cls(configured)
        data: Any = json.loads(content)
        if not isinstance(data, dict):
            raise ValueError("it is no JSON object")
        lists = [data.get("added", []), data.get("removed", [])]
        if not all(isinstance(each, list) and all(isinstance(path, str) for path in each) for each in lists):
            raise ValueError("added and removed must be lists of paths")
        return cls(configured, tuple(lists[0]), frozenset(lists[1]).intersection(configured))
