"""The container's configuration, by RocketMQ's keys (``BrokerContainerConfig``, ``NettyServerConfig``).

Each broker has a configuration file of its own. No I/O: files are read elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from remoting.address import is_host, split_address
from remoting.daemon.keys import (
    NETTY_CLIENT_WITHOUT_MEANING,
    NETTY_FEATURES,
    NETTY_WITHOUT_MEANING,
    ConfigError,
    every_property,
    key,
    live_names,
    names,
    read,
    refuse_tls_key,
    refuse_unknown,
)
from remoting.daemon.tlskeys import TLSKeys, hidden

WITHOUT_MEANING: Mapping[str, object] = {
    "rocketmqHome": "", "updateNamesrvAddrInterval": 120_000, **NETTY_WITHOUT_MEANING, **NETTY_CLIENT_WITHOUT_MEANING}
"""RocketMQ's keys that have no effect here, with RocketMQ's defaults."""
FEATURES: Final = NETTY_FEATURES
"""Keys without effect that ask for a feature: a warning is logged if they are set."""
ALWAYS_BLACKLISTED: Final = (
    "brokerConfigPaths", "rocketmqHome", "configBlackList", "configStorePath", "containerStorePath")
SEPARATOR: Final = ":"
"""Separates the paths in ``brokerConfigPaths``."""


@attrs.frozen(kw_only=True)
class ContainerConfig(TLSKeys):
    """All keys that have an effect here."""

    bind_address: str = key("0.0.0.0", "address to listen at")
    listen_port: int = key(10_811, "port of the container, for codes 902, 903, 25 and 26; 0 lets the system choose",
                           least=0, most=65_535)
    fast_listen: bool = key(True, "ours: listen at listenPort - 2 as well, as Java does")
    server_channel_max_idle_time_seconds: int = key(
        120, "a connection without traffic for so long is closed", least=1, most=1_000_000)
    server_socket_backlog: int = key(1_024, "connections that wait to be accepted", least=1, most=65_535)
    broker_config_paths: str = key("", "configuration files of its brokers, separated by colons; -b names others")
    broker_container_ip: str = key("", "address that is told as the container's in the log; default: bindAddress",
                                   name="brokerContainerIP")
    namesrv_addr: str = key(
        "", "name servers of brokers whose files name none; a change holds for those added from then on", live=True)
    fetch_name_srv_addr_by_dns_lookup: bool = key(
        False, "handed on to brokers whose files name no name servers", live=True)
    fetch_namesrv_addr_by_address_server: bool = key(
        False, "handed on to brokers whose files name no name servers", live=True)
    config_store_path: str = key(
        "~/broker/brokercontainer.properties", "ours: file that changes by code 25 are written to; -c names another")
    container_store_path: str = key(
        "", "ours: directory of what the container keeps: which brokers were added and removed, which processes they "
        "are, and their logs; default: configStorePath with .d behind it")
    config_black_list: str = key(
        "configBlackList;brokerConfigPaths", "keys that code 25 may not change, separated by semicolons")

    kept: Mapping[str, str] = attrs.field(factory=dict)
    """Given keys without effect, as written."""

    @property
    def black_list(self) -> frozenset[str]:
        return frozenset((*ALWAYS_BLACKLISTED, *filter(None, self.config_black_list.split(";"))))

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that ``brokerConfigPaths`` names."""
        return tuple(path.strip() for path in self.broker_config_paths.split(SEPARATOR) if path.strip())

    @property
    def store_path(self) -> str:
        return self.container_store_path or f"{self.config_store_path}.d"

    @property
    def handed_on(self) -> dict[str, str]:
        """Keys that are added for brokers whose files name no name servers."""
        given = {"namesrvAddr": self.namesrv_addr} if self.namesrv_addr else {}
        for name, wanted in (("fetchNameSrvAddrByDnsLookup", self.fetch_name_srv_addr_by_dns_lookup),
                             ("fetchNamesrvAddrByAddressServer", self.fetch_namesrv_addr_by_address_server)):
            if wanted:
                given[name] = "true"
        return given


KNOWN: Final = frozenset({*names(ContainerConfig), *WITHOUT_MEANING})
"""Keys that the container's file may have."""


def from_properties(given: Mapping[str, str], *, start: ContainerConfig | None = None) -> ContainerConfig:
    """A configuration from properties, on top of ``start``. Raises ``ConfigError``."""
    refuse_unknown(given, KNOWN)
    refuse_tls_key(given, "a container asks nobody; tls.enable is a key of its brokers")
    start = start or ContainerConfig()
    ours = names(ContainerConfig)
    kept = {**start.kept, **{name: text for name, text in given.items() if name not in ours}}
    config = attrs.evolve(read(ContainerConfig, given, start=start), kept=kept)
    if not is_host(config.bind_address):
        raise ConfigError("bindAddress", config.bind_address, "must be an IP address, or the name of a host")
    for address in filter(None, (each.strip() for each in config.namesrv_addr.split(";"))):
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError("namesrvAddr", address, str(error)) from None
    return config


def to_properties(config: ContainerConfig) -> dict[str, str]:
    """All keys, those without effect included, as they are written to ``config_store_path``."""
    return every_property(config, WITHOUT_MEANING, config.kept)


def listing(config: ContainerConfig) -> dict[str, str]:
    """``to_properties`` for people and for code 26: without the password."""
    return hidden(to_properties(config))


def live_keys() -> frozenset[str]:
    """Keys whose change a running container follows."""
    return live_names(ContainerConfig)
