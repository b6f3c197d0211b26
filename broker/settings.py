"""What each part of a broker is told of the broker's configuration: its own frozen class, made from RocketMQ's keys.

Pure. A part whose fields are named as the keys are (in snake_case) needs no function of its own: ``part`` makes it.
"""

from __future__ import annotations

from typing import TypeVar

import attrs

from broker.config import BrokerConfig
from broker.ha.acks import BrokerRole, Mode, QuorumConfig
from broker.ha.config import HaConfig
from broker.journal import FlushDiskType, JournalConfig
from broker.replicas.manager import ManagerConfig
from broker.schedule import levels
from broker.store.retention import RetentionConfig
from broker.store.store import StoreConfig
from remoting.daemon.keys import ConfigError

P = TypeVar("P", bound=attrs.AttrsInstance)


def part(config: BrokerConfig, cls: type[P]) -> P:
    """``cls`` with every field that is a key; others keep their defaults. Raises ``ConfigError``."""
    ours = attrs.fields_dict(BrokerConfig)
    values = {field.alias: getattr(config, field.name) for field in attrs.fields(cls) if field.name in ours}
    return _made(cls, **values)


def _made(cls: type[P], **values: object) -> P:
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(cls.__name__, "as configured", str(error)) from None


def store(config: BrokerConfig) -> StoreConfig:
    """Raises ``ConfigError``."""
    try:
        delays_ms = levels.parse(config.message_delay_level)
    except ValueError as error:
        raise ConfigError("messageDelayLevel", config.message_delay_level, str(error)) from None
    return StoreConfig(
        log_file_bytes=config.mapped_file_size_commit_log, queue_file_bytes=config.mapped_file_size_consume_queue,
        body_bytes_max=config.max_message_size, index=config.message_index_enable,
        index_slots=config.max_hash_slot_num, index_entries=config.max_index_num, delays_ms=delays_ms)


def journal(config: BrokerConfig) -> JournalConfig:
    return JournalConfig(
        FlushDiskType(config.flush_disk_type), config.flush_interval_commit_log, config.flush_commit_log_least_pages,
        config.flush_commit_log_thorough_interval, retention=part(config, RetentionConfig))


def replication(config: BrokerConfig) -> HaConfig:
    """Raises ``ConfigError``."""
    return _made(
        HaConfig, all_ack_in_sync_state_set=config.all_ack_in_sync_state_set,
        heartbeat_interval_ms=config.ha_send_heartbeat_interval,
        housekeeping_interval_ms=config.ha_housekeeping_interval,
        max_time_not_caught_up_ms=config.ha_max_time_slave_not_catchup,
        transfer_batch_bytes=config.ha_transfer_batch_size,
        flow_control_bytes_per_second=config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else 0)


def quorum(config: BrokerConfig) -> QuorumConfig:
    """Raises ``ConfigError``."""
    return _made(
        QuorumConfig, total_replicas=config.total_replicas, in_sync_replicas=config.in_sync_replicas,
        min_in_sync_replicas=config.min_in_sync_replicas,
        enable_auto_in_sync_replicas=config.enable_auto_in_sync_replicas,
        ha_max_gap_not_in_sync=config.ha_max_gap_not_in_sync,
        all_ack_in_sync_state_set=config.all_ack_in_sync_state_set, slave_timeout_ms=config.slave_timeout)


def mode(config: BrokerConfig) -> Mode:
    """Of the group, with this broker as its master."""
    role = BrokerRole.SYNC_MASTER if config.enable_controller_mode else config.role
    return Mode(role, config.enable_controller_mode, config.enable_slave_acting_master)


def manager(config: BrokerConfig) -> ManagerConfig:
    """Raises ``ConfigError``."""
    return _made(
        ManagerConfig, cluster_name=config.broker_cluster_name, broker_name=config.broker_name,
        address=config.address, controllers=config.controllers,
        heartbeat_interval_ms=config.broker_heartbeat_interval,
        heartbeat_timeout_ms=config.controller_heart_beat_timeout_mills,
        election_priority=config.broker_election_priority, master_lease_ms=config.master_lease_ms,
        min_in_sync_replicas=config.min_in_sync_replicas,
        all_ack_in_sync_state_set=config.all_ack_in_sync_state_set, learner=config.async_learner,
        sync_controller_metadata_period_ms=config.sync_controller_metadata_period,
        sync_broker_metadata_period_ms=config.sync_broker_metadata_period, elect_retry_ms=config.elect_retry_ms)
