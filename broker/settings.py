"""What each part of a broker is told of the broker's configuration: its own frozen class, made from RocketMQ's keys.

Pure. A part whose fields are named as the keys are (in snake_case) needs no function of its own: ``part`` makes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from remoting.daemon.keys import ConfigError, names

P = TypeVar("P", bound=attrs.AttrsInstance)


def part(
    config: BrokerConfig, cls: type[P], *, computed: Mapping[str, object] | None = None, **renamed: str,
) -> P:
    """``cls`` with every field that ``config`` has too, or has as ``renamed`` says; others keep their defaults.

    Raises ``ConfigError``: what ``cls`` refuses, told in RocketMQ's keys.
    """
    keys = {field.name: field.name for field in attrs.fields(cls) if hasattr(config, field.name)} | renamed
    aliases = {field.name: field.alias or field.name for field in attrs.fields(cls)}
    values = {field: getattr(config, attribute) for field, attribute in keys.items()} | dict(computed or {})
    try:
        return cls(**{aliases[field]: value for field, value in values.items()})
    except ValueError as error:
        written = {field.name: name for name, field in names(BrokerConfig).items()}
        known = {field: written[attribute] for field, attribute in keys.items() if attribute in written}
        named = [field for field in re.findall(r"\w+", str(error)) if field in known]
        rule = re.sub(r"\w+", lambda word: known.get(word[0], word[0]), str(error))
        if not named:
            raise ConfigError(cls.__name__, "as configured", rule) from None
        raise ConfigError(known[named[0]], str(values[named[0]]), rule) from None


def store(config: BrokerConfig) -> StoreConfig:
    """Raises ``ConfigError``."""
    try:
        delays_ms = levels.parse(config.message_delay_level)
    except ValueError as error:
        raise ConfigError("messageDelayLevel", config.message_delay_level, str(error)) from None
    return StoreConfig(
        log_file_bytes=config.mapped_file_size_commit_log, queue_file_bytes=config.mapped_file_size_consume_queue,
        index=config.message_index_enable, index_slots=config.max_hash_slot_num, index_entries=config.max_index_num,
        delays_ms=delays_ms)


def journal(config: BrokerConfig) -> JournalConfig:
    return JournalConfig(
        FlushDiskType(config.flush_disk_type), config.flush_interval_commit_log, config.flush_commit_log_least_pages,
        config.flush_commit_log_thorough_interval, retention=part(config, RetentionConfig))


def replication(config: BrokerConfig) -> HaConfig:
    """Raises ``ConfigError``."""
    flow = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else 0
    return part(
        config, HaConfig, computed={"flow_control_bytes_per_second": flow},
        heartbeat_interval_ms="ha_send_heartbeat_interval", housekeeping_interval_ms="ha_housekeeping_interval",
        handshake_timeout_ms="ha_handshake_timeout",
        max_time_not_caught_up_ms="ha_max_time_slave_not_catchup", transfer_batch_bytes="ha_transfer_batch_size")


def quorum(config: BrokerConfig) -> QuorumConfig:
    """Raises ``ConfigError``."""
    return part(config, QuorumConfig, slave_timeout_ms="slave_timeout")


def mode(config: BrokerConfig) -> Mode:
    """Of the group, with this broker as its master."""
    role = BrokerRole.SYNC_MASTER if config.enable_controller_mode else config.role
    return Mode(role, config.enable_controller_mode, config.enable_slave_acting_master)


def check_parts(config: BrokerConfig) -> None:
    """Whether a broker could be made of it. Raises ``ConfigError``."""
    for made in (store, journal, replication, quorum, *((manager,) if config.enable_controller_mode else ())):
        made(config)


def manager(config: BrokerConfig) -> ManagerConfig:
    """Raises ``ConfigError``."""
    return part(
        config, ManagerConfig, cluster_name="broker_cluster_name", heartbeat_interval_ms="broker_heartbeat_interval",
        heartbeat_timeout_ms="controller_heart_beat_timeout_mills", election_priority="broker_election_priority",
        learner="async_learner", sync_controller_metadata_period_ms="sync_controller_metadata_period",
        sync_broker_metadata_period_ms="sync_broker_metadata_period")
