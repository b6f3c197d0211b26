"""The broker's configuration, by RocketMQ's keys (``BrokerConfig``, ``MessageStoreConfig``, ``NettyServerConfig``).

Each part of the broker has a configuration of its own: a frozen class that ``pick`` makes from this one. Keys that
arrange Java's threads, buffers and features to come mean nothing here: they are taken, listed and told about. Keys of
ours, which Java ignores, are marked so. Text and numbers only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final, TypeVar, get_type_hints

import attrs

from broker.acting.keys import ActingKeys
from broker.ha.acks import BrokerRole
from broker.idle_keys import IDLE, INSTEAD, NOT_OFFERED
from remoting.address import is_host, join_address, split_address
from remoting.daemon.exporter import POINTS_OF_A_REQUEST, MetricsKeys
from remoting.daemon.keys import (
    ConfigError,
    every_property,
    in_profile,
    key,
    live_names,
    names,
    properties,
    read,
    refuse_unknown,
)
from remoting.daemon.tlskeys import TLSClientKeys, TLSKeys, hidden
from remoting.record import BODY_BYTES_MOST, packed_host

BLACKLISTED: Final = (
    "configBlackList", "brokerConfigPath", "storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths",
    "storePathEpochFile", "storePathBrokerIdentity", "storePathDLedgerCommitLog", "bindAddress", "listenPort",
    "haListenPort", "brokerIP1", "brokerIP2")
"""Keys that requests may not change unless the file allows it: another value would have the next start open another
store, or hide the broker from clients."""
ALWAYS_BLACKLISTED: Final = ("configBlackList", "brokerConfigPath", "configStorePath", "rocketmqHome")
MASTER_ID: Final = 0
_PORTS: Final = 65_535
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
P = TypeVar("P", bound=attrs.AttrsInstance)


def _ms(default: int, about: str, *, least: int = 1, live: bool = False) -> int:
    made: int = key(default, about, least=least, most=_INT_MAX, live=live)
    return made


def _count(default: int, about: str, *, least: int = 1, most: int = _INT_MAX, live: bool = False) -> int:
    made: int = key(default, about, least=least, most=most, live=live)
    return made


@attrs.frozen(kw_only=True)
class BrokerConfig(MetricsKeys, TLSKeys, TLSClientKeys, ActingKeys):
    """Every key that has a meaning here. Times in milliseconds unless the key says otherwise."""

    # --- who and where -----------------------------------------------------------------------------------------
    broker_cluster_name: str = key("DefaultCluster", "name of the cluster")
    broker_name: str = key("", "name of the broker group; default: this machine's name")
    broker_id: int = key(MASTER_ID, "0 is the master, others are slaves; without meaning under a controller",
                         least=-1, most=_LONG_MAX)
    broker_role: str = key("ASYNC_MASTER", "without meaning under a controller, which decides",
                           choices=tuple(role.value for role in BrokerRole))
    broker_ip1: str = key("", "address, or host name, that clients are told; default: this machine's address",
                          name="brokerIP1")
    broker_ip2: str = key("", "address that slaves are told; default: brokerIP1", name="brokerIP2")
    bind_address: str = key("0.0.0.0", "address to listen at")
    listen_port: int = key(10_911, "port of clients and others", least=0, most=_PORTS)
    fast_listen: bool = key(True, "ours: listen at listenPort - 2 as well, which old clients use for some requests")
    ha_listen_port: int = key(10_912, "port of slaves; default, and with 0: listenPort + 1", least=0, most=_PORTS)
    ha_master_address: str = key("", "plain slave: the master's haListenPort; default: as the name server says")
    namesrv_addr: str = key("", "name servers: host:port;host:port")
    fetch_name_srv_addr_by_dns_lookup: bool = key(
        False, "namesrvAddr is one name and its port: all addresses of that name are name servers")
    update_name_server_addr_period: int = _ms(120_000, "between two such questions", least=1_000)
    fetch_namesrv_addr_by_address_server: bool = key(
        False, "without namesrvAddr: ask http://rocketmq.namesrv.domain:8080/rocketmq/ for name servers")
    fetch_namesrv_addr_interval: int = _ms(10_000, "between two such questions", least=1_000)
    rocketmq_namesrv_domain: str = key("jmenv.tbsite.net", "name or name:port of the address server; in Java a system "
                                       "property", name="rocketmq.namesrv.domain")
    rocketmq_namesrv_domain_subgroup: str = key("nsaddr", "what it is asked for; in Java a system property",
                                                name="rocketmq.namesrv.domain.subgroup")
    server_channel_max_idle_time_seconds: int = key(
        120, "a connection without traffic for so long is closed", least=1, most=1_000_000)
    outgoing_bytes_budget: int = key(
        256 << 20, "ours: bytes of answers that may wait to be read; beyond it the connection is closed that has read "
        "nothing for longest", least=32 << 20, most=1 << 40)
    outgoing_stall_timeout: int = key(
        5_000, "ours: a connection that has read nothing for so long is closed while half of outgoingBytesBudget waits",
        least=10, most=_INT_MAX)
    server_socket_backlog: int = key(1_024, "connections that wait to be accepted", least=1, most=_PORTS)
    enable_shutdown_gracefully: bool = key(
        False, "on stop, tell clients to go elsewhere and wait shutdownWaitTimeSeconds before closing")
    shutdown_wait_time_seconds: int = key(30, "see enableShutdownGracefully", least=0, most=3_600)
    config_store_path: str = key(
        "~/broker/broker.properties", "ours: file that changes by code 25 are written to; -c names another")
    config_black_list: str = key(";".join(BLACKLISTED), "keys that code 25 may not change, separated by semicolons")

    # --- name servers ------------------------------------------------------------------------------------------
    register_name_server_period: int = key(30_000, "between registrations", least=10_000, most=60_000)
    register_broker_timeout_mills: int = _ms(24_000, "for one registration")
    force_register: bool = key(True, "register each time; false: only where the name server has another version")
    compressed_register: bool = key(False, "send registrations compressed")
    broker_heartbeat_interval: int = _ms(1_000, "between heartbeats", least=10)
    broker_not_active_timeout_millis: int = _ms(
        10_000, "silence after which name servers forget this broker", least=1_000)
    send_heartbeat_timeout_millis: int = _ms(1_000, "for a heartbeat to a name server")
    sync_broker_member_group_period: int = _ms(1_000, "between two looks at who lives in the group", least=10)
    skip_pre_online: bool = key(
        False, "with enableSlaveActingMaster and totalReplicas above 1: a member that starts is for clients at once, "
        "and does not ask the living members first")

    # --- controllers -------------------------------------------------------------------------------------------
    detection_profile: str = key(
        "default", "ours: quick: silence and hung disks are noticed sooner, by the keys of that profile; a key that is "
        "given itself wins", choices=("default", "quick"))
    enable_controller_mode: bool = key(False, "let controllers choose the master")
    controller_addr: str = key("", "controllers: host:port;host:port")
    controller_heart_beat_timeout_mills: int = _ms(
        10_000, "silence after which a controller takes this broker for lost", least=100)
    broker_election_priority: int = key(_INT_MAX, "among equals the smallest is elected", least=0, most=_INT_MAX)
    sync_broker_metadata_period: int = _ms(5_000, "between two questions who is master", least=10)
    sync_controller_metadata_period: int = _ms(10_000, "between two questions which controller is active", least=10)
    master_lease_ms: int = key(5_000, "ours: a master that no active controller has answered for so long refuses "
                               "writes; 0: never", least=0, most=3_600_000)
    yield_wait_ms: int = _ms(750, "ours: before the SyncStateSet shrinks below minInSyncReplicas its members are given "
                             "so long to say that they reach each other, so that one of them leads on", least=0)
    elect_retry_ms: int = _ms(5_000, "ours: between two requests to be elected", least=10)
    enable_guardian: bool = key(True, "ours, controller mode: a small process holds listenPort, starts the broker, and "
                                "passes clients' requests on to the new master while the broker is down")
    forward_ms: int = key(60_000, "ours: for so long a broker that is master no longer passes clients' requests on to "
                          "the one that is; 0: never", least=0, most=3_600_000)
    stop_forward_ms: int = key(
        35_000, "ours: after a stop with SIGTERM that handed mastership over, the guardian passes clients' requests on "
        "for so long; 0: it ends with the broker", least=0, most=3_600_000)
    hand_over_ms: int = key(3_000, "ours: a master that stops waits so long at most for another one to be elected; 0: "
                            "it does not ask", least=0, most=600_000)

    # --- topics and groups -------------------------------------------------------------------------------------
    broker_permission: int = key(6, "4 to read, 2 to write", least=0, most=7, live=True)
    default_topic_queue_nums: int = _count(8, "queues of a topic that is created by sending", most=1_024, live=True)
    auto_create_topic_enable: bool = key(True, "sending creates topics")
    cluster_topic_enable: bool = key(True, "a topic of the cluster's name")
    broker_topic_enable: bool = key(True, "a topic of the broker group's name")
    auto_create_subscription_group: bool = key(True, "heartbeats create consumer groups", live=True)
    trace_topic_enable: bool = key(False, "a topic for message traces")
    msg_trace_topic_name: str = key("RMQ_SYS_TRACE_TOPIC", "its name")
    validate_system_topic_when_update_topic: bool = key(True, "system topics cannot be changed", live=True)
    clear_retry_topic_when_delete_topic: bool = key(
        True, "deleting a topic deletes the topics through which groups that pop it retry", live=True)
    reject_transaction_message: bool = key(False, "refuse transactions", live=True)
    enable_mixed_message_type: bool = key(False, "topics may be of type MIXED", live=True)
    enable_create_sys_group: bool = key(True, "heartbeats create groups of the system in any case", live=True)
    enable_split_metadata: bool = key(True, "answer codes 21 and 201 page by page if asked to", live=True)
    split_metadata_size: int = _count(2_000, "topics or groups of such a page", live=True)
    revive_queue_num: int = _count(8, "queues of the topic that POP revives from", most=1_024)
    region_id: str = key("DefaultRegion", "told to producers for traces")
    trace_on: bool = key(True, "told to producers for traces")

    # --- consumers ---------------------------------------------------------------------------------------------
    long_polling_enable: bool = key(True, "hold pulls that find nothing", live=True)
    short_polling_time_mills: int = _ms(1_000, "for how long, without longPollingEnable", live=True)
    notify_consumer_ids_changed_enable: bool = key(True, "tell consumers at once of others of their group", live=True)
    disable_consume_if_consumer_read_slowly: bool = key(
        False, "a group that reads further behind the end of the log than consumerFallbehindThreshold may no longer "
        "consume, within three minutes, until updateSubGroup allows it again", live=True)
    consumer_fallbehind_threshold: int = key(16 << 30, "bytes; see disableConsumeIfConsumerReadSlowly", least=0,
                                             most=_LONG_MAX, live=True)
    slave_read_enable: bool = key(False, "consumers that lag read from a slave", live=True)
    access_message_in_memory_max_ratio: int = key(
        40, "percent of memory; a consumer that lags by more reads from a slave", least=1, most=100)
    channel_expired_timeout: int = _ms(120_000, "a client silent for so long is gone")
    subscription_expired_timeout: int = _ms(600_000, "a group's subscription without clients is forgotten")
    flush_consumer_offset_interval: int = _ms(5_000, "between two writes of the consumers' offsets", least=10)
    use_server_side_reset_offset: bool = key(True, "reset offsets here, not by the clients", live=True)
    max_transfer_bytes_on_message_in_memory: int = _count(256 << 10, "bytes of one pull", live=True)
    max_transfer_count_on_message_in_memory: int = _count(32, "messages of one pull", live=True)
    max_transfer_bytes_on_message_in_disk: int = _count(64 << 10, "the same, of old messages", live=True)
    max_transfer_count_on_message_in_disk: int = _count(8, "the same, of old messages", live=True)
    default_query_max_num: int = _count(32, "messages of one query", most=10_000, live=True)
    offset_check_in_slave: bool = key(False, "a slave answers for offsets out of range itself", live=True)
    lite_pull_message_enable: bool = key(True, "answer code 361, by which lite pull consumers pull", live=True)
    consumer_offset_update_version_step: int = _count(500, "so many commits move the offsets' version", live=True)
    max_filter_message_size: int = _count(16_000, "bytes of a queue that one pull looks through, 20 a message",
                                          least=20, live=True)

    # --- store -------------------------------------------------------------------------------------------------
    store_path_root_dir: str = key("~/store", "directory of everything that is kept")
    store_path_commit_log: str = key(
        "", "directory of the log; several, on disks of their own, with commas between them; default: commitlog there")
    read_only_commit_log_store_paths: str = key(
        "", "directories of the log, with commas between them, that get no new files; only where storePathCommitLog "
        "names several")
    store_path_epoch_file: str = key("", "file of the master epochs; default: epochFileCheckpoint there")
    store_path_broker_identity: str = key("", "file of the id that the controller gave; default: brokerIdentity there")
    mapped_file_size_commit_log: int = _count(1 << 30, "bytes of a file of the log", least=1 << 12)
    mapped_file_size_consume_queue: int = _count(6_000_000, "bytes of a file of a queue, 20 a message", least=20)
    max_message_size: int = _count(
        4 << 20, "bytes of a body that is sent; what is stored is delivered whatever its size", most=BODY_BYTES_MOST)
    max_msgs_num_batch: int = _count(64, "hits of a query by key", most=100_000)
    message_index_enable: bool = key(True, "keep an index by key")
    max_hash_slot_num: int = _count(5_000_000, "slots of an index file")
    max_index_num: int = _count(20_000_000, "entries of an index file")
    message_delay_level: str = key("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "the delay levels")
    flush_delay_offset_interval: int = _ms(10_000, "between two writes of the delay levels' offsets", least=10)
    flush_disk_type: str = key("ASYNC_FLUSH", "SYNC_FLUSH: a message is answered when it is on the disk",
                               choices=("ASYNC_FLUSH", "SYNC_FLUSH"))
    sync_flush_timeout: int = _ms(5_000, "for that, before FLUSH_DISK_TIMEOUT", live=True)
    flush_interval_commit_log: int = _ms(500, "ASYNC_FLUSH: between two flushes")
    flush_commit_log_least_pages: int = _count(4, "ASYNC_FLUSH: pages that make a flush worth it", least=0)
    flush_commit_log_thorough_interval: int = _ms(10_000, "ASYNC_FLUSH: after so long anything is flushed")
    file_reserved_time: int = _count(72, "hours that files of the log are kept", most=1_000_000, live=True)
    delete_when: str = key("04", "hours of the day at which old files are deleted, separated by semicolons", live=True)
    disk_max_used_space_ratio: int = key(
        75, "percent of the disk; above it, or diskSpaceCleanForciblyRatio, old files are deleted at any hour",
        least=0, most=100, live=True)
    disk_space_clean_forcibly_ratio: int = key(
        85, "percent; above it, or diskSpaceWarningLevelRatio, files younger than fileReservedTime as well, if "
        "cleanFileForciblyEnable", least=10, most=100)
    disk_space_warning_level_ratio: int = key(90, "percent; above it writes are refused", least=10, most=100)
    disk_stall_ms: int = key(3_000, "ours: a write or a sync that takes so long stalls the disk: a slave leaves its "
                             "master, a master asks for a successor; 0: never", least=0, most=_INT_MAX)
    clean_file_forcibly_enable: bool = key(False, "a full disk deletes young files rather than refuse writes; if not "
                                                  "given, true where diskSpaceCleanForciblyRatio is", live=True)

    # --- replication -------------------------------------------------------------------------------------------
    ha_send_heartbeat_interval: int = _ms(5_000, "between two signs of life of an idle connection", least=10)
    ha_housekeeping_interval: int = _ms(20_000, "a connection silent for so long is closed", least=20)
    ha_beat_interval_ms: int = _ms(
        500, "ours: so often a replica repeats itself, to a master of any make, and to a slave that does so; 0: never",
        least=0)
    ha_silence_ms: int = _ms(2_000, "ours: a replica that repeats itself, and says nothing for so long, is silent: a "
                                    "slave leaves the SyncStateSet", least=100)
    ha_handshake_timeout: int = _ms(2_000, "ours: a connection to haListenPort that says nothing for so long is closed")
    ha_transfer_batch_size: int = _count(32 << 10, "bytes of the log sent at a time", most=4 << 20)
    ha_flow_control_enable: bool = key(False, "see maxHaTransferByteInSecond")
    max_ha_transfer_byte_in_second: int = _count(100 << 20, "bytes to one slave in a second, with haFlowControlEnable",
                                                 most=_LONG_MAX)
    ha_max_time_slave_not_catchup: int = _ms(15_000, "controller mode: a replica that is behind for so long leaves the "
                                             "SyncStateSet", least=10)
    ha_max_gap_not_in_sync: int = _count(256 << 20, "plain group: bytes behind which a slave does not count",
                                         most=_LONG_MAX, live=True)
    slave_timeout: int = _ms(3_000, "for the acknowledgements of replicas, before FLUSH_SLAVE_TIMEOUT", live=True)
    total_replicas: int = _count(1, "replicas of the group", most=1_000)
    in_sync_replicas: int = _count(1, "replicas, the master among them, that hold a message before it is answered",
                                   most=1_000, live=True)
    young_master_hold_ms: int = _ms(2_000, "ours: for so long after its election a master holds messages that it would "
                                           "refuse for lack of replicas, which are about to join; 0: off", least=0)
    young_master_shows_all: bool = key(False, (
        "ours: controller mode: a new master shows all that it holds at once, as Java's do, though it may be gone with "
        "it; else, with allAckInSyncStateSet, what it was told is confirmed until minInSyncReplicas are in sync"))
    min_in_sync_replicas: int = _count(1, "with fewer in sync writes are refused", most=1_000, live=True)
    enable_auto_in_sync_replicas: bool = key(False, "plain group: ask for fewer where fewer live", live=True)
    all_ack_in_sync_state_set: bool = key(
        False, "controller mode: a message is answered when the whole SyncStateSet holds it")
    async_learner: bool = key(False, "controller mode: a replica that is never in sync and never master")
    sync_from_last_file: bool = key(False, "an empty slave begins with the master's last file")
    sync_master_flush_offset_when_startup: bool = key(False, "a slave that has no such value notes where its "
                                                        "master's log ended at its start")

    without_meaning: Mapping[str, str] = attrs.field(factory=dict)
    """Given keys of ``IDLE``, as written."""
    resolved_ip: str = ""
    """IP address of ``broker_ip1``, if that is a host name."""

    metrics_export_batch_max_data_points: int = key(
        POINTS_OF_A_REQUEST, "points of one request of a report, which may have several", least=1, most=1_000_000)

    # --- what the keys say together --------------------------------------------------------------------------

    @property
    def points_of_a_request(self) -> int:
        return self.metrics_export_batch_max_data_points

    @property
    def address(self) -> str:
        """Address where clients and controllers reach this broker: ``host:port``."""
        return join_address(self.broker_ip1, self.listen_port)

    @property
    def store_ip(self) -> str:
        return self.resolved_ip or self.broker_ip1

    @property
    def store_host(self) -> bytes:
        """``address`` as messages and their ids carry it. Raises ``MessageIllegal`` for a name that is not resolved."""
        return packed_host(self.store_ip, self.listen_port)

    @property
    def ha_address(self) -> str:
        """The address at which slaves reach it."""
        return join_address(self.broker_ip2 or self.broker_ip1, self.ha_listen_port)

    @property
    def role(self) -> BrokerRole:
        """The role that it starts in."""
        return BrokerRole.SLAVE if self.enable_controller_mode else BrokerRole(self.broker_role)

    @property
    def is_isolated_first(self) -> bool:
        """Return whether a member that starts levels itself with the living ones before clients are told of it."""
        return self.slaves_may_act and self.total_replicas > 1 and not self.skip_pre_online

    @property
    def slaves_may_act(self) -> bool:
        """Return whether slaves may act for their master while it is away."""
        return self.enable_slave_acting_master and not self.enable_controller_mode

    @property
    def name_servers(self) -> tuple[str, ...]:
        return _addresses(self.namesrv_addr)

    @property
    def address_server(self) -> str:
        """Return the URL of the address server's page that names the name servers."""
        port = "" if ":" in self.rocketmq_namesrv_domain else ":8080"
        return f"http://{self.rocketmq_namesrv_domain}{port}/rocketmq/{self.rocketmq_namesrv_domain_subgroup}"

    @property
    def controllers(self) -> tuple[str, ...]:
        return _addresses(self.controller_addr)

    @property
    def log_paths(self) -> tuple[str, ...]:
        """Paths of ``storePathCommitLog``; () for the default."""
        return _paths(self.store_path_commit_log)

    @property
    def read_only_log_paths(self) -> tuple[str, ...]:
        return _paths(self.read_only_commit_log_store_paths) if len(self.log_paths) > 1 else ()

    @property
    def identity_path(self) -> str:
        return self.store_path_broker_identity or f"{self.store_path_root_dir}/brokerIdentity"

    @property
    def black_list(self) -> frozenset[str]:
        listed = (name.strip() for name in self.config_black_list.split(";"))
        return frozenset((*ALWAYS_BLACKLISTED, *filter(None, listed)))


QUICK: Final[Mapping[str, str]] = {
    "brokerHeartbeatInterval": "250", "controllerHeartBeatTimeoutMills": "2000", "masterLeaseMs": "1500",
    "haBeatIntervalMs": "200", "haSilenceMs": "1000", "yieldWaitMs": "500", "diskStallMs": "1000",
}
"""Keys of ``detectionProfile=quick``, each with its value."""
PROFILES: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {name: text for name, text in properties(BrokerConfig()).items() if name in QUICK}, "quick": QUICK}


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.strip() for item in text.replace(",", ";").split(";") if item.strip()))


def _paths(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path.strip() for path in text.split(",") if path.strip()))


def from_properties(given: Mapping[str, str], *, start: BrokerConfig | None = None) -> BrokerConfig:
    """Make a configuration from properties, on top of ``start`` and of its class. Raises ``ConfigError``."""
    start = start or BrokerConfig()
    ours = names(type(start))
    refuse_unknown(given, {*ours, *IDLE})
    for name, text in given.items():
        if name in NOT_OFFERED and text.strip().lower() != NOT_OFFERED[name]:
            instead = f": {INSTEAD[name]}" if name in INSTEAD else ""
            raise ConfigError(name, text, f"is not offered; must be {NOT_OFFERED[name] or 'empty'}{instead}")
    kept = {**start.without_meaning, **{name: text for name, text in given.items() if name not in ours}}
    if "diskSpaceCleanForciblyRatio" in given:  # to name the ratio means to want the deletion
        given = {"cleanFileForciblyEnable": "true", **given}
    given = in_profile(given, start, start.detection_profile, given.get("detectionProfile", "").strip(), PROFILES)
    made = read(type(start), given, start=start)
    follows = "haListenPort" not in given and start.ha_listen_port == start.listen_port + 1
    if follows or not made.ha_listen_port:
        made = attrs.evolve(made, ha_listen_port=made.listen_port + 1 if made.listen_port else 0)
    return attrs.evolve(made, without_meaning=kept)


def to_properties(config: BrokerConfig) -> dict[str, str]:
    """Return all keys, those without a meaning too, as they are written to ``config_store_path``."""
    return every_property(config, IDLE, config.without_meaning)


def listing(config: BrokerConfig) -> dict[str, str]:
    """Return ``to_properties`` for people and for code 26: without the password."""
    return hidden(to_properties(config))


def live_keys(kind: type[BrokerConfig] = BrokerConfig) -> frozenset[str]:
    """Keys whose change a running broker follows; others wait for its next start."""
    return live_names(kind)


@functools.cache
def extended(config: type[BrokerConfig], keys: type[attrs.AttrsInstance]) -> type[BrokerConfig]:
    """Extend ``config`` by the keys of another class, which it must not have yet. Kept, since to make a class is slow.
    """
    kinds, fields = get_type_hints(keys), names(keys)
    assert not fields.keys() & names(config).keys(), "one key, one meaning"
    body: dict[str, object] = {"__annotations__": {field.name: kinds[field.name] for field in fields.values()}}
    for field in fields.values():
        body[field.name] = attrs.field(default=field.default, metadata=field.metadata)
    return attrs.frozen(kw_only=True)(type(config.__name__, (config,), body))


def pick(
    config: BrokerConfig, cls: type[P], *, computed: Mapping[str, object] | None = None, **renamed: str,
) -> P:
    """Make ``cls``, a part's own configuration, of every field that ``config`` has too, or has as ``renamed`` says.

    Other fields keep their defaults. Raises ``ConfigError``: what ``cls`` refuses, told in RocketMQ's keys.
    """
    keys = {field.name: field.name for field in attrs.fields(cls) if hasattr(config, field.name)} | renamed
    aliases = {field.name: field.alias or field.name for field in attrs.fields(cls)}
    values = {field: getattr(config, attribute) for field, attribute in keys.items()} | dict(computed or {})
    try:
        return cls(**{aliases[field]: value for field, value in values.items()})
    except ValueError as error:
        written = {field.name: name for name, field in names(type(config)).items()}
        known = {field: written[attribute] for field, attribute in keys.items() if attribute in written}
        named = [field for field in re.findall(r"\w+", str(error)) if field in known]
        rule = re.sub(r"\w+", lambda word: known.get(word[0], word[0]), str(error))
        if not named:
            raise ConfigError(cls.__name__, "as configured", rule) from None
        raise ConfigError(known[named[0]], str(values[named[0]]), rule) from None


def check(config: BrokerConfig) -> None:
    """Check the rules between keys that a broker needs to start. Raises ``ConfigError``."""
    for name in ("broker_cluster_name", "broker_name"):
        text = getattr(config, name)
        if not text.strip() or any(mark in text for mark in "#\r\n"):
            where = "brokerClusterName" if name == "broker_cluster_name" else "brokerName"
            raise ConfigError(where, text, "must not be empty nor contain '#' or a line's end")
    for where, text in (("brokerIP1", config.broker_ip1), ("brokerIP2", config.broker_ip2 or config.broker_ip1),
                        ("bindAddress", config.bind_address)):
        if not is_host(text):
            raise ConfigError(where, text, "must be an IP address, or the name of a host")
    for where, listed in (("namesrvAddr", config.name_servers), ("controllerAddr", config.controllers),
                          ("haMasterAddress", _addresses(config.ha_master_address))):
        for address in listed:
            try:
                split_address(address)
            except ValueError as error:
                raise ConfigError(where, address, str(error)) from None
    if config.fetch_name_srv_addr_by_dns_lookup and len(config.name_servers) > 1:
        raise ConfigError("namesrvAddr", config.namesrv_addr,
                          "must be one name and its port, with fetchNameSrvAddrByDnsLookup")
    if config.enable_controller_mode:
        _check_controlled(config)
    else:
        _check_plain(config)
    ports = [config.listen_port, config.ha_listen_port, config.listen_port - 2 if config.fast_listen else 0]
    used = [port for port in ports if port > 0]
    if len(set(used)) < len(used):
        raise ConfigError("haListenPort", str(config.ha_listen_port),
                          f"clashes with listenPort = {config.listen_port}, which is used with the one two below it")
    if config.mapped_file_size_consume_queue % 20:
        raise ConfigError("mappedFileSizeConsumeQueue", str(config.mapped_file_size_consume_queue),
                          "must be a multiple of 20, the bytes of an entry")


def _check_controlled(config: BrokerConfig) -> None:
    if not config.controllers:
        raise ConfigError("controllerAddr", config.controller_addr, "must name the controllers: host:port;host:port")
    if config.master_lease_ms >= config.controller_heart_beat_timeout_mills:
        raise ConfigError("masterLeaseMs", str(config.master_lease_ms),
                          "must be below controllerHeartBeatTimeoutMills: another master could be elected before this "
                          "one refuses writes")
    if config.broker_heartbeat_interval * 2 > (config.master_lease_ms or config.controller_heart_beat_timeout_mills):
        raise ConfigError("brokerHeartbeatInterval", str(config.broker_heartbeat_interval),
                          "must be at most half of masterLeaseMs: one lost heartbeat would stop the writes")


def _check_plain(config: BrokerConfig) -> None:
    if (config.role is BrokerRole.SLAVE) != (config.broker_id > MASTER_ID):
        raise ConfigError("brokerId", str(config.broker_id),
                          f"does not go with brokerRole = {config.broker_role}: 0 is the master, slaves have more")
    if config.enable_slave_acting_master:
        if config.acting_right_ms <= 2 * config.sync_broker_member_group_period:
            raise ConfigError("actingRightMs", str(config.acting_right_ms),
                              "must be more than twice syncBrokerMemberGroupPeriod: one lost question would end it")
        if config.acting_right_ms >= config.broker_not_active_timeout_millis:
            raise ConfigError("actingRightMs", str(config.acting_right_ms),
                              "must be below brokerNotActiveTimeoutMillis: a slave that is lost may act until then")
    for where in ("async_learner", "all_ack_in_sync_state_set"):
        if getattr(config, where):
            raise ConfigError("asyncLearner" if where == "async_learner" else "allAckInSyncStateSet", "true",
                              "needs enableControllerMode=true")
