"""The name server's configuration, by RocketMQ's keys (``NamesrvConfig``, ``NettyServerConfig``).

Keys that say how Java's threads, buffers and channels are arranged mean nothing here: they are taken, kept for listings
and told about, so that a Java name server's file works as it is. Keys ``metrics*`` are the controller's; Java's name
server has none. Text and numbers only; the file is read elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from remoting.address import is_host
from remoting.daemon.exporter import MetricsKeys
from remoting.daemon.keys import (
    NETTY_CLIENT_WITHOUT_MEANING,
    NETTY_FEATURES,
    NETTY_WITHOUT_MEANING,
    ConfigError,
    Missing,
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
    # NamesrvConfig
    "rocketmqHome": "", "productEnvName": "center", "clientRequestThreadPoolNums": 8, "defaultThreadPoolNums": 16,
    "clientRequestThreadPoolQueueCapacity": 50_000, "defaultThreadPoolQueueCapacity": 10_000,
    "scanNotActiveBrokerInterval": 5_000, "unRegisterBrokerQueueCapacity": 3_000, "clusterTest": False,
    # NettyServerConfig
    **NETTY_WITHOUT_MEANING,
    # NettyClientConfig
    **NETTY_CLIENT_WITHOUT_MEANING,
}
"""Keys of Java that nothing here depends on, with Java's defaults where these are fixed numbers."""

FEATURES: Mapping[str, Missing] = {
    **NETTY_FEATURES, "clusterTest": Missing("questions to another name server for unknown topics")}
"""Keys among them that ask for something: whoever gives them is warned."""

ALWAYS_BLACKLISTED = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")


@attrs.frozen(kw_only=True)
class NamesrvConfig(MetricsKeys, TLSKeys):
    """Every key that has a meaning here. Times as in the names of the keys."""

    bind_address: str = key("0.0.0.0", "address to listen at")
    listen_port: int = key(9876, "port to listen at; 0 lets the system choose", least=0, most=65_535)
    server_channel_max_idle_time_seconds: int = key(
        120, "a connection without traffic for so long is closed", least=1, most=1_000_000)
    server_socket_backlog: int = key(1_024, "connections that wait to be accepted", least=1, most=65_535)
    enable_shutdown_gracefully: bool = key(
        False, "on stop, tell clients to go elsewhere and wait shutdownWaitTimeSeconds before closing")
    shutdown_wait_time_seconds: int = key(30, "see enableShutdownGracefully", least=0, most=3_600)
    kv_config_path: str = key("~/namesrv/kvConfig.json", "file of the key-value table")
    config_store_path: str = key(
        "~/namesrv/namesrv.properties", "file that changes by code 318 are written to; -c names another")
    config_black_list: str = key(
        "configBlackList;configStorePath;kvConfigPath", "keys that code 318 may not change, separated by semicolons")
    order_message_enable: bool = key(False, "put the order of ordered topics into routes", live=True)
    return_order_topic_config_to_broker: bool = key(
        True, "answer registrations with the table of ordered topics", live=True)
    support_acting_master: bool = key(
        False, "show the smallest slave of a group without master as its master, where the group allows it", live=True)
    notify_min_broker_id_changed: bool = key(
        False, "tell the brokers of a group when its smallest id changes", live=True)
    delete_topic_with_broker_registration: bool = key(
        False, "forget topics that a broker's registration no longer names", live=True)
    enable_all_topic_list: bool = key(True, "answer code 206", live=True)
    enable_topic_list: bool = key(True, "answer codes 224 and 311 to 313", live=True)
    need_wait_for_service: bool = key(
        False, "answer no routes for the first waitSecondsForService, until brokers have registered")
    wait_seconds_for_service: int = key(45, "see needWaitForService", least=0, most=86_400)
    enable_controller_in_namesrv: bool = key(False, "run a controller in this process")

    kept: Mapping[str, str] = attrs.field(factory=dict)
    """Given keys that nothing here depends on, as written: those of ``WITHOUT_MEANING`` and those of others."""

    @property
    def black_list(self) -> frozenset[str]:
        return frozenset((*ALWAYS_BLACKLISTED, *filter(None, self.config_black_list.split(";"))))


def from_properties(
    given: Mapping[str, str], *, start: NamesrvConfig | None = None, others: Collection[str] = (),
) -> NamesrvConfig:
    """A configuration from properties, on top of ``start``. Raises ``ConfigError``.

    ``others`` are keys that somebody else reads from the same file: those of an embedded controller.
    """
    refuse_unknown(given, {*names(NamesrvConfig), *WITHOUT_MEANING, *others})
    refuse_tls_key(given, "a name server dials only brokers, without TLS")
    start = start or NamesrvConfig()
    ours = names(NamesrvConfig)
    kept = {**start.kept, **{name: text for name, text in given.items() if name not in ours}}
    config = attrs.evolve(read(NamesrvConfig, given, start=start), kept=kept)
    if not is_host(config.bind_address):
        raise ConfigError("bindAddress", config.bind_address, "must be an IP address, or the name of a host")
    return config


def to_properties(config: NamesrvConfig) -> dict[str, str]:
    """All keys, those without a meaning among them: what is written to ``config_store_path``."""
    return every_property(config, WITHOUT_MEANING, config.kept)


def listing(config: NamesrvConfig) -> dict[str, str]:
    """``to_properties`` for people and for code 319: without the password."""
    return hidden(to_properties(config))


def live_keys() -> frozenset[str]:
    """Keys whose change a running server follows; others wait for its next start."""
    return live_names(NamesrvConfig)
