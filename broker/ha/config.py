"""Limits and times of replication: RocketMQ's keys and defaults, milliseconds and bytes.

It knows numbers and their relations, and nothing of who uses them.
"""

from __future__ import annotations

from typing import Final

import attrs

from broker.ha.wire import BODY_BYTES_MAX

NS_PER_MS: Final = 1_000_000


@attrs.frozen
class HaConfig:
    """Limits and times of replication. Raises ``ValueError`` when a relation does not hold."""

    all_ack_in_sync_state_set: bool = False
    heartbeat_interval_ms: int = 5_000
    """``haSendHeartbeatInterval``."""
    housekeeping_interval_ms: int = 20_000
    """``haHousekeepingInterval``: a connection silent for so long is closed."""
    beat_interval_ms: int = 500
    """``haBeatIntervalMs``, ours: so often this end repeats itself, 0: never (``broker.ha.silence``)."""
    silence_ms: int = 2_000
    """``haSilenceMs``, ours: a peer that beats and then says nothing for so long is silent."""
    handshake_timeout_ms: int = 2_000
    """``haHandshakeTimeout``, ours: a connection on which nothing is said, such as a port probe's, is closed after so
    long (apache/rocketmq#8875)."""
    role_wait_ms: int = 10_000
    """Ours: a broker that is not master yet closes the connection of a slave that has spoken after so long."""
    max_time_not_caught_up_ms: int = 15_000
    """``haMaxTimeSlaveNotCatchup``: a member that is behind for so long leaves the SyncStateSet."""
    admission_ms: int = 1_000
    """Ours: the confirm offset waits at most so long for a slave that is about to join."""
    asked_void_ms: int = 60_000
    """Ours: a request for a SyncStateSet that got no answer counts as never carried out when it is that old and a later
    one is refused."""
    transfer_batch_bytes: int = 32 << 10
    """``haTransferBatchSize``."""
    catch_up_batch_bytes: int = 1 << 20
    """Ours: frames for a slave that is further behind than one batch; a Java slave takes up to 4 MiB."""
    confirm_interval_ms: int = 100
    """Ours: a new confirm offset waits at most so long for bytes to travel with. In Java it waits for a heartbeat."""
    flow_control_bytes_per_second: int = 0
    """``maxHaTransferByteInSecond`` where ``haFlowControlEnable`` is on; 0 is off. Per connection, as in Java."""
    reconnect_wait_ms: int = 1_000
    """5 s in Java, and no key of its own."""
    connect_timeout_ms: int = 5_000
    truncate_retry_ms: int = 2_000
    dispatch_wait_ms: int = 30_000
    """Ours: a new master waits at most so long until consumers see all that is confirmed. In Java without end."""
    young_master_shows_all: bool = False
    """Ours: Java's way, see ``broker.ha.insync``."""
    connections_max: int = 256
    """Ours: limit for connections of replicas that copy, and again for all others (``broker.ha.places``)."""

    @property
    def veils(self) -> bool:
        """Return whether a new master hides from consumers the messages that it does not know to be confirmed."""
        return self.all_ack_in_sync_state_set and not self.young_master_shows_all

    def __attrs_post_init__(self) -> None:
        if self.heartbeat_interval_ms * 2 > self.housekeeping_interval_ms:
            raise ValueError(f"heartbeat_interval_ms is {self.heartbeat_interval_ms}, more than half of "
                             f"housekeeping_interval_ms ({self.housekeeping_interval_ms}): idle connections close")
        if self.heartbeat_interval_ms > self.max_time_not_caught_up_ms:
            raise ValueError(f"heartbeat_interval_ms is {self.heartbeat_interval_ms}, more than "
                             f"max_time_not_caught_up_ms ({self.max_time_not_caught_up_ms}): idle slaves would leave "
                             "the SyncStateSet")
        if self.beat_interval_ms * 3 > self.silence_ms:
            raise ValueError(f"beat_interval_ms is {self.beat_interval_ms}, more than a third of silence_ms "
                             f"({self.silence_ms}): nobody would see that this broker beats")
        for name in ("transfer_batch_bytes", "catch_up_batch_bytes"):
            if not 1 <= getattr(self, name) <= BODY_BYTES_MAX:
                raise ValueError(f"{name} is {getattr(self, name)}; 1 to {BODY_BYTES_MAX} are possible")

    @property
    def first_report_ms(self) -> int:
        """Return the time for a slave's first report in the default protocol; Java's waits for a heartbeat interval."""
        return max(self.handshake_timeout_ms, 2 * self.heartbeat_interval_ms)
