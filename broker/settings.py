"""Makes settings of store, journal and replication from the configuration, where ``pick`` does not suffice. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from broker.acting.right import ActingRight, Always, MasterRight, Right
from broker.config import BrokerConfig, pick
from broker.ha.acks import BrokerRole, Mode, QuorumConfig
from broker.ha.config import HaConfig
from broker.journal import FlushDiskType, JournalConfig
from broker.replicas.config import ManagerConfig
from broker.schedule import levels
from broker.store.retention import RetentionConfig
from broker.store.store import StoreConfig
from remoting.daemon.keys import ConfigError

NS_PER_MS: Final = 1_000_000


def store(config: BrokerConfig) -> StoreConfig:
    """Settings of the store. Raises ``ConfigError``."""
    try:
        delays_ms = levels.parse(config.message_delay_level)
    except ValueError as error:
        raise ConfigError("messageDelayLevel", config.message_delay_level, str(error)) from None
    return StoreConfig(
        log_file_bytes=config.mapped_file_size_commit_log, queue_file_bytes=config.mapped_file_size_consume_queue,
        index=config.message_index_enable, index_slots=config.max_hash_slot_num, index_entries=config.max_index_num,
        delays_ms=delays_ms, log_apart=bool(config.log_paths))


def journal(config: BrokerConfig) -> JournalConfig:
    return JournalConfig(
        FlushDiskType(config.flush_disk_type), config.flush_interval_commit_log, config.flush_commit_log_least_pages,
        config.flush_commit_log_thorough_interval, retention=pick(config, RetentionConfig),
        disk_stall_ms=config.disk_stall_ms)


def replication(config: BrokerConfig) -> HaConfig:
    """Settings of replication. Raises ``ConfigError``."""
    flow = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else 0
    return pick(
        config, HaConfig, computed={"flow_control_bytes_per_second": flow},
        heartbeat_interval_ms="ha_send_heartbeat_interval", housekeeping_interval_ms="ha_housekeeping_interval",
        beat_interval_ms="ha_beat_interval_ms", silence_ms="ha_silence_ms",
        handshake_timeout_ms="ha_handshake_timeout",
        max_time_not_caught_up_ms="ha_max_time_slave_not_catchup", transfer_batch_bytes="ha_transfer_batch_size")


def quorum(config: BrokerConfig) -> QuorumConfig:
    """Settings of acknowledgements. Raises ``ConfigError``."""
    return pick(config, QuorumConfig, slave_timeout_ms="slave_timeout")


def mode(config: BrokerConfig) -> Mode:
    """Return the mode of the group, with this broker as its master."""
    role = BrokerRole.SYNC_MASTER if config.enable_controller_mode else config.role
    return Mode(role, config.enable_controller_mode, config.enable_slave_acting_master)


def is_leased(config: BrokerConfig) -> bool:
    """Return whether name servers decide which broker delivers what is due; else the role alone does, as in Java."""
    finds = (config.name_servers or config.fetch_name_srv_addr_by_dns_lookup
             or config.fetch_namesrv_addr_by_address_server)
    return config.slaves_may_act and config.total_replicas > 1 and bool(finds)


def right(config: BrokerConfig, hears_master: Callable[[], bool], hands_over: Callable[[], bool]) -> Right:
    """Make the right to deliver what is due, as ``ActingRight`` asks for it."""
    if not is_leased(config):
        return Always()
    timeout_ns = config.broker_not_active_timeout_millis * NS_PER_MS
    right_ns = config.acting_right_ms * NS_PER_MS
    if config.role is BrokerRole.SLAVE:
        return ActingRight(config.broker_id, config.address, timeout_ns=timeout_ns, right_ns=right_ns,
                           hears_master=hears_master, hands_over=hands_over)
    return MasterRight(config.address, timeout_ns=timeout_ns, right_ns=right_ns)


def acting_remarks(config: BrokerConfig) -> Iterator[str]:
    """Yield warnings about what ``enableSlaveActingMaster`` does not do with this configuration."""
    if not config.enable_slave_acting_master:
        return
    if config.enable_controller_mode:
        yield ("enableSlaveActingMaster lets no slave act here: with enableControllerMode a slave becomes master "
               "instead; the key only refuses writes where too few replicas live")
    elif config.total_replicas == 1:
        yield ("enableSlaveActingMaster with totalReplicas=1: no right to deliver is asked for, so a master and its "
               "slave may both deliver what is due; give the group's real totalReplicas")
    elif not is_leased(config):
        yield "enableSlaveActingMaster without name servers: nobody tells a slave that its master is away"


def registers_s(config: BrokerConfig) -> float:
    """Time within which a living broker registers again with a name server that has started: one heartbeat may be lost
    in silence, and the next one finds the new connection."""
    return (2 * config.broker_heartbeat_interval + config.send_heartbeat_timeout_millis) / 1e3


def check_parts(config: BrokerConfig) -> None:
    """Check that a broker could be made of the configuration. Raises ``ConfigError``."""
    for made in (store, journal, replication, quorum, *((manager,) if config.enable_controller_mode else ())):
        made(config)


def manager(config: BrokerConfig) -> ManagerConfig:
    """Settings of the replicas manager. Raises ``ConfigError``."""
    return pick(
        config, ManagerConfig, cluster_name="broker_cluster_name", heartbeat_interval_ms="broker_heartbeat_interval",
        heartbeat_timeout_ms="controller_heart_beat_timeout_mills", election_priority="broker_election_priority",
        learner="async_learner", sync_controller_metadata_period_ms="sync_controller_metadata_period",
        sync_broker_metadata_period_ms="sync_broker_metadata_period", silence_ms="ha_silence_ms",
        probe_interval_ms="ha_beat_interval_ms")
