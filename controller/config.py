"""The controller's configuration, by RocketMQ's keys (``ControllerConfig``, ``JraftConfig``, ``NettyServerConfig``).

``controllerType=jRaft`` is accepted: its keys are mapped to ours, its own Raft ports are not used, since raft and
remoting share the port of ``jRaftControllerRPCAddr``. Keys that arrange Java's threads and logs mean nothing here: they
are taken, listed and told about. Keys of ours, which Java ignores, are marked so. Text and numbers only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import attrs

from controller.membership import NODE_ID
from controller.metadata.identity import BROKER_ID_MAX
from controller.metadata.policy import POLICIES
from raft.access import Access, networks_of
from raft.config import Config as RaftConfig
from raft.errors import ConfigError as RaftConfigError
from raft.errors import UsageError
from raft.groups import NAME_BYTES_MAX, group_number
from remoting.address import is_host, split_address
from remoting.daemon.exporter import MetricsKeys
from remoting.daemon.keys import (
    NETTY_CLIENT_WITHOUT_MEANING,
    NETTY_WITHOUT_MEANING,
    ConfigError,
    every_property,
    in_profile,
    key,
    live_names,
    names,
    properties,
    read,
    refuse_tls_key,
    refuse_unknown,
)
from remoting.daemon.tlskeys import TLSKeys, hidden
from remoting.fields import decimal

WITHOUT_MEANING: Mapping[str, object] = {
    # ControllerConfig
    "rocketmqHome": "", "controllerThreadPoolNums": 16, "controllerRequestThreadPoolQueueCapacity": 50_000,
    "mappedFileSize": 1 << 30, "electMasterMaxRetryCount": 3, "scanNotActiveBrokerInterval": 5_000,
    "scanInactiveMasterInterval": 5_000,
    # JraftConfig
    "jRaftScanWaitTimeoutMs": 1_000, "jRaftSnapshotIntervalSecs": 3_600,
    # NettyServerConfig
    **NETTY_WITHOUT_MEANING, "serverSocketBacklog": 1_024, "enableShutdownGracefully": False,
    "shutdownWaitTimeSeconds": 30,
    # NettyClientConfig
    **NETTY_CLIENT_WITHOUT_MEANING,
}
"""Java's keys that have no effect here, with Java's defaults.

A silent broker is judged at its deadline, and a lost election is asked for again when something changes: there is no
scan and no count to configure.
"""

ALWAYS_BLACKLISTED = (
    "configBlackList", "configStorePath", "rocketmqHome",
    "adminNetworks", "adminCertificates", "controllerNetworks", "checkNodeId")
"""Keys that no request may change, since they decide who may change something."""
DLEDGER, JRAFT = "DLedger", "jRaft"
_PEER = re.compile(r"(?P<id>[^-\s]+)-(?P<address>(?:\[[^]\s]+\]|[^]\s,;:/[]+):[^:]*)")


@attrs.frozen(kw_only=True)
class ControllerConfig(MetricsKeys, TLSKeys):
    """Every key that has a meaning here. Times as in the names of the keys."""

    controller_type: str = key(DLEDGER, "whose keys name the peers; both run our own Raft", choices=(DLEDGER, JRAFT))
    controller_dleger_group: str = key("", "name of the controller group", name="controllerDLegerGroup")
    controller_dleger_peers: str = key(
        "", "all first members: n0-host:port;n1-host:port", name="controllerDLegerPeers")
    controller_dleger_self_id: str = key("", "which of the peers this one is", name="controllerDLegerSelfId")
    controller_store_path: str = key("", "directory of the replicated metadata; default ~/DLedgerController, "
                                     "or ~/jRaftController")
    config_store_path: str = key("~/controller/controller.properties",
                                 "file that changes by code 1009 are written to; the file given by -c where one is")
    config_black_list: str = key("configBlackList;configStorePath",
                                 "keys that code 1009 may not change, separated by semicolons")
    j_raft_group_id: str = key("jRaft-Controller", "jRaft: name of the controller group")
    j_raft_server_id: str = key("localhost:9880", "jRaft: which of jRaftInitConf this one is")
    j_raft_init_conf: str = key("localhost:9880,localhost:9881,localhost:9882",
                                "jRaft: its Raft addresses, used to tell the members apart")
    j_raft_controller_rpc_addr: str = key(
        "localhost:9770,localhost:9771,localhost:9772", "jRaft: the controllers' addresses, in the same order",
        name="jRaftControllerRPCAddr")
    j_raft_election_timeout_ms: int = key(1_000, "jRaft: election timeout", least=100, most=60_000)

    enable_elect_unclean_master: bool = key(
        False, "elect any living replica when none in sync lives; may lose messages", live=True)
    notify_broker_role_changed: bool = key(True, "tell brokers of elections (code 1008)", live=True)
    is_process_read_event: bool = key(
        False, "reads take a round to a quorum even while the leader holds its lease", live=True)

    listen_port: int = key(0, "port to listen at, where it is not this member's port among the peers",
                           least=0, most=65_535)
    bind_address: str = key("0.0.0.0", "address to listen at")
    server_channel_max_idle_time_seconds: int = key(
        120, "a connection without traffic for so long is closed", least=1, most=1_000_000)
    outgoing_bytes_budget: int = key(
        256 << 20, "ours: bytes of answers that may wait to be read; beyond it the connection is closed that has read "
        "nothing for longest", least=32 << 20, most=1 << 40)
    outgoing_stall_timeout: int = key(
        5_000, "ours: a connection that has read nothing for so long is closed while half of outgoingBytesBudget waits",
        least=10, most=2**31 - 1)

    election_timeout_ms: int = key(400, "ours: Raft election timeout of the controllers", least=50, most=60_000)
    broker_heartbeat_timeout_ms: int = key(
        10_000, "ours: silence allowed to a broker that does not say", name="brokerHeartbeatTimeoutMillis",
        least=100, most=3_600_000)
    detection_profile: str = key(
        "default", "ours: quick notices silence sooner, by other defaults of some keys; a key that is given wins",
        choices=("default", "quick"))
    elect_policy: str = key("default", "ours: how a master is chosen among the candidates", choices=tuple(POLICIES),
                            live=True)
    preferred_masters: str = key("", "ours, for electPolicy=preferred: cluster/group:id;cluster/group:id", live=True)
    wait_master_lease: bool = key(
        False, "ours: on a closed channel, wait for the master's lease where it announced one", live=True)
    readmit_wiped_controllers: bool = key(
        True, "ours: take a controller that lost its disk in again, as a learner first", live=True)
    admin_networks: str = key(
        "", "ours: networks that may change the controller group, beside the loopback: 10.0.0.0/24;fd00::/8")
    admin_certificates: str = key(
        "", "ours: names in certificates that may change it from anywhere, beside those of its controllers' ids; "
            "separated by semicolons")
    controller_networks: str = key(
        "", "ours: networks that controllers' connections to each other come from, beside the loopback; none: any")
    check_node_id: bool = key(
        True, "ours: with trustCertPath, the certificate of a controller must name its id")
    snapshot_log_bytes: int = key(16 << 20, "ours: snapshot after so much log", least=1 << 16, most=1 << 40)
    segment_bytes: int = key(16 << 20, "ours: size of the files of the log", least=1 << 20, most=1 << 30)

    without_meaning: Mapping[str, str] = attrs.field(factory=dict)
    """Given keys of ``WITHOUT_MEANING``, as written."""

    # --- what the keys say together --------------------------------------------------------------------------

    @property
    def group(self) -> str:
        return self.j_raft_group_id if self.controller_type == JRAFT else self.controller_dleger_group

    @property
    def peers(self) -> dict[str, str]:
        """Addresses of the controllers by node id."""
        if self.controller_type == JRAFT:
            addresses = _list(self.j_raft_controller_rpc_addr, ",")
            return {f"n{number}": address for number, address in enumerate(addresses)}
        return dict(_split_peer(item) for item in _list(self.controller_dleger_peers, ";"))

    @property
    def peers_key(self) -> str:
        """Name of the key that ``peers`` come from."""
        return "jRaftControllerRPCAddr" if self.controller_type == JRAFT else "controllerDLegerPeers"

    @property
    def self_id(self) -> str:
        if self.controller_type == JRAFT:
            return f"n{_list(self.j_raft_init_conf, ',').index(self.j_raft_server_id)}"
        return self.controller_dleger_self_id

    @property
    def address(self) -> str:
        """Address where the other controllers and the brokers reach this one."""
        return self.peers[self.self_id]

    @property
    def listen(self) -> str:
        """The ``host:port`` that the server binds."""
        port = self.listen_port or split_address(self.address)[1]
        return f"{self.bind_address}:{port}"

    @property
    def store_path(self) -> str:
        return self.controller_store_path or f"~/{self.controller_type}Controller"

    @property
    def preferred(self) -> dict[tuple[str, str], int]:
        """Broker id by cluster and group."""
        return dict(_split_preferred(item) for item in _list(self.preferred_masters, ";"))

    @property
    def black_list(self) -> frozenset[str]:
        return frozenset((*ALWAYS_BLACKLISTED, *_list(self.config_black_list, ";")))

    @property
    def access(self) -> Access:
        """Rules on who may change the controller group, and whose raft is let in. Raises ``ConfigError``."""
        networks = []
        for name, text in (("adminNetworks", self.admin_networks), ("controllerNetworks", self.controller_networks)):
            try:
                networks.append(networks_of(_list(text, ";")))
            except RaftConfigError as error:
                raise ConfigError(name, str(error.value), error.rule) from None
        return Access(networks=networks[0], admins=_list(self.admin_certificates, ";"), peer_networks=networks[1],
                      client_proposals=False)

    def raft(self) -> RaftConfig:
        """The settings of the Raft library that follow from these."""
        timeout_ms = self.j_raft_election_timeout_ms if self.controller_type == JRAFT else self.election_timeout_ms
        message = min(self.segment_bytes // 2, 8 << 20)
        return RaftConfig(
            election_timeout_ms=timeout_ms, heartbeat_interval_ms=max(timeout_ms // 5, 10),
            snapshot_log_bytes=self.snapshot_log_bytes, segment_bytes=self.segment_bytes,
            message_bytes_max=message, append_bytes_max=min(message // 4, 1 << 20),
            snapshot_chunk_bytes=min(message // 4, 1 << 20), entry_bytes_max=min(message // 4, 1 << 20),
            frame_bytes_max=min(message // 8, 256 << 10))


QUICK: Mapping[str, str] = {"brokerHeartbeatTimeoutMillis": "3000"}
"""Keys of ``detectionProfile=quick``, each with its value. What brokers say of themselves counts before it."""
PROFILES: Mapping[str, Mapping[str, str]] = {
    "default": {name: text for name, text in properties(ControllerConfig()).items() if name in QUICK}, "quick": QUICK}


KNOWN = frozenset({*names(ControllerConfig), "processReadEvent", *WITHOUT_MEANING})
"""Keys that a controller's file may have."""


def from_properties(
    given: Mapping[str, str], *, start: ControllerConfig | None = None, others: Collection[str] = (),
) -> ControllerConfig:
    """A configuration from properties, on top of ``start``. Raises ``ConfigError``.

    ``others`` are keys that somebody else reads from the same file: those of the name server it is embedded in.
    """
    if "processReadEvent" in given:  # Java's setter has this name; its getter has the other
        given = {**given, "isProcessReadEvent": given["processReadEvent"]}
        given.pop("processReadEvent")
    refuse_unknown(given, KNOWN.union(others))
    refuse_tls_key(given, "tls.server.trustCertPath is for TLS between controllers")
    start = start or ControllerConfig()
    given = in_profile(given, start, start.detection_profile, given.get("detectionProfile", "").strip(), PROFILES)
    kept = {**start.without_meaning, **{name: text for name, text in given.items() if name in WITHOUT_MEANING}}
    return attrs.evolve(read(ControllerConfig, given, start=start), without_meaning=kept)


def to_properties(config: ControllerConfig) -> dict[str, str]:
    """All keys, those without a meaning among them: what is written to ``config_store_path``."""
    return every_property(config, WITHOUT_MEANING, config.without_meaning)


def listing(config: ControllerConfig) -> dict[str, str]:
    """``to_properties`` for people and for code 1010: without the password."""
    return hidden(to_properties(config))


def live_keys() -> frozenset[str]:
    """Keys whose change a running controller follows; others wait for its next start."""
    return live_names(ControllerConfig)


def check(config: ControllerConfig) -> None:
    """Check the rules between keys that a controller needs to start. Raises ``ConfigError``."""
    group_key = "jRaftGroupId" if config.controller_type == JRAFT else "controllerDLegerGroup"
    try:
        group_number(config.group if config.group.strip() else "")
    except UsageError:
        raise ConfigError(
            group_key, config.group, f"must name the controller group in 1 to {NAME_BYTES_MAX} bytes") from None
    if config.controller_type == JRAFT:
        members, addresses = _list(config.j_raft_init_conf, ","), _list(config.j_raft_controller_rpc_addr, ",")
        if len(members) != len(addresses):
            raise ConfigError("jRaftControllerRPCAddr", config.j_raft_controller_rpc_addr,
                              f"must name as many addresses as jRaftInitConf, which names {len(members)}")
        if len(set(members)) < len(members):
            raise ConfigError("jRaftInitConf", config.j_raft_init_conf, "names one member twice")
        if config.j_raft_server_id not in members:
            raise ConfigError("jRaftServerId", config.j_raft_server_id,
                              f"must be one of jRaftInitConf, {config.j_raft_init_conf}")
    else:
        if not config.controller_dleger_peers:
            raise ConfigError(config.peers_key, "", "must name all first members: n0-host:port;n1-host:port")
        listed = [_split_peer(item)[0] for item in _list(config.controller_dleger_peers, ";")]
        if len(set(listed)) < len(listed):
            raise ConfigError(config.peers_key, config.controller_dleger_peers, "names one id twice")
        if config.controller_dleger_self_id not in listed:
            raise ConfigError("controllerDLegerSelfId", config.controller_dleger_self_id,
                              f"must be one of the ids in controllerDLegerPeers: {', '.join(listed)}")
    for address in config.peers.values():
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError(config.peers_key, address, str(error)) from None
    if len(set(config.peers.values())) < len(config.peers):
        raise ConfigError(config.peers_key, ";".join(config.peers.values()), "names one address twice")
    if not is_host(config.bind_address):
        raise ConfigError("bindAddress", config.bind_address, "must be an IP address, or the name of a host")
    config.access  # noqa: B018  raises for bad networks or names
    if config.tls_server_mode == "enforcing" and not config.tls_server_trust_cert_path:
        raise ConfigError("tls.server.mode", "enforcing",
                          "needs tls.server.trustCertPath too: controllers show each other certificates")
    if config.tls_server_trust_cert_path and config.tls_server_key_password:
        raise ConfigError("tls.server.keyPassword", "***", "is not offered with tls.server.trustCertPath: raft reads "
                          "the key without a password")
    if config.preferred and config.elect_policy != "preferred":
        raise ConfigError("preferredMasters", config.preferred_masters, "needs electPolicy=preferred")


def _list(text: str, separator: str) -> list[str]:
    return [item.strip() for item in text.split(separator) if item.strip()]


def _split_peer(item: str) -> tuple[str, str]:
    found = _PEER.fullmatch(item)
    if found is None or not NODE_ID.fullmatch(found["id"]):
        raise ConfigError("controllerDLegerPeers", item, "must be id-host:port, as in n0-10.0.0.1:9877")
    return found["id"], found["address"]


def _split_preferred(item: str) -> tuple[tuple[str, str], int]:
    names_, colon, number = item.rpartition(":")
    cluster, slash, group = names_.partition("/")
    broker_id = decimal(number)
    if not (colon and slash and cluster and group) or broker_id is None or not 0 < broker_id < BROKER_ID_MAX:
        raise ConfigError("preferredMasters", item, "must be cluster/group:id")
    return (cluster, group), broker_id
